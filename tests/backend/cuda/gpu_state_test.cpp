#include "core/backend/cuda/runtime/gpu_state.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>

#include "core/backend/cuda/runtime/gpu_watch.h"
#include "core/backend/cuda/runtime/nvml.h"

namespace speclab::cuda::gpu_state_test {
namespace {

TEST(GpuState, ReadsWhatNvmlSays) {
  auto state = gpu_state("0000:65:00.0", SPECLAB_FAKE_NVML);
  EXPECT_TRUE(state.erase("mps"));
  EXPECT_EQ(
      state,
      nlohmann::json::parse(
          R"({"driver": "600.1", "clocks_mhz": {"sm": 1500, "memory": 2600}, "most_clocks_mhz": {"sm": 1980, "memory": 2619},
    "power_watts": 650.5, "power_limit_watts": 700.0, "memory_bytes": {"total": 1000, "used": 400}, "compute_processes": 2, "slowed_by": ["power cap"],
    "cuda_driver": "12.4", "most_power_limit_watts": 750.0, "persistence_mode": true, "ecc": false, "compute_mode": "exclusive process"})"));
}

TEST(GpuState, TheUuidIsThatOfTheDevice) {
  EXPECT_EQ(gpu_uuid("0000:65:00.0", SPECLAB_FAKE_NVML), "GPU-1234");
  EXPECT_EQ(gpu_uuid("0000:66:00.0", SPECLAB_FAKE_NVML), "") << "no such GPU";
  EXPECT_EQ(gpu_uuid("0000:65:00.0", "libnone.so.1"), "");
}

// MPS is seen in NVML's list of processes or by the pipe of its control daemon. Without either source the
// state says that MPS is unknown.
TEST(GpuState, SaysWhetherMpsRunsAndHowThatIsKnown) {
  const std::filesystem::path folder = std::filesystem::path(testing::TempDir()) / "mps_pipes";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  setenv("CUDA_MPS_PIPE_DIRECTORY", folder.c_str(), 1);
  const auto mps = [] { return gpu_state("0000:65:00.0", SPECLAB_FAKE_NVML)["mps"]; };
  EXPECT_EQ(mps()["runs"], "unknown");
  setenv("FAKE_NVML_MPS", "0", 1);
  EXPECT_EQ(mps()["runs"], "no");
  std::ofstream(folder / "control") << "";
  EXPECT_EQ(mps()["runs"], "yes");
  EXPECT_EQ(mps()["why"], "its control pipe " + (folder / "control").string() + " exists");
  std::filesystem::remove_all(folder);
  setenv("FAKE_NVML_MPS", "3", 1);
  EXPECT_EQ(mps()["runs"], "yes");
  EXPECT_EQ(mps()["why"], "NVML lists 3 of its processes");
  unsetenv("FAKE_NVML_MPS");
  unsetenv("CUDA_MPS_PIPE_DIRECTORY");
}

// The array for the list begins with 64 entries. NVML says how many it needs.
TEST(GpuState, CountsMoreProcessesThanFitIntoTheFirstArray) {
  const nvml::Library library(SPECLAB_FAKE_NVML);
  const nvml::Device device = library.device("0000:65:00.0");
  for (const char* processes : {"0", "64", "65", "1000"}) {
    setenv("FAKE_NVML_PROCESSES", processes, 1);
    setenv("FAKE_NVML_MPS", processes, 1);
    EXPECT_EQ(std::to_string(nvml::compute_processes(library, device)), processes);
    EXPECT_EQ(std::to_string(nvml::mps_processes(library, device)), processes);
  }
  GpuWatch watch("0000:65:00.0", SPECLAB_FAKE_NVML);
  watch.begin();
  EXPECT_EQ(watch.end().other_processes, 999);
  unsetenv("FAKE_NVML_PROCESSES");
  unsetenv("FAKE_NVML_MPS");
}

TEST(GpuState, SaysWhyThereIsNothing) {
  EXPECT_EQ(gpu_state("0000:66:00.0", SPECLAB_FAKE_NVML)["unavailable"],
            "NVML does not know the GPU at 0000:66:00.0");
  EXPECT_EQ(gpu_state("0000:65:00.0", "libnone.so.1")["unavailable"], "libnone.so.1 was not found");
}

TEST(GpuWatch, EnergyIsTheDifferenceOfTheCounter) {
  GpuWatch watch("0000:65:00.0", SPECLAB_FAKE_NVML);
  EXPECT_EQ(watch.problem(), "");
  for (int i = 0; i < 2; ++i) {
    watch.begin();
    const DeviceUse use = watch.end();
    EXPECT_DOUBLE_EQ(use.joules, 1.5);
    EXPECT_EQ(use.energy, "counter");
    EXPECT_EQ(use.other_processes, 1);
    EXPECT_EQ(use.slowed_by, std::vector<std::string>{"power cap"});
  }
}

TEST(GpuWatch, WithoutACounterThePowerIsIntegrated) {
  setenv("FAKE_NVML_NO_COUNTER", "1", 1);
  GpuWatch watch("0000:65:00.0", SPECLAB_FAKE_NVML, std::chrono::milliseconds(2));
  for (const int milliseconds : {30, 60}) {
    watch.begin();
    std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
    const DeviceUse use = watch.end();
    EXPECT_EQ(use.energy, "power");
    EXPECT_GE(use.seconds, 1e-3 * milliseconds);
    EXPECT_NEAR(use.joules, 650.5 * use.seconds, 1e-6 * use.joules);
  }
  unsetenv("FAKE_NVML_NO_COUNTER");
}

TEST(GpuWatch, ProcessesThatCannotBeCountedAreUnknown) {
  setenv("FAKE_NVML_NO_PROCESSES", "1", 1);
  GpuWatch watch("0000:65:00.0", SPECLAB_FAKE_NVML);
  watch.begin();
  EXPECT_FALSE(watch.end().other_processes.has_value());
  unsetenv("FAKE_NVML_NO_PROCESSES");
}

TEST(GpuWatch, WithoutNvmlItSaysWhy) {
  GpuWatch none("0000:65:00.0", "libnone.so.1");
  EXPECT_EQ(none.problem(), "libnone.so.1 was not found");
  none.begin();
  const DeviceUse use = none.end();
  EXPECT_EQ(use.joules, -1);
  EXPECT_EQ(use.energy, "");
  EXPECT_EQ(GpuWatch("0000:66:00.0", SPECLAB_FAKE_NVML).problem(),
            "NVML does not know the GPU at 0000:66:00.0");
}

}  // namespace
}  // namespace speclab::cuda::gpu_state_test
