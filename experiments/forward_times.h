#pragma once

#include <functional>
#include <map>
#include <vector>

#include "core/model/model.h"

namespace speclab {

/// Wall times in ns, by number of rows, one per repeat in order.
using ForwardSamples = std::map<int, std::vector<double>>;

/// The tokens that stand for a text of this length wherever only time counts: arbitrary, the same each time.
std::vector<Token> timed_context(const Model& model, int length);

/// Times forwards of a causal chain of n rows, all with logits, for each n of `sizes` on one sequence with
/// `context` committed tokens of timed_context (clamped to what the model's context leaves). The sizes take
/// turns within a repeat; one round before the first repeat warms up. The rows are dropped, not committed, so
/// that every forward sees the same context. Empty when the model has no room or `interrupted` became true.
ForwardSamples sample_forwards(const Model& model, int context, const std::vector<int>& sizes, int repeats,
                               const std::function<bool()>& interrupted);

/// Medians of sample_forwards.
std::map<int, double> time_forwards(const Model& model, int context, const std::vector<int>& sizes,
                                    int repeats, const std::function<bool()>& interrupted);

}  // namespace speclab
