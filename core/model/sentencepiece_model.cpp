#include "core/model/sentencepiece_model.h"

#include <sentencepiece_processor.h>

#include <cstring>
#include <utility>

#include "core/base/error.h"

namespace speclab {

struct SentencePieceModel::Library {
  sentencepiece::SentencePieceProcessor processor;
};

namespace {

constexpr const char* kFetchAgain = "The file is broken; fetch or convert it again.";

/// The library walks the trie of the character map without looking where it ends, so a damaged one is found
/// here. Its units are those of darts-clone (https://github.com/s-yata/darts-clone): bit 31 marks a value;
/// else bits 10 to 30 are an offset, times 256 when bit 9 is set, a step goes to the unit at (own index ^
/// offset ^ byte), and with bit 8 the unit at (own index ^ offset) holds a value, here the place of a text.
void check_character_map(const std::string& map, const std::string& file) {
  if (map.empty()) return;
  const auto refuse = [&](const std::string& got) {
    throw Error(
        {file + ": character map", got, "a trie and its texts, without links to the outside", kFetchAgain});
  };
  std::uint32_t trie_bytes = 0;
  if (map.size() > sizeof trie_bytes) std::memcpy(&trie_bytes, map.data(), sizeof trie_bytes);
  if (map.size() <= sizeof trie_bytes || trie_bytes >= map.size() - sizeof trie_bytes ||
      trie_bytes % 4 != 0 || trie_bytes < 1024) {
    refuse(fmt::format("{} bytes with a trie of {}", map.size(), trie_bytes));
  }
  const std::size_t units = trie_bytes / 4, texts = map.size() - sizeof trie_bytes - trie_bytes;
  if (map.back() != '\0') refuse("texts without an end");
  const auto unit_at = [&](std::size_t i) {
    std::uint32_t unit;
    std::memcpy(&unit, map.data() + sizeof trie_bytes + 4 * i, sizeof unit);
    return unit;
  };
  for (std::size_t i = 0; i < units; ++i) {
    const std::uint32_t unit = unit_at(i);
    if (unit >> 31 != 0) continue;
    const std::size_t next = i ^ (std::size_t{unit >> 10} << ((unit & (1u << 9)) >> 6));
    if ((next | 255u) >= units) refuse(fmt::format("a link from {} beyond {} units", i, units));
    const std::uint32_t value = unit_at(next) & 0x7fffffffu;
    if ((unit & (1u << 8)) != 0 && value >= texts)
      refuse(fmt::format("a text at byte {} of {}", value, texts));
  }
}

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
  check_character_map(spec_.character_map, file);
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
