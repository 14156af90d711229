#include "experiments/simulate/replay/checked_replay.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <memory>
#include <set>
#include <utility>

#include "core/base/files.h"
#include "core/base/options_json.h"
#include "core/decoding/registry.h"
#include "experiments/simulate/replay.h"
#include "experiments/simulate/replay/tree_replay.h"

namespace speclab {
namespace {

using nlohmann::json;

/// The options of a case without `others` and without those that a replay may choose.
json fixed_options(const CaseData& data, std::initializer_list<const char*> others) {
  json options = data.options();
  for (const char* name : {"gamma", "length", "emit_at_most", "budget"}) options.erase(name);
  for (const char* name : others) options.erase(name);
  ScheduleOptions schedule;
  for (const OptionInfo& info : describe_options(option_fields(schedule))) options.erase(info.name);
  return options;
}

/// The option that limits the length of a case's drafts. A case without a draft model copies up to `length`
/// tokens. Its gamma belongs to an unused fallback.
const char* length_option(const CaseData& data) {
  return data.config["draft"].is_null() && data.options().contains("length") ? "length" : "gamma";
}

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

/// The indices of the texts by prompt; absent unless the texts and the case have the same prompts.
template <class Text>
std::optional<std::map<std::string, std::vector<std::size_t>>> texts_of_prompts(
    const std::vector<Text>& texts, const CaseData& data) {
  std::map<std::string, std::vector<std::size_t>> out;
  for (std::size_t i = 0; i < texts.size(); ++i) out[texts[i].prompt].push_back(i);
  const std::set<std::string> measured(data.prompts.begin(), data.prompts.end());
  const bool same = measured.size() == out.size() &&
                    std::ranges::all_of(measured, [&](const auto& prompt) { return out.contains(prompt); });
  if (!same) return std::nullopt;
  return out;
}

/// The replay of a case of chains; absent if no trace fits.
std::optional<CheckedReplay> chain_replay(std::span<const Trace> traces, const CaseData& data,
                                          const std::optional<theory::Calibration>& costs) {
  if (!data.options().contains(length_option(data))) return std::nullopt;
  const ReplaySetting setting = setting_of(data);
  for (const Trace& trace : traces) {
    if (!same_drafter(*trace.data, data)) continue;
    if (!why_left_out(trace, setting.schedule, false).empty()) continue;
    if (Schedule(setting.schedule, setting.gamma).largest() > longest_draft(trace)) continue;
    auto texts = texts_of_prompts(trace.texts, data);
    if (!texts) return std::nullopt;
    return CheckedReplay{trace.certainty, *std::move(texts),
                         [&trace, setting, costs](std::span<const std::size_t> chosen) {
                           const Replayed counts = replay(trace, chosen, setting);
                           PredictedSteps out{.steps = counts.steps};
                           if (counts.steps == 0) return out;
                           out.tau = counts.tau();
                           if (costs)
                             out.step_ns = replayed_step(counts, *costs).total(), out.t_ar = costs->t_ar;
                           return out;
                         }};
  }
  return std::nullopt;
}

/// The trees of a case, from its options; absent if it drafts no trees of a known shape.
std::optional<NamedTrees> trees_of_case(const CaseData& data) {
  const json& options = data.options();
  if (!drafts_best_tokens(data) || options.value("budget", "fixed") != "fixed" ||
      options.value("sequences", 0) > 0)
    return std::nullopt;
  const std::string file = options.value("tree", "");
  if (!file.empty() && !path_exists(file)) return std::nullopt;
  if (!file.empty()) return named_trees(file);
  const std::vector<int> widths = options.value("widths", std::vector<int>());
  if (widths.empty()) return std::nullopt;
  return NamedTrees{data.id(), TreeShape::of_widths(widths, data.id())};
}

/// The replay of a case of trees; absent if no trace fits.
std::optional<CheckedReplay> tree_replay(std::span<const RankTrace> traces, const CaseData& data,
                                         const std::optional<theory::Calibration>& costs) {
  const StrategyInfo* info = recorded_strategy(data.config.value("strategy", ""));
  if (info == nullptr || !info->drafts_any_shape) return std::nullopt;
  auto trees = trees_of_case(data);
  if (!trees) return std::nullopt;
  const auto shared = std::make_shared<const NamedTrees>(*std::move(trees));
  for (const RankTrace& trace : traces) {
    // Ranks do not depend on how many children there are, nor on how the best tokens were asked for.
    if (!same_drafter(*trace.data, data,
                      {"widths", "sequences", "tree", "root_confidence", "children", "used_up"}))
      continue;
    auto texts = texts_of_prompts(trace.texts, data);
    if (!texts) return std::nullopt;
    return CheckedReplay{
        trace.certainty, *std::move(texts), [&trace, shared, costs](std::span<const std::size_t> chosen) {
          const TreeReplayed counts = replay_trees(trace, chosen, shared->trees);
          PredictedSteps out{.steps = counts.steps};
          if (counts.steps == 0) return out;
          out.tau = counts.tau();
          if (costs) {
            out.step_ns = theory::calibrated_rows_step(rows_of_trees(counts, *costs)).total();
            out.t_ar = costs->t_ar;
          }
          return out;
        }};
  }
  return std::nullopt;
}

/// The prediction of a law that is about the case; absent if there is none.
std::optional<CheckedReplay> law_replay(std::span<const FittedLaw> laws, const CaseData& data,
                                        const std::optional<theory::Calibration>& costs) {
  for (const FittedLaw& law : laws) {
    if (!law.about(data)) continue;
    const LawStep step = law.predict(data.options());
    PredictedSteps out{.steps = 1, .tau = step.tau, .step_ns = law.step_ns(step, costs)};
    if (costs) out.t_ar = costs->t_ar;
    else if (const theory::Calibration* nearest = law.nearest_costs(step.rows)) out.t_ar = nearest->t_ar;
    return CheckedReplay{Certainty::fitted, {}, [out](std::span<const std::size_t>) { return out; }};
  }
  return std::nullopt;
}

}  // namespace

bool same_drafter(const CaseData& a, const CaseData& b, std::initializer_list<const char*> but_for) {
  for (const char* name : {"strategy", "draft", "rule"}) {
    if (a.config[name] != b.config[name]) return false;
  }
  const json first = fixed_options(a, but_for), second = fixed_options(b, but_for);
  for (const auto& [name, value] : first.items()) {
    if (second.contains(name) && second[name] != value) return false;
  }
  return true;
}

std::optional<CheckedReplay> checked_replay(const ReplaySources& sources, const CaseData& data,
                                            const std::optional<theory::Calibration>& costs) {
  if (auto chain = chain_replay(sources.traces, data, costs)) return chain;
  if (auto tree = tree_replay(sources.rank_traces, data, costs)) return tree;
  return law_replay(sources.laws, data, costs);
}

}  // namespace speclab
