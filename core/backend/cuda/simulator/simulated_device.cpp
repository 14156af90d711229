#include "core/backend/cuda/simulator/simulated_device.h"

#include <cstdlib>
#include <cstring>
#include <utility>

#include "core/backend/cuda/runtime/gpu_error.h"
#include "core/backend/device_status.h"
#include "core/base/cpu_topology.h"
#include "core/base/error.h"
#include "core/measure/clock.h"

namespace speclab::cuda {
namespace {

/// Measures with the host's clock. The device must outlive the timer.
class HostTimer final : public DeviceTimer {
 public:
  explicit HostTimer(const Device& device) : device_(device) {}
  void begin() override {
    device_.require_answer();
    begun_ = wall_now_ns();
  }
  void stop() override {
    device_.require_answer();
    ended_ = wall_now_ns();
  }
  double seconds() override {
    device_.require_answer();
    return 1e-9 * static_cast<double>(ended_ - begun_);
  }

 private:
  const Device& device_;
  std::int64_t begun_ = 0, ended_ = 0;
};

}  // namespace

std::unique_ptr<Device> make_simulated_device() { return std::make_unique<SimulatedDevice>(); }

std::string SimulatedDevice::description() const { return "simulated GPU on " + cpu_model_name(); }
std::unique_ptr<DeviceStatus> SimulatedDevice::make_status() const { return nullptr; }
std::unique_ptr<DeviceTimer> SimulatedDevice::make_timer() const {
  return std::make_unique<HostTimer>(*this);
}

std::shared_ptr<void> SimulatedDevice::allocate(std::size_t bytes) {
  require_answer();
  return {machine_->allocate(bytes), [machine = machine_](void* p) { machine->release(p); }};
}

void SimulatedDevice::copy(const void* from, std::size_t bytes, void* to) {
  require_answer();
  if (bytes > 0) std::memcpy(to, from, bytes);
}

std::uint64_t SimulatedDevice::begin_capture(bool loop) {
  require_answer();
  capture_ = std::make_shared<Capture>();
  if (loop) capture_->condition = machine_->make_conditional();
  return capture_->condition;
}

std::shared_ptr<void> SimulatedDevice::end_capture(std::size_t kernels) {
  const std::shared_ptr<Capture> captured = std::exchange(capture_, nullptr);
  if (!captured) throw Error({"the end of a recording", "no recording", "a recording that has begun", ""});
  const std::size_t launches = captured->launches.size();
  if (launches != kernels) fail_topology(launches, launches == 0 ? 0 : launches - 1, kernels);
  return captured;
}

std::string SimulatedDevice::loop_problem(bool /*cooperative*/) const {
  require_answer();
  return std::getenv("SPECLAB_SIMT_NO_LOOPS") == nullptr
             ? ""
             : "the simulated GPU runs no loops, because SPECLAB_SIMT_NO_LOOPS is set";
}

void SimulatedDevice::replay(void* captured) {
  require_answer();
  const auto& capture = *static_cast<const Capture*>(captured);
  constexpr std::uint32_t kUnset = 2;
  do {
    if (capture.condition != 0) machine_->set_conditional(capture.condition, kUnset);
    for (const auto& launch : capture.launches) launch();
    SPECLAB_CHECK(capture.condition == 0 || machine_->conditional(capture.condition) != kUnset,
                  "a loop that never ends");
  } while (capture.condition != 0 && machine_->conditional(capture.condition) != 0);
}

}  // namespace speclab::cuda
