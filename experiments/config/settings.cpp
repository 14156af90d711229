#include "experiments/config/settings.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "core/base/error.h"
#include "core/base/json_text.h"
#include "core/base/nearest.h"
#include "core/base/options_json.h"
#include "core/base/utf8.h"
#include "core/decoding/registry.h"
#include "experiments/config/experiment_cases.h"

namespace speclab {
namespace {

using nlohmann::json;

bool is_digit(char c) { return '0' <= c && c <= '9'; }

/// The JSON form of a number as people write it: "0.3" for ".3", "3" for "3." and for "+3". Empty if the word
/// is not a number.
std::string json_number(std::string_view word) {
  std::size_t at = 0;
  const auto digits = [&] {
    const std::size_t begin = at;
    while (at < word.size() && is_digit(word[at])) ++at;
    return std::string(word.substr(begin, at - begin));
  };
  const auto take = [&](std::string_view any) {
    return at < word.size() && any.find(word[at]) != std::string_view::npos ? std::string(1, word[at++])
                                                                            : std::string();
  };
  const std::string sign = take("+-"), whole = digits();
  std::string fraction;
  if (!take(".").empty()) fraction = digits();
  if (whole.empty() && fraction.empty()) return "";
  if (whole.size() > 1 && whole[0] == '0') return "";  // 007 is a text of digits, not a number
  std::string exponent = take("eE");
  if (!exponent.empty()) {
    exponent += take("+-");
    const std::string power = digits();
    if (power.empty()) return "";
    exponent += power;
  }
  if (at != word.size()) return "";
  return (sign == "-" ? "-" : "") + (whole.empty() ? "0" : whole) + (fraction.empty() ? "" : "." + fraction) +
         exponent;
}

/// Replaces numbers outside quoted texts by their JSON form.
std::string with_json_numbers(std::string_view text) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    std::size_t end = at;
    if (text[at] == '"') {
      for (end = at + 1; end < text.size() && text[end] != '"'; ++end) end += text[end] == '\\';
      end = std::min(end + 1, text.size());
      out += text.substr(at, end - at);
    } else if (std::string_view("[]{},: \t\r\n").find(text[at]) != std::string_view::npos) {
      out += text[end++];
    } else {
      end = std::min(text.find_first_of("\"[]{},: \t\r\n", at), text.size());
      const std::string_view word = text.substr(at, end - at);
      const std::string number = json_number(word);
      out += number.empty() ? word : std::string_view(number);
    }
    at = end;
  }
  return out;
}

/// The strategies that have an option of this name.
std::vector<std::string> strategies_with(const std::string& option) {
  std::vector<std::string> names;
  for (const StrategyEntry& entry : strategies()) {
    StrategyChoice choice(entry);
    for (const OptionInfo& info : describe_options(choice.fields())) {
      if (info.name == option) names.emplace_back(entry.info.name);
    }
  }
  return names;
}

bool has(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

/// The keys that "options" of a config may have and that hold for the cases of every strategy.
std::vector<std::string> shared_options() {
  std::vector<std::string> names = common_case_keys();
  std::erase_if(names, [](const std::string& name) {
    return name == "strategy" || name == "draft" || name == "drafts";
  });
  return names;
}

/// The JSON pointer in a message: "/cases/0/gamma" of "a.json: /cases/0/gamma". Empty if there is none.
std::string pointer_in(const std::string& what) {
  std::size_t begin = 0;
  if (!what.starts_with('/')) {
    begin = what.find(": /");
    if (begin == std::string::npos) return "";
    begin += 2;
  }
  return what.substr(begin, what.find(": ", begin) - begin);
}

void require_utf8(std::string_view text, const std::string& where) {
  if (!is_utf8(text))
    throw Error({where, printable(text, 200), "UTF-8", "Type it in a terminal with a UTF-8 locale."});
}

}  // namespace

json parse_setting_value(std::string_view text, const std::string& where) {
  require_utf8(text, where);
  if (!text.empty() && std::string_view("[{\"").find(text[0]) != std::string_view::npos) {
    try {
      return parse_json(with_json_numbers(text), where);
    } catch (const Error& error) {
      throw Error({error.text().what, error.text().got, error.text().expected,
                   "Put texts inside JSON in double quotes, and quote the whole setting for the shell."});
    }
  }
  const std::string number = json_number(text);
  if (!number.empty() && !std::isfinite(std::strtod(number.c_str(), nullptr)))
    throw Error({where, std::string(text), "a number of at most 1.8e308", ""});
  json value = json::parse(number.empty() ? std::string(text) : number, nullptr, false);
  return value.is_discarded() ? json(std::string(text)) : value;
}

std::string setting_help() {
  return "NAME=VALUE, any number of times: an option (gamma=4, temperature=.5) or a path into the config "
         "(prompts.limit=2, cases.0.gamma=[1,2]); see configs/README.md";
}

void Settings::apply(json& config, const std::vector<std::string>& top) {
  for (const std::string& text : texts_) set(config, text, top);
}

void Settings::set(json& config, const std::string& text, const std::vector<std::string>& top) {
  require_utf8(text, "--set");
  const std::size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0) {
    throw Error({.what = "--set",
                 .got = fmt::format("\"{}\"", text),
                 .expected = "NAME=VALUE",
                 .advice = "For example --set gamma=4 or --set prompts.limit=2."});
  }
  const std::string path = text.substr(0, equals), first = path.substr(0, path.find('.'));
  const json value = parse_setting_value(std::string_view(text).substr(equals + 1), "--set " + path);
  if (has(top, first) || !config.is_object()) {
    write(config, text, path, value);
    return;
  }
  const std::vector<std::string> shared = shared_options();
  json* cases = config.contains("cases") && config["cases"].is_array() ? &config["cases"] : nullptr;
  const bool is_shared = config.contains("options") && config["options"].is_object() &&
                         config["options"].contains(path);  // perhaps an option of strategies
  if (is_shared || has(shared, path)) {  // a value in a case would override the shared one, so it is removed
    for (std::size_t i = 0; cases != nullptr && i < cases->size(); ++i) {
      if ((*cases)[i].is_object()) (*cases)[i].erase(path);
    }
    write(config, text, "options." + path, value);
    return;
  }
  const std::vector<std::string> owners = strategies_with(path);
  if (owners.empty()) {
    std::vector<std::string> known = top;
    known.insert(known.end(), shared.begin(), shared.end());
    for (std::string& name : strategy_option_names()) known.push_back(std::move(name));
    const std::string near = nearest_name(first, known);
    throw Error(
        {.what = "--set " + text,
         .got = fmt::format("an unknown name \"{}\"", first),
         .expected = "",
         .advice = near.empty()
                       ? fmt::format("Known are {}, and the options that `speclab describe generation` and "
                                     "`speclab describe STRATEGY` list.",
                                     fmt::join(top, ", "))
                       : fmt::format("Did you mean --set {}{}?", near, text.substr(first.size()))});
  }
  bool found = false;
  for (std::size_t i = 0; cases != nullptr && i < cases->size(); ++i) {
    const json& entry = (*cases)[i];
    if (!entry.is_object() || !entry.contains("strategy")) continue;
    const json names = entry["strategy"].is_array() ? entry["strategy"] : json::array({entry["strategy"]});
    if (!std::any_of(names.begin(), names.end(), [&](const json& name) {
          return name.is_string() && has(owners, name.get<std::string>());
        }))
      continue;
    write(config, text, fmt::format("cases.{}.{}", i, path), value);
    found = true;
  }
  if (!found) {
    throw Error({.what = "--set " + text,
                 .got = fmt::format("an option of {}, which no case uses", fmt::join(owners, ", ")),
                 .expected = "an option of generation or of the strategy of a case",
                 .advice = "`speclab describe generation` and `speclab describe STRATEGY` list them."});
  }
}

void Settings::write(json& config, const std::string& text, const std::string& path, const json& value) {
  json* at = &config;
  std::string walked, pointer;
  for (std::size_t begin = 0; begin <= path.size();) {
    const std::size_t dot = std::min(path.find('.', begin), path.size());
    const std::string key = path.substr(begin, dot - begin);
    if (at->is_array()) {
      const bool number =
          !key.empty() && key.find_first_not_of("0123456789") == std::string::npos && key.size() < 9;
      if (!number || std::stoul(key) >= at->size()) {
        throw Error({.what = "--set " + text,
                     .got = fmt::format("\"{}\"", key),
                     .expected = fmt::format("an index of {} below {}", walked, at->size()),
                     .advice = number || walked != "cases"
                                   ? ""
                                   : fmt::format("For all cases: --set {}", text.substr(begin))});
      }
      at = &(*at)[std::stoul(key)];
    } else if (at->is_object() || at->is_null()) {
      at = &(*at)[key];
    } else {
      throw Error({.what = "--set " + text,
                   .got = walked.empty() ? std::string(json_type_name(*at))
                                         : fmt::format("{} is a {}", walked, json_type_name(*at)),
                   .expected = "an object or an array",
                   .advice = ""});
    }
    walked += (walked.empty() ? "" : ".") + key;
    pointer = json_pointer(pointer, key);
    begin = dot + 1;
  }
  *at = value;
  places_.push_back({text, pointer});
}

void Settings::explain(const std::function<void()>& work) const {
  try {
    work();
  } catch (const Error& error) {
    const std::string& what = error.text().what;
    const std::string pointer = pointer_in(what);
    for (auto place = places_.rbegin(); place != places_.rend(); ++place) {
      const std::string name = place->pointer.substr(place->pointer.rfind('/') + 1);
      const bool inside = pointer == place->pointer || pointer.starts_with(place->pointer + "/");
      // Writing to /x/y also creates the object /x if it is missing, so an error about /x is blamed on the
      // setting. An error about a whole section of the config or a whole case may have other reasons, so it
      // is blamed on the setting only if it rejects an object.
      const bool part =
          std::count(pointer.begin(), pointer.end(), '/') >= (pointer.starts_with("/cases/") ? 3 : 2);
      const bool on_the_way = place->pointer.starts_with(pointer + "/") && !pointer.empty() &&
                              (part || error.text().got.starts_with('{'));
      if (!inside && !on_the_way && !what.ends_with("option " + name)) continue;
      throw Error({fmt::format("--set {} ({})", place->text, what), error.text().got, error.text().expected,
                   error.text().advice});
    }
    throw;
  }
}

}  // namespace speclab
