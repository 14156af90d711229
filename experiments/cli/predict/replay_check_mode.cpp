#include <boost/program_options.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/base/standard_streams.h"
#include "experiments/cli/command.h"
#include "experiments/cli/predict/replay_modes.h"
#include "experiments/metrics/metrics_detail.h"
#include "experiments/simulate/replay/replay_check.h"
#include "experiments/simulate/run_match.h"

namespace speclab {
namespace po = boost::program_options;
namespace {

using nlohmann::json;

/// The run in the folder of an option, without the cases whose models differ from those of the trace.
RunData other_run(const po::variables_map& values, const char* option, const RunData& trace) {
  const std::string folder = values[option].as<std::string>();
  const RunData loaded = load_run(folder);
  require_lines(loaded, folder);
  MatchedRun matched = with_models_of(loaded, trace.environment, values["RUN"].as<std::string>());
  for (const std::string& note : matched.notes) print_status("{}\n", note);
  // If a draft model of that run is not the trace's, its times must not be used.
  for (const auto& data : loaded.cases) {
    if (std::ranges::find(matched.run.cases, data) != matched.run.cases.end()) continue;
    if (!matched.run.calibration.is_object()) break;
    for (const std::string& draft : draft_names(data->config)) matched.run.calibration["drafts"].erase(draft);
  }
  return std::move(matched.run);
}

bool within(const json& row, double limit) {
  const bool exact = row["certainty"] == std::string(to_string(Certainty::exact));
  const bool good_tau =
      !exact || (row["tau"].is_number() &&
                 std::abs(row["tau"].get<double>() - row["replayed_tau"].get<double>()) < 1e-9);
  return good_tau && (!row["error"].is_number() || std::abs(row["error"].get<double>()) <= limit);
}

}  // namespace

int check_against_run(const po::variables_map& values, const RunData& run) {
  const std::string folder = values["check"].as<std::string>();
  const RunData loaded = load_run(folder);
  require_lines(loaded, folder);
  require_same_prompts(run, loaded, folder);
  const MatchedRun matched = with_models_of(loaded, run.environment, values["RUN"].as<std::string>());
  const RunData& measured = matched.run;
  for (const std::string& note : matched.notes) print_status("{}\n", note);
  RunData costs, grid;
  if (values.count("costs") > 0) {
    costs = other_run(values, "costs", run);
    if (costs.calibration.is_null()) {
      throw Error({.what = "--costs " + values["costs"].as<std::string>(),
                   .got = "a run without a calibration",
                   .expected = "a run that measured its forwards",
                   .advice = "Run its config without \"calibration\": false."});
    }
  }
  std::vector<FittedLaw> laws;
  if (values.count("laws") > 0) {
    grid = other_run(values, "laws", run);
    laws = fitted_laws(grid.cases, grid.calibration);
  }
  const std::vector<Trace> traces = read_traces(run);
  const std::vector<RankTrace> rank_traces = read_rank_traces(run);
  json out = replay_check({.sources = {.traces = traces, .rank_traces = rank_traces, .laws = laws},
                           .measured = &measured,
                           .prices = values.count("costs") > 0 ? &costs : nullptr,
                           .fitted_to = values.count("laws") > 0 ? &grid : nullptr});
  std::set<std::string> compared;
  for (const char* list : {"cases", "left_out"}) {
    for (const json& row : out[list]) compared.insert(row["case"].get<std::string>());
  }
  for (const std::string& note : not_replayed(run, measured, compared)) print_status("{}\n", note);
  if (out["cases"].empty() && !out["left_out"].empty()) {
    throw Error({.what = "--check " + folder,
                 .got = "no case that can be replayed: " + out["left_out"][0]["reason"].get<std::string>(),
                 .expected = "at least one",
                 .advice = ""});
  }
  if (out["cases"].empty()) {
    throw Error(
        {.what = "--check " + folder,
         .got = "no case with the strategy, the options and the prompts of a trace",
         .expected = "a run of the same prompts with the drafters of the trace: " + traced_drafters(run),
         .advice = ""});
  }
  print_json_or(values, out, replay_check_text);
  if (values.count("limit") == 0) return kOk;
  const double limit = values["limit"].as<double>(),
               prompt_limit = values.count("prompt-limit") > 0 ? values["prompt-limit"].as<double>() : limit;
  const bool cases_good =
      std::ranges::all_of(out["cases"], [&](const json& row) { return within(row, limit); });
  const json& prompts = out["prompt_errors"];
  return cases_good && (prompts.is_null() || prompts["median"] <= prompt_limit) ? kOk : kCheckFailed;
}

}  // namespace speclab
