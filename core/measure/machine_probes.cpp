#include "core/measure/machine_probes.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "core/measure/clock.h"
#include "core/measure/environment.h"
#include "core/measure/machine_kernels.h"

namespace speclab {
namespace {

constexpr std::size_t kReadWords = (std::size_t{8} << 20) / sizeof(std::uint64_t);  // words per memory probe
constexpr std::size_t kLeastBytes = std::size_t{64} << 20, kMostBytes = std::size_t{512} << 20;
constexpr std::int64_t kRounds =
    200'000;  // of one arithmetic probe, on each thread: about half a millisecond

/// Number of words of the data, a multiple of kReadWords, so that no read wraps around.
std::size_t data_words() {
  const auto cache = static_cast<std::size_t>(std::max<std::int64_t>(read_cpu_info().l3_bytes, 0));
  const std::size_t bytes = std::clamp(2 * cache, kLeastBytes, kMostBytes);
  return bytes / sizeof(std::uint64_t) / kReadWords * kReadWords;
}

}  // namespace

MachineProbes::MachineProbes(int threads)
    : pool_(threads), words_(data_words()), data_(std::make_unique<std::uint64_t[]>(words_)) {}

ProbeTimes MachineProbes::run() {
  const int threads = pool_.threads();
  pool_.parallel(threads, [](int, int) {});  // wakes the workers
  std::vector<std::uint64_t> sums(static_cast<std::size_t>(threads));
  const std::int64_t begin = wall_now_ns();
  pool_.parallel(threads, [](int, int) { multiply_adds(kRounds); });
  const std::int64_t computed = wall_now_ns();
  pool_.parallel(threads, [&](int chunk, int) {
    const auto part = static_cast<std::size_t>(chunk), parts = static_cast<std::size_t>(threads);
    const std::size_t first = kReadWords * part / parts, last = kReadWords * (part + 1) / parts;
    sums[part] = sum_words({data_.get() + next_ + first, last - first});
  });
  const std::int64_t read = wall_now_ns();
  sum_ = std::accumulate(sums.begin(), sums.end(), sum_);
  next_ = (next_ + kReadWords) % words_;
  return {.memory_ns = std::max<std::int64_t>(read - computed, 1),
          .arithmetic_ns = std::max<std::int64_t>(computed - begin, 1)};
}

}  // namespace speclab
