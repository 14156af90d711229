#include "core/decoding/strategy.h"

#include <algorithm>

#include "core/base/error.h"
#include "core/decoding/budget/step_costs.h"
#include "core/decoding/rows/row_kernels.h"

namespace speclab {

namespace {

static_assert(row_kernels::kBlock == kMaximumOf);

std::size_t row_index(const StepRows& rows, int node) {
  SPECLAB_CHECK(node >= 0 && static_cast<std::size_t>(node) < rows.row_of.size(),
                "the row of node {} of {}: a strategy that reads rows must say so in reads()", node,
                rows.row_of.size());
  const std::int32_t row = rows.row_of[static_cast<std::size_t>(node)];
  SPECLAB_CHECK(row >= 0, "the row of node {}, which has none", node);
  return static_cast<std::size_t>(row);
}

std::span<const float> row_at(const StepRows& rows, int node) {
  const auto size = static_cast<std::size_t>(rows.vocab);
  return {rows.logits + row_index(rows, node) * size, size};
}

std::span<const float> maxima_at(const StepRows& rows, int node) {
  if (rows.maxima.empty()) return {};
  const auto size = static_cast<std::size_t>(maxima_of(rows.vocab));
  return rows.maxima.subspan(row_index(rows, node) * size, size);
}

std::size_t first_largest(std::span<const float> values) {
  bool valid = true;
  return std::min(row_kernels::find(values, row_kernels::max(values, &valid)), values.size() - 1);
}

}  // namespace

Resources Resources::with_draft(std::size_t i) const {
  SPECLAB_CHECK(i < drafts.size(), "draft {} of {}", i, drafts.size());
  Resources one = *this;
  one.draft = drafts[i];
  one.drafts.assign(1, drafts[i]);
  if (costs) one.costs = std::make_shared<const StepCosts>(costs->with_draft(i));
  one.open_draft = [open = open_draft_at, i] { return open(i); };
  one.open_draft_at = [open = open_draft_at, i](std::size_t) { return open(i); };
  return one;
}

std::span<const float> StepRows::row(int node) const { return row_at(*this, node); }

Token StepRows::best(int node) const {
  std::span<const float> values = row_at(*this, node);
  std::size_t begin = 0;
  if (const std::span<const float> by_block = maxima_at(*this, node); !by_block.empty()) {
    begin = first_largest(by_block) * kMaximumOf;
    values = values.subspan(begin, std::min<std::size_t>(kMaximumOf, values.size() - begin));
  }
  return static_cast<Token>(begin + first_largest(values));
}

void StepRows::top(int node, int k, std::vector<Token>& out) const {
  thread_local std::vector<float> scratch;
  thread_local std::vector<TopEntry> entries;
  first_entries(row_at(*this, node), maxima_at(*this, node), static_cast<std::size_t>(std::max(k, 0)),
                scratch, entries);
  std::sort(entries.begin(), entries.end(), comes_first);
  out.clear();
  for (const TopEntry& entry : entries) out.push_back(entry.index);
}

std::optional<DevicePlan> Strategy::device_plan(const SamplingParams&) const { return std::nullopt; }

void Strategy::observe_prompt(const Sequence&, const PromptStates&) {}

void Strategy::observe(std::span<const Sequence* const>, std::span<const Outcome>) {}

void Strategy::halt() {}

}  // namespace speclab
