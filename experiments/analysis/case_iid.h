#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "experiments/metrics/run_data.h"

/// Tests of the assumption that the closed forms make about acceptance: every tested token is accepted with
/// the same probability, independently.
namespace speclab {

/// Tests these hypotheses on the steps of a case with chains as drafts:
///   "positions": {"p_value"}: alpha is the same at all positions of the draft;
///   "prompts": {"dispersion", "p_value"}: alpha is the same for all prompts; dispersion is then about 1;
///   "thirds": {"alpha": [3], "p_value"}: alpha is the same in the first, middle and last third of the steps
///   of each prompt (theory::alpha_drift()); "alpha" has one value for each third, over all prompts;
///   "steps": {"lag1", "lags", "p_value"}: the numbers of accepted tokens of a prompt's steps are not
///   correlated (Ljung-Box test over `lags` distances; lag1: correlation of neighbouring steps). Tested only
///   if the case has a constant_gamma(), because a schedule by itself correlates steps.
/// A test that cannot be computed is left out. Null without any test, and for cases that feed probes.
nlohmann::json iid_tests(const CaseData& data);
/// iid_tests() as one line.
std::string iid_text(const nlohmann::json& tests);

}  // namespace speclab
