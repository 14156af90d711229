#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "core/decoding/rules/accept.h"

/// The families of acceptance rules, one file each (rules_<family>.cpp), joined by acceptance_rules().
namespace speclab::rules {

std::span<const AcceptanceRule>
ratio();  ///< accept by the ratio p/q: rejection sampling and its lenient forms
std::span<const AcceptanceRule> match();  ///< accept when the target's own token is the drafted one
std::span<const AcceptanceRule>
criterion();  ///< accept when the token meets a condition on the target's row: lossy
std::span<const AcceptanceRule> classical();  ///< textbook rejection sampling, as baselines

// Shared by the families.

/// A sample of p with the coin that autoregressive decoding uses at this position.
Token sample_target(const TargetRow& row, const Coins& coins, std::int64_t position, const RuleOptions&);
Token greedy_target(const TargetRow& row, const Coins& coins, std::int64_t position, const RuleOptions&);
/// L1, or L2 at temperature 0.
LossClass lossless(const RuleOptions&, const SamplingParams& sampling);
/// law = p.
void law_of_target(const TargetRow& row, const Distribution* q, Token one_hot, const RuleOptions&,
                   std::vector<double>& law);
/// The draft's law of the child as doubles: q, or all mass on the token.
void law_of_draft(const TargetRow& row, const Distribution* q, Token one_hot, std::vector<double>& law);

}  // namespace speclab::rules
