#include "core/decoding/on_target/token_skips.h"

#include <algorithm>
#include <charconv>
#include <functional>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/error.h"
#include "core/model/net/skipped_layers.h"

namespace speclab {
namespace {

std::vector<int> layers_of_text(const std::string& text, const std::string& where) {
  std::vector<int> layers;
  const char *at = text.data(), *const end = at + text.size();
  while (at != end) {
    int layer = 0;
    const auto [next, error] = std::from_chars(at, end, layer);
    const bool more = error == std::errc() && next != end && *next == ',' && next + 1 != end;
    if (error != std::errc() || (next != end && !more)) {
      throw Error({where, fmt::format("\"{}\"", text), "numbers of layers with commas between them",
                   "Write for example \"1,3,5\", or \"\" to skip no layer."});
    }
    layers.push_back(layer);
    at = next + more;
  }
  return layers;
}

}  // namespace

TokenSkips::TokenSkips(const std::vector<std::string>& sets, std::vector<double> bounds,
                       std::span<const int> layers, const std::string& where)
    : bounds_(std::move(bounds)) {
  if (bounds_.size() + 1 != sets.size()) {
    throw Error({where, fmt::format("{} bounds for {} sets of layers", bounds_.size(), sets.size()),
                 "one bound less than there are sets", ""});
  }
  if (std::ranges::adjacent_find(bounds_, std::greater_equal<>()) != bounds_.end()) {
    throw Error({where, fmt::format("bounds [{}]", fmt::join(bounds_, ", ")), "bounds that ascend", ""});
  }
  for (const std::string& set : sets)
    kept_.push_back(layers_without(layers, layers_of_text(set, where), where));
}

int TokenSkips::after(double probability) const {
  return static_cast<int>(std::ranges::upper_bound(bounds_, probability) - bounds_.begin());
}

}  // namespace speclab
