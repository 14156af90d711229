#include "experiments/optimize/lookahead_search.h"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "core/measure/stats.h"
#include "core/theory/explain.h"
#include "experiments/analysis/case_costs.h"
#include "experiments/analysis/lookahead_fit.h"
#include "experiments/metrics/calibration_costs.h"
#include "experiments/metrics/metrics.h"
#include "experiments/metrics/metrics_detail.h"

namespace speclab {
namespace {

using nlohmann::json;

constexpr int kLawResamples = 200;  // resamples of the bootstrap; few, because each fits the law anew

/// The cases of a grid and what the predictions need of them. All times are in nanoseconds.
struct GridOfCases {
  std::vector<theory::LookaheadCell> cells;
  double t_ar = 0, outside = 0;  // an autoregressive step; a step outside the target's forward
  double row_share = 1;
};

const CaseData* case_of_grid(const RunData& grid, const std::string& id) {
  const auto found = std::ranges::find_if(grid.cases, [&](const auto& data) { return data->id() == id; });
  return found == grid.cases.end() ? nullptr : found->get();
}

theory::LookaheadCell counts_of(const CaseData& data) {
  theory::LookaheadCell cell{lookahead_shape(data.options()), {}, {}};
  cell.tokens.resize(data.prompts.size());
  cell.steps.resize(data.prompts.size());
  for_each_line(data, 0, [&](std::size_t prompt, const LineRecord& line) {
    cell.tokens[prompt] += emitted_tokens(line);
    cell.steps[prompt] += step_count(line);
  });
  return cell;
}

/// The mean time of a step of the case outside the target's forward.
double outside_forward(const theory::Calibration& costs, const CaseData& data, double tau) {
  const json metrics = compute_metrics(data, {"drafted_per_step"});
  const double drafted = metric_number(metrics, "drafted_per_step").value_or(0);
  return costs.draft_step + costs.draft_token * drafted + costs.accept_step + costs.accept_row * tau +
         costs.other;
}

/// The cases of the fit; absent if the calibration lacks one of them.
std::optional<GridOfCases> cases_of_fit(const RunData& grid, const json& fit) {
  GridOfCases out;
  const json& cells = fit.at("cells");
  for (const json& cell : cells) {
    const CaseData* const data = case_of_grid(grid, cell.at("case").get<std::string>());
    if (data == nullptr) return std::nullopt;
    const auto costs = calibration_of(*data, grid.calibration);
    if (!costs) return std::nullopt;
    out.cells.push_back(counts_of(*data));
    out.t_ar = costs->t_ar;
    out.outside +=
        outside_forward(*costs, *data, out.cells.back().compression()) / static_cast<double>(cells.size());
  }
  out.row_share = fit.at("row_share").get<double>();
  return out;
}

/// The counts of the drawn prompts.
std::vector<theory::LookaheadCell> drawn_cells(const std::vector<theory::LookaheadCell>& cells,
                                               std::span<const std::size_t> drawn) {
  std::vector<theory::LookaheadCell> out = cells;
  for (std::size_t i = 0; i < cells.size(); ++i) {
    out[i].tokens.clear();
    out[i].steps.clear();
    for (const std::size_t prompt : drawn) {
      out[i].tokens.push_back(cells[i].tokens[prompt]);
      out[i].steps.push_back(cells[i].steps[prompt]);
    }
  }
  return out;
}

/// The number of prompts that all cases have.
std::size_t common_prompts(const std::vector<theory::LookaheadCell>& cells) {
  std::size_t least = cells.front().tokens.size();
  for (const theory::LookaheadCell& cell : cells) least = std::min(least, cell.tokens.size());
  return least;
}

}  // namespace

std::vector<LookaheadPrediction> search_lookahead(const RunData& grid, int most_rows, int count) {
  const json fits = lookahead_fits(grid.cases, grid.calibration);
  if (fits.empty() || grid.calibration.is_null()) return {};
  const auto largest = std::max_element(fits.begin(), fits.end(), [](const json& a, const json& b) {
    return a.at("cells").size() < b.at("cells").size();
  });
  const std::optional<GridOfCases> cases = cases_of_fit(grid, *largest);
  if (!cases) return {};
  const theory::LookaheadLaw law = lookahead_law(*largest);
  const theory::RowTimes target = calibrated_row_times(grid.calibration).monotone();
  const auto per_token = [&](const theory::LookaheadShape& shape) {  // a step's time / t_ar
    const double rows = std::max(1.0, cases->row_share * theory::lookahead_rows(shape));
    return (target.at_mean(rows) + cases->outside) / cases->t_ar;
  };
  std::vector<LookaheadPrediction> out;
  for (int n = 2; n <= theory::kLongestLookahead; ++n) {
    for (int width = 1; width <= theory::kWidestLookahead; ++width) {
      const theory::LookaheadShape shape{width, n, width};
      if (theory::lookahead_rows(shape) > most_rows) break;
      LookaheadPrediction& one = out.emplace_back();
      one.shape = shape;
      one.tau = law.compression(shape);
      one.speedup = one.tau / per_token(shape);
    }
  }
  std::ranges::stable_sort(out, std::ranges::greater(), &LookaheadPrediction::speedup);
  if (out.size() > static_cast<std::size_t>(count)) out.resize(static_cast<std::size_t>(count));
  std::vector<theory::LookaheadLaw> laws;  // [resamples]
  const stats::BootstrapOptions options{.resamples = kLawResamples};
  const std::size_t prompts = common_prompts(cases->cells);
  stats::bootstrap_interval(
      prompts,
      [&](std::span<const std::size_t> drawn) {
        laws.push_back(theory::fit_lookahead(drawn_cells(cases->cells, drawn)));
        return laws.back().alpha;
      },
      options);
  for (LookaheadPrediction& one : out) {
    std::size_t next = 0;
    const auto interval = stats::bootstrap_interval(
        prompts, [&](std::span<const std::size_t>) { return laws[next++].compression(one.shape); }, options);
    if (!interval) continue;
    const double time = per_token(one.shape);
    one.tau_ci95 = interval_json(interval);
    one.speedup_ci95 = interval_json(stats::Interval{interval->lo / time, interval->hi / time});
  }
  return out;
}

}  // namespace speclab
