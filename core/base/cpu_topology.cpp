#include "core/base/cpu_topology.h"

#include <sched.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <thread>

namespace speclab {
namespace {

// Cores that the cgroup's CPU quota allows; 0 when there is no known limit.
double cgroup_cores() {
  if (std::ifstream v2("/sys/fs/cgroup/cpu.max"); v2) {
    double quota = 0, period = 0;  // without a limit, the file has "max" instead of a number
    if (v2 >> quota >> period && quota > 0 && period > 0) return quota / period;
    return 0;
  }
  std::ifstream quota_file("/sys/fs/cgroup/cpu/cpu.cfs_quota_us"),
      period_file("/sys/fs/cgroup/cpu/cpu.cfs_period_us");
  double quota = 0, period = 0;
  if (quota_file >> quota && period_file >> period && quota > 0 && period > 0) return quota / period;
  return 0;
}

}  // namespace

std::vector<int> allowed_processors() {
  std::vector<int> processors;
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) == 0) {
    for (int i = 0; i < CPU_SETSIZE; ++i) {
      if (CPU_ISSET(i, &set)) processors.push_back(i);
    }
  }
  if (processors.empty()) {  // more processors than a cpu_set_t holds
    for (unsigned i = 0; i < std::max(1u, std::thread::hardware_concurrency()); ++i)
      processors.push_back(static_cast<int>(i));
  }
  return processors;
}

int usable_threads() {
  int threads = static_cast<int>(allowed_processors().size());
  if (const double cores = cgroup_cores(); cores > 0)
    threads = std::min(threads, static_cast<int>(std::ceil(cores)));
  return std::max(threads, 1);
}

std::string cpu_model_name() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    if (line.rfind("model name", 0) == 0) {
      const auto colon = line.find(':');
      if (colon != std::string::npos && colon + 2 <= line.size()) return line.substr(colon + 2);
    }
  }
  return "unknown CPU";
}

}  // namespace speclab
