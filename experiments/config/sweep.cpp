#include "experiments/config/sweep.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

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

[[noreturn]] void refuse_tie(const json& object, const std::string& key, const std::string& other,
                             const std::string& where) {
  const std::string pointer = json_pointer(where, key), got = object[key].dump(),
                    same = "\"=KEY\" with another key of the same object";
  if (other == key)
    throw Error({pointer, got + ", a tie to itself", same,
                 fmt::format("Give \"{}\" a value, or tie it to another key.", key)});
  if (other == "strategy" || other == "draft" || other == "drafts")
    throw Error({pointer, fmt::format("{}, a tie to the {} of the case", got, other),
                 same + " that is an option", "Write the value out."});
  const auto found = object.find(other);
  if (found == object.end())
    throw Error({pointer, fmt::format("{}, but there is no \"{}\" beside it", got, other), same,
                 fmt::format("Add \"{}\" beside it.", other)});
  throw Error({pointer, fmt::format("{}, but \"{}\" is tied itself: {}", got, other, found->dump()),
               same + " that is not tied itself",
               *found == "=" + key ? "Give one of the two a value."
                                   : fmt::format("Tie both to the key that has the value.")});
}

void resolve_ties(json& object, const std::string& where) {
  for (auto& [key, value] : object.items()) {
    if (!is_tie(value)) continue;
    const std::string other = value.get<std::string>().substr(1);
    const auto found = object.find(other);
    if (other == "draft" || other == "drafts" || found == object.end() || is_tie(*found))
      refuse_tie(object, key, other, where);
    value = *found;
  }
}

/// Throws Error for an empty axis and for more than kMostCases points. Runs before the points are made.
void require_few_points(const json& axes, const std::string& where) {
  std::size_t points = 1;
  for (const auto& [key, values] : axes.items()) {
    if (values.empty()) {
      throw Error({.what = json_pointer(where, key),
                   .got = "an empty sweep []",
                   .expected = "at least one value",
                   .advice = "Give a value, or leave the key out."});
    }
    if (values.size() > kMostCases / points) {
      throw Error({.what = json_pointer(where, key),
                   .got = fmt::format("{} values, {} combinations with the axes before it", values.size(),
                                      static_cast<double>(values.size()) * static_cast<double>(points)),
                   .expected = fmt::format("at most {} cases", kMostCases),
                   .advice = "Split it into several experiments, or tie axes to one another with \"=KEY\"."});
    }
    points *= values.size();
  }
}

}  // namespace

std::vector<SweepPoint> expand_sweep(const json& object, const std::function<bool(std::string_view)>& is_list,
                                     const std::string& where) {
  json axes = json::object(), fixed = object;
  for (const auto& [key, value] : object.items()) {
    if (!is_axis(value, is_list(key))) continue;
    axes[key] = value;
    fixed[key] = nullptr;  // each point gets its own value below
  }
  require_few_points(axes, where);
  std::vector<SweepPoint> points{{std::move(fixed), {}}};
  for (const auto& [key, value] : axes.items()) {
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

std::string id_text(const json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_number_float()) return fmt::format("{}", value.get<double>());  // writes 1.0 as 1
  return value.dump();
}

}  // namespace speclab
