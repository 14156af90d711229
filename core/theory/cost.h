#pragma once

#include <span>

#include "core/model/net/model_config.h"

/// Counts the arithmetic and memory traffic of a decoder from its shape. The numbers are exact counts for an
/// idealised kernel: one multiply-add is two operations, and every weight is read once per call. Norms and
/// activations are left out, since they stay in the caches for the few rows of a decoding step.
namespace speclab::theory {

/// The shape of a decoder, independent of any file format. Set extra_weights for dense matrices outside this
/// pattern, for example a draft's input projection. For a head over a reduced vocabulary set `vocab`; for a
/// layer-skip draft set `layers`.
struct DecoderShape {
  int layers = 0;
  int hidden = 0;           ///< d
  int heads = 0;            ///< H
  int kv_heads = 0;         ///< H_kv; = heads without grouped-query attention
  int head_dim = 0;         ///< d_h
  int ffn = 0;              ///< d_ff
  bool gated = true;        ///< three feed-forward matrices (Llama), else two (GPT-2)
  int vocab = 0;            ///< rows of the output head
  double weight_bytes = 2;  ///< bytes per weight, 2 for bf16
  double kv_bytes = 2;      ///< bytes per cached number
  double extra_weights = 0;
  int windowed_layers = 0;  ///< how many of `layers` see only the last `window` positions
  int window = 0;           ///< includes the position itself (Mistral: Jiang et al. 2023)
};

/// The shape of a loaded model. `vocab` is its number of head rows; a projection of a foreign embedding
/// counts as extra_weights.
DecoderShape decoder_shape(const ModelConfig& config, double weight_bytes = 2, double kv_bytes = 2);

double layer_weights(const DecoderShape& shape);  ///< weights in the matrices of one layer
double body_weights(
    const DecoderShape& shape);  ///< weights of all layers and extra_weights, without embedding and head
double head_weights(const DecoderShape& shape);  ///< vocab * hidden

/// One forward call of one sequence.
struct ForwardSize {
  int tokens = 1;      ///< n, rows that are fed
  int logit_rows = 1;  ///< m, rows for which the head runs
  double context = 0;  ///< C, committed tokens in the cache
  double keys = 1;  ///< sum over rows of visible keys, the row's own included: see causal_keys. With a window
                    ///< the costs are exact if it cuts the keys of every row or of none
};

/// Visible keys, summed over the rows of a chain of n tokens after C committed ones: n C + n (n + 1) / 2.
double causal_keys(double context, int tokens);
/// The same for a tree. depths[i] is the depth of a fed node, 0 for the pending token. Every node sees the C
/// committed keys, its ancestors and itself.
double tree_keys(double context, std::span<const int> depths);  // [n]
/// Keys that a dense kernel with a mask computes: n (C + n).
double dense_keys(double context, int tokens);

struct ForwardCost {
  double body_flops = 0;
  double head_flops = 0;
  double attention_flops = 0;
  double weight_bytes = 0;  ///< read once per call, for all sequences of a batch
  double embedding_bytes = 0;
  double kv_read_bytes = 0;
  double kv_write_bytes = 0;
  double logits_bytes = 0;  ///< float rows, written once
  double flops() const { return body_flops + head_flops + attention_flops; }
  double bytes() const {
    return weight_bytes + embedding_bytes + kv_read_bytes + kv_write_bytes + logits_bytes;
  }
};

ForwardCost forward_cost(const DecoderShape& shape, const ForwardSize& size);

/// Bytes that a commit reads and writes when it moves `rows` cached positions.
double commit_bytes(const DecoderShape& shape, int rows);

/// Operations for one token and its logits row at a context of C tokens: 2 (P_body + P_head) + attention.
double flops_per_token(const DecoderShape& shape, double context = 0);

/// c_hat: operations per draft token / per target token. It differs from c: GPT-2
/// small / XL has c_hat .079 and c .16.
double c_hat(const DecoderShape& draft, const DecoderShape& target, double context = 0);

/// Measured counterpart of Leviathan's Theorem 3.11: operations per emitted token / operations per token of
/// autoregressive decoding.
double measured_operations_factor(double target_flops, double draft_flops, double tokens,
                                  double ar_flops_per_token);

/// A machine for the roofline model. Efficiencies are measured shares of the peaks.
struct Machine {
  double peak_flops = 0;  ///< per second
  double bandwidth = 0;   ///< bytes per second
  double flops_efficiency = 1;
  double bandwidth_efficiency = 1;
  double launches = 0;  ///< kernel launches per forward
  double launch_seconds = 0;
};

/// max(flops / peak, bytes / bandwidth) + launches.
double roofline_seconds(const ForwardCost& cost, const Machine& machine);

/// Number of rows above which the weight matrices are compute-bound: (peak / bandwidth) weight_bytes / 2.
double ridge_rows(const DecoderShape& shape, const Machine& machine);

/// Bytes of KV cache / bytes of weights for a batch at context C. When this is large, verifying many rows
/// stays cheap in large batches (MagicDec, Sadhukhan et al. 2024).
double kv_to_weight_ratio(const DecoderShape& shape, int batch, double context);

}  // namespace speclab::theory
