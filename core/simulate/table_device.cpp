#include "core/simulate/table_device.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>
#include <vector>

#include "core/base/error.h"

namespace speclab::simulate {
namespace {

void require_not_negative(double value, const std::string& what) {
  if (std::isfinite(value) && value >= 0) return;
  throw Error({.what = what,
               .got = fmt::format("{}", value),
               .expected = "a finite number that is not negative",
               .advice = ""});
}

}  // namespace

ContextTimes::ContextTimes(theory::RowTimes times) { by_context_.emplace(0, std::move(times)); }

ContextTimes::ContextTimes(std::map<double, theory::RowTimes> by_context)
    : by_context_(std::move(by_context)) {
  if (by_context_.empty()) {
    throw Error({.what = "times of forwards by context",
                 .got = "no context",
                 .expected = "the times of at least one context",
                 .advice = ""});
  }
  for (const auto& [context, times] : by_context_) require_not_negative(context, "context of measured times");
}

double ContextTimes::at(int rows, double context) const {
  const auto right = by_context_.lower_bound(context);
  if (right == by_context_.begin()) return right->second.at(rows);
  const auto left = std::prev(right);
  if (right == by_context_.end()) {
    const double last = left->second.at(rows);
    if (left == by_context_.begin()) return last;
    const auto before = std::prev(left);
    const double slope = (last - before->second.at(rows)) / (left->first - before->first);
    return last + std::max(0.0, slope) * (context - left->first);
  }
  const double share = (context - left->first) / (right->first - left->first);
  return (1 - share) * left->second.at(rows) + share * right->second.at(rows);
}

RowTables::RowTables(std::map<std::string, ContextTimes> times, double step_ns, const std::string& where,
                     double bytes_per_second)
    : times_(std::move(times)), step_ns_(step_ns), bytes_per_second_(bytes_per_second), where_(where) {
  if (!times_.contains("")) {
    throw Error({.what = where,
                 .got = "no times of the target",
                 .expected = "the times of target forwards by number of rows",
                 .advice = ""});
  }
  require_not_negative(step_ns, where + ": step_ns");
  require_not_negative(bytes_per_second, where + ": bytes_per_second");
}

double RowTables::forward_ns(const Forward& forward) const {
  require_forward(forward);
  const auto found = times_.find(forward.model);
  if (found == times_.end()) {
    std::vector<std::string> known;
    for (const auto& [name, times] : times_) {
      if (!name.empty()) known.push_back(name);
    }
    throw Error({.what = where_,
                 .got = fmt::format("no times of the draft {}", forward.model),
                 .expected = known.empty() ? "a run without draft models"
                                           : fmt::format("one of its drafts: {}", fmt::join(known, ", ")),
                 .advice = "Take the table from a run with the same drafts."});
  }
  const double ns = found->second.at(forward.rows * forward.batch, forward.context);
  return forward.batch > 1 && forward.context > 0 ? ns + further_caches_ns(forward) : ns;
}

double RowTables::further_caches_ns(const Forward& forward) const {
  if (bytes_per_second_ == 0 || !forward.shape) {
    throw Error({.what = where_,
                 .got = bytes_per_second_ == 0 ? "no bytes_per_second" : "no shape of the model",
                 .expected = "both of them, to price the reads of the KV caches of a batch",
                 .advice = "A batch of 1 needs neither."});
  }
  const auto read_bytes = [&](double context) {
    return theory::forward_cost(*forward.shape, {.tokens = forward.rows,
                                                 .logit_rows = forward.rows,
                                                 .context = context,
                                                 .keys = theory::causal_keys(context, forward.rows)})
        .kv_read_bytes;
  };
  return 1e9 * (forward.batch - 1) * (read_bytes(forward.context) - read_bytes(0)) / bytes_per_second_;
}

}  // namespace speclab::simulate
