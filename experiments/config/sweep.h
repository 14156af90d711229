#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace speclab {

/// Of an experiment: nobody waits for more, and the product of a few short lists is soon all memory.
inline constexpr std::size_t kMostCases = 10'000;

/// One member of a sweep: an object without axes and ties, and the keys that were axes.
struct SweepPoint {
  nlohmann::json object;
  std::vector<std::string> axes;
};

/// Expands a flat object: an array where a scalar is expected is an axis, the result is the cartesian
/// product, in the order of keys, the last one fastest. `is_list(key)` says that an array is a value of this
/// key; there an array of arrays is the axis. A text "=KEY" ties the key to another one of the same object.
/// `where` locates the object for messages ("a.json: /cases/0"). Throws Error: an empty axis, a tie to a
/// missing or tied key, more than 10,000 points.
std::vector<SweepPoint> expand_sweep(const nlohmann::json& object,
                                     const std::function<bool(std::string_view)>& is_list,
                                     const std::string& where);

/// A value as it stands in a case id: text bare, numbers and others as JSON.
std::string id_text(const nlohmann::json& value);

}  // namespace speclab
