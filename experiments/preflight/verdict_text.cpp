#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstddef>
#include <string>

#include "experiments/analysis/table.h"
#include "experiments/preflight/row_costs.h"
#include "experiments/preflight/strategies.h"
#include "experiments/preflight/verdict.h"

namespace speclab {
namespace {

using nlohmann::json;

std::string alpha_sentence(const json& verdict) {
  const json& even = verdict["break_even_alpha"];
  if (even.is_null())
    return fmt::format("No acceptance would give a speedup: a drafted token costs {} target forwards.",
                       number_text(verdict["c"]));
  return fmt::format("The measured alpha is {}; below an alpha of {} no draft length would gain.",
                     interval_text(verdict, "alpha"), number_text(even));
}

std::string check_sentences(const json& verdict) {
  std::string text;
  if (const json& check = verdict["check"]; !check.is_null()) {
    const char* const meaning = check["contradicts"].get<bool>() ? "It contradicts the prediction."
                                : check["agrees"].get<bool>()    ? "It agrees with the prediction."
                                                                 : "It is outside the predicted interval.";
    text += fmt::format("Speedup measured on {} other prompts: {}. {}\n", check["prompts"].get<int>(),
                        interval_text(check, "speedup"), meaning);
  }
  if (const json& best = verdict["best_check"]; !best.is_null())
    text += fmt::format("Speedup of the best strategy on the same prompts: {}.\n",
                        interval_text(best, "speedup"));
  return text;
}

/// Names the best strategy, and the other strategies that are as fast within the error of the replay.
std::string best_strategy_sentence(const json& strategies) {
  const json& best = strategies.at(0);
  const double most = best["speedup"];
  std::string text =
      fmt::format("Best strategy: {} ({}), predicted speedup {}.", best["what"].get<std::string>(),
                  setting_words(best), interval_text(best, "speedup"));
  for (std::size_t i = 1; i < strategies.size(); ++i) {
    const json& other = strategies[i];
    if (other["speedup"].get<double>() * (1 + kReplayError) < most) continue;
    text += fmt::format(" {} is as fast within the error of the prediction, {:.0f} %.",
                        other["what"].get<std::string>(), 100 * kReplayError);
  }
  return text + "\n";
}

std::string strategies_table(const json& strategies) {
  Table table{.header = {"strategy", "best setting", "tau", "predicted speedup"},
              .rows = {},
              .right = {false, false, true, true}};
  for (const json& row : strategies)
    table.rows.push_back(
        {row["what"], setting_words(row), interval_text(row, "tau"), interval_text(row, "speedup")});
  return to_text(table);
}

std::string lengths_table(const json& verdict) {
  Table table{.header = {"draft length", "t(n)", "tau", "predicted speedup"},
              .rows = {},
              .right = {true, true, true, true}};
  for (const json& row : verdict["lengths"]) {
    const std::string rows = std::to_string(row["gamma"].get<int>() + 1);
    table.rows.push_back({row["gamma"].dump(), number_text(verdict["t"].value(rows, json())),
                          interval_text(row, "tau"), interval_text(row, "speedup")});
  }
  return to_text(table);
}

/// Acceptance by category and by position in the draft.
std::string acceptance_table(const json& verdict) {
  Table table{.header = {"category", "alpha"}, .rows = {}, .right = {false, true}};
  const auto add = [&](const std::string& name, const json& alpha, const json& positions) {
    table.rows.push_back({name, number_text(alpha)});
    if (!positions.is_array()) return;
    for (const json& at : positions) table.rows.back().push_back(number_text(at));
  };
  add("all prompts", verdict["alpha"], verdict["acceptance_at"]);
  for (const auto& [name, alpha] : verdict["alpha_by_category"].items())
    add(name, alpha, verdict["acceptance_by_category"].value(name, json()));
  std::size_t columns = 0;
  for (const auto& row : table.rows) columns = std::max(columns, row.size());
  for (std::size_t i = table.header.size(); i < columns; ++i) {
    table.header.push_back(fmt::format("token {}", i - 1));
    table.right.push_back(true);
  }
  for (auto& row : table.rows) row.resize(columns);
  return to_text(table);
}

std::string devices_table(const json& rows) {
  Table table{.header = {"simulated device", "c", "best length", "simulated speedup", "break-even alpha"},
              .rows = {},
              .right = {false, true, true, true, true}};
  for (const json& row : rows) {
    table.rows.push_back(
        {row["device"], number_text(row["c"]),
         fmt::format("{}{}", row["best_gamma"].dump(), row["at_limit"].get<bool>() ? " or more" : ""),
         number_text(row["speedup"]), number_text(row["break_even_alpha"])});
  }
  return to_text(table);
}

}  // namespace

std::string preflight_text(const json& verdict) {
  const json& strategies = verdict.at("strategies");
  const json& own = strategies.at(verdict.at("recommended").get<std::size_t>());
  const std::string said = verdict["verdict"];
  std::string text =
      fmt::format("{}: with {}, decoding should be {} times as fast (95 % interval [{}, {}]).\n{}\n",
                  said == "worth it"       ? "Worth it"
                  : said == "not worth it" ? "Not worth it"
                                           : "Unclear",
                  setting_words(own), number_text(own["speedup"]), number_text(verdict["interval"][0]),
                  number_text(verdict["interval"][1]), alpha_sentence(verdict));
  text += check_sentences(verdict) + best_strategy_sentence(strategies);
  text += "\n" + strategies_table(strategies) + "\n" + row_costs_text(verdict.at("row_costs"));
  text += fmt::format(
      "c = {} (time of a drafted token / time of a target forward). t(n): time of a target "
      "forward over the draft and one more token, in units of a forward over one token.\n\n{}\n",
      number_text(verdict["c"]), lengths_table(verdict));
  text += "P(a drafted token is accepted, given that those before it were), by its place in the draft:\n" +
          acceptance_table(verdict);
  if (!verdict["devices"].empty()) text += "\n" + devices_table(verdict["devices"]);
  return text;
}

}  // namespace speclab
