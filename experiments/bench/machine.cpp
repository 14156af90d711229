#include "experiments/bench/bench.h"

namespace speclab::bench {

void count_work(benchmark::State& state, const Setting& setting, double bytes, double flops) {
  using benchmark::Counter;
  const auto rate = [&](const char* name, double amount) {
    if (amount > 0) state.counters[name] = Counter(amount, Counter::kIsIterationInvariantRate);
  };
  rate("bytes_per_second", bytes);
  rate("flops_per_second", flops);
  rate("of_bandwidth", bytes / setting.read_bandwidth);
  rate("of_peak", flops / setting.peak_flops);
}

benchmark::internal::Benchmark* add(const std::string& name, Body body, Clock clock) {
  benchmark::internal::Benchmark* added = benchmark::RegisterBenchmark(name.c_str(), std::move(body));
  if (clock == Clock::kManual) added->UseManualTime();
  else added->UseRealTime();
  return added->Unit(benchmark::kMicrosecond);
}

void add_machine(const Setting& setting) {
  Backend& backend = setting.models->backend();
  // of_bandwidth and of_peak are shares of two measured speeds. Both speeds are measured again here, between
  // the other benchmarks. Their spread shows how far the shares can be trusted.
  add(
      "machine/read_bandwidth",
      [&backend, setting](benchmark::State& state) {
        constexpr double kBytes = 256 << 20;
        for (auto _ : state) state.SetIterationTime(kBytes / backend.measure_speed().read_bytes_per_second);
        count_work(state, setting, kBytes, 0);
      },
      Clock::kManual)
      ->Iterations(1);
  add(
      "machine/peak_flops",
      [&backend, setting](benchmark::State& state) {
        constexpr double kOperations = 1e9;
        for (auto _ : state) state.SetIterationTime(kOperations / backend.measure_speed().peak_flops);
        count_work(state, setting, 0, kOperations);
      },
      Clock::kManual)
      ->Iterations(1);
}

}  // namespace speclab::bench
