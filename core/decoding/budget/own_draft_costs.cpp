#include "core/decoding/budget/own_draft_costs.h"

#include <algorithm>
#include <utility>

#include "core/base/error.h"

namespace speclab {
namespace {

constexpr double kLeast = 1e-6;  // times stay positive: no forward takes less than this part of t(1)

}  // namespace

OwnDraftCosts::OwnDraftCosts(std::shared_ptr<const StepCosts> measured, const Forward& forward,
                             int most_tokens)
    : measured_(std::move(measured)), forward_(forward), table_(std::make_shared<StepCosts>()) {
  SPECLAB_CHECK(measured_ && measured_->layer_ns >= 0, "costs without the time of a layer");
  SPECLAB_CHECK(forward_.layers >= std::min(1, forward_.all_layers) && forward_.layers <= forward_.all_layers,
                "a draft with {} of {} layers", forward_.layers, forward_.all_layers);
  table_->target_ns.resize(static_cast<std::size_t>(most_tokens) + 1);
  table_->draft_ns.resize(static_cast<std::size_t>(forward_.most_rows));
  at(measured_->context);
}

void OwnDraftCosts::at(std::int64_t committed) {
  const double one = measured_->target(1), layer_ns = measured_->layer_ns,
               share =
                   forward_.all_layers > 0 ? static_cast<double>(forward_.layers) / forward_.all_layers : 1;
  const std::int64_t seen = forward_.most_seen < 0 ? committed : std::min(committed, forward_.most_seen);
  const auto positions = [&](std::int64_t n) {
    return static_cast<double>(n - measured_->context) * measured_->position_ns;
  };
  for (std::size_t i = 0; i < table_->draft_ns.size(); ++i) {
    const double rows = measured_->target(static_cast<int>(i) + 1);
    table_->draft_ns[i] = std::max(
        kLeast * one, rows - (forward_.all_layers - forward_.layers) * layer_ns + positions(seen) * share);
  }
  const double in_first_layers = forward_.exits ? std::clamp(forward_.layers * layer_ns / one, 0.0, 1.0) : 0;
  for (std::size_t i = 0; i < table_->target_ns.size(); ++i) {
    const double rows = measured_->target(static_cast<int>(i) + 1);
    table_->target_ns[i] =
        std::max(kLeast * one, rows * (1 - in_first_layers) + one * in_first_layers + positions(committed));
  }
}

}  // namespace speclab
