#include "experiments/config/experiment.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <re2/re2.h>

#include <algorithm>
#include <set>

#include "core/base/error.h"
#include "core/base/options_json.h"
#include "core/base/utf8.h"
#include "core/decoding/drafting/tree_shape.h"
#include "core/measure/run_result.h"
#include "experiments/config/toy_spec.h"

namespace speclab {

using nlohmann::json;

json CaseSpec::options() const {
  StrategyChoice choice = strategy;
  GenerationOptions copy = generation;
  json all = echo_options(choice.fields());
  all.update(echo_options(option_fields(copy)));
  return all;
}

LossClass CaseSpec::loss_class() const {
  return generation.acceptance_rule().loss(generation.rule_options, generation.sampling);
}

void CalibrationOptions::fields(OptionVisitor& visit) {
  visit("enabled", enabled,
        "measure t(n) and the costs of drafting and acceptance separately from the cases");
  visit("rows", rows, Range<int>{1, TreeShape::kMostDrafted + 1},
        "t(n) for n = 1 .. rows; above 128 only for each 64th n and for `rows` itself");
  visit("draft_rows", draft_rows, Range<int>{2, TreeShape::kMostDrafted + 1},
        "forwards of each draft model over 1, 2, 4, ... up to this many rows");
  visit("context", context, Range<int>{0, 1 << 20},
        "committed positions before the measured rows; 0: the mean context of the run");
  visit("rounds", rounds, Range<int>{1, 100000},
        "number of short rounds of measurements, spread over the run, at most one between two lines");
  visit("texts", texts, Range<int>{1, 100000},
        "number of short texts that each case decodes, at most one per round; they show what a step costs "
        "besides the target's forward");
  visit("probe_every", probe_every, Range<int>{0, 1 << 20},
        "number of steps of a line between two probes, which show how slow the machine is at that moment; a "
        "probe reads memory and computes for a few milliseconds, always the same, and is not part of the "
        "line's time (CPU only); 0: no probes, only the rounds show it");
}

const CaseSpec& Experiment::case_by_id(const std::string& id) const {
  const auto found =
      std::find_if(cases.begin(), cases.end(), [&](const CaseSpec& spec) { return spec.id == id; });
  SPECLAB_CHECK(found != cases.end(), "no case {}", id);
  return *found;
}

json Experiment::resolved() const {
  json draft_list = json::object(), prompt_list = json::array(), case_list = json::array();
  for (const auto& [key, draft] : drafts) {
    draft_list[key] = draft.markov           ? json{{"markov", to_json(*draft.markov)}}
                      : !draft.model.empty() ? json{{"model", draft.model}}
                      : draft.keep > 0       ? json{{"layers", {{"keep", draft.keep}}}}
                                             : json{{"layers", draft.layers}};
    if (draft.inflate.any()) draft_list[key]["inflate"] = to_json(draft.inflate);
  }
  for (const PromptSpec& prompt : prompts) {
    prompt_list.push_back({{"id", prompt.id},
                           {"category", prompt.category},
                           {"split", to_string(prompt.split)},
                           {"turns", prompt.turns},
                           {"options", prompt.options}});
    if (!prompt.renderer.empty()) prompt_list.back()["renderer"] = prompt.renderer;
  }
  for (const CaseSpec& spec : cases) {
    case_list.push_back({{"id", spec.id},
                         {"strategy", spec.strategy.info().name},
                         {"draft", spec.draft.empty() ? json(nullptr) : json(spec.draft)},
                         {"verify", to_string(spec.verify)},
                         {"devices", spec.devices},
                         {"reference", spec.reference.empty() ? json(nullptr) : json(spec.reference)},
                         {"axes", spec.axes},
                         {"added", spec.added},
                         {"rule", spec.generation.acceptance_rule().name},
                         {"loss_class", to_string(spec.loss_class())},
                         {"options", spec.options()}});
    if (spec.drafts.size() > 1) case_list.back()["drafts"] = spec.drafts;
  }
  CalibrationOptions copy = calibration;
  json out = {{"schema_version", kSchemaVersion},
              {"file", file},
              {"name", name},
              {"description", description},
              {"target", markov          ? json{{"markov", to_json(*markov)}}
                         : inflate.any() ? json{{"model", target}, {"inflate", to_json(inflate)}}
                                         : json(target)},
              {"drafts", draft_list},
              {"prompts", prompt_list},
              {"chat_template", chat_family.empty() ? json(chat_template) : json(chat_family)},
              {"system", system},
              {"seeds", seeds},
              {"repeats", repeats},
              {"warmup", warmup},
              {"teacher_forced", teacher_forced},
              {"share_prefills", share_prefills},
              {"calibration", echo_options(option_fields(copy))},
              {"published", published},
              {"cases", case_list},
              {"source", source}};
  if (!target_name.empty()) out["target_name"] = target_name;
  if (bounds) out["bounds"] = true;
  if (row_details) out["row_details"] = kRowDetailsVersion;
  return out;
}

void filter_cases(Experiment& experiment, const std::string& regex) {
  RE2::Options options;
  options.set_log_errors(false);
  const RE2 expression(regex, options);
  if (!expression.ok()) {
    throw Error({.what = "--filter",
                 .got = fmt::format("\"{}\", {}", printable(regex, 200), expression.error()),
                 .expected = "a regular expression in RE2's syntax",
                 .advice = "For example --filter 'gamma=4$'. Put a backslash before a special character that "
                           "is meant literally."});
  }
  std::set<std::string> keep;
  for (const CaseSpec& spec : experiment.cases) {
    if (!RE2::PartialMatch(spec.id, expression)) continue;
    keep.insert(spec.id);
    if (!spec.reference.empty()) keep.insert(spec.reference);
  }
  if (keep.empty()) {
    throw Error({.what = "--filter",
                 .got = fmt::format("\"{}\"", printable(regex, 200)),
                 .expected = "a match in at least one case id",
                 .advice = "speclab run CONFIG --dry-run lists them."});
  }
  std::erase_if(experiment.cases, [&](const CaseSpec& spec) { return !keep.contains(spec.id); });
}

void require_few_lines(const Experiment& experiment) {
  std::uint64_t lines = 1;
  for (const std::size_t factor : {experiment.cases.size(), experiment.prompts.size(),
                                   experiment.seeds.size(), static_cast<std::size_t>(experiment.repeats)}) {
    if (factor > kMostLines || lines * factor > kMostLines) {  // both are at most kMostLines: no overflow
      throw Error(
          {.what = experiment.file,
           .got = fmt::format("{} cases x {} prompts x {} seeds x {} repeats", experiment.cases.size(),
                              experiment.prompts.size(), experiment.seeds.size(), experiment.repeats),
           .expected = fmt::format("at most {} lines", kMostLines),
           .advice = "Take fewer with --filter, --set prompts.limit=N or --set repeats=N, or split the "
                     "experiment."});
    }
    lines *= factor;
  }
}

bool apply_prompt_options(const PromptSpec& prompt, StrategyChoice& strategy, GenerationOptions& generation) {
  if (prompt.options.empty()) return false;
  const json before = echo_options(strategy.fields());
  const std::string where = fmt::format("prompt {}: options", prompt.id);
  std::vector<std::string> all;
  for (const auto& [key, value] : prompt.options.items()) all.push_back(key);
  parse_options(option_fields(generation), prompt.options, where, all);
  parse_options(strategy.fields(), prompt.options, where, all);
  generation.acceptance_rule();
  return echo_options(strategy.fields()) != before;
}

}  // namespace speclab
