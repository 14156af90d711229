#pragma once

#include "core/base/token.h"
#include "core/model/heads/head_card.h"
#include "core/model/heads/learned_inputs.h"

namespace speclab {

/// Look-ahead embeddings of PaSS (Monea et al. 2023, "PaSS: Parallel Speculative Sampling", arXiv
/// 2311.13581): trained inputs [LA]_1 ... [LA]_L of the target's first layer. One forward of the target over
/// the pending token and the look-ahead embeddings after it gives the target's own row for the next token,
/// and at [LA]_i a guess of the row for the token i places after that one. The K/V of the look-ahead
/// positions belong to no text.
///
/// The authors published no file. Files of this project have one tensor, look_ahead.weight [L, width], in the
/// scale of Model::embed().
class PassEmbeddings {
 public:
  /// Loads the embeddings on the backend of the target. Throws Error like HeadFile.
  PassEmbeddings(const HeadCard& card, const Model& target);

  int count() const { return embeddings_.count(); }  ///< L
  /// Writes the input of such a forward: the embedding of `pending`, then the first `lookahead` embeddings,
  /// [1 + lookahead, width].
  void inputs(HeadRunner& runner, Token pending, int lookahead, HeadRows& to) {
    embeddings_.after(runner, pending, lookahead, to);
  }

 private:
  LearnedInputs embeddings_;
};

}  // namespace speclab
