#include "core/backend/cuda/runtime/gpu_watch.h"

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <stop_token>
#include <thread>

#include "core/backend/cuda/runtime/nvml.h"
#include "core/measure/clock.h"

namespace speclab::cuda {

using nvml::Device;

struct GpuWatch::Parts {
  nvml::Library library;
  std::string problem;
  Device device = nullptr;
  std::chrono::milliseconds period;
  std::int64_t begun = 0;
  std::optional<unsigned long long> energy;  // mJ, at the beginning
  int processes = 0;
  // The last sample of the power in watts, its time, and the energy up to that time (trapezoidal rule). While
  // the sampler runs, only its thread uses these three.
  std::optional<double> power;
  std::int64_t then = 0;
  double joules = 0;
  std::jthread sampler;

  explicit Parts(const char* name) : library(name), problem(library.problem()) {}

  std::optional<unsigned long long> counter() const {
    unsigned long long millijoules = 0;
    return library.call("nvmlDeviceGetTotalEnergyConsumption", device, &millijoules)
               ? std::optional(millijoules)
               : std::nullopt;
  }
  std::optional<double> watts() const {
    unsigned milliwatts = 0;
    return library.call("nvmlDeviceGetPowerUsage", device, &milliwatts) ? std::optional(1e-3 * milliwatts)
                                                                        : std::nullopt;
  }
  void add_up_to(std::int64_t now) {
    const double after = watts().value_or(*power);
    joules += 1e-9 * static_cast<double>(now - then) * (after + *power) / 2;
    power = after, then = now;
  }
  void sample(const std::stop_token& stop) {
    std::mutex mutex;
    std::condition_variable_any wake;
    while (!stop.stop_requested()) {
      std::unique_lock lock(mutex);
      wake.wait_for(lock, stop, period, [] { return false; });
      add_up_to(wall_now_ns());
    }
  }
};

GpuWatch::GpuWatch(const std::string& bus_id, const char* library, std::chrono::milliseconds period)
    : parts_(std::make_unique<Parts>(library)) {
  parts_->period = period;
  if (!parts_->problem.empty()) return;
  parts_->device = parts_->library.device(bus_id);
  if (parts_->device == nullptr) parts_->problem = "NVML does not know the GPU at " + bus_id;
}
GpuWatch::~GpuWatch() = default;

const std::string& GpuWatch::problem() const { return parts_->problem; }

void GpuWatch::begin() {
  Parts& p = *parts_;
  if (p.problem.empty()) {
    p.processes = nvml::compute_processes(p.library, p.device);
    p.energy = p.counter();
    p.power = p.energy ? std::nullopt : p.watts();
  }
  p.begun = p.then = wall_now_ns();
  p.joules = 0;
  if (p.power) p.sampler = std::jthread([&p](const std::stop_token& stop) { p.sample(stop); });
}

DeviceUse GpuWatch::end() {
  Parts& p = *parts_;
  DeviceUse use;
  p.sampler = {};  // stops the sampler and waits for its end
  const std::int64_t now = wall_now_ns();
  use.seconds = 1e-9 * static_cast<double>(now - p.begun);
  if (!p.problem.empty()) return use;
  if (auto reasons = nvml::slowed_by(p.library, p.device)) use.slowed_by = std::move(*reasons);
  if (p.power) {
    p.add_up_to(now);
    use.joules = p.joules, use.energy = "power";
  } else if (p.energy) {
    if (const auto counted = p.counter())
      use.joules = 1e-3 * static_cast<double>(*counted - *p.energy), use.energy = "counter";
  }
  const int processes = std::max(p.processes, nvml::compute_processes(p.library, p.device));
  if (processes >= 0) use.other_processes = std::max(0, processes - 1);
  return use;
}

}  // namespace speclab::cuda
