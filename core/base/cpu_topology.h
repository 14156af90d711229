#pragma once

#include <string>
#include <vector>

namespace speclab {

/// Logical processors that this process may use, ascending: its affinity mask.
std::vector<int> allowed_processors();

/// Cores that are worth a thread: the affinity mask, capped by the CPU bandwidth limit of the cgroup (v1 or
/// v2, rounded up). At least 1.
int usable_threads();

/// "AMD EPYC 9354" from /proc/cpuinfo; "unknown CPU" where there is none.
std::string cpu_model_name();

}  // namespace speclab
