#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "experiments/run/model_set.h"
#include "experiments/analysis/table.h"

namespace speclab {

/// What engine_times measures.
struct EngineTimesOptions {
  /// Numbers of committed tokens before the timed part. The model's context must hold each of them plus
  /// `tokens`, and each of them plus the largest of `rows`.
  std::vector<int> contexts;
  std::vector<int> rows;  ///< sizes of the forwards
  int tokens = 17;        ///< tokens of a text, at least 2; the first one comes from prefill
  int texts = 1;          ///< timed greedy decodings per context; an untimed one before them warms up
  int repeats = 5;        ///< timed forwards of each size; an untimed one before them warms up
};

/// Times the target alone. For each context it first decodes greedy texts. It times the prefill until the
/// first token, and the mean autoregressive step of the decode loop. Then it times forwards of n rows with
/// logits for each row (sample_forwards). All samples are in ns:
///   {"numerics", "threads", "weight_bytes", "contexts": [{"context", "prefill_ns": [], "step_ns": [],
///    "rows_ns": {n: []}, "work": {n: {"bytes", "flops"}}, "tokens": [], "cpu_per_wall"}]}
/// On a device an entry also has {"device_rows_ns": {n: []}, "kernels": {n: {name: launches}},
/// "device_step_ns": {"off": [], "round": [], "loop": []}}. rows_ns are times by the host's clock, until all
/// rows of logits are on the host. device_rows_ns are times of the same forwards by the device's clock, until
/// the logits are computed. device_step_ns are mean times of steps that the device runs by itself, for each
/// value of the option device_graph, which says how the steps are queued. A value that the device does
/// not support is left out, and "device_step_problem" says why. cpu_per_wall is the CPU time of all threads
/// divided by wall time, over all the work at this context.
///
/// `keep` gets what has been measured so far, in the same form, whenever something is new: after the texts of
/// a context and after each repeat of its forwards. The last context may then lack fields, and its lists may
/// be shorter.
nlohmann::json engine_times(const ModelSet& models, const EngineTimesOptions& options,
                            const std::function<void(const nlohmann::json&)>& keep = {});

/// Formats engine times as a table: medians, t(n)/t(1), and the shares of the machine's read bandwidth (bytes
/// per second) and arithmetic peak (FLOP/s). On a device the times of forwards are by the device's clock, and
/// one more column has their times until the rows are on the host.
Table engine_table(const nlohmann::json& times, double read_bandwidth, double peak_flops);

}  // namespace speclab
