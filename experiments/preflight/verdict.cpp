#include "experiments/preflight/verdict.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "core/base/error.h"
#include "experiments/analysis/case_costs.h"
#include "experiments/metrics/calibration_costs.h"
#include "experiments/metrics/metrics.h"
#include "experiments/metrics/metrics_detail.h"
#include "experiments/preflight/row_costs.h"
#include "experiments/preflight/strategies.h"
#include "experiments/simulate/replay.h"
#include "experiments/simulate/replay/replayed_settings.h"
#include "experiments/simulate/repricing.h"
#include "experiments/simulate/trace.h"

namespace speclab {
namespace {

using nlohmann::json;

constexpr int kLongestChain = 32;  // of the search for the break-even acceptance

bool has_draft_model(const Trace& trace) { return !trace.data->config.at("draft").is_null(); }

/// The trace of chains of the draft that is judged; null if there is none.
const Trace* trace_of_draft(const RunData& run, const std::vector<Trace>& traces) {
  const bool without_model = run.config.value("drafts", json::object()).empty();
  for (const Trace& trace : traces) {
    if (without_model ? is_searched_as(*trace.data, SearchedAs::ngram_chain) : has_draft_model(trace))
      return &trace;
  }
  return nullptr;
}

/// The target, or the draft of a case, as the config describes it.
json description_of_target(const RunData& run) { return run.config.value("target", json()); }
json description_of_draft(const RunData& run, const CaseData& data) {
  const json& name = data.config.at("draft");
  if (name.is_null()) {
    json ngrams = json::object();
    for (const char* option : {"order", "counts", "file"}) {
      const json value = data.options().value(option, json());
      if (!value.is_null() && value != "") ngrams[option] = value;
    }
    return {{"ngrams", ngrams}};
  }
  const json drafts = run.config.value("drafts", json::object());
  const json draft = drafts.value(name.get<std::string>(), json());
  return draft.is_object() && draft.size() == 1 && draft.contains("model") ? draft["model"] : draft;
}

json number_or_null(const std::optional<double>& value) { return value ? json(*value) : json(); }

std::string verdict_of(double low, double high) {
  return low > 1 ? "worth it" : high < 1 ? "not worth it" : "unclear";
}

/// [prompts]: non-empty drafts whose first token is the text's next token, and all non-empty drafts.
struct FirstTokens {
  std::vector<double> right, drafts;
};
FirstTokens first_tokens(const Trace& trace, const std::set<std::string>& prompts) {
  FirstTokens out;
  for (const PromptTexts& prompt : texts_by_prompt(trace)) {
    if (!prompts.contains(prompt.prompt)) continue;
    double right = 0, drafts = 0;
    for (const std::size_t text : prompt.texts) {
      for (const TracedDraft& draft : trace.texts[text].drafts) {
        drafts += draft.drafted() > 0 ? 1 : 0;
        right += draft.drafted() > 0 && draft.matching > 0 ? 1 : 0;
      }
    }
    out.right.push_back(right);
    out.drafts.push_back(drafts);
  }
  return out;
}

/// alpha of the draft on the prompts of `data`, which is the traced case or a part of it.
MetricValue alpha_of_draft(const Trace& trace, const CaseData& data) {
  if (has_draft_model(trace)) {
    const json metrics = compute_metrics(data, {"alpha_teacher_forced"});
    return {metrics.value("alpha_teacher_forced", json()),
            metrics.value("alpha_teacher_forced_ci95", json())};
  }
  const FirstTokens counts = first_tokens(trace, {data.prompts.begin(), data.prompts.end()});
  return ratio_of_sums(data, counts.right, counts.drafts);
}

/// Sets the two tables by category.
void add_categories(const Trace& trace, json& out) {
  const CaseData& data = *trace.data;
  const std::set<std::string> names(data.categories.begin(), data.categories.end());
  for (const std::string& name : names) {
    const auto part = data.of_category(name);
    part->intervals = false;
    const std::string shown = name.empty() ? "all" : name;
    const json metrics = compute_metrics(*part, {"acceptance_at"});
    out["alpha_by_category"][shown] = alpha_of_draft(trace, *part).value;
    out["acceptance_by_category"][shown] = metrics.value("acceptance_at", json());
  }
}

json row_of_length(const ReplayedSetting& setting) {
  return {{"gamma", setting.length},
          {"tau", setting.tau},
          {"tau_ci95", setting.tau_ci95},
          {"speedup", setting.speedup},
          {"speedup_ci95", setting.speedup_ci95}};
}

/// Sets "lengths" and "best" from the chains of the draft.
void add_lengths(const CaseData& data, const std::vector<ReplayedSetting>& settings, json& out) {
  std::map<int, json> rows;
  for (const ReplayedSetting& setting : settings) {
    if (setting.case_id == data.id()) rows[setting.length] = row_of_length(setting);
  }
  double most = 0;
  for (const auto& [length, row] : rows) {
    if (const double speedup = row.at("speedup"); speedup > most) {
      most = speedup;
      out["best"] = out["lengths"].size();
    }
    out["lengths"].push_back(row);
  }
}

/// Sets "recommended", "interval" and "verdict" from "strategies".
void add_judgement(json& out) {
  const json& strategies = out["strategies"];
  std::size_t recommended = 0;
  while (!strategies.at(recommended)["own"].get<bool>()) ++recommended;
  const json& setting = strategies[recommended];
  const double speedup = setting["speedup"];
  const json& ci = setting["speedup_ci95"];
  const double low = (ci.is_array() ? ci[0].get<double>() : speedup) * (1 - kReplayError),
               high = (ci.is_array() ? ci[1].get<double>() : speedup) * (1 + kReplayError);
  out["recommended"] = recommended;
  out["interval"] = {low, high};
  out["verdict"] = verdict_of(low, high);
}

/// What a case of the check measured; null without a speedup.
json measured_speedup(const CaseData& data) {
  const json metrics = compute_metrics(data, {"speedup"});
  const json speedup = metrics.value("speedup", json());
  if (!speedup.is_number()) return nullptr;
  return {{"case", data.id()},
          {"prompts", data.prompts.size()},
          {"speedup", speedup},
          {"speedup_ci95", metrics.value("speedup_ci95", json())}};
}

const CaseData& case_with_id(const RunData& run, const std::string& id) {
  for (const auto& data : run.cases) {
    if (data->id() == id) return *data;
  }
  throw Error({.what = "the check of speclab preflight",
               .got = "a run without the case " + id,
               .expected = "the run of the recommended settings",
               .advice = "Delete the folder of the check, or use another --out."});
}

}  // namespace

json preflight_verdict(const RunData& run, const std::vector<SimulatedDevice>& devices) {
  const std::vector<Trace> traces = read_traces(run);
  const Trace* const own = trace_of_draft(run, traces);
  if (own == nullptr) {
    throw Error({.what = "speclab preflight",
                 .got = "no traced case with the draft that drafted anything",
                 .expected = "a trace of the draft",
                 .advice = "configs/preflight.json is an example of a trace."});
  }
  const CaseData& data = *own->data;
  const auto costs = calibration_of(data, run.calibration);
  const json metrics = compute_metrics(data);
  const auto c = cost_per_drafted_token(data, metrics, run.calibration);
  if (!costs || !c) {
    throw Error({.what = data.id(),
                 .got = "no calibrated costs",
                 .expected = "the times of the draft and of the target",
                 .advice = "Give the config a calibration."});
  }
  const std::vector<ReplayedSetting> settings = replayed_settings(run, {});
  const MetricValue alpha = alpha_of_draft(*own, data);
  json out = {
      {"target", description_of_target(run)},
      {"draft", description_of_draft(run, data)},
      {"case", data.id()},
      {"prompts", data.prompts.size()},
      {"positions", traced_positions(*own)},
      {"alpha", alpha.value},
      {"alpha_ci95", alpha.ci95},
      {"alpha_by_category", json::object()},
      {"acceptance_at", metrics.value("acceptance_at", json())},
      {"acceptance_by_category", json::object()},
      {"c", *c},
      {"t", json::object()},
      {"row_costs", row_costs(*data.reference, run.calibration)},
      {"lengths", json::array()},
      {"best", nullptr},
      {"strategies", best_of_strategies(run, settings, data)},
      {"break_even_alpha", number_or_null(theory::break_even_alpha(*c, costs->target, kLongestChain))},
      {"devices", json::array()},
      {"check", nullptr},
      {"best_check", nullptr}};
  for (int n = 1; n <= longest_draft(*own) + 1 && n <= measured_rows(run.calibration); ++n)
    out["t"][std::to_string(n)] = costs->target.ratio(n);
  add_categories(*own, out);
  add_lengths(data, settings, out);
  add_judgement(out);
  for (const SimulatedDevice& device : devices) {
    const json simulation = repriced(run, device, {1});
    for (json row : simulation["drafts"]) {
      row["device"] = device.name;
      out["devices"].push_back(row);
    }
  }
  return out;
}

void add_check(json& verdict, const RunData& check, const CheckedCases& cases) {
  if (!cases.best.empty()) verdict["best_check"] = measured_speedup(case_with_id(check, cases.best));
  json own = measured_speedup(case_with_id(check, cases.own));
  if (own.is_null()) return;
  const double speedup = own["speedup"];
  const json ci = own["speedup_ci95"];
  const double low = ci.is_array() ? ci[0].get<double>() : speedup,
               high = ci.is_array() ? ci[1].get<double>() : speedup;
  const double predicted_low = verdict["interval"][0], predicted_high = verdict["interval"][1];
  const std::string said = verdict["verdict"], found = verdict_of(low, high);
  own["agrees"] = low <= predicted_high && high >= predicted_low;
  own["contradicts"] = said != found && said != "unclear" && found != "unclear";
  verdict["check"] = std::move(own);
}

}  // namespace speclab
