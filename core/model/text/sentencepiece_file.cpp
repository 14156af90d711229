#include <bit>
#include <cstdint>
#include <cstring>

#include "core/base/error.h"
#include "core/model/text/sentencepiece_model.h"

namespace speclab {
namespace {

enum WireType { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

/// Numbers of the fields that are read or written.
enum ModelField { kPieces = 1, kTrainer = 2, kNormalizer = 3, kSelfTest = 4 };
enum PieceField { kText = 1, kScore = 2, kType = 3 };
enum TrainerField { kModelType = 3, kByteFallback = 35 };
enum NormalizerField { kCharacterMap = 2, kAddDummyPrefix = 3, kRemoveExtraWhitespaces = 4 };

/// Reads the fields of one protocol-buffer message in order
/// (https://protobuf.dev/programming-guides/encoding).
class Reader {
 public:
  Reader(std::string_view bytes, const std::string& file) : left_(bytes), file_(file) {
    if (bytes.size() > INT32_MAX) fail(fmt::format("{} bytes, more than the format allows", bytes.size()));
  }

  bool next() {
    if (left_.empty()) return false;
    const char* begin = left_.data();
    read();
    whole = {begin, static_cast<std::size_t>(left_.data() - begin)};
    return true;
  }

  /// Fails unless the current field has this wire type. Callers do not check fields that they skip.
  void expect(WireType type) const {
    if (wire != type)
      fail(fmt::format("field {} of wire type {}, not {}", number, wire, static_cast<int>(type)));
  }

  std::uint32_t number = 0;
  int wire = 0;
  std::uint64_t value = 0;
  std::string_view bytes;
  std::string_view whole;  ///< the current field with its tag

 private:
  void read() {
    constexpr std::uint64_t kLargestNumber = (1u << 29) - 1;
    const std::uint64_t tag = varint();
    if (tag >> 3 == 0 || tag >> 3 > kLargestNumber) fail(fmt::format("a field of number {}", tag >> 3));
    number = static_cast<std::uint32_t>(tag >> 3);
    wire = static_cast<int>(tag & 7);
    switch (wire) {
      case kVarint: value = varint(); break;
      case kFixed64: take(8); break;
      case kBytes: bytes = take(varint()); break;
      case kFixed32: {
        std::uint32_t bits;
        std::memcpy(&bits, take(4).data(), sizeof bits);
        value = bits;
        break;
      }
      default: fail(fmt::format("a field of wire type {}", wire));
    }
  }
  [[noreturn]] void fail(const std::string& got) const {
    throw Error(
        {file_, got, "a SentencePiece model", "The file is truncated or of another kind; fetch it again."});
  }
  std::string_view take(std::uint64_t count) {
    if (count > left_.size()) fail(fmt::format("{} bytes where a field needs {}", left_.size(), count));
    const std::string_view out = left_.substr(0, count);
    left_.remove_prefix(count);
    return out;
  }
  std::uint64_t varint() {
    std::uint64_t out = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const auto byte = static_cast<unsigned char>(take(1)[0]);
      out |= std::uint64_t{byte & 127u} << shift;
      if (byte < 128) return out;
    }
    fail("a number of more than ten bytes");
  }

  std::string_view left_;
  const std::string& file_;
};

SentencePieceSpec::Piece read_piece(std::string_view bytes, const std::string& file) {
  SentencePieceSpec::Piece piece{{}, 0, SentencePieceSpec::kNormal};
  for (Reader field(bytes, file); field.next();) {
    if (field.number == kText) {
      field.expect(kBytes);
      piece.text = field.bytes;
    } else if (field.number == kScore) {
      field.expect(kFixed32);
      piece.score = std::bit_cast<float>(static_cast<std::uint32_t>(field.value));
    } else if (field.number == kType) {
      field.expect(kVarint);
      piece.type = field.value <= SentencePieceSpec::kByte ? static_cast<int>(field.value) : 0;
    }
  }
  return piece;
}

void append_varint(std::string& out, std::uint64_t value) {
  for (; value >= 128; value >>= 7) out += static_cast<char>((value & 127u) | 128u);
  out += static_cast<char>(value);
}

void append_number(std::string& out, int field, std::uint64_t value) {
  append_varint(out, static_cast<std::uint64_t>(field) << 3 | kVarint);
  append_varint(out, value);
}

void append_bytes(std::string& out, int field, std::string_view bytes) {
  append_varint(out, static_cast<std::uint64_t>(field) << 3 | kBytes);
  append_varint(out, bytes.size());
  out += bytes;
}

void append_float(std::string& out, int field, float value) {
  append_varint(out, static_cast<std::uint64_t>(field) << 3 | kFixed32);
  const auto bits = std::bit_cast<std::uint32_t>(value);
  for (int shift = 0; shift < 32; shift += 8) out += static_cast<char>((bits >> shift) & 255u);
}

}  // namespace

SentencePieceSpec parse_sentencepiece_file(std::string_view bytes, const std::string& file) {
  SentencePieceSpec spec;
  spec.kind = SentencePieceSpec::Kind::kUnigram;  // the format's defaults
  spec.remove_extra_whitespaces = true;
  for (Reader field(bytes, file); field.next();) {
    if (field.number > kNormalizer) continue;
    field.expect(kBytes);
    if (field.number == kPieces) {
      spec.pieces.push_back(read_piece(field.bytes, file));
    } else if (field.number == kTrainer) {
      for (Reader trainer(field.bytes, file); trainer.next();) {
        if (trainer.number != kModelType) continue;
        trainer.expect(kVarint);
        if (trainer.value != 1 && trainer.value != 2) {
          throw Error({file, fmt::format("a SentencePiece model of type {}", trainer.value),
                       "1 (unigram) or 2 (BPE)", "Models of words and of characters are not supported."});
        }
        spec.kind = static_cast<SentencePieceSpec::Kind>(trainer.value);
      }
    } else {
      for (Reader normalizer(field.bytes, file); normalizer.next();) {
        if (normalizer.number == kCharacterMap) {
          normalizer.expect(kBytes);
          spec.character_map = normalizer.bytes;
        } else if (normalizer.number == kAddDummyPrefix || normalizer.number == kRemoveExtraWhitespaces) {
          normalizer.expect(kVarint);
          (normalizer.number == kAddDummyPrefix ? spec.add_dummy_prefix : spec.remove_extra_whitespaces) =
              normalizer.value != 0;
        }
      }
    }
  }
  return spec;
}

std::string without_self_tests(std::string_view bytes, const std::string& file) {
  std::string out;
  out.reserve(bytes.size());
  for (Reader field(bytes, file); field.next();) {
    if (field.number != kSelfTest) out += field.whole;
  }
  return out;
}

std::string write_sentencepiece_file(const SentencePieceSpec& spec) {
  std::string file;
  bool bytes = false;
  for (const SentencePieceSpec::Piece& piece : spec.pieces) {
    std::string message;
    append_bytes(message, kText, piece.text);
    append_float(message, kScore, piece.score);
    append_number(message, kType, static_cast<std::uint64_t>(piece.type));
    append_bytes(file, kPieces, message);
    bytes = bytes || piece.type == SentencePieceSpec::kByte;
  }
  std::string trainer, normalizer;
  append_number(trainer, kModelType, static_cast<std::uint64_t>(spec.kind));
  append_number(trainer, kByteFallback, bytes);
  append_bytes(file, kTrainer, trainer);
  append_bytes(normalizer, kCharacterMap, spec.character_map);
  append_number(normalizer, kAddDummyPrefix, spec.add_dummy_prefix);
  append_number(normalizer, kRemoveExtraWhitespaces, spec.remove_extra_whitespaces);
  append_bytes(file, kNormalizer, normalizer);
  return file;
}

}  // namespace speclab
