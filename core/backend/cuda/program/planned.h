#pragma once

#include <memory>

#include "core/backend/cuda/program/plan_kernel.h"
#include "core/backend/cuda/kernels/sampling_kernel.h"
#include "core/backend/cuda/kernels/siblings_kernel.h"
#include "core/backend/plan.h"

// The memory of planned rounds, and the kernels of one as arguments for launch().

namespace speclab::cuda {

/// ring: kPlanRing of PlanRound, that the host reads too.
std::shared_ptr<Plan> make_plan(Backend& backend, const PlanShape& shape, std::shared_ptr<void> ring);
void start_plan(Backend& backend, Plan& plan, const PlanStart& start);

LayRows draft_rows_of(const Plan& plan, int depth);
Standardise draft_laws_of(const Plan& plan, int depth);
Sample draft_token_of(const Plan& plan, int depth);  ///< where the depth has one node
Siblings draft_tokens_of(const Plan& plan, int depth);
LayRows target_rows_of(const Plan& plan);
Standardise target_laws_of(const Plan& plan);
/// Whether the rule looks at the target's rows as they are at temperature 1, where the text is greedy; and
/// those rows.
bool looks_at_raw(const PlanShape& shape);
Standardise raw_laws_of(const Plan& plan);
Accept accept_of(const Plan& plan);
MoveAccepted move_of(const Plan& plan, const KvStore& cache, int capacity);
Settle settle_of(const Plan& plan);
Continue continue_of(const Plan& plan, simt::u64 conditional);
Stamp stamp_of(const Plan& plan, int which);

}  // namespace speclab::cuda
