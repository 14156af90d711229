#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "core/base/token.h"

namespace speclab {

/// Changes of a logits row that depend on the text before it: repetition penalty, minimum length, banned
/// tokens, in this order and before the temperature, as in Hugging Face transformers. They are part of the
/// target's law, so they are evaluated at every drafted prefix with that prefix as context, and
/// drafts use them too.
class LogitsProcessors {
 public:
  struct Options {
    double repetition_penalty =
        1;  ///< logits of tokens seen: positive ones divided, negative ones multiplied (Keskar 2019)
    int min_length = 0;         ///< tokens to emit before an end token is possible
    std::vector<Token> banned;  ///< never emitted
    std::vector<Token> eos;     ///< what min_length holds back
  };
  LogitsProcessors(Options options, int prompt_length);
  bool active() const;  ///< false: apply() would only copy

  /// The row after `context` (prompt and emitted tokens) and then `path` (drafted). `ids` maps rows to tokens
  /// for a reduced vocabulary (ascending; empty = identity). logits and out: [rows], not overlapping. Banned
  /// logits become -infinity.
  void apply(std::span<const float> logits, std::span<const Token> ids, TokenSpan context, TokenSpan path,
             std::span<float> out) const;

 private:
  Options options_;
  int prompt_length_;
};

}  // namespace speclab
