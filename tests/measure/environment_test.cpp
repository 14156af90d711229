#include "core/measure/environment.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <filesystem>
#include <string>

namespace speclab::environment_test {
namespace {

TEST(CpuMax, IsQuotaOverPeriod) {
  EXPECT_DOUBLE_EQ(parse_cpu_max("150000 100000"), 1.5);
  EXPECT_EQ(parse_cpu_max("max 100000"), 0);
  EXPECT_EQ(parse_cpu_max("-1 100000"), 0);
  EXPECT_EQ(parse_cpu_max(""), 0);
}

TEST(CpuInfo, QuotaAndAffinityBothLimit) {
  CpuInfo info;
  info.cores_allowed = 8;
  EXPECT_EQ(info.usable(), 8);
  info.cgroup_cpus = 2.5;
  EXPECT_EQ(info.usable(), 3);
  info.cores_allowed = 2;
  EXPECT_EQ(info.usable(), 2);
  info.cores_allowed = 0;
  EXPECT_EQ(info.usable(), 1);
}

TEST(Environment, DescribesThisMachineAndBuild) {
  const nlohmann::json json = describe_environment({"speclab", "run"});
  EXPECT_FALSE(json["cpu"]["model"].get<std::string>().empty());
  EXPECT_GE(json["cpu"]["cores_allowed"].get<int>(), 1);
  EXPECT_GT(json["memory_bytes"].get<std::int64_t>(), 1 << 20);
  EXPECT_EQ(json["binary_sha256"].get<std::string>().size(), 64u);
  EXPECT_EQ(json["command_line"][1], "run");
  EXPECT_EQ(json["date"].get<std::string>().size(), 20u);
  const std::string& commit = build_info().commit;
  EXPECT_TRUE(commit == "unknown" || commit.size() == 40u) << commit;
  EXPECT_NE(build_info().compiler.find("gcc"), std::string::npos);
}

TEST(Environment, TheBuildKnowsWhetherThereIsARecordOfAGpu) {
  namespace fs = std::filesystem;
  bool found = false;
  for (const auto& entry :
       fs::recursive_directory_iterator(fs::path(SPECLAB_SOURCE_DIR) / "results" / "gpu")) {
    const std::string name = entry.path().filename().string();
    found = found || (name.starts_with("check-part") && name.ends_with(".json"));
  }
  EXPECT_EQ(build_info().gpu_record, found);
}

TEST(Machine, BandwidthAndPeakArePlausible) {
  const double bandwidth = measure_read_bandwidth(1, std::size_t{32} << 20);
  EXPECT_GT(bandwidth, 1e8);
  EXPECT_LT(bandwidth, 2e12);
  const double second = measure_second_read_bandwidth(2, std::size_t{1} << 20, std::size_t{8} << 20);
  EXPECT_GT(second, 1e8);
  EXPECT_LT(second, 4e12);
  const double peak = measure_peak_flops(1);
  EXPECT_GT(peak, 1e8);
  EXPECT_LT(peak, 1e13);
  RecordProperty("bandwidth", std::to_string(bandwidth));
  RecordProperty("peak", std::to_string(peak));
}

}  // namespace
}  // namespace speclab::environment_test
