#include "experiments/run/engine_times.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <map>
#include <string>

#include "core/measure/clock.h"
#include "core/measure/stats.h"
#include "core/decoding/loop/decode_loop.h"
#include "experiments/run/forward_times.h"

namespace speclab {
namespace {

using nlohmann::json;

/// Adds prefill_ns, step_ns and tokens to the entry.
void time_texts(const ModelSet& models, int context, const EngineTimesOptions& options, json& entry) {
  const std::vector<Token> prompt = timed_context(*models.target(), context);
  LoopOptions loop_options;
  loop_options.capacity = context + options.tokens;
  loop_options.hash_rows = loop_options.details = false;
  DecodeLoop loop(models.target(), nullptr, StrategyChoice(baseline_strategy()), loop_options);
  Request request;
  request.prompt = prompt;
  request.options.max_tokens = options.tokens;
  request.options.ignore_eos = true;
  request.options.sampling.temperature = 0;
  std::vector<double> prefill, step;
  for (int i = -1; i < options.texts; ++i) {  // the first one warms up
    const GenerationRecord record = loop.run(request);
    entry["tokens"] = record.tokens;
    if (i < 0) continue;
    prefill.push_back(static_cast<double>(record.prefill_ns));
    step.push_back(static_cast<double>(record.decode_ns) / static_cast<double>(record.steps.size()));
  }
  entry["prefill_ns"] = prefill;
  entry["step_ns"] = step;
}

/// Adds rows_ns and work to the entry.
void time_rows(const Model& model, int context, const EngineTimesOptions& options, json& entry) {
  json samples = json::object(), work = json::object();
  for (const auto& [n, times] : sample_forwards(model, context, options.rows, options.repeats)) {
    const std::int64_t rows = n;
    const Work one = model.work(rows, rows, context, rows * context + rows * (rows + 1) / 2);
    samples[std::to_string(n)] = times;
    work[std::to_string(n)] = {{"bytes", one.weight_bytes + one.kv_bytes}, {"flops", one.flops}};
  }
  entry["rows_ns"] = std::move(samples);
  entry["work"] = std::move(work);
}

double milliseconds(const json& samples) { return 1e-6 * stats::median(samples.get<std::vector<double>>()); }

}  // namespace

json engine_times(const ModelSet& models, const EngineTimesOptions& options) {
  json contexts = json::array();
  for (const int context : options.contexts) {
    const std::int64_t cpu_begin = cpu_now_ns(), wall_begin = wall_now_ns();
    json entry = {{"context", context}};
    time_texts(models, context, options, entry);
    time_rows(*models.target(), context, options, entry);
    entry["cpu_per_wall"] =
        static_cast<double>(cpu_now_ns() - cpu_begin) / static_cast<double>(wall_now_ns() - wall_begin);
    contexts.push_back(std::move(entry));
  }
  return {{"numerics", models.backend().numerics_class()},
          {"threads", models.backend().threads()},
          {"weight_bytes", models.target()->weight_bytes()},
          {"contexts", std::move(contexts)}};
}

Table engine_table(const json& times, double read_bandwidth, double peak_flops) {
  Table table{.header = {"context", "what", "ms", "t(n)/t(1)", "of read bandwidth", "of peak FLOP/s"},
              .rows = {},
              .right = {true, false, true, true, true, true}};
  for (const json& entry : times["contexts"]) {
    const std::string context = std::to_string(entry["context"].get<int>());
    table.rows.push_back({context, "prefill", number_text(milliseconds(entry["prefill_ns"])), "", "", ""});
    table.rows.push_back({context, "greedy step", number_text(milliseconds(entry["step_ns"])), "", "", ""});
    std::map<int, double> medians;  // sorted by number; the object's keys are sorted as texts
    for (const auto& [n, samples] : entry["rows_ns"].items()) medians[std::stoi(n)] = milliseconds(samples);
    for (const auto& [n, time] : medians) {
      const json& work = entry["work"][std::to_string(n)];
      const auto share = [&work, seconds = 1e-3 * time](const char* what, double most) {
        return fmt::format("{:.0f} %", 100 * work[what].get<double>() / seconds / most);
      };
      table.rows.push_back({context, fmt::format("forward, rows: {}", n), number_text(time),
                            medians.contains(1) ? number_text(time / medians.at(1)) : "",
                            share("bytes", read_bandwidth), share("flops", peak_flops)});
    }
  }
  return table;
}

}  // namespace speclab
