#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "experiments/metrics/run_data.h"

namespace speclab {

/// Relates the acceptance of drafted tokens to the entropy of the target's row there. A low entropy means
/// that the target is sure of its next token. Tokens below the median entropy of a case are called easy. Are
/// there easy tokens inside hard tasks?
///
/// A sample is a tested drafted token of a chain, in repeat 0. Of a trace (a case with "emit_at_most": 1)
/// only the first drafted token of each step is taken, so that each position of a text counts once. The
/// entropy is that of the row that judges the token (GenerationRecord::row_entropies).
///
/// Returns null if the record has no entropies ("row_details" of the config), if the drafts branch, or if
/// nothing was drafted. Otherwise
///   {"case", "tokens": number of samples, "median": median entropy in nats,
///    "bins": [{"from", "to": ends of the bin in nats, "entropy": mean, "tokens", "acceptance",
///              "acceptance_ci95": [lo, hi] | null (bootstrap over prompts)}],
///    "categories": [{"category", "tokens", "acceptance", "easy_share": share of its tokens that are easy,
///                    "easy": acceptance of these | null, "hard": acceptance of the others | null,
///                    "easy_ci95", "hard_ci95": [lo, hi] | null,
///                    "bins": [{"tokens", "acceptance" | null}] for the same bins}]}
/// The bins have equal numbers of samples, up to equal entropies. There are `bins` of them, fewer if the
/// samples are few or have few different entropies. Throws Error for bins below 1.
nlohmann::json acceptance_by_entropy(const CaseData& data, int bins = 8);

/// The tables of acceptance_by_entropy() for people: one row for each bin, then one row for each category.
std::string acceptance_by_entropy_text(const nlohmann::json& acceptance);

}  // namespace speclab
