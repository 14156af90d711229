#include "core/backend/cuda/program/grid_barrier.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "core/base/error.h"
#include "tests/backend/cuda/simt_fixture.h"

// Blocks that run together on the simulated GPU, the barrier between them, and blocks inside blocks.

namespace speclab::simt::grid_barrier_test {
namespace {

using cuda::DeviceArray;
using cuda::GridBarrier;
using testing::HasSubstr;

struct Together {
  static constexpr const char* kName = "together";
  static constexpr int kThreads = 256;
  std::function<void()> body;
  void operator()() const { body(); }
};

std::string fault(const std::function<void(Machine&)>& launch) {
  Machine machine(1);
  try {
    launch(machine);
  } catch (const Bug& bug) {
    machine.run_together(Together{[] { block_sync(); }},
                         {.grid_x = 2, .threads = 64});  // the machine can be used again
    return bug.what();
  }
  return "nothing was noticed";
}

// Every block reads what all other blocks wrote before the barrier, in each round of each launch.
TEST(GridBarrier, BlocksSeeWhatOthersStored) {
  for (unsigned seed = 0; seed < 5; ++seed) {
    for (const int blocks : {1, 3, 8}) {
      Machine machine(seed);
      const DeviceArray<u64> arrived(machine, std::vector<u64>{0});
      const DeviceArray<int> numbers(machine, static_cast<std::size_t>(blocks) * 64);
      constexpr int kRounds = 4;
      const auto body = [&] {
        GridBarrier barrier({arrived.data()});
        for (int round = 0; round < kRounds; ++round) {
          if (round > 0) {
            barrier.arrive();
            barrier.wait();
          }
          store(numbers.data() + block_x() * 64 + thread_index(), 1000 * round + block_x());
          barrier.arrive();
          barrier.wait();
          for (int other = 0; other < grid_x(); ++other)
            EXPECT_EQ(load(numbers.data() + other * 64 + 63 - thread_index()), 1000 * round + other);
        }
      };
      for (int launch = 1; launch <= 3; ++launch) {
        machine.run_together(Together{body}, {.grid_x = blocks, .threads = 64});
        EXPECT_EQ(arrived[0], static_cast<u64>(launch * blocks * (2 * kRounds - 1)));
      }
    }
  }
}

TEST(GridBarrier, WhatNoBarrierOrdersIsNoticed) {
  for (unsigned seed = 0; seed < 4; ++seed) {
    const auto races = [&](const std::function<void(int*, u64*)>& body) {
      return fault([&](Machine& machine) {
        machine.reseed(seed);
        const DeviceArray<u64> arrived(machine, std::vector<u64>{0});
        const DeviceArray<int> numbers(machine, std::vector<int>(4));
        machine.run_together(Together{[&] { body(numbers.data(), arrived.data()); }},
                             {.grid_x = 2, .threads = 32});
      });
    };
    EXPECT_THAT(races([](int* numbers, u64*) {
                  lane() == 0 ? store(numbers + block_x(), 1) : void(load(numbers + 1));
                }),
                HasSubstr("nothing orders the two"));
    // One block reads the number, then the other block writes it.
    EXPECT_THAT(races([](int* numbers, u64*) {
                  if (block_x() == 0) (void)load(numbers);
                  else if (lane() == 0) store(numbers, 1);
                }),
                HasSubstr("nothing orders the two"));
    // A barrier with an error: the first block to arrive does not wait for the other.
    EXPECT_THAT(races([](int* numbers, u64* arrived) {
                  GridBarrier barrier({arrived});
                  if (lane() == 0) store(numbers + block_x(), 1);
                  barrier.arrive();
                  (void)load(numbers + 1 - block_x());
                }),
                HasSubstr("nothing orders the two"));
    EXPECT_EQ(races([](int* numbers, u64* arrived) {
                GridBarrier barrier({arrived});
                if (block_x() == 0 && lane() == 0) store(numbers, 1);
                barrier.arrive();
                barrier.wait();
                (void)load(numbers);
              }),
              "nothing was noticed");
  }
}

TEST(GridBarrier, MemoryThatALaunchWritesIsNotConstant) {
  const auto written_then = [](const std::function<void(const Bytes16*)>& read) {
    return fault([&](Machine& machine) {
      const DeviceArray<u64> arrived(machine, std::vector<u64>{0});
      const DeviceArray<Bytes16> numbers(machine, 2);
      machine.run_together(Together{[&] {
                             GridBarrier barrier({arrived.data()});
                             if (lane() == 0) store16(numbers.data() + block_x(), {});
                             barrier.arrive();
                             barrier.wait();
                             read(numbers.data() + 1 - block_x());
                           }},
                           {.grid_x = 2, .threads = 32, .shared_bytes = 512});
    });
  };
  EXPECT_THAT(written_then([](const Bytes16* from) { (void)load16_streamed(from); }),
              HasSubstr("reads constant memory that this launch has written"));
  EXPECT_THAT(
      written_then([](const Bytes16* from) { async_copy16_streamed(shared<u64>(0, 64), 2 * lane(), from); }),
      HasSubstr("reads constant memory that this launch has written"));
  EXPECT_EQ(written_then([](const Bytes16* from) {
              async_copy16(shared<u64>(0, 64), 2 * lane(), from);
              async_commit();
              async_wait<0>();
            }),
            "nothing was noticed");
}

TEST(GridBarrier, ABlockThatNeverComesIsNoticed) {
  EXPECT_THAT(fault([](Machine& machine) {
                const DeviceArray<u64> arrived(machine, std::vector<u64>{0});
                machine.run_together(Together{[&] {
                                       GridBarrier barrier({arrived.data()});
                                       if (block_x() == 2) return;
                                       barrier.arrive();
                                       barrier.wait();
                                     }},
                                     {.grid_x = 3, .threads = 64});
              }),
              HasSubstr("grid_barrier.h:"));
  EXPECT_THAT(fault([](Machine& machine) {
                const DeviceArray<u64> never(machine, std::vector<u64>{0});
                machine.run_together(Together{[&] {
                                       while (load_acquire(never.data()) == 0) pause();
                                     }},
                                     {.grid_x = 1, .threads = 32});
              }),
              HasSubstr("blocks wait for each other without end"));
  Machine machine(1);
  EXPECT_THROW(machine.run_together(Together{[] {}}, {.grid_x = 9, .threads = 256}), Bug);  // 72 warps
}

// A block that waits finds out which one is missing, also after other barriers and launches.
TEST(GridBarrier, NamesTheBlockThatIsMissing) {
  for (unsigned seed = 0; seed < 4; ++seed) {
    Machine machine(seed);
    const DeviceArray<u64> arrived(machine, std::vector<u64>{0});
    const DeviceArray<u32> of_blocks(machine, std::vector<u32>(4));
    int missing = -2, round_of_loss = -1;
    const auto body = [&] {
      GridBarrier barrier({arrived.data(), of_blocks.data()});
      for (int round = 0; round < 3; ++round) {
        if (block_x() == 2 && round == round_of_loss) return;
        barrier.arrive();
        barrier.wait([&](int block) { missing = block; });
      }
    };
    machine.run_together(Together{body}, {.grid_x = 4, .threads = 64});
    EXPECT_EQ(missing, -2);
    round_of_loss = 1;
    EXPECT_THROW(machine.run_together(Together{body}, {.grid_x = 4, .threads = 64}), Trap);
    EXPECT_EQ(missing, 2);
  }
}

// A fence and an atomic_add publish what a block stored; without the fence nothing does.
TEST(GridBarrier, CountersPublishAfterAFence) {
  const auto outcome = [](bool before, bool after) {
    return fault([&](Machine& machine) {
      const DeviceArray<u32> counter(machine, std::vector<u32>{0});
      const DeviceArray<int> numbers(machine, std::vector<int>(2));
      machine.run_together(Together{[&] {
                             if (lane() != 0) return;
                             store(numbers.data() + block_x(), 7);
                             if (before) fence();
                             if (atomic_add(counter.data(), 1) == 0) return;
                             if (after) fence();
                             EXPECT_EQ(load(numbers.data() + 1 - block_x()), 7);
                           }},
                           {.grid_x = 2, .threads = 32});
    });
  };
  EXPECT_EQ(outcome(true, true), "nothing was noticed");
  EXPECT_THAT(outcome(false, true), HasSubstr("nothing orders the two"));
  EXPECT_THAT(outcome(true, false), HasSubstr("nothing orders the two"));
}

TEST(InnerBlocks, AreBlocksOfTheirOwn) {
  for (unsigned seed = 0; seed < 6; ++seed) {
    Machine machine(seed);
    std::vector<int> seen(2 * 3 * 96);
    machine.run_together(
        Together{[&] {
          leave_block();
          const int outer = block_x(), place = thread_index() / 96;
          if (place < 2) {
            for (int i = outer + 2 * place; i < 6; i += 4) {
              enter_block({i % 2, i / 2, 0, 2, 3, 1, place * 96, 96, 64 + place * 512, 512});
              EXPECT_EQ(grid_x() * 100 + grid_y() * 10 + grid_z(), 231);
              EXPECT_EQ(block_threads(), 96);
              EXPECT_EQ(thread_index(), 32 * warp_index() + lane());
              ++seen[static_cast<std::size_t>((block_y() * 2 + block_x()) * 96 + thread_index())];
              const auto array = shared<int>(0, 96);
              array.set(thread_index(), 100 * i + thread_index());
              block_sync();
              EXPECT_EQ(array[95 - thread_index()], 100 * i + 95 - thread_index());
              leave_block();
            }
          }
          EXPECT_EQ(block_threads(), 256);
          EXPECT_EQ(block_x(), outer);
          block_sync();
        }},
        {.grid_x = 2, .threads = 256, .shared_bytes = 64 + 2 * 512});
    EXPECT_THAT(seen, testing::Each(1));
  }
}

TEST(InnerBlocks, WrongUseIsNoticed) {
  const auto inner = [](const std::function<void()>& body, int shared_bytes = 256) {
    return fault([&](Machine& machine) {
      machine.run_together(Together{body}, {.grid_x = 1, .threads = 64, .shared_bytes = shared_bytes});
    });
  };
  const InnerBlock one{0, 0, 0, 1, 1, 1, 0, 32, 0, 128}, two{1, 0, 0, 2, 1, 1, 32, 32, 128, 128};
  // Reads shared memory of the block before, of another inner block, or of no block.
  EXPECT_THAT(inner([&] {
                if (thread_index() >= 32) return;
                for (int i = 0; i < 2; ++i) {
                  enter_block(one);
                  const auto array = shared<int>(0, 32);
                  if (i == 0) array.set(thread_index(), 1);
                  else (void)array[thread_index()];
                  leave_block();
                }
              }),
              HasSubstr("no thread of the block has written"));
  EXPECT_THAT(inner([&] {
                enter_block(thread_index() < 32 ? one : two);
                (void)shared<int>(0, 33);
              }),
              HasSubstr("of 128 bytes of shared memory"));
  EXPECT_THAT(inner([&] { enter_block({0, 0, 0, 1, 1, 1, 0, 64, 128, 144}); }),
              HasSubstr("an inner block with threads [0, 64) of 64, and 144 bytes at offset 128 of 256"));
  EXPECT_THAT(inner([&] { enter_block(one); }),
              HasSubstr("an inner block with threads [0, 32)"));  // threads 32 to 63 are outside
  EXPECT_THAT(inner([&] {
                const InnerBlock whole{0, 0, 0, 1, 1, 1, 0, 64, 0, 128};
                enter_block(whole);
                enter_block(whole);
              }),
              HasSubstr("entered from another inner block"));
}

}  // namespace
}  // namespace speclab::simt::grid_barrier_test
