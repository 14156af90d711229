// Every chunk of every region runs exactly once, on a thread that runs no other chunk at that time, before
// the region ends.
#include "core/base/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <thread>
#include <vector>

namespace speclab::thread_pool_test {
namespace {

void check_regions(int threads, int regions, const std::function<void(int region, int chunk)>& work) {
  ThreadPool pool(threads);
  ASSERT_EQ(pool.threads(), threads);
  std::vector<std::atomic<int>> runs(300);
  std::vector<std::atomic<int>> inside(static_cast<std::size_t>(threads));
  for (int region = 0; region < regions; ++region) {
    const int chunks = region * 7919 % 300;
    for (auto& count : runs) count = 0;
    pool.parallel(chunks, [&](int chunk, int thread) {
      EXPECT_EQ(inside[static_cast<std::size_t>(thread)]++, 0) << "two threads of one number";
      work(region, chunk);
      ++runs[static_cast<std::size_t>(chunk)];
      --inside[static_cast<std::size_t>(thread)];
    });
    for (int chunk = 0; chunk < 300; ++chunk)
      ASSERT_EQ(runs[static_cast<std::size_t>(chunk)], chunk < chunks ? 1 : 0)
          << "region " << region << " chunk " << chunk;
  }
}

TEST(ThreadPool, ShortRegions) {
  check_regions(2, 3000, [](int, int) {});
}

TEST(ThreadPool, MoreThreadsThanCores) {
  check_regions(static_cast<int>(4 * std::thread::hardware_concurrency()), 300, [](int, int) {});
}

/// Workers fall asleep between regions and wake up after the caller has done all work of a region.
TEST(ThreadPool, WorkersThatWakeLate) {
  check_regions(3, 60, [](int region, int chunk) {
    if (chunk == 0 && region % 3 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  });
}

/// A region of one chunk, such as the head of a tiny model, runs on the caller and wakes no worker.
TEST(ThreadPool, OneChunkStaysWithTheCaller) {
  ThreadPool pool(4);
  const auto caller = std::this_thread::get_id();
  pool.parallel(1, [&](int, int thread) {
    EXPECT_EQ(thread, 0);
    EXPECT_EQ(std::this_thread::get_id(), caller);
  });
}

}  // namespace
}  // namespace speclab::thread_pool_test
