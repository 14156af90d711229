#include "experiments/sweep.h"

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/base/json_text.h"
#include "core/base/options_json.h"
#include "core/base/utf8.h"

namespace speclab {
namespace {

using nlohmann::json;

bool is_tie(const json& value) {
  return value.is_string() && value.get_ref<const std::string&>().starts_with('=');
}

bool is_axis(const json& value, bool list) {
  if (!value.is_array()) return false;
  return !list || (!value.empty() && value.front().is_array());
}

void resolve_ties(json& object, const std::string& where) {
  for (auto& [key, value] : object.items()) {
    if (!is_tie(value)) continue;
    const std::string other = value.get<std::string>().substr(1);
    const auto found = object.find(other);
    if (found == object.end() || is_tie(*found)) {
      throw Error({.what = json_pointer(where, key),
                   .got = value.dump(),
                   .expected = "\"=KEY\" with a key of the same object that is not tied itself",
                   .advice = found == object.end()
                                 ? fmt::format("Add \"{}\" beside it.", other)
                                 : fmt::format("Tie it to what \"{}\" is tied to.", other)});
    }
    value = *found;
  }
}

}  // namespace

std::vector<SweepPoint> expand_sweep(const json& object, const std::function<bool(std::string_view)>& is_list,
                                     const std::string& where) {
  std::vector<SweepPoint> points{{object, {}}};
  for (const auto& [key, value] : object.items()) {
    if (!is_axis(value, is_list(key))) continue;
    if (value.empty()) {
      throw Error({.what = json_pointer(where, key),
                   .got = "an empty sweep []",
                   .expected = "at least one value",
                   .advice = "Give a value, or leave the key out."});
    }
    if (points.size() * value.size() > kMostCases) {
      throw Error({.what = json_pointer(where, key),
                   .got = fmt::format("{} values, {} combinations with the axes before it", value.size(), points.size() * value.size()),
                   .expected = fmt::format("at most {} cases", kMostCases),
                   .advice = "Make several experiments of it, or tie axes to one another with \"=KEY\"."});
    }
    std::vector<SweepPoint> next;
    for (const SweepPoint& point : points) {
      for (const json& entry : value) {
        next.push_back(point);
        next.back().object[key] = entry;
        next.back().axes.push_back(key);
      }
    }
    points = std::move(next);
  }
  for (SweepPoint& point : points) resolve_ties(point.object, where);
  return points;
}

void apply_setting(json& config, std::string_view setting) {
  const std::size_t equals = setting.find('=');
  if (equals == std::string_view::npos || equals == 0) {
    throw Error({.what = "--set",
                 .got = fmt::format("\"{}\"", setting),
                 .expected = "path=value",
                 .advice = "For example --set repeats=5 or --set options.temperature=[0,1]."});
  }
  if (!is_utf8(setting)) {
    throw Error({.what = "--set",
                 .got = printable(setting, 200),
                 .expected = "UTF-8",
                 .advice = "Type it in a terminal with a UTF-8 locale."});
  }
  const std::string_view path = setting.substr(0, equals), text = setting.substr(equals + 1);
  json value = json::parse(text, nullptr, false);
  if (value.is_discarded()) value = std::string(text);
  json* at = &config;
  std::string walked;
  for (std::size_t begin = 0; begin <= path.size();) {
    const std::size_t dot = std::min(path.find('.', begin), path.size());
    const std::string key(path.substr(begin, dot - begin));
    if (at->is_array()) {
      const bool number =
          !key.empty() && key.find_first_not_of("0123456789") == std::string::npos && key.size() < 9;
      if (!number || std::stoul(key) >= at->size()) {
        throw Error({.what = fmt::format("--set {}", path),
                     .got = fmt::format("\"{}\"", key),
                     .expected = fmt::format("an index of {} below {}", walked, at->size()),
                     .advice = ""});
      }
      at = &(*at)[std::stoul(key)];
    } else if (at->is_object() || at->is_null()) {
      at = &(*at)[key];
    } else {
      throw Error({.what = fmt::format("--set {}", path),
                   .got = fmt::format("{} is a {}", walked, json_type_name(*at)),
                   .expected = "an object or an array",
                   .advice = ""});
    }
    walked += (walked.empty() ? "" : ".") + key;
    begin = dot + 1;
  }
  *at = std::move(value);
}

std::string id_text(const json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_number_float()) return fmt::format("{}", value.get<double>());  // 1.0 is 1
  return value.dump();
}

}  // namespace speclab
