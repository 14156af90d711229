#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/model/heads/falcon/lstm_layers.h"
#include "core/model/heads/head_card.h"
#include "core/model/heads/head_runner.h"
#include "core/model/net/rope_table.h"

namespace speclab {

/// The semi-autoregressive head of Falcon (Gao et al. 2024, arXiv 2412.12639): the first forward drafts k
/// tokens, and forwards on the head's own outputs draft further blocks of k tokens. The head reads pairs of a
/// state and a token: f_i, the target's state after the final norm or a prediction of this state, and
/// x_(i+1). The head's output at position i predicts f_(i+k), whose logits are for the token x_(i+k+1):
///
///     y = LSTM(E(x) ++ f),  z = y + W_o attention(W_q y, W_k y, W_v y),
///     f' = z + W_down(SiLU(W_gate norm(z)) * W_up norm(z)),  logits = W_target f'.
///
/// The LSTM goes along the positions. Attention is causal between blocks of k positions, and goes in both
/// directions inside a block ("relaxed causal mask"). The newest k committed positions p - k + 1, ..., p are
/// the first block, and give k tokens. A block below it has k drafted tokens of one path of the tree, with
/// the k outputs of the block above as states. It sees the committed positions, the blocks above it, and
/// itself.
///
/// With one decoder layer, keys and values depend on the LSTM alone. So the keys and values of committed
/// positions come from true states and tokens, however the positions were divided into blocks.
///
/// The published code does not run as it is (the decoder layer gets the pair that PyTorch's LSTM returns),
/// and gives the LSTM the positions as a batch. This class follows the paper. The names of tensors are this
/// project's own: lstm.* (see LstmLayers), and EAGLE's names for the decoder layer (layers.0.self_attn.q_proj
/// and so on, without input_layernorm). With a vocabulary map, lm_head.weight [rows, d] replaces W_target.
class FalconHead {
 public:
  /// Loads the weights on the backend of the target, for texts of at most `capacity` positions and drafts of
  /// at most `blocks` blocks, all levels together. Throws Error like HeadFile.
  FalconHead(const HeadCard& card, const std::shared_ptr<const Model>& target, int capacity, int blocks);

  int block() const { return form_.block; }            ///< k
  std::span<const Token> ids() const { return ids_; }  ///< as in MedusaHeads
  int rows() const { return rows_; }

  /// What the head keeps of the committed positions of one sequence: K/V of all but the newest k positions,
  /// the LSTM's outputs at the newest k positions, and the LSTM's state.
  class Context {
   public:
    int length() const { return length_ + newest_count_; }

   private:
    friend class FalconHead;
    KvStore kv_;
    int length_ = 0;        // positions with K/V
    HeadRows newest_;       // [newest_count_, d]
    int newest_count_ = 0;  // at most k
    LstmLayers::State lstm_;
    std::vector<std::int32_t> numbers_;  // about the rows of a forward, see place()
    Buffer<std::int32_t> staged_;
  };
  /// Makes the context of an empty text.
  void clear(HeadRunner& runner, Context& context);
  /// Reads the next positions: their states, [positions, d], on the host, and the token after each.
  void extend(HeadRunner& runner, Context& context, const float* states, TokenSpan after);

  /// A level of the draft: blocks with their outputs, [blocks * k, d], one block after the other.
  struct Level {
    HeadRows outputs;
    LstmLayers::State lstm;                        // after each block
    std::vector<std::vector<std::int32_t>> slots;  // [blocks]: of a block and the blocks above it, ascending
    int depth = 0;                                 // number of levels above
    int fed = 0;                                   // rows of this level and of all levels above
  };
  /// Computes the first block. The context must have k positions.
  void first(HeadRunner& runner, Context& context, Level& level);
  /// Computes blocks below blocks of `above`. parents: for each new block, the number of the block above it;
  /// tokens: [blocks, k].
  void next(HeadRunner& runner, Context& context, const Level& above, std::span<const std::int32_t> parents,
            TokenSpan tokens, Level& level);
  /// Computes the logits of outputs, [rows of outputs, rows()].
  void logits(HeadRunner& runner, const HeadRows& outputs, HeadRows& to);

 private:
  void store_oldest(HeadRunner& runner, Context& context);
  RowsInFlight place(Backend& backend, Context& context, const Level& level, bool attending) const;
  void run(HeadRunner& runner, Context& context, HeadRows& inputs, Level& level);

  FalconForm form_;
  int capacity_, slots_, rows_;
  std::vector<Token> ids_;
  std::vector<LstmLayers> lstm_;                  // one
  HeadLinear qkv_, out_, gate_up_, down_, head_;  // head_ only with a vocabulary map
  HeadNorm norm_;
  RopeBuffers rope_;
  std::vector<std::int32_t> order_;
  std::vector<Token> column_;
  HeadRows states_, state_, embedded_, rows_of_, projected_, attended_, added_, normed_, raised_, activated_;
  HeadRows inputs_, longer_;
};

}  // namespace speclab
