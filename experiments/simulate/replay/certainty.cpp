#include "experiments/simulate/replay/certainty.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/decoding/registry.h"

namespace speclab {

std::string_view to_string(Certainty certainty) {
  switch (certainty) {
    case Certainty::exact: return "exact";
    case Certainty::expectation: return "expectation";
    case Certainty::fitted: return "fitted";
  }
  return "";
}

std::string_view assumptions_of(Certainty certainty) {
  if (certainty == Certainty::expectation)
    return "Expectation: texts are sampled with independent coins, so the trace and a run have different "
           "texts of the same law. The draft depends on the text alone, and the rule decides at each token "
           "by the rows of that token alone. Then tau of the replay is an unbiased estimate; it differs from "
           "the tau of a run by the chance of both samples.";
  if (certainty == Certainty::fitted)
    return "Fitted: tau comes from a law whose parameters were fitted to measured cases.";
  return "";
}

bool text_follows_steps(const CaseData& data) {
  return data.config.value("loss_class", "") == "L1" && data.options().value("coins", "") != "gumbel";
}

std::string why_not_expected(const AcceptanceRule& rule) {
  if (rule.judges_whole_paths || rule.verify != verify_by_walk)
    return fmt::format("the rule \"{}\" does not judge a draft token by token", rule.name);
  return "";
}

bool draft_follows_steps(const CaseData& data) {
  const StrategyInfo* info = recorded_strategy(data.config.value("strategy", ""));
  return info != nullptr && info->follows_steps;
}

}  // namespace speclab
