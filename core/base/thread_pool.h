#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace speclab {

/// A pool of threads for parallel regions of a few microseconds. Its workers are pinned if there is a
/// processor for every thread. A region is divided into chunks of work, and each thread takes one chunk after
/// the other. Workers spin while they wait for the next region, and sleep when none comes. The calling thread
/// runs chunks too. It waits until all chunks are done, but not for workers that have no chunk. So a worker
/// that loses its core to another process delays a region only if it holds one of the chunks. A worker that
/// lost its core in the middle of a chunk pauses for a while afterwards. Results do not depend on which
/// thread runs a chunk.
class ThreadPool {
 public:
  /// Throws Error when the system cannot start so many threads. Failing to pin a thread is no error.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return static_cast<int>(workers_.size()) + 1; }

  /// Runs body(chunk, thread) for each chunk in [0, chunks), at most 65,535 chunks. Returns when all are
  /// done. `body` must not throw.
  template <typename Body>
  void parallel(int chunks, const Body& body) {
    if (chunks <= 1 || workers_.empty()) {
      for (int chunk = 0; chunk < chunks; ++chunk) body(chunk, 0);
      return;
    }
    run(
        chunks,
        [](const void* context, int chunk, int thread) {
          (*static_cast<const Body*>(context))(chunk, thread);
        },
        &body);
  }

 private:
  using Call = void (*)(const void* context, int chunk, int thread);
  void run(int chunks, Call call, const void* context);
  void work(int thread);
  void stop();
  void drain(int thread);

  struct Region {
    Call call = nullptr;
    const void* context = nullptr;
  };
  Region region_;  ///< written while no chunk is running; read by threads that have taken a chunk
  alignas(64) std::atomic<std::uint32_t> epoch_{0};   ///< number of the region; workers wait for a change
  alignas(64) std::atomic<std::uint64_t> ticket_{0};  ///< epoch (32 bits), chunks (16), next chunk (16)
  alignas(64) std::atomic<int> done_{0};              ///< finished chunks of the region
  std::atomic<bool> stop_{false};
  std::mutex break_mutex_;
  std::condition_variable break_over_;  ///< ends the pause of a worker
  std::vector<std::thread> workers_;
};

}  // namespace speclab
