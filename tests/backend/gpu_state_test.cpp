#include "core/backend/cuda/gpu_state.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace speclab::cuda {
namespace {

TEST(GpuState, ReadsWhatNvmlSays) {
  const auto state = gpu_state("0000:65:00.0", SPECLAB_FAKE_NVML);
  EXPECT_EQ(state, nlohmann::json::parse(R"({"driver": "600.1", "clocks_mhz": {"sm": 1500, "memory": 2600}, "most_clocks_mhz": {"sm": 1980, "memory": 2619},
    "power_watts": 650.5, "power_limit_watts": 700.0, "memory_bytes": {"total": 1000, "used": 400}, "compute_processes": 2, "slowed_by": ["power cap"]})"));
}

TEST(GpuState, SaysWhyThereIsNothing) {
  EXPECT_EQ(gpu_state("0000:66:00.0", SPECLAB_FAKE_NVML)["unavailable"], "NVML does not know the GPU at 0000:66:00.0");
  EXPECT_EQ(gpu_state("0000:65:00.0", "libnone.so.1")["unavailable"], "libnone.so.1 was not found");
}

}  // namespace
}  // namespace speclab::cuda
