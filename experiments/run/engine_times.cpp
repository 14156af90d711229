#include "experiments/run/engine_times.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <map>
#include <string>

#include "core/backend/backend.h"
#include "core/base/error.h"
#include "core/measure/clock.h"
#include "core/measure/stats.h"
#include "core/decoding/loop/decode_loop.h"
#include "experiments/run/forward_times.h"

namespace speclab {
namespace {

using nlohmann::json;

double step_ns_of(const GenerationRecord& record) {
  return static_cast<double>(record.decode_ns) / static_cast<double>(record.steps.size());
}

/// Adds device_step_ns to the entry: mean times of steps that the device runs by itself, for each way in
/// which they can be queued. A way that this device does not know is left out, and device_step_problem says
/// why.
void time_device_steps(DecodeLoop& loop, Request request, const EngineTimesOptions& options, json& entry) {
  request.options.device_loop = DeviceLoop::on;
  for (const auto& [name, graph] :
       {std::pair("off", DeviceGraph::off), std::pair("round", DeviceGraph::round),
        std::pair("loop", DeviceGraph::loop)}) {
    request.options.device_graph = graph;
    std::vector<double> times;
    for (int i = -1; i < options.texts; ++i) {  // the first one warms up
      const GenerationRecord record = loop.run(request);
      if (record.device_graph != name) {
        entry["device_step_problem"] = record.device_graph_problem;
        break;
      }
      SPECLAB_CHECK(entry["tokens"] == json(record.tokens), "steps on the device that change the text");
      if (i >= 0) times.push_back(step_ns_of(record));
    }
    if (!times.empty()) entry["device_step_ns"][name] = times;
  }
}

/// Adds prefill_ns, step_ns and tokens to the entry; also device_step_ns if the device runs steps by itself.
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
    step.push_back(step_ns_of(record));
  }
  entry["prefill_ns"] = prefill;
  entry["step_ns"] = step;
  if (models.backend().device_program() != nullptr) time_device_steps(loop, request, options, entry);
}

/// Adds rows_ns and work to the entry; also device_rows_ns and kernels if there is a device. Calls keep()
/// after each repeat.
void time_rows(const Model& model, int context, const EngineTimesOptions& options, json& entry,
               const std::function<void()>& keep) {
  for (const std::int64_t rows : options.rows) {
    const Work one = model.work(rows, rows, context, rows * context + rows * (rows + 1) / 2);
    entry["work"][std::to_string(rows)] = {{"bytes", one.weight_bytes + one.kv_bytes}, {"flops", one.flops}};
  }
  sample_forwards(model, context, options.rows, options.repeats, [&](const ForwardSamples& forwards) {
    for (const auto& [n, times] : forwards.host) entry["rows_ns"][std::to_string(n)] = times;
    for (const auto& [n, times] : forwards.device) entry["device_rows_ns"][std::to_string(n)] = times;
    for (const auto& [n, kernels] : forwards.kernels) entry["kernels"][std::to_string(n)] = kernels;
    keep();
  });
}

double milliseconds(const json& samples) { return 1e-6 * stats::median(samples.get<std::vector<double>>()); }

}  // namespace

json engine_times(const ModelSet& models, const EngineTimesOptions& options,
                  const std::function<void(const json&)>& keep) {
  json out = {{"numerics", models.backend().numerics_class()},
              {"threads", models.backend().threads()},
              {"weight_bytes", models.target()->weight_bytes()},
              {"contexts", json::array()}};
  const auto keep_all = [&] {
    if (keep) keep(out);
  };
  for (const int context : options.contexts) {
    const std::int64_t cpu_begin = cpu_now_ns(), wall_begin = wall_now_ns();
    json& entry = out["contexts"].emplace_back(json{{"context", context}});
    time_texts(models, context, options, entry);
    keep_all();
    time_rows(*models.target(), context, options, entry, keep_all);
    entry["cpu_per_wall"] =
        static_cast<double>(cpu_now_ns() - cpu_begin) / static_cast<double>(wall_now_ns() - wall_begin);
  }
  return out;
}

Table engine_table(const json& times, double read_bandwidth, double peak_flops) {
  const json& contexts = times["contexts"];
  const bool device = !contexts.empty() && contexts[0].contains("device_rows_ns");
  Table table{.header = {"context", "what", "ms", "t(n)/t(1)", "of read bandwidth", "of peak FLOP/s"},
              .rows = {},
              .right = {true, false, true, true, true, true}};
  if (device) table.header.push_back("ms with download"), table.right.push_back(true);
  const auto add = [&](std::vector<std::string> row) {
    row.resize(table.header.size());
    table.rows.push_back(std::move(row));
  };
  for (const json& entry : contexts) {
    const std::string context = std::to_string(entry["context"].get<int>());
    add({context, "prefill", number_text(milliseconds(entry["prefill_ns"]))});
    add({context, "greedy step", number_text(milliseconds(entry["step_ns"]))});
    if (entry.contains("device_step_ns")) {
      for (const auto& [form, samples] : entry["device_step_ns"].items())
        add({context, "greedy step, device_graph " + form, number_text(milliseconds(samples))});
    }
    std::map<int, double> medians, with_download;  // sorted by number; the object's keys are sorted as texts
    for (const auto& [n, samples] : entry["rows_ns"].items()) medians[std::stoi(n)] = milliseconds(samples);
    if (device) {
      with_download.swap(medians);
      for (const auto& [n, samples] : entry["device_rows_ns"].items())
        medians[std::stoi(n)] = milliseconds(samples);
    }
    for (const auto& [n, time] : medians) {
      const json& work = entry["work"][std::to_string(n)];
      const auto share = [&work, seconds = 1e-3 * time](const char* what, double most) {
        return fmt::format("{:.0f} %", 100 * work[what].get<double>() / seconds / most);
      };
      add({context, fmt::format("forward, rows: {}", n), number_text(time),
           medians.contains(1) ? number_text(time / medians.at(1)) : "", share("bytes", read_bandwidth),
           share("flops", peak_flops), device ? number_text(with_download.at(n)) : ""});
    }
  }
  return table;
}

}  // namespace speclab
