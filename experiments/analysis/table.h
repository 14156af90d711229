#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "core/measure/stats.h"

namespace speclab {

/// A table of texts with one header row, to be printed as text, LaTeX (booktabs) or Markdown.
struct Table {
  std::vector<std::string> header;
  std::vector<std::vector<std::string>> rows;
  std::vector<bool> right;  ///< [columns] true aligns right; a missing entry aligns left
  /// Titles of the columns that a narrow terminal need not show, the least important one first
  /// (experiments/analysis/table_fit.h).
  std::vector<std::string> expendable = {};
};
/// The table as text. A cell may have several lines, divided by "\n".
std::string to_text(const Table& table);
/// The number of characters, not bytes, because a terminal shows characters.
std::size_t shown_width(std::string_view text);
std::string to_latex(const Table& table, const std::string& caption);
std::string to_markdown(const Table& table);
std::string csv_field(const std::string& text);

/// A number with `digits` significant digits, such as "1.23". Digits before the point are never cut; numbers
/// below 1e-4 or from 1e5 on have three digits. "yes" or "NO" for a boolean, "—" for null.
std::string number_text(const nlohmann::json& value, int digits = 3);
/// The note " (n = 9)" after an interval over few prompts. "" for stats::kFewClusters prompts or more, and
/// for 0, which means that the number is not known.
std::string few_prompts_text(std::size_t prompts);
/// A metric with its interval, such as "1.23 [1.20, 1.26]", and few_prompts_text(prompts).
std::string interval_text(const nlohmann::json& metrics, const std::string& name, int digits = 3,
                          std::size_t prompts = stats::kFewClusters);

/// The table of a summary: one row per case, without columns that are empty for all cases.
Table summary_table(const nlohmann::json& summary);
/// Notes on summary_table(), one per line: what its marks mean, which times do not count, which chains the
/// trees were compared with, which rules are wrong, and which differences of time are noise.
std::string notes_text(const nlohmann::json& summary);
/// The published numbers that the config quotes, one table for each source and category that a case has, with
/// the measured numbers beside them. "" when no case has published numbers.
std::string published_text(const nlohmann::json& summary);
/// A table for each case, or for the case `case_id`, with one row per prompt: the copied share of the text,
/// tau and speedup.
std::string prompts_text(const nlohmann::json& summary, const std::string& case_id);
/// All scalar metrics with their intervals as CSV: a header, then one line per case.
std::string summary_csv(const nlohmann::json& summary);

}  // namespace speclab
