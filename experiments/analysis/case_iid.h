#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "experiments/metrics/run_data.h"

/// Tests of the assumption that the closed forms make about acceptance: every tested token is accepted with
/// the same probability, independently.
namespace speclab {

/// Tests these hypotheses on the steps of a case with chains as drafts:
///   "positions": {"p_value"}: alpha is the same at all positions of the draft;
///   "prompts": {"dispersion", "p_value"}: alpha is the same for all prompts;
///   "steps": {"lag1", "lags", "p_value"}: the steps of a prompt are not correlated (Ljung-Box). Tested only
///   if the case has a constant_gamma(), because a schedule by itself correlates steps.
/// A test that cannot be computed from these steps is left out. Null when no test can be computed, and for
/// cases whose steps feed probes.
nlohmann::json iid_tests(const CaseData& data);
/// iid_tests() as one line.
std::string iid_text(const nlohmann::json& tests);

}  // namespace speclab
