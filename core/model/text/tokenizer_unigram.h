#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/base/token.h"

namespace speclab {

/// Encodes words with a unigram language model (Kudo 2018): of all ways to write a word as pieces it takes
/// the one with the greatest sum of log probabilities (Viterbi 1967). It gives the same ids as Hugging Face's
/// `tokenizers`: sums are in double from the left, and among equal sums the piece that starts earliest wins.
/// A character that is no piece has the score of the least probable piece minus 10. Consecutive characters of
/// that kind are one unknown token. If every byte of these characters has a byte token, the byte tokens
/// replace the unknown token.
class UnigramModel {
 public:
  UnigramModel() = default;
  /// `pieces` are by id, with their scores. `byte_tokens` is given with
  /// byte_fallback only; -1 means no token.
  UnigramModel(const std::vector<std::pair<std::string, double>>& pieces, Token unk,
               std::optional<std::array<Token, 256>> byte_tokens);

  /// Appends the ids of a valid UTF-8 word. O(bytes * longest piece).
  void encode(std::string_view word, std::vector<Token>& out) const;

 private:
  Token find(std::string_view piece) const;  // -1: none

  std::vector<double> scores_;
  std::unordered_map<std::uint64_t, std::uint32_t> children_;  // node << 8 | byte -> node
  std::vector<Token> ends_{-1};                                // by node; -1: no piece ends at the node
  Token unk_ = -1;
  double unk_score_ = 0;
  std::optional<std::array<Token, 256>> byte_tokens_;
};

}  // namespace speclab
