#pragma once

#include <string_view>
#include <vector>

namespace speclab {

/// One step of a pre-tokeniser: cuts every piece further. The three patterns are hand-written scanners of
///   kGpt2    's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
///   kLlama3  (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*
///            |\s*[\r\n]+|\s+(?!\S)|\s+
///   kQwen2   as kLlama3 with \p{N}
enum class SplitStep {
  kDigits,  ///< every digit is a piece of its own
  kGpt2,
  kLlama3,
  kQwen2,
};

/// Words of a valid UTF-8 text, in order and without gaps. A step sees each piece of the step before as a
/// text of its own (its lookahead ends there): "a  1" is "a", "  ", "1" with {kDigits, kGpt2} but "a", " ", "
/// 1" with {kGpt2}. O(text) for every step.
std::vector<std::string_view> split_words(const std::vector<SplitStep>& steps, std::string_view text);

}  // namespace speclab
