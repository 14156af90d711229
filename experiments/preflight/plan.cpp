#include "experiments/preflight/plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/error.h"
#include "core/decoding/registry.h"
#include "core/measure/run_result.h"
#include "experiments/config/config_file.h"
#include "experiments/config/prompt_halves.h"

namespace speclab {
namespace {

using nlohmann::json;

constexpr const char* kLengths[] = {"gamma", "length"};  // options that set the length of a draft
constexpr int kNgramLength = 8;  // gamma of n-gram drafts if the first replaced case has none

bool drafts_with_the_model(const json& entry) { return entry.is_object() && entry.contains("draft"); }

/// The cases. One case with drafts of n-grams replaces all cases with the draft model.
json cases_with_ngrams(const json& cases, const json& ngrams) {
  json out = json::array();
  bool placed = false;
  for (const json& entry : cases) {
    if (!drafts_with_the_model(entry)) {
      out.push_back(entry);
      continue;
    }
    if (placed) continue;
    json one = ngrams;
    one["strategy"] = std::string(searched_strategy(SearchedAs::ngram_chain).info.name);
    one["gamma"] = entry.value("gamma", json(kNgramLength));
    out.push_back(std::move(one));
    placed = true;
  }
  return out;
}

}  // namespace

PreflightPlan::PreflightPlan(const std::string& file, const Wish& wish)
    : file_(file), config_(read_json_file(file)) {
  const auto refuse = [&](const std::string& got, const std::string& expected) {
    throw Error(
        {.what = file_, .got = got, .expected = expected, .advice = "configs/preflight.json is an example."});
  };
  if (!config_.is_object() || !config_.contains("cases") || !config_["cases"].is_array() ||
      !config_.contains("prompts") || !config_["prompts"].is_object())
    refuse("no \"cases\" or no \"prompts\"", "a config of a trace");
  if (!config_.contains("drafts") || !config_["drafts"].is_object() || config_["drafts"].size() != 1 ||
      !config_["drafts"].contains("draft"))
    refuse("other \"drafts\"", "one draft, called \"draft\"");
  json options = config_.value("options", json::object());
  if (!options.is_object() || options.value("emit_at_most", json()) != 1)
    refuse("no \"emit_at_most\": 1 in \"options\"", "a trace: steps that emit one token");
  if (!wish.target.empty()) config_["target"] = wish.target;
  if (!wish.inflate.is_null()) {
    if (!config_.value("target", json()).is_string()) refuse("no path as \"target\"", "a model to inflate");
    config_["target"] = {{"model", config_["target"]}, {"inflate", wish.inflate}};
  }
  if (!wish.draft.is_null()) config_["drafts"]["draft"] = wish.draft;
  if (!wish.ngrams.is_null()) {
    config_["cases"] = cases_with_ngrams(config_["cases"], wish.ngrams);
    config_.erase("drafts");
  }
  if (wish.longest > 0) config_["calibration"]["rows"] = wish.longest + 8;
  if (wish.tokens > 0) options["max_tokens"] = wish.tokens;
  config_["options"] = options;
  if (!wish.prompts.empty()) config_["prompts"]["file"] = wish.prompts;
  if (wish.per_category > 0) config_["prompts"]["per_category"] = 2 * wish.per_category;
  for (json& one : config_["cases"]) {
    for (const char* name : kLengths) {
      if (!one.is_object() || !one.contains(name)) continue;
      if (one[name].is_array()) refuse(fmt::format("a list in \"{}\"", name), "one length");
      if (wish.longest > 0) one[name] = wish.longest;
    }
  }
  const std::size_t cases = parse_experiment(config_, file_).cases.size();
  if (cases != config_["cases"].size()) {
    refuse(fmt::format("{} cases from {} entries", cases, config_["cases"].size()),
           "the autoregressive case and entries of one case each");
  }
}

Experiment PreflightPlan::trace() const {
  Experiment experiment = parse_experiment(config_, file_);
  keep_half(experiment, PromptHalf::first);
  return experiment;
}

json PreflightPlan::setting(const std::string& id, int length, const std::string& tree) const {
  const std::vector<CaseSpec> cases = parse_experiment(config_, file_).cases;  // one of each entry, in order
  const auto found = std::ranges::find(cases, id, &CaseSpec::id);
  SPECLAB_CHECK(found != cases.end(), "no case {} in the trace", id);
  json one = config_.at("cases").at(static_cast<std::size_t>(found - cases.begin()));
  if (!tree.empty()) {
    one.erase("widths");
    one["tree"] = tree;
    return one;
  }
  for (const char* name : kLengths) {
    if (one.contains(name)) one[name] = length;
  }
  return one;
}

Experiment PreflightPlan::check(const std::vector<json>& settings) const {
  json config = config_;
  config["name"] = config.value("name", std::string("preflight")) + "_check";
  config["cases"] = settings;
  config["options"].erase("emit_at_most");
  config["calibration"] = false;
  config["teacher_forced"] = false;
  Experiment experiment = parse_experiment(config, file_);
  keep_half(experiment, PromptHalf::second);
  if (experiment.prompts.empty()) {
    throw Error({.what = file_ + ": /prompts",
                 .got = "no category with two prompts",
                 .expected = "prompts for the trace and others for the check",
                 .advice = "Give more prompts, or --no-check."});
  }
  return experiment;
}

std::string PreflightPlan::case_of_setting(const Experiment& check, std::size_t index) {
  const std::string place = fmt::format(": /cases/{}", index);
  const auto found = std::ranges::find_if(
      check.cases, [&](const CaseSpec& spec) { return !spec.added && spec.where.ends_with(place); });
  SPECLAB_CHECK(found != check.cases.end(), "no case of the setting{}", place);
  return found->id;
}

}  // namespace speclab
