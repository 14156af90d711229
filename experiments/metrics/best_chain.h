#pragma once

#include <memory>
#include <span>

#include "experiments/metrics/run_data.h"

namespace speclab {

/// Sets CaseData::branches of every case: true if its drafts branch and have no probes. For each such case of
/// trees, then sets CaseData::best_chain to the comparable case of chains that has the largest speedup over
/// the prompts of the run. A case of chains is comparable with a case of trees if
/// - both have the same reference, so the same target, sampling and length of the texts,
/// - the trees also use each draft model and each source of the chains, and both or neither use a model,
/// - both rules are lossless, or both have the same rule with the same options.
/// The chain is chosen on the prompts on which it is compared. With many chains this favours the chain a
/// little. Left out are chains that failed their promise or whose reference failed its own, and chains with
/// steps divided over devices.
void find_best_chains(std::span<const std::shared_ptr<CaseData>> cases);

}  // namespace speclab
