#include "tests/planted/plant.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <iterator>
#include <system_error>
#include <utility>

#include "core/base/error.h"

namespace speclab::planted {
namespace {

constexpr std::pair<std::string_view, Fault> kFaults[] = {{"draft", Fault::draft},
                                                          {"verification", Fault::verification},
                                                          {"bookkeeping", Fault::bookkeeping},
                                                          {"acceptance", Fault::acceptance}};
constexpr double kMostDelay = 100;

struct State {
  Plant plant;
  Tally tally;
};
State& state() {
  static State all;
  return all;
}

}  // namespace

std::string_view to_string(Fault fault) {
  for (const auto& [name, each] : kFaults) {
    if (each == fault) return name;
  }
  return "none";
}

Plant parse_plant(const std::string& text) {
  const std::size_t equals = text.find('=');
  const std::string_view name = std::string_view(text).substr(0, equals);
  const auto* const found = std::find_if(std::begin(kFaults), std::end(kFaults),
                                         [&](const auto& one) { return one.first == name; });
  Plant result;
  bool good = found != std::end(kFaults) && equals != std::string::npos;
  if (good) {
    result.fault = found->second;
    const char* const end = text.data() + text.size();
    const auto read = std::from_chars(text.data() + equals + 1, end, result.amount);
    const double most = result.fault == Fault::acceptance ? 1 : kMostDelay;
    good = read.ec == std::errc() && read.ptr == end && result.amount > 0 && result.amount <= most;
  }
  if (!good) {
    throw Error(
        {.what = "--plant",
         .got = "\"" + text + "\"",
         .expected = fmt::format("draft=SHARE, verification=SHARE or bookkeeping=SHARE with a share of "
                                 "a step above 0 and at most {}, or acceptance=PROBABILITY above 0 and "
                                 "at most 1",
                                 kMostDelay),
         .advice = "For example --plant draft=0.03."});
  }
  return result;
}

std::int64_t delay_ns(const Plant& plant, std::int64_t last_step_ns) {
  return std::llround(plant.amount * static_cast<double>(last_step_ns));
}

void set_plant(const Plant& plant) { state() = {plant, Tally()}; }
const Plant& current_plant() { return state().plant; }
Tally& tally() { return state().tally; }

}  // namespace speclab::planted
