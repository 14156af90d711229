#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace speclab {

/// Bytes of the character that begins at text[at]; 0 when none does. No overlong forms, no surrogates,
/// nothing above U+10FFFF (RFC 3629).
std::size_t utf8_sequence(std::string_view text, std::size_t at);

bool is_utf8(std::string_view text);

/// For people, terminals and JSON: control characters and bytes that are no UTF-8 as \n, \t or \xNN, and what
/// is longer than `most` bytes cut off with "...".
std::string printable(std::string_view text, std::size_t most);

}  // namespace speclab
