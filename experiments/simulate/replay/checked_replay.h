#pragma once

#include <cstddef>
#include <functional>
#include <initializer_list>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/theory/explain.h"
#include "experiments/simulate/replay/certainty.h"
#include "experiments/simulate/replay/laws/fitted_law.h"
#include "experiments/simulate/replay/rank_trace.h"
#include "experiments/simulate/trace.h"

namespace speclab {

/// What a measured case can be predicted from. All of it must live as long as the predictions.
struct ReplaySources {
  std::span<const Trace> traces = {};
  std::span<const RankTrace> rank_traces = {};
  std::span<const FittedLaw> laws = {};
};

/// What a replay predicts for a set of texts.
struct PredictedSteps {
  double steps = 0;
  double tau = 0;
  std::optional<double> step_ns = {};  ///< mean time of a step; absent without calibrated costs
  double t_ar = 0;                     ///< time of an autoregressive step by the same costs; 0 without costs
};

/// The replay of a measured case.
struct CheckedReplay {
  Certainty certainty = Certainty::exact;
  /// Indices of the trace's texts, by prompt; empty for a law.
  std::map<std::string, std::vector<std::size_t>> texts = {};
  /// Predicts the steps of these texts. A law predicts a mean step, whatever the texts: `steps` is then 1.
  std::function<PredictedSteps(std::span<const std::size_t> texts)> predict = {};
};

/// Whether two cases have the same strategy, draft, rule and options, apart from the length of drafts, the
/// schedule, the budget, "emit_at_most" and the options `but_for`. An option that one of the records lacks,
/// because it is older, is not compared.
bool same_drafter(const CaseData& a, const CaseData& b, std::initializer_list<const char*> but_for = {});

/// The replay of a measured case: by a trace of chains, by a trace of trees, or by a fitted law. `costs`
/// price its steps; a law may also have costs of its own (FittedLaw::step_ns). Absent if nothing predicts the
/// case: see replay_check().
std::optional<CheckedReplay> checked_replay(const ReplaySources& sources, const CaseData& data,
                                            const std::optional<theory::Calibration>& costs);

}  // namespace speclab
