#pragma once

#include <optional>
#include <vector>

#include "core/theory/predictions.h"

/// Computes predictions that `speclab theory` shows and no record contains: how much tau varies, the draft
/// utilization (which other engines call acceptance rate), the alpha and the c that follow from published
/// numbers, and the best gamma for an acceptance by position.
namespace speclab::theory {

/// Computes the conversions whose inputs are known, in this order. The word in parentheses is
/// Prediction::quantity:
///   tau_deviation (tau_sd), draft_utilization (draft_utilization), implied_alpha_utilization (alpha),
///   implied_c (c), optimal_gamma_positional (gamma), optimal_speedup_positional (speedup).
/// `utilization` is accepted / drafted tokens, which llama.cpp and vLLM call acceptance rate. Throws Error
/// for inputs outside their domain, and for a utilization without gamma.
std::vector<Prediction> conversions(const PredictionInputs& inputs, std::optional<double> utilization);

}  // namespace speclab::theory
