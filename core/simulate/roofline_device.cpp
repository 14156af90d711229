#include "core/simulate/roofline_device.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/base/error.h"

namespace speclab::simulate {
namespace {

constexpr double kActivationBytes = 2;  ///< bf16 activations travel between devices

void require_rate(double value, bool zero_allowed, const char* name, const std::string& where) {
  if (std::isfinite(value) && (value > 0 || (zero_allowed && value == 0))) return;
  throw Error({.what = fmt::format("{}: {}", where, name),
               .got = fmt::format("{}", value),
               .expected = zero_allowed ? "a finite number that is not negative" : "a finite number above 0",
               .advice = ""});
}

}  // namespace

Roofline::Roofline(const RooflineRates& rates, const std::string& where) : rates_(rates), where_(where) {
  require_rate(rates.bytes_per_second, false, "bytes_per_second", where);
  require_rate(rates.flops_per_second, false, "flops_per_second", where);
  require_rate(rates.forward_floor_ns, true, "forward_floor_ns", where);
  require_rate(rates.layer_floor_ns, true, "layer_floor_ns", where);
  require_rate(rates.step_ns, true, "step_ns", where);
  require_rate(rates.link_latency_ns, true, "link latency_ns", where);
  require_rate(rates.link_bytes_per_second, true, "link bytes_per_second", where);
  require_rate(rates.devices, false, "devices", where);
  if (rates.experts) require_experts(*rates.experts, where);
  if (rates.host) require_link(*rates.host, where);
}

double Roofline::forward_ns(const Forward& forward) const {
  require_forward(forward);
  if (!forward.shape) {
    throw Error({.what = where_,
                 .got = forward.model.empty() ? "no shape of the target"
                                              : fmt::format("no shape of the draft {}", forward.model),
                 .expected = "the files of the model, at the path in environment.json of the run",
                 .advice = "A device described by measured times needs no shape."});
  }
  const theory::ForwardSize size{.tokens = forward.rows,
                                 .logit_rows = forward.rows,
                                 .context = forward.context,
                                 .keys = theory::causal_keys(forward.context, forward.rows)};
  const bool target = forward.model.empty();
  const theory::ForwardCost cost =
      target && rates_.experts
          ? experts_cost(*forward.shape, *rates_.experts, size, forward.batch)
          : theory::batch_cost(theory::forward_cost(*forward.shape, size), forward.batch);
  const double ns = computed_ns(cost, *forward.shape, static_cast<double>(forward.rows) * forward.batch);
  return target && rates_.host ? offloaded_ns(ns, cost, *rates_.host) : ns;
}

double Roofline::computed_ns(const theory::ForwardCost& cost, const theory::DecoderShape& shape,
                             double rows) const {
  const int devices = rates_.devices;
  const double share = rates_.split == Split::tensor ? devices : 1;
  const double seconds = std::max(cost.flops() / (share * rates_.flops_per_second),
                                  cost.bytes() / (share * rates_.bytes_per_second));
  const double ns = 1e9 * seconds + rates_.forward_floor_ns + shape.layers * rates_.layer_floor_ns;
  if (devices == 1) return ns;
  const double bytes = kActivationBytes * shape.hidden * rows;
  const auto transfer = [&](double sent) {
    return rates_.link_latency_ns +
           (rates_.link_bytes_per_second > 0 ? 1e9 * sent / rates_.link_bytes_per_second : 0);
  };
  if (rates_.split == Split::tensor)
    return ns + 2 * shape.layers * transfer(2 * bytes * (devices - 1) / devices);
  return ns + (devices - 1) * transfer(bytes);
}

}  // namespace speclab::simulate
