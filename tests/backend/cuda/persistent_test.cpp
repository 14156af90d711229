#include "core/backend/cuda/program/persistent_kernel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "core/backend/cuda/launch/launch.h"
#include "core/backend/cuda/program/program.h"
#include "core/base/error.h"
#include "tests/backend/cuda/simt_fixture.h"

// The task table of a persistent kernel: what can be a task, what is fused, when weights are prefetched, and
// how large the grid is.

namespace speclab::cuda::persistent_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string problem(const PersistentLimits& limits) {
  try {
    persistent_blocks(limits, "a device");
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(PersistentGrid, IsWhatIsResident) {
  EXPECT_EQ(persistent_blocks({132, 1, true}, "a device"), 132);
  EXPECT_EQ(persistent_blocks({132, 7, true}, "a device"), 132 * kMostResident);
  EXPECT_THAT(problem({132, 2, false}),
              HasSubstr("persistent kernels on a device: got a device without cooperative launches"));
  EXPECT_THAT(problem({132, 2, false}), HasSubstr("Use --kernels launches."));
  EXPECT_THAT(problem({132, 0, true}), HasSubstr("got room for 0 blocks on each of 132 multiprocessors, "
                                                 "expected room for a block of 256 threads and 96 KiB"));
}

Task weighing(std::size_t bytes, const void* at) {
  Task task;
  task.weights = at;
  task.weight_bytes = bytes;
  return task;
}

// Each byte is prefetched once, in the order of the tasks, and at most `ahead` bytes before its task.
TEST(PersistentTable, AsksForWeightsAhead) {
  const std::byte* const memory = nullptr;
  std::vector<Task> tasks;
  std::vector<std::size_t> sizes{0, 1600, 160, 0, 0, 6400, 160, 320};
  std::size_t begin = 0;
  std::vector<std::size_t> begins;
  for (const std::size_t size : sizes) {
    begins.push_back(begin);
    tasks.push_back(weighing(size, memory + 1'000'000 + begin));  // matrices that happen to be adjacent
    begin += size;
  }
  for (const std::size_t ahead :
       {std::size_t{160}, std::size_t{1760}, std::size_t{3200}, std::size_t{1} << 20}) {
    const TaskTable table = make_table(tasks, ahead);
    std::size_t next = 0;
    int piece = 0;
    for (int task = -1; task < static_cast<int>(tasks.size()); ++task) {
      const int end =
          task < 0 ? table.first_prefetches : table.tasks[static_cast<std::size_t>(task)].prefetch_end;
      for (; piece < end; ++piece) {
        const Prefetch& each = table.prefetches[static_cast<std::size_t>(piece)];
        EXPECT_EQ(static_cast<const std::byte*>(each.from), memory + 1'000'000 + next);
        EXPECT_GT(each.bytes, 0u);
        EXPECT_EQ(each.bytes % 16, 0u);
        next += each.bytes;
      }
      const std::size_t now =
          task + 1 < static_cast<int>(tasks.size()) ? begins[static_cast<std::size_t>(task + 1)] : begin;
      EXPECT_EQ(next, std::min(begin, now + ahead)) << "before task " << task + 1 << " with " << ahead;
    }
    EXPECT_EQ(next, begin);
    EXPECT_EQ(piece, static_cast<int>(table.prefetches.size()));
  }
  EXPECT_EQ(make_table({weighing(0, nullptr)}).prefetches.size(), 0u);
}

TEST(PersistentTable, CountsAMatrixOnce) {
  const int a = 0, b = 0;
  EXPECT_EQ(distinct_weights(std::vector<Task>{weighing(16, &a), weighing(32, &b), weighing(16, &a),
                                               weighing(0, nullptr)}),
            48u);
}

TEST(PersistentTable, IsWorthIt) {
  const std::vector<int> at(kLeastTasks);
  std::vector<Task> tasks;
  for (const int& each : at) tasks.push_back(weighing(kMostAutoWeights / kLeastTasks, &each));
  EXPECT_TRUE(worth_one_launch(tasks, CudaKernels::kPersistent));
  EXPECT_TRUE(worth_one_launch(tasks, CudaKernels::kAuto));
  EXPECT_FALSE(worth_one_launch(tasks, CudaKernels::kLaunches));
  EXPECT_FALSE(worth_one_launch(std::span(tasks).first(kLeastTasks - 1), CudaKernels::kPersistent));
  tasks.front().weight_bytes += 16;
  EXPECT_TRUE(worth_one_launch(tasks, CudaKernels::kPersistent));
  EXPECT_FALSE(worth_one_launch(tasks, CudaKernels::kAuto));
}

/// The tasks of a layer as the backend starts them; qkv, attention and the rest in the shapes of
/// SmolLM2-135M.
struct Layer {
  explicit Layer(int rows, int committed = 100) : rows_(rows) {
    RopeStore rope;
    rope.qkv = qkv;
    rope.n = rows;
    rope.heads = 9;
    rope.kv_heads = 3;
    rope.head_dim = 64;
    rope.half = 32;
    rope.kv.stride = 64;
    Attention of;
    of.qkv = qkv;
    of.n = rows;
    of.heads = 9;
    of.kv_heads = 3;
    of.head_dim = 64;
    of.kv.stride = 64;
    of.committed = committed;
    of.activations = activations;
    Norm norm;
    norm.rows = rows;
    norm.d = 576;
    norm.activations = activations;
    if (rows > 1) add(norm);
    add(linear(960, 576, qkv, true));
    add(rope);
    add(AttentionSplits{of});
    add(AttentionSum{of});
    Linear out = linear(576, 576, x, false);
    out.accumulate = true;
    add(out);
    if (rows > 1) add(norm);
    Linear up = linear(3072, 576, nullptr, true);
    up.activated = activated;
    add(up);
    Linear down = linear(576, 1536, x, false);
    down.activations = activated;
    down.accumulate = true;
    add(down);
  }
  Linear linear(int out, int in, float* y, bool normed) {
    Linear a;
    a.weights = weights;
    a.out = out;
    a.in = in;
    a.activations = activations;
    a.rows = rows_;
    if (normed && rows_ == 1) a.norm.x = x;
    a.y = y;
    a.y_stride = out;
    return a;
  }
  template <typename Arguments>
  void add(const Arguments& arguments) {
    const auto task = task_of(arguments);
    ASSERT_TRUE(task.has_value());
    EXPECT_EQ(describe(*task, 227 << 10).kernel, describe(arguments, 227 << 10).kernel);
    tasks.push_back(*task);
  }
  std::vector<int> fused() const {
    std::vector<int> which;
    for (const Task& task : fuse(tasks)) which.push_back(task.kernel);
    return which;
  }

  float qkv[1], x[1];
  simt::u16 activations[1], activated[1], weights[1];
  std::vector<Task> tasks;
  int rows_;
};

TEST(PersistentTable, ALayerHasFiveTasksAtOneRow) {
  constexpr int kNormed = kPersistentIndex<LinearFewKernel<1, true>>,
                kPlain = kPersistentIndex<LinearFewKernel<1, false>>;
  constexpr int kSplits = kPersistentIndex<AttentionSplitsKernel<Attention>>,
                kNorm = kPersistentIndex<NormKernel<NormOf::kRms>>,
                kSum = kPersistentIndex<AttentionSumKernel<Attention>>;
  const Layer one(1);
  EXPECT_EQ(one.tasks.size(), 7u);
  EXPECT_THAT(one.fused(),
              ElementsAre(kFusedIndex<LinearFewKernel<1, true, Linear, Rotated>>, kSplits,
                          kFusedIndex<LinearFewKernel<1, false, Linear, Combined>>, kNormed, kPlain));
  EXPECT_THAT(Layer(8).fused(), ElementsAre(kNorm, kFusedIndex<LinearFewKernel<1, false, Linear, Rotated>>,
                                            kSplits, kSum, kPlain, kNorm, kPlain, kPlain));
  // The parts of a long context are summed once, not by every block.
  EXPECT_THAT(Layer(1, kMostStagedSplits * kSplit).fused(),
              ElementsAre(kFusedIndex<LinearFewKernel<1, true, Linear, Rotated>>, kSplits, kSum, kPlain,
                          kNormed, kPlain));
  for (const Task& task : fuse(one.tasks)) {
    EXPECT_LE(static_cast<int>(sizeof(Task)) + task.together * task.shared_bytes, kPersistentShared);
    EXPECT_LE(task.together * task.threads, kPersistentThreads);
    EXPECT_EQ(task.shared_bytes % 16, 0);
  }
  // Without the product before it, the rotation is a separate task.
  Layer apart(1);
  apart.tasks.erase(apart.tasks.begin());
  EXPECT_EQ(apart.fused().size(), 5u);
}

TEST(PersistentTable, RotationNeedsWholeTilesAndTwoInABlock) {
  RopeStore rope;
  rope.head_dim = 64;
  rope.half = 32;
  EXPECT_TRUE(can_rotate(rope, 4));
  EXPECT_FALSE(can_rotate(rope, 8));
  rope.half = 16;  // only a part of the head is rotated
  EXPECT_FALSE(can_rotate(rope, 4));
  rope.head_dim = 48;
  rope.half = 24;
  EXPECT_FALSE(can_rotate(rope, 4));
  rope.head_dim = rope.half = 0;
  EXPECT_FALSE(can_rotate(rope, 4));
}

TEST(PersistentTable, ManyRowsAreLaunchesOfTheirOwn) {
  Linear many;
  many.out = 576;
  many.in = 576;
  many.rows = 17;
  many.partials = reinterpret_cast<float*>(16);
  many.arrivals = reinterpret_cast<simt::u32*>(16);
  EXPECT_FALSE(task_of(many).has_value());
  Standardise law;
  law.rows = 1;
  law.vocab = law.columns = 128256;
  ASSERT_TRUE(task_of(law).has_value());
  EXPECT_EQ(task_of(law)->threads, kPersistentThreads);  // outside the table it is launched with 512
  law.top_k = 5;
  EXPECT_FALSE(task_of(law).has_value());
}

// A long sequence of dependent operations has the same bits in one launch as in separate launches, with any
// grid and any order.
TEST(PersistentKernel, RunsTasksInOrder) {
  constexpr int kRows = 5, kWidth = 300, kTasks = 6;
  const std::vector<float> x = normal_numbers(kRows * kWidth, 1), weight = normal_numbers(kWidth, 2);
  std::vector<float> expected;
  for (const int blocks : {0, 1, 2, 3, 8}) {
    for (unsigned seed = 0; seed < (blocks == 0 ? 1u : 3u); ++seed) {
      simt::Machine machine(seed);
      const DeviceArray<float> a(machine, x), b(machine, x), w(machine, weight);
      const DeviceArray<simt::u64> arrived(machine, std::vector<simt::u64>{0});
      std::vector<Task> tasks;
      for (int i = 0; i < kTasks; ++i) {
        Norm norm;
        norm.x = i % 2 == 0 ? a.data() : b.data();
        norm.out = i % 2 == 0 ? b.data() : a.data();
        norm.x_stride = norm.out_stride = norm.d = kWidth;
        norm.weight = w.data();
        norm.rows = kRows;
        norm.eps = 1e-5f;
        Elementwise add{ElementwiseOf::kAdd, norm.out, norm.x, 1, kRows, kWidth};
        tasks.push_back(*task_of(norm));
        tasks.push_back(*task_of(add));
      }
      if (blocks == 0) {
        for (const Task& task : tasks) launch(task, Stream{.machine = &machine});
        expected = a.host();
        continue;
      }
      const TaskTable table = make_table(tasks);
      std::vector<std::byte> bytes(table.bytes());
      table.write(bytes.data());
      const DeviceArray<std::byte> there(machine, bytes);
      launch(TableLaunch{table.arguments(there.data(), {arrived.data()}), blocks},
             Stream{.machine = &machine});
      const std::vector<float> got = a.host();
      EXPECT_TRUE(same_bits(got.data(), expected.data(), got.size())) << blocks << " blocks, seed " << seed;
      EXPECT_EQ(arrived[0], static_cast<simt::u64>(blocks) * (tasks.size() - 1));
    }
  }
}

// The first warp polls the barrier, so it must not be busy with prefetches. Weights that lie in no memory
// show which thread prefetches first, before the first task and between tasks.
TEST(PersistentKernel, TheLastWarpPrefetches) {
  for (const std::size_t ahead : {std::size_t{1} << 20, std::size_t{0}}) {
    simt::Machine machine(2);
    const DeviceArray<float> x(machine, std::vector<float>(64, 1.0f));
    const DeviceArray<simt::u64> arrived(machine, std::vector<simt::u64>{0});
    std::vector<Task> tasks(3, *task_of(Elementwise{ElementwiseOf::kAdd, x.data(), x.data(), 1, 1, 64}));
    tasks[1].weights = reinterpret_cast<const void*>(4096);
    tasks[1].weight_bytes = 4096;
    const TaskTable table = make_table(tasks, ahead);
    std::vector<std::byte> bytes(table.bytes());
    table.write(bytes.data());
    const DeviceArray<std::byte> there(machine, bytes);
    try {
      launch(TableLaunch{table.arguments(there.data(), {arrived.data()}), 1}, Stream{.machine = &machine});
      FAIL() << "nothing was prefetched";
    } catch (const Bug& bug) {
      EXPECT_THAT(bug.what(), HasSubstr("thread 224"));
      EXPECT_THAT(bug.what(), HasSubstr("lie in no allocation"));
    }
  }
}

}  // namespace
}  // namespace speclab::cuda::persistent_test
