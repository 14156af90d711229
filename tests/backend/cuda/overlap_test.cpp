#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "core/backend/cuda/kernels/simt.h"
#include "core/backend/cuda_kernels.h"
#include "core/backend/device_program.h"
#include "core/base/error.h"
#include "tests/backend/cuda/simt_fixture.h"
#include "tests/backend/there.h"

// Launches that overlap: the rules of simt.h, and which launches of a backend may overlap.

namespace speclab::overlap_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using namespace simt;

struct Waiting {
  static constexpr const char* kName = "waiting";
  static constexpr int kThreads = 64;
  static constexpr bool kWaits = true;
  std::function<void()> body;
  void operator()() const { body(); }
};
struct NotWaiting {
  static constexpr const char* kName = "not waiting";
  static constexpr int kThreads = 64;
  std::function<void()> body;
  void operator()() const { body(); }
};

class Overlap : public testing::Test {
 protected:
  std::string violation(std::function<void()> body, bool overlap = true) {
    try {
      machine_.run(Waiting{std::move(body)}, {.threads = 64, .shared_bytes = 1024}, overlap);
    } catch (const Bug& bug) {
      return bug.what();
    }
    return "";
  }
  Machine machine_;
  const cuda::DeviceArray<u32> weights_{machine_, std::vector<u32>(64, 1)},
      rows_{machine_, std::vector<u32>(64, 1)};
};

TEST_F(Overlap, EveryThreadWaitsOnce) {
  EXPECT_EQ(violation([] { wait_for_previous(); }), "");
  EXPECT_EQ(violation([] { wait_for_previous(), launch_next(); }), "");
  EXPECT_THAT(violation([] {}), HasSubstr("a thread ends without wait_for_previous()"));
  EXPECT_THAT(violation([] {
                if (thread_index() != 3) wait_for_previous();
              }),
              HasSubstr("thread 3: a thread ends without wait_for_previous()"));
  EXPECT_THAT(violation([] { wait_for_previous(), wait_for_previous(); }),
              HasSubstr("calls wait_for_previous() twice"));
  EXPECT_THAT(violation([] { launch_next(), wait_for_previous(); }),
              HasSubstr("launch_next() comes before wait_for_previous()"));
  machine_.run(NotWaiting{[&] { store(rows_.data(), 1u); }}, {.threads = 64});  // waits by itself
  EXPECT_THROW(machine_.run(NotWaiting{[] { wait_for_previous(); }}, {.threads = 64}), Bug);
  machine_.run_together(Waiting{[&] { store(rows_.data() + thread_index(), 1u); }}, {.threads = 64});
}

TEST_F(Overlap, OnlyWeightsAreReadBeforeTheWait) {
  const auto before = [&](const std::function<void()>& access) {
    return violation([&] { access(), wait_for_previous(); });
  };
  u32* const rows = rows_.data();
  u64* const wide = reinterpret_cast<u64*>(rows);
  EXPECT_EQ(before([&] { load16_streamed(weights_.data()); }), "");
  EXPECT_EQ(before([&] { prefetch(weights_.data(), 64); }), "");
  const auto copy = [&](const u32* from) {
    async_copy16_streamed(shared<u32>(0, 256), 4 * thread_index(), from);
    async_commit();
    async_wait<0>();
  };
  EXPECT_EQ(before([&] { copy(weights_.data()); }), "");
  for (const std::function<void()>& access : std::vector<std::function<void()>>{
           [&] { load(rows); }, [&] { load_constant(rows); }, [&] { load16(rows); },
           [&] { load16_constant(rows); }, [&] { load_acquire(wide); },
           [&] { async_copy16(shared<u32>(0, 256), 4 * thread_index(), rows); }}) {
    EXPECT_THAT(before(access), HasSubstr("memory is read before wait_for_previous()"));
  }
  for (const std::function<void()>& access : std::vector<std::function<void()>>{
           [&] { store(rows, 1u); }, [&] { store16(rows, Bytes16{}); }, [&] { atomic_add(rows, 1); },
           [&] { atomic_add(wide, 1); }, [&] { atomic_max(wide, 1); }, [&] { add_release(wide, 1); }}) {
    EXPECT_THAT(before(access), HasSubstr("memory is written before wait_for_previous()"));
  }
}

// A launch may still run when the next launch reads its weights, but the launch before both has ended.
TEST_F(Overlap, WeightsOfTheLaunchBeforeAreNotReadBeforeTheWait) {
  const std::vector<std::function<void()>> reads{
      [&] { load16_streamed(weights_.data()), wait_for_previous(); },
      [&] {
        async_copy16_streamed(shared<u32>(0, 256), 4 * thread_index(), weights_.data());
        async_commit();
        wait_for_previous();
        async_wait<0>();
      }};
  const auto write = [&](u32* to) {
    machine_.run(NotWaiting{[&] {
                   if (thread_index() == 0) store(to, 1u);
                 }},
                 {.threads = 64}, true);
  };
  for (const auto& read : reads) {
    write(weights_.data() + 32);
    EXPECT_THAT(violation(read), HasSubstr("memory that the previous launch writes is read before wait_for"));
    write(weights_.data() + 32);
    EXPECT_EQ(violation(read, false), "");  // a launch that does not overlap
    write(weights_.data() + 32);
    write(rows_.data());
    EXPECT_EQ(violation(read), "");
  }
}

/// For each launch that `operations` records: whether it may overlap with the launch before it.
std::vector<bool> overlapping(Backend& backend, bool loop, const std::function<void()>& operations) {
  std::vector<bool> overlap;
  const auto graph = backend.device_program()->record(loop, operations);
  for (const GraphNode& node : graph->nodes) overlap.push_back(node.overlap);
  return overlap;
}

TEST_F(Overlap, LaunchesOfAGraphOverlapExceptTheFirst) {
  const auto recorded = [](CudaKernels kernels, bool loop) {
    const auto backend = make_cuda_backend({.simulated = true}, kernels);
    There there(*backend);
    float* const x = there.room(4);
    backend->scale(2, 1, 4, x);  // is not in the graph
    return overlapping(*backend, loop, [&] {
      for (int i = 0; i < 3; ++i) backend->scale(2, 1, 4, x);
    });
  };
  EXPECT_THAT(recorded(CudaKernels::kLaunches, false), ElementsAre(false, true, true));
  EXPECT_THAT(recorded(CudaKernels::kLaunches, true), ElementsAre(false, false, false));
  EXPECT_THAT(recorded(CudaKernels::kSerial, false), ElementsAre(false, false, false));
}

// The persistent kernel does not wait for the launch before it, but the launch after it does.
TEST_F(Overlap, APersistentKernelStartsAfterTheLaunchBefore) {
  const auto backend = make_cuda_backend({.simulated = true}, CudaKernels::kPersistent);
  float x[1];
  EXPECT_THAT(overlapping(*backend, false,
                          [&] {
                            backend->soft_cap(1, 1, 4, x);
                            for (int i = 0; i < 8; ++i) backend->add(x, 1, 4, x);
                            backend->soft_cap(1, 1, 4, x);
                          }),
              ElementsAre(false, false, true));
}

// Packing a matrix writes weights, which the product after it reads before it waits.
TEST_F(Overlap, NoLaunchOverlapsWithOneThatWritesWeights) {
  const auto backend = make_cuda_backend({.simulated = true});
  There there(*backend);
  float* const x = there.room(64);
  float* const y = there.room(64);
  for (int i = 0; i < 2; ++i) {
    const PackedMatrix w = backend->pack(64, 64, [](int begin, int end, Bf16* to) {
      std::fill(to, to + static_cast<std::ptrdiff_t>(end - begin) * 64, Bf16{0});
    });
    backend->norm_linear({false, x, nullptr, 1}, x, w, 1, nullptr, y);
    EXPECT_EQ(there.back(y, 64), std::vector<float>(64));
  }
}

}  // namespace
}  // namespace speclab::overlap_test
