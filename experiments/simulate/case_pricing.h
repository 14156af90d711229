#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/measure/work.h"
#include "core/theory/cost.h"
#include "core/theory/explain.h"
#include "experiments/metrics/fed_rows.h"
#include "experiments/metrics/run_data.h"
#include "experiments/simulate/device_file.h"

/// The cost of the steps of a case on a device, and the speedup that follows from it. repricing.h says what
/// the numbers mean.
namespace speclab {

using ModelShapes = std::map<std::string, theory::DecoderShape>;  ///< see run_shapes()

/// A device that prices the models of one run for one batch size.
struct Pricing {
  const SimulatedDevice& device;
  const ModelShapes& shapes;
  int batch = 1;
  double context = 0;  ///< committed tokens of each sequence

  double forward_ns(const std::string& model, int rows) const;
  /// Interpolates for a number of rows that is no integer.
  double forward_ns(const std::string& model, double rows) const;
};

/// Mean over the steps of a case's reference: the number of committed tokens before the step.
double mean_context(const CaseData& data);

/// The steps of a case, ready to be priced again and again.
class PricedSteps {
 public:
  explicit PricedSteps(const CaseData& data);

  struct Result {
    double tau = 0, step_ns = 0, speedup = 0;
  };
  /// Absent for a case without steps.
  std::optional<Result> at(const theory::Calibration& costs) const;
  /// 95 % interval of the speedup, by a bootstrap over prompts.
  std::optional<stats::Interval> interval(const theory::Calibration& costs) const;

  double tau() const { return tau_; }  ///< tokens per step; 0 without steps
  const CaseData& data() const { return data_; }
  const std::vector<FedRows>& fed() const { return fed_; }
  int most_rows() const;  ///< rows of the largest step, at least 1

 private:
  std::optional<Result> of(std::span<const std::size_t> prompts, const theory::Calibration& costs) const;

  const CaseData& data_;
  std::vector<FedRows> fed_;
  double share_ = 1, tau_ = 0;
};

/// The draft models of a case, each with its work in repeat 0. Empty for a case without a draft model. Throws
/// Error for several draft models whose work the record does not count.
std::vector<std::pair<std::string, Work>> draft_works(const CaseData& data);

/// The costs of a case on the device, in nanoseconds. Throws Error if the device cannot price a model of the
/// case, if the case drafts without a draft model and neither the device nor the run has calibrated costs of
/// it, and if the case drafts while the target verifies.
theory::Calibration device_costs(const PricedSteps& steps, const Pricing& pricing);

/// For a draft model: the case with the longest chains of constant length that this model alone drafts.
struct LongestChain {
  const CaseData* data = nullptr;
  const nlohmann::json* metrics = nullptr;
  int gamma = 0;
};
/// By draft model. `metrics`: compute_metrics() of each case of the run. A trace (a case with "emit_at_most":
/// 1, trace.h) needs no constant length: the length of its longest draft counts.
std::map<std::string, LongestChain> longest_chains(const RunData& run,
                                                   const std::vector<nlohmann::json>& metrics);

/// Time of the draft model's forwards for a drafted token / time of a target forward of one row, with the
/// costs of a device. `gamma`: drafted tokens of a step.
double simulated_c(const theory::Calibration& costs, int gamma);

}  // namespace speclab
