#include "core/theory/domain.h"

#include <cmath>
#include <limits>

#include "core/base/error.h"

namespace speclab::theory {
namespace {

[[noreturn]] void fail(std::string_view name, double value, std::string expected) {
  throw Error({std::string(name), fmt::format("{}", value), std::move(expected), ""});
}

}  // namespace

double require_probability(std::string_view name, double value) {
  if (!(value >= 0 && value <= 1)) fail(name, value, "a number from 0 to 1");
  return value;
}

double require_non_negative(std::string_view name, double value) {
  if (!(value >= 0 && value <= std::numeric_limits<double>::max())) fail(name, value, "a finite number >= 0");
  return value;
}

double require_positive(std::string_view name, double value) {
  if (!(value > 0 && value <= std::numeric_limits<double>::max())) fail(name, value, "a finite number > 0");
  return value;
}

double require_range(std::string_view name, double value, double lowest, double highest) {
  if (!(value >= lowest && value <= highest)) fail(name, value, fmt::format("{} to {}", lowest, highest));
  return value;
}

int require_gamma(std::string_view name, int gamma) {
  if (gamma < 0 || gamma > kMaxGamma) {
    throw Error(
        {std::string(name), fmt::format("{}", gamma), fmt::format("an integer from 0 to {}", kMaxGamma), ""});
  }
  return gamma;
}

}  // namespace speclab::theory
