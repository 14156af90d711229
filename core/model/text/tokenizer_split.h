#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace speclab {

/// One step of a pre-tokeniser, which cuts every piece further. Each step is a hand-written scanner, so it
/// takes linear time for every text. All steps except kDigits implement a regular expression (see
/// split_patterns). Text between two matches stays one piece.
enum class SplitStep {
  kDigits,            ///< the pre-tokeniser "Digits": every digit is one piece
  kGpt2,              ///< its matches leave no gap in any text
  kLlama3,            ///< its matches leave no gap in any text
  kQwen2,             ///< its matches leave no gap in any text
  kLineEnds,          ///< DeepSeek LLM and Coder: [\r\n]
  kDeepSeekLetters,   ///< DeepSeek LLM: \s?[A-Za-z...]+, letters of scripts with case
  kDeepSeekSymbols,   ///< DeepSeek LLM: \s?[!-/:-~...]+
  kTrailingSpaces,    ///< DeepSeek LLM: \s+$
  kEastAsian,         ///< DeepSeek LLM and Coder: runs of U+0800 to U+9FA5 and U+AC00 to U+D7FF
  kSpaceLetters,      ///< DeepSeek Coder: \s?\p{L}+
  kSpacePunctuation,  ///< DeepSeek Coder: \s?\p{P}+
  kThreeNumbers,      ///< DeepSeek V3: \p{N}{1,3}
  kHanAndKana,        ///< DeepSeek V3: runs of Han and kana characters
  kDeepSeek3,         ///< DeepSeek V3, last step: words, signs and white space
  kSigns,             ///< llama.cpp's default, first step: [\p{P}$+<=>^~|]+
  kNumbers,           ///< llama.cpp's default, step after kGpt2: \p{N}+
  kThreeDigits,       ///< llama.cpp's default, last step: three of the digits 0 to 9
};

/// Splits a valid UTF-8 text into words, in order and without gaps. A step sees each piece of the previous
/// step as a separate text, and its lookahead stops at the end of the piece. For example, {kDigits, kGpt2}
/// splits "a  1" (with two spaces) into "a", "  " and "1", and {kGpt2} splits it into "a", " " and " 1". Each
/// step takes O(text).
std::vector<std::string_view> split_words(const std::vector<SplitStep>& steps, std::string_view text);

/// The expression of a step as tokenizer.json spells it. Some have two spellings.
struct SplitPattern {
  SplitStep step;
  std::string_view text;
};
const std::vector<SplitPattern>& split_patterns();

/// The step of an expression, or nothing if it is unknown. A line end in the pattern
/// may be the character itself or its escape.
std::optional<SplitStep> split_step_of(std::string_view pattern);

/// Whether a code point is in the set of kDeepSeekLetters, kDeepSeekSymbols, kEastAsian or kHanAndKana.
bool in_split_set(SplitStep step, char32_t code_point);

}  // namespace speclab
