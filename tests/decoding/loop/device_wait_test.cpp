#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "core/backend/cuda/runtime/cuda_backend.h"
#include "core/backend/cuda_kernels.h"
#include "core/base/error.h"
#include "core/measure/clock.h"
#include "tests/decoding/loop/planned_loop.h"

// What happens when a device never writes the result of a step that it runs by itself; and the range of the
// steps that a profiler records.

namespace speclab::planned_loop_test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// Runs everything but the kernel that writes the result of a step.
class SilentProgram final : public DeviceProgram {
 public:
  explicit SilentProgram(Backend& backend, DeviceProgram& real) : backend_(backend), real_(real) {}
  std::shared_ptr<Plan> make_plan(const PlanShape& shape) override { return real_.make_plan(shape); }
  void start(Plan& plan, const PlanStart& start) override { real_.start(plan, start); }
  void draft_rows(Plan& plan, int depth) override { real_.draft_rows(plan, depth); }
  void draw(Plan& plan, int depth) override { real_.draw(plan, depth); }
  void target_rows(Plan& plan) override { real_.target_rows(plan); }
  void settle(Plan&) override { backend_.submit(); }
  void stamp(Plan& plan, int which) override { real_.stamp(plan, which); }
  void repeat(Plan& plan) override { real_.repeat(plan); }
  std::shared_ptr<Graph> record(bool loop, const std::function<void()>& operations) override {
    return real_.record(loop, operations);
  }
  void replay(const Graph& graph) override { real_.replay(graph); }

 private:
  Backend& backend_;
  DeviceProgram& real_;
};

class SilentBackend final : public cuda::CudaBackend {
 public:
  explicit SilentBackend(bool busy)
      : CudaBackend({.simulated = true}, CudaKernels::kLaunches),
        program_(*this, *CudaBackend::device_program()),
        busy_(busy) {}
  DeviceProgram* device_program() override { return &program_; }
  bool idle() override { return CudaBackend::idle() && !busy_; }

 private:
  SilentProgram program_;
  bool busy_;
};

class DeviceWait : public ::testing::Test {
 protected:
  void TearDown() override { unsetenv("SPECLAB_DEVICE_WAIT_SECONDS"); }
  static std::string failure(const ModelPtr& target, const json& options) {
    Decode decode{.target = target, .options = options};
    decode.options.update({{"device_loop", "on"}, {"max_tokens", 6}});
    try {
      decode.run();
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  }
};

TEST_F(DeviceWait, ASilentDeviceIsGivenUp) {
  setenv("SPECLAB_DEVICE_WAIT_SECONDS", "0.2", 1);
  for (const bool busy : {true, false}) {
    for (const char* graph : {"off", "round"}) {
      SCOPED_TRACE(std::string(busy ? "busy" : "idle") + ", graph " + graph);
      const auto backend = std::make_shared<SilentBackend>(busy);
      const ModelPtr target = load_tiny_on(backend, random_table(20, 1));
      const std::int64_t begun = wall_now_ns();
      const std::string text = failure(target, {{"device_graph", graph}});
      EXPECT_LT(wall_now_ns() - begun, 3'000'000'000);
      EXPECT_THAT(
          text, AllOf(HasSubstr("step 1 of "), HasSubstr("simulated GPU"), HasSubstr("no result after 0.2 s"),
                      HasSubstr(busy ? "is still busy" : "has nothing left to do"),
                      HasSubstr("SPECLAB_DEVICE_WAIT_SECONDS")));
      // Nothing waits for this device again.
      EXPECT_THAT(failure(target, {{"device_loop", "off"}}), HasSubstr("given up"));
      EXPECT_THROW(backend->allocate(8), Error);
    }
  }
}

TEST_F(DeviceWait, TheLimitIsCheckedOnlyWhenADeviceKeepsTheHostWaiting) {
  setenv("SPECLAB_DEVICE_WAIT_SECONDS", "soon", 1);
  const auto silent = std::make_shared<SilentBackend>(true);
  EXPECT_THAT(
      failure(load_tiny_on(silent, random_table(20, 1)), json::object()),
      AllOf(HasSubstr("SPECLAB_DEVICE_WAIT_SECONDS"), HasSubstr("\"soon\""), HasSubstr("seconds, above 0")));
  EXPECT_EQ(failure(table_on_device(20, 1), json::object()), "no error");
}

TEST(ProfiledSteps, LieBetweenThePromptAndTheEnd) {
  Decode decode{.target = tiny_target(), .options = {{"max_tokens", 3}}};
  std::vector<std::string> events;
  decode.loop.on_steps = [&](bool begins) { events.emplace_back(begins ? "begin" : "end"); };
  decode.loop.on_emit = [&](int, const StepRecord& step, TokenSpan) {
    events.emplace_back(step.emitted > 0 ? "step" : "prompt");
  };
  EXPECT_EQ(decode.run().tokens.size(), 3u);
  EXPECT_THAT(events, ElementsAre("prompt", "begin", "step", "step", "end"));
}

}  // namespace
}  // namespace speclab::planned_loop_test
