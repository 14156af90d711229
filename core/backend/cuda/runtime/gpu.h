#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

// The CUDA runtime behind plain types: memory, copies and waiting. Kernels are started by launch.h.

namespace speclab::cuda {

/// Why this program can use no GPU on this machine: "no CUDA driver: ...", "no GPU: ...", "built without
/// nvcc". "": it can.
std::string gpu_absent();

/// "0000:65:00.0" of a GPU that a Gpu can be made of.
std::string gpu_bus_id(int ordinal);
/// Memory of such a GPU that nobody has now, other processes included.
std::size_t gpu_free_bytes(int ordinal);

/// One GPU with a stream of its own. Failures of the runtime throw Error with the call, its size, the device
/// and (they may come late) the kernel that was started last.
class Gpu {
 public:
  /// Throws Error when there is no such GPU or it cannot be used.
  explicit Gpu(int ordinal);
  ~Gpu();
  Gpu(const Gpu&) = delete;
  Gpu& operator=(const Gpu&) = delete;

  int ordinal() const { return ordinal_; }
  const std::string& name() const { return name_; }
  int architecture() const { return architecture_; }  ///< 80, 90, ...
  void* stream() const { return stream_; }            ///< cudaStream_t
  /// Of the kernel that has just been started; a string that stays.
  void started(const char* kernel) { kernel_ = kernel; }

  /// Throws Error with what is free and what the device has when there is not enough. Freed when the pointer
  /// goes.
  std::shared_ptr<void> allocate(std::size_t bytes);
  /// Memory of the host that kernels read and write at the same address.
  std::shared_ptr<void> allocate_shared(std::size_t bytes);
  /// From here on launches into the stream are recorded. loop: as the body of a loop that the device repeats;
  /// then its condition, for simt::set_conditional, else 0. It is 1 when a replay begins.
  std::uint64_t begin_capture(bool loop);
  /// What was recorded, to be replayed; destroying it waits for the stream. Throws Error when it is not a row
  /// of `kernels` launches, each behind the one before it.
  std::shared_ptr<void> end_capture(std::size_t kernels);
  void drop_capture();
  void replay(void* graph);
  /// True when the stream has nothing left to do. Throws Error when something in it has failed.
  bool idle() const;
  /// In the order of the stream; returns when the host may use its memory again. Up to kStaged bytes without
  /// waiting for the device (unless a megabyte of earlier uploads is still under way).
  void upload(const void* host, std::size_t bytes, void* to);
  /// Outside of the order of the stream, also while launches are recorded; waits until the data are there.
  void upload_beside(const void* host, std::size_t bytes, void* to);
  static constexpr std::size_t kStaged = std::size_t{512} << 10;
  /// After everything before it in the stream; returns when the host has the data. In pieces through pinned
  /// memory (staging.h): what the host's memory is does not matter.
  void download(const void* from, std::size_t bytes, void* host);
  /// In the order of the stream, without waiting.
  void copy(const void* from, std::size_t bytes, void* to);

 private:
  void check(int status, const char* call, std::size_t bytes) const;
  std::string name_;
  int ordinal_, architecture_ = 0;
  void* stream_ = nullptr;
  const char* kernel_ = "";
  // Two halves of pinned memory, used in turn; each has an event behind its last copy.
  char* pinned_ = nullptr;
  void* copied_[2] = {};
  bool pending_[2] = {};
  int half_ = 0;
  std::size_t used_ = 0;
  // Two pieces of pinned memory for downloads, with events too.
  char* fetched_ = nullptr;
  void* arrived_[2] = {};
  void* captured_ = nullptr;  // the graph that is being recorded, when that is a loop around the capture
};

/// Time that passes on a GPU between two points of its stream.
class GpuTimer {
 public:
  explicit GpuTimer(const Gpu& gpu);
  ~GpuTimer();
  GpuTimer(const GpuTimer&) = delete;
  GpuTimer& operator=(const GpuTimer&) = delete;
  void begin();
  /// Seconds since begin(); waits until the stream has come here.
  double end();

 private:
  void* stream_;
  void* events_[2] = {};
};

/// Bytes per second that a GPU moves when it copies a gigabyte of its memory, those that it reads and those
/// that it writes counted: the best of several copies.
double gpu_copy_bandwidth(int ordinal);

}  // namespace speclab::cuda
