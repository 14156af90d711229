#include "experiments/run/resume.h"

#include <boost/program_options.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <set>

#include "core/base/error.h"
#include "core/base/files.h"
#include "core/measure/run_result.h"
#include "experiments/config/config_file.h"

namespace speclab {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

/// The experiments of a record. Throws Error when the record does not say how its run was configured.
std::vector<Experiment> configure(const json& record, const fs::path& file,
                                  const std::vector<std::string>& settings) {
  const bool complete = record.is_object() && record.contains("source") && record["source"].is_object() &&
                        record.contains("file") && record["file"].is_string();
  if (!complete) {
    throw Error({.what = file.string(),
                 .got = "no \"source\" (the config) or no \"file\" (its name)",
                 .expected = "the record of a run",
                 .advice = "Name the config: speclab run CONFIG --resume --out DIR."});
  }
  return configure_experiments(record["source"], record["file"], settings);
}

RecordedRun read_targets(const fs::path& file, const std::vector<std::string>& settings) {
  const json record = read_json_file(file);
  RecordedRun run{configure(record, file, settings), true};
  const auto filter = record.find("filter");
  if (filter != record.end() && filter->is_string() && *filter != "") {
    for (Experiment& experiment : run.experiments) filter_cases(experiment, filter->get<std::string>());
  }
  return run;
}

}  // namespace

RecordedRun read_recorded_run(const fs::path& folder, const std::vector<std::string>& settings) {
  if (path_exists(folder / "targets.json")) return read_targets(folder / "targets.json", settings);
  const fs::path file = folder / "config.json";
  if (!path_exists(file)) {
    throw Error({.what = folder.string(),
                 .got = "no run",
                 .expected = "the folder of a run to resume",
                 .advice = "Start one: speclab run CONFIG --out DIR."});
  }
  const json record = read_json_file(file);
  RecordedRun run{configure(record, file, settings), false};
  Experiment& experiment = run.experiments.front();
  experiment.target_name =
      record.contains("target_name") && record["target_name"].is_string() ? record["target_name"] : "";
  std::set<json> cases;  // --filter may have left some out
  if (record.contains("cases") && record["cases"].is_array()) {
    for (const json& one : record["cases"]) {
      if (one.is_object() && one.contains("id")) cases.insert(one["id"]);
    }
  }
  std::erase_if(experiment.cases, [&](const CaseSpec& spec) { return !cases.contains(spec.id); });
  if (experiment.cases.empty()) {
    throw Error({.what = file.string(),
                 .got = "cases that its \"source\" does not have",
                 .expected = "the record of a run",
                 .advice = "The file was changed. Start a new run."});
  }
  return run;
}

json targets_header(const std::vector<Experiment>& experiments, const std::string& filter) {
  const Experiment& first = experiments.front();
  json names = json::array(), source = first.source;
  source.erase("target");
  for (const Experiment& experiment : experiments) {
    names.push_back(experiment.target_name);
    source["targets"][experiment.target_name] = experiment.source["target"];
  }
  return {{"schema_version", kSchemaVersion},
          {"name", first.name},
          {"description", first.description},
          {"targets", names},
          {"file", first.file},
          {"filter", filter},
          {"source", source}};
}

json to_json(const BackendChoice& choice) {
  return {{"backend", name_of(choice.backend)}, {"device", choice.device},
          {"numerics", choice.numerics},        {"threads", choice.threads},
          {"kernels", name_of(choice.kernels)}, {"prefill", name_of(choice.prefill)}};
}

void take_recorded_options(const fs::path& folder, const boost::program_options::variables_map& values,
                           BackendChoice& choice) {
  fs::path file = folder / "environment.json";
  if (!path_exists(file)) {  // with several targets, all runs that were begun have the same options
    std::error_code code;
    for (fs::directory_iterator entry(folder, code), end; !code && entry != end; entry.increment(code)) {
      if (path_exists(entry->path() / "environment.json")) file = entry->path() / "environment.json";
    }
  }
  if (!path_exists(file)) return;
  const json environment = read_json_file(file);
  if (!environment.is_object() || !environment.contains("options") || !environment["options"].is_object())
    return;
  const json& options = environment["options"];
  const auto take = [&](const char* name, auto& value) {
    const auto found = options.find(name);
    if (!values[name].defaulted() || found == options.end()) return;
    value = found->get<std::decay_t<decltype(value)>>();
  };
  const auto take_choice = [&](const char* name, auto& value, const auto& parse) {
    std::string text(name_of(value));
    take(name, text);
    value = parse(text);
  };
  take_choice("backend", choice.backend, parse_backend_kind);
  take("device", choice.device);
  take("numerics", choice.numerics);
  take("threads", choice.threads);
  take_choice("kernels", choice.kernels, parse_cuda_kernels);
  take_choice("prefill", choice.prefill, parse_prefill_kernels);
}

std::string shell_word(const std::string& word) {
  const bool plain =
      !word.empty() &&
      word.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=./:,%@") ==
          std::string::npos;
  if (plain) return word;
  std::string out = "'";
  for (const char c : word) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

}  // namespace speclab
