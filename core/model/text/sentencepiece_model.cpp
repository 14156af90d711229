#include "core/model/text/sentencepiece_model.h"

#include <sentencepiece_processor.h>

#include <cstdint>
#include <utility>

#include "core/base/error.h"
#include "core/base/utf8.h"
#include "core/model/text/character_map.h"

namespace speclab {

struct SentencePieceModel::Library {
  sentencepiece::SentencePieceProcessor processor;
};

namespace {

constexpr const char* kFetchModelAgain = "The file is broken; fetch or convert it again.";

/// Refuses pieces that break the library. The library builds its trie by a recursion as deep as the longest
/// piece, and takes a NUL byte for the end of a piece. With BPE it finds control pieces of a single character
/// in texts and then refuses its own result.
void check_text(const SentencePieceSpec& spec, const SentencePieceSpec::Piece& piece,
                const std::string& where) {
  constexpr std::size_t kMostBytes = 1024;
  const std::string& text = piece.text;
  if (text.size() > kMostBytes)
    throw Error({where, fmt::format("{} bytes", text.size()), fmt::format("at most {}", kMostBytes),
                 kFetchModelAgain});
  if (!is_utf8(text)) throw Error({where, "text that is not UTF-8", "UTF-8", kFetchModelAgain});
  if (text.find('\0') != text.npos) throw Error({where, "a NUL byte", "text", kFetchModelAgain});
  const bool merged = spec.kind == SentencePieceSpec::Kind::kBpe,
             control = piece.type == SentencePieceSpec::kControl;
  if (merged && control && !text.empty() && utf8_sequence(text, 0) == text.size())
    throw Error({where, fmt::format("the control piece \"{}\"", text), "more than one character",
                 "No text with that character could be encoded."});
}

void check_pieces(const SentencePieceSpec& spec, const std::string& file) {
  if (spec.pieces.empty()) throw Error({file, "no pieces", "a SentencePiece vocabulary", kFetchModelAgain});
  for (std::size_t i = 0; i < spec.pieces.size(); ++i) {
    const int type = spec.pieces[i].type;
    if (type < SentencePieceSpec::kNormal || type > SentencePieceSpec::kByte)
      throw Error(
          {fmt::format("{}: type of piece {}", file, i), "an unknown type", "1..6", kFetchModelAgain});
    check_text(spec, spec.pieces[i], fmt::format("{}: piece {}", file, i));
  }
}

}  // namespace

SentencePieceModel::SentencePieceModel(SentencePieceSpec spec, std::string_view bytes,
                                       const std::string& file)
    : spec_(std::move(spec)), library_(std::make_unique<Library>()) {
  check_pieces(spec_, file);
  // The character map holds a trie of its own, whose links the library follows unchecked.
  if (!spec_.character_map.empty()) check_character_map(spec_.character_map, file + ": character map");
  const auto status = library_->processor.LoadFromSerializedProto(bytes);
  if (!status.ok()) {
    throw Error({file, status.ToString(), "a vocabulary that SentencePiece's library accepts",
                 "SpecLab encodes with that library. A program with its own encoder may read the file."});
  }
  SPECLAB_CHECK(library_->processor.GetPieceSize() == static_cast<int>(spec_.pieces.size()),
                "SentencePiece's library has {} pieces, the file has {}", library_->processor.GetPieceSize(),
                spec_.pieces.size());
}

SentencePieceModel::~SentencePieceModel() = default;
SentencePieceModel::SentencePieceModel(SentencePieceModel&&) noexcept = default;

SentencePieceModel SentencePieceModel::from_file(std::string_view bytes, const std::string& file) {
  return SentencePieceModel(parse_sentencepiece_file(bytes, file), without_self_tests(bytes, file), file);
}

SentencePieceModel SentencePieceModel::from_spec(SentencePieceSpec spec, const std::string& file) {
  const std::string bytes = write_sentencepiece_file(spec);
  return SentencePieceModel(std::move(spec), bytes, file);
}

void SentencePieceModel::encode(std::string_view text, std::vector<Token>& out) const {
  // The library counts the bytes of the normalised text in an int. A space becomes a mark of three bytes.
  const std::size_t growth = 3 * (spec_.character_map.empty() ? 1 : kMaxReplacementBytes),
                    most = INT32_MAX / growth - 1;
  if (text.size() > most) {
    throw Error({"text to encode with SentencePiece", fmt::format("{} bytes", text.size()),
                 fmt::format("at most {}", most), "Split the text."});
  }
  std::vector<int> ids;
  const auto status = library_->processor.Encode(text, &ids);
  SPECLAB_CHECK(status.ok(), "SentencePiece: {}", status.ToString());
  out.insert(out.end(), ids.begin(), ids.end());
}

namespace {
std::optional<Token> known(int id) { return id < 0 ? std::nullopt : std::optional<Token>(id); }
}  // namespace

std::optional<Token> SentencePieceModel::bos() const { return known(library_->processor.bos_id()); }
std::optional<Token> SentencePieceModel::eos() const { return known(library_->processor.eos_id()); }
std::optional<Token> SentencePieceModel::unk() const { return known(library_->processor.unk_id()); }
std::optional<Token> SentencePieceModel::pad() const { return known(library_->processor.pad_id()); }

}  // namespace speclab
