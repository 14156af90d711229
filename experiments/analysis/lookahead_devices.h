#pragma once

#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>

#include "experiments/metrics/run_data.h"

namespace speclab {

/// A model of the link between D devices. After each step the devices do an all-gather with Bruck's algorithm
/// (Thakur, Rabenseifner and Gropp 2005, "Optimization of Collective Communication Operations in MPICH",
/// Section 4.1): there are ceil(log2 D) messages one after the other, each with the latency, and (D - 1) / D
/// of all bytes go through each link.
struct Link {
  double latency_us = 0;
  double gigabytes_per_second = 0;  ///< 0: unlimited
};
/// The time of such an all-gather of `bytes` bytes.
double gather_ns(const Link& link, int devices, double bytes);

/// "lookahead_devices" of summary.json: the cases of lookahead decoding (window of W columns, at most G
/// guesses in a step) whose steps were divided over devices (LoopOptions::devices; one device runs at a
/// time). Each entry has the measured work of the devices and the speedup that they would reach side by side:
///   {"case", "devices", "tau",
///    "rows": [mean rows of each device, with accepted tokens that are fed again],
///    "most_rows": [theory::lookahead_device_rows of each device, without those tokens] | null for G = -1,
///    "device_ms": [mean time of each device],
///    "slowest_ms": mean over steps of the slowest device's time,
///    "other_ms": draft, acceptance and bookkeeping of a step,
///    "exchange_bytes": bytes of the ids that a step exchanges: from each device tau tokens (no device
///      accepts more than the step emits), and the W new tokens of the window,
///    "exchange_ms": time of the exchange over the link,
///    "speedup": autoregressive time per token * tau / (slowest + other + exchange),
///    "undivided_speedup": measured speedup of the same setting on one device | null,
///    "predicted_speedup": tau / (mean over steps of t(largest number of rows that a device feeds) +
///      time of the exchange / time of a forward of one row) | null without a calibration,
///    "equal": whether the output equals its reference; all speedups are null if not}
/// The times of the devices are measured on this machine, one device after the other. Only the link is a
/// model.
nlohmann::json lookahead_devices(std::span<const std::shared_ptr<CaseData>> cases,
                                 const nlohmann::json& calibration, const Link& link = {});

/// Formats "lookahead_devices" as a table; "" when there are no such cases.
std::string lookahead_devices_text(const nlohmann::json& devices);

}  // namespace speclab
