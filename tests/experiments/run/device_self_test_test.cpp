#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/model/toy/random_decoder.h"
#include "experiments/run/device/open_backend.h"
#include "experiments/run/device/self_test.h"
#include "experiments/run/device/tested_devices.h"
#include "tests/model/files/model_files.h"

namespace speclab::device_self_test_test {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr toy::DecoderSizes kTiny{
    .hidden = 32, .layers = 2, .heads = 4, .kv_heads = 2, .head_dim = 8, .ffn = 64, .vocab = 64};

std::shared_ptr<const Model> tiny_decoder(std::uint64_t seed, const std::string& numerics) {
  return Model::load(toy::open_random_decoder(kTiny, seed),
                     make_cpu_backend({.threads = 1, .numerics = numerics}), {});
}

/// XDG_CACHE_HOME names a folder of this test.
class CacheFolder {
 public:
  explicit CacheFolder(const std::string& folder) {
    if (const char* value = std::getenv("XDG_CACHE_HOME")) before_ = value;
    ::setenv("XDG_CACHE_HOME", folder.c_str(), 1);
  }
  ~CacheFolder() {
    if (before_) ::setenv("XDG_CACHE_HOME", before_->c_str(), 1);
    else ::unsetenv("XDG_CACHE_HOME");
  }
  CacheFolder(const CacheFolder&) = delete;
  CacheFolder& operator=(const CacheFolder&) = delete;

 private:
  std::optional<std::string> before_;
};

/// A device with this driver and UUID, or without them.
class KnownDevice : public DeviceStatus {
 public:
  KnownDevice(nlohmann::json state, std::string uuid) : state_(std::move(state)), uuid_(std::move(uuid)) {}
  nlohmann::json state() const override { return state_; }
  std::string uuid() const override { return uuid_; }
  std::unique_ptr<DeviceWatch> watch() const override { return nullptr; }
  double measure_copy_bandwidth() const override { return 0; }
  void profile(bool) const override {}

 private:
  nlohmann::json state_;
  std::string uuid_;
};

// Another numerics class stands in for a device: it rounds keys and values.
TEST(DeviceSelfTest, ADeviceThatOnlyRoundsPasses) {
  const SelfTestResult result = test_device(tiny_decoder(1, "f32"), tiny_decoder(1, "f32-kv16"), 12);
  EXPECT_EQ(result.problem, "");
  EXPECT_EQ(result.tokens, 12);
  EXPECT_GT(result.logit_difference, 0);
  EXPECT_LT(result.logit_difference, kMostLogitDifference);
  EXPECT_NO_THROW(require_passed(result, "a device"));
}

TEST(DeviceSelfTest, ADeviceThatComputesSomethingElseFails) {
  const SelfTestResult result = test_device(tiny_decoder(1, "f32"), tiny_decoder(2, "f32"), 12);
  EXPECT_THAT(result.problem, AnyOf(HasSubstr("is not the best one"), HasSubstr("logits differ")));
  try {
    require_passed(result, "a device");
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("self-test of a device: got "), HasSubstr("--backend cpu"),
                                    HasSubstr("--self-test off")));
  }
}

TEST(DeviceSelfTest, WhatTheDeviceThrowsIsTheProblem) {
  const auto model = tiny_decoder(1, "f32");
  const int too_many = model->config().context + 1;
  EXPECT_THAT(test_device(model, model, too_many).problem, HasSubstr("context"));
}

TEST(DeviceSelfTest, PassedDevicesAreRemembered) {
  const fixtures::TempDir folder;
  const CacheFolder cache(folder.path().string());
  const TestedDevice tested{.binary_sha256 = "ab",
                            .device = "GPU",
                            .unit = "GPU-1",
                            .driver = "600.1",
                            .numerics = "n",
                            .kernels = "launches"};
  EXPECT_FALSE(passed_before(tested));
  const auto file = note_passed(tested);
  EXPECT_EQ(file, *passed_file(tested));
  EXPECT_EQ(file.parent_path(), folder.path() / "speclab");
  EXPECT_TRUE(passed_before(tested));
  for (const auto field : {&TestedDevice::binary_sha256, &TestedDevice::device, &TestedDevice::unit,
                           &TestedDevice::driver, &TestedDevice::numerics, &TestedDevice::kernels}) {
    TestedDevice other = tested;
    other.*field += "x";
    EXPECT_FALSE(passed_before(other));
    EXPECT_NE(*passed_file(other), file);
  }
  for (const char* damaged : {"", "[]", "{}", "{\"device\": \"GPU\"}", "{"}) {
    std::ofstream(file) << damaged;
    EXPECT_FALSE(passed_before(tested)) << damaged;
  }
  const CacheFolder nowhere("/dev/null");
  EXPECT_FALSE(passed_before(tested));
  EXPECT_THROW(note_passed(tested), Error);
}

// A machine may have two GPUs of one name, and a new driver may compute something else.
TEST(DeviceSelfTest, ADeviceIsKnownByItsUuidAndItsDriver) {
  const KnownDevice known({{"driver", "600.1"}}, "GPU-1"), unknown({{"unavailable", "no NVML"}}, "");
  EXPECT_EQ(unit_of(&known, 3), "GPU-1");
  EXPECT_EQ(driver_of(&known), "600.1");
  EXPECT_EQ(unit_of(&unknown, 3), "number 3");
  EXPECT_EQ(driver_of(&unknown), "");
  EXPECT_EQ(unit_of(nullptr, 0), "number 0");
  EXPECT_EQ(driver_of(nullptr), "");
}

TEST(DeviceSelfTest, RunsOnceOnTheSimulatedGpu) {
  const fixtures::TempDir folder;
  const CacheFolder cache(folder.path().string());
  std::vector<std::string> said;
  const auto say = [&](const std::string& line) { said.push_back(line); };
  BackendChoice choice{.backend = BackendKind::kSimulated};
  open_backend(choice, say);
  choice.self_test = SelfTestWhen::kOff;
  open_backend(choice, say);
  EXPECT_THAT(said, ElementsAre()) << "auto tests what --backend auto chose";
  choice.self_test = SelfTestWhen::kOn;
  EXPECT_TRUE(open_backend(choice, say)->simulated());
  EXPECT_THAT(said, ElementsAre(AllOf(HasSubstr("self-test of simulated GPU"), HasSubstr("passed"),
                                      HasSubstr(folder.path().string()))));
  open_backend(choice, say);
  EXPECT_EQ(said.size(), 1U) << "it has passed before";
}

TEST(DeviceSelfTest, IsForDevicesThatWereChosenAutomatically) {
  const BackendChoice automatic{}, named{.backend = BackendKind::kCuda};
  BackendChoice on = named, off = automatic;
  on.self_test = SelfTestWhen::kOn;
  off.self_test = SelfTestWhen::kOff;
  EXPECT_TRUE(needs_self_test(automatic, BackendKind::kCuda));
  EXPECT_FALSE(needs_self_test(automatic, BackendKind::kCpu));
  EXPECT_FALSE(needs_self_test(named, BackendKind::kCuda));
  EXPECT_TRUE(needs_self_test(on, BackendKind::kCuda));
  EXPECT_FALSE(needs_self_test(off, BackendKind::kCuda));
  EXPECT_THAT(chosen_gpu_text("NVIDIA H100", false),
              AllOf(HasSubstr("takes the GPU NVIDIA H100; "), HasSubstr("has never run on a GPU")));
  EXPECT_THAT(chosen_gpu_text("NVIDIA H100", true),
              AllOf(HasSubstr("NVIDIA H100"), HasSubstr("--backend cpu"), Not(HasSubstr("never"))));
  EXPECT_THROW(open_backend({.backend = BackendKind::kCpu, .threads = 1, .self_test = SelfTestWhen::kOn},
                            [](const std::string&) {}),
               Error);
}

}  // namespace
}  // namespace speclab::device_self_test_test
