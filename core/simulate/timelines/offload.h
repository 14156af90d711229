#pragma once

#include <string>

#include "core/theory/cost.h"

/// The time of a forward whose weights are in the memory of the host.
namespace speclab::simulate {

/// The link between a device and the host that holds the weights of the target. Draft models are on the
/// device.
struct HostLink {
  double bytes_per_second = 0;
  double resident_share = 0;  ///< share of the target's weights that is on the device, 0 to 1
};

/// Throws Error (`where` names the device) for a rate that is not finite or not above 0, and for a share
/// outside 0 to 1.
void require_link(const HostLink& link, const std::string& where);

/// Time in nanoseconds of an offloaded forward: the time in which the link moves the weights that are not on
/// the device, but at least `computed_ns`. This is the time of the forward with all weights on the device.
/// The device computes a layer while the weights of the next one arrive (as in FlexGen, Sheng et al. 2023),
/// and the first layers of the next forward arrive while the last ones are computed. So in a long text the
/// transfer and the arithmetic take place at the same time. The transfer is the same for one row and for
/// many. This is why speculation gains most here (Chen et al. 2024, "Sequoia").
double offloaded_ns(double computed_ns, const theory::ForwardCost& cost, const HostLink& link);

}  // namespace speclab::simulate
