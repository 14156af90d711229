#include <boost/program_options.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <filesystem>
#include <utility>

#include "core/base/error.h"
#include "core/base/files.h"
#include "core/base/options.h"
#include "core/decoding/drafting/tree_shape.h"
#include "core/decoding/registry.h"
#include "core/base/standard_streams.h"
#include "core/measure/run_result.h"
#include "experiments/analysis/layer_choice.h"
#include "experiments/analysis/trees/device_times.h"
#include "experiments/analysis/trees/mixture_choice.h"
#include "experiments/analysis/trees/tree_choice.h"
#include "experiments/cli/command.h"
#include "experiments/cli/predict/optimize_config.h"
#include "experiments/cli/predict/row_times_text.h"
#include "experiments/config/config_file.h"
#include "experiments/metrics/run_data.h"
#include "experiments/run/device/open_backend.h"
#include "experiments/run/resume.h"
#include "experiments/run/runner.h"

namespace speclab {
namespace po = boost::program_options;
namespace fs = std::filesystem;
namespace {

using nlohmann::json;

/// What the command chooses.
enum class Optimized { tree, layers, config };
constexpr std::pair<Optimized, std::string_view> kOptimizedNames[] = {
    {Optimized::tree, "tree"}, {Optimized::layers, "layers"}, {Optimized::config, "config"}};

constexpr std::pair<PromptSplit, std::string_view> kSplitNames[] = {{PromptSplit::fit, "fit"},
                                                                    {PromptSplit::measure, "measure"}};

/// Returns the value of an option. Throws Error if it is not from `least` to `most`.
int whole_number(const po::variables_map& values, const char* name, int least, int most) {
  const int value = values[name].as<int>();
  if (value < least || value > most) {
    throw Error({.what = fmt::format("--{}", name),
                 .got = fmt::format("{}", value),
                 .expected = fmt::format("{} to {}", least, most),
                 .advice = ""});
  }
  return value;
}

/// Measures what the choice needs. Returns kOk, or the exit code of a run that was interrupted or has lines
/// that failed or differ from their reference.
int measure(const po::variables_map& values, const fs::path& source, const fs::path& folder,
            const BackendChoice& backend, const TreeWish& wish) {
  std::vector<std::string> settings;
  if (values.count("set") > 0) settings = values["set"].as<std::vector<std::string>>();
  std::vector<Experiment> experiments =
      configure_experiments(tree_calibration_config(read_json_file(source), wish), source.string(), settings);
  catch_interrupts();
  Progress progress(values.count("quiet") > 0);
  const RunOutcome outcome = run_experiment({.experiment = std::move(experiments.front()),
                                             .backend = backend,
                                             .out = folder,
                                             .resume = values.count("resume") > 0,
                                             .command_line = command_line(),
                                             .interrupted = interrupted},
                                            progress);
  if (outcome.interrupted) {
    progress.warn("interrupted; finished lines are kept. Repeat the command with --resume.");
    return kInterrupted;
  }
  if (outcome.failed + outcome.unequal > 0) {
    progress.warn(fmt::format("exit code 1: {} lines failed, {} differ from their reference", outcome.failed,
                              outcome.unequal));
    return kCheckFailed;
  }
  return kOk;
}

int optimize_tree(const po::variables_map& values, const fs::path& source, const std::string& out,
                  const BackendChoice& backend, TreeWish wish) {
  wish.width = whole_number(values, "width", 2, 64);
  wish.measured_depth = whole_number(values, "measured-depth", 1, 16);
  wish.nodes = whole_number(values, "nodes", 2, TreeShape::kMostDrafted + 1);
  wish.depth = whole_number(values, "depth", 1, TreeShape::kMostDrafted);
  if (values.count("t") > 0) wish.target = parse_row_times(values["t"].as<std::string>());
  if (values.count("c") > 0) {
    wish.c = values["c"].as<double>();
    if (!(*wish.c >= 0 && *wish.c <= 1000)) throw Error({"--c", fmt::format("{}", *wish.c), "0 to 1000", ""});
  }
  if (values.count("for-device") > 0)
    refuse_options(values, "speclab optimize tree with --for-device", {"t", "c"});
  if (values.count("by-confidence") > 0) wish.by_confidence = whole_number(values, "by-confidence", 2, 16);
  const bool measured = path_exists(source / "config.json");
  if (measured)
    refuse_options(values, "speclab optimize tree with a RUN",
                   {"set", "run", "resume", "width", "measured-depth"});
  const fs::path folder = measured                  ? source
                          : values.count("run") > 0 ? fs::path(values["run"].as<std::string>())
                                                    : fs::path(out + ".run");
  if (!measured) {
    if (const int code = measure(values, source, folder, backend, wish); code != kOk) return code;
  }
  const RunData run = load_run(folder);
  if (values.count("for-device") > 0) {
    const auto device = values["for-device"].as<std::string>();
    const DeviceTimes times = device_times(run, wish, device);
    wish.target = times.target, wish.c = times.c, wish.machine = times.machine;
    for (const std::string& note : times.notes) print_status("{}: {}\n", device, note);
    if (values.count("json") == 0)
      fmt::print("{}: acceptance as measured in the run, t(n) and c of the device.\n", times.machine);
  }
  const json grid = tree_grid_of(run, wish), tree = best_tree_of(grid);
  const bool several = wish.by_confidence > 0;
  const json file = several ? best_mixture_of(run, wish, tree) : tree;
  if (values.count("json") > 0) fmt::print("{}\n", file.dump(1));
  else fmt::print("{}{}", to_tree_text(tree), several ? to_mixture_text(file) : "");
  if (values.count("grid") > 0) {
    write_file(values["grid"].as<std::string>(), to_grid_file(grid));
    print_status("Grid file: {}, with {} trees.\n", values["grid"].as<std::string>(), grid["cells"].size());
  }
  if (file[several ? "trees" : "parents"].empty()) {
    print_status("No tree file was written, because no tree is faster than autoregressive decoding.\n");
    return kCheckFailed;
  }
  write_json_file(out, file);
  print_status("Tree file: {}. Draft it with {{\"strategy\": \"{}\", \"tree\": \"{}\"{}}}.\n", out,
               tree_strategy().info.name, out, several ? ", \"budget\": \"fixed\"" : "");
  return kOk;
}

int optimize_layers(const po::variables_map& values, const Command& command, const std::string& out,
                    const BackendChoice& backend) {
  LayerWish wish;
  wish.tokens = whole_number(values, "tokens", 1, 100'000);
  wish.gamma = whole_number(values, "gamma", 1, 64);
  wish.search.evaluations = whole_number(values, "evaluations", 1, 1'000'000);
  wish.search.tries = whole_number(values, "tries", 1, 10'000);
  wish.search.seed = static_cast<std::uint64_t>(whole_number(values, "seed", 0, 1'000'000'000));
  wish.temperature = values["temperature"].as<double>();
  if (!(wish.temperature >= 0 && wish.temperature <= 100))
    throw Error({"--temperature", fmt::format("{}", wish.temperature), "0 to 100", ""});
  if (values.count("t") > 0) wish.target = parse_row_times(values["t"].as<std::string>());
  if (values.count("per-layer") > 0) {
    wish.per_layer = values["per-layer"].as<double>();
    if (!(*wish.per_layer >= 0 && *wish.per_layer <= 1))
      throw Error({"--per-layer", fmt::format("{}", *wish.per_layer), "0 to 1", ""});
  }
  PromptSource source;
  source.file = required(values, "prompts", command);
  source.limit = whole_number(values, "limit", 0, 1'000'000);
  if (values.count("split") > 0)
    source.split = parse_choice("--split", values["split"].as<std::string>(), kSplitNames);
  const std::vector<PromptSpec> prompts = load_prompts(source);
  const ModelSet models(required(values, "model", command), open_backend(backend, write_status_line), "");
  catch_interrupts();
  Progress progress(values.count("quiet") > 0);
  progress.start("sets of layers", wish.search.evaluations, 0);
  const json chosen =
      optimized_layers(models, prompts, wish, out + ".evaluations.jsonl", values.count("resume") > 0,
                       interrupted, [&](int, const std::string& best) { progress.advance(best); });
  progress.finish();
  if (!chosen["complete"].get<bool>()) {
    progress.warn("interrupted; evaluated sets are kept. Repeat the command with --resume.");
    return kInterrupted;
  }
  if (values.count("json") > 0) fmt::print("{}\n", chosen.dump(1));
  else fmt::print("{}", to_layers_text(chosen));
  write_json_file(out, chosen);
  print_status("Skip file: {}. Draft with it: {{\"strategy\": \"{}\", \"skip_file\": \"{}\"}}.\n", out,
               layer_strategy().info.name, out);
  return kOk;
}

/// Reads the command line of `speclab optimize config`. An option that `tree` also has keeps the default of
/// ConfigWish unless it was given.
OptimizeConfigWords words_of_config(const po::variables_map& values, const fs::path& source,
                                    const std::string& out, const BackendChoice& backend) {
  OptimizeConfigWords words;
  words.config = source;
  words.out = out;
  words.backend = backend;
  if (values.count("set") > 0) words.settings = values["set"].as<std::vector<std::string>>();
  words.folder = values.count("run") > 0 ? fs::path(values["run"].as<std::string>()) : fs::path(out + ".run");
  const auto shared = [&](const char* name, int least, int most, int& value) {
    if (!values[name].defaulted()) value = whole_number(values, name, least, most);
  };
  shared("width", 2, 64, words.wish.width);
  shared("nodes", 2, TreeShape::kMostDrafted + 1, words.wish.nodes);
  shared("depth", 1, TreeShape::kMostDrafted, words.wish.depth);
  words.wish.longest = whole_number(values, "longest", 1, 31);
  words.wish.lookahead_rows = whole_number(values, "lookahead-rows", 0, 1024);
  words.wish.repeats = whole_number(values, "repeats", 1, 1000);
  words.resume = values.count("resume") > 0;
  words.as_json = values.count("json") > 0;
  words.quiet = values.count("quiet") > 0;
  return words;
}

/// Throws Error for a given option in `names`, the options that this search does not read.
void refuse(const po::variables_map& values, const std::string& what,
            std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (values.count(name) == 0 || values[name].defaulted()) continue;
    const bool positional = std::string_view(name) == "SOURCE";
    throw Error({.what = "speclab optimize " + what,
                 .got = positional ? values[name].as<std::string>() : fmt::format("--{}", name),
                 .expected = positional ? "options only" : "options of this search",
                 .advice = "speclab optimize --help lists them."});
  }
}

int run_optimize(const Command& command, const std::vector<std::string>& arguments) {
  std::string out;
  BackendChoice backend;
  TreeWish wish;
  const LayerWish layers;
  const ConfigWish config;
  po::options_description options("tree, layers and config");
  options.add_options()("out", po::value(&out), "the file to write");
  po::options_description of_config("config");
  of_config.add_options()("longest", po::value<int>()->default_value(config.longest),
                          "longest chain that is searched, 1 to 31")(
      "lookahead-rows", po::value<int>()->default_value(config.lookahead_rows),
      "rows of the largest step of lookahead decoding that is searched; below 8: none")(
      "repeats", po::value<int>()->default_value(config.repeats),
      "timed decodings of each prompt in the measurement of the three best settings");
  po::options_description of_layers("layers");
  of_layers.add_options()("model", po::value<std::string>(), "target: a GGUF file or a directory")(
      "prompts", po::value<std::string>(), "JSONL file of prompts; only first turns are used")(
      "limit", po::value<int>()->default_value(8), "only the first n prompts; 0: all")(
      "split", po::value<std::string>(), "only prompts of this split: fit or measure")(
      "tokens", po::value<int>()->default_value(layers.tokens),
      "tokens of the target's answer to each prompt")("gamma", po::value<int>()->default_value(layers.gamma),
                                                      "longest chain whose acceptance is measured")(
      "temperature", po::value<double>()->default_value(layers.temperature), "of target and draft")(
      "evaluations", po::value<int>()->default_value(layers.search.evaluations),
      "largest number of sets of layers whose acceptance is measured")(
      "tries", po::value<int>()->default_value(layers.search.tries),
      "number of layers that are tried in each round after the first")(
      "seed", po::value<int>()->default_value(1), "seed of the random changes and of sampled answers")(
      "per-layer", po::value<double>(),
      "choose for a machine with this ratio: time of one layer / time of a forward of one row. Default: "
      "it is measured");
  po::options_description of_tree("tree; config takes only width, nodes, depth, run and set");
  const auto shared_help = [](const char* text, int usual) {
    return fmt::format("{}; config: default {}", text, usual);
  };
  const std::string
      width_help = shared_help("largest number of children of a node; the acceptance of each is measured",
                               config.width),
      nodes_help =
          shared_help("largest number of rows of a target forward: the pending token and the drafted tokens",
                      config.nodes),
      depth_help = shared_help("largest number of levels of the tree", config.depth);
  of_tree.add_options()("draft", po::value(&wish.draft),
                        "name of the draft in the config; default: its only draft")(
      "width", po::value<int>()->default_value(wish.width), width_help.c_str())(
      "measured-depth", po::value<int>()->default_value(wish.measured_depth),
      "largest depth at which acceptance is measured; it stands for all greater depths")(
      "nodes", po::value<int>()->default_value(wish.nodes), nodes_help.c_str())(
      "depth", po::value<int>()->default_value(wish.depth), depth_help.c_str())(
      "by-confidence", po::value<int>(),
      "choose a tree for each of this many ranges of the draft model's confidence after the pending token; 2 "
      "to "
      "16")("c", po::value<double>(),
            "choose for a machine with this ratio: time of a draft forward / time of a target forward, one "
            "row each")(
      "for-device", po::value<std::string>(),
      "choose for this simulated device and take t(n) and c from it. A name in configs/devices, a device "
      "file, or the folder of a run")(
      "grid", po::value<std::string>(),
      "also write the best tree of every size and depth to this file, with its predicted speedup")(
      "run", po::value<std::string>(), "folder for the runs that measure; default FILE.run")(
      "set", po::value<std::vector<std::string>>()->composing(), "change the config: --set prompts.limit=3");
  options.add_options()(
      "t", po::value<std::string>(),
      "not for config: choose for a machine with these forward times, as ROWS:TIME pairs: 1:1,16:1.2,64:2")(
      "resume", "resume an interrupted measurement")("json", "print JSON")("quiet,q", "show no progress");
  add_backend_options(options, backend);
  options.add(of_tree).add(of_layers).add(of_config);
  const auto values = parse_arguments(command, arguments, options, {"WHAT", "SOURCE"});
  if (!values) return kOk;
  const std::string word = required(*values, "WHAT", command);
  const Optimized what = parse_choice("speclab optimize", word, kOptimizedNames,
                                      fmt::format("For example: {}", command.example));
  if (out.empty()) {
    throw Error({.what = "speclab optimize " + word,
                 .got = "no --out",
                 .expected = "--out FILE, the file to write",
                 .advice = ""});
  }
  if (what != Optimized::config) refuse(*values, word, {"longest", "lookahead-rows", "repeats"});
  if (what == Optimized::layers) {
    refuse(*values, word,
           {"SOURCE", "draft", "width", "measured-depth", "nodes", "depth", "by-confidence", "c",
            "for-device", "grid", "run", "set"});
    return optimize_layers(*values, command, out, backend);
  }
  refuse(*values, word,
         {"model", "prompts", "limit", "split", "tokens", "gamma", "temperature", "evaluations", "tries",
          "seed", "per-layer"});
  const fs::path source = required(*values, "SOURCE", command);
  if (what == Optimized::config) {
    refuse(*values, word, {"draft", "measured-depth", "by-confidence", "c", "for-device", "grid", "t"});
    const OptimizeConfigWords words = words_of_config(*values, source, out, backend);
    return reading_records(command, [&] { return optimize_config(words); });
  }
  return reading_records(command, [&] { return optimize_tree(*values, source, out, backend, wish); });
}

}  // namespace

const Command kOptimizeCommand = {
    "optimize",
    "tree CONFIG|RUN --out FILE | layers --model PATH --prompts FILE --out FILE | config CONFIG --out FILE "
    "[options]",
    "tree: chooses the tree of drafted tokens that is predicted to be fastest on this machine (Sequoia) and "
    "writes it to a file. With a CONFIG, first measures t(n), c and, on the config's prompts, the acceptance "
    "by rank and depth; with a RUN, takes these numbers from the run. With --by-confidence, chooses "
    "several trees, one for each range of the draft model's confidence. Exit code 1: no tree is faster "
    "than autoregressive decoding, or lines of the run failed or differ from their reference. layers: "
    "searches the layers that a draft on the target's own cache should skip (Draft & Verify), and writes "
    "them to a file. config: searches drafter, draft length, tree and W, N, G of lookahead decoding on half "
    "of the config's prompts, by replay of a trace and by the fitted law of lookahead decoding; measures the "
    "three best settings and autoregressive decoding on the other prompts; and writes a config with the "
    "best one. Exit code 1: none is faster than autoregressive decoding, or lines failed or differ from "
    "their "
    "reference.",
    "speclab optimize tree configs/quickstart.json --draft distilled --out tree.json", run_optimize};

}  // namespace speclab
