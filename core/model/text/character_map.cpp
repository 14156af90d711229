#include "core/model/text/character_map.h"

#include <cstdint>
#include <cstring>
#include <utility>

#include "core/base/error.h"
#include "core/base/utf8.h"
#include "core/model/text/unicode/unicode.h"
#include "core/model/text/unicode/unicode_graphemes.h"

namespace speclab {
namespace {

constexpr std::size_t kHead = 4;  // bytes of the number that gives the size of the trie
constexpr std::uint32_t kValue = 1u << 31;

/// Returns unit i, an entry of the trie's array. The layout is that of darts-clone. Bit 31 marks a value.
/// Otherwise bits 10 to 30 are the offset, which is multiplied by 256 when bit 9 is set. From unit i, a byte
/// leads to the unit with the index (i ^ offset ^ byte), whose low byte must equal the byte. When bit 8 is
/// set, the unit with the index (i ^ offset) holds a value.
std::uint32_t unit_at(std::string_view map, std::size_t i) {
  std::uint32_t unit;
  std::memcpy(&unit, map.data() + kHead + 4 * i, sizeof unit);
  return unit;
}
std::size_t offset_of(std::uint32_t unit) { return std::size_t{unit >> 10} << ((unit & (1u << 9)) >> 6); }
bool has_leaf(std::uint32_t unit) { return (unit & (1u << 8)) != 0; }
std::string_view texts_of(std::string_view map) {
  std::uint32_t trie_bytes;
  std::memcpy(&trie_bytes, map.data(), sizeof trie_bytes);
  return map.substr(kHead + trie_bytes);
}

std::string decode_base64(std::string_view text, const std::string& where) {
  const auto refuse = [&](const std::string& got) {
    throw Error({where, got, "base64", "The file is broken; fetch or convert it again."});
  };
  std::string out;
  if (text.size() % 4 != 0) refuse(fmt::format("{} characters, not a multiple of 4", text.size()));
  const std::size_t padding = text.ends_with("==") ? 2 : text.ends_with('=') ? 1 : 0;
  std::uint32_t bits = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    std::uint32_t digit = 0;
    if (c >= 'A' && c <= 'Z') {
      digit = static_cast<std::uint32_t>(c - 'A');
    } else if (c >= 'a' && c <= 'z') {
      digit = static_cast<std::uint32_t>(c - 'a') + 26;
    } else if (c >= '0' && c <= '9') {
      digit = static_cast<std::uint32_t>(c - '0') + 52;
    } else if (c == '+' || c == '/') {
      digit = c == '+' ? 62 : 63;
    } else if (c != '=' || i < text.size() - padding) {
      refuse(fmt::format("\"{}\" at character {}", printable(text.substr(i, 1), 4), i));
    }
    bits = bits << 6 | digit;
    if (i % 4 != 3) continue;
    for (const int shift : {16, 8, 0}) out += static_cast<char>(bits >> shift & 0xFF);
    bits = 0;
  }
  const bool canonical =
      padding == 0 || (out.back() == '\0' && (padding == 1 || out[out.size() - 2] == '\0'));
  if (!canonical) refuse("bits after the last byte");
  out.resize(out.size() - padding);
  return out;
}

}  // namespace

void check_character_map(std::string_view map, const std::string& where) {
  const auto refuse = [&](const std::string& got) {
    throw Error({where, got, "a trie and its texts, with every link inside them",
                 "The file is broken; fetch or convert it again."});
  };
  std::uint32_t trie_bytes = 0;
  if (map.size() > kHead) std::memcpy(&trie_bytes, map.data(), sizeof trie_bytes);
  if (map.size() <= kHead || trie_bytes >= map.size() - kHead || trie_bytes % 4 != 0 || trie_bytes < 1024) {
    refuse(fmt::format("{} bytes with a trie of {} bytes", map.size(), trie_bytes));
  }
  const std::size_t units = trie_bytes / 4;
  const std::string_view texts = texts_of(map);
  if (texts.back() != '\0') refuse("texts that do not end with a NUL byte");
  if (!is_utf8(texts)) refuse("texts that are not UTF-8");
  if ((unit_at(map, 0) & kValue) != 0)
    refuse("a value at the root");  // the readers would follow it like any other unit
  for (std::size_t i = 0; i < units; ++i) {
    const std::uint32_t unit = unit_at(map, i);
    if ((unit & kValue) != 0) continue;
    const std::size_t next = i ^ offset_of(unit);
    if ((next | 255u) >= units) refuse(fmt::format("a link from {} beyond {} units", i, units));
    if (!has_leaf(unit)) continue;
    const std::uint32_t place = unit_at(map, next) & ~kValue;
    if (place >= texts.size() || (texts[place] & 0xC0) == 0x80)
      refuse(fmt::format("a text at byte {} of {}, where no character begins", place, texts.size()));
    if (texts.substr(place, kMaxReplacementBytes + 1).find('\0') == texts.npos)
      refuse(fmt::format("a text of more than {} bytes", kMaxReplacementBytes));
  }
}

CharacterMap CharacterMap::from_bytes(std::string bytes, const std::string& where) {
  check_character_map(bytes, where);
  return CharacterMap(std::move(bytes));
}

CharacterMap CharacterMap::from_base64(std::string_view text, const std::string& where) {
  return from_bytes(decode_base64(text, where), where);
}

/// The replacement text of the rule with the shortest key that `part` begins with; nothing if there is none.
std::optional<std::string_view> CharacterMap::replacement(std::string_view part) const {
  std::size_t node = offset_of(unit_at(bytes_, 0));
  for (const char c : part) {
    const auto byte = static_cast<std::uint8_t>(c);
    node ^= byte;
    const std::uint32_t unit = unit_at(bytes_, node);
    if (byte == 0 || (unit & (kValue | 0xFFu)) != byte) return std::nullopt;
    node ^= offset_of(unit);
    if (!has_leaf(unit)) continue;
    const std::string_view texts = texts_of(bytes_).substr(unit_at(bytes_, node) & ~kValue);
    return texts.substr(0, texts.find('\0'));
  }
  return std::nullopt;
}

void CharacterMap::append(std::string& out, std::string_view character) const {
  out += replacement(character).value_or(character);
}

std::string CharacterMap::normalize(std::string_view text) const {
  constexpr std::size_t kMost = 5;
  std::string out;
  while (!text.empty()) {
    const std::string_view cluster = text.substr(0, unicode::first_grapheme(text));
    text.remove_prefix(cluster.size());
    if (cluster.size() <= kMost) {
      if (const auto whole = replacement(cluster)) {
        out += *whole;
        continue;
      }
    }
    for (std::size_t at = 0; at < cluster.size();) {
      const auto length = static_cast<std::size_t>(unicode::decode_one(cluster.substr(at)).length);
      append(out, cluster.substr(at, length));
      at += length;
    }
  }
  return out;
}

}  // namespace speclab
