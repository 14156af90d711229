#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace speclab {

/// One step of a pre-tokeniser: cuts every piece further. Each is a hand-written scanner of one regular
/// expression (split_patterns below has their texts), so that it takes time linear in the text whatever the
/// text is. What the expression does not match stays together between two matches.
enum class SplitStep {
  kDigits,  ///< every digit is a piece of its own
  kGpt2,    ///< the next three match everything
  kLlama3,
  kQwen2,
  kLineEnds,          ///< DeepSeek LLM and Coder: [\r\n]
  kDeepSeekLetters,   ///< DeepSeek LLM: \s?[A-Za-z...]+, letters of scripts with case
  kDeepSeekSymbols,   ///< DeepSeek LLM: \s?[!-/:-~...]+
  kTrailingSpaces,    ///< DeepSeek LLM: \s+$
  kEastAsian,         ///< DeepSeek LLM and Coder: every letter from U+0800 to U+9FA5, and Hangul
  kSpaceLetters,      ///< DeepSeek Coder: \s?\p{L}+
  kSpacePunctuation,  ///< DeepSeek Coder: \s?\p{P}+
  kThreeNumbers,      ///< DeepSeek V3: \p{N}{1,3}
  kHanAndKana,        ///< DeepSeek V3
  kDeepSeek3,         ///< DeepSeek V3: what is left
  kSigns,             ///< llama.cpp's default, first: runs of \p{P} and of $ + < = > ^ ~ |
  kNumbers,           ///< llama.cpp's default, after kGpt2: \p{N}+
  kThreeDigits,       ///< llama.cpp's default, last: three of 0 to 9
};

/// Words of a valid UTF-8 text, in order and without gaps. A step sees each piece of the step before as a
/// text of its own (its lookahead ends there): "a  1" is "a", "  ", "1" with {kDigits, kGpt2} but "a", " ", "
/// 1" with {kGpt2}. O(text) for every step.
std::vector<std::string_view> split_words(const std::vector<SplitStep>& steps, std::string_view text);

/// The expression as tokenizer.json spells it; some have two spellings.
struct SplitPattern {
  SplitStep step;
  std::string_view text;
};
const std::vector<SplitPattern>& split_patterns();

/// By the expression's text, in which line ends may stand as they are or as escapes; nothing if it is not
/// known.
std::optional<SplitStep> split_step_of(std::string_view pattern);

/// Whether a code point is in the set of kDeepSeekLetters, kDeepSeekSymbols, kEastAsian or kHanAndKana.
bool in_split_set(SplitStep step, char32_t code_point);

}  // namespace speclab
