#include "core/simulate/virtual_device.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdint>

#include "core/base/error.h"

namespace speclab::simulate {

void require_forward(const Forward& forward) {
  if (forward.rows < 1 || forward.batch < 1 || !(forward.context >= 0 && std::isfinite(forward.context))) {
    throw Error({.what = "a simulated forward",
                 .got = fmt::format("{} rows, {} sequences, {} committed tokens", forward.rows, forward.batch,
                                    forward.context),
                 .expected = "at least one row and one sequence, and 0 or more committed tokens",
                 .advice = ""});
  }
  if (constexpr std::int64_t kMostRows = 1 << 30; std::int64_t{forward.rows} * forward.batch > kMostRows) {
    throw Error({.what = "a simulated forward",
                 .got = fmt::format("{} rows for each of {} sequences", forward.rows, forward.batch),
                 .expected = fmt::format("at most {} rows together", kMostRows),
                 .advice = ""});
  }
}

}  // namespace speclab::simulate
