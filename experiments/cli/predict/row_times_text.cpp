#include "experiments/cli/predict/row_times_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <sstream>

#include "core/base/error.h"

namespace speclab {

std::vector<double> parse_number_list(const std::string& text, const std::string& option) {
  std::vector<double> numbers;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, ',');) {
    double number = 0;
    const auto [end, code] = std::from_chars(part.data(), part.data() + part.size(), number);
    if (code != std::errc{} || end != part.data() + part.size()) {
      throw Error({.what = option,
                   .got = "\"" + part + "\"",
                   .expected = "numbers separated by commas",
                   .advice = fmt::format("Numbers of {} look like 4 or .75, without spaces.", option)});
    }
    numbers.push_back(number);
  }
  return numbers;
}

theory::RowTimes parse_row_times(const std::string& text) {
  std::map<int, double> times;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, ',');) {
    const std::size_t colon = part.find(':');
    int rows = 0;
    const auto [end, code] = std::from_chars(part.data(), part.data() + std::min(colon, part.size()), rows);
    if (colon == std::string::npos || colon + 1 == part.size() || code != std::errc{} ||
        end != part.data() + colon || rows < 1) {
      throw Error({.what = "--t",
                   .got = "\"" + part + "\"",
                   .expected = "pairs ROWS:TIME separated by commas",
                   .advice = "For example --t 1:1,5:1.3,9:1.7."});
    }
    times[rows] = parse_number_list(part.substr(colon + 1), "--t").at(0);
  }
  return theory::RowTimes(std::move(times));
}

}  // namespace speclab
