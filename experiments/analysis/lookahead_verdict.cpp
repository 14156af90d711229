#include "experiments/analysis/lookahead_verdict.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <optional>

#include "core/base/error.h"
#include "core/measure/stats.h"
#include "core/decoding/loop/generation.h"
#include "core/decoding/registry.h"
#include "experiments/analysis/lookahead_fit.h"
#include "experiments/metrics/calibration_costs.h"
#include "experiments/analysis/table.h"

namespace speclab {
namespace {

using nlohmann::json;
using theory::LookaheadChoice;

constexpr int kRepeats = 5;
constexpr double kFree = 1.05;  // n rows count as free if t(n) is at most this
constexpr double kSame = 1.05;  // speedups from 1 / kSame to kSame count as the same

json choice_json(const LookaheadChoice& choice) {
  return {{"W", choice.shape.W},
          {"N", choice.shape.N},
          {"G", choice.shape.G},
          {"tau", choice.compression},
          {"speedup", choice.speedup}};
}

bool same_shape(const json& a, const json& b) {
  return a["W"] == b["W"] && a["N"] == b["N"] && a["G"] == b["G"];
}

const json& case_by_id(const json& summary, const json& id) {
  for (const json& entry : summary.at("cases")) {
    if (entry["id"] == id) return entry;
  }
  throw Error({"summary.json", fmt::format("no case {}", id.dump()), "a case for each fitted cell",
               "The file is damaged. Run the experiment again."});
}

theory::RowTimes row_times_of(const json& summary) {
  if (summary.at("calibration").is_null()) {
    throw Error({"recommending W, N and G", "a run without a calibration", "t(n) of this machine",
                 "Run the experiment with its calibration enabled."});
  }
  return calibrated_row_times(summary["calibration"]).monotone();
}

LookaheadChoice best_of(const json& fit, const theory::RowTimes& target, const LookaheadChoice& bar = {}) {
  return theory::best_lookahead(lookahead_law(fit), target, theory::kWidestLookahead,
                                theory::kLongestLookahead, fit.at("row_share"), bar);
}

std::optional<stats::Interval> widened(const json& ci95, const json& noise) {
  if (ci95.is_null() || noise.is_null()) return std::nullopt;
  const double factor = 1 + noise.get<double>();
  return stats::Interval{ci95[0].get<double>() / factor, ci95[1].get<double>() * factor};
}

/// "never_slower" of the verdict: true, false or null.
json is_never_slower(const json& ci95, const json& noise) {
  const auto interval = widened(ci95, noise);
  if (!interval) return nullptr;
  if (interval->hi < 1) return false;
  return interval->lo >= 1 / kSame ? json(true) : json(nullptr);
}

}  // namespace

std::string judge_speedup(const json& ci95, const json& noise) {
  if (noise.is_null()) return "unclear: no repeats";
  const auto interval = widened(ci95, noise);
  if (!interval) return "unclear: one prompt";
  if (interval->lo > 1) return "faster";
  if (interval->hi < 1) return "slower";
  return interval->lo >= 1 / kSame && interval->hi <= kSame ? "same" : "unclear";
}

const json& largest_lookahead_fit(const json& summary) {
  const json& fits = summary.at("lookahead");
  if (fits.empty()) {
    throw Error(
        {"fitting the law of lookahead decoding", "no two usable cases that differ in W, N and G alone",
         "a run over a grid: W and G at least 1, a fixed budget, one device, and texts equal to their "
         "reference",
         "For example: speclab run configs/lookahead_wng.json."});
  }
  const json* largest = &fits[0];
  for (const json& fit : fits) {
    if (fit["cells"].size() > (*largest)["cells"].size()) largest = &fit;
  }
  return *largest;
}

json lookahead_candidates(const json& summary) {
  const json& fit = largest_lookahead_fit(summary);
  const theory::RowTimes target = row_times_of(summary);
  const LookaheadChoice best = best_of(fit, target);
  const bool none = best.shape.W == 0;
  json out = json::array();
  const auto add = [&](const char* role, json choice) {
    choice["role"] = role;
    out.push_back(std::move(choice));
  };
  add(none ? "best of lookahead" : "recommended",
      choice_json(none ? best_of(fit, target, {{}, 1, 0}) : best));
  const json* fastest = nullptr;
  double most = 0;
  for (const json& cell : fit["cells"]) {
    const json speedup = case_by_id(summary, cell["case"])["metrics"].value("speedup", json());
    if (speedup.is_number() && speedup > most) fastest = &cell, most = speedup;
  }
  if (fastest != nullptr && !same_shape(*fastest, out[0])) {
    const theory::LookaheadShape shape{(*fastest)["W"], (*fastest)["N"], (*fastest)["G"]};
    add("fastest in the run",
        choice_json(theory::predict_lookahead(lookahead_law(fit), shape, target, fit["row_share"])));
  }
  return out;
}

json follow_up_config(const json& run_config, const json& summary) {
  const json& fit = largest_lookahead_fit(summary);
  const json& options = case_by_id(summary, fit["cells"][0]["case"])["options"];
  const auto changed = [&](const OptionFields& fields) {  // the options that differ from their defaults
    json out = json::object();
    for (const OptionInfo& info : describe_options(fields)) {
      const bool recorded = options.contains(info.name);
      if (!recorded && info.absent_means.empty()) continue;  // newer than the record: default
      const json value = recorded ? options[info.name] : json::parse(info.absent_means);
      if (value != json::parse(info.default_value)) out[info.name] = value;
    }
    return out;
  };
  StrategyChoice lookahead(find_strategy("lookahead"));
  GenerationOptions generation;
  json of_strategy = changed(lookahead.fields()), shared = changed(option_fields(generation));
  of_strategy.erase("budget");
  of_strategy.erase("V");      // the G of a candidate is the number of guesses in a step
  shared["budget"] = "fixed";  // the law describes steps that all feed the window
  json cases = json::array({{{"strategy", baseline_strategy().info.name}}});
  for (const json& candidate : lookahead_candidates(summary)) {
    json one = of_strategy;
    one["strategy"] = "lookahead";
    for (const char* name : {"W", "N", "G"}) one[name] = candidate[name];
    cases.push_back(std::move(one));
  }
  json config = {
      {"name", run_config.at("name").get<std::string>() + "_verdict"},
      {"description",
       fmt::format("What the law of lookahead decoding, fitted to {}, recommends for this machine.",
                   run_config["name"].get<std::string>())},
      {"target", run_config.at("target")},
      {"prompts", run_config.at("source").at("prompts")},
      {"seeds", run_config.at("seeds")},
      {"repeats", kRepeats},
      {"teacher_forced", false},
      {"options", shared},
      {"cases", std::move(cases)},
      {"calibration", {{"rows", 9}, {"rounds", 16}}}};
  return config;
}

json lookahead_verdict(const json& summary, const json& follow_up) {
  const json& fit = largest_lookahead_fit(summary);
  const theory::RowTimes target = row_times_of(summary);
  const LookaheadChoice best = best_of(fit, target);
  const bool none = best.shape.W == 0;
  json out = {{"machine", kThisMachine},
              {"best", choice_json(best)},
              {"degenerate", best.shape.W <= 1},
              {"never_slower", none ? json(true) : json(nullptr)},
              {"ratio_noise", nullptr},
              {"measured", json::array()},
              {"regret", nullptr}};
  int free = 1;
  while (free < measured_rows(summary["calibration"]) && target.ratio(free + 1) <= kFree) ++free;
  out["free_rows"] = free;
  for (int rows = 1; rows <= 256; rows *= 2) {
    json row = choice_json(best_of(fit, free_row_times(rows)));
    row["rows"] = rows;
    out["by_free_rows"].push_back(std::move(row));
  }
  if (follow_up.is_null()) return out;
  const json noise = follow_up.value("ratio_noise", json());
  out["ratio_noise"] = noise;
  const json candidates = lookahead_candidates(summary);
  double most = 1;
  std::optional<double> own;
  if (none) own = 1;  // the recommendation is autoregressive decoding
  for (const json& entry : follow_up.at("cases")) {
    if (entry["strategy"] != "lookahead" || entry["metrics"]["speedup"].is_null()) continue;
    const json& metrics = entry["metrics"];
    const json ci = metrics.value("speedup_ci95", json());
    const double speedup = metrics["speedup"];
    json row = {{"role", "other"},
                {"case", entry["id"]},
                {"W", entry["options"]["W"]},
                {"N", entry["options"]["N"]},
                {"G", entry["options"]["G"]},
                {"predicted", nullptr},
                {"tau", metrics["tau"]},
                {"speedup", speedup},
                {"speedup_ci95", ci}};
    row["verdict"] = judge_speedup(ci, noise);
    for (const json& candidate : candidates) {
      if (!same_shape(candidate, row)) continue;
      row["role"] = candidate["role"];
      row["predicted"] = {{"tau", candidate["tau"]}, {"speedup", candidate["speedup"]}};
    }
    most = std::max(most, speedup);
    if (row["role"] == "recommended") {
      own = speedup;
      out["never_slower"] = is_never_slower(ci, noise);
    }
    out["measured"].push_back(std::move(row));
  }
  if (own) out["regret"] = 1 - *own / most;
  return out;
}

std::string to_verdict_text(const json& verdict) {
  const json& best = verdict.at("best");
  const bool none = best["W"] == 0;
  std::string text = lookahead_sentence(verdict) + "\n";
  if (!verdict["measured"].empty()) {
    Table table{.header = {"measured", "W", "N", "G", "tau", "predicted", "speedup", "predicted",
                           "against autoregressive"},
                .rows = {},
                .right = {false, true, true, true, true, true, true, true, false}};
    for (const json& row : verdict["measured"]) {
      const json& predicted = row["predicted"];
      const auto of = [&](const char* name) {
        return predicted.is_null() ? "" : number_text(predicted[name], 3);
      };
      table.rows.push_back({row["role"], row["W"].dump(), row["N"].dump(), row["G"].dump(),
                            number_text(row["tau"], 3), of("tau"), interval_text(row, "speedup", 3),
                            of("speedup"), row["verdict"]});
    }
    text += '\n';
    text += to_text(table);
    text += verdict["ratio_noise"].is_null()
                ? std::string("\nThere are no repeats, so a difference cannot be told from noise.")
                : fmt::format(
                      "\nThe same speedup differs by up to {:.1f} % between repeats. The intervals are "
                      "widened by this before they are judged; \"same\" means within {:.0f} % of 1.",
                      100 * verdict["ratio_noise"].get<double>(), 100 * (kSame - 1));
    text += verdict["regret"].is_null()
                ? std::string("\nThe recommended setting has no measured speedup.\n")
                : fmt::format(
                      "\nThe recommendation loses {:.1f} % against the best of these and of autoregressive "
                      "decoding.\n",
                      100 * verdict["regret"].get<double>());
  }
  if (none) {
    text +=
        "The recommendation for this machine is autoregressive decoding, which is never slower than "
        "itself.\n";
  } else if (!verdict["measured"].empty()) {
    const json& never = verdict["never_slower"];
    text += never.is_null()
                ? fmt::format(
                      "It is not decided whether the recommended setting is slower than autoregressive "
                      "decoding by more than {:.0f} %.\n",
                      100 * (kSame - 1))
            : never.get<bool>()
                ? fmt::format(
                      "The recommended setting is not slower than autoregressive decoding "
                      "by more than {:.0f} %.\n",
                      100 * (kSame - 1))
                : "The recommended setting is SLOWER than autoregressive decoding, beyond the noise.\n";
  }
  text += verdict["free_rows"] == 1
              ? fmt::format("Here a second row costs more than {:.0f} % of a forward.", 100 * (kFree - 1))
              : fmt::format("Here a forward over {} rows takes at most {:.0f} % longer than over one.",
                            verdict["free_rows"].dump(), 100 * (kFree - 1));
  text += " If more rows cost no more than one row (\"free rows\"), the same law recommends:\n\n";
  Table machines{.header = {"free rows", "W", "N", "G", "tau", "speedup"},
                 .rows = {},
                 .right = {true, true, true, true, true, true}};
  for (const json& row : verdict["by_free_rows"])
    machines.rows.push_back({row["rows"].dump(), row["W"].dump(), row["N"].dump(), row["G"].dump(),
                             number_text(row["tau"], 3), number_text(row["speedup"], 3)});
  return text + to_text(machines);
}

}  // namespace speclab
