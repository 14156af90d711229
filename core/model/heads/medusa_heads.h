#pragma once

#include <span>
#include <vector>

#include "core/model/heads/head_card.h"
#include "core/model/heads/head_runner.h"
#include "core/model/heads/residual_block.h"

namespace speclab {

/// Medusa heads (Cai et al. 2024, Section 2.1): head i (from 0) reads the target's state h at a position t
/// and predicts the token at t + 2 + i, while the target's own output head predicts the one at t + 1:
///
///     logits_i = W_i block(... block(h)),   block(x) = x + SiLU(V x + b).
///
/// Tensors, as in medusa_lm_head of the published code, perhaps with the prefix "medusa_head.": for head i
/// and block j, i.j.linear.weight and i.j.linear.bias. The output layer of head i is i.N.weight, where N is
/// the number of blocks.
class MedusaHeads {
 public:
  /// Loads the weights on the backend of the target. With the config.json of a published head, all heads in
  /// the file are loaded, because some of these cards state a wrong number. Throws Error like HeadFile.
  MedusaHeads(const HeadCard& card, const Model& target);

  int count() const { return static_cast<int>(heads_.size()); }
  /// The tokens of the rows of the output layers, ascending; empty: all tokens of the target.
  std::span<const Token> ids() const { return ids_; }
  int rows() const { return heads_.front().out.out(); }

  /// Computes the logits of head `head`, [rows of states, rows()].
  void logits(HeadRunner& runner, int head, const HeadRows& states, HeadRows& to);

 private:
  struct Head {
    std::vector<ResidualBlock> blocks;
    HeadLinear out;
  };
  std::vector<Token> ids_;
  std::vector<Head> heads_;
  HeadRows x_, y_, scratch_;
};

}  // namespace speclab
