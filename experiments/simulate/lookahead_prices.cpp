#include "experiments/simulate/lookahead_prices.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <map>
#include <utility>

#include "core/base/error.h"
#include "experiments/analysis/lookahead_fit.h"
#include "experiments/analysis/table.h"
#include "experiments/metrics/record_files.h"
#include "experiments/metrics/summary.h"
#include "experiments/simulate/case_pricing.h"
#include "experiments/simulate/run_shapes.h"

namespace speclab {
namespace {

using nlohmann::json;

constexpr int kEveryRowUpTo = 128,
              kMostStepRows = 2048;  ///< up to kEveryRowUpTo, t(n) is computed for every n

theory::RowTimes lookahead_row_times(const Pricing& pricing) {
  std::map<int, double> times;
  for (int rows = 1; rows <= kMostStepRows; rows += rows < kEveryRowUpTo ? 1 : 64)
    times[rows] = pricing.forward_ns("", rows);
  return theory::RowTimes(std::move(times)).monotone();
}

/// The host's time for drafting in a step of a case, in nanoseconds; 0 without a calibration of the case.
double host_ns(const json& summary, const std::string& id) {
  const json calibration = summary.value("calibration", json());
  if (calibration.is_null()) return 0;
  const json costs = calibration.at("cases").value(id, json());
  if (costs.is_null()) return 0;
  double drafted = 0;
  for (const json& entry : summary.at("cases")) {
    if (entry.at("id") != id) continue;
    const json found = entry.at("metrics").value("drafted_per_step", json());
    if (found.is_number()) drafted = found;
  }
  const json& draft = costs.at("draft_ns");
  return draft.at("constant").get<double>() + draft.at("slope").get<double>() * drafted;
}

}  // namespace

json lookahead_prices(const std::filesystem::path& folder, const SimulatedDevice& device) {
  const json summary = read_summary(folder).summary;
  const json fits = summary.value("lookahead", json::array());
  if (fits.empty()) {
    throw Error({.what = folder.string(),
                 .got = "no two cases of lookahead decoding to which the law can be fitted",
                 .expected = "a run of a grid over W, N and G",
                 .advice = "For example a run of configs/lookahead_wng.json."});
  }
  const json environment = read_run_environment(folder);
  const ModelShapes shapes = run_shapes(environment, device.weight_bytes, device.kv_bytes);
  const json calibration = summary.value("calibration", json());
  const double context = calibration.is_null() ? 0 : calibration.at("context_length").get<double>();
  const theory::RowTimes target = lookahead_row_times({device, shapes, 1, context});
  const double step_ns = device.device->step_ns();
  json out = {{"device", device.name},   {"kind", to_string(device.kind)},
              {"source", device.source}, {"error", device.error},
              {"simulation", true},      {"context", context},
              {"fits", json::array()}};
  for (const json& fit : fits) {
    json cells = json::array();
    for (const json& cell : fit.at("cells")) {
      const std::string id = cell.at("case");
      const double rows = std::max(1.0, cell.at("row_equivalents").get<double>());
      const double step = target.at_mean(rows) + step_ns + host_ns(summary, id);
      cells.push_back({{"case", id},
                       {"W", cell.at("W")},
                       {"N", cell.at("N")},
                       {"G", cell.at("G")},
                       {"tau", cell.at("tau")},
                       {"rows", rows},
                       {"speedup", cell.at("tau").get<double>() * (target.at(1) + step_ns) / step}});
    }
    out["fits"].push_back({{"alpha", fit.at("alpha")},
                           {"alpha_ci95", fit.value("alpha_ci95", json())},
                           {"f", fit.at("f")},
                           {"share", fit.at("share")},
                           {"machine", lookahead_machine(device.name + ", simulated", fit, target)},
                           {"cells", std::move(cells)}});
  }
  return out;
}

std::string lookahead_prices_text(const json& simulation) {
  std::string text = fmt::format(
      "Simulated on {}: tau as measured in the run, times of the device.\nSource of the times: {}\n",
      simulation["device"].get<std::string>(), simulation["source"].get<std::string>());
  if (const std::string error = simulation["error"]; !error.empty())
    text += "How far off the times may be: " + error + "\n";
  for (const json& fit : simulation["fits"]) {
    Table table{.header = {"W", "N", "G", "tau", "rows", "simulated speedup"},
                .rows = {},
                .right = {true, true, true, true, true, true}};
    for (const json& cell : fit["cells"]) {
      table.rows.push_back({cell["W"].dump(), cell["N"].dump(), cell["G"].dump(), number_text(cell["tau"]),
                            number_text(cell["rows"]), number_text(cell["speedup"])});
    }
    text += "\n" + to_text(table) + "\n\n" +
            fmt::format("Law with alpha {}, f {}: {}\n", number_text(fit["alpha"]), number_text(fit["f"]),
                        lookahead_sentence(fit["machine"]));
  }
  return text;
}

}  // namespace speclab
