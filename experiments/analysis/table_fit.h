#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "experiments/analysis/table.h"

namespace speclab {

// Tables on a terminal. Into a file or a pipe, tables are printed whole: `width` then has no value, and the
// result is that of to_text().

/// The table in lines of at most `width` characters. Cells of columns that align left are divided into lines,
/// after a space or a slash. If that is not enough, columns of Table::expendable are left out, and a note
/// below the table names them. Lines are longer than `width` only if the other columns need that.
std::string fitted_text(const Table& table, std::optional<int> width);

/// summary_table() in lines of at most `width` characters. Cases have short names there (short_names()), and
/// a note says so.
std::string fitted_summary(const nlohmann::json& summary, std::optional<int> width);

}  // namespace speclab
