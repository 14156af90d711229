#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "experiments/metrics/run_data.h"

/// Compares what a case emitted with the bounds of its drafts.
namespace speclab {

/// The bound of one step and what the step reached.
struct StepAgainstBound {
  std::size_t prompt = 0;  ///< index into CaseData::prompts
  double reached = 0, bound = 0;
};

/// The tokens of each step and their bound. Chains: the optimum over all verifiers that use p and q on
/// the path alone. Trees: 1 + the sum of the optima of the positions (nodes with their drafted children) that
/// the step visited. A rule that decides one position after the other cannot exceed the bound of trees on
/// average. A rule over whole paths may exceed it, so the result for such a rule is empty if a draft is a
/// tree. The result is also empty if the record has no bounds, or none for some position of a tree.
std::vector<StepAgainstBound> tokens_against_bound(const CaseData& data);
/// The tokens of each step of a rule that keeps paths with the probability rho
/// (AcceptanceRule::keeps_paths_by_rho). `bound` is the number of tokens that such a rule is expected to emit
/// for the draft of the step. A case cannot exceed this number on average, neither on chains nor on trees.
/// Empty for other rules, and if the record has no bounds.
std::vector<StepAgainstBound> tokens_against_expectation(const CaseData& data);
/// For steps with a draft: whether a drafted token was emitted (1 or 0), and the optimum of the first
/// position. No lossless rule can exceed this optimum on average. Empty if the optimum of some step is not
/// known.
std::vector<StepAgainstBound> first_tokens_against_bound(const CaseData& data);

/// The mean of reached - bound. `bound` may also be the expected value of `reached`. For a lossless rule,
/// the expected difference of a step, given the steps before it, is at most 0. If it is 0, the differences of
/// the steps are uncorrelated, so the standard error needs no model of the text.
struct Excess {
  double mean = 0, standard_error = 0;
  double deviations() const { return standard_error > 0 ? mean / standard_error : 0; }
};
std::optional<Excess> excess_over_bound(const std::vector<StepAgainstBound>& steps);

/// A mean excess of this many standard errors is not chance: a rule that reaches its bound exactly would show
/// it in one case of 30,000. (The 95 % interval of such a rule lies above 0 in one case of 40, and runs have
/// many cases.)
inline constexpr double kWrongDeviations = 4;

/// Null unless the case's rule is wrong: it claims to be lossless and emits more than any lossless rule can,
/// or it keeps paths with the probability rho and emits more than such a rule is expected to emit. The result
/// is then {"what": "tokens per step" | "expected tokens" | "first token", "measured", "bound",
/// "deviations"}. If "what" is "tokens per step" or "first token", the emitted tokens do not follow the
/// target's law. If it is "expected tokens", the rule does not keep paths with the probability rho.
nlohmann::json above_bound(const CaseData& data);

/// One line for each case of a summary whose rule is wrong; empty if there is none.
std::string wrong_rules_text(const nlohmann::json& summary);

}  // namespace speclab
