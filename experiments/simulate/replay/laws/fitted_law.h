#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/theory/explain.h"
#include "experiments/simulate/replay/laws/law_kind.h"

namespace speclab {

/// A measured case to which a law is fitted.
struct FittedCell {
  std::shared_ptr<const CaseData> data;
  double tau = 1, rows = 1, drafted = 0;  ///< measured, per step; rows as row_equivalents() counts them
  std::optional<theory::Calibration> costs = {};  ///< calibrated; absent without a calibration of the case
};

/// The errors of predictions of tau on what a fit has not seen.
struct LawTest {
  int predictions = 0;
  double median = 0;  ///< of |predicted / measured - 1|
};

/// The mean step of a setting by a law.
struct LawStep {
  double tau = 1, rows = 1, drafted = 0;
};

/// A law that was fitted to cases that differ in their setting (LawKind::setting) alone.
struct FittedLaw {
  const LawKind* kind = nullptr;
  TauLaw law = {};
  std::vector<FittedCell> cells = {};
  /// Mean over the cells of: rows of a step / LawKind::rows, and drafted tokens of a step / LawKind::drafted.
  double row_share = 1, drafted_share = 1;
  /// Fitted to one half of the prompts, tested on the other, in both directions. Absent with one prompt, and
  /// when a cell has no steps in one half.
  std::optional<LawTest> other_prompts = {};
  /// Each cell predicted by a fit to the other cells. Absent when too few cells would be left.
  std::optional<LawTest> other_settings = {};

  std::string strategy() const;                          ///< the name of the cells' strategy
  LawStep predict(const nlohmann::json& options) const;  ///< of a case with these options
  /// Time of such a step in nanoseconds, from `costs`, the calibrated costs of the case itself. If they are
  /// absent, the costs of the cell with the nearest number of rows are taken. Absent if no cell has costs.
  std::optional<double> step_ns(const LawStep& step, const std::optional<theory::Calibration>& costs) const;
  /// The calibrated costs of the cell with the nearest number of rows; null if no cell has any.
  const theory::Calibration* nearest_costs(double rows) const;
  /// The options of the first cell, but with the values that `setting` gives. Throws Error if `setting` does
  /// not have exactly the options LawKind::setting, if one of them is not an integer or a list as in the
  /// first cell, and if the law does not cover the result.
  nlohmann::json options_with(const nlohmann::json& setting) const;
  /// Whether the law is about this case: LawKind::covers accepts it, and it has the strategy, rule and
  /// options of the cells, except for the setting and the length of texts. An option that a record lacks is
  /// not compared.
  bool about(const CaseData& data) const;
};

/// Fits the laws to the cases of a run, from repeat 0. Takes cases with a reference, with a fixed budget,
/// on one device, that emit whole steps and that a law covers (LawKind::covers). Cases that differ in the
/// setting alone make one law. Leaves out groups with too few cells. `calibration`: the run's calibration.
std::vector<FittedLaw> fitted_laws(std::span<const std::shared_ptr<CaseData>> cases,
                                   const nlohmann::json& calibration);

}  // namespace speclab
