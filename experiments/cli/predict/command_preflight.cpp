#include <boost/program_options.hpp>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <cstddef>
#include <ctime>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/base/files.h"
#include "core/measure/run_result.h"
#include "experiments/cli/command.h"
#include "experiments/cli/predict/run_part.h"
#include "experiments/metrics/run_data.h"
#include "experiments/preflight/plan.h"
#include "experiments/preflight/strategies.h"
#include "experiments/preflight/verdict.h"
#include "experiments/run/dry_run.h"

namespace speclab {
namespace po = boost::program_options;
namespace fs = std::filesystem;
namespace {

using nlohmann::json;

/// The options of the command line.
struct PreflightWords {
  PreflightPlan::Wish wish;
  std::string config, out;
  std::vector<std::string> devices;
  BackendChoice backend;
  bool resume = false, check = true;
};

/// Sets the draft of the wish: the path of a model (DRAFT), a number of the target's layers (--keep-layers),
/// or n-grams (--ngrams).
void read_draft(const po::variables_map& values, const std::string& inflate, PreflightPlan::Wish& wish) {
  const bool path = values.count("DRAFT") > 0, layers = values.count("keep-layers") > 0,
             ngrams = values.count("ngrams") > 0;
  if (path + layers + ngrams != 1) {
    std::string given;
    const auto add = [&](bool is_given, const char* name) {
      if (is_given) given += (given.empty() ? "" : " and ") + std::string(name);
    };
    add(path, "DRAFT"), add(layers, "--keep-layers"), add(ngrams, "--ngrams");
    throw Error({.what = "speclab preflight",
                 .got = given.empty() ? "neither DRAFT nor --keep-layers nor --ngrams" : given,
                 .expected = "one draft: the path of a model, a number of the target's layers, or n-grams",
                 .advice = "For example: speclab preflight TARGET --keep-layers 20."});
  }
  if (!path) refuse_options(values, "speclab preflight without DRAFT", {"inflate-draft"});
  if (!ngrams) refuse_options(values, "speclab preflight without --ngrams", {"order"});
  if (path) {
    wish.draft = {{"model", values["DRAFT"].as<std::string>()}};
    if (!inflate.empty()) wish.draft["inflate"] = to_json(parse_inflate_text(inflate));
  } else if (layers) {
    wish.draft = {{"layers", {{"keep", values["keep-layers"].as<int>()}}}};
  } else {
    const std::string source = values["ngrams"].as<std::string>();
    wish.ngrams = {{"order", values["order"].as<int>()}};
    if (source != "text") wish.ngrams.update({{"counts", "file"}, {"file", source}});
  }
}

int positive(const po::variables_map& values, const char* name, int most) {
  if (values.count(name) == 0) return 0;
  const int value = values[name].as<int>();
  if (value >= 1 && value <= most) return value;
  throw Error({.what = fmt::format("--{}", name),
               .got = std::to_string(value),
               .expected = fmt::format("1 to {}", most),
               .advice = ""});
}

/// The settings to check: the recommended one, which uses the draft, and the fastest of all strategies if it
/// is another one. Writes the tree of each setting that has one into `folder`.
std::vector<json> settings_to_check(const PreflightPlan& plan, const json& verdict, const fs::path& folder) {
  std::vector<json> out;
  const json& strategies = verdict["strategies"];
  const auto recommended = verdict["recommended"].get<std::size_t>();
  for (const std::size_t index : {recommended, std::size_t{0}}) {
    if (!out.empty() && index == recommended) break;
    const json& strategy = strategies.at(index);
    const bool tree = strategy["tree"].is_object();
    const fs::path file = folder / fmt::format("tree-{}.json", out.size() + 1);
    if (tree) write_json_file(file, tree_file_of(strategy));
    out.push_back(plan.setting(strategy["case"],
                               strategy["gamma"].is_number() ? strategy["gamma"].get<int>() : 0,
                               tree ? file.string() : ""));
  }
  return out;
}

int preflight(const PreflightWords& words, bool as_json, bool quiet) {
  std::vector<SimulatedDevice> devices;  // opened first: a wrong name should not cost a run
  for (const std::string& name : words.devices) devices.push_back(open_device(name));
  const PreflightPlan plan(words.config, words.wish);
  Experiment trace = plan.trace();
  require_files({&trace, 1});
  const fs::path folder =
      words.out.empty() ? fs::path("results") / "runs" /
                              fmt::format("preflight-{:%Y%m%d-%H%M%S}", fmt::localtime(std::time(nullptr)))
                        : fs::path(words.out);
  catch_interrupts();
  Progress progress(quiet);
  const auto interrupted_text = [&] {
    progress.warn(
        fmt::format("interrupted; repeat the command with --out {} --resume to go on", folder.string()));
    return kInterrupted;
  };
  PartEnd end = run_part(std::move(trace), folder / "trace", words.backend, words.resume, progress);
  if (end == PartEnd::stopped) return interrupted_text();
  bool good = end == PartEnd::good;
  json verdict = preflight_verdict(load_run(folder / "trace"), devices);
  const std::vector<json> settings = settings_to_check(plan, verdict, folder);
  verdict["setting"] = settings.front();
  if (words.check) {
    Experiment check = plan.check(settings);
    CheckedCases cases{.own = PreflightPlan::case_of_setting(check, 0)};
    if (settings.size() > 1) cases.best = PreflightPlan::case_of_setting(check, 1);
    end = run_part(std::move(check), folder / "check", words.backend, words.resume, progress);
    if (end == PartEnd::stopped) return interrupted_text();
    good = good && end == PartEnd::good;
    add_check(verdict, load_run(folder / "check"), cases);
  }
  write_json_file(folder / "preflight.json", verdict);
  fmt::print("{}\n", as_json ? verdict.dump(1) : preflight_text(verdict));
  if (!as_json) fmt::print("Record: {}\n", folder.string());
  const bool contradicted = !verdict["check"].is_null() && verdict["check"]["contradicts"].get<bool>();
  return good && !contradicted ? kOk : kCheckFailed;
}

int run_preflight(const Command& command, const std::vector<std::string>& arguments) {
  PreflightWords words;
  po::options_description options;
  std::string inflate, inflate_draft;
  options.add_options()("keep-layers", po::value<int>(),
                        "instead of DRAFT: draft with this many layers of the target, spread evenly")(
      "ngrams", po::value<std::string>(),
      "instead of DRAFT: draft with an n-gram model: text (n-grams of the text so far), or a file made by "
      "speclab ngram build")("order", po::value<int>()->default_value(3),
                             "with --ngrams: longest n-gram, 1 to 6")(
      "inflate-draft", po::value(&inflate_draft),
      "embed DRAFT in a larger shape that computes the same function, as --inflate does with TARGET")(
      "prompts", po::value(&words.wish.prompts),
      "JSONL file of prompts; the trace takes the first, third, ... prompt of each category, the check the "
      "others")("per-category", po::value<int>(),
                "prompts of each category in each of the two runs; default 1")(
      "tokens", po::value<int>(), "new tokens of each turn; default 64")(
      "gamma", po::value<int>(), "longest draft that is considered; default 8")(
      "simulate", po::value(&words.devices)->composing(),
      "also simulate this device, as speclab simulate does; any number of times")(
      "no-check", "only predict; do not run the recommended setting on other prompts")(
      "config", po::value(&words.config)->default_value("configs/preflight.json"),
      "config of the trace; name another file to trace other strategies or options")(
      "out", po::value(&words.out), "folder of the runs; default results/runs/preflight-TIME")(
      "resume", "go on with the interrupted preflight in --out")("json", "print JSON")(
      "quiet,q", "show no progress on stderr");
  add_inflate_option(options, inflate);
  add_backend_options(options, words.backend);
  const auto values = parse_arguments(command, arguments, options, {"TARGET", "DRAFT"});
  if (!values) return kOk;
  words.wish.target = required(*values, "TARGET", command);
  if (!inflate.empty()) words.wish.inflate = to_json(parse_inflate_text(inflate));
  read_draft(*values, inflate_draft, words.wish);
  words.wish.per_category = positive(*values, "per-category", 1000);
  words.wish.tokens = positive(*values, "tokens", 1 << 20);
  words.wish.longest = positive(*values, "gamma", 32);
  words.resume = values->count("resume") > 0;
  words.check = values->count("no-check") == 0;
  if (words.resume && words.out.empty()) {
    throw Error({.what = "--resume",
                 .got = "no --out",
                 .expected = "the folder of the preflight to resume",
                 .advice = "The interrupted command printed it."});
  }
  return preflight(words, values->count("json") > 0, values->count("quiet") > 0);
}

}  // namespace

const Command kPreflightCommand = {
    "preflight", "TARGET DRAFT [options], or: speclab preflight TARGET --keep-layers N | --ngrams FILE",
    "Says whether a draft is worth it for a target on this machine: alpha by category and by place in the "
    "draft, c, t(n) with its floor and its change points, the predicted speedup of chains and trees of the "
    "draft and of prompt copies, the best of these strategies, the alpha below which no length gains, and a "
    "short real run on other prompts as a check. All decoding is greedy. Exit code 1: lines failed "
    "or differ from their reference, or the check contradicts the verdict.",
    "speclab preflight models/SmolLM2-135M-Instruct.Q4_1.gguf models/draft/smollm2-135m-instruct",
    run_preflight};

}  // namespace speclab
