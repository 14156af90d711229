#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace speclab {

/// What the binary is.
struct BuildInfo {
  std::string version;     ///< of the project
  std::string commit;      ///< 40 hex digits; "unknown" outside a git checkout
  bool dirty = false;      ///< tracked files differed from the commit when it was built
  std::string build_type;  ///< "Release", ...
  std::string compiler;    ///< "gcc 12.2.0"
  bool optimised = true;   ///< false: times are not worth recording
};
const BuildInfo& build_info();
/// SHA-256 of the running executable.
std::string binary_sha256();

struct CpuInfo {
  std::string model;
  std::vector<std::string> flags;  ///< of /proc/cpuinfo
  int cores_online = 0;
  int cores_allowed = 0;   ///< affinity mask
  double cgroup_cpus = 0;  ///< CPU quota of the cgroup; 0 = no limit
  std::int64_t l2_bytes = 0, l3_bytes = 0;
  /// Threads that can run at once: the affinity mask and the quota, at least 1.
  int usable() const;
};
CpuInfo read_cpu_info();
std::int64_t memory_bytes();  ///< of the machine or the cgroup, whichever is less

/// Best of several passes that sum a buffer with this many threads, bytes per second: from memory when it is
/// far larger than the last cache (about half a second), from the cache that holds it when it is small.
double measure_read_bandwidth(int threads, std::size_t buffer_bytes = std::size_t{256} << 20);
/// The same for a buffer that was read once before, behind `other_bytes` of something else, the median of
/// several turns: what a cache gives back of what a single pass has brought into it, which may be much less
/// than of what is read for ever.
double measure_second_read_bandwidth(int threads, std::size_t buffer_bytes, std::size_t other_bytes);
/// Best of several passes of independent float multiply-adds in the widest vectors, operations per second (2
/// per FMA).
double measure_peak_flops(int threads);
/// The same for other arithmetic: `rounds(n)` does n times something of a few dozen cycles, and returns its
/// operations.
double measure_peak_flops(int threads, const std::function<double(std::int64_t)>& rounds);

/// The machine's part of environment.json (results/SCHEMA.md); backend and models are added by the runner.
nlohmann::json describe_environment(const std::vector<std::string>& command_line);

/// Quota in CPUs of cgroup v2's "cpu.max" text ("150000 100000" -> 1.5); 0 for "max" or anything unreadable.
double parse_cpu_max(std::string_view text);

}  // namespace speclab
