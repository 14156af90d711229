#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "core/base/error.h"
#include "core/measure/clock.h"
#include "core/measure/environment.h"
#include "core/measure/recorder.h"
#include "core/measure/run_result.h"
#include "core/measure/stats.h"
#include "core/spec/decode_loop.h"
#include "experiments/command.h"
#include "experiments/model_set.h"
#include "experiments/table.h"

namespace speclab {
namespace po = boost::program_options;
namespace {

using nlohmann::json;

/// Median nanoseconds of a call.
double time_of(int repeats, const std::function<void()>& work) {
  std::vector<double> times;
  for (int i = 0; i < repeats; ++i) {
    const std::int64_t begin = wall_now_ns();
    work();
    times.push_back(static_cast<double>(wall_now_ns() - begin));
  }
  return stats::median(times);
}

/// What measuring adds to a decoding step, piece by piece. Pieces are timed alone, because their sum is far
/// below the spread of step times.
json cost_of_measuring(const ModelSet& models, const std::string& strategy, int tokens, int repeats) {
  std::vector<Token> prompt;
  const int vocab = models.target()->config().vocab;
  for (int i = 0; i < 48; ++i) prompt.push_back(static_cast<Token>((i % 16) * 37 % vocab));
  LoopOptions options;
  options.capacity =
      std::min(static_cast<int>(prompt.size()) + tokens + 64, models.target()->config().context);
  options.hash_rows = options.details = false;
  const StrategyChoice choice(find_strategy(strategy));
  DecodeLoop bare(models.target(), nullptr, choice, options);
  options.hash_rows = options.details = true;
  DecodeLoop recorded(models.target(), nullptr, choice, options);
  Request request;
  request.prompt = prompt;
  request.options.max_tokens = tokens;
  request.options.ignore_eos = true;
  LineRecord line;
  std::vector<double> without, with;
  for (int repeat = -1; repeat < repeats; ++repeat) {  // the first round warms up; the two kinds take turns
    for (DecodeLoop* loop : {&bare, &recorded}) {
      const std::int64_t begin = wall_now_ns();
      GenerationRecord record = loop->run(request);
      const double wall =
          static_cast<double>(wall_now_ns() - begin - record.prefill_ns - record.draft_prefill_ns);
      if (repeat >= 0)
        (loop == &bare ? without : with).push_back(wall / static_cast<double>(record.steps.size()));
      if (loop == &recorded) line.turns = {std::move(record)};
    }
  }
  const double steps = static_cast<double>(line.turns.front().steps.size());
  const double emitted = static_cast<double>(line.turns.front().tokens.size()) / steps;
  std::size_t tested = 0;
  for (const StepRecord& step : line.turns.front().steps) {
    for (const DraftedToken& token : step.drafted) tested += token.tested;
  }
  PhaseClock clock;
  clock.start(Phase::other);
  constexpr int kChanges = 8;  // of phase in a step, at most
  const double clock_ns = time_of(101, [&] {
    for (int i = 0; i < 100 * kChanges; ++i) clock.enter(static_cast<Phase>(i % kPhases));
  });
  std::vector<float> row(static_cast<std::size_t>(vocab), .5f);
  std::uint32_t sink = 0;
  const double hash_ns = time_of(101, [&] { sink += hash_row(row.data(), row.size()); });
  Distribution distribution;
  distribution.assign_weights(std::vector<double>(static_cast<std::size_t>(vocab), 1.0));
  const double rank_ns =
      time_of(101, [&] { sink += static_cast<std::uint32_t>(distribution.rank(vocab / 2)); });
  std::size_t bytes = 0;
  const double json_ns = time_of(11, [&] { bytes = to_json(line).dump().size(); });
  const double step_ns = stats::median(without);
  json out = {{"strategy", strategy},
              {"steps", steps},
              {"step_ns", step_ns},
              {"recorded_step_ns", stats::median(with)},
              {"clock_ns", clock_ns / 100},
              {"row_hashes_ns", hash_ns * emitted},
              {"ranks_ns", rank_ns * static_cast<double>(tested) / steps},
              {"record_line_ns", json_ns / steps},
              {"record_bytes", static_cast<double>(bytes) / steps}};
  out["cost_ns"] = out["clock_ns"].get<double>() + out["row_hashes_ns"].get<double>() +
                   out["ranks_ns"].get<double>() + out["record_line_ns"].get<double>();
  out["share"] = out["cost_ns"].get<double>() / step_ns;
  out["sink"] = sink % 2;  // keeps the timed calls alive
  return out;
}

int run(const Command& command, const std::vector<std::string>& arguments) {
  std::string model;
  int tokens = 0, repeats = 0;
  BackendChoice backend;
  po::options_description options;
  options.add_options()("model", po::value(&model), "target: a GGUF file or a directory")(
      "tokens", po::value(&tokens)->default_value(32), "of a decoding")(
      "repeats", po::value(&repeats)->default_value(5), "decodings of each kind")("json", "as JSON");
  add_backend_options(options, backend);
  const auto values = parse_arguments(command, arguments, options, {});
  if (!values) return kOk;
  required(*values, "model", command);
  if (tokens < 2 || repeats < 1)
    throw Error({.what = "speclab bench",
                 .got = fmt::format("--tokens {} --repeats {}", tokens, repeats),
                 .expected = "at least 2 tokens and 1 repeat",
                 .advice = ""});
  const ModelSet models(model, make_backend(backend));
  json out = {{"read_bandwidth_bytes_per_second", measure_read_bandwidth(models.backend().threads())},
              {"peak_flops", measure_peak_flops(models.backend().threads())},
              {"measuring", json::array()}};
  double worst = 0;
  for (const char* strategy : {"autoregressive", "prompt_lookup"}) {
    out["measuring"].push_back(cost_of_measuring(models, strategy, tokens, repeats));
    worst = std::max(worst, out["measuring"].back()["share"].get<double>());
  }
  if (values->count("json") > 0) {
    fmt::print("{}\n", out.dump(1));
    return kOk;
  }
  fmt::print(
      "machine: reads {:.1f} GB/s, {:.1f} GFLOP/s at best, {} threads\n\nWhat measuring adds to a step, in "
      "microseconds:\n",
      out["read_bandwidth_bytes_per_second"].get<double>() * 1e-9, out["peak_flops"].get<double>() * 1e-9,
      models.backend().threads());
  Table table{.header = {"strategy", "step", "clock", "row hashes", "ranks", "record", "sum", "share"},
              .rows = {},
              .right = {false, true, true, true, true, true, true, true}};
  for (const json& entry : out["measuring"]) {
    const auto micro = [&](const char* name) { return number_text(entry[name].get<double>() * 1e-3, 3); };
    table.rows.push_back({entry["strategy"], micro("step_ns"), micro("clock_ns"), micro("row_hashes_ns"),
                          micro("ranks_ns"), micro("record_line_ns"), micro("cost_ns"),
                          fmt::format("{:.3f} %", 100 * entry["share"].get<double>())});
  }
  fmt::print(
      "{}\nHashes, ranks and the record are outside the clock; only the clock's own readings are in a step's "
      "time.\n",
      to_text(table));
  return kOk;
}

}  // namespace

const Command kBenchCommand = {"bench", "--model PATH [options]",
                               "Measures the machine's roofline and what measuring itself costs per step.",
                               "speclab bench --model models/SmolLM2-135M-Instruct.Q4_1.gguf", run};

}  // namespace speclab
