#include "experiments/run/device/given_speed.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <cstdlib>
#include <string_view>
#include <system_error>

#include "core/base/error.h"

namespace speclab {
namespace {

constexpr const char* kSpeedName = "SPECLAB_DEVICE_SPEED";

/// A number above 0, or no value.
std::optional<double> positive(std::string_view text) {
  double number = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (code != std::errc{} || end != text.data() + text.size() || !std::isfinite(number) || number <= 0)
    return {};
  return number;
}

}  // namespace

std::optional<DeviceSpeed> given_speed() {
  const char* const value = std::getenv(kSpeedName);
  if (value == nullptr || *value == '\0') return {};
  const std::string_view text = value;
  const std::size_t comma = text.find(',');
  const std::optional<double> bytes = positive(text.substr(0, comma)),
                              operations = positive(comma == text.npos ? "" : text.substr(comma + 1));
  if (!bytes || !operations) {
    throw Error({.what = fmt::format("{} in the environment", kSpeedName),
                 .got = fmt::format("\"{}\"", text),
                 .expected = "bytes per second and operations per second, such as 2e10,4e11",
                 .advice = "Unset it, and the speed is measured."});
  }
  return DeviceSpeed{.read_bytes_per_second = *bytes, .peak_flops = *operations};
}

}  // namespace speclab
