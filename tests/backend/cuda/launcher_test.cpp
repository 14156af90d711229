#include "core/backend/cuda/launch/launcher.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "core/backend/cuda/program/program.h"
#include "core/backend/cuda/simulator/simulated_device.h"
#include "core/base/error.h"
#include "tests/backend/numbers.h"
#include "tests/base/error_text.h"

// How launches become persistent kernels: which tables of tasks are copied to the device, and what an error
// says when a block of such a kernel is lost.

namespace speclab::cuda::launcher_test {
namespace {

using testing::HasSubstr;

/// A simulated GPU that counts the bytes that are copied to it.
class CountingDevice final : public SimulatedDevice {
 public:
  void upload(const void* host, std::size_t bytes, void* to) override {
    ++uploads;
    SimulatedDevice::upload(host, bytes, to);
  }
  int uploads = 0;
};

class LauncherTables : public testing::Test {
 protected:
  static constexpr int kWidth = 64;
  /// Starts `count` additions of the `from`-th row to the first one.
  void start(int from, int count = 10) {
    for (int i = 0; i < count; ++i)
      launcher_.start("add", Elementwise{ElementwiseOf::kAdd, rows(0), rows(from), 1, 1, kWidth});
  }
  /// The same, and returns the number of copies to the device that this needed.
  int copies(int from, int count = 10) {
    const int before = device_.uploads;
    start(from, count);
    launcher_.submit();
    return device_.uploads - before;
  }
  float* rows(int i) const { return static_cast<float*>(memory_.get()) + i * kWidth; }

  CountingDevice device_;
  Launcher launcher_{device_, CudaKernels::kPersistent};
  std::shared_ptr<void> memory_ = [this] {
    const std::vector<float> ones(64 * kWidth, 1.0f);
    std::shared_ptr<void> memory = device_.allocate(ones.size() * sizeof(float));
    device_.upload(ones.data(), ones.size() * sizeof(float), memory.get());
    return memory;
  }();
};

// A device that was given up takes no more work, and nothing waits for it.
TEST(GivenUpDevice, RefusesAllThatCouldWait) {
  SimulatedDevice device;
  const auto memory = device.allocate(64);
  const auto timer = device.make_timer();
  device.begin_capture(false);
  const auto captured = device.end_capture(0);
  timer->begin();
  device.replay(captured.get());
  timer->stop();
  EXPECT_GE(timer->seconds(), 0);
  EXPECT_EQ(device.loop_problem(false), "");
  device.give_up();
  char host[64] = {};
  const std::vector<std::pair<const char*, std::function<void()>>> calls{
      {"allocate", [&] { device.allocate(64); }},
      {"upload", [&] { device.upload(host, 64, memory.get()); }},
      {"upload_beside", [&] { device.upload_beside(host, 64, memory.get()); }},
      {"download", [&] { device.download(memory.get(), 64, host); }},
      {"stream", [&] { device.stream(); }},
      {"begin_capture", [&] { device.begin_capture(true); }},
      {"replay", [&] { device.replay(captured.get()); }},
      {"loop_problem", [&] { device.loop_problem(true); }},
      {"begin of a timer", [&] { timer->begin(); }},
      {"stop of a timer", [&] { timer->stop(); }},
      {"seconds of a timer", [&] { timer->seconds(); }}};
  for (const auto& [name, call] : calls)
    EXPECT_THAT(fixtures::message_of(call), HasSubstr("given up")) << name;
}

// As on a GPU, a recording that is not what the caller says is an Error, and the next recording is not
// affected.
TEST(SimulatedCapture, OfOtherLaunchesIsAnError) {
  SimulatedDevice device;
  EXPECT_THAT(fixtures::message_of([&] { device.end_capture(0); }), HasSubstr("got no recording"));
  device.begin_capture(false);
  EXPECT_THAT(fixtures::message_of([&] { device.end_capture(2); }),
              HasSubstr("a recorded graph: got 0 nodes with 0 edges, expected a chain of 2 kernels"));
  EXPECT_EQ(device.captured_launches(), nullptr);
  device.begin_capture(true);
  device.captured_launches()->assign(3, [] {});
  EXPECT_THAT(fixtures::message_of([&] { device.end_capture(2); }),
              HasSubstr("got 3 nodes with 2 edges, expected a chain of 2 kernels"));
  device.begin_capture(false);
  EXPECT_NE(device.end_capture(0), nullptr);
}

/// A simulated GPU whose blocks have as much shared memory as on sm_89.
class SmallDevice final : public SimulatedDevice {
 public:
  int most_shared_bytes() const override { return 99 << 10; }
};

// A product of many rows plans blocks of 227 KiB at most. Where a block may have less, it is launched with
// smaller blocks, and a recorded graph says so.
TEST(LauncherGraphs, DescribeTheLaunchesOfTheDevice) {
  Linear layer;
  layer.out = layer.in = 4096;
  layer.rows = 128;
  layer.weights = reinterpret_cast<const simt::u16*>(16);
  layer.partials = reinterpret_cast<float*>(16);
  layer.arrivals = reinterpret_cast<simt::u32*>(16);
  const auto node_on = [&](Device& device) {
    Launcher launcher(device, CudaKernels::kLaunches);
    return launcher.record(false, {}, [&] { launcher.start("linear", layer); })->nodes.at(0);
  };
  SimulatedDevice large;
  SmallDevice small;
  const GraphNode planned = node_on(large), adapted = node_on(small);
  EXPECT_GT(planned.shared_bytes, 99 << 10);
  EXPECT_LE(adapted.shared_bytes, 99 << 10);
  EXPECT_LT(adapted.threads, planned.threads);
  EXPECT_EQ(adapted.threads * adapted.blocks[0], planned.threads * planned.blocks[0]);
}

TEST_F(LauncherTables, AreCopiedOnce) {
  EXPECT_EQ(copies(1), 1);
  EXPECT_EQ(copies(1), 0);
  EXPECT_EQ(*rows(0), 21.0f);   // both launches have run
  EXPECT_EQ(copies(2), 1);      // other arguments
  EXPECT_EQ(copies(1, 11), 1);  // another number of tasks
  EXPECT_EQ(copies(1), 0);
  EXPECT_EQ(copies(2), 0);
  EXPECT_EQ(*rows(0), 1.0f + 10 + 10 + 10 + 11 + 10 + 10);
  EXPECT_EQ(launcher_.uploaded_tables(), 3u);
}

TEST_F(LauncherTables, TheOldestGivesWay) {
  constexpr int kMost = Launcher::kMostTables;
  for (int i = 1; i <= kMost; ++i) EXPECT_EQ(copies(i), 1);
  EXPECT_EQ(copies(1), 0);  // now table 2 is unused for the longest time
  EXPECT_EQ(copies(kMost + 1), 1);
  for (int i = 3; i <= kMost + 1; ++i) EXPECT_EQ(copies(i), 0) << i;
  EXPECT_EQ(copies(1), 0);
  EXPECT_EQ(copies(2), 1);
  EXPECT_EQ(copies(3), 1);  // table 2 took its place
}

TEST_F(LauncherTables, OfAGraphAreItsOwn) {
  EXPECT_EQ(copies(1), 1);
  const std::shared_ptr<Graph> graph = launcher_.record(false, {}, [&] { start(2); });
  for (int i = 1; i <= 12; ++i) copies(i + 2);
  const int before = device_.uploads;
  *rows(0) = 0;
  launcher_.replay(*graph);
  EXPECT_EQ(*rows(0), 10.0f);
  EXPECT_EQ(device_.uploads, before);
}

TEST_F(LauncherTables, ALostBlockIsAnErrorWithItsName) {
  EXPECT_EQ(copies(1), 1);
  device_.stream().machine->lose_block(1);
  start(2);
  try {
    launcher_.submit();
    FAIL() << "nobody missed the block";
  } catch (const Error& error) {
    EXPECT_THAT(std::string(error.what()),
                HasSubstr("a persistent kernel of 3 blocks: got a launch in which block 1 did not arrive at "
                          "the barrier after task 0 (elementwise) within 2 s"));
    EXPECT_THAT(std::string(error.what()), HasSubstr("Use --kernels launches."));
  }
}

TEST(LateBlocks, AreNamed) {
  EXPECT_NO_THROW(check_late({}, 132));
  const auto text = [](const LateBlock& late) {
    try {
      check_late(late, 132);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_THAT(
      text({.found = 1, .task = 17, .kernel = 0, .block = -1}),
      HasSubstr("a launch in which a block did not arrive at the barrier after task 17 (linear_few)"));
  EXPECT_THAT(text({.found = 1, .task = 3, .kernel = 1000, .block = 5}),
              HasSubstr("block 5 did not arrive at the barrier after task 3 (an unknown kernel)"));
}

}  // namespace
}  // namespace speclab::cuda::launcher_test
