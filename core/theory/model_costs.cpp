#include "core/theory/model_costs.h"

#include <algorithm>
#include <numeric>
#include <string>

#include "core/base/error.h"

namespace speclab::theory {
namespace {

constexpr int kMostRows = 1 << 20;

/// Collects the costs of one call of model_costs().
class CostList {
 public:
  explicit CostList(const ModelCostInputs& in) : in_(in), rows_(in.rows) {
    if (!in.tree.empty()) depths_ = depths_of(in.tree), rows_ = static_cast<int>(depths_.size());
    if (rows_ < 1 || rows_ > kMostRows)
      throw Error({"rows", fmt::format("{}", rows_), fmt::format("1 to {}", kMostRows), ""});
  }

  std::vector<Prediction> all() {
    const double keys = depths_.empty() ? causal_keys(in_.context, rows_) : tree_keys(in_.context, depths_);
    const ForwardCost cost = forward(in_.target, rows_, keys);
    per_token();
    per_forward(cost, keys);
    draft();
    if (in_.machine) machine(cost);
    return std::move(out_);
  }

 private:
  void add(const char* name, double value, const char* quantity, const char* equation,
           std::string assumptions) {
    out_.push_back({name, value, quantity, equation, std::move(assumptions), PredictionKind::prediction, {}});
  }

  /// Depth of each fed node, the pending token (0) first.
  static std::vector<int> depths_of(const std::vector<int>& tree) {
    std::vector<int> depths = {0};
    for (std::size_t i = 0; i < tree.size(); ++i) {
      if (tree[i] < 1 || tree[i] > kMostRows)
        throw Error({"tree", fmt::format("{} nodes at depth {}", tree[i], i + 1),
                     fmt::format("1 to {} nodes", kMostRows), ""});
      depths.insert(depths.end(), static_cast<std::size_t>(tree[i]), static_cast<int>(i) + 1);
    }
    return depths;
  }

  ForwardCost forward(const DecoderShape& shape, int rows, double keys) const {
    const ForwardCost one =
        forward_cost(shape, {.tokens = rows, .logit_rows = rows, .context = in_.context, .keys = keys});
    return batch_cost(one, in_.batch);
  }

  /// A forward of one row of each sequence.
  ForwardCost step(const DecoderShape& shape) const { return forward(shape, 1, causal_keys(in_.context, 1)); }

  void per_token() {
    add("model_weights", body_weights(in_.target) + head_weights(in_.target), "weights",
        "layers (d d_q + 2 d d_kv + d_q d + m d d_ff) + vocab d",
        "the weights that a step reads: without the embedding, whose rows are looked up, and without norms; "
        "d_q = heads d_h, d_kv = kv_heads d_h, m = 3 feed-forward matrices (2 if not gated)");
    add("model_ops_per_token", flops_per_token(in_.target, in_.context), "operations",
        "2 weights + 4 layers heads d_h keys",
        "a multiply-add is two operations; attention is left out at context 0");
    add("model_kv_bytes_per_token", step(in_.target).kv_write_bytes / in_.batch, "bytes",
        "2 layers kv_heads d_h kv_bytes", "");
  }

  void per_forward(const ForwardCost& cost, double keys) {
    const char* once = "weights are read once for all rows, each key once for all rows of its sequence";
    add("model_rows", double(rows_) * in_.batch, "rows", "batch (rows of a sequence)", "");
    add("model_ops", cost.flops(), "operations", "rows 2 weights + batch 4 layers heads d_h keys",
        "each row has logits");
    add("model_bytes", cost.bytes(), "bytes", "weights + embedding + KV cache + logits", once);
    if (in_.context > 0) {
      add("model_kv_to_weights", kv_to_weight_ratio(in_.target, in_.batch, in_.context), "ratio",
          "batch context kv_bytes_per_token / bytes of weights",
          "when it is large, more rows cost little in large batches");
    }
    if (rows_ > 1) {
      add("model_dense_keys", dense_keys(in_.context, rows_) / keys, "ratio",
          "n (context + n) / sum over rows of the keys that a row sees",
          "attention of a kernel that computes all keys and masks some");
    }
    if (!in_.tree.empty()) {
      add("model_commit_bytes", in_.batch * commit_bytes(in_.target, static_cast<int>(in_.tree.size())),
          "bytes", "2 batch depth kv_bytes_per_token", "the longest path is accepted and all of it moves");
    }
  }

  void draft() {
    if (!in_.draft) return;
    add("model_draft_weights", body_weights(*in_.draft) + head_weights(*in_.draft), "weights",
        "as model_weights", "");
    add("model_draft_ops_per_token", flops_per_token(*in_.draft, in_.context), "operations",
        "as model_ops_per_token", "");
    add("model_c_hat", c_hat(*in_.draft, in_.target, in_.context), "c_hat",
        "operations of the draft / of the target, per token", "");
  }

  void machine(const ForwardCost& cost) {
    const Machine& device = *in_.machine;
    const char* roofline = "predicted: the device reaches these rates, and operations and bytes overlap";
    add("model_ridge_rows", ridge_rows(in_.target, device), "rows", "(peak / bandwidth) weight_bytes / 2",
        "above this number of rows over all sequences, weights take longer to multiply than to read");
    const double seconds = roofline_seconds(cost, device), one = roofline_seconds(step(in_.target), device);
    add("model_seconds", seconds, "seconds", "max(operations / peak, bytes / bandwidth) + overhead",
        roofline);
    if (rows_ > 1) add("model_t", seconds / one, "t(n)", "seconds at n rows / seconds at one row", roofline);
    if (in_.draft) {
      add("model_c", roofline_seconds(step(*in_.draft), device) / one, "c",
          "seconds of a draft forward / of a target forward, one row each", roofline);
    }
  }

  const ModelCostInputs& in_;
  int rows_;                 ///< of one sequence
  std::vector<int> depths_;  ///< of a tree, [rows_]; empty for a chain
  std::vector<Prediction> out_;
};

}  // namespace

std::vector<Prediction> model_costs(const ModelCostInputs& inputs) { return CostList(inputs).all(); }

}  // namespace speclab::theory
