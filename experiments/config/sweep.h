#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

/// Expands the sweeps of a config: {"gamma": [2, 4]} -> {"gamma": 2} and {"gamma": 4}.
namespace speclab {

/// The largest number of cases that an experiment may have. More would run for too long, and the product of a
/// few short lists could fill the memory.
inline constexpr std::size_t kMostCases = 10'000;

/// One point of a sweep: the object with a single value for each key, and the keys that were axes.
struct SweepPoint {
  nlohmann::json object;
  std::vector<std::string> axes;
};

/// Expands a flat object. An array where a scalar is expected is an axis. The result is the cartesian product
/// of all axes, in alphabetical order of the keys; the last key varies fastest. `is_list(key)` is true if a
/// single value of this key is an array; an axis of the key is then an array of arrays. A text "=KEY" ties
/// the key to another key of the same object: it then has the value of KEY at every point. `where` locates
/// the object for messages ("a.json: /cases/0"). Throws Error for an empty axis, a tie to a missing or tied
/// key or to the draft, and more than 10,000 points.
std::vector<SweepPoint> expand_sweep(const nlohmann::json& object,
                                     const std::function<bool(std::string_view)>& is_list,
                                     const std::string& where);

/// A value as it is written in a case id: a text without quotes, 1.0 as 1, anything else as JSON.
std::string id_text(const nlohmann::json& value);

}  // namespace speclab
