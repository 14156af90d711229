#pragma once

#include <benchmark/benchmark.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "experiments/run/model_set.h"

/// speclab_bench: Google Benchmarks of the CPU engine on the shapes of a real model, or with --backend cuda
/// of the kernels of a GPU. Each benchmark counts the bytes that it must read and the floating-point
/// operations that it must do, and says which share of the machine's read bandwidth and arithmetic peak,
/// measured by the same process, that is.
namespace speclab::bench {

struct Setting {
  std::shared_ptr<ModelSet> models;  ///< "draft" among the drafts when one was named
  bool has_draft = false;
  std::string model, draft;  ///< where they come from
  BackendChoice backend;
  std::string text;           ///< a file for the indexes of copies/; "" for a text that is made up
  double read_bandwidth = 0;  ///< bytes per second from memory, all threads
  double peak_flops = 0;      ///< operations per second, all threads
};

/// Target and draft on such a backend.
std::shared_ptr<ModelSet> load(const Setting& setting, const BackendChoice& backend);

/// Counters of one iteration's work: bytes_per_second, flops_per_second, of_bandwidth, of_peak.
void count_work(benchmark::State& state, const Setting& setting, double bytes, double flops);

using Body = std::function<void(benchmark::State&)>;
/// Registers a benchmark in wall time, or in the time that the body sets. Bodies set up on their first call
/// and keep what they set up: with random interleaving they are called once a repetition.
enum class Clock : std::uint8_t { kWall, kManual };
benchmark::internal::Benchmark* add(const std::string& name, Body body, Clock clock = Clock::kWall);

void add_machine(const Setting& setting);   ///< read bandwidth, peak: how steady is the machine?
void add_kernels(const Setting& setting);   ///< matrices, attention, row operations, empty parallel regions
void add_forwards(const Setting& setting);  ///< whole forwards, prefill, greedy steps, draft steps
void add_copies(const Setting& setting);    ///< steps of strategies that copy, indexes of long texts

/// "cuda/...": the kernels of GPU `device` or, at tiny sizes, of the simulated one
/// (core/backend/kernel_trials.h), and single steps of the draft.
void add_device(const Setting& setting, int device);

/// Repeats of a benchmark on a device: each one is a batch of launches of about two milliseconds.
inline constexpr int kDeviceRepeats = 5;

}  // namespace speclab::bench
