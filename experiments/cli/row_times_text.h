#pragma once

#include <string>
#include <vector>

#include "core/theory/step_costs.h"

/// Numbers of a command line.
namespace speclab {

/// ".8,.75,.7". Throws Error that names `option`.
std::vector<double> parse_number_list(const std::string& text, const std::string& option);

/// Times of a forward by rows, of --t: "1:1,5:1.8" -> {1: 1, 5: 1.8}. Throws Error.
theory::RowTimes parse_row_times(const std::string& text);

}  // namespace speclab
