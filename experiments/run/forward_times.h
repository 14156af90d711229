#pragma once

#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "core/model/net/model.h"

namespace speclab {

/// Makes a text of `length` tokens for measurements in which only time counts. The tokens are arbitrary, and
/// the same in each call.
std::vector<Token> timed_context(const Model& model, int length);

/// Times forwards on one sequence with `context` committed tokens (timed_context). The rows of a forward are
/// not committed, so every forward sees the same context.
class ForwardTimer {
 public:
  /// Makes room for forwards of 1 .. most_rows rows. `context` is at least 1. It is reduced if context and
  /// rows together exceed the model's context. Throws Error when the rows leave no position for a context.
  ForwardTimer(const Model& model, int context, int most_rows);
  ~ForwardTimer();
  /// Runs the forward of a causal chain of n rows, all with logits. Returns its wall time in ns.
  double time(int n);

 private:
  std::unique_ptr<Session> session_;
  std::vector<Token> tokens_;
  std::vector<std::int32_t> parents_, rows_;
  std::vector<float> logits_;
};

/// Wall times in ns by number of rows. Each list has one time for each repeat, in order.
using ForwardSamples = std::map<int, std::vector<double>>;

/// Times forwards of each size. The sizes take turns within a repeat, and an untimed round before the first
/// repeat warms up. Throws Error like ForwardTimer.
ForwardSamples sample_forwards(const Model& model, int context, const std::vector<int>& sizes, int repeats);

}  // namespace speclab
