#include "core/simulate/linear_device.h"

#include <fmt/format.h>

#include <cmath>

#include "core/base/error.h"

namespace speclab::simulate {
namespace {

void require_time(const LinearTime& time, const char* name, const std::string& where) {
  const bool good = std::isfinite(time.constant_ns) && time.constant_ns > 0 &&
                    std::isfinite(time.per_row_ns) && time.per_row_ns >= 0 &&
                    std::isfinite(time.per_key_ns) && time.per_key_ns >= 0;
  if (good) return;
  throw Error({.what = fmt::format("{}: {}", where, name),
               .got = fmt::format("{} ns + {} ns per row + {} ns per committed token", time.constant_ns,
                                  time.per_row_ns, time.per_key_ns),
               .expected = "a constant above 0, and slopes that are not negative",
               .advice = ""});
}

}  // namespace

LinearTimes::LinearTimes(const LinearTime& target, const LinearTime& draft, double step_ns,
                         const std::string& where)
    : target_(target), draft_(draft), step_ns_(step_ns) {
  require_time(target, "target", where);
  require_time(draft, "draft", where);
  if (!(std::isfinite(step_ns) && step_ns >= 0)) {
    throw Error({.what = where + ": step_ns",
                 .got = fmt::format("{}", step_ns),
                 .expected = "a finite number that is not negative",
                 .advice = ""});
  }
}

double LinearTimes::forward_ns(const Forward& forward) const {
  require_forward(forward);
  const LinearTime& time = forward.model.empty() ? target_ : draft_;
  return time.constant_ns +
         forward.batch * (time.per_row_ns * forward.rows + time.per_key_ns * forward.context);
}

}  // namespace speclab::simulate
