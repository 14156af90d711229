#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/backend/cuda/launch/launch_shape.h"
#include "core/backend/device_timer.h"

// The device that kernels run on, behind one interface: a GPU (gpu.h) or a simulated one
// (core/backend/cuda/simulator/simulated_device.h). No header of the CUDA runtime is needed to use it.

namespace speclab {
class DeviceStatus;
}

namespace speclab::cuda {

/// Limits of a device for cooperative launches of PersistentKernel
/// (core/backend/cuda/program/persistent_kernel.h).
struct PersistentLimits {
  int multiprocessors = 0;
  int resident = 0;          ///< blocks that fit on a multiprocessor at once
  bool cooperative = false;  ///< all blocks of a launch may wait for each other
};

/// A device with one stream: launches and copies run in the order in which they are queued. Failures throw
/// Error.
class Device {
 public:
  virtual ~Device() = default;

  virtual bool simulated() const = 0;
  virtual std::string backend_name() const = 0;    ///< "cuda" or "host-simt"
  virtual std::string numerics_class() const = 0;  ///< "cuda-sm90", ..., or "host-simt"
  virtual std::string description() const = 0;     ///< "NVIDIA H100 80GB HBM3"
  virtual PersistentLimits persistent_limits() const = 0;
  /// True if launches with Stream::overlap may start while the one before them ends.
  virtual bool overlaps() const = 0;
  /// The most shared memory that a block of a launch may have.
  virtual int most_shared_bytes() const = 0;
  /// Null if nothing is known about the state of the device.
  virtual std::unique_ptr<DeviceStatus> make_status() const = 0;
  /// A timer of the device's stream. Kernels that a Launcher holds back (launcher.h) are not in the stream
  /// yet.
  virtual std::unique_ptr<DeviceTimer> make_timer() const = 0;

  /// The stream in which launch() (core/backend/cuda/launch/launch.h) starts kernels.
  virtual Stream stream() const = 0;
  /// Notes the kernel that is about to start, for error messages. `kernel` must stay valid.
  virtual void started(const char* kernel) = 0;
  /// Makes the device call `explain` when a launch has failed, before the error of the runtime is thrown.
  /// `explain` may throw an Error that says more.
  virtual void explain_failures(std::function<void()> explain) = 0;
  /// Calls the function of explain_failures(). Call explain() when a launch reports a failure of the
  /// device.
  virtual void explain() const {}
  /// True when the stream is empty. Throws Error when something in it has failed.
  virtual bool idle() const = 0;
  /// Call it when the device does not answer any more. Everything that queues work, waits or allocates then
  /// throws Error, timers and captures included. Destructors do not wait for the stream and do not free
  /// memory of the device, because freeing waits, too.
  void give_up() { *given_up_ = true; }
  /// Throws Error when the device was given up.
  void require_answer() const;
  /// For objects that outlive the device, and for destructors: they must not wait for a device that was given
  /// up.
  using GivenUp = std::shared_ptr<const std::atomic<bool>>;
  GivenUp given_up() const { return given_up_; }

  /// Memory of the device; it is freed with the last pointer. Throws Error when there is not enough.
  virtual std::shared_ptr<void> allocate(std::size_t bytes) = 0;
  /// Memory of the host that kernels read and write at the same address.
  virtual std::shared_ptr<void> allocate_shared(std::size_t bytes) = 0;
  /// Copies in the order of the stream; the host may reuse its memory when this returns.
  virtual void upload(const void* host, std::size_t bytes, void* to) = 0;
  /// Copies outside of the order of the stream, also during a capture. Waits until the data have arrived.
  virtual void upload_beside(const void* host, std::size_t bytes, void* to) = 0;
  /// Copies in the order of the stream. Waits until the host has the data.
  virtual void download(const void* from, std::size_t bytes, void* host) = 0;
  /// Copies within the device in the order of the stream, without waiting.
  virtual void copy(const void* from, std::size_t bytes, void* to) = 0;

  /// Starts a capture: launches are recorded instead of run. If `loop` is true, they become the body of a
  /// loop that the device repeats. Returns the handle of the loop's condition for simt::set_conditional(), or
  /// 0 without a loop. The condition is 1 when a replay starts.
  virtual std::uint64_t begin_capture(bool loop) = 0;
  /// Ends the capture and returns the recorded launches. Destroying the result waits for the stream. Throws
  /// Error unless the recording is a chain of `kernels` launches.
  virtual std::shared_ptr<void> end_capture(std::size_t kernels) = 0;
  virtual void drop_capture() = 0;
  /// Why the device cannot run a capture that is a loop; "" if it can. Finds out by running a tiny loop.
  /// `cooperative`: the loop holds cooperative launches. Queued work is not disturbed.
  virtual std::string loop_problem(bool cooperative) const = 0;
  /// Queues what end_capture() returned.
  virtual void replay(void* captured) = 0;
  /// During a capture, a device that cannot capture by itself returns a list, to which the caller adds
  /// launches instead of starting them. Otherwise null.
  virtual std::vector<std::function<void()>>* captured_launches() { return nullptr; }

 private:
  std::shared_ptr<std::atomic<bool>> given_up_ = std::make_shared<std::atomic<bool>>(false);
};

/// A simulated GPU. Throws Error in a program that was built without the simulator.
std::unique_ptr<Device> make_simulated_device();

}  // namespace speclab::cuda
