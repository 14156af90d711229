#include "experiments/simulate/replay/replayed_settings.h"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <numeric>
#include <optional>
#include <utility>

#include "core/decoding/registry.h"
#include "experiments/analysis/trees/tree_costs.h"
#include "experiments/metrics/calibration_costs.h"
#include "experiments/simulate/replay.h"
#include "experiments/simulate/replay/best_trees.h"
#include "experiments/simulate/replay/rank_trace.h"
#include "experiments/simulate/replay/tree_replay.h"
#include "experiments/simulate/trace.h"

namespace speclab {
namespace {

using nlohmann::json;

/// Whether the case drafts trees whose shape cannot be chosen. A trace of trees needs a case that drafts any
/// shape.
bool drafts_other_trees(const CaseData& data) {
  const StrategyInfo* info = recorded_strategy(data.config.value("strategy", ""));
  return data.branches && (info == nullptr || !info->drafts_any_shape);
}

void take_prediction(const json& row, ReplayedSetting& setting) {
  setting.tau = row.at("tau").get<double>();
  setting.tau_ci95 = row.at("tau_ci95");
  setting.speedup = row.at("speedup").get<double>();
  setting.speedup_ci95 = row.at("speedup_ci95");
}

void add_chains(const Trace& trace, const json& calibration, std::vector<ReplayedSetting>& out) {
  std::vector<int> lengths(static_cast<std::size_t>(std::max(1, longest_draft(trace))));
  std::iota(lengths.begin(), lengths.end(), 1);
  const json all = replayed({&trace, 1}, calibration, lengths, {ScheduleOptions{}});
  for (const json& of_trace : all.at("traces")) {
    for (const json& row : of_trace.at("settings")) {
      if (!row.at("speedup").is_number()) continue;
      ReplayedSetting setting;
      setting.case_id = trace.data->id();
      setting.length = row.at("gamma").get<int>();
      take_prediction(row, setting);
      out.push_back(std::move(setting));
    }
  }
}

void add_trees(const RankTrace& trace, const TreeLimits& limits, std::vector<ReplayedSetting>& out) {
  const CaseData* const data = trace.data.get();
  const std::optional<theory::TreeCosts> costs = calibrated_tree_costs({&data, 1});
  if (!costs) return;
  const int nodes = std::min(limits.nodes, measured_rows(data->calibration));
  std::vector<ReplayedTree> found = search_trees(trace, *costs, nodes, limits.depth);
  if (found.size() > static_cast<std::size_t>(limits.best))
    found.resize(static_cast<std::size_t>(limits.best));
  std::vector<NamedTrees> trees;
  for (const ReplayedTree& one : found) trees.push_back({trace.data->id(), shape_of(one.tree)});
  const json rows = replayed_trees({&trace, 1}, trees);
  for (std::size_t i = 0; i < found.size(); ++i) {
    if (!rows.at(i).at("speedup").is_number()) continue;
    ReplayedSetting setting;
    setting.case_id = trace.data->id();
    setting.tree = std::move(found[i].tree);
    take_prediction(rows.at(i), setting);
    out.push_back(std::move(setting));
  }
}

}  // namespace

std::vector<ReplayedSetting> replayed_settings(const RunData& run, const TreeLimits& limits) {
  RunData traced = run;
  std::erase_if(traced.cases, [](const auto& data) { return drafts_other_trees(*data); });
  std::vector<ReplayedSetting> out;
  const std::vector<Trace> chains = read_traces(traced);
  for (const Trace& trace : chains) add_chains(trace, run.calibration, out);
  const std::vector<RankTrace> trees = read_rank_traces(traced);
  for (const RankTrace& trace : trees) add_trees(trace, limits, out);
  std::ranges::stable_sort(out, std::ranges::greater(), &ReplayedSetting::speedup);
  return out;
}

}  // namespace speclab
