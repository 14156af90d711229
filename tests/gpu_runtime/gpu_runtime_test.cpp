// Gpu on a fake CUDA runtime: which GPU is current, what failures say, and what a failed capture leaves.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "core/backend/cuda/runtime/gpu.h"
#include "core/base/error.h"
#include "tests/gpu_runtime/fake_cuda.h"

namespace speclab::cuda {
namespace {

using fake_cuda::current_in;
using fake_cuda::machine;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class GpuRuntime : public ::testing::Test {
 protected:
  void SetUp() override { fake_cuda::reset(); }

  /// The text of the Error that `work` throws; "" if it throws none.
  template <typename Work>
  static std::string error_of(const Work& work) {
    try {
      work();
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }
};

// The runtime's current device belongs to a thread. Every call that depends on it must choose its own GPU.
TEST_F(GpuRuntime, TwoGpusAndSeveralThreadsUseTheirOwn) {
  Gpu first(0), second(1);
  ASSERT_EQ(fake_cuda::current(), 1) << "the GPU that was made last";
  const auto expect_gpu = [&](int ordinal, const std::string& call, const auto& work) {
    machine().calls.clear();
    work();
    EXPECT_THAT(current_in(call), Not(IsEmpty())) << call;
    EXPECT_THAT(current_in(call), Each(ordinal)) << call;
    Gpu& other = ordinal == 0 ? second : first;
    other.stream();
  };
  char host[4] = {};
  expect_gpu(0, "cudaMalloc", [&] { first.allocate(4); });
  expect_gpu(0, "cudaHostAlloc", [&] { first.allocate_shared(4); });
  expect_gpu(0, "cudaStreamCreateWithFlags", [&] { first.upload_beside(host, 4, host); });
  expect_gpu(0, "cudaEventCreate", [&] { first.make_timer(); });
  expect_gpu(0, "cudaStreamBeginCapture", [&] {
    first.begin_capture(false);
    first.end_capture(1);
  });
  std::thread([&] {
    EXPECT_EQ(fake_cuda::current(), 0) << "a new thread";
    expect_gpu(1, "cudaMalloc", [&] { second.allocate(4); });
    second.stream();
    EXPECT_EQ(fake_cuda::current(), 1) << "kernels can be launched in the stream";
  }).join();
}

TEST_F(GpuRuntime, AQuestionAboutMemoryLeavesTheCurrentGpu) {
  const Gpu first(0);
  EXPECT_EQ(gpu_free_bytes(1), std::size_t{80} << 20);
  EXPECT_EQ(current_in("cudaMemGetInfo"), std::vector<int>{1});
  EXPECT_EQ(fake_cuda::current(), 0);
}

TEST_F(GpuRuntime, AFailedTimingNamesItsGpu) {
  const Gpu gpu(1);
  const std::unique_ptr<DeviceTimer> timer = gpu.make_timer();
  timer->begin();
  EXPECT_DOUBLE_EQ(timer->end(), 2e-3);
  for (const std::string call : {"cudaEventRecord", "cudaEventSynchronize", "cudaEventElapsedTime"}) {
    machine().failing = call;
    EXPECT_THAT(error_of([&] {
                  timer->begin();
                  timer->end();
                }),
                ::testing::AllOf(HasSubstr(call), HasSubstr("on Fake GPU B (device 1)")))
        << call;
  }
  machine().failing = "cudaEventCreate";
  EXPECT_THAT(error_of([&] { gpu.make_timer(); }), HasSubstr("on Fake GPU B (device 1)"));
}

// The next capture has no loop, so its own graph must be instantiated, not that of the failed loop.
TEST_F(GpuRuntime, AFailedCaptureOfALoopLeavesNothing) {
  Gpu gpu(0);
  EXPECT_EQ(gpu.begin_capture(true), 7u);
  machine().failing = "cudaStreamEndCapture";
  EXPECT_THAT(error_of([&] { gpu.end_capture(1); }), HasSubstr("cudaStreamEndCapture"));
  ASSERT_EQ(machine().destroyed.size(), 1u) << "the graph with the loop";
  const void* const loop = machine().destroyed[0];
  machine().failing.clear();
  EXPECT_EQ(gpu.begin_capture(false), 0u);
  gpu.end_capture(1);
  ASSERT_EQ(machine().instantiated.size(), 1u);
  EXPECT_NE(machine().instantiated[0], loop);
  EXPECT_EQ(gpu.begin_capture(true), 7u);
  gpu.end_capture(1);
  ASSERT_EQ(machine().instantiated.size(), 2u);
  EXPECT_EQ(machine().instantiated[1], machine().destroyed.back()) << "a loop is the outer graph";
}

// What a user reads, one sentence each and the way out.
TEST_F(GpuRuntime, MachinesThatCannotBeUsedAreNamed) {
  const auto opened = [&](int ordinal) { return error_of([&] { Gpu gpu(ordinal); }); };
  EXPECT_EQ(opened(0), "");
  EXPECT_THAT(opened(2), HasSubstr("--device: got 2, expected 0 to 1, the GPUs that the driver shows"));
  machine().failing = "cudaSetDevice", machine().status = 46;  // cudaErrorDevicesUnavailable
  EXPECT_THAT(opened(1),
              HasSubstr("GPU (device 1): got a busy or unavailable GPU, expected a GPU that this process "
                        "may use. End the process that uses it"));
  machine().failing.clear();
  machine().major = 7, machine().minor = 5;
  EXPECT_THAT(opened(0), HasSubstr("GPU Fake GPU A: got compute capability 7.5, expected 8.0 or newer"));
  machine().gpus = 0;
  EXPECT_THAT(opened(0), HasSubstr("backend cuda: got no GPU: the CUDA driver sees none"));
  machine().driver = 11080;
  EXPECT_THAT(
      opened(0),
      HasSubstr(
          "no CUDA driver that is new enough: the driver supports CUDA 11.8, and this program was built"));
  machine().driver = 0;
  EXPECT_THAT(opened(0), HasSubstr("no CUDA driver: libcuda.so.1 was not found"));
  EXPECT_THAT(opened(0), HasSubstr("--backend cpu needs none"));
}

TEST_F(GpuRuntime, TooLittleMemorySaysHowMuchThereIs) {
  Gpu gpu(0);
  EXPECT_EQ(
      error_of([&] { gpu.allocate(std::size_t{81} << 20); }),
      "memory of Fake GPU A (device 0) for 81.0 MiB more: got 80.0 MiB free of 100.0. Use a smaller model "
      "or context, another --device, or end other programs that use this GPU.");
  EXPECT_EQ(error_of([&] { gpu.allocate(std::size_t{80} << 20); }), "") << "the error is not reported again";
}

}  // namespace
}  // namespace speclab::cuda
