#include "experiments/simulate/replay.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <set>

#include "core/base/error.h"
#include "core/base/options_json.h"
#include "core/decoding/budget/step_costs.h"
#include "experiments/analysis/case_costs.h"
#include "experiments/analysis/table.h"
#include "experiments/metrics/metrics.h"
#include "experiments/metrics/metrics_detail.h"

namespace speclab {
namespace {

using nlohmann::json;

void add_replayed(Replayed& sum, const Replayed& one) {
  sum.steps += one.steps, sum.tokens += one.tokens;
  sum.drafted += one.drafted, sum.accepted += one.accepted;
  if (sum.lengths.size() < one.lengths.size()) sum.lengths.resize(one.lengths.size());
  for (std::size_t n = 0; n < one.lengths.size(); ++n) sum.lengths[n] += one.lengths[n];
}

/// The indices of the texts of each prompt.
std::vector<std::vector<std::size_t>> texts_by_prompt(const Trace& trace) {
  std::map<std::string, std::size_t> place;
  std::vector<std::vector<std::size_t>> out;
  for (std::size_t i = 0; i < trace.texts.size(); ++i) {
    const auto [found, added] = place.emplace(trace.texts[i].prompt, out.size());
    if (added) out.emplace_back();
    out[found->second].push_back(i);
  }
  return out;
}

std::set<std::string> prompts_of(const Trace& trace) {
  std::set<std::string> prompts;
  for (const TracedText& text : trace.texts) prompts.insert(text.prompt);
  return prompts;
}

std::vector<std::size_t> all_texts(const Trace& trace) {
  std::vector<std::size_t> all(trace.texts.size());
  std::iota(all.begin(), all.end(), std::size_t{0});
  return all;
}

double replayed_speedup(const Replayed& counts, const theory::Calibration& costs) {
  return counts.tau() * costs.t_ar / replayed_step(counts, costs).total();
}

double step_cost(const theory::Calibration& costs, int drafted, int accepted) {
  return costs.draft_step + costs.draft_token * drafted + costs.target.at(drafted + 1) + costs.accept_step +
         costs.accept_row * (accepted + 1) + costs.other;
}

/// The least time in which steps of at most `most` drafted tokens can make a text, if the accepted tokens are
/// known beforehand.
double least_time(const TracedText& text, int most, const theory::Calibration& costs) {
  const std::size_t count = text.drafts.size();
  std::vector<double> rest(count + 1, 0);  // rest[i]: least time from position i to the end
  for (std::size_t i = count; i-- > 0;) {
    const int useful = std::min({text.drafts[i].matching, most, static_cast<int>(count - i) - 1});
    rest[i] = std::numeric_limits<double>::infinity();
    for (int drafted = 0; drafted <= useful; ++drafted)
      rest[i] = std::min(
          rest[i], step_cost(costs, drafted, drafted) + rest[i + static_cast<std::size_t>(drafted) + 1]);
  }
  return rest[0];
}

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

/// Whether the trace has all that the setting asks for.
bool can_replay(const Trace& trace, const ReplaySetting& setting) {
  const ScheduleInfo& info = setting.schedule.info();
  if (!has_evidence(trace, info) || (info.needs_costs && setting.costs == nullptr)) return false;
  return Schedule(setting.schedule, setting.gamma, setting.costs.get()).largest() <= longest_draft(trace);
}

std::string threshold_text(const ScheduleOptions& schedule) {
  switch (schedule.schedule) {
    case ScheduleRule::confidence: return fmt::format("{}", schedule.confidence_threshold);
    case ScheduleRule::product: return fmt::format("{}", schedule.product_threshold);
    case ScheduleRule::entropy: return fmt::format("{}", schedule.entropy_threshold);
    case ScheduleRule::roc_confidence: return fmt::format("from {}", schedule.confidence_threshold);
    case ScheduleRule::adaptive_confidence:
    case ScheduleRule::adaptive_entropy: return fmt::format("from {}", schedule.first_threshold);
    default: return "";
  }
}

/// The calibrated times of forwards as a table of costs.
std::shared_ptr<const StepCosts> forwards_of(const theory::Calibration& costs, int most_rows) {
  auto table = std::make_shared<StepCosts>();
  for (int rows = 1; rows <= most_rows; ++rows) table->target_ns.push_back(costs.target.at(rows));
  if (costs.draft_token > 0) table->draft_ns = {costs.draft_token};
  return table;
}

json setting_row(const Trace& trace, const std::vector<Replayed>& by_prompt, const ReplaySetting& setting,
                 const std::optional<theory::Calibration>& costs) {
  Replayed sum;
  for (const Replayed& one : by_prompt) add_replayed(sum, one);
  json row = {{"gamma", setting.gamma},
              {"schedule", setting.schedule.info().name},
              {"threshold", threshold_text(setting.schedule)},
              {"tau", nullptr},
              {"tau_ci95", nullptr},
              {"draft_utilization", sum.drafted > 0 ? json(sum.accepted / sum.drafted) : json()},
              {"speedup", nullptr},
              {"speedup_ci95", nullptr},
              {"over_best", nullptr},
              {"over_best_ci95", nullptr}};
  if (sum.steps == 0) return row;
  const auto interval = [&](const auto& value) {
    return interval_json(stats::bootstrap_interval(
        by_prompt.size(),
        [&](std::span<const std::size_t> drawn) {
          Replayed sample;
          for (const std::size_t i : drawn) add_replayed(sample, by_prompt[i]);
          return sample.steps > 0 ? value(sample) : std::numeric_limits<double>::quiet_NaN();
        },
        trace.data->bootstrap()));
  };
  row["tau"] = sum.tau();
  row["tau_ci95"] = interval([](const Replayed& counts) { return counts.tau(); });
  if (costs) {
    row["speedup"] = replayed_speedup(sum, *costs);
    row["speedup_ci95"] = interval([&](const Replayed& counts) { return replayed_speedup(counts, *costs); });
  }
  return row;
}

std::vector<Replayed> replay_prompts(const Trace& trace, const ReplaySetting& setting) {
  std::vector<Replayed> out;
  for (const std::vector<std::size_t>& texts : texts_by_prompt(trace))
    out.push_back(replay(trace, texts, setting));
  return out;
}

/// Adds how much faster each setting is than the fastest constant gamma, on the same prompts.
void add_ratios(const Trace& trace, const theory::Calibration& costs,
                const std::vector<std::vector<Replayed>>& counts, json& entry) {
  const std::vector<Replayed>& base = counts[entry["best"].get<std::size_t>()];
  for (std::size_t setting = 0; setting < counts.size(); ++setting) {
    const auto ratio = [&](std::span<const std::size_t> prompts) {
      Replayed own, best;
      for (const std::size_t i : prompts) add_replayed(own, counts[setting][i]), add_replayed(best, base[i]);
      return own.steps > 0 ? replayed_speedup(own, costs) / replayed_speedup(best, costs)
                           : std::numeric_limits<double>::quiet_NaN();
    };
    std::vector<std::size_t> all(base.size());
    std::iota(all.begin(), all.end(), std::size_t{0});
    json& row = entry["settings"][setting];
    row["over_best"] = ratio(all);
    row["over_best_ci95"] =
        interval_json(stats::bootstrap_interval(all.size(), ratio, trace.data->bootstrap()));
  }
}

/// Adds the speedups of choices that only hindsight allows.
void add_oracles(const Trace& trace, const theory::Calibration& costs, const std::vector<int>& gammas,
                 json& out) {
  const int most = *std::max_element(gammas.begin(), gammas.end());
  double tokens = 0, least_ns = 0, best_ns = 0;
  for (const TracedText& text : trace.texts) {
    double best = std::numeric_limits<double>::infinity();
    for (const int gamma : gammas) {
      const Replayed counts = replay_one(text, {gamma, {}});
      if (counts.steps > 0) best = std::min(best, counts.steps * replayed_step(counts, costs).total());
    }
    if (text.drafts.empty()) continue;
    tokens += static_cast<double>(text.drafts.size());
    best_ns += best;
    least_ns += least_time(text, most, costs);
  }
  if (tokens == 0) return;
  out["best_per_text"] = tokens * costs.t_ar / best_ns;
  out["oracle"] = tokens * costs.t_ar / least_ns;
}

/// The options of a case without those that a replay may choose.
json fixed_options(const CaseData& data) {
  json options = data.options();
  for (const char* name : {"gamma", "length", "emit_at_most", "budget"}) options.erase(name);
  ScheduleOptions schedule;
  for (const OptionInfo& info : describe_options(option_fields(schedule))) options.erase(info.name);
  return options;
}

/// Whether two cases have the same options. An option that one of the records lacks, because it is older, is
/// not compared.
bool same_options(const CaseData& a, const CaseData& b) {
  const json first = fixed_options(a), second = fixed_options(b);
  for (const auto& [name, value] : first.items()) {
    if (second.contains(name) && second[name] != value) return false;
  }
  return true;
}

/// A trace from which the setting of a case can be replayed; null if there is none.
const Trace* trace_of(std::span<const Trace> traces, const CaseData& data, const ReplaySetting& setting) {
  for (const Trace& trace : traces) {
    const CaseData& own = *trace.data;
    if (own.config["strategy"] == data.config["strategy"] && own.config["draft"] == data.config["draft"] &&
        own.config["rule"] == data.config["rule"] && same_options(own, data) && can_replay(trace, setting))
      return &trace;
  }
  return nullptr;
}

/// The option that limits the length of a case's drafts. A case without a draft model copies up to `length`
/// tokens. Its gamma is that of an unused fallback.
const char* length_option(const CaseData& data) {
  return data.config["draft"].is_null() && data.options().contains("length") ? "length" : "gamma";
}

bool has_length(const CaseData& data) { return data.options().contains(length_option(data)); }

ReplaySetting setting_of(const CaseData& data) {
  const json& options = data.options();
  ReplaySetting setting;
  setting.gamma = options.at(length_option(data));
  json schedule = json::object();
  const json known = echo_options(option_fields(setting.schedule));
  for (const auto& [name, value] : known.items()) {
    if (options.contains(name)) schedule[name] = options[name];
  }
  parse_options(option_fields(setting.schedule), schedule, data.id());
  return setting;
}

}  // namespace

Replayed replay_one(const TracedText& text, const ReplaySetting& setting) {
  Replayed out;
  Schedule schedule(setting.schedule, setting.gamma, setting.costs.get());
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
      if (schedule.stop_after(draft.confidence[at], entropy)) break;
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

Replayed replay(const Trace& trace, std::span<const std::size_t> texts, const ReplaySetting& setting) {
  const int most = Schedule(setting.schedule, setting.gamma, setting.costs.get()).largest(),
            traced = longest_draft(trace);
  if (most > traced) {
    throw Error({.what = "speclab replay: " + trace.data->id(),
                 .got = fmt::format("a setting that drafts up to {} tokens", most),
                 .expected = fmt::format("at most {}, the longest draft of the trace", traced),
                 .advice = "Ask for shorter drafts, or record the trace with longer ones."});
  }
  Replayed sum;
  for (const std::size_t i : texts) add_replayed(sum, replay_one(trace.texts[i], setting));
  return sum;
}

theory::StepTimes replayed_step(const Replayed& counts, const theory::Calibration& costs) {
  return theory::calibrated_step(costs, counts.lengths, counts.tau());
}

json replayed(std::span<const Trace> traces, const json& calibration, const std::vector<int>& gammas,
              const std::vector<ScheduleOptions>& schedules) {
  json out = json::array();
  for (const Trace& trace : traces) {
    const auto costs = calibration_of(*trace.data, calibration);
    double positions = 0;
    for (const TracedText& text : trace.texts) positions += static_cast<double>(text.drafts.size());
    json entry = {{"case", trace.data->id()},  {"positions", positions}, {"settings", json::array()},
                  {"left_out", json::array()}, {"best", nullptr},        {"best_per_text", nullptr},
                  {"oracle", nullptr}};
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
      const std::string name(schedule.info().name);
      json& left_out = entry["left_out"];
      if (!has_evidence(trace, schedule.info()) &&
          std::find(left_out.begin(), left_out.end(), json(name)) == left_out.end())
        left_out.push_back(name);
      for (const int gamma : possible) {
        ReplaySetting setting{gamma, schedule, step_costs};
        setting.schedule.gamma_max = std::min(schedule.gamma_max, longest);
        if (!can_replay(trace, setting)) continue;
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
    if (costs) add_oracles(trace, *costs, possible, entry);
    out.push_back(entry);
  }
  return {{"traces", out}};
}

json replay_check(std::span<const Trace> traces, const json& calibration, const RunData& measured) {
  json out = json::array();
  for (const auto& data : measured.cases) {
    if (!data->reference || !has_length(*data)) continue;
    const ReplaySetting setting = setting_of(*data);
    const Trace* trace = trace_of(traces, *data, setting);
    if (trace == nullptr) continue;
    if (std::set(data->prompts.begin(), data->prompts.end()) != prompts_of(*trace)) continue;
    const json metrics = compute_metrics(*data);
    const Replayed counts = replay(*trace, all_texts(*trace), setting);
    json row = {{"case", data->id()},           {"tau", metrics.value("tau", json())},
                {"replayed_tau", counts.tau()}, {"speedup", metrics.value("speedup", json())},
                {"replayed_speedup", nullptr},  {"error", nullptr}};
    if (const auto costs = calibration_of(*data, calibration)) {
      row["replayed_speedup"] = replayed_speedup(counts, *costs);
      if (row["speedup"].is_number())
        row["error"] = row["replayed_speedup"].get<double>() / row["speedup"].get<double>() - 1;
    }
    out.push_back(row);
  }
  return out;
}

std::string replay_text(const json& replay) {
  std::string text =
      "Replayed from a trace: no model ran. tau is exact for drafters that look at the text alone; times "
      "come "
      "from the calibration.\n";
  for (const json& trace : replay["traces"]) {
    Table table{.header = {"gamma", "schedule", "threshold", "tau", "draft utilization", "predicted speedup",
                           "over best gamma"},
                .rows = {},
                .right = {true, false, true, true, true, true, true}};
    std::size_t index = 0;
    for (const json& row : trace["settings"]) {
      const bool best = trace["best"].is_number() && trace["best"] == index++;
      table.rows.push_back({row["gamma"].dump(), row["schedule"], row["threshold"], interval_text(row, "tau"),
                            number_text(row["draft_utilization"]),
                            interval_text(row, "speedup") + (best ? " best" : ""),
                            interval_text(row, "over_best")});
    }
    text += fmt::format("\n{}: {:.0f} positions\n{}\n", trace["case"].get<std::string>(),
                        trace["positions"].get<double>(), to_text(table));
    for (const json& name : trace["left_out"])
      text += fmt::format("not replayed: {}; the trace lacks what this schedule looks at\n",
                          name.get<std::string>());
    if (trace["oracle"].is_number())
      text += fmt::format(
          "speedup with the best gamma of each text: {:.3f}; with the best draft length of each step, "
          "chosen in hindsight: {:.3f}\n",
          trace["best_per_text"].get<double>(), trace["oracle"].get<double>());
  }
  return text;
}

std::string replay_check_text(const json& comparison) {
  Table table{.header = {"case", "tau", "replayed tau", "speedup", "replayed speedup", "error"},
              .rows = {},
              .right = {false, true, true, true, true, true}};
  for (const json& row : comparison) {
    table.rows.push_back(
        {row["case"], number_text(row["tau"], 5), number_text(row["replayed_tau"], 5),
         number_text(row["speedup"]), number_text(row["replayed_speedup"]),
         row["error"].is_number() ? fmt::format("{:+.1f} %", 100 * row["error"].get<double>()) : "—"});
  }
  return to_text(table);
}

}  // namespace speclab
