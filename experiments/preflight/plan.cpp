#include "experiments/preflight/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "core/base/error.h"
#include "core/measure/run_result.h"
#include "experiments/config/config_file.h"

namespace speclab {
namespace {

using nlohmann::json;

constexpr const char* kLengths[] = {"gamma", "length"};  // options that set the length of a draft

/// Keeps every second prompt of each category: the first, third, ... (`odd` false), or the others.
void keep_half(Experiment& experiment, bool odd) {
  std::map<std::string, int> seen;
  std::erase_if(experiment.prompts,
                [&](const PromptSpec& prompt) { return (seen[prompt.category]++ % 2 == 1) != odd; });
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
  if (!wish.draft.is_null()) config_["drafts"]["draft"] = wish.draft;
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
  keep_half(experiment, false);
  return experiment;
}

Experiment PreflightPlan::check(const std::string& id, int length) const {
  const std::vector<CaseSpec> cases = parse_experiment(config_, file_).cases;  // one of each entry, in order
  const auto found = std::ranges::find(cases, id, &CaseSpec::id);
  SPECLAB_CHECK(found != cases.end(), "no case {} in the trace", id);
  json config = config_;
  json one = config["cases"].at(static_cast<std::size_t>(found - cases.begin()));
  for (const char* name : kLengths) {
    if (one.contains(name)) one[name] = length;
  }
  config["name"] = config.value("name", std::string("preflight")) + "_check";
  config["cases"] = json::array({one});
  config["options"].erase("emit_at_most");
  config["calibration"] = false;
  config["teacher_forced"] = false;
  Experiment experiment = parse_experiment(config, file_);
  keep_half(experiment, true);
  if (experiment.prompts.empty()) {
    throw Error({.what = file_ + ": /prompts",
                 .got = "no category with two prompts",
                 .expected = "prompts for the trace and others for the check",
                 .advice = "Give more prompts, or --no-check."});
  }
  return experiment;
}

}  // namespace speclab
