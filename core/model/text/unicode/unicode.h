#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

/// UTF-8 and the character classes of pre-tokenisers. Pure functions, thread-safe.
namespace speclab::unicode {

/// Classes of a code point, as bits; one code point can have several.
enum Class : std::uint8_t {
  kLetter = 1,        ///< \p{L} in the regular expressions that split text
  kNumber = 2,        ///< \p{N} in the same expressions (Nd, Nl, No)
  kSpace = 4,         ///< \s = White_Space: U+0085 and U+3000 yes, U+180E and U+200B no
  kDigit = 8,         ///< what the splitter "Digits" isolates: \p{N} of a newer Unicode than kNumber
  kPunctuation = 16,  ///< \p{P}
  kSymbol = 32,       ///< \p{S}
  kMark = 64,         ///< \p{M}
  kWord = 128,        ///< \w, for single_word of added tokens: Alphabetic, marks, Nd, Pc, U+200C, U+200D
};

/// The code points from `first` to just before the next run have these classes.
struct ClassRun {
  std::uint32_t first;
  std::uint8_t classes;
};

/// All runs in ascending order, the first at 0 (unicode_tables.cpp, generated).
std::span<const ClassRun> class_runs();

/// Bits of Class; 0 for code points without any class and for numbers that are no code points.
std::uint8_t classes_of(char32_t code_point);
inline bool is_space(char32_t code_point) { return (classes_of(code_point) & kSpace) != 0; }

/// A decoded code point of a text and its length in bytes (at least 1).
struct Decoded {
  char32_t code_point;  ///< kReplacement when the bytes are not UTF-8
  int length;           ///< for an ill-formed sequence its maximal subpart (Unicode 16, 3.9, table 3-8)
  bool valid;
  bool truncated;  ///< not valid, but more bytes after the end could make it valid
};
inline constexpr char32_t kReplacement = 0xFFFD;

/// Decodes the first code point of `text`, which must not be empty. Surrogates
/// and overlong forms are ill-formed.
Decoded decode_one(std::string_view text);

void append_utf8(std::string& text, char32_t code_point);

/// Replaces every maximal subpart of an ill-formed sequence by U+FFFD, as Python's bytes.decode("utf-8",
/// "replace") does. Valid UTF-8 stays unchanged.
std::string replace_invalid(std::string_view bytes);

}  // namespace speclab::unicode
