#include "core/backend/cuda/trials/trials.h"

#include <gtest/gtest.h>

#include <string>

#include "core/backend/cuda/simulator/simulated_device.h"

// How a kernel is timed.

namespace speclab::cuda::trials_test {
namespace {

/// Notes when it is started and stopped.
class NotingTimer final : public DeviceTimer {
 public:
  explicit NotingTimer(std::string& events) : events_(events) {}
  void begin() override { events_ += '['; }
  void stop() override { events_ += ']'; }
  double seconds() override { return 1e-3; }

 private:
  std::string& events_;
};

/// A device with such a timer. `is_simulated`: what it says of itself.
class NotingDevice final : public SimulatedDevice {
 public:
  NotingDevice(std::string& events, bool is_simulated) : events_(events), is_simulated_(is_simulated) {}
  bool simulated() const override { return is_simulated_; }
  std::unique_ptr<DeviceTimer> make_timer() const override { return std::make_unique<NotingTimer>(events_); }

 private:
  std::string& events_;
  bool is_simulated_;
};

std::string events_of(bool simulated) {
  std::string events;
  const Stand stand(std::make_unique<NotingDevice>(events, simulated));
  stand.time([&](int) { events += '.'; });
  return events;
}

// The first launch loads the code of the kernel. A timing that includes it is wrong by milliseconds.
TEST(TrialTimes, LeaveOutTheFirstLaunch) {
  EXPECT_EQ(events_of(true), ".[.]");
  EXPECT_EQ(events_of(false), ".[.][..]");  // a launch of 1 ms is repeated for 2 ms
}

}  // namespace
}  // namespace speclab::cuda::trials_test
