#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "experiments/analysis/table.h"

namespace speclab {

// Tables on a terminal. Into a file or a pipe, tables are printed whole: `width` then has no value, and the
// functions return the whole table as to_text() formats it.

/// The table in lines of at most `width` characters. Cells of columns that align left are divided into lines,
/// after a space or a slash. If that would make such a column narrower than about 20 characters, columns of
/// Table::expendable are left out instead, and a note below the table names them. Lines are longer than
/// `width` only if the columns that are not expendable need that.
std::string fitted_text(const Table& table, std::optional<int> width);

/// summary_table() in lines of at most `width` characters. Cases then have short names (short_names()). A
/// note says so if any short name differs from the case id.
std::string fitted_summary(const nlohmann::json& summary, std::optional<int> width);

}  // namespace speclab
