#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "core/model/heads/block_form.h"
#include "core/model/heads/head_card.h"
#include "core/model/heads/head_runner.h"
#include "core/model/heads/learned_inputs.h"
#include "core/model/net/rope_table.h"

namespace speclab {

/// A block draft of the form of DFlash (arXiv 2602.06036): a few decoder layers that guess all tokens of a
/// block in one forward. The input is the embedding of the pending token and, at each position after it, the
/// embedding of a mask token. In every layer, queries come from the rows of the block. Keys and values come
/// from the committed positions of the text and from all rows of the block, so attention inside the block
/// goes in both directions. Let f_p be the target's states of position p in one vector, m the mask token and
/// ++ concatenation:
///
///     c_p = norm(W_fc f_p),   x = E(pending), E(m), E(m), ...;
///     per layer: y = norm(x), x += W_o attention(W_q y, W_k (c ++ y), W_v (c ++ y)),
///                x += W_down(SiLU(W_gate norm(x)) * W_up norm(x));
///     logits of position i of the block = W_head norm(x_i).
///
/// With BlockForm::queries, x = E(pending), m_1, m_2, ..., where m_i is a trained vector: each position to
/// guess has an attention query of its own, as in the drafter of SpecDec (Xia et al. 2023, arXiv 2203.16487).
///
/// Queries and keys are normalised by head (if qk_norm) and then rotated by their positions. All layers read
/// the same c and do not normalise it again. E is the target's embedding and W_head the target's output head;
/// with a vocabulary map the head has its own W_head. The logits of a masked position are for the token of
/// that position. They do not depend on the tokens that are drawn at other positions.
///
/// A block always has all its positions, even if fewer tokens are wanted. So the logits depend on the text
/// alone.
///
/// Tensors, as in the published files: fc.weight [d, taps * d], hidden_norm, layers.i.* with the names of
/// Qwen3 in transformers (input_layernorm, self_attn.q_proj, self_attn.q_norm, ..., mlp.down_proj), norm.
/// With a vocabulary map: lm_head.weight [rows, d]. With mask queries: mask_queries.weight [masks, d], in the
/// scale of Model::embed().
class BlockHead {
 public:
  /// Loads the weights on the backend of the target, for texts of at most `capacity` positions. Throws Error
  /// like HeadFile.
  BlockHead(const HeadCard& card, const std::shared_ptr<const Model>& target, int capacity);

  std::span<const int> taps() const { return form_.taps; }  ///< as Tap::layer
  int count() const { return form_.size - 1; }              ///< masked positions
  std::span<const Token> ids() const { return ids_; }       ///< as in MedusaHeads
  int rows() const { return rows_; }

  /// The keys and values of the committed positions of one sequence, one slot for each position.
  class Context {
   public:
    int length() const { return length_; }
    void clear() { length_ = 0; }

   private:
    friend class BlockHead;
    KvStore kv_;
    int length_ = 0;
    std::vector<std::int32_t> numbers_;  // about the rows of a forward, see place()
    Buffer<std::int32_t> staged_;
  };
  Context open() const;
  /// Adds the next `count` positions. states: for each tap [count, d], on the host.
  void extend(HeadRunner& runner, Context& context, std::span<const float* const> states, int count);
  /// Computes the logits of the first `wanted` masked positions, [wanted, rows()]; `wanted` is 1 to count().
  /// The context must have all positions before the pending token. It stays as it is.
  void logits(HeadRunner& runner, Context& context, Token pending, int wanted, HeadRows& to);

 private:
  struct Layer {
    HeadNorm attention_norm, ffn_norm;
    HeadNorm q_norm, k_norm;  // empty without qk_norm
    HeadLinear qkv, out, gate_up, down;
  };
  // Rows that follow the committed positions: as rope_and_store() takes them, and as attention() does.
  struct Rows {
    RowsInFlight stored, attending;
  };
  Rows place(Backend& backend, Context& context, int count, bool attend) const;
  void project(HeadRunner& runner, const Layer& layer, const HeadRows& x);
  void normalise(HeadRunner& runner, const HeadNorm& norm, std::span<const std::int32_t> rows,
                 HeadRows& to) const;
  void count_work(HeadRunner& runner, const Context& context, int count, bool attend) const;

  BlockForm form_;
  int capacity_, rows_;
  std::vector<Token> ids_;
  std::vector<Layer> layers_;
  HeadLinear fc_, out_;  // out_ has no parts without a vocabulary map
  HeadNorm context_norm_, norm_;
  std::optional<LearnedInputs> queries_;  // with BlockForm::queries
  RopeBuffers rope_;
  std::vector<std::int32_t> order_;  // 0, 1, ..., form_.size - 1
  std::vector<Token> tokens_;
  std::vector<HeadRows> states_;  // [taps]
  std::vector<const HeadRows*> inputs_;
  HeadRows x_, y_, qkv_, attended_, raised_, activated_;
};

}  // namespace speclab
