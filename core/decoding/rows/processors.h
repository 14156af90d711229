#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "core/base/token.h"

namespace speclab {

/// Changes a logits row depending on the text before it: repetition penalty, then minimum length and banned
/// tokens, all before the temperature, as in Hugging Face transformers. The processors are part of the
/// target's distribution. So the row of every drafted node is processed with the text and the drafted tokens
/// up to that node as context. Drafters that draw tokens from rows apply the processors too.
class LogitsProcessors {
 public:
  struct Options {
    double repetition_penalty =
        1;  ///< divides positive and multiplies negative logits of tokens seen so far (Keskar 2019)
    int min_length = 0;         ///< tokens to emit before an end token is allowed
    std::vector<Token> banned;  ///< never emitted
    std::vector<Token> eos;     ///< the end tokens that min_length bans
  };
  LogitsProcessors(Options options, int prompt_length);
  bool active() const;  ///< false: apply() would only copy the row

  /// Changes the row that follows `context` (prompt and emitted tokens) and then `path` (drafted tokens).
  /// `ids` maps row entries to tokens for a reduced vocabulary (ascending; empty = identity). `logits` and
  /// `out` have equal size and must not overlap. Banned logits become -infinity.
  void apply(std::span<const float> logits, std::span<const Token> ids, TokenSpan context, TokenSpan path,
             std::span<float> out) const;

 private:
  Options options_;
  int prompt_length_;
};

}  // namespace speclab
