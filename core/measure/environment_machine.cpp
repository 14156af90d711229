// Measures the machine's peak bandwidth and arithmetic. The times of runs are compared with these limits (the
// roofline model).
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <numeric>
#include <thread>
#include <vector>

#include "core/measure/clock.h"
#include "core/measure/environment.h"
#include "core/measure/machine_kernels.h"
#include "core/measure/stats.h"

namespace speclab {
namespace {

/// Runs work(thread) on all threads at once. Returns the nanoseconds until the last one is done.
std::int64_t timed(int threads, const std::function<void(int)>& work) {
  const std::int64_t begin = wall_now_ns();
  std::vector<std::jthread> others;
  for (int thread = 1; thread < threads; ++thread) others.emplace_back(work, thread);
  work(0);
  others.clear();
  return std::max<std::int64_t>(wall_now_ns() - begin, 1);
}

}  // namespace

double measure_read_bandwidth(int threads, std::size_t buffer_bytes) {
  const std::size_t words = buffer_bytes / sizeof(std::uint64_t);
  const auto buffer = std::make_unique<std::uint64_t[]>(words);  // zeroed, so that every page exists
  // A pass reads at least this many bytes, so that the time to start threads does not matter.
  constexpr std::size_t kAtLeast = std::size_t{128} << 20;
  const std::size_t turns = std::max<std::size_t>(1, kAtLeast / std::max<std::size_t>(buffer_bytes, 1));
  std::vector<std::uint64_t> sums(static_cast<std::size_t>(threads));
  std::int64_t best = INT64_MAX;
  for (int pass = 0; pass < 7; ++pass) {
    best = std::min(best, timed(threads, [&](int thread) {
                      const std::size_t begin = words * thread / threads,
                                        end = words * (thread + 1) / threads;
                      for (std::size_t turn = 0; turn < turns; ++turn)
                        sums[thread] += sum_words({buffer.get() + begin, end - begin});
                    }));
  }
  volatile std::uint64_t keep = sums[0];
  static_cast<void>(keep);
  return static_cast<double>(words * turns) * sizeof(std::uint64_t) * 1e9 / static_cast<double>(best);
}

double measure_second_read_bandwidth(int threads, std::size_t buffer_bytes, std::size_t other_bytes) {
  constexpr int kTurns = 15;
  struct Share {
    const std::uint64_t* words;
    std::size_t count;
  };
  const std::size_t words = buffer_bytes / sizeof(std::uint64_t),
                    others = other_bytes / sizeof(std::uint64_t);
  const auto buffer = std::make_unique<std::uint64_t[]>(words),
             other = std::make_unique<std::uint64_t[]>(others);  // zeroed
  const auto share = [&](const std::unique_ptr<std::uint64_t[]>& all, std::size_t count, int thread) {
    const std::size_t begin = count * thread / threads, end = count * (thread + 1) / threads;
    return Share{all.get() + begin, end - begin};
  };
  // Starting threads takes as long as a pass. So the same threads run all passes and wait for each other in
  // meet().
  std::atomic<int> arrived{0};
  const auto meet = [&](int meeting) {
    arrived.fetch_add(1);
    while (arrived.load() < meeting * threads) std::this_thread::yield();
  };
  std::vector<std::uint64_t> sums(static_cast<std::size_t>(threads));
  std::vector<double> times;
  timed(threads, [&](int thread) {
    const auto read = [&](const Share& some) { sums[thread] += sum_words({some.words, some.count}); };
    const Share mine = share(buffer, words, thread), before = share(other, others, thread);
    for (int turn = 0, meeting = 0; turn < kTurns; ++turn) {
      read(before);
      meet(++meeting);
      read(mine);
      meet(++meeting);
      const std::int64_t begin = wall_now_ns();
      read(mine);
      meet(++meeting);
      if (thread == 0) times.push_back(static_cast<double>(std::max<std::int64_t>(wall_now_ns() - begin, 1)));
    }
  });
  volatile std::uint64_t keep = sums[0];
  static_cast<void>(keep);
  return static_cast<double>(words * sizeof(std::uint64_t)) * 1e9 / stats::median(times);
}

double measure_peak_flops(int threads, const std::function<double(std::int64_t)>& rounds) {
  std::vector<double> done(static_cast<std::size_t>(threads));
  double best = 0;
  for (int pass = 0; pass < 5; ++pass) {
    const std::int64_t ns =
        timed(threads, [&](int thread) { done[static_cast<std::size_t>(thread)] = rounds(2'000'000); });
    best = std::max(best, std::reduce(done.begin(), done.end()) * 1e9 / static_cast<double>(ns));
  }
  return best;
}

double measure_peak_flops(int threads) {
  return measure_peak_flops(threads, [](std::int64_t rounds) { return multiply_adds(rounds); });
}

}  // namespace speclab
