#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "experiments/metrics/run_data.h"

namespace speclab {

/// Relates the acceptance of drafted tokens to the entropy of the target's rows that judge them. A low
/// entropy means that the target is sure of its next token. Tokens below the median entropy of a case are
/// called easy. For each category of prompts, the result says how many tokens are easy.
///
/// A sample is a tested drafted token of a chain, in repeat 0. In a trace (a case with "emit_at_most": 1)
/// only the first drafted token of each step is a sample, so that each position of a text counts once. The
/// entropy of a sample is the entropy of the row that judges it (GenerationRecord::row_entropies).
///
/// Returns null if the record has no entropies ("row_details" of the config), if a draft branches, if a step
/// feeds probes, or if no drafted token was tested. Otherwise
///   {"case", "tokens": number of samples, "median": median entropy in nats,
///    "bins": [{"from", "to": ends of the bin in nats, "entropy": mean, "tokens", "acceptance",
///              "acceptance_ci95": [lo, hi] | null (bootstrap over prompts)}],
///    "categories": [{"category", "tokens", "acceptance", "easy_share": share of its tokens that are easy,
///                    "easy": acceptance of these | null, "hard": acceptance of the others | null,
///                    "acceptance_ci95", "easy_ci95", "hard_ci95": [lo, hi] | null,
///                    "bins": [{"tokens", "acceptance" | null}] for the same bins}]}
/// The bins have about equal numbers of samples; samples with the same entropy share a bin. There are `bins`
/// bins, or fewer if the samples have few different entropies. Throws Error if `bins` is below 1.
nlohmann::json acceptance_by_entropy(const CaseData& data, int bins = 8);

/// The tables of acceptance_by_entropy() for people: one row for each bin, then one row for each category.
std::string acceptance_by_entropy_text(const nlohmann::json& acceptance);

}  // namespace speclab
