#include "experiments/analysis/case_names.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "core/decoding/registry.h"
#include "core/decoding/rules/accept.h"

namespace speclab {
namespace {

using IdSettings = std::vector<std::pair<std::string, std::string>>;  ///< name and value, in order

/// The settings in a case id. No value if the id is not STRATEGY/NAME=VALUE/...
std::optional<IdSettings> settings_of_id(const std::string& id) {
  IdSettings settings;
  for (std::size_t begin = id.find('/'); begin != std::string::npos;) {
    const std::size_t end = id.find('/', begin + 1);
    const std::string part =
        id.substr(begin + 1, end == std::string::npos ? std::string::npos : end - begin - 1);
    const std::size_t equals = part.find('=');
    if (equals == std::string::npos || equals == 0) return std::nullopt;
    settings.emplace_back(part.substr(0, equals), part.substr(equals + 1));
    begin = end;
  }
  return settings;
}

bool is_reference(const NamedCase& one) {
  const StrategyInfo* info = recorded_strategy(one.strategy);
  return info != nullptr && info->is_baseline;
}

/// Names of the settings that have more than one value, or that only some cases of a strategy have. The
/// reference does not count.
std::set<std::string> differing_settings(const std::vector<NamedCase>& cases) {
  std::map<std::string, std::set<std::string>> values;
  std::map<std::string, std::map<std::string, int>> cases_with;  // number, by strategy and setting
  std::map<std::string, int> cases_of;                           // number, by strategy
  for (const NamedCase& one : cases) {
    const auto settings = settings_of_id(one.id);
    if (is_reference(one) || !settings) continue;
    ++cases_of[one.strategy];
    std::set<std::string> names;
    for (const auto& [name, value] : *settings) {
      values[name].insert(value);
      names.insert(name);
    }
    for (const std::string& name : names) ++cases_with[one.strategy][name];
  }
  std::set<std::string> differing;
  for (const auto& [name, all] : values) {
    if (all.size() > 1) differing.insert(name);
  }
  for (const auto& [strategy, counts] : cases_with) {
    for (const auto& [name, count] : counts) {
      if (count < cases_of[strategy]) differing.insert(name);
    }
  }
  return differing;
}

std::string with_spaces(std::string text) {
  std::replace(text.begin(), text.end(), '_', ' ');
  return text;
}

/// The words for a setting in a short name. `after_rule`: the short name also shows the rule.
std::string words_of(const std::string& name, const std::string& value, const std::string& schedule,
                     bool after_rule) {
  static const std::map<std::string_view, std::string> kSymbols = {{"gamma", "γ"}, {"temperature", "T"}};
  if (after_rule && is_rule_option(name)) return value;
  if (!schedule.empty() && name == schedule + "_threshold") return "≥ " + value;
  if (name == "rule" || name == "schedule") return with_spaces(value);
  const auto symbol = kSymbols.find(name);
  return (symbol == kSymbols.end() ? with_spaces(name) : symbol->second) + " " + value;
}

/// The short name of a case; its id if settings_of_id() cannot read the id.
std::string short_name(const NamedCase& one, const std::set<std::string>& differing) {
  const auto settings = settings_of_id(one.id);
  if (!settings) return one.id;
  const StrategyInfo* info = recorded_strategy(one.strategy);
  std::string text = info != nullptr && !info->short_name.empty() ? std::string(info->short_name)
                                                                  : with_spaces(one.strategy);
  std::string schedule;
  bool has_rule = false;
  for (const auto& [name, value] : *settings) {
    if (name == "schedule") schedule = value;
    has_rule = has_rule || name == "rule";
  }
  for (const auto& [name, value] : *settings) {
    if (name == "draft") {
      text = info != nullptr && info->drafts_model_chains ? value : text + " + " + value;
    } else if (name != "fallback" && differing.contains(name)) {  // the draft tells what the fallback is
      text += " " + words_of(name, value, schedule, has_rule && differing.contains("rule"));
    }
  }
  return text;
}

}  // namespace

std::vector<std::string> short_names(const std::vector<NamedCase>& cases) {
  const std::set<std::string> differing = differing_settings(cases);
  std::vector<std::string> names;
  std::map<std::string, int> count;
  for (const NamedCase& one : cases) {
    names.push_back(short_name(one, differing));
    ++count[names.back()];
  }
  for (std::size_t i = 0; i < cases.size(); ++i) {
    if (count[names[i]] > 1) names[i] = cases[i].id;
  }
  return names;
}

std::vector<std::string> short_names(const nlohmann::json& cases) {
  std::vector<NamedCase> named;
  for (const nlohmann::json& entry : cases)
    named.push_back({entry.at("id").get<std::string>(), entry.at("strategy").get<std::string>()});
  return short_names(named);
}

}  // namespace speclab
