#include "core/base/thread_pool.h"

#include <fcntl.h>
#include <immintrin.h>
#include <pthread.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <system_error>
#include <utility>

#include "core/base/cpu_topology.h"
#include "core/base/error.h"

namespace speclab {
namespace {

// A spinning worker responds within a fraction of a microsecond. After this many PAUSE instructions (about 50
// microseconds) the worker stops spinning and sleeps, which frees the core for other processes.
constexpr int kSpins = 2000;
constexpr int kMostChunks = 0xffff;

// A worker that loses its processor in the middle of a chunk makes all threads wait for milliseconds. When
// this happens, another process wants the processor. The worker then pauses and leaves the chunks to the
// other workers. If the worker soon loses its processor again, its next pause is longer.
//
// A wait of at least kLongWait starts a pause. A worker that spent less time than this on a region does not
// ask the kernel how long it waited.
constexpr auto kLongWait = std::chrono::microseconds(500);
constexpr auto kShortestBreak = std::chrono::milliseconds(10), kLongestBreak = std::chrono::milliseconds(160);

/// Reads from the kernel how long this thread has waited for a processor since the last call.
class Waiting {
 public:
  Waiting() : file_(open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC)) {}
  ~Waiting() {
    if (file_ >= 0) close(file_);
  }
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;

  std::chrono::nanoseconds since_last() {
    char text[64] = {};
    long long ran = 0, waited = last_;
    if (file_ < 0 || pread(file_, text, sizeof(text) - 1, 0) <= 0 ||
        std::sscanf(text, "%lld %lld", &ran, &waited) != 2)
      return {};
    return std::chrono::nanoseconds(waited - std::exchange(last_, waited));
  }

 private:
  int file_;
  long long last_ = 0;
};

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
    try {
      workers_.emplace_back([this, i] { work(i); });
    } catch (const std::system_error& error) {
      stop();
      throw Error(
          {.what = fmt::format("thread {} of {}", i + 1, threads),
           .got = error.code().message(),
           .expected = "one more thread",
           .advice =
               "Ask for fewer with --threads, or raise the limits of the shell (ulimit -u, ulimit -v)."});
    }
    // The calling thread is not pinned. If there is a processor for every thread, each worker gets its own,
    // and the first processor is left to the calling thread. Otherwise no worker is pinned.
    if (threads <= static_cast<int>(processors.size()))
      pin(workers_.back().native_handle(), processors[static_cast<std::size_t>(i)]);
  }
}

ThreadPool::~ThreadPool() { stop(); }

void ThreadPool::stop() {
  {
    const std::scoped_lock lock(break_mutex_);
    stop_.store(true);
  }
  break_over_.notify_all();
  epoch_.fetch_add(1);
  epoch_.notify_all();
  for (auto& worker : workers_) worker.join();
}

void ThreadPool::run(int chunks, Call call, const void* context) {
  SPECLAB_CHECK(chunks <= kMostChunks, "{} chunks", chunks);
  region_ = {call, context};
  done_.store(0, std::memory_order_relaxed);
  const std::uint32_t epoch = epoch_.load(std::memory_order_relaxed) + 1;
  ticket_.store(std::uint64_t{epoch} << 32 | static_cast<std::uint64_t>(chunks) << 16,
                std::memory_order_release);
  epoch_.store(epoch, std::memory_order_release);
  epoch_.notify_all();
  drain(0);
  for (int spin = 0; done_.load(std::memory_order_acquire) != chunks; ++spin) {
    if (spin < kSpins) _mm_pause();
    else sched_yield();
  }
}

// A worker that wakes late finds no chunk, or a chunk of a later region, which it may run. A region does not
// end while a thread holds one of its chunks, so region_ is valid whenever it is read.
void ThreadPool::drain(int thread) {
  std::uint64_t ticket = ticket_.load(std::memory_order_acquire);
  while (true) {
    const auto chunk = static_cast<int>(ticket & 0xffff), chunks = static_cast<int>(ticket >> 16 & 0xffff);
    if (chunk >= chunks) return;
    if (!ticket_.compare_exchange_weak(ticket, ticket + 1, std::memory_order_acq_rel,
                                       std::memory_order_acquire))
      continue;
    region_.call(region_.context, chunk, thread);
    done_.fetch_add(1, std::memory_order_release);
    ticket = ticket_.load(std::memory_order_acquire);
  }
}

void ThreadPool::work(int thread) {
  using Clock = std::chrono::steady_clock;
  Waiting waiting;
  auto pause = kShortestBreak;
  Clock::time_point back{};  // end of the last pause
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
    const auto begin = Clock::now();
    drain(thread);
    const auto end = Clock::now();
    if (end - begin < kLongWait || waiting.since_last() < kLongWait) continue;
    pause = end - back < 2 * pause ? std::min(2 * pause, kLongestBreak) : kShortestBreak;
    std::unique_lock lock(break_mutex_);
    break_over_.wait_for(lock, pause, [this] { return stop_.load(); });
    waiting.since_last();
    back = Clock::now();
  }
}

}  // namespace speclab
