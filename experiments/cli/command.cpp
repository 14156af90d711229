#include "experiments/cli/command.h"

#include <boost/program_options.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <sstream>

#include "core/base/error.h"
#include "core/base/nearest.h"
#include "core/base/standard_streams.h"
#include "experiments/run/resume.h"

namespace speclab {
namespace po = boost::program_options;
namespace {

volatile std::sig_atomic_t g_interrupted = 0;

constexpr int kStopSignals[] = {SIGINT, SIGTERM, SIGHUP};

void on_interrupt(int signal) {
  if (g_interrupted != 0) {  // a second signal ends the process at once
    std::signal(signal, SIG_DFL);
    std::raise(signal);
  }
  g_interrupted = 1;
}

std::vector<std::string>& stored_command_line() {
  static std::vector<std::string> words;
  return words;
}

void print_help(const Command& command, const po::options_description& options) {
  std::ostringstream text;
  text << options;
  fmt::print("speclab {} {}\n\n{}\n\n{}\nExample:\n  {}\n", command.name, command.usage, command.summary,
             text.str(), command.example);
}

}  // namespace

std::span<const Command> commands() {
  static const Command all[] = {kRunCommand,      kGenerateCommand,  kListCommand,     kDescribeCommand,
                                kModelCommand,    kTheoryCommand,    kExplainCommand,  kCompareCommand,
                                kReportCommand,   kBenchCommand,     kNumericsCommand, kDatastoreCommand,
                                kNgramCommand,    kLookaheadCommand, kAuditCommand,    kOptimizeCommand,
                                kSimulateCommand, kReplayCommand,    kTraceCommand,    kPreflightCommand,
                                kMergeCommand,    kToyCommand};
  return all;
}

std::optional<po::variables_map> parse_arguments(const Command& command,
                                                 const std::vector<std::string>& arguments,
                                                 const po::options_description& options,
                                                 const std::vector<std::string>& positional) {
  po::options_description visible("Options");
  visible.add(options).add_options()("help,h", "this text");
  po::options_description all;
  all.add(visible);
  po::positional_options_description positions;
  for (const std::string& name : positional) {
    const bool rest = name.ends_with("...");
    const std::string plain = rest ? name.substr(0, name.size() - 3) : name;
    positions.add(plain.c_str(), rest ? -1 : 1);
    if (rest) {
      all.add_options()(plain.c_str(), po::value<std::vector<std::string>>());
    } else {
      all.add_options()(plain.c_str(), po::value<std::string>());
    }
  }
  const std::string advice = fmt::format("speclab {} --help shows the options.", command.name);
  try {
    po::variables_map values;
    const auto style = po::command_line_style::unix_style & ~po::command_line_style::allow_guessing;
    po::store(po::command_line_parser(arguments).options(all).positional(positions).style(style).run(),
              values);
    if (values.count("help") > 0) {
      print_help(command, visible);
      return std::nullopt;
    }
    po::notify(values);
    return values;
  } catch (const po::unknown_option& error) {
    std::vector<std::string> known;
    for (const auto& option : visible.options()) known.push_back("--" + option->long_name());
    const std::string name = error.get_option_name();
    const std::string near = nearest_name(name, known);
    throw Error({.what = fmt::format("speclab {}", command.name),
                 .got = fmt::format("unknown option {}", name),
                 .expected = "",
                 .advice = near.empty() ? advice : fmt::format("Did you mean {}?", near)});
  } catch (const po::error& error) {
    throw Error({.what = fmt::format("speclab {}", command.name),
                 .got = error.what(),
                 .expected = "",
                 .advice = advice});
  }
}

std::string required(const po::variables_map& values, const std::string& name, const Command& command) {
  if (values.count(name) == 0) {
    throw Error({.what = fmt::format("speclab {}", command.name),
                 .got = fmt::format("no {}", name),
                 .expected = fmt::format("speclab {} {}", command.name, command.usage),
                 .advice = fmt::format("For example: {}", command.example)});
  }
  return values[name].as<std::string>();
}

void refuse_options(const po::variables_map& values, const std::string& where,
                    std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (values.count(name) == 0 || values[name].defaulted()) continue;
    throw Error({.what = where,
                 .got = fmt::format("--{}", name),
                 .expected = "only options that have an effect there",
                 .advice = "Leave the option out."});
  }
}

void add_backend_options(po::options_description& options, BackendChoice& choice) {
  const char* chosen = std::getenv("SPECLAB_BACKEND");
  options.add_options()(
      "backend",
      po::value<std::string>()
          ->default_value(chosen == nullptr || *chosen == '\0' ? "auto" : chosen)
          ->notifier([&](const std::string& name) { choice.backend = parse_backend_kind(name); }),
      "cpu, cuda, host-simt (the GPU's kernels simulated on the CPU, slow), or auto (cuda if a GPU is "
      "usable and --numerics is auto, else cpu). SPECLAB_BACKEND in the environment sets the default")(
      "device", po::value(&choice.device)->default_value(0), "index of the backend's device")(
      "numerics", po::value(&choice.numerics)->default_value("auto"),
      "numerics class; results are bitwise equal within a class (speclab numerics lists the classes)")(
      "threads", po::value(&choice.threads)->default_value(0),
      "number of threads; 0: every core that the affinity mask and the cgroup allow")(
      "kernels", po::value<std::string>()->default_value("launches")->notifier([&](const std::string& name) {
        choice.kernels = parse_cuda_kernels(name);
      }),
      "GPU only: launches (one per operation, or per few fused operations), serial (launches that never "
      "overlap), graphs (as launches, but a forward that repeats is one CUDA graph), persistent (one "
      "cooperative launch for a forward or a drafted chain), or auto (persistent for models up to 1 GiB). "
      "Results are bitwise equal")(
      "prefill", po::value<std::string>()->default_value("own")->notifier([&](const std::string& name) {
        choice.prefill = parse_prefill_kernels(name);
      }),
      "GPU only, for prompts of more than 128 tokens: own (SpecLab's kernels) or cublaslt (a library of the "
      "CUDA toolkit). The rows of cublaslt are not bitwise equal to those of decoding")(
      "self-test", po::value<std::string>()->default_value("auto")->notifier([&](const std::string& name) {
        choice.self_test = parse_self_test(name);
      }),
      "GPU only, before texts are generated or measured: compare a hundred steps of a small model with the "
      "CPU's. auto: if --backend auto chose the GPU; on; off. A device that passed is not tested again by "
      "the same program");
}

std::vector<std::string> backend_words(const po::variables_map& values, const BackendChoice& choice) {
  std::vector<std::string> words;
  const nlohmann::json options = to_json(choice);
  for (const auto& [name, value] : options.items()) {
    if (values[name].defaulted()) continue;
    words.push_back(
        fmt::format("--{}={}", name, value.is_string() ? value.get<std::string>() : value.dump()));
  }
  if (!values["self-test"].defaulted())
    words.push_back(fmt::format("--self-test={}", name_of(choice.self_test)));
  return words;
}

void add_wide_option(po::options_description& options) {
  options.add_options()("wide",
                        "print every column and whole case ids. Without this option, tables fit the width of "
                        "the terminal; what is printed into a file or a pipe is always whole");
}

std::optional<int> table_width(const po::variables_map& values) {
  return values.count("wide") > 0 ? std::nullopt : output_columns();
}

void add_inflate_option(po::options_description& options, std::string& text) {
  options.add_options()("inflate", po::value(&text),
                        "embed the model in a larger shape that computes the same function, such as "
                        "hidden=2048,ffn=8192; sizes: hidden, layers, heads, kv_heads, head_dim, ffn, vocab");
}

InflateShape parse_inflate_text(const std::string& text) {
  if (text.empty()) return {};
  nlohmann::json object = nlohmann::json::object();
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, ',');) {
    const std::size_t equals = part.find('=');
    const nlohmann::json size = equals == std::string::npos
                                    ? nlohmann::json()
                                    : nlohmann::json::parse(part.substr(equals + 1), nullptr, false);
    if (!size.is_number_integer()) {
      throw Error({.what = "--inflate",
                   .got = "\"" + part + "\"",
                   .expected = "SIZE=NUMBER, such as hidden=2048,ffn=8192",
                   .advice = "Sizes are hidden, layers, heads, kv_heads, head_dim, ffn and vocab."});
    }
    object[part.substr(0, equals)] = size;
  }
  return parse_inflate(object, "--inflate ");
}

int reading_records(const Command& command, const std::function<int()>& work) {
  try {
    return work();
  } catch (const nlohmann::json::exception& error) {
    throw Error({.what = fmt::format("speclab {}", command.name),
                 .got = fmt::format("a record with a value of the wrong type ({})", error.what()),
                 .expected = "a record as results/SCHEMA.md describes it",
                 .advice = "A file of the run was changed or damaged, or another version wrote it."});
  }
}

bool interrupted() { return g_interrupted != 0; }

void catch_interrupts() {
  struct sigaction action{}, before{};
  action.sa_handler = on_interrupt;
  for (const int signal : kStopSignals) {
    sigaction(signal, nullptr, &before);
    if (signal == SIGHUP && before.sa_handler == SIG_IGN)
      continue;  // under nohup the run survives its terminal
    sigaction(signal, &action, nullptr);
  }
}

const std::vector<std::string>& command_line() { return stored_command_line(); }
void set_command_line(std::vector<std::string> words) { stored_command_line() = std::move(words); }

}  // namespace speclab
