#include <boost/program_options.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <optional>

#include "core/base/error.h"
#include "core/base/files.h"
#include "core/base/nearest.h"
#include "core/base/standard_streams.h"
#include "core/measure/run_result.h"
#include "experiments/cli/command.h"
#include "experiments/analysis/acceptance_by_entropy.h"
#include "experiments/analysis/export.h"
#include "experiments/analysis/strategy_theory.h"
#include "experiments/metrics/bound_verdict.h"
#include "experiments/metrics/noise/machine_load.h"
#include "experiments/metrics/record_files.h"
#include "experiments/metrics/summary.h"
#include "experiments/analysis/table.h"
#include "experiments/analysis/table_fit.h"

extern char** environ;

namespace speclab {
namespace po = boost::program_options;
namespace fs = std::filesystem;
namespace {

using nlohmann::json;

/// The project's checkout, which holds scripts/: the current directory, or the folder that is one or two
/// levels above the folder of the binary.
fs::path project_root() {
  std::error_code code;
  const fs::path binary = fs::read_symlink("/proc/self/exe", code), here = fs::current_path(code);
  for (fs::path root :
       {here, binary.parent_path().parent_path().parent_path(), binary.parent_path().parent_path()}) {
    if (!root.empty() && path_exists(root / "scripts" / "report.py")) return root;
  }
  throw Error({.what = "speclab report --out",
               .got = "no scripts/report.py",
               .expected = "the project's checkout as the current directory",
               .advice = "Change to the checkout and try again."});
}

/// An unnamed temporary file with a given text.
class TextFile {
 public:
  explicit TextFile(const std::string& text) : file_(std::tmpfile()) {
    if (file_ == nullptr || std::fwrite(text.data(), 1, text.size(), file_) != text.size() ||
        std::fflush(file_) != 0) {
      const int code = errno;
      if (file_ != nullptr) std::fclose(file_);
      fail_path("a temporary file", code, "room for the summary");
    }
    std::rewind(file_);
  }
  ~TextFile() { std::fclose(file_); }
  TextFile(const TextFile&) = delete;
  int descriptor() const { return ::fileno(file_); }

 private:
  std::FILE* file_;
};

/// Runs scripts/report.py in the project's virtual environment with the summary on its standard input. Its
/// messages go to stderr, because stdout is for data.
void write_html(const fs::path& run, const json& summary, const fs::path& out) {
  const fs::path root = project_root(), python = root / ".venv" / "bin" / "python";
  if (!path_exists(python)) {
    throw Error({.what = "speclab report --out",
                 .got = fmt::format("no {}", python.string()),
                 .expected = "the project's Python environment with matplotlib",
                 .advice = "Run scripts/setup_python.sh once."});
  }
  const TextFile text(summary.dump());
  std::vector<std::string> words = {
      python.string(), (root / "scripts" / "report.py").string(), run.string(), "--summary", "-", "--out",
      out.string()};
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, text.descriptor(), STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, STDERR_FILENO, STDOUT_FILENO);
  pid_t child = 0;
  const int code = posix_spawn(&child, argv[0], &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  int status = 0;
  if (code == 0) {
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
  }
  if (code != 0 || !WIFEXITED(status) || WEXITSTATUS(status) != 0) {
    throw Error({.what = "scripts/report.py",
                 .got = code != 0 ? std::strerror(code) : "a failure, see above",
                 .expected = fmt::format("the report {}", out.string()),
                 .advice = ""});
  }
}

/// Throws Error for a case that the summary does not have.
void require_case(const json& summary, const std::string& case_id) {
  std::vector<std::string> known;
  for (const json& entry : summary["cases"]) known.push_back(entry["id"].get<std::string>());
  if (case_id.empty() || std::find(known.begin(), known.end(), case_id) != known.end()) return;
  throw Error({.what = "--case",
               .got = fmt::format("no case \"{}\"", case_id),
               .expected = "",
               .advice = suggest(case_id, known)});
}

/// Throws Error for a summary of an older version, which has no numbers for each prompt.
void require_prompts(const json& summary, const fs::path& run) {
  for (const json& entry : summary["cases"]) {
    if (entry["by_prompt"].empty() && entry["errors"] == 0 && summary["complete"] == true) {
      throw Error({.what = "--prompts",
                   .got = fmt::format("no \"by_prompt\" in {}", (run / "summary.json").string()),
                   .expected = "the lines of the run, or a summary of a newer version",
                   .advice = "Run the experiment again."});
    }
  }
}

/// Prints the export on standard output, and errors and warnings about its cases on stderr.
int print_export(const RunData& data, const std::string& tool, const std::string& case_id) {
  fmt::print("{}", export_run(data, tool, case_id));
  int code = kOk;
  for (const auto& one : data.cases) {
    if (!case_id.empty() && one->id() != case_id) continue;
    for (const auto& [prompt, message] : one->errors)
      print_status("error: {} prompt {}: {}\n", one->id(), prompt, message);
    if (one->unequal())
      print_status("error: {} differs from its reference; its times are left out\n", one->id());
    const bool wrong = !above_bound(*one).is_null();
    if (wrong)
      print_status("error: the verifier of {} is wrong; speclab report shows its numbers\n", one->id());
    if (!one->errors.empty() || one->unequal() || wrong) code = kCheckFailed;
  }
  if (!data.complete) print_status("This run is not complete.\n");
  return code;
}

/// Prints the acceptance of each case by the entropy of the target's rows.
int print_entropy(const RunData& data, const std::string& case_id, bool as_json) {
  json found = json::array();
  for (const auto& one : data.cases) {
    if (!case_id.empty() && one->id() != case_id) continue;
    json acceptance = acceptance_by_entropy(*one);
    if (!acceptance.is_null()) found.push_back(std::move(acceptance));
  }
  if (found.empty()) {
    throw Error(
        {.what = "--entropy",
         .got = "no case of chains whose lines have the entropy of the target's rows",
         .expected = "a run with \"row_details\": true; with --case, a case of chains of this run",
         .advice = "Run it again with --set row_details=true, or record a trace with speclab trace."});
  }
  if (as_json) {
    fmt::print("{}\n", found.dump(1));
    return kOk;
  }
  for (const json& acceptance : found) fmt::print("{}\n", acceptance_by_entropy_text(acceptance));
  return kOk;
}

/// The options of the command line: what to print or write of a summary.
struct WantedReport {
  std::string csv, latex, out, case_id;
  bool as_json = false, prompts = false;
  std::optional<int> width;  ///< of the table on stdout; no value: the whole table
};

int print_report(const fs::path& run, const json& summary, const WantedReport& wanted) {
  const auto write = [](const std::string& file, const std::string& text) {
    if (file == "-") {
      fmt::print("{}", text);
    } else {
      write_file(file, text);
      print_status("wrote {}\n", file);
    }
  };
  const Table table = summary_table(summary);
  const json machine = machine_of(summary, read_run_environment(run));
  if (!wanted.csv.empty()) write(wanted.csv, summary_csv(summary));
  if (!wanted.latex.empty())
    write(wanted.latex, to_latex(table, summary["name"].get<std::string>() + ": " +
                                            summary["description"].get<std::string>() +
                                            (machine["busy"].get<bool>() ? " (busy machine)" : "")));
  if (!wanted.out.empty()) write_html(run, summary, wanted.out);
  if (wanted.as_json) {
    fmt::print("{}\n", summary.dump(1));
  } else if (wanted.prompts) {
    fmt::print("{}", prompts_text(summary, wanted.case_id));
  } else if (wanted.csv.empty() && wanted.latex.empty() && wanted.out.empty()) {
    fmt::print("{}{}\n", fitted_summary(summary, wanted.width), notes_text(summary));
    fmt::print("{}{}", published_text(summary), theory_text(summary));
    fmt::print("{}", machine_text(machine));
    for (const json& error : summary["errors"])
      fmt::print("error: {}: {}\n", error["case"].get<std::string>(), error["message"].get<std::string>());
    if (!summary["complete"].get<bool>()) fmt::print("This run is not complete.\n");
  }
  const std::string wrong = wrong_rules_text(summary);
  if (!wrong.empty()) print_status("exit code 1: {}", wrong);
  return summary["errors"].empty() && wrong.empty() ? kOk : kCheckFailed;
}

int run_report(const Command& command, const std::vector<std::string>& arguments) {
  std::string csv, latex, out, tool, case_id;
  po::options_description options;
  options.add_options()("csv", po::value(&csv),
                        "write all metrics of all cases to this file; - is standard output")(
      "latex", po::value(&latex), "write the table as LaTeX to this file; - is standard output")(
      "out", po::value(&out),
      "write the report to this HTML file, and its figures to a folder beside it: NAME-figures for "
      "NAME.html")("json", "print the summary as JSON; it is computed from the lines if the run has them")(
      "prompts", "for each prompt: print the share of copied text, tau and the speedup")(
      "entropy", "print the acceptance by the entropy of the target's rows; needs a run with row_details")(
      "export", po::value(&tool),
      "print the metrics as JSON lines, with the names that another tool uses: vllm, sglang, spec-bench or "
      "llama.cpp")("case", po::value(&case_id), "with --export, --prompts or --entropy: only this case");
  add_wide_option(options);
  const auto values = parse_arguments(command, arguments, options, {"RUN"});
  if (!values) return kOk;
  const fs::path run = required(*values, "RUN", command);
  const bool exports = values->count("export") > 0;
  for (const char* other : {"csv", "latex", "out", "json", "prompts"}) {
    if (exports && values->count(other) > 0)
      throw Error({.what = "speclab report",
                   .got = fmt::format("--export and --{}", other),
                   .expected = "only one of them",
                   .advice = ""});
  }
  const bool entropy = values->count("entropy") > 0;
  for (const char* other : {"csv", "latex", "out", "prompts", "export"}) {
    if (entropy && values->count(other) > 0)
      throw Error({.what = "speclab report",
                   .got = fmt::format("--entropy and --{}", other),
                   .expected = "only one of them",
                   .advice = ""});
  }
  if (!exports && !entropy && values->count("prompts") == 0 && values->count("case") > 0)
    throw Error({.what = "speclab report",
                 .got = "--case",
                 .expected = "--case together with --export, --prompts or --entropy",
                 .advice = "speclab explain RUN CASE shows one case."});
  if (entropy) {
    return reading_records(command,
                           [&] { return print_entropy(load_run(run), case_id, values->count("json") > 0); });
  }
  if (exports) {
    if (!path_exists(run / "cases") && path_exists(run / "summary.json")) {
      throw Error({.what = "--export",
                   .got = fmt::format("{} without raw lines (no cases/)", run.string()),
                   .expected = "a run with its lines",
                   .advice = "Run the experiment again."});
    }
    return print_export(load_run(run), tool, case_id);
  }
  const auto [summary, stored] = read_summary(run);
  if (stored) {
    print_status("{} has no raw lines; this is its stored summary.json.\n", run.string());
  } else if (std::none_of(summary["cases"].begin(), summary["cases"].end(),
                          [](const json& one) { return one.value("lines", 0) > 0; })) {
    print_status("{} has no finished line, so its table has no numbers.\n", run.string());
  }
  if (values->count("prompts") > 0) {
    require_case(summary, case_id);
    require_prompts(summary, run);
  }
  try {
    return print_report(run, summary,
                        {.csv = csv,
                         .latex = latex,
                         .out = out,
                         .case_id = case_id,
                         .as_json = values->count("json") > 0,
                         .prompts = values->count("prompts") > 0,
                         .width = table_width(*values)});
  } catch (const json::exception& error) {
    if (!stored) throw;
    throw Error({.what = (run / "summary.json").string(),
                 .got = error.what(),
                 .expected = "the summary of a run",
                 .advice = "The file is damaged; see results/SCHEMA.md."});
  }
}

}  // namespace

const Command kReportCommand = {"report", "RUN [options]",
                                "Prints the table of a run, writes it as CSV, LaTeX or HTML with figures, or "
                                "exports it with the names of other tools.",
                                "speclab report results/runs/quickstart-20260101-120000 --out report.html",
                                run_report};

}  // namespace speclab
