#include <boost/program_options.hpp>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <ctime>
#include <filesystem>

#include "core/base/error.h"
#include "core/base/options.h"
#include "core/base/standard_streams.h"
#include "experiments/cli/command.h"
#include "experiments/config/config_file.h"
#include "experiments/config/settings.h"
#include "experiments/run/resume.h"
#include "experiments/simulate/trace_plan.h"

namespace speclab {
namespace po = boost::program_options;
namespace fs = std::filesystem;
namespace {

constexpr std::pair<TracedEvidence, std::string_view> kEvidenceNames[] = {
    {TracedEvidence::confidence, "confidence"},
    {TracedEvidence::entropy, "entropy"},
    {TracedEvidence::top, "top"},
    {TracedEvidence::none, "none"}};

int number_in_range(const po::variables_map& values, const char* name, int least, int most) {
  const int value = values[name].as<int>();
  if (value >= least && value <= most) return value;
  throw Error({.what = fmt::format("--{}", name),
               .got = std::to_string(value),
               .expected = fmt::format("{} to {}", least, most),
               .advice = ""});
}

/// The words of the command line that `speclab run` takes as they are.
std::vector<std::string> words_for_run(const po::variables_map& values, const BackendChoice& backend) {
  std::vector<std::string> words;
  for (const char* flag : {"resume", "dry-run", "json", "quiet"}) {
    if (values.count(flag) > 0) words.push_back(fmt::format("--{}", flag));
  }
  for (const char* name : {"shard", "costs"}) {
    if (values.count(name) > 0) words.push_back(fmt::format("--{}={}", name, values[name].as<std::string>()));
  }
  const std::vector<std::string> chosen = backend_words(values, backend);
  words.insert(words.end(), chosen.begin(), chosen.end());
  return words;
}

/// The words that name the config and change it into a trace.
std::vector<std::string> words_of_config(const std::string& config, const po::variables_map& values,
                                         std::string& out) {
  TraceWish wish;
  if (values.count("set") > 0) wish.settings = values["set"].as<std::vector<std::string>>();
  if (values.count("filter") > 0) wish.filter = values["filter"].as<std::string>();
  if (values.count("longest") > 0) wish.longest = number_in_range(values, "longest", 1, 64);
  wish.width = number_in_range(values, "width", 1, 1023);
  wish.evidence = parse_choice("--evidence", values["evidence"].as<std::string>(), kEvidenceNames);
  const TracePlan plan = plan_trace(config, wish);
  for (const std::string& note : plan.notes) print_status("{}\n", note);
  if (out.empty()) {
    const std::string name = load_experiments(config, plan.settings).front().name;
    out = (fs::path("results") / "runs" /
           fmt::format("{}-{:%Y%m%d-%H%M%S}", name, fmt::localtime(std::time(nullptr))))
              .string();
  }
  std::vector<std::string> words = {config, "--out", out};
  for (const std::string& setting : plan.settings) {
    words.push_back("--set");
    words.push_back(setting);
  }
  return words;
}

int run_trace(const Command& command, const std::vector<std::string>& arguments) {
  std::string out;
  BackendChoice backend;
  po::options_description options;
  options.add_options()(
      "longest", po::value<int>(),
      "tokens of each drafted chain; default: the longest draft of the config. A replay can "
      "only shorten drafts")(
      "width", po::value<int>()->default_value(8),
      "children of the pending token in a trace of trees, and most children of a node in a replayed tree")(
      "evidence", po::value<std::string>()->default_value("confidence"),
      "what drafts record for schedules at temperature 0: confidence; entropy (with confidence); top (both, "
      "and the ten largest probabilities of each row, for controllers); or none. Recording takes time in "
      "each step")("set", po::value<std::vector<std::string>>()->composing(), setting_help().c_str())(
      "filter", po::value<std::string>(),
      "trace only the cases of the config whose id matches this regular expression (RE2)")(
      "out", po::value(&out), "folder of the run; default results/runs/NAME-TIME")(
      "resume", "continue an interrupted trace: speclab trace --resume DIR")(
      "dry-run", "check config, options and files, show the cases, estimate the time, run nothing")(
      "shard", po::value<std::string>(), "i/n: as for speclab run")(
      "costs", po::value<std::string>(), "as for speclab run")("json", "print the summary as JSON")(
      "quiet,q", "show no progress on stderr");
  add_backend_options(options, backend);
  const auto values = parse_arguments(command, arguments, options, {"CONFIG"});
  if (!values) return kOk;
  const std::string given = required(*values, "CONFIG", command);
  std::vector<std::string> words = words_for_run(*values, backend), config_words = {given};
  if (values->count("resume") > 0) {
    refuse_options(*values, "speclab trace --resume",
                   {"longest", "width", "evidence", "set", "filter", "out", "dry-run"});
    require_trace_folder(given);
    out = given;
  } else {
    config_words = words_of_config(given, *values, out);
  }
  words.insert(words.begin(), config_words.begin(), config_words.end());
  const int code = kRunCommand.run(kRunCommand, words);
  if (code == kOk && values->count("dry-run") == 0 && values->count("quiet") == 0)
    print_status("Replay it with: speclab replay {}\n", shell_word(out));
  return code;
}

}  // namespace

const Command kTraceCommand = {
    "trace", "CONFIG [options], or: speclab trace --resume DIR",
    "Runs a config as a trace: every step drafts as much as it may, is judged, and emits one token. The "
    "record "
    "has what each drafter proposes at every position (tokens, p, q, ranks) and the entropy of the target "
    "there. speclab replay computes from it what other lengths, schedules and trees would give.",
    "speclab trace configs/quickstart.json --longest 8 --set prompts.limit=2", run_trace};

}  // namespace speclab
