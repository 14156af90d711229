#pragma once

#include <memory>
#include <span>
#include <vector>

#include "core/model/heads/head_card.h"
#include "core/model/heads/head_runner.h"
#include "core/model/heads/residual_block.h"

namespace speclab {

/// Hydra heads (Ankner et al. 2024, arXiv 2402.05109, Section 3): sequentially dependent Medusa heads. Head i
/// (from 0) reads a state h, and the embeddings of the pending token and of the i drafted tokens after it:
///
///     logits_i = W_i block(... block(h ++ E(x_0) ++ ... ++ E(x_i))) + c_i,
///
/// with E the target's embedding, and x_0 the pending token. The first block has a linear layer as residual.
/// With prefix attention (Section 3.2), h is not the target's state of the last committed position, but the
/// output of a decoder layer and a norm over the target's states of all committed positions.
///
/// Tensors, as in hydra_lm_head of the published code: for head i and block j, hydra_mlp.i.j.linear and, for
/// block 0, hydra_mlp.i.j.res_connection; the output layer is hydra_lm_head.i; all have a bias. In published
/// heads with prefix attention a dropout counts as a module before each layer. So block j has number 2 j + 1,
/// and the output layer is hydra_lm_head.i.1; files without this shift are read too. The decoder layer is
/// prefix_embeding_layer.layers.0 (published spelling), and the norm prefix_embeding_layer.norm.
class HydraHeads {
 public:
  /// Loads the weights on the backend of the target. Throws Error like HeadFile.
  HydraHeads(const HeadCard& card, const std::shared_ptr<const Model>& target);

  int count() const { return static_cast<int>(heads_.size()); }
  std::span<const Token> ids() const { return ids_; }  ///< as in MedusaHeads
  int rows() const { return heads_.front().out.out(); }

  /// The decoder layer of the prefix attention; null without it.
  const Model* prefix_layer() const { return prefix_.get(); }
  /// Applies the norm after the decoder layer, in place.
  void finish_prefix(HeadRunner& runner, HeadRows& x) const { runner.norm(prefix_norm_, x); }

  /// Computes the logits of head `head`, [rows of the inputs, rows()]. The inputs are h and the head + 1
  /// embeddings.
  void logits(HeadRunner& runner, int head, std::span<const HeadRows* const> inputs, HeadRows& to);

 private:
  struct Head {
    std::vector<ResidualBlock> blocks;
    HeadLinear out;
  };
  std::vector<Token> ids_;
  std::vector<Head> heads_;
  std::shared_ptr<const Model> prefix_;
  HeadNorm prefix_norm_;
  HeadRows x_, y_, scratch_;
};

}  // namespace speclab
