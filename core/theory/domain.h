#pragma once

#include <string_view>

namespace speclab::theory {

/// Checks of the numbers that a user or a measurement hands to a closed form. Each returns its value and
/// throws Error with the name, what was found and the range when the value is outside (NaN is always
/// outside).
double require_probability(std::string_view name, double value);   ///< [0, 1]
double require_non_negative(std::string_view name, double value);  ///< [0, infinity), finite
double require_positive(std::string_view name, double value);      ///< (0, infinity), finite
double require_range(std::string_view name, double value, double lowest, double highest);

/// Draft lengths: 0 (autoregressive) to kMaxGamma. The upper end only keeps a typing error from asking for a
/// table of a billion entries.
inline constexpr int kMaxGamma = 1'000'000;
int require_gamma(std::string_view name, int gamma);

}  // namespace speclab::theory
