#include "core/spec/strategy.h"

#include <algorithm>

#include "core/base/error.h"
#include "core/spec/row_kernels.h"

namespace speclab {

Token StepRows::best(int node) const {
  const std::int32_t row = row_of[static_cast<std::size_t>(node)];
  SPECLAB_CHECK(row >= 0, "the row of node {}, which has none", node);
  const auto size = static_cast<std::size_t>(vocab);
  const std::span<const float> values(logits + static_cast<std::size_t>(row) * size, size);
  bool valid = true;
  const std::size_t found = row_kernels::find(values, row_kernels::max(values, &valid));
  return static_cast<Token>(std::min(found, size - 1));
}

std::optional<DevicePlan> Strategy::device_plan(const SamplingParams&) const {
  return std::nullopt;
}

void Strategy::observe(std::span<const Sequence* const>, std::span<const Outcome>) {}

}  // namespace speclab
