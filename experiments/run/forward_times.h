#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/backend/device_timer.h"
#include "core/model/net/model.h"

namespace speclab {

/// Makes a text of `length` tokens for measurements in which only time counts. The tokens are arbitrary, and
/// the same in each call.
std::vector<Token> timed_context(const Model& model, int length);

/// The time of one forward, in ns.
struct ForwardTime {
  double host_ns = 0;  ///< by the host's clock, until the logits of all rows are on the host
  /// By the device's clock, from before the first kernel until the logits are computed. They are not
  /// downloaded in this time. Absent if the host computes: its clock then measures the same.
  std::optional<double> device_ns;
  /// The time of the computation: by the device's clock if there is one.
  double computed_ns() const { return device_ns.value_or(host_ns); }
};

/// Times forwards on one sequence with `context` committed tokens (timed_context). The rows of a forward are
/// not committed, so every forward sees the same context.
class ForwardTimer {
 public:
  /// Makes room for forwards of up to `most_rows` rows. `context` is at least 1. It is reduced if context and
  /// rows together exceed the model's context. Throws Error when the rows leave no position for a context.
  ForwardTimer(const Model& model, int context, int most_rows);
  ~ForwardTimer();
  /// Runs the forward of a causal chain of n rows, all with logits.
  ForwardTime time(int n);
  /// The logits of the first row of the last forward, [head_rows].
  std::span<const float> logits() const;
  /// How often the last forward launched each kernel. Empty if the host computes.
  std::map<std::string, int> kernels() const;

 private:
  std::unique_ptr<Session> session_;
  std::unique_ptr<DeviceTimer> timer_;  // null if the host computes
  std::vector<Token> tokens_;
  std::vector<std::int32_t> parents_, rows_;
  std::vector<float> logits_;
};

/// Times in ns by number of rows (ForwardTime). Each list has one time for each repeat, in order.
struct ForwardSamples {
  std::map<int, std::vector<double>> host, device;    ///< `device` is empty if the host computes
  std::map<int, std::map<std::string, int>> kernels;  ///< ForwardTimer::kernels(); empty if the host computes
};

/// Largest size for which sample_forwards() runs untimed forwards before each timed one.
constexpr int kMostRowsAgain = 16;
/// Times forwards of each size. The sizes take turns within a repeat, and an untimed round before the first
/// repeat warms up. `after_repeat` gets the samples so far after each repeat. `untimed` is the number of
/// untimed forwards of the same size before each timed one, for sizes up to kMostRowsAgain. Throws Error like
/// ForwardTimer.
ForwardSamples sample_forwards(const Model& model, int context, const std::vector<int>& sizes, int repeats,
                               const std::function<void(const ForwardSamples&)>& after_repeat = {},
                               int untimed = 0);

}  // namespace speclab
