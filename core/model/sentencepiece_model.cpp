#include "core/model/sentencepiece_model.h"

#include <sentencepiece_processor.h>

#include <utility>

#include "core/base/error.h"
#include "core/model/character_map.h"

namespace speclab {

struct SentencePieceModel::Library {
  sentencepiece::SentencePieceProcessor processor;
};

namespace {

constexpr const char* kFetchAgain = "The file is broken; fetch or convert it again.";

void check_pieces(const SentencePieceSpec& spec, const std::string& file) {
  if (spec.pieces.empty()) throw Error({file, "no pieces", "a SentencePiece vocabulary", kFetchAgain});
  for (std::size_t i = 0; i < spec.pieces.size(); ++i) {
    const int type = spec.pieces[i].type;
    if (type < SentencePieceSpec::kNormal || type > SentencePieceSpec::kByte)
      throw Error({fmt::format("{}: type of piece {}", file, i), "another number", "1..6", kFetchAgain});
  }
}

}  // namespace

SentencePieceModel::SentencePieceModel(SentencePieceSpec spec, std::string_view bytes,
                                       const std::string& file)
    : spec_(std::move(spec)), library_(std::make_unique<Library>()) {
  check_pieces(spec_, file);
  // The library walks the trie without looking where it ends.
  if (!spec_.character_map.empty()) check_character_map(spec_.character_map, file + ": character map");
  const auto status = library_->processor.LoadFromSerializedProto(bytes);
  if (!status.ok()) throw Error({file, status.ToString(), "a SentencePiece model", kFetchAgain});
  SPECLAB_CHECK(library_->processor.GetPieceSize() == static_cast<int>(spec_.pieces.size()),
                "{} pieces of {}", library_->processor.GetPieceSize(), spec_.pieces.size());
}

SentencePieceModel::~SentencePieceModel() = default;
SentencePieceModel::SentencePieceModel(SentencePieceModel&&) noexcept = default;

SentencePieceModel SentencePieceModel::from_file(std::string_view bytes, const std::string& file) {
  return SentencePieceModel(parse_sentencepiece_file(bytes, file), bytes, file);
}

SentencePieceModel SentencePieceModel::from_spec(SentencePieceSpec spec, const std::string& file) {
  const std::string bytes = write_sentencepiece_file(spec);
  return SentencePieceModel(std::move(spec), bytes, file);
}

void SentencePieceModel::encode(std::string_view text, std::vector<Token>& out) const {
  std::vector<int> ids;
  const auto status = library_->processor.Encode(text, &ids);
  SPECLAB_CHECK(status.ok(), "SentencePiece: {}", status.ToString());
  out.insert(out.end(), ids.begin(), ids.end());
}

namespace {
std::optional<Token> known(int id) {
  return id < 0 ? std::nullopt : std::optional<Token>(id);
}
}  // namespace

std::optional<Token> SentencePieceModel::bos() const {
  return known(library_->processor.bos_id());
}
std::optional<Token> SentencePieceModel::eos() const {
  return known(library_->processor.eos_id());
}
std::optional<Token> SentencePieceModel::unk() const {
  return known(library_->processor.unk_id());
}
std::optional<Token> SentencePieceModel::pad() const {
  return known(library_->processor.pad_id());
}

}  // namespace speclab
