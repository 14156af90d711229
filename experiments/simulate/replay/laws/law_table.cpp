#include "experiments/simulate/replay/laws/law_table.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "core/base/error.h"
#include "experiments/analysis/table.h"
#include "experiments/metrics/metrics.h"
#include "experiments/simulate/replay/certainty.h"

namespace speclab {
namespace {

using nlohmann::json;

json setting_of_kind(const LawKind& kind, const json& options) {
  json out = json::object();
  for (const std::string_view name : kind.setting) out[std::string(name)] = options.at(std::string(name));
  return out;
}

bool same_options(const LawKind& kind, const json& setting) {
  return setting.is_object() && setting.size() == kind.setting.size() &&
         std::ranges::all_of(kind.setting,
                             [&](std::string_view name) { return setting.contains(std::string(name)); });
}

/// A row of the table. `cell` is null for a setting that was not measured.
json law_row(const FittedLaw& law, const json& options, const FittedCell* cell) {
  const LawStep step = law.predict(options);
  const auto costs = cell == nullptr ? std::nullopt : cell->costs;
  const theory::Calibration* priced = costs ? &*costs : law.nearest_costs(step.rows);
  json row = {{"setting", setting_of_kind(*law.kind, options)},
              {"case", nullptr},
              {"tau", step.tau},
              {"measured_tau", nullptr},
              {"rows", step.rows},
              {"drafted_per_step", step.drafted},
              {"speedup", nullptr},
              {"measured_speedup", nullptr},
              {"ms_per_token", nullptr}};
  if (priced != nullptr) {
    const double ns = *law.step_ns(step, costs);
    row["speedup"] = step.tau * priced->t_ar / ns;
    row["ms_per_token"] = 1e-6 * ns / step.tau;
  }
  if (cell != nullptr) {
    row["case"] = cell->data->id();
    row["measured_tau"] = cell->tau;
    row["measured_speedup"] = compute_metrics(*cell->data, {"speedup"}).value("speedup", json());
  }
  return row;
}

json test_json(const std::optional<LawTest>& test) {
  if (!test) return nullptr;
  return {{"predictions", test->predictions}, {"median", test->median}};
}

std::string setting_text(const json& setting) {
  std::vector<std::string> parts;
  for (const auto& [name, value] : setting.items()) parts.push_back(fmt::format("{}={}", name, value.dump()));
  return fmt::format("{}", fmt::join(parts, " "));
}

/// The parameters that are single numbers.
std::string parameters_text(const json& parameters) {
  std::vector<std::string> parts;
  for (const auto& [name, value] : parameters.items()) {
    if (value.is_number()) parts.push_back(fmt::format("{} {}", name, number_text(value)));
  }
  return parts.empty() ? "" : fmt::format("Fitted: {}.\n", fmt::join(parts, ", "));
}

std::string test_text(const json& law, const char* name, const char* what) {
  const json& test = law[name];
  if (test.is_null()) return "";
  return fmt::format("Median error of tau on {}: {:.1f} % ({} predictions).\n", what,
                     100 * test["median"].get<double>(), test["predictions"].get<int>());
}

}  // namespace

json law_table(std::span<const FittedLaw> laws, const std::vector<json>& settings) {
  std::set<std::size_t> used;
  json out = json::array();
  for (const FittedLaw& law : laws) {
    json rows = json::array();
    for (const FittedCell& cell : law.cells) rows.push_back(law_row(law, cell.data->options(), &cell));
    for (std::size_t i = 0; i < settings.size(); ++i) {
      if (!same_options(*law.kind, settings[i])) continue;
      used.insert(i);
      rows.push_back(law_row(law, law.options_with(settings[i]), nullptr));
    }
    out.push_back({{"strategy", law.strategy()},
                   {"certainty", std::string(to_string(Certainty::fitted))},
                   {"law", std::string(law.kind->law)},
                   {"assumptions", std::string(law.kind->assumptions)},
                   {"parameters", law.law.parameters},
                   {"other_prompts", test_json(law.other_prompts)},
                   {"other_settings", test_json(law.other_settings)},
                   {"settings", std::move(rows)}});
  }
  for (std::size_t i = 0; i < settings.size(); ++i) {
    if (used.contains(i)) continue;
    throw Error({.what = "the setting " + settings[i].dump(),
                 .got = "no law that is about these options",
                 .expected =
                     "W, N and G with cases of lookahead decoding, block with cases of Jacobi decoding, or "
                     "tree with a case of token recycling",
                 .advice = "The run must have at least two settings of lookahead or Jacobi decoding."});
  }
  return out;
}

std::string law_table_text(const json& laws) {
  std::string text = fmt::format("{}\n", assumptions_of(Certainty::fitted));
  for (const json& law : laws) {
    Table table{.header = {"setting", "tau", "measured", "rows", "predicted speedup", "measured", "ms/token"},
                .rows = {},
                .right = {false, true, true, true, true, true, true}};
    for (const json& row : law["settings"]) {
      table.rows.push_back({setting_text(row["setting"]), number_text(row["tau"]),
                            number_text(row["measured_tau"]), number_text(row["rows"]),
                            number_text(row["speedup"]), number_text(row["measured_speedup"]),
                            number_text(row["ms_per_token"])});
    }
    text += fmt::format("\n{}, fitted to its measured settings\n{}.\n{}\n{}{}{}{}",
                        law["strategy"].get<std::string>(), law["law"].get<std::string>(),
                        law["assumptions"].get<std::string>(), parameters_text(law["parameters"]),
                        test_text(law, "other_prompts", "prompts that were not fitted"),
                        test_text(law, "other_settings", "settings that were not fitted"), to_text(table));
  }
  return text;
}

}  // namespace speclab
