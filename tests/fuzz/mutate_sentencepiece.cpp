#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <limits>
#include <vector>

#include "tests/fuzz/mutate.h"

namespace speclab::fuzz {
namespace {

enum Wire : std::uint32_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

/// A protocol buffer taken apart: https://protobuf.dev/programming-guides/encoding.
struct Field {
  std::uint64_t number;
  std::uint32_t wire;
  std::uint64_t value;  // of a varint
  std::string bytes;    // of the others
};
using Message = std::vector<Field>;

void append_varint(std::string& out, std::uint64_t value) {
  for (; value >= 128; value >>= 7) out += static_cast<char>((value & 127u) | 128u);
  out += static_cast<char>(value);
}

bool read_varint(std::string_view& from, std::uint64_t& value) {
  value = 0;
  for (int shift = 0; shift < 64 && !from.empty(); shift += 7) {
    const auto byte = static_cast<std::uint8_t>(from.front());
    from.remove_prefix(1);
    value |= std::uint64_t{byte & 127u} << shift;
    if (byte < 128) return true;
  }
  return false;
}

/// The fields before the first damaged byte.
Message take_apart(std::string_view bytes) {
  Message message;
  for (std::uint64_t tag, size; !bytes.empty() && read_varint(bytes, tag);) {
    Field field{tag >> 3, static_cast<std::uint32_t>(tag & 7), 0, {}};
    if (field.wire == kVarint) {
      if (!read_varint(bytes, field.value)) break;
    } else {
      if (field.wire == kBytes) {
        if (!read_varint(bytes, size)) break;
      } else {
        size = field.wire == kFixed64 ? 8 : field.wire == kFixed32 ? 4 : UINT64_MAX;
      }
      if (size > bytes.size()) break;
      field.bytes = bytes.substr(0, size);
      bytes.remove_prefix(size);
    }
    message.push_back(std::move(field));
  }
  return message;
}

std::string put_together(const Message& message, Random& random) {
  std::string out;
  for (const Field& field : message) {
    append_varint(out, field.number << 3 | field.wire);
    if (field.wire == kVarint) append_varint(out, field.value);
    if (field.wire == kBytes)
      append_varint(out, below(random, 400) == 0 ? random() >> below(random, 64) : field.bytes.size());
    out += field.bytes;
  }
  return out;
}

std::string float_bytes(Random& random) {
  using Limits = std::numeric_limits<float>;
  static constexpr float kValues[] = {0,
                                      -0.0f,
                                      -1,
                                      1,
                                      -1e30f,
                                      Limits::max(),
                                      Limits::lowest(),
                                      Limits::infinity(),
                                      -Limits::infinity(),
                                      Limits::quiet_NaN(),
                                      Limits::denorm_min()};
  const auto bits = std::bit_cast<std::uint32_t>(kValues[below(random, std::size(kValues))]);
  std::string out(4, '\0');
  std::memcpy(out.data(), &bits, sizeof bits);
  return out;
}

/// A character map is its size, a trie of 32-bit units, and texts.
void change_units(std::string& map, Random& random, const MutateBytes& bytes) {
  if (map.size() < 8 || below(random, 4) == 0) return bytes(map);
  const std::size_t at = 4 * below(random, map.size() / 4);
  std::uint32_t unit;
  std::memcpy(&unit, map.data() + at, sizeof unit);
  static constexpr std::uint32_t kFlips[] = {1u << 31, 1u << 8, 1u << 9, 1u << 10, 1u << 18, 1u, 0xFFu};
  unit ^= below(random, 3) == 0 ? static_cast<std::uint32_t>(random()) >> below(random, 32)
                                : kFlips[below(random, std::size(kFlips))];
  std::memcpy(map.data() + at, &unit, sizeof unit);
}

void change_text(std::string& text, Random& random, const MutateBytes& bytes) {
  static const std::string kTexts[] = {"",
                                       std::string(1, '\0'),
                                       "a",
                                       "\xe2\x96\x81",
                                       "\xe2\x96\x81"
                                       "a",
                                       "<unk>",
                                       "<s>",
                                       "</s>",
                                       "<0x41>",
                                       "<0xG1>",
                                       "\xc3",
                                       "\xa9",
                                       "\xff",
                                       "co",
                                       "Sp",
                                       " ",
                                       "\xf0\x9f\x98\x80"};
  if (below(random, 2) == 0) {
    bytes(text);
  } else if (below(random, 8) == 0) {
    text += std::string(below(random, 40), text.empty() ? 'a' : text.back());
  } else {
    text = kTexts[below(random, std::size(kTexts))];
  }
}

void change_field(Field& field, Random& random, const MutateBytes& bytes) {
  static constexpr std::uint64_t kValues[] = {
      0, 1, 2, 3, 4, 5, 6, 7, 127, INT32_MAX, 1ull << 31, (1ull << 32) + 1, UINT64_MAX};
  switch (field.wire) {
    case kVarint: field.value = kValues[below(random, std::size(kValues))]; break;
    case kFixed32: field.bytes = float_bytes(random); break;
    case kBytes:
      field.bytes.size() >= 1024 ? change_units(field.bytes, random, bytes)
                                 : change_text(field.bytes, random, bytes);
      break;
    default: bytes(field.bytes); field.bytes.resize(8, '\0');
  }
}

/// Changes the fields of one message: another value, number or type, or repeats, erases or moves them.
void change_message(Message& message, Random& random, const MutateBytes& bytes) {
  static constexpr std::uint32_t kWires[] = {kVarint, kFixed64, kBytes, kFixed32, 3, 4, 6, 7};
  if (message.empty()) {
    message.push_back({1 + below(random, 5), kVarint, below(random, 7), {}});
    return;
  }
  const std::size_t at = below(random, message.size());
  const auto place = message.begin() + static_cast<std::ptrdiff_t>(at);
  switch (below(random, 10)) {
    case 0: message.erase(place); break;
    case 1: {
      const Field copy = *place;
      message.insert(message.begin() + static_cast<std::ptrdiff_t>(below(random, message.size() + 1)), copy);
      break;
    }
    case 2: std::swap(message[at], message[below(random, message.size())]); break;
    case 3: place->number = below(random, 4) == 0 ? random() >> below(random, 64) : below(random, 8); break;
    case 4:
      place->wire = kWires[below(random, std::size(kWires))];
      if (place->wire == kFixed32) place->bytes = float_bytes(random);
      if (place->wire == kFixed64) place->bytes.resize(8, '\0');
      break;
    case 5: message.push_back({1 + below(random, 45), kVarint, below(random, 7), {}}); break;
    default: change_field(*place, random, bytes);
  }
}

}  // namespace

std::string mutate_sentencepiece(const std::string& file, Random& random, const MutateBytes& bytes) {
  enum { kPieces = 1, kTrainer = 2, kNormalizer = 3, kSelfTest = 4, kDenormalizer = 5 };
  Message model = take_apart(file);
  for (std::size_t i = 0, n = 1 + below(random, 3); i < n; ++i) {
    if (model.empty() || below(random, 6) == 0) {
      change_message(model, random, bytes);
      continue;
    }
    // Changes one of its messages; a rare kind is chosen as often as one of the many pieces.
    const std::uint64_t number = 1 + below(random, 5);
    std::vector<Field*> parts;
    for (Field& field : model) {
      if (field.wire == kBytes && field.number == number) parts.push_back(&field);
    }
    if (parts.empty()) {
      if (number == kSelfTest && below(random, 4) == 0) {  // samples of input and expected pieces
        model.push_back({kSelfTest, kBytes, 0,
                         std::string("\x0a\x07\x0a\x02"
                                     "co\x12\x01"
                                     "a",
                                     9)});
      }
      continue;
    }
    Field& part = *parts[below(random, parts.size())];
    Message inner = take_apart(part.bytes);
    change_message(inner, random, bytes);
    part.bytes = put_together(inner, random);
  }
  return put_together(model, random);
}

}  // namespace speclab::fuzz
