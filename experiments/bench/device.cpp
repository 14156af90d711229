#include <fmt/format.h>

#include <exception>
#include <memory>
#include <vector>

#include "core/backend/kernel_trials.h"
#include "core/measure/stats.h"
#include "experiments/bench/bench.h"
#include "experiments/run/forward_times.h"

namespace speclab::bench {
namespace {

/// Adds "cuda/NAME" for a trial. The trial is set up when it is first timed.
void add_trial(const Setting& setting, const KernelTrial& trial) {
  const auto held = std::make_shared<KernelTrial::Ready>();
  add(
      "cuda/" + trial.name,
      [=](benchmark::State& state) {
        try {
          if (!held->time) *held = trial.ready();
          for (auto _ : state) state.SetIterationTime(held->time());
        } catch (const std::exception& problem) {
          if (!trial.optional) throw;
          state.SkipWithError(problem.what());
        }
        count_work(state, setting, trial.bytes, trial.flops);
        if (!held->label.empty()) state.SetLabel(held->label);
      },
      Clock::kManual)
      ->Iterations(1)
      ->Repetitions(kDeviceRepeats);
}

/// Times a forward of the draft over one row by the device's clock. This is the cost of a drafted token if
/// the device also samples it. The counter host_us is the time until the logits are on the host, which a
/// strategy on the host pays. "cuda/draft_step" launches kernel by kernel, "cuda/draft_step_serial" does so
/// without overlap, and "cuda/draft_step_persistent" runs all kernels in one launch.
void add_draft_step(const Setting& setting, CudaKernels kernels) {
  if (!setting.has_draft) return;
  struct Held {
    std::shared_ptr<ModelSet> models;
    std::unique_ptr<ForwardTimer> timer;
  };
  const auto held = std::make_shared<Held>();
  add(
      kernels == CudaKernels::kLaunches ? "cuda/draft_step"
                                        : fmt::format("cuda/draft_step_{}", name_of(kernels)),
      [=](benchmark::State& state) {
        if (!held->models) {
          BackendChoice backend = setting.backend;
          backend.kernels = kernels;
          held->models = kernels == setting.backend.kernels ? setting.models : load(setting, backend);
        }
        const Model& draft = *held->models->draft("draft");
        const bool simulated = held->models->backend().simulated();
        if (!held->timer) held->timer = std::make_unique<ForwardTimer>(draft, simulated ? 2 : 128, 1);
        held->timer->time(1);
        std::vector<double> computed, on_host;
        for (int i = 0; i < (simulated ? 1 : 50); ++i) {
          const ForwardTime time = held->timer->time(1);
          computed.push_back(time.computed_ns());
          on_host.push_back(time.host_ns);
        }
        for (auto _ : state) state.SetIterationTime(1e-9 * stats::median(computed));
        state.counters["host_us"] = 1e-3 * stats::median(on_host);
        count_work(state, setting, static_cast<double>(draft.weight_bytes()), 0);
      },
      Clock::kManual)
      ->Iterations(1)
      ->Repetitions(kDeviceRepeats);
}

}  // namespace

void add_device(const Setting& setting, int device) {
  const bool simulated = setting.models->backend().simulated();
  for (const KernelTrial& trial : cuda_kernel_trials({.device = device, .simulated = simulated}))
    add_trial(setting, trial);
  for (const CudaKernels kernels : {CudaKernels::kLaunches, CudaKernels::kSerial, CudaKernels::kPersistent})
    add_draft_step(setting, kernels);
}

}  // namespace speclab::bench
