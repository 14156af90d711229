#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "core/backend/cuda/kernels/linear/fragments.h"
#include "core/backend/cuda/kernels/simt.h"
#include "core/base/error.h"
#include "tests/backend/cuda/simt_fixture.h"

// The simulated GPU: its warps compute correctly, and it reports errors that a GPU would punish or hide.

namespace speclab::simt::simt_machine_test {
namespace {

using cuda::DeviceArray;
using testing::HasSubstr;

struct Body {
  static constexpr const char* kName = "test";
  static constexpr int kThreads = 256;
  std::function<void()> body;
  void operator()() const { body(); }
};

void run(std::function<void()> body, cuda::LaunchShape shape = {.threads = 64, .shared_bytes = 1024},
         unsigned seed = 1) {
  Machine machine(seed);
  machine.run(Body{std::move(body)}, shape);
}

std::string violation(std::function<void()> body,
                      cuda::LaunchShape shape = {.threads = 64, .shared_bytes = 1024}) {
  Machine machine(1);
  std::string message = "nothing was noticed";
  try {
    machine.run(Body{std::move(body)}, shape);
  } catch (const Bug& bug) {
    message = bug.what();
  }
  machine.run(Body{[&] {  // the machine and its shared memory can be used again
                const auto all = shared<u16>(0, shape.shared_bytes / 2);
                if (thread_index() > 0) return;
                for (int i = 0; i < shape.shared_bytes / 2; ++i) all.set(i, 0);
              }},
              shape);
  return message;
}

TEST(SimtMachine, IndicesCoverTheGridOnce) {
  std::vector<int> seen(2 * 3 * 4 * 96);
  run(
      [&] {
        EXPECT_EQ(thread_index(), 32 * warp_index() + lane());
        EXPECT_EQ(grid_x() * 100 + grid_y() * 10 + grid_z(), 234);
        ++seen[static_cast<std::size_t>(((block_z() * 3 + block_y()) * 2 + block_x()) * block_threads() +
                                        thread_index())];
      },
      {.grid_x = 2, .grid_y = 3, .grid_z = 4, .threads = 96});
  EXPECT_THAT(seen, testing::Each(1));
}

TEST(SimtMachine, CollectivesSeeAllLanes) {
  run([] {
    const int l = lane(), w = warp_index();
    EXPECT_EQ(shuffle(100 * w + l, 7), 100 * w + 7);
    EXPECT_EQ(shuffle_xor(l, 5), l ^ 5);
    EXPECT_EQ(shuffle(0x100000000ull * static_cast<u64>(l), 3), 0x300000000ull);
    EXPECT_EQ(shuffle(0.5f * static_cast<float>(l), 31), 15.5f);
    EXPECT_EQ(ballot(l % 3 == w), w == 0 ? 0x49249249u : 0x92492492u);
    EXPECT_TRUE(any(l == 9) && !any(l > 40) && all(l < 40) && !all(l != 9));
    EXPECT_EQ(warp_sum(static_cast<float>(l)), 496.0f);
    EXPECT_EQ(warp_max(-static_cast<float>(l)), 0.0f);
  });
}

// warp_sum has the bits of the butterfly of shuffles on a GPU, for every lane.
TEST(SimtMachine, WarpSumIsTheButterfly) {
  const std::vector<float> x = cuda::normal_numbers(64, 1);
  run([&] {
    const float own = x[static_cast<std::size_t>(thread_index())];
    float butterfly = own;
    for (int mask = 16; mask > 0; mask /= 2) butterfly += shuffle_xor(butterfly, mask);
    EXPECT_EQ(bits_of(warp_sum(own)), bits_of(butterfly));
  });
}

TEST(SimtMachine, BarriersLetWarpsExchange) {
  for (unsigned seed = 0; seed < 5; ++seed) {
    run(
        [] {
          const auto array = shared<int>(0, 256);
          for (int round = 0; round < 3; ++round) {
            array.set(thread_index(), 1000 * round + thread_index());
            block_sync();
            EXPECT_EQ(array[255 - thread_index()], 1000 * round + 255 - thread_index());
            block_sync();
          }
        },
        {.threads = 256, .shared_bytes = 1024}, seed);
  }
}

TEST(SimtMachine, WarpsRunInAnOrderThatTheSeedChooses) {
  const auto order = [](unsigned seed) {
    std::vector<int> warps;
    run(
        [&] {
          if (lane() == 0) warps.push_back(100 * block_x() + warp_index());
        },
        {.grid_x = 4, .threads = 256}, seed);
    return warps;
  };
  EXPECT_EQ(order(1), order(1));
  EXPECT_NE(order(1), order(2));
  EXPECT_EQ(order(1).size(), 32u);
}

TEST(SimtMachine, MatrixProductOfFragments) {
  std::mt19937 generator(3);
  std::vector<u16> a(256), b(128);  // [16][16], [16][8]
  for (u16& x : a) x = float_to_bf16(std::normal_distribution<float>()(generator));
  for (u16& x : b) x = float_to_bf16(std::normal_distribution<float>()(generator));
  const auto at = [](int i) { return static_cast<std::size_t>(i); };
  run(
      [&] {
        const int g = lane() / 4, t = lane() % 4;
        const auto pair = [](u16 low, u16 high) { return low | static_cast<u32>(high) << 16; };
        const auto of_a = [&](int m, int k) { return pair(a[at(16 * m + k)], a[at(16 * m + k + 1)]); };
        const auto of_b = [&](int k) { return pair(b[at(8 * k + g)], b[at(8 * k + 8 + g)]); };
        Accumulator c[2];
        for (Accumulator& each : c) each.clear();
        for (int i = 0; i < 100; ++i) {  // more than the queue holds
          mma(c[i % 2], {of_a(g, 2 * t), of_a(g + 8, 2 * t), of_a(g, 2 * t + 8), of_a(g + 8, 2 * t + 8)},
              {of_b(2 * t), of_b(2 * t + 8)});
        }
        mma_wait();
        for (int i = 0; i < 4; ++i) {
          const int m = g + i / 2 * 8, n = 2 * t + i % 2;
          float expected = 0;
          for (int k = 0; k < 50 * 16; ++k)
            expected = std::fmaf(bf16_to_float(a[at(16 * m + k % 16)]),
                                 bf16_to_float(b[at(8 * (k % 16) + n)]), expected);
          EXPECT_EQ(c[0][i], expected);
          EXPECT_EQ(c[1][i], expected);
        }
      },
      {.threads = 64});
}

TEST(SimtMachine, CopiesArriveAtTheWait) {
  Machine machine(1);
  const DeviceArray<float> from(machine, cuda::normal_numbers(256, 4));
  machine.run(Body{[&] {
                const auto to = shared<float>(0, 256);
                for (int stage = 0; stage < 2; ++stage) {
                  if (warp_index() == stage)
                    async_copy16(to, 4 * thread_index(), from.data() + 4 * thread_index());
                  async_commit();
                }
                async_wait<1>();
                if (warp_index() == 0) {
                  EXPECT_EQ(to[4 * thread_index() + 3],
                            from[static_cast<std::size_t>(4 * thread_index() + 3)]);
                }
                async_wait<0>();
                block_sync();
                EXPECT_EQ(to[255 - thread_index()], from[static_cast<std::size_t>(255 - thread_index())]);
              }},
              {.threads = 64, .shared_bytes = 1024});
  EXPECT_THAT(violation([&] {
                const DeviceArray<float> unused(*self->machine, 256);
                const auto to = shared<float>(0, 256);
                async_copy16(to, 4 * thread_index(), unused.data() + 4 * thread_index());
                async_commit();
                async_wait<1>();
                (void)to[4 * thread_index()];
              }),
              HasSubstr("no thread of the block has written"));
}

// Four groups of copies go through a ring of two slots. Before slot i % 2 is read for the i-th time,
// wait(slots, i) and then between() run. A thread reads what thread ^ `other` has copied.
std::string ring(int other, const std::function<void()>& between,
                 const std::function<void(const Shared<float>&, int)>& wait) {
  return violation(
      [&] {
        const DeviceArray<float> from(*self->machine, cuda::normal_numbers(4 * 64 * 4, 4));
        const auto slots = shared<float>(0, 2 * 4 * 64);
        const auto start = [&](int i) {
          async_copy16(slots, i % 2 * 256 + 4 * thread_index(), from.data() + i * 256 + 4 * thread_index());
          async_commit();
        };
        start(0);
        start(1);
        for (int i = 0; i < 4; ++i) {
          wait(slots, i);
          between();
          const int at = thread_index() ^ other;
          EXPECT_EQ(slots[i % 2 * 256 + 4 * at], from[static_cast<std::size_t>(i * 256 + 4 * at)]) << i;
          between();
          if (i < 2) start(i + 2);
          else async_commit();
        }
      },
      {.threads = 64, .shared_bytes = 2048});
}

TEST(SimtMachine, NoticesCopiesThatAreUsedTooEarly) {
  const auto nothing = [] {};
  const auto in_warp = [] { warp_sync(); };
  const auto in_block = [] { block_sync(); };
  const auto enough = [](const Shared<float>&, int) { async_wait<1>(); };
  // A lane needs no barrier to read its own bytes back. Other lanes of the warp need a warp_sync, and other
  // warps a block_sync.
  EXPECT_EQ(ring(0, nothing, enough), "nothing was noticed");
  EXPECT_EQ(ring(1, in_warp, enough), "nothing was noticed");
  EXPECT_EQ(ring(32, in_block, enough), "nothing was noticed");
  EXPECT_THAT(ring(1, nothing, enough), testing::AnyOf(HasSubstr("no thread of the block has written"),
                                                       HasSubstr("race"), HasSubstr("while a copy")));
  EXPECT_THAT(ring(32, in_warp, enough), testing::AnyOf(HasSubstr("no thread of the block has written"),
                                                        HasSubstr("race"), HasSubstr("while a copy")));
  // One group too many is left in flight, in the first round and in the second. The slot has old data then.
  const auto too_few_at = [](int when) {
    return [when](const Shared<float>&, int i) {
      if (i < when) async_wait<1>();
      else async_wait<2>();
    };
  };
  EXPECT_THAT(ring(0, nothing, too_few_at(0)), HasSubstr("no thread of the block has written"));
  EXPECT_THAT(
      ring(0, nothing, too_few_at(2)),
      testing::ContainsRegex("reads shared memory while a copy that thread [0-9]+ has started may write it"));
  // A thread writes where its copy is in flight.
  EXPECT_THAT(ring(0, nothing,
                   [](const Shared<float>& slots, int i) {
                     async_wait<1>();
                     if (i == 1) slots.set(4 * thread_index(), 1);
                   }),
              HasSubstr("writes shared memory while a copy"));
}

TEST(SimtMachine, NoticesCopiesOverMemoryThatIsInUse) {
  const auto reader = [](bool ordered) {
    return violation([ordered] {
      const DeviceArray<float> from(*self->machine, cuda::normal_numbers(256, 4));
      const auto array = shared<float>(0, 256);
      array.set16(4 * thread_index(), {});
      warp_sync();
      (void)array[4 * (thread_index() ^ 1)];
      if (ordered) warp_sync();
      // Lane 1 copies over what lane 0 has read.
      if (lane() == 1) async_copy16(array, 4 * thread_index(), from.data() + 4 * thread_index());
      async_commit();
      warp_sync();  // too late for the other lane: the copy may already have written
      async_wait<0>();
    });
  };
  EXPECT_THAT(reader(false), HasSubstr("race"));
  EXPECT_EQ(reader(true), "nothing was noticed");
  EXPECT_THAT(violation([] {
                const DeviceArray<float> from(*self->machine, cuda::normal_numbers(256, 4));
                async_copy16(shared<float>(0, 256), 4 * thread_index(), from.data() + 4 * thread_index());
                async_commit();
                store(from.data() + 4 * thread_index(), 1e9f);
                async_wait<0>();
              }),
              HasSubstr("global memory changes while a copy reads it"));
}

TEST(SimtMachine, AtomicsFindTheLastBlock) {
  Machine machine(5);
  const DeviceArray<u32> counter(machine, std::vector<u32>{0});
  int last = 0;
  machine.run(Body{[&] {
                if (thread_index() == 0 && atomic_add(counter.data(), 1) == 6) ++last;
              }},
              {.grid_x = 7});
  EXPECT_EQ(last, 1);
}

TEST(SimtMachine, NoticesDivergence) {
  EXPECT_THAT(violation([] {
                if (thread_index() != 40) block_sync();
              }),
              HasSubstr("divergence: 63 threads are at the barrier"));
  EXPECT_THAT(violation([] {
                if (lane() != 5) warp_sync();
              }),
              HasSubstr("divergence: 31 lanes of the warp are in the collective"));
  // This is outside of the macro, because within the macro every call is on the same line.
  const auto two_barriers = [] {
    if (warp_index() == 0) block_sync();
    else block_sync();
  };
  EXPECT_THAT(violation(two_barriers), HasSubstr("different barriers"));
  const auto two_collectives = [] {
    if (lane() < 16) (void)ballot(true);
    else (void)shuffle(1, 0);
  };
  EXPECT_THAT(violation(two_collectives), HasSubstr("different collectives"));
  const auto barrier_of_half_a_warp = [] {
    if (lane() < 16) block_sync();
    warp_sync();
  };
  EXPECT_THAT(violation(barrier_of_half_a_warp), HasSubstr("divergence: "));
}

TEST(SimtMachine, NoticesWrongUseOfSharedMemory) {
  EXPECT_THAT(violation([] { (void)shared<float>(0, 256)[thread_index()]; }),
              HasSubstr("no thread of the block has written"));
  EXPECT_THAT(violation([] { shared<float>(0, 63).set(thread_index(), 1); }),
              HasSubstr("element 63 of a shared array of 63"));
  EXPECT_THAT(violation([] { (void)shared<float>(0, 257); }), HasSubstr("of 1024 bytes of shared memory"));
  EXPECT_THAT(violation([] { shared<float>(4, 100).set16(4, {}); }), HasSubstr("element 4"));
  // Memory that an earlier block has written counts as not written.
  EXPECT_THAT(violation(
                  [] {
                    const auto array = shared<float>(0, 64);
                    static int blocks = 0;
                    if (thread_index() == 0) ++blocks;
                    block_sync();
                    if (blocks == 1) array.set(thread_index(), 1);
                    else (void)array[thread_index()];
                  },
                  {.grid_x = 2, .threads = 64, .shared_bytes = 256}),
              HasSubstr("no thread of the block has written"));
}

TEST(SimtMachine, NoticesRaces) {
  EXPECT_THAT(violation([] {
                const auto array = shared<float>(0, 64);
                array.set(thread_index(), 1);
                (void)array[thread_index() ^ 1];  // a lane of the same warp, but without a wait before
              }),
              testing::AnyOf(HasSubstr("race"), HasSubstr("no thread of the block has written")));
  EXPECT_THAT(violation([] { shared<float>(0, 64).set(lane(), 1); }),
              HasSubstr("race: this thread writes shared memory"));
  EXPECT_THAT(violation([] {
                const auto array = shared<float>(0, 64);
                array.set(thread_index(), 1);
                block_sync();
                (void)array[63 - thread_index()];
                array.set(thread_index(), 2);  // a reader may not be done
              }),
              HasSubstr("race"));
  EXPECT_THAT(violation([] {
                const auto array = shared<float>(0, 64);
                array.set(thread_index(), 1);
                warp_sync();
                (void)array[thread_index() ^ 1];
                warp_sync();
                array.set(thread_index(), 2);  // warp_sync orders the lanes of a warp
              }),
              HasSubstr("nothing was noticed"));
}

TEST(SimtMachine, NoticesWrongUseOfGlobalMemory) {
  Machine machine(1);
  const DeviceArray<float> array(machine, 64);
  const auto outside = [&](const std::function<void()>& body) {
    try {
      machine.run(Body{body}, {.threads = 32});
    } catch (const Bug& bug) {
      return std::string(bug.what());
    }
    return std::string("nothing was noticed");
  };
  EXPECT_THAT(outside([&] { store(array.data() + 2 * lane() + 3, 1.0f); }),
              HasSubstr("lie 260 bytes into an allocation of 256"));
  EXPECT_THAT(outside([&] { (void)load16(array.data() + 1); }), HasSubstr("not aligned"));
  const float local = 0;
  EXPECT_THAT(outside([&] { (void)load(&local); }),
              testing::ContainsRegex("lie in no allocation|into an allocation"));
}

TEST(SimtMachine, NoticesProductsThatWereNotWaitedFor) {
  const auto start = [](Accumulator& c) {
    c.clear();
    mma(c, {0, 0, 0, 0}, {0, 0});
  };
  EXPECT_THAT(violation([&] {
                Accumulator c;
                start(c);
                (void)c[0];
              }),
              HasSubstr("read before mma_wait()"));
  EXPECT_THAT(violation([&] {
                Accumulator c;
                start(c);
              }),
              HasSubstr("matrix products under way"));
  EXPECT_THAT(violation([&] {
                Accumulator c;
                start(c);
                if (lane() == 3) start(c);
                mma_wait();
              }),
              HasSubstr("different numbers of matrix products"));
}

TEST(SimtMachine, NamesKernelThreadAndLine) {
  const std::string message = violation(
      [] {
        if (thread_index() == 33) (void)shared<float>(0, 8)[3];
      },
      {.grid_x = 1, .threads = 64, .shared_bytes = 32});
  EXPECT_THAT(message,
              testing::StartsWith("kernel test, block (0, 0, 0), thread 33, simt_machine_test.cpp:"));
}

TEST(SimtMachine, RefusesShapesThatNoGpuTakes) {
  EXPECT_THAT(violation([] {}, {.threads = 64}), HasSubstr("nothing was noticed"));
  Machine machine(1);
  EXPECT_THROW(machine.run(Body{[] {}}, {.threads = 33}), Bug);
  EXPECT_THROW(machine.run(Body{[] {}}, {.threads = 288}), Bug);
  EXPECT_THROW(machine.run(Body{[] {}}, {.grid_x = 0}), Bug);
  EXPECT_THROW(machine.run(Body{[] {}}, {.grid_y = 65536}), Bug);
  EXPECT_THROW(machine.run(Body{[] {}}, {.shared_bytes = 228 << 10}), Bug);
}

}  // namespace
}  // namespace speclab::simt::simt_machine_test
