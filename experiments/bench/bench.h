#pragma once

#include <benchmark/benchmark.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "experiments/run/model_set.h"

/// The program speclab_bench. It holds Google Benchmarks of the CPU engine on the shapes of a real model, and
/// of a GPU's kernels (--backend cuda). The benchmarks of kernels and forwards count the bytes that they must
/// read and the floating-point operations that they must do. They report the rates as shares of the machine's
/// read bandwidth and arithmetic peak, which the same process measures.
namespace speclab::bench {

/// What the benchmarks run on.
struct Setting {
  std::shared_ptr<ModelSet> models;  ///< the target, and the draft named "draft" if has_draft
  bool has_draft = false;
  std::string model, draft;  ///< paths of target and draft
  BackendChoice backend;
  std::string text;           ///< file with the text for the benchmarks copies/; "" for a made-up text
  double read_bandwidth = 0;  ///< bytes per second from memory, all threads
  double peak_flops = 0;      ///< operations per second, all threads
};

/// Loads target and draft on a backend.
std::shared_ptr<ModelSet> load(const Setting& setting, const BackendChoice& backend);

/// Sets the counters bytes_per_second, flops_per_second, of_bandwidth and of_peak from the work of one
/// iteration.
void count_work(benchmark::State& state, const Setting& setting, double bytes, double flops);

using Body = std::function<void(benchmark::State&)>;
/// The time that a benchmark reports: wall time, or the time that its body sets (kManual).
enum class Clock : std::uint8_t { kWall, kManual };
/// Registers a benchmark. With random interleaving, Google Benchmark calls the body once per repetition. So
/// the body sets up its data in the first call and keeps them for the later calls.
benchmark::internal::Benchmark* add(const std::string& name, Body body, Clock clock = Clock::kWall);

void add_machine(const Setting& setting);   ///< read bandwidth and peak, which show how steady the machine is
void add_kernels(const Setting& setting);   ///< matrices, attention, row operations
void add_forwards(const Setting& setting);  ///< whole forwards, prefill, greedy steps, draft steps
void add_trees(const Setting& setting);     ///< for several rules: steps with 64-node trees, judging a node
void add_copies(
    const Setting& setting);  ///< steps of strategies without a draft model, indexes of long texts

/// Adds "cuda/...": the kernels of GPU `device` (core/backend/kernel_trials.h), and single steps of the
/// draft. On the simulated GPU the kernels run at tiny sizes.
void add_device(const Setting& setting, int device);

/// Repetitions of a benchmark on a device. Each repetition is a batch of launches or of draft steps.
inline constexpr int kDeviceRepeats = 5;

}  // namespace speclab::bench
