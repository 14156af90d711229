#pragma once

#include "core/backend/cuda/runtime/cuda_backend.h"
#include "core/backend/cuda_kernels.h"
#include "core/backend/device_program.h"

// A (simulated) device that never writes the result of a step that it runs by itself.

namespace speclab::planned_loop_test {

/// Runs everything but the kernel that writes the result of a step.
class SilentProgram final : public DeviceProgram {
 public:
  explicit SilentProgram(Backend& backend, DeviceProgram& real) : backend_(backend), real_(real) {}
  std::shared_ptr<Plan> make_plan(const PlanShape& shape) override { return real_.make_plan(shape); }
  void start(Plan& plan, const PlanStart& start) override { real_.start(plan, start); }
  void draft_rows(Plan& plan, int depth) override { real_.draft_rows(plan, depth); }
  void draw(Plan& plan, int depth) override { real_.draw(plan, depth); }
  void target_rows(Plan& plan) override { real_.target_rows(plan); }
  void settle(Plan&) override { backend_.submit(); }
  void stamp(Plan& plan, int which) override { real_.stamp(plan, which); }
  void repeat(Plan& plan) override { real_.repeat(plan); }
  std::shared_ptr<Graph> record(bool loop, const std::function<void()>& operations) override {
    return real_.record(loop, operations);
  }
  std::string loop_problem() override { return real_.loop_problem(); }
  void replay(const Graph& graph) override { real_.replay(graph); }

 private:
  Backend& backend_;
  DeviceProgram& real_;
};

class SilentBackend final : public cuda::CudaBackend {
 public:
  explicit SilentBackend(bool busy)
      : CudaBackend({.simulated = true}, CudaKernels::kLaunches),
        program_(*this, *CudaBackend::device_program()),
        busy_(busy) {}
  DeviceProgram* device_program() override { return &program_; }
  bool idle() override { return CudaBackend::idle() && !busy_; }

 private:
  SilentProgram program_;
  bool busy_;
};

}  // namespace speclab::planned_loop_test
