#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

namespace speclab {

/// A thread that runs one task again and again, each time that start() is called, while the calling thread
/// goes on. The task sees everything that was written before start(), and after wait() the caller sees
/// everything that the task wrote. One thread calls start() and wait(). Neither allocates memory. The thread
/// sleeps between two runs.
class SideThread {
 public:
  /// `task` must not throw. Throws Error when the system cannot start a thread.
  explicit SideThread(std::function<void()> task);
  /// Waits for the end of the task.
  ~SideThread();
  SideThread(const SideThread&) = delete;
  SideThread& operator=(const SideThread&) = delete;

  void start();  ///< runs the task once; wait() must have been called since the last start()
  void wait();   ///< returns when the task is not running

 private:
  void work();

  const std::function<void()> task_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool running_ = false, ends_ = false;  // guarded by mutex_
  std::thread thread_;
};

}  // namespace speclab
