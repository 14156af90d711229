#include "core/theory/cost.h"

#include <algorithm>

#include "core/base/error.h"
#include "core/theory/domain.h"

namespace speclab::theory {
namespace {

constexpr double kLogitBytes = 4;

void require_shape(const DecoderShape& shape) {
  for (const auto& [name, value] : {std::pair{"layers", shape.layers},
                                    {"hidden", shape.hidden},
                                    {"heads", shape.heads},
                                    {"kv_heads", shape.kv_heads},
                                    {"head_dim", shape.head_dim},
                                    {"ffn", shape.ffn},
                                    {"vocab", shape.vocab}}) {
    if (value < 0) throw Error({name, fmt::format("{}", value), "at least 0", ""});
  }
  require_positive("bytes per weight", shape.weight_bytes);
  require_positive("bytes per cached number", shape.kv_bytes);
  require_non_negative("extra_weights", shape.extra_weights);
  if (shape.windowed_layers < 0 || shape.windowed_layers > shape.layers ||
      (shape.windowed_layers > 0 && shape.window < 1)) {
    throw Error(
        {"windowed layers",
         fmt::format("{} of {} layers, window of {}", shape.windowed_layers, shape.layers, shape.window),
         "0 to all of the layers, and a window of at least 1 position", ""});
  }
}

double kv_bytes_per_layer(const DecoderShape& shape) {
  return 2.0 * shape.kv_heads * shape.head_dim * shape.kv_bytes;
}

double kv_bytes_per_token(const DecoderShape& shape) { return shape.layers * kv_bytes_per_layer(shape); }

/// Cached positions that a forward reads, summed over layers.
double positions_read(const DecoderShape& shape, double context, double rows) {
  const int full = shape.layers - shape.windowed_layers;
  return full * (context + rows) + shape.windowed_layers * (std::min(context, shape.window - 1.0) + rows);
}

double attention_flops(const DecoderShape& shape, double keys, double rows) {
  const int full = shape.layers - shape.windowed_layers;
  const double layer_keys = full * keys + shape.windowed_layers * std::min(keys, rows * shape.window);
  return 4.0 * shape.heads * shape.head_dim * layer_keys;
}

}  // namespace

DecoderShape decoder_shape(const ModelConfig& config, double weight_bytes, double kv_bytes) {
  DecoderShape shape{.layers = config.layers,
                     .hidden = config.hidden,
                     .heads = config.heads,
                     .kv_heads = config.kv_heads,
                     .head_dim = config.head_dim,
                     .ffn = config.ffn,
                     .gated = config.gated,
                     .vocab = config.head_rows(),
                     .weight_bytes = weight_bytes,
                     .kv_bytes = kv_bytes};
  if (config.embedding_dim != 0 && config.embedding_dim != config.hidden) {
    shape.extra_weights = double(config.embedding_dim) * config.hidden;
  }
  for (const int window : config.windows) {  // all windows of a model have the same size
    if (window == 0) continue;
    ++shape.windowed_layers;
    shape.window = window;
  }
  return shape;
}

double layer_weights(const DecoderShape& shape) {
  require_shape(shape);
  const double d = shape.hidden, queries = double(shape.heads) * shape.head_dim;
  const double keys_values = 2.0 * shape.kv_heads * shape.head_dim;
  return d * queries + d * keys_values + queries * d + (shape.gated ? 3.0 : 2.0) * d * shape.ffn;
}

double body_weights(const DecoderShape& shape) {
  return shape.layers * layer_weights(shape) + shape.extra_weights;
}

double head_weights(const DecoderShape& shape) {
  require_shape(shape);
  return double(shape.vocab) * shape.hidden;
}

double causal_keys(double context, int tokens) {
  return tokens * require_non_negative("context", context) + 0.5 * tokens * (tokens + 1.0);
}

double tree_keys(double context, std::span<const int> depths) {
  require_non_negative("context", context);
  double keys = 0;
  for (int depth : depths) keys += context + depth + 1;
  return keys;
}

double dense_keys(double context, int tokens) {
  return tokens * (require_non_negative("context", context) + tokens);
}

ForwardCost forward_cost(const DecoderShape& shape, const ForwardSize& size) {
  if (size.tokens < 1 || size.logit_rows < 0 || size.logit_rows > size.tokens) {
    throw Error({"forward", fmt::format("{} tokens, {} logits rows", size.tokens, size.logit_rows),
                 "at least one token, and no more logits rows than tokens", ""});
  }
  require_non_negative("context", size.context);
  require_non_negative("keys", size.keys);
  const double body = body_weights(shape), head = head_weights(shape);
  ForwardCost cost;
  cost.body_flops = 2.0 * size.tokens * body;
  cost.head_flops = 2.0 * size.logit_rows * head;
  cost.attention_flops = attention_flops(shape, size.keys, size.tokens);
  cost.weight_bytes = shape.weight_bytes * (body + (size.logit_rows > 0 ? head : 0));
  cost.embedding_bytes = double(size.tokens) * shape.hidden * shape.weight_bytes;
  cost.kv_read_bytes = kv_bytes_per_layer(shape) * positions_read(shape, size.context, size.tokens);
  cost.kv_write_bytes = kv_bytes_per_token(shape) * size.tokens;
  cost.logits_bytes = double(size.logit_rows) * shape.vocab * kLogitBytes;
  return cost;
}

ForwardCost batch_cost(const ForwardCost& one, int batch) {
  if (batch < 1) throw Error({"batch", fmt::format("{}", batch), "at least 1 sequence", ""});
  ForwardCost all = one;
  for (double ForwardCost::* part :
       {&ForwardCost::body_flops, &ForwardCost::head_flops, &ForwardCost::attention_flops,
        &ForwardCost::embedding_bytes, &ForwardCost::kv_read_bytes, &ForwardCost::kv_write_bytes,
        &ForwardCost::logits_bytes}) {
    all.*part *= batch;
  }
  return all;
}

double commit_bytes(const DecoderShape& shape, int rows) {
  require_shape(shape);
  if (rows < 0) throw Error({"rows of a commit", fmt::format("{}", rows), "at least 0", ""});
  return 2 * kv_bytes_per_token(shape) * rows;
}

double flops_per_token(const DecoderShape& shape, double context) {
  return forward_cost(shape, {.context = context, .keys = context > 0 ? causal_keys(context, 1) : 0}).flops();
}

double c_hat(const DecoderShape& draft, const DecoderShape& target, double context) {
  return flops_per_token(draft, context) /
         require_positive("target operations", flops_per_token(target, context));
}

double measured_operations_factor(double target_flops, double draft_flops, double tokens,
                                  double ar_flops_per_token) {
  require_non_negative("target operations", target_flops);
  require_non_negative("draft operations", draft_flops);
  require_positive("tokens", tokens);
  require_positive("autoregressive operations per token", ar_flops_per_token);
  return (target_flops + draft_flops) / tokens / ar_flops_per_token;
}

double roofline_seconds(const ForwardCost& cost, const Machine& machine) {
  require_positive("peak_flops", machine.peak_flops);
  require_positive("bandwidth", machine.bandwidth);
  require_non_negative("overhead", machine.overhead_seconds);
  return std::max(cost.flops() / machine.peak_flops, cost.bytes() / machine.bandwidth) +
         machine.overhead_seconds;
}

double ridge_rows(const DecoderShape& shape, const Machine& machine) {
  require_shape(shape);
  return require_positive("peak_flops", machine.peak_flops) /
         require_positive("bandwidth", machine.bandwidth) * shape.weight_bytes / 2;
}

double kv_to_weight_ratio(const DecoderShape& shape, int batch, double context) {
  const double weights = shape.weight_bytes * (body_weights(shape) + head_weights(shape));
  require_non_negative("context", context);
  return batch * kv_bytes_per_layer(shape) * std::max(0.0, positions_read(shape, context, 0)) /
         require_positive("bytes of weights", weights);
}

}  // namespace speclab::theory
