#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "core/backend/cuda/runtime/device.h"

// A GPU, as a Device: its memory, copies, captures and waiting. The header hides the types of the CUDA
// runtime. Kernels are started by core/backend/cuda/launch/launch.h.

namespace speclab::cuda {

/// Why this program cannot use a GPU on this machine, for example "no CUDA driver: ...", "no GPU: ..." or
/// that it was built without nvcc. "" if it can.
std::string gpu_absent();

/// The PCI address of a GPU, like "0000:65:00.0". Throws Error if there is no such GPU.
std::string gpu_bus_id(int ordinal);
/// Free memory of a GPU in bytes. Throws Error if there is no such GPU. The current device stays current.
std::size_t gpu_free_bytes(int ordinal);

/// One GPU with a stream of its own. Failures of the runtime throw Error with the call, its size, the device
/// and the last started kernel, because a later call may report the failure of a kernel. The runtime has a
/// current device for each thread of the host. Calls that depend on it make this GPU current first, so
/// several Gpu objects and several threads do not disturb each other.
class Gpu final : public Device {
 public:
  /// Throws Error if there is no such GPU or it cannot be used.
  explicit Gpu(int ordinal);
  ~Gpu() override;
  Gpu(const Gpu&) = delete;
  Gpu& operator=(const Gpu&) = delete;

  int ordinal() const { return ordinal_; }
  const std::string& name() const { return name_; }
  int architecture() const { return architecture_; }  ///< 80, 90, ...

  bool simulated() const override { return false; }
  std::string backend_name() const override { return "cuda"; }
  std::string numerics_class() const override { return "cuda-sm" + std::to_string(architecture_); }
  std::string description() const override { return name_; }
  PersistentLimits persistent_limits() const override;
  /// True on sm_90 and later, if the program has code for sm_90 or later, and with a driver that records
  /// overlapping launches in graphs (CUDA 12.3 or newer).
  bool overlaps() const override;
  int most_shared_bytes() const override;
  std::unique_ptr<DeviceStatus> make_status() const override;
  std::unique_ptr<DeviceTimer> make_timer() const override;
  /// Makes this GPU current on the calling thread, because launches need that.
  Stream stream() const override {
    require_answer();
    use();
    return {.device = stream_};
  }
  void started(const char* kernel) override { kernel_ = kernel; }
  void explain_failures(std::function<void()> explain) override { explain_ = std::move(explain); }
  void explain() const override {
    if (explain_) explain_();
  }
  bool idle() const override;
  /// Throws Error with the free and the total memory of the device when there is not enough.
  std::shared_ptr<void> allocate(std::size_t bytes) override;
  std::shared_ptr<void> allocate_shared(std::size_t bytes) override;
  /// An upload of up to kStaged bytes waits for the device only if earlier uploads from both halves of the
  /// pinned memory (2 * kStaged bytes) are still in progress. A larger one waits until it is done.
  void upload(const void* host, std::size_t bytes, void* to) override;
  static constexpr std::size_t kStaged = std::size_t{512} << 10;
  void upload_beside(const void* host, std::size_t bytes, void* to) override;
  /// Copies in pieces through pinned memory (staging.h), so it does not matter whether the host's memory is
  /// pinned or pageable.
  void download(const void* from, std::size_t bytes, void* host) override;
  void copy(const void* from, std::size_t bytes, void* to) override;
  std::uint64_t begin_capture(bool loop) override;
  std::shared_ptr<void> end_capture(std::size_t kernels) override;
  void drop_capture() override;
  std::string loop_problem(bool cooperative) const override;
  void replay(void* captured) override;

  /// Makes this GPU the current device of the calling thread.
  void use() const;

 private:
  void check(int status, const char* call, std::size_t bytes) const;
  std::string name_;
  int ordinal_, architecture_ = 0;
  void* stream_ = nullptr;
  const char* kernel_ = "";
  std::function<void()> explain_;
  // For uploads: two halves of pinned memory, used in turn. Each has an event after its last copy.
  char* pinned_ = nullptr;
  void* copied_[2] = {};
  bool pending_[2] = {};
  int half_ = 0;
  std::size_t used_ = 0;
  // For downloads: two pieces of pinned memory, each with an event.
  char* fetched_ = nullptr;
  void* arrived_[2] = {};
  void* captured_ = nullptr;  // the graph with the loop around the capture in progress, if any
};

/// Begins or ends the range of cudaProfilerStart() and cudaProfilerStop(). Waits for the GPU first.
void gpu_profile(int ordinal, bool begin);

/// Bytes read plus bytes written per second while a GPU copies a gigabyte of its memory, the best of several
/// copies.
double gpu_copy_bandwidth(int ordinal);

}  // namespace speclab::cuda
