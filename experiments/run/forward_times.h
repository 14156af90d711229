#pragma once

#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "core/model/net/model.h"

namespace speclab {

/// The tokens that stand for a text of this length wherever only time counts: arbitrary, the same each time.
std::vector<Token> timed_context(const Model& model, int length);

/// Times forwards on one sequence with `context` committed tokens of timed_context. The rows are dropped, not
/// committed, so that every forward sees the same context.
class ForwardTimer {
 public:
  /// Room for forwards of 1 .. most_rows rows. `context` >= 1 is clamped to what the model's context leaves;
  /// Error when that leaves nothing.
  ForwardTimer(const Model& model, int context, int most_rows);
  ~ForwardTimer();
  /// Wall time in ns of the forward of a causal chain of n rows, all with logits.
  double time(int n);

 private:
  std::unique_ptr<Session> session_;
  std::vector<Token> tokens_;
  std::vector<std::int32_t> parents_, rows_;
  std::vector<float> logits_;
};

/// Wall times in ns, by number of rows, one per repeat in order.
using ForwardSamples = std::map<int, std::vector<double>>;

/// The sizes take turns within a repeat; one round before the first repeat warms up. Throws like
/// ForwardTimer.
ForwardSamples sample_forwards(const Model& model, int context, const std::vector<int>& sizes, int repeats);

}  // namespace speclab
