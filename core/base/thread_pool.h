#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace speclab {

/// A pinned pool for regions of a few microseconds: workers spin for the next region and sleep when none
/// comes. The caller works too and waits for chunks, never for workers: one whose core another process has
/// taken delays the chunk that it holds, or nothing when it holds none, and it then stands back for a while.
/// Which thread runs a chunk never enters a result.
class ThreadPool {
 public:
  /// Throws Error when the system gives no more threads; pinning is best effort.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return static_cast<int>(workers_.size()) + 1; }

  /// Runs body(chunk, thread) for chunk = 0 .. chunks-1 and returns when all are done. `body` must not throw.
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
  Region region_;  ///< written while no chunk is out, read by those that have taken one
  alignas(64) std::atomic<std::uint32_t> epoch_{0};   ///< number of the region; workers wait for a change
  alignas(64) std::atomic<std::uint64_t> ticket_{0};  ///< epoch (32 bits), chunks (16), next chunk (16)
  alignas(64) std::atomic<int> done_{0};              ///< finished chunks of the region
  std::atomic<bool> stop_{false};
  std::mutex break_mutex_;
  std::condition_variable break_over_;  ///< ends the break of a worker that stands back
  std::vector<std::thread> workers_;
};

}  // namespace speclab
