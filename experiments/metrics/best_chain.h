#pragma once

#include <memory>
#include <span>

#include "experiments/metrics/run_data.h"

namespace speclab {

/// Sets CaseData::branches of every case. Then sets CaseData::best_chain of every case whose drafts branch:
/// the fastest case of the run that drafts chains from the same draft, by its speedup over the prompts of the
/// run. A chain is comparable with a tree if
/// - both have the same reference, so the same target, sampling and length of the texts,
/// - each draft model and each source of the chain is one of the tree, and both or neither use a draft model,
/// - both rules are lossless, or both have the same rule with the same options.
/// The chain is chosen on the prompts on which it is compared. With many chains this favours the chain a
/// little. Cases that failed their promise, and cases with steps divided over devices, are left out.
void find_best_chains(std::span<const std::shared_ptr<CaseData>> cases);

}  // namespace speclab
