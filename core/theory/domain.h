#pragma once

#include <string_view>

namespace speclab::theory {

/// These functions check the arguments of closed forms. Each returns `value`. If the value is outside the
/// range, it throws Error with the name, the value and the range. NaN is outside every range.
double require_probability(std::string_view name, double value);   ///< [0, 1]
double require_non_negative(std::string_view name, double value);  ///< [0, infinity), finite
double require_positive(std::string_view name, double value);      ///< (0, infinity), finite
double require_range(std::string_view name, double value, double lowest, double highest);

/// Largest allowed draft length; 0 is autoregressive decoding. The limit only keeps a typing error from
/// allocating a table of a billion entries.
inline constexpr int kMaxGamma = 1'000'000;
int require_gamma(std::string_view name, int gamma);

}  // namespace speclab::theory
