#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "core/backend/cuda/runtime/gpu.h"
#include "core/backend/device_program.h"
#include "core/backend/device_status.h"
#include "core/base/error.h"
#include "tests/on_device/on_device.h"

// What a backend offers in addition to its operations.

namespace speclab::on_device::device_test {
namespace {

class OnDeviceOffers : public OnDevice {};

// Callers ask for the property that they mean, never for the backend's name.
TEST_F(OnDeviceOffers, ProgramsAlwaysAndAStateWhereThereIsOne) {
  EXPECT_NE(backend()->device_program(), nullptr);
  EXPECT_EQ(backend()->device_program(), backend()->device_program());
  EXPECT_EQ(backend()->simulated(), !on_gpu());
  EXPECT_EQ(backend()->device_status() != nullptr, on_gpu());
  EXPECT_EQ(cpu()->device_program(), nullptr);
  EXPECT_EQ(cpu()->device_status(), nullptr);
  EXPECT_FALSE(cpu()->simulated());
}

TEST_F(OnDeviceOffers, StateAndUseOfAGpu) {
  if (!on_gpu()) GTEST_SKIP() << "a simulated GPU has no state";
  const DeviceStatus& status = *backend()->device_status();
  const nlohmann::json state = status.state();
  if (state.contains("unavailable")) GTEST_SKIP() << state["unavailable"];
  EXPECT_TRUE(state.contains("driver")) << state;
  const std::unique_ptr<DeviceWatch> watch = status.watch();
  ASSERT_NE(watch, nullptr);
  for (int i = 0; i < 2; ++i) {
    watch->begin();
    const DeviceUse use = watch->end();
    EXPECT_GT(use.seconds, 0);
    EXPECT_GE(use.other_processes.value_or(0), 0);
  }
  EXPECT_GT(status.measure_copy_bandwidth(), 1e11);
}

// Only a recorded loop can be told to repeat.
TEST_F(OnDeviceOffers, ALoopEndsWithinARecordingOnly) {
  DeviceProgram& program = *backend()->device_program();
  PlanShape shape;
  shape.vocab = 16;
  shape.target_capacity = 32;
  const std::shared_ptr<Plan> plan = program.make_plan(shape);
  ASSERT_NE(plan, nullptr);
  EXPECT_EQ(plan->shape, shape);
  EXPECT_EQ(plan->round(1), nullptr);
  EXPECT_THROW(program.repeat(*plan), Bug);
  EXPECT_THROW(program.record(false, [&] { program.repeat(*plan); }), Bug);
  const auto graph = program.record(true, [&] { program.repeat(*plan); });
  EXPECT_TRUE(graph->loop);
  ASSERT_EQ(graph->nodes.size(), 1u);
  EXPECT_EQ(graph->nodes[0].kernel, "continue_loop");
}

// After give_up(), every call that would queue work, wait or allocate is an error. Only destructors work.
TEST_F(OnDeviceOffers, NothingAfterTheDeviceWasGivenUp) {
  std::unique_ptr<cuda::Device> device;
  if (on_gpu()) device = std::make_unique<cuda::Gpu>(ordinal());
  else device = cuda::make_simulated_device();
  const std::shared_ptr<void> memory = device->allocate(64), other = device->allocate(64);
  const std::unique_ptr<DeviceTimer> timer = device->make_timer();
  timer->begin();
  timer->stop();
  std::shared_ptr<void> captured;
  if (!on_gpu()) {  // a GPU has no empty recordings
    device->begin_capture(false);
    captured = device->end_capture(0);
  }
  std::vector<char> host(64);
  const std::pair<const char*, std::function<void()>> calls[] = {
      {"stream", [&] { device->stream(); }},
      {"idle", [&] { device->idle(); }},
      {"allocate", [&] { device->allocate(8); }},
      {"allocate_shared", [&] { device->allocate_shared(8); }},
      {"upload", [&] { device->upload(host.data(), 64, memory.get()); }},
      {"upload_beside", [&] { device->upload_beside(host.data(), 64, memory.get()); }},
      {"download", [&] { device->download(memory.get(), 64, host.data()); }},
      {"copy", [&] { device->copy(memory.get(), 64, other.get()); }},
      {"begin_capture", [&] { device->begin_capture(false); }},
      {"begin_capture of a loop", [&] { device->begin_capture(true); }},
      {"loop_problem", [&] { device->loop_problem(false); }},
      {"replay", [&] { device->replay(captured.get()); }},
      {"timer begin", [&] { timer->begin(); }},
      {"timer stop", [&] { timer->stop(); }},
      {"timer seconds", [&] { timer->seconds(); }}};
  device->give_up();
  for (const auto& [name, call] : calls) {
    try {
      call();
      ADD_FAILURE() << name;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("given up"), std::string::npos) << name << error.what();
    }
  }
}

}  // namespace
}  // namespace speclab::on_device::device_test
