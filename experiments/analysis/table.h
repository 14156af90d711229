#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "core/measure/stats.h"

namespace speclab {

/// A table of texts with one header row; printed for people, as CSV or as LaTeX (booktabs).
struct Table {
  std::vector<std::string> header;
  std::vector<std::vector<std::string>> rows;
  std::vector<bool> right;  ///< [columns] align right; missing = left
};
std::string to_text(const Table& table);
std::string to_latex(const Table& table, const std::string& caption);
std::string csv_field(const std::string& text);

/// "1.23", "—" for null; `digits` significant ones.
std::string number_text(const nlohmann::json& value, int digits = 3);
/// " (n = 9)", what stands beside an interval over so few prompts; "" from stats::kFewClusters on, and for 0:
/// not known.
std::string few_prompts_text(std::size_t prompts);
/// "1.23 [1.20, 1.26]", with few_prompts_text where the number of prompts is given.
std::string interval_text(const nlohmann::json& metrics, const std::string& name, int digits = 3,
                          std::size_t prompts = stats::kFewClusters);

/// The table of a summary: one row per case, the columns that have a value somewhere.
Table summary_table(const nlohmann::json& summary);
/// What the table's marks mean, and which differences of time are noise: a line each.
std::string notes_text(const nlohmann::json& summary);
/// For each case about which the config quotes published numbers: those beside the ones measured here; ""
/// without.
std::string published_text(const nlohmann::json& summary);
/// For each case, or the one that is named, a line for each prompt: the share of its text that is copied,
/// tau, speedup.
std::string prompts_text(const nlohmann::json& summary, const std::string& case_id);
/// Every scalar metric of every case, with its interval: header, then one line per case.
std::string summary_csv(const nlohmann::json& summary);

}  // namespace speclab
