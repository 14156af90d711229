#pragma once

#include <span>
#include <vector>

#include "core/model/heads/head_card.h"
#include "core/model/heads/head_runner.h"

namespace speclab {

/// An MLP speculator (Wertheimer et al. 2024, arXiv 2404.19124): a recurrent chain of n small layers. Layer i
/// (from 0) reads the state of layer i - 1 and the token x_i, and predicts the token after x_i:
///
///     s_i = GELU(norm_i(w_s P_i s_(i-1) + w_e E_i(x_i))),   logits_i = H_i s_i,
///     w_s = 2^(-1/(2n)),   w_e = sqrt((1 - w_s^2) inner / 2),
///
/// with x_0 the pending token, s_(-1) the target's state (with scale_input: the state's RMS norm divided by
/// sqrt 2), and E_i an embedding of the speculator's own. norm_i is an RMS norm with a scale and a shift.
///
/// Tensors, as in the published accelerators, perhaps with the prefix "speculator.": emb.i.weight [vocab,
/// inner], proj.i.weight [inner, hidden or inner], ln.i.weight and ln.i.bias [inner], head.i.weight [rows,
/// inner]. If the weights are tied, all layers use emb.0, ln.0 and head.0. Layer 0 then uses proj.0, and all
/// others proj.1.
class MlpSpeculatorHeads {
 public:
  /// Loads the weights on the backend of the target. Throws Error like HeadFile.
  MlpSpeculatorHeads(const HeadCard& card, const Model& target);

  int count() const { return count_; }
  std::span<const Token> ids() const { return ids_; }  ///< as in MedusaHeads
  int rows() const { return layers_.front().head.out(); }

  /// Turns states of the target into s_(-1), in place.
  void prepare(HeadRunner& runner, HeadRows& states) const;
  /// Computes s_i from s_(i-1) for one token per row.
  void advance(HeadRunner& runner, int layer, const HeadRows& states, TokenSpan tokens, HeadRows& to);
  /// Computes the logits of layer i from s_i, [rows of states, rows()].
  void logits(HeadRunner& runner, int layer, const HeadRows& states, HeadRows& to) const;

 private:
  struct Layer {
    PackedMatrix embedding;
    HeadLinear projection, head;
    HeadNorm norm;
  };
  const Layer& layer_at(int layer) const;

  int count_;
  std::vector<Token> ids_;
  std::vector<Layer> layers_;  // [count_], sharing matrices if they are tied
  HeadNorm first_norm_;        // empty without scale_input
  float state_weight_, embedding_weight_;
  HeadRows embedded_;
};

}  // namespace speclab
