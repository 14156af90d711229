#include "core/base/utf8.h"

#include <fmt/format.h>

#include <algorithm>

namespace speclab {

std::size_t utf8_sequence(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u; };
  const unsigned lead = byte(at), next = byte(at + 1);
  if (at >= text.size() || (lead >= 0x80 && lead < 0xc2) || lead >= 0xf5) return 0;
  const std::size_t more = lead < 0x80 ? 0 : lead < 0xe0 ? 1 : lead < 0xf0 ? 2 : 3;
  for (std::size_t k = 1; k <= more; ++k) {
    if ((byte(at + k) & 0xc0) != 0x80) return 0;
  }
  if ((lead == 0xe0 && next < 0xa0) || (lead == 0xed && next > 0x9f) || (lead == 0xf0 && next < 0x90) ||
      (lead == 0xf4 && next > 0x8f)) {
    return 0;
  }
  return 1 + more;
}

bool is_utf8(std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t bytes = utf8_sequence(text, at);
    if (bytes == 0) return false;
    at += bytes;
  }
  return true;
}

std::string printable(std::string_view text, std::size_t most) {
  const auto plain = [](char c) { return c >= 0x20 && c < 0x7f; };
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    if (out.size() >= most) return out + "...";
    const std::string_view rest = text.substr(at, most - out.size());
    const auto run = static_cast<std::size_t>(std::ranges::find_if_not(rest, plain) - rest.begin());
    out += rest.substr(0, run);  // most texts are a single run of plain characters
    at += run;
    if (run > 0) continue;
    const std::size_t bytes = utf8_sequence(text, at);
    const auto byte = static_cast<unsigned char>(text[at]);
    const bool c1 = bytes == 2 && byte == 0xc2 && static_cast<unsigned char>(text[at + 1]) < 0xa0;
    if (byte == '\n') {
      out += "\\n";
    } else if (byte == '\t') {
      out += "\\t";
    } else if (bytes == 0 || byte < 0x20 || byte == 0x7f || c1) {
      for (std::size_t i = 0; i < (c1 ? 2 : 1); ++i)
        out += fmt::format("\\x{:02x}", static_cast<unsigned char>(text[at + i]));
    } else {
      out += text.substr(at, bytes);
    }
    at += bytes == 0 ? 1 : bytes;
  }
  return out;
}

}  // namespace speclab
