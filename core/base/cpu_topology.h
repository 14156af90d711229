#pragma once

#include <string>
#include <vector>

namespace speclab {

/// The logical processors in the calling thread's affinity mask, ascending; all if the mask cannot be read.
std::vector<int> allowed_processors();

/// The number of threads worth starting: the processors in the affinity mask, limited by the CPU quota of the
/// cgroup (v1 or v2, rounded up). At least 1.
int usable_threads();

/// The model name in /proc/cpuinfo ("AMD EPYC 9354"), or "unknown CPU".
std::string cpu_model_name();

}  // namespace speclab
