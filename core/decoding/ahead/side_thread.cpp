#include "core/decoding/ahead/side_thread.h"

#include <system_error>
#include <utility>

#include "core/base/error.h"

namespace speclab {

SideThread::SideThread(std::function<void()> task) : task_(std::move(task)) {
  try {
    thread_ = std::thread([this] { work(); });
  } catch (const std::system_error& error) {
    throw Error({.what = "a thread beside the thread of the decode loop",
                 .got = error.code().message(),
                 .expected = "one more thread",
                 .advice = "Raise the limits of the shell (ulimit -u, ulimit -v)."});
  }
}

SideThread::~SideThread() {
  {
    const std::scoped_lock lock(mutex_);
    ends_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void SideThread::start() {
  {
    const std::scoped_lock lock(mutex_);
    SPECLAB_CHECK(!running_, "a task that is started while it runs");
    running_ = true;
  }
  changed_.notify_all();
}

void SideThread::wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return !running_; });
}

void SideThread::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return running_ || ends_; });
    if (!running_) return;
    lock.unlock();
    task_();
    lock.lock();
    running_ = false;
    changed_.notify_all();
  }
}

}  // namespace speclab
