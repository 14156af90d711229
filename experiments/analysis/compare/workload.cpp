#include "experiments/analysis/compare/workload.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <map>

#include "core/decoding/registry.h"
#include "experiments/metrics/metrics_detail.h"

namespace speclab {
namespace {

using nlohmann::json;

std::string short_value(const json& value) {
  const std::string text = value.dump();
  return text.size() > 40 ? text.substr(0, 37) + "..." : text;
}

std::string difference(const std::string& name, const json& base, const json& fresh) {
  return fmt::format("{}: {}, {}", name, short_value(base), short_value(fresh));
}

/// Adds the differences of those keys that both objects have.
void compare_keys(const json& base, const json& fresh, const std::set<std::string>& keys,
                  const std::string& prefix, std::vector<std::string>& found) {
  for (const std::string& key : keys) {
    if (base.contains(key) && fresh.contains(key) && base[key] != fresh[key])
      found.push_back(difference(prefix + key, base[key], fresh[key]));
  }
}

/// The entry of a model without its path, because environment_differences() compares model files by
/// hash. Layers and inflation remain.
json without_file(json model) {
  if (!model.is_object()) return nullptr;
  model.erase("model");
  model.erase("from");
  return model;
}

const json* find_case(const json& config, const std::string& id) {
  for (const json& entry : config.at("cases")) {
    if (entry.at("id") == id) return &entry;
  }
  return nullptr;
}

/// The options of a case. Options that the version of the record did not have yet get the value that their
/// absence means (OptionVisitor::absent_means).
json options_of(const json& entry) {
  json options = entry.value("options", json::object());
  const StrategyInfo* strategy = recorded_strategy(entry.value("strategy", ""));
  if (strategy == nullptr) return options;
  StrategyChoice choice(find_strategy(strategy->name));
  for (const OptionInfo& info : describe_options(choice.fields())) {
    if (!info.absent_means.empty() && !options.contains(info.name))
      options[info.name] = json::parse(info.absent_means);
  }
  return options;
}

std::vector<std::string> case_differences(const json& base_config, const json& fresh_config,
                                          const std::string& id) {
  const json *base = find_case(base_config, id), *fresh = find_case(fresh_config, id);
  std::vector<std::string> found;
  if (base == nullptr || fresh == nullptr) return found;
  compare_keys(*base, *fresh, {"strategy", "draft", "rule", "verify", "devices"}, "", found);
  const json none = json::object();
  const json options = options_of(*base);
  std::set<std::string> names;
  for (const auto& [name, value] : options.items()) {
    if (name != "device_loop" && name != "device_graph") names.insert(name);
  }
  compare_keys(options, options_of(*fresh), names, "", found);
  for (const std::string& draft : draft_names(*base)) {
    const json was = base_config.value("drafts", none).value(draft, json()),
               is = fresh_config.value("drafts", none).value(draft, json());
    if (!was.is_null() && !is.is_null() && without_file(was) != without_file(is))
      found.push_back(difference("draft " + draft, without_file(was), without_file(is)));
  }
  return found;
}

/// The differences in settings that all cases share.
std::vector<std::string> shared_differences(const json& base, const json& fresh) {
  std::vector<std::string> found;
  compare_keys(base, fresh, {"chat_template", "system"}, "", found);
  const json was = without_file(base.value("target", json())),
             is = without_file(fresh.value("target", json()));
  if (was != is) found.push_back(difference("target", was, is));
  return found;
}

/// The turns and options of the prompts, by id.
std::map<std::string, json> prompts_of(const json& config) {
  std::map<std::string, json> prompts;
  for (const json& prompt : config.at("prompts"))
    prompts[prompt.at("id")] = {prompt.value("turns", json()), prompt.value("options", json())};
  return prompts;
}

}  // namespace

CommonWork common_work(const json& base, const json& fresh) {
  CommonWork common;
  if (!shared_differences(base, fresh).empty()) return common;
  const auto in_base = prompts_of(base), in_fresh = prompts_of(fresh);
  for (const auto& [id, prompt] : in_base) {
    const auto found = in_fresh.find(id);
    if (found != in_fresh.end() && found->second == prompt) common.prompts.insert(id);
  }
  const auto seeds = fresh.at("seeds").get<std::set<std::uint64_t>>();
  for (const auto seed : base.at("seeds").get<std::set<std::uint64_t>>()) {
    if (seeds.contains(seed)) common.seeds.insert(seed);
  }
  return common;
}

bool same_case(const json& base, const json& fresh, const std::string& id) {
  return shared_differences(base, fresh).empty() && case_differences(base, fresh, id).empty();
}

std::vector<std::string> workload_differences(const json& base, const json& fresh) {
  std::vector<std::string> found = shared_differences(base, fresh);
  const auto in_base = prompts_of(base), in_fresh = prompts_of(fresh);
  if (in_base != in_fresh) {
    found.push_back(fmt::format("prompts: {}, {} ({} in common)", in_base.size(), in_fresh.size(),
                                common_work(base, fresh).prompts.size()));
  }
  compare_keys(base, fresh, {"seeds"}, "", found);
  std::vector<std::pair<std::string, int>> of_cases;  // in order of appearance, with the number of cases
  for (const json& entry : base.at("cases")) {
    for (const std::string& text : case_differences(base, fresh, entry.at("id"))) {
      const auto same =
          std::find_if(of_cases.begin(), of_cases.end(), [&](const auto& one) { return one.first == text; });
      if (same == of_cases.end()) of_cases.emplace_back(text, 1);
      else ++same->second;
    }
  }
  for (const auto& [text, cases] : of_cases)
    found.push_back(fmt::format("{} ({} case{})", text, cases, cases == 1 ? "" : "s"));
  return found;
}

std::string shown_differences(const std::vector<std::string>& differences) {
  constexpr std::size_t kShown = 4;
  std::string shown;
  for (std::size_t i = 0; i < std::min(differences.size(), kShown); ++i)
    shown += (i > 0 ? "; " : "") + differences[i];
  if (differences.size() > kShown) shown += fmt::format("; {} more", differences.size() - kShown);
  return shown;
}

}  // namespace speclab
