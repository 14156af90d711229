#include <boost/program_options.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <charconv>
#include <functional>
#include <sstream>

#include "core/backend/device_status.h"
#include "core/base/error.h"
#include "core/base/standard_streams.h"
#include "core/measure/clock.h"
#include "core/measure/environment.h"
#include "core/measure/recorder.h"
#include "core/measure/run_result.h"
#include "core/measure/stats.h"
#include "core/decoding/loop/decode_loop.h"
#include "experiments/cli/command.h"
#include "experiments/run/device/open_backend.h"
#include "experiments/run/engine_times.h"
#include "experiments/run/model_set.h"
#include "experiments/run/prompt_times.h"
#include "experiments/analysis/table.h"

namespace speclab {
namespace po = boost::program_options;
namespace {

using nlohmann::json;

constexpr int kMostRows = 128;  ///< rows of the largest forward that can be timed

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

/// Measures the time that recording adds to a decoding step, split into its parts. Each part is timed alone,
/// because even the sum of all parts is far smaller than the spread of step times.
json cost_of_measuring(const ModelSet& models, const StrategyEntry& strategy, int tokens, int repeats) {
  std::vector<Token> prompt;
  const int vocab = models.target()->config().vocab;
  for (int i = 0; i < 48; ++i) prompt.push_back(static_cast<Token>((i % 16) * 37 % vocab));
  LoopOptions options;
  options.capacity =
      std::min(static_cast<int>(prompt.size()) + tokens + 64, models.target()->config().context);
  options.hash_rows = options.details = false;
  options.costs = std::make_shared<const StepCosts>(StepCosts{{1}, {1}});  // no budget shortens a draft
  const StrategyChoice choice(strategy);
  DecodeLoop bare(models.target(), nullptr, choice, options);
  options.hash_rows = options.details = true;
  DecodeLoop recorded(models.target(), nullptr, choice, options);
  Request request;
  request.prompt = prompt;
  request.options.max_tokens = tokens;
  request.options.ignore_eos = true;
  LineRecord line;
  std::vector<double> without, with;
  for (int repeat = -1; repeat < repeats; ++repeat) {  // the first round warms up; the two loops take turns
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
  constexpr int kChanges = 8;  // a step changes its phase at most this often
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
  json out = {{"strategy", strategy.info.name},
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
  out["sink"] = sink % 2;  // so that the compiler keeps the timed calls
  return out;
}

std::vector<int> parse_list(const std::string& text, const std::string& option, int most) {
  std::vector<int> numbers;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, ',');) {
    int number = 0;
    const auto [end, code] = std::from_chars(part.data(), part.data() + part.size(), number);
    if (code != std::errc{} || end != part.data() + part.size() || number < 1 || number > most) {
      throw Error({.what = option,
                   .got = "\"" + part + "\"",
                   .expected = fmt::format("numbers from 1 to {}, separated by commas", most),
                   .advice = ""});
    }
    numbers.push_back(number);
  }
  return numbers;
}

/// The device and its measured speed. The bandwidth of copies counts bytes read and bytes written.
json device_block(Backend& backend, const DeviceSpeed& speed) {
  json block = {{"name", backend.device_name()},
                {"read_bandwidth_bytes_per_second", speed.read_bytes_per_second},
                {"peak_flops", speed.peak_flops}};
  if (const DeviceStatus* status = backend.device_status()) {
    try {
      block["copy_bandwidth_bytes_per_second"] = status->measure_copy_bandwidth();
    } catch (const Error& error) {  // the measurement needs two gigabytes besides the model
      block["copy_bandwidth_problem"] = error.what();
    }
    block["state"] = status->state();
  }
  return block;
}

void print_machine(const json& out, int threads) {
  fmt::print("machine: reads {:.1f} GB/s, {:.1f} GFLOP/s at best, {} threads\n\n",
             out["read_bandwidth_bytes_per_second"].get<double>() * 1e-9,
             out["peak_flops"].get<double>() * 1e-9, threads);
}

void print_measuring(const json& measuring) {
  Table table{.header = {"strategy", "step", "clock", "row hashes", "ranks", "record", "sum", "share"},
              .rows = {},
              .right = {false, true, true, true, true, true, true, true}};
  for (const json& entry : measuring) {
    const auto micro = [&](const char* name) { return number_text(entry[name].get<double>() * 1e-3, 3); };
    table.rows.push_back({entry["strategy"], micro("step_ns"), micro("clock_ns"), micro("row_hashes_ns"),
                          micro("ranks_ns"), micro("record_line_ns"), micro("cost_ns"),
                          fmt::format("{:.3f} %", 100 * entry["share"].get<double>())});
  }
  fmt::print(
      "What measuring adds to a step, in microseconds:\n{}\nRow hashes, ranks of tested tokens and the JSON "
      "of the record are made outside the measured time. Of these costs, only reading the clock is part of a "
      "step's time.\n",
      to_text(table));
}

int run_bench(const Command& command, const std::vector<std::string>& arguments) {
  std::string model, inflate, rows, contexts, prompts, file;
  int tokens = 0, repeats = 0, texts = 0;
  BackendChoice backend;
  po::options_description options;
  options.add_options()("model", po::value(&model), "target: a GGUF file or a directory")(
      "tokens", po::value(&tokens)->default_value(32), "tokens that each timed decoding generates")(
      "repeats", po::value(&repeats)->default_value(5),
      "how often each forward (--rows), prefill (--prompts) or decoding (neither option) is timed")(
      "rows", po::value(&rows),
      "time forwards of the target with these numbers of rows, such as 1,2,4,5,8,16")(
      "context", po::value(&contexts)->default_value("512"),
      "with --rows: numbers of tokens before the forward, such as 128,512")(
      "prompts", po::value(&prompts),
      "time the prefill of prompts with these numbers of tokens, such as 512,2048; with --prefill cublaslt, "
      "times both SpecLab's kernels and cublaslt")(
      "texts", po::value(&texts)->default_value(1),
      "with --rows: number of timed greedy decodings at each context")("json", "print JSON")(
      "out", po::value(&file),
      "also write the JSON to this file, anew after each result, so that the results of a stopped command "
      "are kept");
  add_inflate_option(options, inflate);
  add_backend_options(options, backend);
  const auto values = parse_arguments(command, arguments, options, {});
  if (!values) return kOk;
  required(*values, "model", command);
  if (tokens < 2 || repeats < 1 || texts < 1)
    throw Error({.what = "speclab bench",
                 .got = fmt::format("--tokens {} --repeats {} --texts {}", tokens, repeats, texts),
                 .expected = "at least 2 tokens, 1 repeat and 1 text",
                 .advice = ""});
  EngineTimesOptions engine{.contexts = {}, .rows = {}, .tokens = tokens, .texts = texts, .repeats = repeats};
  if (values->count("rows") > 0) engine.rows = parse_list(rows, "--rows", kMostRows);
  if (!rows.empty() && !prompts.empty())
    throw Error({.what = "speclab bench",
                 .got = "--rows and --prompts",
                 .expected = "only one of them",
                 .advice = ""});
  const ModelSet models(model, open_backend(backend, write_status_line), "plain",
                        parse_inflate_text(inflate));
  const int threads = models.backend().threads();
  const DeviceSpeed speed = models.backend().measure_speed();
  json out = {{"target", models.descriptions()["target"]},
              {"backend", models.backend().name()},
              {"device", device_block(models.backend(), speed)},
              {"read_bandwidth_bytes_per_second", speed.read_bytes_per_second},
              {"peak_flops", speed.peak_flops}};
  const auto keep = [&] {
    if (!file.empty()) write_json_file(file, out);
  };
  const auto keep_as = [&](const char* what) {
    return [&, what](const json& so_far) {
      out[what] = so_far;
      keep();
    };
  };
  keep();
  if (!prompts.empty()) {
    out["prompts"] =
        prompt_times(*models.target(), parse_list(prompts, "--prompts", models.target()->config().context),
                     repeats, keep_as("prompts"));
  } else if (!engine.rows.empty()) {
    const int after = std::max(tokens, *std::max_element(engine.rows.begin(), engine.rows.end()));
    const int room = models.target()->config().context - after;
    if (room < 1) {
      throw Error(
          {.what = "speclab bench",
           .got = fmt::format("{} positions after the context (the larger of --tokens and --rows)", after),
           .expected = fmt::format("fewer than the {} positions of the model's context",
                                   models.target()->config().context),
           .advice = "Ask for fewer tokens or rows."});
    }
    engine.contexts = parse_list(contexts, "--context", room);
    out["engine"] = engine_times(models, engine, keep_as("engine"));
  } else {
    out["measuring"] = json::array();
    for (const StrategyEntry& entry : strategies()) {
      if (!entry.info.shows_recording_cost) continue;
      out["measuring"].push_back(cost_of_measuring(models, entry, tokens, repeats));
      keep();
    }
  }
  keep();
  if (values->count("json") > 0) {
    fmt::print("{}\n", out.dump(1));
    return kOk;
  }
  print_machine(out, threads);
  if (models.target()->config().inflated) fmt::print("{}\n", models.target()->name());
  if (out.contains("prompts"))
    fmt::print("Prefill times of prompts (medians):\n{}", to_text(prompt_table(out["prompts"])));
  else if (out.contains("engine"))
    fmt::print(
        "Times of the target alone (medians). Every row of a forward has logits:\n{}",
        to_text(engine_table(out["engine"], out["read_bandwidth_bytes_per_second"], out["peak_flops"])));
  else print_measuring(out["measuring"]);
  return kOk;
}

}  // namespace

const Command kBenchCommand = {"bench", "--model PATH [options]",
                               "Measures the machine's roofline and one of: what recording adds to a step, "
                               "the target's forwards (--rows), or its prefills (--prompts).",
                               "speclab bench --model models/SmolLM2-135M-Instruct.Q4_1.gguf --rows 1,4,16",
                               run_bench};

}  // namespace speclab
