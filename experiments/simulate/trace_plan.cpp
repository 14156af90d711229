#include "experiments/simulate/trace_plan.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>
#include <utility>

#include "core/base/error.h"
#include "core/base/files.h"
#include "core/base/options_json.h"
#include "core/decoding/drafting/schedule.h"
#include "core/decoding/drafting/trees_by_confidence.h"
#include "core/decoding/registry.h"
#include "core/measure/run_result.h"
#include "experiments/config/config_file.h"
#include "experiments/simulate/replay/certainty.h"

namespace speclab {
namespace {

using nlohmann::json;

constexpr int kTreeDraftRows = 32;  // rows of draft forwards that the calibration measures for trees

/// A case of the trace, which stands for one or more cases of the config.
struct PlannedTrace {
  json entry;               // of "cases", without its length
  std::string length_name;  // option for the length of drafts; "" if the strategy has none
  int length = 0;
  bool root_confidence = false;
};

/// The entries of `values` that differ from the same entries of `usual`.
json differing(const json& values, const json& usual) {
  json out = json::object();
  for (const auto& [name, value] : values.items()) {
    if (usual.at(name) != value) out[name] = value;
  }
  return out;
}

json options_of_strategy(const CaseSpec& spec) {
  StrategyChoice chosen = spec.strategy;
  return echo_options(chosen.fields());
}

/// The generation options of a case that are not the defaults, without those that a trace sets itself.
json generation_of(const CaseSpec& spec) {
  GenerationOptions own = spec.generation, usual;
  json out = differing(echo_options(option_fields(own)), echo_options(option_fields(usual)));
  for (const char* name : {"emit_at_most", "device_loop", "device_graph"}) out.erase(name);
  return out;
}

/// Whether the text of the case depends on where its steps begin (text_follows_steps).
bool samples_with_own_coins(const CaseSpec& spec) {
  return spec.loss_class() == LossClass::l1 && spec.generation.coins != CoinUse::gumbel;
}

/// Throws Error if no replay can tell what the rule of the case would accept.
void require_replayed_rule(const CaseSpec& spec) {
  const std::string what = fmt::format("{} ({})", spec.where, spec.id);
  if (spec.loss_class() == LossClass::l3) {
    throw Error({.what = what,
                 .got = fmt::format("the lossy rule \"{}\"", spec.generation.acceptance_rule().name),
                 .expected = "a lossless rule, so that the text does not depend on the drafts",
                 .advice = "Leave the case out with --filter."});
  }
  if (!samples_with_own_coins(spec)) return;
  const std::string reason = why_not_expected(spec.generation.acceptance_rule());
  if (reason.empty()) return;
  throw Error({.what = what,
               .got = fmt::format("temperature {} with independent coins, and {}",
                                  spec.generation.sampling.temperature, reason),
               .expected = "temperature 0, or \"coins\": \"gumbel\", or a rule that judges token by token",
               .advice = "Use --set temperature=0, --set coins=gumbel or --set rule=rejection."});
}

/// Why a trace of the case could not be replayed; "" if it can (why_not_replayed() in trace.h).
std::string why_no_trace(const CaseSpec& spec) {
  const StrategyInfo& info = spec.strategy.info();
  if (info.follows_steps) return "its drafts depend on earlier steps";
  if (!samples_with_own_coins(spec) || info.drafts_model_chains) return "";
  const bool copies = spec.drafts.empty() && !info.drafts_with_target;
  if (!copies && !info.drafts_any_shape) return "its drafts are drawn, but not by a draft model alone";
  const AcceptanceRule& rule = spec.generation.acceptance_rule();
  if (rule.accepts_what_it_emits) return "";
  return fmt::format("the rule \"{}\" may emit a copied token that it did not accept", rule.name);
}

/// Plans a case of trees of any shape; absent if a replay cannot use it.
std::optional<PlannedTrace> plan_trees(const CaseSpec& spec, const json& options, int width,
                                       std::string& note) {
  const double draft = options.value("draft_temperature", -1.0),
               temperature = draft < 0 ? spec.generation.sampling.temperature : draft;
  const std::string children = options.value("children", "");
  const bool best = children == "best" || (children == "without_replacement" && temperature == 0);
  if (!best || options.value("sequences", 0) > 0) {
    note = fmt::format("{}: its children are not the draft's best tokens", spec.id);
    return std::nullopt;
  }
  PlannedTrace out;
  StrategyChoice usual(find_strategy(spec.strategy.info().name));
  out.entry = differing(options, echo_options(usual.fields()));
  const std::string file = options.value("tree", "");
  out.root_confidence =
      options.value("root_confidence", false) || (!file.empty() && TreesByConfidence::read(file).several());
  for (const char* name : {"widths", "sequences", "length", "tree", "root_confidence"}) out.entry.erase(name);
  out.entry["widths"] = json::array({width});
  return out;
}

PlannedTrace plan_chain(const CaseSpec& spec, const json& options, const TraceWish& wish) {
  PlannedTrace out;
  StrategyChoice usual(find_strategy(spec.strategy.info().name));
  out.entry = differing(options, echo_options(usual.fields()));
  // A case without a draft model copies up to `length` tokens. Its gamma belongs to an unused fallback.
  out.length_name = spec.drafts.empty() && options.contains("length") ? "length"
                    : options.contains("gamma")                       ? "gamma"
                                                                      : "";
  if (!out.length_name.empty()) {
    out.length = wish.longest > 0 ? wish.longest : options[out.length_name].get<int>();
    out.entry.erase(out.length_name);
  }
  ScheduleOptions schedule;
  for (const OptionInfo& info : describe_options(option_fields(schedule))) out.entry.erase(info.name);
  const bool by_model = !spec.drafts.empty() || spec.strategy.info().drafts_with_target;
  if (!options.contains("schedule") || !by_model) return out;
  switch (wish.evidence) {  // these thresholds never stop a draft
    case TracedEvidence::confidence:
      out.entry["schedule"] = "confidence";
      out.entry["confidence_threshold"] = 0;
      break;
    case TracedEvidence::top: out.entry["top_probabilities"] = kTracedTop; [[fallthrough]];
    case TracedEvidence::entropy:
      out.entry["schedule"] = "entropy";
      out.entry["entropy_threshold"] = 10;
      break;
    case TracedEvidence::none: break;
  }
  return out;
}

/// Plans a case; absent, with a note, if a replay cannot use it.
std::optional<PlannedTrace> plan_case(const CaseSpec& spec, const TraceWish& wish, std::string& note) {
  require_replayed_rule(spec);
  const StrategyInfo& info = spec.strategy.info();
  if (const std::string reason = why_no_trace(spec); !reason.empty()) {
    note = fmt::format("{}: {}", spec.id, reason);
    return std::nullopt;
  }
  const json options = options_of_strategy(spec);
  std::optional<PlannedTrace> out;
  if (info.drafts_any_shape) {
    out = plan_trees(spec, options, wish.width, note);
  } else if (info.verification.starts_with("chain")) {
    out = plan_chain(spec, options, wish);
  } else {
    note = fmt::format("{}: it drafts trees that a replay cannot make smaller", spec.id);
  }
  if (!out) return out;
  out->entry.erase("budget");
  out->entry["strategy"] = std::string(info.name);
  if (spec.drafts.size() == 1) out->entry["draft"] = spec.draft;
  if (spec.drafts.size() > 1) out->entry["drafts"] = spec.drafts;
  if (spec.verify != VerifyWith::one_pass) out->entry["verify"] = std::string(to_string(spec.verify));
  return out;
}

/// "drafts" of the config, with the drafts that cases declare inline; absent if no case does.
std::optional<json> all_drafts(const Experiment& experiment) {
  json drafts = experiment.source.value("drafts", json::object());
  const json resolved = experiment.resolved().at("drafts");
  bool added = false;
  for (const auto& [name, draft] : resolved.items()) {
    if (drafts.contains(name)) continue;
    drafts[name] = draft;
    added = true;
  }
  if (!added) return std::nullopt;
  return drafts;
}

}  // namespace

TracePlan plan_trace(const std::string& config, const TraceWish& wish) {
  return plan_trace(read_json_file(config), std::filesystem::path(config).lexically_normal().string(), wish);
}

TracePlan plan_trace(json config, const std::string& name, const TraceWish& wish) {
  Experiment experiment = std::move(configure_experiments(std::move(config), name, wish.settings).front());
  if (!wish.filter.empty()) filter_cases(experiment, wish.filter);
  TracePlan plan{.settings = wish.settings, .notes = {}};
  std::vector<PlannedTrace> traces;
  std::map<std::string, std::size_t> place;  // of a trace, by its entry
  std::vector<json> generations;             // of each trace
  bool trees = false, has_budget = false;
  for (const CaseSpec& spec : experiment.cases) {
    if (spec.strategy.info().is_baseline) continue;
    std::string note;
    std::optional<PlannedTrace> planned;
    try {
      planned = plan_case(spec, wish, note);
    } catch (const Error& error) {
      if (!wish.leave_out) throw;
      note = error.what();
    }
    if (!planned) {
      plan.notes.push_back("left out: " + note);
      continue;
    }
    const json generation = generation_of(spec);
    const auto [found, added] =
        place.emplace(planned->entry.dump() + generation.dump() + planned->length_name, traces.size());
    if (added) {
      traces.push_back(*std::move(planned));
      generations.push_back(generation);
    } else {
      PlannedTrace& same = traces[found->second];
      same.length = std::max(same.length, planned->length);
      same.root_confidence = same.root_confidence || planned->root_confidence;
    }
    trees = trees || spec.strategy.info().drafts_any_shape;
    has_budget = has_budget || options_of_strategy(spec).contains("budget");
  }
  if (traces.empty()) {
    throw Error(
        {.what = name,
         .got = "no case that can be traced",
         .expected = "a case that drafts chains, or trees of the draft's best tokens",
         .advice = plan.notes.empty() ? "configs/trace.json is an example." : plan.notes.front() + "."});
  }
  const bool one_generation = std::ranges::all_of(
      generations, [&](const json& generation) { return generation == generations.front(); });
  json shared = one_generation ? generations.front() : json::object();
  shared["emit_at_most"] = 1;
  if (has_budget) shared["budget"] = "fixed";
  json cases = json::array();
  for (std::size_t i = 0; i < traces.size(); ++i) {
    json entry = traces[i].entry;
    if (!one_generation) entry.update(generations[i]);
    if (!traces[i].length_name.empty()) entry[traces[i].length_name] = traces[i].length;
    if (traces[i].root_confidence) entry["root_confidence"] = true;
    cases.push_back(std::move(entry));
  }
  const auto set = [&](const char* name, const json& value) {
    plan.settings.push_back(fmt::format("{}={}", name, value.dump()));
  };
  set("cases", cases);
  set("options", shared);
  set("row_details", true);
  set("teacher_forced", false);
  set("repeats", 1);
  if (const auto drafts = all_drafts(experiment)) set("drafts", *drafts);
  if (experiment.source.contains("published")) set("published", json::array());
  if (trees && experiment.calibration.enabled)
    set("calibration.draft_rows", std::max(experiment.calibration.draft_rows, kTreeDraftRows));
  return plan;
}

void require_trace_folder(const std::string& folder) {
  const std::filesystem::path file = std::filesystem::path(folder) / "config.json";
  if (!path_exists(file)) {
    throw Error({.what = folder,
                 .got = "no config.json",
                 .expected = "the folder of a trace",
                 .advice = "Start one: speclab trace CONFIG --out DIR."});
  }
  const json config = read_json_file(file);
  const json version = config.is_object() ? config.value("row_details", json()) : json();
  if (version == kRowDetailsVersion) return;
  throw Error(
      {.what = file.string(),
       .got = version.is_null() ? "a run that is no trace" : fmt::format("version {}", version.dump()),
       .expected = fmt::format("a trace of version {}", kRowDetailsVersion),
       .advice = "Resume an ordinary run with speclab run --resume DIR, and a trace with the version of "
                 "speclab that began it."});
}

}  // namespace speclab
