#pragma once

#include <optional>
#include <vector>

#include "core/theory/cost.h"
#include "core/theory/predictions.h"

/// Computes what a model's forwards cost, from its shape and the data sheet of a device. No value is
/// measured.
namespace speclab::theory {

/// The forward whose costs are computed, and where it runs.
struct ModelCostInputs {
  DecoderShape target = {};
  std::optional<DecoderShape> draft = {};
  double context = 0;  ///< committed tokens in the KV cache of each sequence
  int batch = 1;       ///< sequences of one forward
  int rows = 1;        ///< rows of each sequence in a forward; they form a chain, and all have logits
  /// Number of drafted nodes at depth 1, 2, ... of a tree. Empty: the forward feeds a chain of `rows`. Else
  /// `rows` is not used: the forward feeds the pending token and the nodes.
  std::vector<int> tree = {};
  std::optional<Machine> machine = {};
};

/// Computes the costs whose inputs are known, in this order. Names begin with model_, so that they differ
/// from the names in predictions().
///   model_weights, model_ops_per_token, model_kv_bytes_per_token, model_rows, model_ops, model_bytes,
///   model_kv_to_weights (context > 0), model_dense_keys (more than one row), model_commit_bytes (tree);
///   with a draft: model_draft_weights, model_draft_ops_per_token, model_c_hat;
///   with a machine: model_ridge_rows, model_seconds, model_t (more than one row), model_c (with a draft).
/// Throws Error for inputs outside their domain.
std::vector<Prediction> model_costs(const ModelCostInputs& inputs);

}  // namespace speclab::theory
