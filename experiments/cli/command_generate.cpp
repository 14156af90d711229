#include <boost/program_options.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include <charconv>
#include <sstream>

#include "core/backend/device_status.h"
#include "core/base/error.h"
#include "core/base/options_json.h"
#include "core/base/standard_streams.h"
#include "core/measure/run_result.h"
#include "core/decoding/loop/decode_loop.h"
#include "experiments/cli/command.h"
#include "experiments/run/conversation.h"
#include "experiments/run/cost_table.h"
#include "experiments/run/device/open_backend.h"
#include "experiments/run/dry_run.h"
#include "experiments/config/settings.h"

namespace speclab {
namespace po = boost::program_options;
namespace {

using nlohmann::json;

/// Reads --draft: PATH, keep:N or layers:0-4,29. Throws Error if the text after keep: or layers: is
/// malformed.
DraftSpec draft_of(const std::string& text) {
  const auto fail = [&] {
    throw Error({.what = "--draft",
                 .got = "\"" + text + "\"",
                 .expected = "the path of a model, keep:N, or layers:0-4,29",
                 .advice = ""});
  };
  const auto number = [&](const std::string& digits) {
    int value = -1;
    const auto [end, code] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (code != std::errc{} || end != digits.data() + digits.size() || value < 0) fail();
    return value;
  };
  if (text.starts_with("keep:"))
    return parse_draft({{"layers", {{"keep", number(text.substr(5))}}}}, "", "--draft");
  if (!text.starts_with("layers:")) return parse_draft({{"model", text}}, "", "--draft");
  std::vector<int> layers;
  std::istringstream in(text.substr(7));
  for (std::string part; std::getline(in, part, ',');) {
    const std::size_t dash = part.find('-');
    const int first = number(part.substr(0, dash)),
              last = dash == std::string::npos ? first : number(part.substr(dash + 1));
    if (last - first > 10000) fail();
    for (int layer = first; layer <= last; ++layer) layers.push_back(layer);
  }
  return parse_draft({{"layers", layers}}, "", "--draft");
}

/// Prints the text while it is generated. On a terminal, accepted drafted tokens are green.
class Stream {
 public:
  Stream(const ModelSet& models, bool quiet) : quiet_(quiet), colour_(isatty(STDOUT_FILENO) == 1) {
    if (models.tokenizer()) decoder_.emplace(*models.tokenizer());
  }
  void emit(const StepRecord& step, TokenSpan emitted) {
    if (quiet_) return;
    for (std::size_t i = 0; i < emitted.size(); ++i) {
      const bool accepted = static_cast<int>(i) < step.accepted;
      const std::string text = decoder_ ? decoder_->push(emitted[i]) : fmt::format("{} ", emitted[i]);
      fmt::print("{}{}{}", colour_ && accepted ? "\033[32m" : "", text, colour_ && accepted ? "\033[0m" : "");
    }
    flush_output();
  }
  /// True when the output can no longer be written, because the pipe is closed or the disk is full.
  static bool broken() { return flush_output() != 0; }
  /// Ends the text with a newline and writes it out. What goes to stderr afterwards begins a line of its own,
  /// also if both streams lead to one place and stdout is no terminal.
  void finish() {
    if (quiet_) return;
    fmt::print("{}\n", decoder_ ? decoder_->finish() : "");
    flush_output();
  }

 private:
  bool quiet_, colour_;
  std::optional<StreamDecoder> decoder_;
};

StrategyChoice strategy_of(const std::string& name) {
  try {
    return StrategyChoice(find_strategy(name));
  } catch (const Error& error) {
    throw Error({"--strategy", error.text().got, error.text().expected, error.text().advice});
  }
}

/// Applies --set as `speclab run` does for a config with one case.
GenerationOptions read_options(StrategyChoice& strategy, const std::vector<std::string>& texts) {
  json config = {{"options", json::object()}, {"cases", json::array({{{"strategy", strategy.info().name}}})}};
  Settings settings(texts);
  settings.apply(config, {"options", "cases"});
  GenerationOptions generation;
  std::vector<std::string> own, common;
  for (const OptionInfo& info : describe_options(strategy.fields())) own.push_back(info.name);
  for (const OptionInfo& info : describe_options(option_fields(generation))) common.push_back(info.name);
  settings.explain([&] {
    json one = config["cases"][0];
    one.erase("strategy");
    parse_options(option_fields(generation), config["options"], "/options");
    parse_options(strategy.fields(), one, "/cases/0", common);
    parse_options(option_fields(generation), one, "/cases/0", own);
    if (strategy.lacks_file()) {
      const StrategyInfo& info = strategy.info();
      throw Error({.what = fmt::format("--strategy {}", info.name),
                   .got = fmt::format("no {}", info.needs_file),
                   .expected = fmt::format("--set {}=FILE", info.needs_file),
                   .advice = fmt::format("speclab describe {} says what the file holds.", info.name)});
    }
    generation.acceptance_rule();
  });
  return generation;
}

void print_statistics(const GenerationRecord& record) {
  double emitted = 0, drafted = 0, accepted = 0;
  for (const StepRecord& step : record.steps) {
    emitted += step.emitted;
    accepted += step.accepted;
    drafted += static_cast<double>(step.drafted.size());
  }
  const double steps = static_cast<double>(record.steps.size()),
               seconds = static_cast<double>(record.decode_ns) * 1e-9;
  std::string text = fmt::format("{} tokens, {} steps", record.tokens.size(), record.steps.size());
  if (steps > 0) text += fmt::format(", tau {:.2f}", emitted / steps);
  if (drafted > 0) text += fmt::format(", {:.0f} of {:.0f} drafted tokens accepted", accepted, drafted);
  if (seconds > 0)
    text += fmt::format(", {:.1f} tokens/s after {:.0f} ms of prefill", emitted / seconds,
                        static_cast<double>(record.prefill_ns + record.draft_prefill_ns) * 1e-6);
  print_status("{}, ended by {}\n", text, to_string(record.finish));
}

int run_generate(const Command& command, const std::vector<std::string>& arguments) {
  std::string model, inflate, strategy_name, prompt_text, system, chat_template, costs;
  std::vector<std::string> settings, drafts, draft_names;
  std::uint64_t seed = 1;
  BackendChoice backend;
  po::options_description options;
  options.add_options()("model", po::value(&model), "target: a GGUF file or a directory")(
      "draft", po::value(&drafts)->composing(),
      "draft model: PATH, keep:N (N layers of the target) or layers:0-4,29 (these layers); may be repeated")(
      "strategy", po::value(&strategy_name)->default_value(std::string(baseline_strategy().info.name)),
      "name of a strategy (speclab list strategies)")("set", po::value(&settings)->composing(),
                                                      setting_help().c_str())(
      "prompt", po::value(&prompt_text), "text of the prompt")("system", po::value(&system),
                                                               "system message")(
      "chat-template", po::value(&chat_template),
      "name of a family of chat templates, instead of the template in the model's files")(
      "costs", po::value(&costs),
      "folder of a run; a strategy with \"budget\": \"auto\" or the schedule bandit uses the table of costs "
      "of this run. Default: a table is measured")("plain", "use no chat template")(
      "seed", po::value(&seed)->default_value(1), "seed of the coins")(
      "json", "print the record as JSON instead of the text")(
      "profile-steps",
      "let a profiler record only the steps after the prompt (ncu --profile-from-start off, "
      "nsys --capture-range=cudaProfilerApi); no effect without a GPU");
  add_inflate_option(options, inflate);
  add_backend_options(options, backend);
  const auto values = parse_arguments(command, arguments, options, {});
  if (!values) return kOk;
  required(*values, "model", command);
  required(*values, "prompt", command);
  const bool as_json = values->count("json") > 0;

  StrategyChoice strategy = strategy_of(strategy_name);
  if (strategy.info().needs_draft && drafts.empty()) {
    throw Error({.what = "--strategy " + strategy_name,
                 .got = "no --draft",
                 .expected = "a draft model",
                 .advice = "Add --draft PATH, --draft keep:N or --draft layers:0-4,29."});
  }
  const GenerationOptions generation = read_options(strategy, settings);

  ModelSet models(model, open_backend(backend, write_status_line),
                  values->count("plain") > 0 ? "plain" : chat_template, parse_inflate_text(inflate));
  for (const std::string& draft : drafts) {
    const DraftSpec spec = draft_of(draft);
    models.add_draft(spec);
    draft_names.push_back(spec.name);
  }
  require_controller(strategy, draft_names, models.descriptions());
  PromptSpec prompt;
  prompt.id = "prompt";
  prompt.turns = {prompt_text};
  const Conversation conversation(models, prompt, system);
  Stream stream(models, as_json);
  LoopOptions loop_options;
  const long room = static_cast<long>(conversation.tokens().size()) + generation.max_tokens + 64;
  loop_options.capacity = static_cast<int>(std::min<long>(room, models.target()->config().context));
  if (strategy.needs_costs()) {
    std::map<std::string, const Model*> timed;
    for (const std::string& name : draft_names) timed[name] = models.draft(name).get();
    const json table =
        costs.empty() ? measure_cost_table(*models.target(), timed, strategy.info().drafts_with_target, 2)
                      : read_cost_table(costs);
    loop_options.costs = step_costs(table, costs.empty() ? "measured" : costs, {draft_names}).at(draft_names);
  }
  if (const auto& tokenizer = models.tokenizer()) {
    loop_options.token_bytes = [tokenizer = *tokenizer](Token token, std::string& text) {
      text += tokenizer.token_bytes(token);
    };
  }
  std::stop_source stop;
  loop_options.on_emit = [&](int, const StepRecord& step, TokenSpan emitted) {
    stream.emit(step, emitted);
    if (interrupted() || Stream::broken()) stop.request_stop();
  };
  if (const DeviceStatus* status = models.backend().device_status();
      status != nullptr && values->count("profile-steps") > 0)
    loop_options.on_steps = [status](bool begins) { status->profile(begins); };
  DecodeLoop loop(models.target(), models.drafts(draft_names), strategy, loop_options);
  Request request;
  request.prompt = conversation.tokens();
  request.options = generation;
  request.coins = Coins(seed, 0);
  request.eos = models.end_tokens();
  catch_interrupts();
  LineRecord line;
  line.case_id = strategy_name;
  line.prompt = prompt.id;
  line.seed = seed;
  line.turns.push_back(loop.run(request, stop.get_token()));
  stream.finish();
  if (as_json) {
    line.pieces = token_pieces(models, line.turns.front().tokens);
    line.text = answer_text(models, line.turns.front().tokens);
    json record = to_json(line);
    record["prompt_tokens"] = conversation.tokens();
    record["prompt_text"] = fmt::format("{}", fmt::join(token_pieces(models, conversation.tokens()), ""));
    fmt::print("{}\n", record.dump(1, ' ', false, json::error_handler_t::replace));
  } else {
    print_statistics(line.turns.front());
  }
  return interrupted() ? kInterrupted : kOk;
}

}  // namespace

const Command kGenerateCommand = {
    "generate", "--model PATH --prompt TEXT [options]",
    "Generates a text and streams it; accepted drafted tokens are green on a terminal.",
    "speclab generate --model models/SmolLM2-135M-Instruct.Q4_1.gguf --draft "
    "models/draft/smollm2-135m-instruct "
    "--strategy speculative_sampling --set gamma=4 --prompt 'Why is the sky blue?'",
    run_generate};

}  // namespace speclab
