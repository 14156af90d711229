#pragma once

#include <span>

#include "core/model/net/model_config.h"

/// Computes the arithmetic and memory traffic of a decoder from its shape. The numbers are exact counts for
/// an idealised kernel. One multiply-add counts as two operations, and every weight is read once per call.
/// Norms and activations are left out: they take few operations, and for the few rows of a decoding step
/// their numbers stay in the processor's caches.
namespace speclab::theory {

/// The shape of a decoder, independent of any file format. extra_weights counts the weights of further dense
/// matrices, for example a draft's input projection. For an output head over a reduced vocabulary, `vocab`
/// is the reduced size. For a layer-skip draft, `layers` is the number of layers that are kept.
struct DecoderShape {
  int layers = 0;
  int hidden = 0;           ///< d
  int heads = 0;            ///< H
  int kv_heads = 0;         ///< H_kv; equal to `heads` without grouped-query attention
  int head_dim = 0;         ///< d_h
  int ffn = 0;              ///< d_ff
  bool gated = true;        ///< true: three feed-forward matrices (Llama); false: two (GPT-2)
  int vocab = 0;            ///< rows of the output head
  double weight_bytes = 2;  ///< bytes per weight, 2 for bf16
  double kv_bytes = 2;      ///< bytes per cached number
  double extra_weights = 0;
  int windowed_layers = 0;  ///< how many of `layers` see only the last `window` positions
  int window = 0;           ///< includes the position itself (Mistral: Jiang et al. 2023)
};

/// Returns the shape of a loaded model. `vocab` is the number of rows of its output head. If the model
/// projects the embedding of another model, that projection counts as extra_weights.
DecoderShape decoder_shape(const ModelConfig& config, double weight_bytes = 2, double kv_bytes = 2);

double layer_weights(const DecoderShape& shape);  ///< weights in the matrices of one layer
/// Weights of all layers and extra_weights, without the embedding and the output head.
double body_weights(const DecoderShape& shape);
double head_weights(const DecoderShape& shape);  ///< output head: vocab * hidden

/// One forward call of one sequence.
struct ForwardSize {
  int tokens = 1;      ///< n: number of rows that are fed
  int logit_rows = 1;  ///< m: number of rows for which the output head runs
  double context = 0;  ///< C: number of committed tokens in the KV cache
  /// Number of keys that a row sees, its own included, summed over the rows (causal_keys, tree_keys). For
  /// layers with a window the costs are exact only if the window cuts the keys of every row or of no row.
  double keys = 1;
};

/// Number of keys that a row sees, summed over the rows of a chain: n C + n (n + 1) / 2 for n tokens after C
/// committed tokens.
double causal_keys(double context, int tokens);
/// Number of keys that a node sees, summed over the nodes of a tree. depths[i] is the depth of a fed node, 0
/// for the pending token. Every node sees the C committed keys, its ancestors and itself.
double tree_keys(double context, std::span<const int> depths);  // [n]
/// Number of keys that a dense kernel with a mask computes: n (C + n).
double dense_keys(double context, int tokens);

/// Operations and bytes of one forward.
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

/// Operations for one token and its logits row at a context of C tokens: 2 (body_weights() + head_weights())
/// + attention. At C = 0 attention is left out.
double flops_per_token(const DecoderShape& shape, double context = 0);

/// c_hat: operations of the draft per token / operations of the target per token. It differs from c, the same
/// ratio of times: with GPT-2 small as draft and GPT-2 XL as target, c_hat is .079 and c is .16.
double c_hat(const DecoderShape& draft, const DecoderShape& target, double context = 0);

/// The measured value of what Leviathan's Theorem 3.11 predicts: operations per emitted token / operations
/// per token of autoregressive decoding.
double measured_operations_factor(double target_flops, double draft_flops, double tokens,
                                  double ar_flops_per_token);

/// A forward of `batch` sequences of the same size. Weights are read once for all of them.
ForwardCost batch_cost(const ForwardCost& one, int batch);

/// A machine for the roofline model. The peaks of a data sheet give a lower bound of the time. The rates that
/// measurements reach give an estimate.
struct Machine {
  double peak_flops = 0;        ///< operations per second
  double bandwidth = 0;         ///< bytes per second
  double overhead_seconds = 0;  ///< of a forward: kernel launches and the like
};

/// Time by the roofline model: max(flops / peak, bytes / bandwidth) + overhead.
double roofline_seconds(const ForwardCost& cost, const Machine& machine);

/// Number of rows above which products with the weight matrices are compute-bound: (peak / bandwidth)
/// weight_bytes / 2.
double ridge_rows(const DecoderShape& shape, const Machine& machine);

/// Bytes of KV cache / bytes of weights for a batch at context C. When this is large, verifying many rows
/// stays cheap in large batches (MagicDec, Sadhukhan et al. 2024).
double kv_to_weight_ratio(const DecoderShape& shape, int batch, double context);

}  // namespace speclab::theory
