#include "core/simulate/table_device.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <utility>
#include <vector>

#include "core/base/error.h"

namespace speclab::simulate {

RowTables::RowTables(std::map<std::string, theory::RowTimes> times, double step_ns, const std::string& where)
    : times_(std::move(times)), step_ns_(step_ns), where_(where) {
  if (!times_.contains("")) {
    throw Error({.what = where,
                 .got = "no times of the target",
                 .expected = "the times of target forwards by number of rows",
                 .advice = ""});
  }
  if (!(std::isfinite(step_ns) && step_ns >= 0)) {
    throw Error({.what = where + ": step_ns",
                 .got = fmt::format("{}", step_ns),
                 .expected = "a finite number that is not negative",
                 .advice = ""});
  }
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
  return found->second.at(forward.rows * forward.batch);
}

}  // namespace speclab::simulate
