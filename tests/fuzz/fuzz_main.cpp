// One libFuzzer target; SPECLAB_FUZZ_TARGET is its name, SPECLAB_FUZZ_READ its entry point. Besides findings
// of the sanitizers, an input must take less than a second of processor time (not wall time, because the
// machine may be busy), hold at most memory_limit() bytes, and leak nothing.
// libFuzzer's own counting of allocations takes a tenth of the time and is off (-detect_leaks=0, which also
// turns -malloc_limit_mb off); the hooks here do both.
#include <sanitizer/allocator_interface.h>
#include <sanitizer/lsan_interface.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <random>
#include <string>
#include <string_view>

#include "tests/fuzz/entry_points.h"
#include "tests/fuzz/memory_limit.h"
#include "tests/fuzz/mutate.h"

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t max_size);

namespace {

constexpr std::string_view kTarget = SPECLAB_FUZZ_TARGET;
constexpr std::size_t kMostAtOnce = 256 << 20;  // most memory in a single request
constexpr double kSeconds = 1;
constexpr int kMostLeakChecks =
    1000;  // a table that grows looks like a leak; the check at exit finds the rest

std::int64_t held = 0, most_held = 0;

void count_allocation(const volatile void*, std::size_t bytes) {
  if (bytes > kMostAtOnce) {
    std::fprintf(stderr, "finding: %zu bytes of memory at once\n", bytes);
    std::abort();
  }
  held += static_cast<std::int64_t>(bytes);
  if (held > most_held) most_held = held;
}
void count_release(const volatile void* pointer) {
  if (pointer != nullptr) {
    held -= static_cast<std::int64_t>(__sanitizer_get_allocated_size(const_cast<const void*>(pointer)));
  }
}

double processor_seconds() {
  timespec time{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

void mutate_bytes(std::string& bytes) {
  constexpr std::size_t kMore = 32;
  const std::size_t size = bytes.size();
  bytes.resize(size + kMore);
  bytes.resize(LLVMFuzzerMutate(reinterpret_cast<std::uint8_t*>(bytes.data()), size, bytes.size()));
}

}  // namespace

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  __sanitizer_install_malloc_and_free_hooks(count_allocation, count_release);
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static bool warm = false;  // the first call fills static tables
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const std::int64_t before = most_held = held;
  const double start = processor_seconds();
  speclab::fuzz::SPECLAB_FUZZ_READ(input);
  const double seconds = processor_seconds() - start;
  const std::int64_t bytes = most_held - before, limit = speclab::fuzz::memory_limit(kTarget, size);
  if (warm && seconds > kSeconds) {
    std::fprintf(stderr, "finding: %.1f seconds for %zu bytes\n", seconds, size);
    std::abort();
  }
  if (warm && bytes > limit) {
    std::fprintf(stderr, "finding: %lld bytes of memory for a file of %zu\n", static_cast<long long>(bytes),
                 size);
    std::abort();
  }
  static int leak_checks = 0;
  if (warm && held > before && leak_checks++ < kMostLeakChecks && __lsan_do_recoverable_leak_check() != 0) {
    std::fprintf(stderr, "finding: memory that is not freed\n");
    std::abort();
  }
  warm = true;
  return 0;
}

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size, std::size_t max_size,
                                               unsigned seed) {
  std::mt19937_64 random(seed);
  if (random() % 4 == 0) return LLVMFuzzerMutate(data, size, max_size);
  std::string input(reinterpret_cast<const char*>(data), size);
  input = speclab::fuzz::mutate(kTarget, std::move(input), random, mutate_bytes);
  if (input.empty() || input.size() > max_size) return LLVMFuzzerMutate(data, size, max_size);
  std::memcpy(data, input.data(), input.size());
  return input.size();
}
