#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace speclab {

/// Identifies the running program: version, commit and compiler.
struct BuildInfo {
  std::string version;     ///< version of the project
  std::string commit;      ///< 40 hex digits; "unknown" outside a git checkout
  bool dirty = false;      ///< the checkout had uncommitted changes when the program was built
  std::string build_type;  ///< "Release", ...
  std::string compiler;    ///< "gcc 12.2.0"
  bool optimised = true;   ///< false: the build is too slow for its times to be worth recording
  /// results/gpu of the checkout held a record of a GPU when the program was built. False: as far as the
  /// program knows, its code has never run on a GPU.
  bool gpu_record = false;
};
const BuildInfo& build_info();
/// SHA-256 of the running executable.
std::string binary_sha256();

/// Describes the CPU and how much of it this process may use.
struct CpuInfo {
  std::string model;
  std::vector<std::string> flags;  ///< as /proc/cpuinfo lists them
  int cores_online = 0;
  int cores_allowed = 0;   ///< processors in the affinity mask
  double cgroup_cpus = 0;  ///< CPU quota of the cgroup; 0 = no limit
  std::int64_t l2_bytes = 0, l3_bytes = 0;
  /// Threads that can run at once, limited by the affinity mask and the quota; at least 1.
  int usable() const;
};
CpuInfo read_cpu_info();
std::int64_t memory_bytes();  ///< memory of the machine or of the cgroup, whichever is less

/// Measures the read bandwidth in bytes per second. Sums a buffer with this many threads in several passes
/// and returns the bandwidth of the best pass. A buffer far larger than the last-level cache measures memory
/// and takes about half a second. A small buffer measures the cache that holds it.
double measure_read_bandwidth(int threads, std::size_t buffer_bytes = std::size_t{256} << 20);
/// Measures the bandwidth of the second read of a buffer, in bytes per second. Each turn reads `other_bytes`
/// of other data, then the buffer, then the buffer again, and times the last read. Returns the median over
/// turns. The result may be far below measure_read_bandwidth(), because a cache may serve data much more
/// slowly if it was read only once before than if it is read again and again.
double measure_second_read_bandwidth(int threads, std::size_t buffer_bytes, std::size_t other_bytes);
/// Measures the peak of float arithmetic in operations per second (an FMA counts as 2). Runs independent
/// multiply-adds in the widest vectors and returns the best of several passes.
double measure_peak_flops(int threads);
/// Measures the peak of other arithmetic in operations per second, also as the best of several passes.
/// `rounds(n)` runs n rounds of a few dozen cycles each and returns the number of operations.
double measure_peak_flops(int threads, const std::function<double(std::int64_t)>& rounds);

/// The fields of environment.json (results/SCHEMA.md) about the program, its command line and the machine.
/// The runner adds the other fields.
nlohmann::json describe_environment(const std::vector<std::string>& command_line);

/// The CPU quota in the text of cgroup v2's "cpu.max", in CPUs: "150000 100000" -> 1.5. Returns 0 for "max"
/// and for anything unreadable.
double parse_cpu_max(std::string_view text);

}  // namespace speclab
