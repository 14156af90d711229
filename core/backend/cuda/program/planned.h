#pragma once

#include <memory>

#include "core/backend/cuda/program/plan_kernel.h"
#include "core/backend/cuda/kernels/sampling_kernel.h"
#include "core/backend/cuda/kernels/siblings_kernel.h"
#include "core/backend/plan.h"

// Allocates the memory of planned rounds (core/backend/plan.h), and makes the arguments of the kernels that a
// round launches.

namespace speclab::cuda {

/// `ring` holds kPlanRing PlanRounds, in memory that both host and device can access.
std::shared_ptr<Plan> make_plan(Backend& backend, const PlanShape& shape, std::shared_ptr<void> ring);
void start_plan(Backend& backend, Plan& plan, const PlanStart& start);

LayRows draft_rows_of(const Plan& plan, int depth);
Standardise draft_laws_of(const Plan& plan, int depth);
Sample draft_token_of(const Plan& plan,
                      int depth);  ///< only if the depth has one node; otherwise use draft_tokens_of()
Siblings draft_tokens_of(const Plan& plan, int depth);
LayRows target_rows_of(const Plan& plan);
Standardise target_laws_of(const Plan& plan);
/// True if the rule looks at the target's rows at temperature 1 although the text is greedy. raw_laws_of()
/// makes the arguments of the kernel that computes the laws of these rows.
bool looks_at_raw(const PlanShape& shape);
Standardise raw_laws_of(const Plan& plan);
Accept accept_of(const Plan& plan);
MoveAccepted move_of(const Plan& plan, const KvStore& cache, int capacity);
Settle settle_of(const Plan& plan);
Continue continue_of(const Plan& plan, simt::u64 conditional);
Stamp stamp_of(const Plan& plan, int which);

}  // namespace speclab::cuda
