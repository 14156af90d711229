#include "experiments/analysis/lookahead_fit.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <map>

#include "core/theory/lookahead.h"
#include "core/theory/lookahead_hold_out.h"
#include "experiments/metrics/calibration_costs.h"
#include "experiments/metrics/metrics_detail.h"
#include "experiments/analysis/table.h"

namespace speclab {
namespace {

using nlohmann::json;
using theory::LookaheadCell;
using theory::LookaheadChoice;
using theory::LookaheadFit;
using theory::LookaheadHoldOut;
using theory::LookaheadShape;

constexpr int kFitResamples = 200;  // of the bootstrap; the law is fitted to the whole grid anew for each
constexpr int kDevices = 8;
constexpr LookaheadShape kPublished[] = {{15, 5, 15}, {10, 5, 10}, {7, 5, 7}, {60, 8, 60}, {20, 7, 20}};
constexpr int kFreeRows = 128;  // rows that take as long as one row on the hypothetical machine

struct Group {
  std::vector<const CaseData*> cases;
  std::vector<LookaheadCell> cells;
};

json as_json(const LookaheadShape& shape) { return {{"W", shape.W}, {"N", shape.N}, {"G", shape.G}}; }

json as_json(const LookaheadChoice& choice) {
  json out = as_json(choice.shape);
  out["tau"] = choice.compression;
  out["speedup"] = choice.speedup;
  return out;
}

LookaheadCell cell_of(const CaseData& data) {
  LookaheadCell cell{lookahead_shape(data.options()), {}, {}};
  cell.tokens.resize(data.prompts.size());
  cell.steps.resize(data.prompts.size());
  for_each_line(data, 0, [&](std::size_t prompt, const LineRecord& line) {
    cell.tokens[prompt] += emitted_tokens(line);
    cell.steps[prompt] += step_count(line);
  });
  return cell;
}

json as_json(const LookaheadHoldOut& hold_out) {
  const auto predicted =
      hold_out.what == "prompts"
          ? static_cast<std::ptrdiff_t>(hold_out.interpolated.size())
          : std::ranges::count_if(hold_out.predicted, [](const auto& tau) { return tau.has_value(); });
  json out = {{"what", hold_out.what},
              {"cells", predicted},
              {"interpolated", std::ranges::count(hold_out.interpolated, true)}};
  const auto add = [&](const std::optional<theory::LookaheadTest>& test, const char* error,
                       const char* mean) {
    out[error] = test ? json(test->error) : json(nullptr);
    out[mean] = test ? json(test->mean_error) : json(nullptr);
  };
  add(hold_out.same_prompts, "error", "mean_error");
  add(hold_out.other_prompts, "error_other_prompts", "mean_error_other_prompts");
  return out;
}

json fit_json(const Group& group, const json& calibration) {
  const LookaheadFit fit = theory::analyse_lookahead(group.cells, kFitResamples);
  const std::vector<LookaheadHoldOut> hold_outs = theory::hold_out_lookahead(group.cells);
  json cells = json::array();
  double row_share = 0;
  for (std::size_t i = 0; i < group.cells.size(); ++i) {
    const LookaheadCell& cell = group.cells[i];
    json row = as_json(cell.shape);
    row["case"] = group.cases[i]->id();
    row["tau"] = cell.compression();
    row["fitted"] = fit.fitted[i];
    row["held_out"] = json::object();
    for (const LookaheadHoldOut& each : hold_outs) {
      if (!each.predicted.empty() && each.predicted[i])
        row["held_out"][each.what] = {{"tau", *each.predicted[i]},
                                      {"interpolation", bool{each.interpolated[i]}}};
    }
    row["rows"] = rows_fed_per_step(*group.cases[i]);
    row["row_equivalents"] = row_equivalents(*group.cases[i]);
    row["most_rows"] = theory::lookahead_rows(cell.shape);
    row_share += row["row_equivalents"].get<double>() / theory::lookahead_rows(cell.shape);
    cells.push_back(std::move(row));
  }
  row_share /= static_cast<double>(cells.size());
  json held_out = json::array();
  for (const LookaheadHoldOut& each : hold_outs) held_out.push_back(as_json(each));
  json out = {{"alpha", fit.law.alpha},
              {"alpha_ci95", interval_json(fit.alpha)},
              {"f", fit.law.f},
              {"f_ci95", interval_json(fit.f)},
              {"share", fit.share_fitted ? json(fit.law.share) : json(nullptr)},
              {"share_ci95", interval_json(fit.share)},
              {"held_out", std::move(held_out)},
              {"row_share", row_share},
              {"cells", std::move(cells)},
              {"machines", json::array()}};
  if (!calibration.is_null()) {
    json own = lookahead_machine(kThisMachine, out, calibrated_row_times(calibration).monotone());
    own["measured_rows"] = measured_rows(calibration);
    out["machines"].push_back(std::move(own));
  }
  out["machines"].push_back(
      lookahead_machine("t(n) = 1 up to 128 rows, then n / 128", out, free_row_times(kFreeRows)));
  return out;
}

/// The errors of the law on cells and prompts that its fit has not seen, as a table; "" without such tests.
std::string held_out_text(const json& tests) {
  if (tests.empty()) return "";
  Table table{.header = {"left out of the fit", "cells", "interpolated", "same prompts", "by the mean",
                         "other prompts", "by the mean"},
              .rows = {},
              .right = {false, true, true, true, true, true, true}};
  for (const json& test : tests) {
    const std::string what = test["what"];
    const auto percent = [&](const char* name) {
      return test[name].is_null() ? "" : fmt::format("{:.1f} %", 100 * test[name].get<double>());
    };
    table.rows.push_back({what == "prompts" ? "no cell, half of the prompts"
                          : what == "cells" ? "half of the cells; similar cells stay in the fit"
                                            : "all cells with the same " + what,
                          test["cells"].dump(), test["interpolated"].dump(), percent("error"),
                          percent("mean_error"), percent("error_other_prompts"),
                          percent("mean_error_other_prompts")});
  }
  return "Median error of the predicted tau on what was left out of the fit. Cells that are not interpolated "
         "lie outside the hull of the fitted cells (extrapolation). \"by the mean\" is the error if the mean "
         "of the fitted cells is the prediction.\n" +
         to_text(table) + "\n";
}

}  // namespace

LookaheadShape lookahead_shape(const json& options) {
  LookaheadShape shape{options.at("W"), options.at("N"), options.at("G")};
  const int most = options.value("V", 0);
  if (most > 0 && (shape.G < 0 || shape.G > most)) shape.G = most;
  return shape;
}

theory::RowTimes free_row_times(int rows) {
  return theory::RowTimes(std::map<int, double>{{1, 1.0}, {rows, 1.0}, {2 * rows, 2.0}});
}

theory::LookaheadLaw lookahead_law(const json& fit) {
  theory::LookaheadLaw law{.alpha = fit.at("alpha"), .f = fit.at("f")};
  if (!fit.at("share").is_null()) law.share = fit["share"];
  return law;
}

json lookahead_machine(const std::string& name, const json& fit, const theory::RowTimes& target) {
  const theory::LookaheadLaw law = lookahead_law(fit);
  const double row_share = fit.at("row_share");
  const LookaheadChoice best =
      theory::best_lookahead(law, target, theory::kWidestLookahead, theory::kLongestLookahead, row_share);
  json published = json::array(), parallel = json::array();
  for (const LookaheadShape& shape : kPublished) {
    json row = as_json(theory::predict_lookahead(law, shape, target, row_share));
    row["regret"] = 1 - row["speedup"].get<double>() / best.speedup;
    published.push_back(std::move(row));
  }
  for (int devices = 1; devices <= kDevices; ++devices) {
    const auto rows = theory::lookahead_device_rows(kPublished[0], devices);
    parallel.push_back(
        {{"devices", devices},
         {"rows", rows},
         {"speedup", theory::lookahead_parallel_speedup(law, kPublished[0], target, devices, 0)}});
  }
  return {{"machine", name},
          {"best", as_json(best)},
          {"degenerate", best.shape.W <= 1},
          {"measured_rows", target.largest_measured()},
          {"published", std::move(published)},
          {"devices", std::move(parallel)}};
}

json lookahead_fits(std::span<const std::shared_ptr<CaseData>> cases, const json& calibration) {
  std::map<std::string, Group> groups;
  for (const auto& data : cases) {
    if (data->config["strategy"] != "lookahead" || data->lines.empty() || data->unequal()) continue;
    if (data->options().value("budget", "fixed") != "fixed")
      continue;                         // such a case does not feed the window in every step
    if (data->devices() > 1) continue;  // such a case has the tau of one device, but more rows
    json rest = data->options();
    LookaheadCell cell = cell_of(*data);
    if (cell.shape.W < 1 || cell.shape.G < 1 || cell.tokens.empty()) continue;
    for (const char* name : {"W", "N", "G"}) rest.erase(name);
    Group& group = groups[rest.dump() + data->config["verify"].dump()];
    group.cases.push_back(data.get());
    group.cells.push_back(std::move(cell));
  }
  json out = json::array();
  for (const auto& [key, group] : groups) {
    if (group.cells.size() > 1) out.push_back(fit_json(group, calibration));
  }
  return out;
}

std::string lookahead_sentence(const json& machine) {
  const json& best = machine.at("best");
  const std::string name = machine.at("machine");
  if (best["W"] == 0)
    return name +
           ": no setting of lookahead decoding is predicted to be faster than autoregressive decoding.";
  return fmt::format(
      "{}: W = {}, N = {}, G = {} is predicted to be {} times as fast as autoregressive decoding{}.", name,
      best["W"].dump(), best["N"].dump(), best["G"].dump(), number_text(best["speedup"], 3),
      machine.at("degenerate").get<bool>() ? "; degenerate: a window of one column does not look ahead" : "");
}

std::string lookahead_text(const json& summary) {
  std::string text;
  std::size_t prompts = 0;
  for (const json& entry : summary.value("cases", json::array()))
    prompts = std::max(prompts, entry.value("prompts", std::size_t{0}));
  for (const json& fit : summary.value("lookahead", json::array())) {
    const auto with_interval = [&](const char* name, const char* shown) {
      const json& ci = fit[std::string(name) + "_ci95"];
      return fmt::format("{} {}{}", shown, number_text(fit[name], 3),
                         ci.is_null() ? ""
                                      : fmt::format(" [{}, {}]{}", number_text(ci[0], 3),
                                                    number_text(ci[1], 3), few_prompts_text(prompts)));
    };
    text += fmt::format("Law of lookahead decoding over {} cases: {}, {}", fit["cells"].size(),
                        with_interval("alpha", "alpha"), with_interval("f", "f"));
    if (!fit["share"].is_null())
      text += ", " + with_interval("share", "exponent of W in the number of guesses");
    text += ".\n" + held_out_text(fit.value("held_out", json::array()));
    Table table{.header = {"machine", "setting", "W", "N", "G", "tau", "speedup", "regret"},
                .rows = {},
                .right = {false, false, true, true, true, true, true, true}};
    const auto add = [&](const json& machine, const char* what, const json& row) {
      table.rows.push_back({machine["machine"], what, row["W"].dump(), row["N"].dump(), row["G"].dump(),
                            number_text(row["tau"], 3), number_text(row["speedup"], 3),
                            row.contains("regret") ? number_text(row["regret"], 2) : ""});
    };
    for (const json& machine : fit["machines"]) {
      add(machine, machine["best"]["W"] == 0 ? "no lookahead" : "best", machine["best"]);
      for (const json& row : machine["published"]) add(machine, "published", row);
    }
    text += to_text(table) + "regret: the share of the best predicted speedup that the setting gives up.\n\n";
    for (const json& machine : fit["machines"]) {
      text += lookahead_sentence(machine) + "\n";
      std::vector<std::string> speedups;
      for (const json& row : machine["devices"]) speedups.push_back(number_text(row["speedup"], 3));
      text += fmt::format(
          "  Predicted speedup of W = {}, N = {}, G = {} divided over 1 to {} devices, if their exchange "
          "takes no "
          "time: {}.\n",
          kPublished[0].W, kPublished[0].N, kPublished[0].G, speedups.size(), fmt::join(speedups, ", "));
    }
  }
  return text;
}

json lookahead_prediction(const json& fits, const std::string& case_id, const json& tau) {
  for (const json& fit : fits) {
    for (const json& cell : fit["cells"]) {
      if (cell["case"] != case_id) continue;
      const bool square = cell["W"] == cell["G"];
      double value = cell["fitted"];
      std::string sight = "alpha and f fitted to a grid that holds this case";
      for (const char* what : {"N", "W"}) {  // the fit without this W wins over the fit without this N
        if (!cell["held_out"].contains(what)) continue;
        const json& unseen = cell["held_out"][what];
        value = unseen["tau"];
        sight = fmt::format("alpha and f fitted to the cells with another {}, on the same prompts: {}", what,
                            unseen["interpolation"].get<bool>() ? "interpolation" : "extrapolation");
      }
      return {{square ? "lookahead_eq7" : "lookahead_eq7_extended",
               {{"value", value},
                {"kind", "prediction"},
                {"measured", tau},
                {"error", tau.is_number() ? json(value / tau.get<double>() - 1) : json(nullptr)},
                {"quantity", "tau"},
                {"equation", square ? "(f - 1 + N - sum_{i<N} (1 - alpha^i)^W) / f"
                                    : "(f - 1 + N - sum_{i<N} (1 - alpha^i)^(W^s G^(1-s))) / f"},
                {"assumptions", sight + "; guesses are right independently, one step in f has a good one" +
                                    (square ? "" : "; the exponent for W other than G is ours")}}}};
    }
  }
  return json::object();
}

}  // namespace speclab
