#pragma once

#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "experiments/run/model_set.h"
#include "experiments/analysis/table.h"

namespace speclab {

struct EngineTimesOptions {
  std::vector<int>
      contexts;           ///< committed tokens before what is timed; each fits the model with rows and tokens
  std::vector<int> rows;  ///< sizes of the forwards
  int tokens = 17;        ///< of a text, at least 2; the first one comes from prefill
  int texts = 1;          ///< greedy decodings per context, after one that warms up
  int repeats = 5;        ///< forwards of each size, after one that warms up
};

/// Times of the target alone, every sample in ns: per context, greedy texts (prefill until the first token,
/// then the mean step of the decode loop, autoregressive), then forwards of n rows with logits for each row
/// (sample_forwards). {"numerics", "threads", "weight_bytes", "contexts": [{"context", "prefill_ns": [],
/// "step_ns": [], "rows_ns": {n: []}, "work": {n: {"bytes", "flops"}}, "tokens": [], "cpu_per_wall"}]};
/// cpu_per_wall is CPU time of all threads over wall time, of all that was timed at this context.
nlohmann::json engine_times(const ModelSet& models, const EngineTimesOptions& options);

/// Medians, t(n)/t(1), and shares of the machine's read bandwidth (bytes per second) and peak (FLOP/s).
Table engine_table(const nlohmann::json& times, double read_bandwidth, double peak_flops);

}  // namespace speclab
