#pragma once

#include <optional>

#include "core/simulate/timelines/experts.h"
#include "core/simulate/timelines/offload.h"
#include "core/simulate/virtual_device.h"

namespace speclab::simulate {

/// How a group of devices shares a model.
enum class Split {
  tensor,    ///< every device holds a part of each matrix; two all-reduces per layer add the parts up
  pipeline,  ///< every device holds some of the layers; a forward visits the devices one after the other
};

/// The rates of a device, and of the group that it may be part of.
struct RooflineRates {
  double bytes_per_second = 0;  ///< memory bandwidth of one device
  double flops_per_second = 0;  ///< operations per second of one device in dense matrix products
  double forward_floor_ns = 0;  ///< added to each forward: time that neither bytes nor operations explain
  double layer_floor_ns = 0;    ///< the same for each layer: kernel launches, latencies
  double step_ns = 0;           ///< sampling, acceptance and bookkeeping of a step
  int devices = 1;
  Split split = Split::tensor;
  double link_latency_ns = 0;           ///< of one all-reduce (tensor) or one hand-over (pipeline)
  double link_bytes_per_second = 0;     ///< 0: unlimited
  std::optional<Experts> experts = {};  ///< the target as a mixture of experts; drafts stay as they are
  std::optional<HostLink> host = {};    ///< the host holds weights of the target
};

/// Prices forwards by the roofline model (Williams, Waterman and Patterson 2009): the longer of bytes /
/// bandwidth and operations / peak, plus floors. With the peaks of a data sheet and no floors, the times are
/// lower bounds.
///   tensor:   the rates are the sums over all D devices. Each layer has two all-reduces of its
///             activations (Shoeybi et al. 2019, "Megatron-LM"). An all-reduce takes the latency of the link
///             and the time of 2 (D - 1) / D of its bytes (ring algorithm; Thakur, Rabenseifner and Gropp
///             2005).
///   pipeline: the rates are those of one device, because the stages of a forward run one after the other.
///             The activations are handed over D - 1 times, from each of the D devices to the next.
/// A mixture of experts changes operations and bytes of the target (experts_cost). In a group, experts are
/// split like all other weights, so they add no transfers between devices. With a host link, the target's
/// forward takes at least as long as the transfer of the weights that the host holds (offloaded_ns).
class Roofline final : public VirtualDevice {
 public:
  /// Throws Error (`where` names the device) if the bandwidth or the peak is not above 0, if a time or the
  /// rate of the link is negative, if a number is not finite, or if the number of devices is below 1. It
  /// checks the experts and the host link with require_experts() and require_link(), which throw too.
  Roofline(const RooflineRates& rates, const std::string& where);
  double forward_ns(const Forward& forward) const override;
  double step_ns() const override { return rates_.step_ns; }

 private:
  /// The time with all weights on the device. `rows` counts the rows of all sequences together.
  double computed_ns(const theory::ForwardCost& cost, const theory::DecoderShape& shape, double rows) const;

  RooflineRates rates_;
  std::string where_;
};

}  // namespace speclab::simulate
