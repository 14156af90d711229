#include "core/backend/cuda/program/cuda_program.h"

#include "core/backend/cuda/kernels/accept/start_accept.h"
#include "core/backend/cuda/program/planned.h"

namespace speclab::cuda {

std::shared_ptr<Plan> CudaProgram::make_plan(const PlanShape& shape) {
  // Launches the operations that are held back (Launcher::start()), as CudaBackend::allocate() does. They may
  // use memory that the caller is about to release.
  backend_.submit();
  return cuda::make_plan(backend_, shape, device_.allocate_shared(kPlanRing * sizeof(PlanRound)));
}

void CudaProgram::start(Plan& plan, const PlanStart& start) { start_plan(backend_, plan, start); }

void CudaProgram::draft_rows(Plan& plan, int depth) {
  launcher_.start("lay_rows", draft_rows_of(plan, depth));
}

void CudaProgram::draw(Plan& plan, int depth) {
  const auto start = [&](const char* kernel, const auto& arguments) { launcher_.start(kernel, arguments); };
  start_laws(draft_laws_of(plan, depth), start);
  if (plan.shape.level_begin(depth + 1) - plan.shape.level_begin(depth) == 1)
    launcher_.start("sample", draft_token_of(plan, depth));
  else launcher_.start("siblings", draft_tokens_of(plan, depth));
}

void CudaProgram::target_rows(Plan& plan) {
  // If launches are gathered into persistent kernels, the draft's forwards become one launch, and the
  // target's forward is not part of it.
  launcher_.submit();
  launcher_.start("lay_rows", target_rows_of(plan));
}

// The launcher cannot hold most of these kernels back to batch them (Launcher::start()). Before it starts one
// of them, it launches all operations that it has held back.
void CudaProgram::settle(Plan& plan) {
  const auto start = [&](const char* kernel, const auto& arguments) { launcher_.start(kernel, arguments); };
  start_laws(target_laws_of(plan), start);
  if (looks_at_raw(plan.shape)) start_laws(raw_laws_of(plan), start);
  start_accept(accept_of(plan), start);
  if (!plan.shape.is_chain()) {
    if (plan.target_cache.data)
      launcher_.start("move_accepted", move_of(plan, plan.target_cache, plan.shape.target_capacity));
    if (plan.draft_cache.data)
      launcher_.start("move_accepted", move_of(plan, plan.draft_cache, plan.shape.draft_capacity));
  }
  launcher_.start("settle", settle_of(plan));
}

void CudaProgram::stamp(Plan& plan, int which) { launcher_.start("stamp", stamp_of(plan, which)); }

void CudaProgram::repeat(Plan& plan) {
  launcher_.start("continue_loop", continue_of(plan, launcher_.loop_condition()));
}

std::shared_ptr<Graph> CudaProgram::record(bool loop, const std::function<void()>& operations) {
  return launcher_.record(loop, memory_(), operations);
}

std::string CudaProgram::loop_problem() {
  if (!loop_problem_) loop_problem_ = device_.loop_problem(launcher_.gathers());
  return *loop_problem_;
}

void CudaProgram::replay(const Graph& graph) { launcher_.replay(graph); }

}  // namespace speclab::cuda
