#include "core/spec/strategy.h"

#include <algorithm>

#include "core/base/error.h"
#include "core/spec/row_kernels.h"

namespace speclab {

namespace {

std::span<const float> row_at(const StepRows& rows, int node) {
  const std::int32_t row = rows.row_of[static_cast<std::size_t>(node)];
  SPECLAB_CHECK(row >= 0, "the row of node {}, which has none", node);
  const auto size = static_cast<std::size_t>(rows.vocab);
  return {rows.logits + static_cast<std::size_t>(row) * size, size};
}

}  // namespace

Token StepRows::best(int node) const {
  const std::span<const float> values = row_at(*this, node);
  bool valid = true;
  const std::size_t found = row_kernels::find(values, row_kernels::max(values, &valid));
  return static_cast<Token>(std::min(found, values.size() - 1));
}

void StepRows::top(int node, int k, std::vector<Token>& out) const {
  thread_local std::vector<float> maxima;
  thread_local std::vector<TopEntry> entries;
  first_entries(row_at(*this, node), static_cast<std::size_t>(std::max(k, 0)), maxima, entries);
  std::sort(entries.begin(), entries.end(), comes_first);
  out.clear();
  for (const TopEntry& entry : entries) out.push_back(entry.index);
}

std::optional<DevicePlan> Strategy::device_plan(const SamplingParams&) const {
  return std::nullopt;
}

void Strategy::observe(std::span<const Sequence* const>, std::span<const Outcome>) {}

}  // namespace speclab
