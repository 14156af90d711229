#pragma once

#include <cstdint>

namespace speclab {

/// Steady wall clock in nanoseconds since an arbitrary moment.
std::int64_t wall_now_ns();
/// CPU time of the whole process, all threads, in nanoseconds. A stall shows as wall time without CPU time.
std::int64_t cpu_now_ns();

}  // namespace speclab
