#pragma once

#include <cstdint>
#include <string>

namespace speclab {

/// Wall time from a steady clock, in nanoseconds since an arbitrary moment.
std::int64_t wall_now_ns();
/// CPU time of the whole process, all threads, in nanoseconds. While the process waits, wall time grows and
/// CPU time does not.
std::int64_t cpu_now_ns();
/// The date and time in UTC, "2026-01-31T12:00:00Z".
std::string now_iso8601();

}  // namespace speclab
