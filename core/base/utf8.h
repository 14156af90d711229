#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace speclab {

/// Length in bytes of the UTF-8 character that begins at text[at]; 0 when no valid character begins there.
/// Overlong forms, surrogates and values above U+10FFFF are invalid (RFC 3629).
std::size_t utf8_sequence(std::string_view text, std::size_t at);

bool is_utf8(std::string_view text);

/// Makes a text safe to print on a terminal and to store in JSON. Control characters and bytes that are not
/// UTF-8 become \n, \t or \xNN. When the result has `most` bytes or more before the text ends, the rest of
/// the text is left out, and "..." follows.
std::string printable(std::string_view text, std::size_t most);

}  // namespace speclab
