#include "core/measure/environment.h"

#include <nlohmann/json.hpp>
#include <sched.h>
#include <sys/sysinfo.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <thread>

#include "core/base/sha256.h"
#include "core/measure/clock.h"

namespace speclab {
namespace {

std::string first_line(const std::string& path) {
  std::ifstream in(path);
  std::string line;
  std::getline(in, line);
  return line;
}

/// Paths of the cgroup v2 folders of this process, innermost first. The limits of all of them apply.
std::vector<std::string> cgroup_folders() {
  std::vector<std::string> folders;
  std::ifstream in("/proc/self/cgroup");
  for (std::string line; std::getline(in, line);) {
    if (line.rfind("0::", 0) != 0) continue;
    for (std::string path = line.substr(3); !path.empty() && path != "/";
         path = path.substr(0, path.rfind('/'))) {
      folders.push_back("/sys/fs/cgroup" + path);
    }
  }
  folders.emplace_back("/sys/fs/cgroup");
  return folders;
}

double cgroup_quota() {
  double quota = 0;
  const auto limit = [&quota](double cpus) {
    if (cpus > 0 && (quota == 0 || cpus < quota)) quota = cpus;
  };
  for (const std::string& folder : cgroup_folders()) limit(parse_cpu_max(first_line(folder + "/cpu.max")));
  // cgroup v1
  const std::string v1 = "/sys/fs/cgroup/cpu/cpu.cfs_";
  limit(parse_cpu_max(first_line(v1 + "quota_us") + " " + first_line(v1 + "period_us")));
  return quota;
}

}  // namespace

double parse_cpu_max(std::string_view text) {
  std::istringstream in{std::string(text)};
  double quota = 0, period = 0;
  if (!(in >> quota >> period) || quota <= 0 || period <= 0) return 0;
  return quota / period;
}

int CpuInfo::usable() const {
  int count = cores_allowed;
  if (cgroup_cpus > 0) count = std::min(count, static_cast<int>(std::ceil(cgroup_cpus)));
  return std::max(count, 1);
}

CpuInfo read_cpu_info() {
  CpuInfo info;
  std::ifstream in("/proc/cpuinfo");
  for (std::string line; std::getline(in, line);) {
    const std::size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    const std::string value = colon + 2 <= line.size() ? line.substr(colon + 2) : "";
    if (info.model.empty() && line.rfind("model name", 0) == 0) info.model = value;
    if (info.flags.empty() && (line.rfind("flags", 0) == 0 || line.rfind("Features", 0) == 0)) {
      std::istringstream words(value);
      for (std::string word; words >> word;) info.flags.push_back(word);
    }
  }
  info.cores_online = static_cast<int>(std::max(sysconf(_SC_NPROCESSORS_ONLN), 1L));
  cpu_set_t* set = CPU_ALLOC(8192);
  const std::size_t bytes = CPU_ALLOC_SIZE(8192);
  info.cores_allowed = sched_getaffinity(0, bytes, set) == 0 ? CPU_COUNT_S(bytes, set) : info.cores_online;
  CPU_FREE(set);
  info.cgroup_cpus = cgroup_quota();
  info.l2_bytes = std::max(sysconf(_SC_LEVEL2_CACHE_SIZE), 0L);
  info.l3_bytes = std::max(sysconf(_SC_LEVEL3_CACHE_SIZE), 0L);
  return info;
}

std::int64_t memory_bytes() {
  std::int64_t bytes = static_cast<std::int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGE_SIZE);
  for (const std::string& folder : cgroup_folders()) {
    const std::int64_t limit = std::atoll(first_line(folder + "/memory.max").c_str());
    if (limit > 0) bytes = std::min(bytes, limit);
  }
  return bytes;
}

std::string binary_sha256() {
  std::ifstream in("/proc/self/exe", std::ios::binary);
  Sha256 hash;
  std::vector<char> block(1 << 20);
  while (in.read(block.data(), static_cast<std::streamsize>(block.size())) || in.gcount() > 0) {
    hash.update(std::string_view(block.data(), static_cast<std::size_t>(in.gcount())));
  }
  return hash.hex();
}

nlohmann::json describe_environment(const std::vector<std::string>& command_line) {
  const BuildInfo& build = build_info();
  const CpuInfo cpu = read_cpu_info();
  double load[3] = {0, 0, 0};
  if (getloadavg(load, 3) != 3) load[0] = load[1] = load[2] = -1;
  utsname os{};
  uname(&os);
  return {{"version", build.version},
          {"commit", build.commit},
          {"dirty", build.dirty},
          {"build_type", build.build_type},
          {"optimised", build.optimised},
          {"compiler", build.compiler},
          {"binary_sha256", binary_sha256()},
          {"date", now_iso8601()},
          {"command_line", command_line},
          {"cpu",
           {{"model", cpu.model},
            {"flags", cpu.flags},
            {"cores_online", cpu.cores_online},
            {"cores_allowed", cpu.cores_allowed},
            {"cgroup_cpus", cpu.cgroup_cpus > 0 ? nlohmann::json(cpu.cgroup_cpus) : nlohmann::json(nullptr)},
            {"cache", {{"L2_bytes", cpu.l2_bytes}, {"L3_bytes", cpu.l3_bytes}}}}},
          {"memory_bytes", memory_bytes()},
          {"os", std::string(os.sysname) + " " + os.release + " " + os.machine},
          {"load_average", {load[0], load[1], load[2]}}};
}

}  // namespace speclab
