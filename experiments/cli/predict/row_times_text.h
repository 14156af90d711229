#pragma once

#include <string>
#include <vector>

#include "core/theory/step_costs.h"

/// Parses lists of numbers on a command line.
namespace speclab {

/// Reads a list such as ".8,.75,.7". An empty text gives an empty list. Throws Error that names `option` if
/// an entry is no number.
std::vector<double> parse_number_list(const std::string& text, const std::string& option);

/// Reads --t, the times of a forward by number of rows: "1:1,5:1.8" -> {1: 1, 5: 1.8}. Throws Error if the
/// text is not such a list.
theory::RowTimes parse_row_times(const std::string& text);

}  // namespace speclab
