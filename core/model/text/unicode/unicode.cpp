#include "core/model/text/unicode/unicode.h"

#include <algorithm>
#include <array>

namespace speclab::unicode {
namespace {

std::uint8_t search(char32_t code_point) {
  const std::span<const ClassRun> runs = class_runs();
  const auto after = std::upper_bound(runs.begin(), runs.end(), code_point,
                                      [](char32_t value, const ClassRun& run) { return value < run.first; });
  return code_point > 0x10FFFF ? 0 : std::prev(after)->classes;
}

/// Classes below U+0800, where most text lies: one load instead of a search.
const std::array<std::uint8_t, 0x800>& low_classes() {
  static const auto table = [] {
    std::array<std::uint8_t, 0x800> classes;
    for (char32_t c = 0; c < classes.size(); ++c) classes[c] = search(c);
    return classes;
  }();
  return table;
}

}  // namespace

std::uint8_t classes_of(char32_t code_point) {
  return code_point < 0x800 ? low_classes()[code_point] : search(code_point);
}

Decoded decode_one(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<std::uint8_t>(text[i]); };
  const std::uint8_t lead = byte(0);
  if (lead < 0x80) return {lead, 1, true, false};
  int length = 0;
  // The second byte has a narrower range after E0 and F0 (overlong), ED (surrogates) and F4 (past U+10FFFF).
  std::uint8_t low = 0x80, high = 0xBF;
  char32_t value = 0;
  if (lead >= 0xC2 && lead <= 0xDF) {
    length = 2, value = lead & 0x1F;
  } else if (lead >= 0xE0 && lead <= 0xEF) {
    length = 3, value = lead & 0x0F;
    if (lead == 0xE0) low = 0xA0;
    if (lead == 0xED) high = 0x9F;
  } else if (lead >= 0xF0 && lead <= 0xF4) {
    length = 4, value = lead & 0x07;
    if (lead == 0xF0) low = 0x90;
    if (lead == 0xF4) high = 0x8F;
  } else {
    return {kReplacement, 1, false, false};
  }
  for (int i = 1; i < length; ++i) {
    if (static_cast<std::size_t>(i) == text.size()) return {kReplacement, i, false, true};
    if (byte(i) < low || byte(i) > high) return {kReplacement, i, false, false};
    value = value << 6 | (byte(i) & 0x3F);
    low = 0x80, high = 0xBF;
  }
  return {value, length, true, false};
}

void append_utf8(std::string& text, char32_t code_point) {
  const auto put = [&](char32_t byte) { text += static_cast<char>(byte); };
  if (code_point < 0x80) {
    put(code_point);
  } else if (code_point < 0x800) {
    put(0xC0 | code_point >> 6), put(0x80 | (code_point & 0x3F));
  } else if (code_point < 0x10000) {
    put(0xE0 | code_point >> 12), put(0x80 | (code_point >> 6 & 0x3F)), put(0x80 | (code_point & 0x3F));
  } else {
    put(0xF0 | code_point >> 18), put(0x80 | (code_point >> 12 & 0x3F));
    put(0x80 | (code_point >> 6 & 0x3F)), put(0x80 | (code_point & 0x3F));
  }
}

std::string replace_invalid(std::string_view bytes) {
  std::string text;
  text.reserve(bytes.size());
  for (std::size_t at = 0; at < bytes.size();) {
    const Decoded next = decode_one(bytes.substr(at));
    if (next.valid) {
      text.append(bytes.substr(at, next.length));
    } else {
      append_utf8(text, kReplacement);
    }
    at += next.length;
  }
  return text;
}

}  // namespace speclab::unicode
