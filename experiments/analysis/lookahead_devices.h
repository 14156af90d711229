#pragma once

#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>

#include "experiments/metrics/run_data.h"

namespace speclab {

/// What joins devices, as a model. After each step all of them gather from all (Thakur, Rabenseifner and
/// Gropp 2005, "Optimization of Collective Communication Operations in MPICH", Section 4.1, Bruck's
/// algorithm): ceil(log2 D) messages one after the other, each with the latency, and (D - 1) / D of all bytes
/// through each link.
struct Link {
  double latency_us = 0;
  double gigabytes_per_second = 0;  ///< 0: without end
};
double gather_ns(const Link& link, int devices, double bytes);

/// summary.json's "lookahead_devices": each case of lookahead decoding whose steps were divided over devices
/// (one device at a time, LoopOptions::devices), what the devices did, and what they would do side by side:
///   {"case", "devices", "tau", "rows": [mean of each, accepted tokens that are fed again among them],
///    "most_rows": [theory::lookahead_device_rows of each, without those] | null for G = -1,
///    "device_ms": [mean of each],
///    "slowest_ms": mean over steps of the slowest, "other_ms": draft, acceptance and bookkeeping of a step,
///    "exchange_bytes": the ids that a step exchanges: each device's accepted tokens, at most those emitted,
///    and the W new tokens of the window; "exchange_ms": over the link, "speedup": time of autoregressive
///    decoding per token x tau / (slowest + other + exchange), "undivided_speedup": measured, of the same
///    setting on one device | null, "predicted_speedup": tau / (mean t of the largest part + exchange) | null
///    without a calibration, "equal": output as of its reference; without that no speedups}
/// Times of the devices are measured on this machine, each device having it to itself; only the link is a
/// model.
nlohmann::json lookahead_devices(std::span<const std::shared_ptr<CaseData>> cases,
                                 const nlohmann::json& calibration, const Link& link = {});

/// For people; empty when there are none.
std::string lookahead_devices_text(const nlohmann::json& devices);

}  // namespace speclab
