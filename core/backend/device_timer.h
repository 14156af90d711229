#pragma once

#include <string_view>
#include <vector>

namespace speclab {

/// Measures the time between two points of the work that is queued on a device, with the device's own clock.
/// A backend offers a DeviceTimer with Backend::make_timer(). The host's clock would also count what follows
/// on the host, such as the download of logits.
class DeviceTimer {
 public:
  virtual ~DeviceTimer() = default;
  /// The measured part begins after everything that was queued before this call.
  virtual void begin() = 0;
  /// The measured part ends after everything that was queued before this call. Does not wait.
  virtual void stop() = 0;
  /// Seconds from begin() to stop(). Waits until the device has done the measured part.
  virtual double seconds() = 0;
  /// The names of the kernels that were launched between begin() and stop(), in order; a replay of a graph is
  /// the single name "graph". A persistent kernel does the work of several kernels, called tasks, in one
  /// launch: before its name there is one name "persistent task" per task. Empty if the timer does not see
  /// launches. Valid until the next begin().
  virtual const std::vector<std::string_view>& kernels() const {
    static const std::vector<std::string_view> none;
    return none;
  }
  double end() {
    stop();
    return seconds();
  }
};

}  // namespace speclab
