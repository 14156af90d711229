#pragma once

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "core/backend/cuda/launch/launcher.h"
#include "core/backend/device_program.h"

namespace speclab::cuda {

/// Device programs of the CUDA backend and of the simulated GPU: each call queues the kernels of one part of
/// a round (a decoding step).
class CudaProgram final : public DeviceProgram {
 public:
  /// Buffers that operations of the backend use without calling Backend::room(). During a recording, room()
  /// makes the graph keep each buffer; record() does that for these buffers.
  using Memory = std::array<std::shared_ptr<void>, 4>;
  /// `backend`, `device` and `launcher` must outlive this object.
  CudaProgram(Backend& backend, Device& device, Launcher& launcher, std::function<Memory()> memory)
      : backend_(backend), device_(device), launcher_(launcher), memory_(std::move(memory)) {}

  std::shared_ptr<Plan> make_plan(const PlanShape& shape) override;
  void start(Plan& plan, const PlanStart& start) override;
  void draft_rows(Plan& plan, int depth) override;
  void draw(Plan& plan, int depth) override;
  void target_rows(Plan& plan) override;
  void settle(Plan& plan) override;
  void stamp(Plan& plan, int which) override;
  void repeat(Plan& plan) override;
  std::shared_ptr<Graph> record(bool loop, const std::function<void()>& operations) override;
  std::string loop_problem() override;
  void replay(const Graph& graph) override;
  bool records_forwards() const override { return launcher_.records_forwards(); }

 private:
  Backend& backend_;
  Device& device_;
  Launcher& launcher_;
  std::function<Memory()> memory_;
  std::optional<std::string> loop_problem_;  // absent: not tried yet
};

}  // namespace speclab::cuda
