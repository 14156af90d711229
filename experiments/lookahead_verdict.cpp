#include "experiments/lookahead_verdict.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/error.h"
#include "core/measure/stats.h"
#include "core/spec/generation.h"
#include "core/spec/registry.h"
#include "experiments/lookahead_fit.h"
#include "experiments/table.h"

namespace speclab {
namespace {

using nlohmann::json;
using theory::LookaheadChoice;

constexpr int kRepeats = 3;
constexpr double kFree = 1.05;  // t(n) up to which rows count as free

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
  throw Error({"summary", fmt::format("no case {}", id.dump()), "the case of a fitted cell",
               "speclab report RUN writes it anew."});
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

}  // namespace

const json& largest_lookahead_fit(const json& summary) {
  const json& fits = summary.at("lookahead");
  if (fits.empty()) {
    throw Error({"fitting the law of lookahead decoding", "no two cases that differ in W, N and G alone",
                 "a run over a grid", "For example: speclab run configs/lookahead_wng.json."});
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
  const auto changed = [&](const OptionFields& fields) {  // what is not as it is when nobody says anything
    json out = json::object();
    for (const OptionInfo& info : describe_options(fields)) {
      if (options.at(info.name) != json::parse(info.default_value)) out[info.name] = options[info.name];
    }
    return out;
  };
  StrategyChoice lookahead(find_strategy("lookahead"));
  GenerationOptions generation;
  const json of_strategy = changed(lookahead.fields()), shared = changed(option_fields(generation));
  json cases = json::array({{{"strategy", "autoregressive"}}});
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
              {"noise_floor", nullptr},
              {"measured", json::array()},
              {"regret", nullptr}};
  int free = 1;
  while (free < target.largest_measured() / 2 && target.ratio(free + 1) <= kFree) ++free;
  out["free_rows"] = free;
  for (int rows = 1; rows <= 256; rows *= 2) {
    json row = choice_json(best_of(fit, free_row_times(rows)));
    row["rows"] = rows;
    out["by_free_rows"].push_back(std::move(row));
  }
  if (follow_up.is_null()) return out;
  out["noise_floor"] = follow_up.at("noise_floor");
  const double noise = follow_up["noise_floor"].is_null() ? 0 : follow_up["noise_floor"].get<double>();
  const json candidates = lookahead_candidates(summary);
  double most = 1, own = 1;
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
    const stats::Interval interval =
        ci.is_null() ? stats::Interval{speedup, speedup} : stats::Interval{ci[0], ci[1]};
    row["verdict"] = std::string(stats::to_string(stats::verdict(interval, noise)));
    for (const json& candidate : candidates) {
      if (!same_shape(candidate, row)) continue;
      row["role"] = candidate["role"];
      row["predicted"] = {{"tau", candidate["tau"]}, {"speedup", candidate["speedup"]}};
    }
    most = std::max(most, speedup);
    if (row["role"] == "recommended") {
      own = speedup;
      out["never_slower"] = row["verdict"] != "slower";
    }
    out["measured"].push_back(std::move(row));
  }
  out["regret"] = 1 - own / most;
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
    if (!verdict["noise_floor"].is_null())
      text +=
          fmt::format("\nDifferences below {:.1f} % are noise.", 100 * verdict["noise_floor"].get<double>());
    text += fmt::format(
        "\nThe recommendation loses {:.1f} % against the best of these and of autoregressive decoding.\n",
        100 * verdict["regret"].get<double>());
  }
  if (none) {
    text += "Decoding autoregressively is what is recommended here: never slower than itself.\n";
  } else if (!verdict["never_slower"].is_null()) {
    text += verdict["never_slower"].get<bool>()
                ? "The recommended setting is not slower than autoregressive decoding beyond the noise.\n"
                : "The recommended setting is SLOWER than autoregressive decoding, beyond the noise.\n";
  }
  text += verdict["free_rows"] == 1
              ? fmt::format("Here a second row costs more than {:.0f} % of a forward.", 100 * (kFree - 1))
              : fmt::format("Here a forward over {} rows takes at most {:.0f} % longer than over one.",
                            verdict["free_rows"].dump(), 100 * (kFree - 1));
  text += " What the same law recommends where more rows are free:\n\n";
  Table machines{.header = {"free rows", "W", "N", "G", "tau", "speedup"},
                 .rows = {},
                 .right = {true, true, true, true, true, true}};
  for (const json& row : verdict["by_free_rows"])
    machines.rows.push_back({row["rows"].dump(), row["W"].dump(), row["N"].dump(), row["G"].dump(),
                             number_text(row["tau"], 3), number_text(row["speedup"], 3)});
  return text + to_text(machines);
}

}  // namespace speclab
