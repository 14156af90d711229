#include "experiments/analysis/trees/tree_costs.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "core/base/error.h"
#include "experiments/analysis/case_costs.h"
#include "experiments/analysis/trees/tree_acceptance.h"
#include "experiments/metrics/calibration_costs.h"
#include "experiments/metrics/metrics_detail.h"

namespace speclab {
namespace {

using nlohmann::json;

constexpr int kUsualDraftRows = 2;  // draft rows that every calibration measures

/// The largest tree of the case. At the end of a text the trees are cut and therefore smaller.
theory::RankedTree whole_tree(const CaseData& data) {
  const StepRecord* largest = nullptr;
  for_each_line(data, 0, [&](std::size_t, const LineRecord& line) {
    for (const GenerationRecord& turn : line.turns) {
      for (const StepRecord& step : turn.steps) {
        if (largest == nullptr || step.drafted.size() > largest->drafted.size()) largest = &step;
      }
    }
  });
  SPECLAB_CHECK(largest != nullptr, "no step of {}", data.id());
  return ranked_tree(*largest);
}

/// The times of a draft's forwards by rows; empty if the calibration lacks the draft.
std::map<int, double> draft_times(const json& table, const std::string& draft) {
  std::map<int, double> times;
  const auto found = table.at("drafts").find(draft);
  if (found == table.at("drafts").end()) return times;
  for (const auto& [rows, ns] : found->at("n_ns").items()) times[std::stoi(rows)] = ns.get<double>();
  return times;
}

json times_json(const theory::RowTimes& times, int rows) {
  json out = json::object();
  for (int n = 1; n <= rows; n = n < 8 ? n + 1 : n + 8) out[std::to_string(n)] = 1e-6 * times.at(n);
  return out;
}

}  // namespace

std::optional<theory::TreeCosts> calibrated_tree_costs(std::span<const CaseData* const> cases) {
  const CaseData& first = *cases.front();
  const json& table = first.calibration;
  if (table.is_null() || !first.config["draft"].is_string()) return std::nullopt;
  const std::map<int, double> draft = draft_times(table, first.config["draft"]);
  if (draft.empty() || draft.rbegin()->first <= kUsualDraftRows) return std::nullopt;
  theory::TreeCosts costs;
  costs.target = calibrated_row_times(table).monotone();
  costs.draft = theory::RowTimes(draft).monotone();
  std::multimap<int, double> drawing, other;
  for (const CaseData* data : cases) {
    const auto own = calibration_of(*data, data->calibration);
    if (!own) return std::nullopt;
    const theory::RankedTree tree = whole_tree(*data);
    const int drafted = tree.nodes() - 1;
    double forwards = 0;
    for (const int rows : theory::draft_forward_rows(tree)) forwards += costs.draft.at(rows);
    drawing.emplace(drafted, std::max(0.0, own->draft_step + own->draft_token * drafted - forwards));
    other.emplace(drafted, own->other);
    costs.t_ar = own->t_ar;
    costs.accept_step += own->accept_step / static_cast<double>(cases.size());
    costs.accept_token += own->accept_row / static_cast<double>(cases.size());
  }
  const LinearCost of_drawing = fit_cost(drawing), of_rest = fit_cost(other);
  costs.draft_step = of_drawing.constant, costs.draft_token = of_drawing.slope;
  costs.other_step = of_rest.constant, costs.other_token = of_rest.slope;
  return costs;
}

json to_json(const theory::TreeCosts& costs, int rows) {
  return {{"t_ar", 1e-6 * costs.t_ar},
          {"target", times_json(costs.target, rows)},
          {"draft", times_json(costs.draft, costs.draft.largest_measured())},
          {"draft_step", 1e-6 * costs.draft_step},
          {"draft_token", 1e-6 * costs.draft_token},
          {"accept_step", 1e-6 * costs.accept_step},
          {"accept_token", 1e-6 * costs.accept_token},
          {"other_step", 1e-6 * costs.other_step},
          {"other_token", 1e-6 * costs.other_token}};
}

}  // namespace speclab
