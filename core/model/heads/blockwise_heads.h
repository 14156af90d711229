#pragma once

#include <vector>

#include "core/model/heads/head_card.h"
#include "core/model/heads/head_runner.h"

namespace speclab {

/// Heads of blockwise parallel decoding (Stern et al. 2018, "Blockwise Parallel Decoding for Deep
/// Autoregressive Models", Section 4): one feed-forward layer after the target's last layer. It has one
/// output for each head, and each output is added to the target's state and goes through the target's own
/// output layer:
///
///     logits_i = W (h + U_i ReLU(V h + b) + c_i),   W: the output layer of the target.
///
/// The paper has k heads, and its first head predicts the next token. Here the target itself predicts the
/// next token, without the layer, so that the text stays the target's own (the paper's footnote 1). So k is
/// count() + 1. Head i (from 0) of this class reads the state at a position t and predicts the token at
/// t + 2 + i.
///
/// Tensors, in this project's own layout: ffn_in.weight [inner, hidden] and ffn_in.bias (V, b), and for each
/// head ffn_out.i.weight [hidden, inner] and ffn_out.i.bias (U_i, c_i). In the paper, inner is k times the
/// width of a feed-forward layer of the target. Separate layers for the heads are the special case in which
/// each U_i has zeros outside its own columns.
class BlockwiseHeads {
 public:
  /// Loads the weights on the backend of the target. Throws Error like HeadFile, and for a card with a
  /// vocabulary map, because the output layer is the target's.
  BlockwiseHeads(const HeadCard& card, const Model& target);

  int count() const { return static_cast<int>(out_.size()); }

  /// Computes ReLU(V h + b), which all heads share.
  void prepare(HeadRunner& runner, const HeadRows& states, HeadRows& inner) const;
  /// Computes the logits of head `head`, [rows of states, head_rows of the target]. `inner` comes from
  /// prepare() of the same states.
  void logits(HeadRunner& runner, int head, const HeadRows& states, const HeadRows& inner, HeadRows& to);

 private:
  HeadLinear in_;
  std::vector<HeadLinear> out_;  // [heads]
  FinalNorm norm_;               // whether the states that the heads read have the final norm
  HeadRows sum_;
};

}  // namespace speclab
