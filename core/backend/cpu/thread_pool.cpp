#include "core/backend/cpu/thread_pool.h"

#include <immintrin.h>
#include <pthread.h>
#include <sched.h>

#include "core/backend/cpu/cpu_topology.h"

namespace speclab::cpu {
namespace {

// Spinning answers within a fraction of a microsecond; after about this many pauses (some 50 microseconds) the core is
// worth more to somebody else.
constexpr int kSpins = 2000;

void pin(pthread_t thread, int processor) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(processor, &set);
  pthread_setaffinity_np(thread, sizeof(set), &set);
}

}  // namespace

ThreadPool::ThreadPool(int threads) {
  const std::vector<int> processors = allowed_processors();
  for (int i = 1; i < threads; ++i) {
    workers_.emplace_back([this, i] { work(i); });
    // The caller stays where the scheduler puts it; with as many threads as processors the workers leave it the first.
    if (threads <= static_cast<int>(processors.size())) pin(workers_.back().native_handle(), processors[static_cast<std::size_t>(i)]);
  }
}

ThreadPool::~ThreadPool() {
  stop_.store(true);
  epoch_.fetch_add(1);
  epoch_.notify_all();
  for (auto& worker : workers_) worker.join();
}

void ThreadPool::run(int chunks, Call call, const void* context) {
  region_ = {call, context, chunks};
  const std::uint32_t epoch = epoch_.load(std::memory_order_relaxed) + 1;
  next_.store(std::uint64_t{epoch} << 32, std::memory_order_relaxed);
  busy_.store(static_cast<int>(workers_.size()), std::memory_order_relaxed);
  epoch_.store(epoch, std::memory_order_release);
  epoch_.notify_all();
  drain(0, epoch);
  for (int spin = 0; busy_.load(std::memory_order_acquire) != 0; ++spin) {
    if (spin < kSpins) _mm_pause();
    else sched_yield();
  }
}

void ThreadPool::drain(int thread, std::uint32_t epoch) {
  const Region region = region_;
  while (true) {
    const std::uint64_t ticket = next_.fetch_add(1, std::memory_order_relaxed);
    const auto chunk = static_cast<int>(ticket & 0xffffffffu);
    if (static_cast<std::uint32_t>(ticket >> 32) != epoch || chunk >= region.chunks) return;
    region.call(region.context, chunk, thread);
  }
}

void ThreadPool::work(int thread) {
  std::uint32_t seen = 0;
  while (true) {
    std::uint32_t epoch = epoch_.load(std::memory_order_acquire);
    for (int spin = 0; epoch == seen; ++spin) {
      if (spin < kSpins) _mm_pause();
      else epoch_.wait(seen, std::memory_order_acquire);
      epoch = epoch_.load(std::memory_order_acquire);
    }
    if (stop_.load()) return;
    seen = epoch;
    drain(thread, epoch);
    busy_.fetch_sub(1, std::memory_order_acq_rel);
  }
}

}  // namespace speclab::cpu
