#include "core/measure/clock.h"

#include <fmt/chrono.h>

#include <ctime>

namespace speclab {
namespace {

std::int64_t read_clock(clockid_t id) {
  timespec time{};
  clock_gettime(id, &time);
  return static_cast<std::int64_t>(time.tv_sec) * 1'000'000'000 + time.tv_nsec;
}

}  // namespace

std::int64_t wall_now_ns() { return read_clock(CLOCK_MONOTONIC); }
std::int64_t cpu_now_ns() { return read_clock(CLOCK_PROCESS_CPUTIME_ID); }
std::string now_iso8601() { return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr))); }

}  // namespace speclab
