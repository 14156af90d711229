#include "core/simulate/timelines/offload.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/base/error.h"

namespace speclab::simulate {

void require_link(const HostLink& link, const std::string& where) {
  if (std::isfinite(link.bytes_per_second) && link.bytes_per_second > 0 && link.resident_share >= 0 &&
      link.resident_share <= 1)
    return;
  throw Error({.what = where,
               .got = fmt::format("a link of {} bytes per second, a resident share of {}",
                                  link.bytes_per_second, link.resident_share),
               .expected = "a finite rate above 0, and a share from 0 to 1",
               .advice = ""});
}

double offloaded_ns(double computed_ns, const theory::ForwardCost& cost, const HostLink& link) {
  const double moved = (1 - link.resident_share) * cost.weight_bytes;
  return std::max(computed_ns, 1e9 * moved / link.bytes_per_second);
}

}  // namespace speclab::simulate
