#include "experiments/optimize/search_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <set>
#include <utility>

#include "core/base/error.h"
#include "core/decoding/registry.h"
#include "experiments/config/config_file.h"
#include "experiments/config/prompt_halves.h"
#include "experiments/simulate/trace_plan.h"

namespace speclab {
namespace {

using nlohmann::json;

constexpr int kSearchRounds = 24, kSearchTexts = 4;  // of a calibration, if the config does not say
constexpr int kGridSizes[] = {3, 5};                 // N of the grid of lookahead decoding
constexpr int kGridWidths[] = {1, 2, 4, 8, 16};      // W = G of the grid

json baseline_entry() { return {{"strategy", baseline_strategy().info.name}}; }

/// The name of the strategy that is searched as `what`.
std::string searched_name(SearchedAs what) { return std::string(searched_strategy(what).info.name); }

/// Whether the case drafts trees of its draft model's best tokens.
bool drafts_trees_of_best_tokens(const CaseSpec& spec) {
  if (!spec.strategy.info().drafts_any_shape) return false;
  const json options = spec.options();
  return options.value("children", "") == "best" && options.value("sequences", 0) == 0;
}

/// The config's cases. Adds a lossless chain and tree of each draft, and copies, where the config has none.
json searched_cases(const Experiment& experiment, const ConfigWish& wish) {
  json cases = experiment.source.at("cases");
  bool copies = false;
  std::set<std::string> chains, trees;  // names of drafts
  for (const CaseSpec& spec : experiment.cases) {
    const bool one_draft = spec.drafts.size() == 1, lossless = spec.loss_class() != LossClass::l3;
    const SearchedAs searched = spec.strategy.info().searched_as;
    if (one_draft && lossless && searched == SearchedAs::model_chain) chains.insert(spec.drafts.front());
    if (one_draft && lossless && drafts_trees_of_best_tokens(spec)) trees.insert(spec.drafts.front());
    copies = copies || (spec.drafts.empty() && searched == SearchedAs::copies);
  }
  for (const auto& [name, draft] : experiment.drafts) {
    if (!chains.contains(name)) {
      cases.push_back(
          {{"strategy", searched_name(SearchedAs::model_chain)}, {"draft", name}, {"gamma", wish.longest}});
    }
    if (!trees.contains(name)) {
      cases.push_back({{"strategy", tree_strategy().info.name},
                       {"draft", name},
                       {"widths", json::array({wish.width})},
                       {"children", "best"}});
    }
  }
  if (!copies) {
    cases.push_back({{"strategy", searched_name(SearchedAs::copies)},
                     {"ngram_max", 4},
                     {"ngram_min", 2},
                     {"length", wish.longest},
                     {"by_match", true},
                     {"match", "latest"}});
  }
  return cases;
}

/// The drafts of the config and the drafts that its cases declare inline.
json searched_drafts(const Experiment& experiment) {
  json drafts = experiment.source.value("drafts", json::object());
  const json resolved = experiment.resolved().at("drafts");
  for (const auto& [name, draft] : resolved.items()) {
    if (!drafts.contains(name)) drafts[name] = draft;
  }
  return drafts;
}

json searched_calibration(const json& config, const ConfigWish& wish) {
  json calibration = config.value("calibration", json::object());
  if (!calibration.is_object()) calibration = json::object();
  calibration.erase("enabled");
  calibration["rows"] = std::max(wish.nodes, wish.longest + 1);
  if (!calibration.contains("rounds")) calibration["rounds"] = kSearchRounds;
  if (!calibration.contains("texts")) calibration["texts"] = kSearchTexts;
  return calibration;
}

void require_two_halves(Experiment experiment, const std::string& name) {
  keep_half(experiment, PromptHalf::second);
  if (!experiment.prompts.empty()) return;
  throw Error({.what = name + ": /prompts",
               .got = "no category with two prompts",
               .expected = "prompts for the search and others for the measurement",
               .advice = "Give more prompts."});
}

/// Throws Error if two cases have different references.
void require_one_reference(const Experiment& trace, const std::string& name) {
  std::set<std::string> references;
  for (const CaseSpec& spec : trace.cases) {
    if (!spec.reference.empty()) references.insert(spec.reference);
  }
  if (references.size() <= 1) return;
  throw Error(
      {.what = name,
       .got = fmt::format("cases with {} references: different generation options", references.size()),
       .expected = "one set of generation options",
       .advice = "Choose one of them, for example with --set temperature=0."});
}

}  // namespace

SearchPlan::SearchPlan(json config, const std::string& name, const std::vector<std::string>& settings,
                       const ConfigWish& wish)
    : file_(name), wish_(wish) {
  const std::vector<Experiment> experiments = configure_experiments(std::move(config), name, settings);
  if (experiments.size() != 1) {
    throw Error({.what = name,
                 .got = fmt::format("{} targets", experiments.size()),
                 .expected = "one target, because the best setting depends on it",
                 .advice = "Name one in \"target\"."});
  }
  const Experiment& experiment = experiments.front();
  config_ = experiment.source;
  name_ = experiment.name;
  require_two_halves(experiment, name);
  json search = config_;
  search["name"] = name_ + "_search";
  search["drafts"] = searched_drafts(experiment);
  search["cases"] = searched_cases(experiment, wish);
  search["calibration"] = searched_calibration(config_, wish);
  for (const char* key : {"published", "bounds"}) search.erase(key);
  TraceWish traced;
  traced.longest = wish.longest;
  traced.width = wish.width;
  traced.evidence = TracedEvidence::none;  // constant lengths need no evidence and should not pay for it
  traced.leave_out = true;
  const TracePlan plan = plan_trace(search, name, traced);
  const std::string without_trace = "left out: " + searched_name(SearchedAs::window);
  for (const std::string& note : plan.notes) {
    if (!note.starts_with(without_trace)) notes_.push_back(note);
  }
  searched_ = configure_experiments(std::move(search), name, plan.settings).front().source;
  require_one_reference(trace(), name);
}

Experiment SearchPlan::trace() const {
  Experiment experiment = parse_experiment(searched_, file_);
  keep_half(experiment, PromptHalf::first);
  return experiment;
}

json SearchPlan::base(const std::string& suffix) const {
  json out = searched_;
  out["name"] = name_ + suffix;
  out["options"].erase("emit_at_most");
  out["options"]["budget"] = "fixed";  // the search chose the settings
  out.erase("row_details");
  out["teacher_forced"] = false;
  return out;
}

std::optional<Experiment> SearchPlan::lookahead() const {
  json cases = json::array({baseline_entry()});
  for (const int n : kGridSizes) {
    for (const int width : kGridWidths) {
      if (2 * width * (n - 1) <= wish_.lookahead_rows) cases.push_back(lookahead_setting(width, n, width));
    }
  }
  if (cases.size() < 3) return std::nullopt;  // the law needs two settings
  json config = base("_lookahead");
  config["cases"] = std::move(cases);
  config["repeats"] = 1;
  config["calibration"]["rows"] = wish_.lookahead_rows;
  config["calibration"].erase("draft_rows");
  config.erase("drafts");
  Experiment experiment = parse_experiment(std::move(config), file_);
  keep_half(experiment, PromptHalf::first);
  return experiment;
}

json SearchPlan::setting(const std::string& id, int length, const std::string& tree) const {
  // Each entry of "cases" gives one case of the trace with a reference, in the same order.
  const Experiment traced = parse_experiment(searched_, file_);
  std::size_t place = 0;
  const CaseSpec* found = nullptr;
  for (const CaseSpec& spec : traced.cases) {
    if (spec.reference.empty()) continue;
    if (spec.id == id) {
      found = &spec;
      break;
    }
    ++place;
  }
  SPECLAB_CHECK(found != nullptr, "no case {} in the trace", id);
  json entry = searched_.at("cases").at(place);
  if (!tree.empty()) {
    entry.erase("widths");
    entry["tree"] = tree;
    return entry;
  }
  const json options = found->options();
  const bool copies = options.contains("length"), drafts = options.contains("gamma");
  if (!copies && !drafts) return nullptr;
  // Without a draft model, "gamma" belongs to an unused fallback. With a draft model and copies, both draft,
  // and the traced case limits the length of both.
  if (copies) entry["length"] = std::min(length, options["length"].get<int>());
  if (drafts && (!copies || !found->drafts.empty()))
    entry["gamma"] = std::min(length, options["gamma"].get<int>());
  return entry;
}

json SearchPlan::lookahead_setting(int W, int N, int G) {
  return {{"strategy", searched_name(SearchedAs::window)}, {"W", W}, {"N", N}, {"G", G}};
}

Experiment SearchPlan::measurement(const std::vector<json>& entries) const {
  json config = base("_measured");
  config["cases"] = json::array({baseline_entry()});
  for (const json& entry : entries) config["cases"].push_back(entry);
  config["repeats"] = wish_.repeats;
  config["calibration"] = false;
  Experiment experiment = parse_experiment(std::move(config), file_);
  keep_half(experiment, PromptHalf::second);
  return experiment;
}

json SearchPlan::config_with(const json& entry, const std::string& description) const {
  json out = config_;
  out["name"] = name_ + "_best";
  out["description"] = description;
  out["cases"] = json::array({baseline_entry(), entry});
  out["options"] = base("").at("options");
  if (searched_.contains("drafts") && !searched_.at("drafts").empty()) out["drafts"] = searched_.at("drafts");
  out.erase("published");
  parse_experiment(out, file_);  // throws if the config has a mistake, before a file is written
  return out;
}

}  // namespace speclab
