#include "experiments/simulate/replay.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>

#include "core/base/error.h"
#include "core/decoding/budget/step_costs.h"
#include "core/decoding/drafting/schedules/controller.h"
#include "experiments/analysis/case_costs.h"
#include "experiments/analysis/table.h"
#include "experiments/metrics/metrics.h"
#include "experiments/metrics/metrics_detail.h"
#include "experiments/simulate/replay/oracles.h"
#include "experiments/simulate/replay/step_prices.h"

namespace speclab {
namespace {

using nlohmann::json;

/// Whether the trace has what the schedule looks at: the drafter's confidence in each drafted token, or the
/// entropy of the rows of these tokens.
bool has_evidence(const Trace& trace, const ScheduleInfo& schedule) {
  for (const TracedText& text : trace.texts) {
    for (const TracedDraft& draft : text.drafts) {
      if (draft.drafted() == 0) continue;
      const bool confidence = draft.confidence.front() >= 0,
                 entropy = !draft.entropy.empty() && draft.entropy.front() >= 0;
      return (confidence || !schedule.needs_confidence) && (entropy || !schedule.needs_entropy);
    }
  }
  return !schedule.needs_confidence && !schedule.needs_entropy;
}

/// How many of the largest probabilities of a row the trace has.
int traced_top(const Trace& trace) {
  for (const TracedText& text : trace.texts) {
    for (const TracedDraft& draft : text.drafts) {
      if (draft.drafted() > 0) return static_cast<int>(draft.top_of(0).size());
    }
  }
  return 0;
}

/// Throws Error if the controller was trained for another draft than the trace has. Does nothing if the
/// record does not describe the draft.
void require_traced_draft(const Trace& trace, const Controller& controller) {
  const json& environment = trace.data->environment;
  if (!environment.is_object()) return;
  const json draft = trace.data->config.value("draft", json());
  const std::string role = draft.is_string() ? draft.get<std::string>() : "target";
  const json models = environment.value("models", json::object());
  if (!models.contains(role)) return;
  controller.require_draft(models[role].value("name", ""), models[role].value("sha256", ""));
}

/// Why the controller of a schedule cannot be used with a trace; "" if it can.
std::string why_no_controller(const Trace& trace, const ScheduleOptions& schedule) {
  if (schedule.controller.empty()) return "this schedule needs a controller: --controller FILE";
  try {
    const Controller controller = Controller::read(schedule.controller);
    if (controller.top() > traced_top(trace)) {
      return fmt::format(
          "{} looks at the {} largest probabilities of a row, but the trace has {}. Record it with "
          "speclab trace --evidence top",
          schedule.controller, controller.top(), traced_top(trace));
    }
    require_traced_draft(trace, controller);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

std::string threshold_text(const ScheduleOptions& schedule) {
  switch (schedule.schedule) {
    case ScheduleRule::confidence: return fmt::format("{}", schedule.confidence_threshold);
    case ScheduleRule::product: return fmt::format("{}", schedule.product_threshold);
    case ScheduleRule::entropy: return fmt::format("{}", schedule.entropy_threshold);
    case ScheduleRule::roc_confidence: return fmt::format("from {}", schedule.confidence_threshold);
    case ScheduleRule::adaptive_confidence:
    case ScheduleRule::adaptive_entropy: return fmt::format("from {}", schedule.first_threshold);
    case ScheduleRule::disco:
    case ScheduleRule::specdec_pp:
      return schedule.controller_threshold < 0
                 ? fmt::format("of {}", schedule.controller)
                 : fmt::format("{} of {}", schedule.controller_threshold, schedule.controller);
    default: return "";
  }
}

/// The counts of the drawn prompts together.
Replayed sum_of_prompts(const std::vector<Replayed>& by_prompt, std::span<const std::size_t> drawn) {
  Replayed sum;
  for (const std::size_t i : drawn) add_replayed(sum, by_prompt[i]);
  return sum;
}

std::vector<std::size_t> numbers_up_to(std::size_t count) {
  std::vector<std::size_t> all(count);
  std::iota(all.begin(), all.end(), std::size_t{0});
  return all;
}

json setting_row(const Trace& trace, const std::vector<Replayed>& by_prompt, const ReplaySetting& setting,
                 const std::optional<theory::Calibration>& costs) {
  const Replayed sum = sum_of_prompts(by_prompt, numbers_up_to(by_prompt.size()));
  json row = {{"gamma", setting.gamma},
              {"schedule", setting.schedule.info().name},
              {"threshold", threshold_text(setting.schedule)},
              {"tau", nullptr},
              {"tau_ci95", nullptr},
              {"draft_utilization", sum.drafted > 0 ? json(sum.accepted / sum.drafted) : json()},
              {"speedup", nullptr},
              {"speedup_ci95", nullptr},
              {"ms_per_token", nullptr},
              {"over_best", nullptr},
              {"over_best_ci95", nullptr},
              {"regret", nullptr},
              {"regret_ci95", nullptr}};
  if (sum.steps == 0) return row;
  const auto interval = [&](const auto& value) {
    return interval_json(stats::bootstrap_interval(
        by_prompt.size(),
        [&](std::span<const std::size_t> drawn) {
          const Replayed sample = sum_of_prompts(by_prompt, drawn);
          return sample.steps > 0 ? value(sample) : std::numeric_limits<double>::quiet_NaN();
        },
        trace.data->bootstrap()));
  };
  row["tau"] = sum.tau();
  row["tau_ci95"] = interval([](const Replayed& counts) { return counts.tau(); });
  if (costs) {
    row["speedup"] = replayed_speedup(sum, *costs);
    row["speedup_ci95"] = interval([&](const Replayed& counts) { return replayed_speedup(counts, *costs); });
    row["ms_per_token"] = 1e-6 * replayed_step(sum, *costs).total() / sum.tau();
  }
  return row;
}

std::vector<Replayed> replay_prompts(const Trace& trace, const ReplaySetting& setting) {
  std::vector<Replayed> out;
  for (const PromptTexts& prompt : texts_by_prompt(trace))
    out.push_back(replay(trace, prompt.texts, setting));
  return out;
}

/// Adds how much faster each setting is than the fastest constant gamma, on the same prompts.
void add_ratios(const Trace& trace, const theory::Calibration& costs,
                const std::vector<std::vector<Replayed>>& counts, json& entry) {
  const std::vector<Replayed>& base = counts[entry["best"].get<std::size_t>()];
  for (std::size_t setting = 0; setting < counts.size(); ++setting) {
    const auto ratio = [&](std::span<const std::size_t> prompts) {
      const Replayed own = sum_of_prompts(counts[setting], prompts), best = sum_of_prompts(base, prompts);
      return own.steps > 0 ? replayed_speedup(own, costs) / replayed_speedup(best, costs)
                           : std::numeric_limits<double>::quiet_NaN();
    };
    json& row = entry["settings"][setting];
    row["over_best"] = ratio(numbers_up_to(base.size()));
    row["over_best_ci95"] =
        interval_json(stats::bootstrap_interval(base.size(), ratio, trace.data->bootstrap()));
  }
}

/// Adds the choices that only hindsight allows, and the regret of each setting.
void add_oracles(const PricedTrace& own, std::span<const PricedTrace> all, const std::vector<int>& gammas,
                 const std::vector<std::vector<Replayed>>& counts, json& entry) {
  const CaseData& data = *own.trace->data;
  std::vector<double> tokens;
  for (const PromptTexts& prompt : texts_by_prompt(*own.trace)) {
    double sum = 0;
    for (const std::size_t text : prompt.texts)
      sum += static_cast<double>(own.trace->texts[text].drafts.size());
    tokens.push_back(sum);
  }
  if (std::accumulate(tokens.begin(), tokens.end(), 0.0) == 0) return;
  entry["oracles"] = json::object();
  for (json& row : entry["settings"]) row["regret"] = row["regret_ci95"] = json::object();
  for (const Oracle& oracle : oracles_of(own, all, gammas)) {
    std::vector<double> ms(oracle.ns);
    for (double& time : ms) time *= 1e-6;
    const MetricValue per_token = ratio_of_sums(data, ms, tokens);
    json& out = entry["oracles"][oracle.name] = oracle.choice;
    out["ms_per_token"] = per_token.value;
    out["ms_per_token_ci95"] = per_token.ci95;
    out["speedup"] = 1e-6 * own.prices.reference() / per_token.value.get<double>();
    for (std::size_t setting = 0; setting < counts.size(); ++setting) {
      std::vector<double> ns;
      for (const Replayed& one : counts[setting]) ns.push_back(own.prices.time(one));
      json& row = entry["settings"][setting];
      add_regret(data, ns, tokens, oracle, row["regret"], row["regret_ci95"]);
    }
  }
}

/// The traces whose cases have calibrated costs, with the prices of their steps.
std::vector<PricedTrace> priced_traces(std::span<const Trace> traces, const json& calibration) {
  std::vector<PricedTrace> out;
  for (const Trace& trace : traces) {
    if (const auto costs = calibration_of(*trace.data, calibration))
      out.push_back({&trace, StepPrices(*costs, longest_draft(trace))});
  }
  return out;
}

/// The tables of the oracles and of the regret of each setting.
std::string regret_text(const json& trace) {
  std::string text = "\nOracles, which know what will be accepted:\n";
  Table oracles{
      .header = {"oracle", "ms/token", "speedup", "choice"}, .rows = {}, .right = {false, true, true, false}};
  Table regrets{.header = {"gamma", "schedule", "threshold"}, .rows = {}, .right = {true, false, true}};
  for (const auto& [name, oracle] : trace["oracles"].items()) {
    std::string choice;
    if (oracle.contains("case")) choice += oracle["case"].get<std::string>() + " ";
    if (oracle.contains("gamma")) choice += fmt::format("gamma {}", oracle["gamma"].get<int>());
    oracles.rows.push_back(
        {name, interval_text(oracle, "ms_per_token"), number_text(oracle["speedup"]), choice});
    regrets.header.push_back(name);
    regrets.right.push_back(true);
  }
  for (const json& row : trace["settings"]) {
    regrets.rows.push_back({row["gamma"].dump(), row["schedule"], row["threshold"]});
    for (const auto& [name, oracle] : trace["oracles"].items()) {
      const json value = {{"regret", row["regret"][name]}, {"regret_ci95", row["regret_ci95"][name]}};
      regrets.rows.back().push_back(interval_text(value, "regret"));
    }
  }
  return text + to_text(oracles) + "\nRegret: ms that a token takes longer than with the oracle\n" +
         to_text(regrets);
}

}  // namespace

void add_replayed(Replayed& sum, const Replayed& one) {
  sum.steps += one.steps, sum.tokens += one.tokens;
  sum.drafted += one.drafted, sum.accepted += one.accepted;
  if (sum.lengths.size() < one.lengths.size()) sum.lengths.resize(one.lengths.size());
  for (std::size_t n = 0; n < one.lengths.size(); ++n) sum.lengths[n] += one.lengths[n];
}

std::vector<PromptTexts> texts_by_prompt(const Trace& trace) {
  std::map<std::string, std::size_t> place;
  std::vector<PromptTexts> out;
  for (std::size_t i = 0; i < trace.texts.size(); ++i) {
    const auto [found, added] = place.emplace(trace.texts[i].prompt, out.size());
    if (added) out.push_back({trace.texts[i].prompt, {}});
    out[found->second].texts.push_back(i);
  }
  return out;
}

std::vector<std::size_t> all_texts(const Trace& trace) { return numbers_up_to(trace.texts.size()); }

Replayed replay_one(const TracedText& text, const ReplaySetting& setting) {
  Schedule schedule(setting.schedule, setting.gamma, setting.costs.get());
  return replay_one(text, schedule);
}

Replayed replay_one(const TracedText& text, Schedule& schedule) {
  Replayed out;
  schedule.begin(text.turn);
  const std::size_t count = text.drafts.size();
  for (std::size_t i = 0; i < count;) {
    const TracedDraft& draft = text.drafts[i];
    const int limit = std::min(schedule.limit(), draft.drafted());
    schedule.start_draft();
    int drafted = 0;
    while (drafted < limit) {
      const auto at = static_cast<std::size_t>(drafted++);
      const double entropy = at < draft.entropy.size() ? draft.entropy[at] : -1;
      if (schedule.stop_after(draft.confidence[at], entropy, draft.top_of(at))) break;
    }
    const int left = static_cast<int>(count - i), accepted = std::min({drafted, draft.matching, left});
    const int emitted = std::min(accepted + 1, left);
    if (drafted > 0) schedule.observe(drafted, accepted);
    if (out.lengths.size() <= static_cast<std::size_t>(drafted))
      out.lengths.resize(static_cast<std::size_t>(drafted) + 1);
    out.lengths[static_cast<std::size_t>(drafted)] += 1;
    out.steps += 1, out.tokens += emitted, out.drafted += drafted, out.accepted += accepted;
    i += static_cast<std::size_t>(emitted);
  }
  return out;
}

int longest_draft(const Trace& trace) {
  int longest = 0;
  for (const TracedText& text : trace.texts) {
    for (const TracedDraft& draft : text.drafts) longest = std::max(longest, draft.drafted());
  }
  return longest;
}

double traced_positions(const Trace& trace) {
  double positions = 0;
  for (const TracedText& text : trace.texts) positions += static_cast<double>(text.drafts.size());
  return positions;
}

Replayed replay(const Trace& trace, std::span<const std::size_t> texts, const ReplaySetting& setting) {
  Schedule schedule(setting.schedule, setting.gamma, setting.costs.get());
  const int most = schedule.largest(), traced = longest_draft(trace);
  if (most > traced) {
    throw Error({.what = "speclab replay: " + trace.data->id(),
                 .got = fmt::format("a setting that drafts up to {} tokens", most),
                 .expected = fmt::format("at most {}, the longest draft of the trace", traced),
                 .advice = "Ask for shorter drafts, or record the trace with longer ones."});
  }
  Replayed sum;
  for (const std::size_t i : texts) add_replayed(sum, replay_one(trace.texts[i], schedule));
  return sum;
}

theory::StepTimes replayed_step(const Replayed& counts, const theory::Calibration& costs) {
  return theory::calibrated_step(costs, counts.lengths, counts.tau());
}

double replayed_speedup(const Replayed& counts, const theory::Calibration& costs) {
  return counts.tau() * costs.t_ar / replayed_step(counts, costs).total();
}

std::string why_left_out(const Trace& trace, const ScheduleOptions& schedule, bool costs) {
  const ScheduleInfo& info = schedule.info();
  if (!has_evidence(trace, info)) return "the trace lacks what this schedule looks at";
  if (info.needs_costs && !costs)
    return "this schedule needs costs, and the calibration has none of the case";
  return info.needs_controller ? why_no_controller(trace, schedule) : "";
}

std::shared_ptr<const StepCosts> forwards_of(const theory::Calibration& costs, int most_rows) {
  auto table = std::make_shared<StepCosts>();
  for (int rows = 1; rows <= most_rows; ++rows) table->target_ns.push_back(costs.target.at(rows));
  if (costs.draft_token > 0) table->draft_ns = {costs.draft_token};
  return table;
}

json replayed(std::span<const Trace> traces, const json& calibration, const std::vector<int>& gammas,
              const std::vector<ScheduleOptions>& schedules) {
  json out = json::array();
  const std::vector<PricedTrace> priced = priced_traces(traces, calibration);
  for (const Trace& trace : traces) {
    const auto costs = calibration_of(*trace.data, calibration);
    json entry = {{"case", trace.data->id()},
                  {"positions", traced_positions(trace)},
                  {"certainty", std::string(to_string(trace.certainty))},
                  {"settings", json::array()},
                  {"left_out", json::array()},
                  {"best", nullptr},
                  {"oracles", nullptr}};
    const int longest = longest_draft(trace);
    std::vector<int> possible;
    for (const int gamma : gammas) {
      if (gamma <= longest) possible.push_back(gamma);
    }
    if (possible.empty()) continue;
    const auto step_costs = costs ? forwards_of(*costs, longest + 1) : nullptr;
    double best = 0;
    std::vector<std::vector<Replayed>> counts;  // [settings][prompts]
    for (const ScheduleOptions& schedule : schedules) {
      const std::string reason = why_left_out(trace, schedule, step_costs != nullptr);
      if (!reason.empty()) {
        const json left = {{"schedule", std::string(schedule.info().name)}, {"reason", reason}};
        json& left_out = entry["left_out"];
        if (std::find(left_out.begin(), left_out.end(), left) == left_out.end()) left_out.push_back(left);
        continue;
      }
      for (const int gamma : possible) {
        ReplaySetting setting{gamma, schedule, step_costs};
        setting.schedule.gamma_max = std::min(schedule.gamma_max, longest);
        if (Schedule(setting.schedule, gamma, step_costs.get()).largest() > longest) continue;
        counts.push_back(replay_prompts(trace, setting));
        const json row = setting_row(trace, counts.back(), setting, costs);
        if (schedule.schedule == ScheduleRule::constant && row["speedup"].is_number() &&
            row["speedup"].get<double>() > best) {
          best = row["speedup"];
          entry["best"] = entry["settings"].size();
        }
        entry["settings"].push_back(row);
      }
    }
    if (costs && entry["best"].is_number()) add_ratios(trace, *costs, counts, entry);
    const auto own = std::ranges::find(priced, &trace, &PricedTrace::trace);
    if (own != priced.end()) add_oracles(*own, priced, gammas, counts, entry);
    out.push_back(entry);
  }
  return {{"traces", out}};
}

std::string replay_text(const json& replay) {
  std::string text =
      "Replayed from a trace: no model ran. Times come from the calibration. Constant lengths are priced as "
      "steps of the traced case. If that case computes confidences or entropies at temperature 0, this "
      "computation is part of the price, although a real constant length does without it: "
      "\"over best gamma\" then favours schedules.\n";
  bool expectations = false;
  for (const json& trace : replay["traces"]) {
    expectations = expectations || trace["certainty"] == std::string(to_string(Certainty::expectation));
    Table table{.header = {"gamma", "schedule", "threshold", "tau", "draft utilization", "predicted speedup",
                           "over best gamma"},
                .rows = {},
                .right = {true, false, true, true, true, true, true}};
    std::size_t index = 0;
    for (const json& row : trace["settings"]) {
      const bool best = trace["best"].is_number() && trace["best"] == index;
      ++index;
      table.rows.push_back({row["gamma"].dump(), row["schedule"], row["threshold"], interval_text(row, "tau"),
                            number_text(row["draft_utilization"]),
                            interval_text(row, "speedup") + (best ? " best" : ""),
                            interval_text(row, "over_best")});
    }
    text +=
        fmt::format("\n{}: {:.0f} positions, tau: {}\n{}\n", trace["case"].get<std::string>(),
                    trace["positions"].get<double>(), trace["certainty"].get<std::string>(), to_text(table));
    for (const json& left : trace["left_out"])
      text += fmt::format("not replayed: {}; {}\n", left["schedule"].get<std::string>(),
                          left["reason"].get<std::string>());
    if (trace["oracles"].is_object()) text += regret_text(trace);
  }
  if (expectations) text += fmt::format("\n{}\n", assumptions_of(Certainty::expectation));
  return text;
}

}  // namespace speclab
