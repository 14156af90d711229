#pragma once

#include "core/backend/cuda/runtime/device.h"
#include "core/backend/cuda/simulator/machine.h"

namespace speclab::cuda {

/// The simulated GPU of backend "host-simt". Launches and copies are finished when the calls return.
class SimulatedDevice : public Device {
 public:
  bool simulated() const override { return true; }
  std::string backend_name() const override { return "host-simt"; }
  std::string numerics_class() const override { return "host-simt"; }
  std::string description() const override;
  PersistentLimits persistent_limits() const override {
    return {.multiprocessors = 3, .resident = 1, .cooperative = true};
  }
  /// Launches never overlap here, but Machine checks the rules for overlapping launches.
  bool overlaps() const override { return true; }
  int most_shared_bytes() const override { return 227 << 10; }  // as on sm_90
  std::unique_ptr<DeviceStatus> make_status() const override;
  std::unique_ptr<DeviceTimer> make_timer() const override;
  Stream stream() const override {
    require_answer();
    return {.machine = machine_.get()};
  }
  void started(const char* /*kernel*/) override {}
  void explain_failures(std::function<void()> /*explain*/) override {}  // run_on_machine() explains them
  bool idle() const override {
    require_answer();
    return true;
  }
  std::shared_ptr<void> allocate(std::size_t bytes) override;
  std::shared_ptr<void> allocate_shared(std::size_t bytes) override { return allocate(bytes); }
  void upload(const void* host, std::size_t bytes, void* to) override { copy(host, bytes, to); }
  void upload_beside(const void* host, std::size_t bytes, void* to) override { copy(host, bytes, to); }
  void download(const void* from, std::size_t bytes, void* host) override { copy(from, bytes, host); }
  void copy(const void* from, std::size_t bytes, void* to) override;
  std::uint64_t begin_capture(bool loop) override;
  std::shared_ptr<void> end_capture(std::size_t kernels) override;
  void drop_capture() override { capture_.reset(); }
  /// Simulates a driver without loops if the environment variable SPECLAB_SIMT_NO_LOOPS is set.
  std::string loop_problem(bool cooperative) const override;
  void replay(void* captured) override;
  std::vector<std::function<void()>>* captured_launches() override {
    return capture_ ? &capture_->launches : nullptr;
  }

 private:
  struct Capture {
    std::vector<std::function<void()>> launches;
    std::uint64_t condition = 0;  ///< handle of the condition of a loop; 0: no loop
  };
  std::shared_ptr<simt::Machine> machine_ = std::make_shared<simt::Machine>();
  std::shared_ptr<Capture> capture_;  ///< the capture in progress; null if there is none
};

}  // namespace speclab::cuda
