#include "experiments/simulate/replay/laws/fitted_law.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <string>
#include <utility>

#include "core/base/error.h"
#include "core/measure/stats.h"
#include "experiments/analysis/case_costs.h"
#include "experiments/metrics/metrics_detail.h"

namespace speclab {
namespace {

using nlohmann::json;

/// The law of the case's strategy. Null if it has none, or if this version does not know the strategy.
const LawKind* kind_of(const CaseData& data) {
  const StrategyInfo* const info = recorded_strategy(data.config.value("strategy", ""));
  if (info == nullptr) return nullptr;
  for (const LawKind* kind : law_kinds()) {
    if (kind->id == info->law) return kind;
  }
  return nullptr;
}

/// The options of a case without the setting of the kind (LawKind::setting).
json other_options(const LawKind& kind, const CaseData& data) {
  json options = data.options();
  for (const std::string_view name : kind.setting) options.erase(std::string(name));
  return options;
}

/// Tokens, steps and drafted tokens of these prompts.
struct StepSums {
  double tokens = 0, steps = 0, drafted = 0;
};

StepSums step_sums(const CaseData& data, const PromptChoice& prompts) {
  StepSums sums;
  for_each_line(data, 0, [&](std::size_t prompt, const LineRecord& line) {
    if (!prompts(prompt)) return;
    sums.tokens += emitted_tokens(line);
    sums.steps += step_count(line);
    for (const GenerationRecord& turn : line.turns) {
      for (const StepRecord& step : turn.steps) sums.drafted += static_cast<double>(step.drafted.size());
    }
  });
  return sums;
}

bool all_prompts(std::size_t) { return true; }

std::vector<const CaseData*> pointers(const std::vector<FittedCell>& cells) {
  std::vector<const CaseData*> out;
  for (const FittedCell& cell : cells) out.push_back(cell.data.get());
  return out;
}

std::optional<LawTest> test_of(const std::vector<double>& errors) {
  if (errors.empty()) return std::nullopt;
  return LawTest{static_cast<int>(errors.size()), stats::median(errors)};
}

std::optional<LawTest> test_on_other_prompts(const LawKind& kind, const std::vector<const CaseData*>& cells) {
  std::vector<double> errors;
  for (const std::size_t tested : {std::size_t{0}, std::size_t{1}}) {
    const PromptChoice test = [tested](std::size_t prompt) { return prompt % 2 == tested; },
                       fit = [tested](std::size_t prompt) { return prompt % 2 != tested; };
    for (const CaseData* data : cells) {
      if (step_sums(*data, test).steps == 0 || step_sums(*data, fit).steps == 0) return std::nullopt;
    }
    const TauLaw law = kind.fit(cells, fit);
    for (const CaseData* data : cells) {
      const StepSums sums = step_sums(*data, test);
      errors.push_back(std::abs(law.tau(data->options()) * sums.steps / sums.tokens - 1));
    }
  }
  return test_of(errors);
}

std::optional<LawTest> test_on_other_settings(const LawKind& kind, const std::vector<FittedCell>& cells) {
  if (cells.size() < static_cast<std::size_t>(kind.least_cells) + 1) return std::nullopt;
  std::vector<double> errors;
  for (std::size_t left = 0; left < cells.size(); ++left) {
    std::vector<const CaseData*> others;
    for (std::size_t i = 0; i < cells.size(); ++i) {
      if (i != left) others.push_back(cells[i].data.get());
    }
    const TauLaw law = kind.fit(others, all_prompts);
    errors.push_back(std::abs(law.tau(cells[left].data->options()) / cells[left].tau - 1));
  }
  return test_of(errors);
}

FittedLaw fitted(const LawKind& kind, std::vector<FittedCell> cells) {
  FittedLaw out;
  out.kind = &kind;
  out.cells = std::move(cells);
  const std::vector<const CaseData*> cases = pointers(out.cells);
  out.law = kind.fit(cases, all_prompts);
  out.other_prompts = test_on_other_prompts(kind, cases);
  out.other_settings = test_on_other_settings(kind, out.cells);
  out.row_share = out.drafted_share = 0;
  const auto count = static_cast<double>(out.cells.size());
  for (const FittedCell& cell : out.cells) {
    out.row_share += cell.rows / kind.rows(cell.data->options()) / count;
    out.drafted_share += cell.drafted / kind.drafted(cell.data->options()) / count;
  }
  return out;
}

}  // namespace

std::span<const LawKind* const> law_kinds() {
  static constexpr std::array<const LawKind*, 3> kAll = {&kLookaheadKind, &kJacobiKind, &kRecyclingKind};
  return kAll;
}

std::string FittedLaw::strategy() const { return cells.front().data->config.value("strategy", ""); }

LawStep FittedLaw::predict(const json& options) const {
  return {.tau = law.tau(options),
          .rows = std::max(1.0, row_share * kind->rows(options)),
          .drafted = drafted_share * kind->drafted(options)};
}

const theory::Calibration* FittedLaw::nearest_costs(double rows) const {
  const FittedCell* best = nullptr;
  for (const FittedCell& cell : cells) {
    if (!cell.costs) continue;
    if (best == nullptr || std::abs(cell.rows - rows) < std::abs(best->rows - rows)) best = &cell;
  }
  return best == nullptr ? nullptr : &*best->costs;
}

std::optional<double> FittedLaw::step_ns(const LawStep& step,
                                         const std::optional<theory::Calibration>& costs) const {
  const theory::Calibration* used = costs ? &*costs : nearest_costs(step.rows);
  if (used == nullptr) return std::nullopt;
  return used->draft_step + used->draft_token * step.drafted + used->target.at_mean(step.rows) +
         used->accept_step + used->accept_row * step.tau + used->other;
}

json FittedLaw::options_with(const json& setting) const {
  json options = cells.front().data->options();
  bool good = setting.is_object() && setting.size() == kind->setting.size();
  for (const std::string_view name : kind->setting) {
    const auto found = good ? setting.find(std::string(name)) : setting.end();
    const json& present = options.at(std::string(name));
    good = good && found != setting.end() && found->is_array() == present.is_array() &&
           (found->is_array() || found->is_number_integer());
    if (good) options[std::string(name)] = *found;
  }
  if (!good || !kind->covers(options)) {
    throw Error(
        {.what = fmt::format("a setting of {}", strategy()),
         .got = setting.dump(),
         .expected = fmt::format("{}, of a case that its law is about", fmt::join(kind->setting, ", ")),
         .advice = "speclab describe STRATEGY explains these options."});
  }
  return options;
}

bool FittedLaw::about(const CaseData& data) const {
  const CaseData& own = *cells.front().data;
  for (const char* name : {"strategy", "rule"}) {
    if (data.config.value(name, json()) != own.config.value(name, json())) return false;
  }
  if (!kind->covers(data.options())) return false;
  json first = other_options(*kind, own), second = other_options(*kind, data);
  for (const char* name : {"max_tokens", "ignore_eos", "min_length"}) first.erase(name);
  for (const auto& [name, value] : first.items()) {
    if (second.contains(name) && second[name] != value) return false;
  }
  return true;
}

std::vector<FittedLaw> fitted_laws(std::span<const std::shared_ptr<CaseData>> cases,
                                   const json& calibration) {
  std::map<std::string, std::vector<FittedCell>> groups;
  std::map<std::string, const LawKind*> kinds;
  for (const auto& data : cases) {
    const LawKind* kind = kind_of(*data);
    if (kind == nullptr || !data->reference || data->devices() > 1 || !kind->covers(data->options()) ||
        data->options().value("budget", "fixed") != "fixed" || data->options().value("emit_at_most", 0) > 0)
      continue;
    const StepSums sums = step_sums(*data, all_prompts);
    if (sums.steps == 0 || sums.tokens == 0) continue;
    const std::string key = data->config.value("strategy", "") + other_options(*kind, *data).dump() +
                            data->config.value("rule", json()).dump() + data->config.value("verify", "");
    kinds[key] = kind;
    groups[key].push_back({.data = data,
                           .tau = sums.tokens / sums.steps,
                           .rows = row_equivalents(*data),
                           .drafted = sums.drafted / sums.steps,
                           .costs = calibration_of(*data, calibration)});
  }
  std::vector<FittedLaw> out;
  for (auto& [key, cells] : groups) {
    const LawKind& kind = *kinds.at(key);
    if (cells.size() >= static_cast<std::size_t>(kind.least_cells))
      out.push_back(fitted(kind, std::move(cells)));
  }
  return out;
}

}  // namespace speclab
