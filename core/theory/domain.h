#pragma once

#include <string_view>

namespace speclab::theory {

/// Check the arguments of closed forms. Each function returns its value. It throws Error with the name, the
/// value and the range when the value is outside the range; NaN always is.
double require_probability(std::string_view name, double value);   ///< [0, 1]
double require_non_negative(std::string_view name, double value);  ///< [0, infinity), finite
double require_positive(std::string_view name, double value);      ///< (0, infinity), finite
double require_range(std::string_view name, double value, double lowest, double highest);

/// Limit of a draft length; 0 is autoregressive decoding. It only keeps a typing error from allocating a
/// table of a billion entries.
inline constexpr int kMaxGamma = 1'000'000;
int require_gamma(std::string_view name, int gamma);

}  // namespace speclab::theory
