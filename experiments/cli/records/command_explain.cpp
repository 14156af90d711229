#include <boost/program_options.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>

#include "core/base/error.h"
#include "core/base/standard_streams.h"
#include "core/theory/explained/sensitivity.h"
#include "experiments/analysis/case_iid.h"
#include "experiments/analysis/case_match.h"
#include "experiments/analysis/case_waterfall.h"
#include "experiments/analysis/overlap_theory.h"
#include "experiments/cli/command.h"
#include "experiments/analysis/strategy_theory.h"
#include "experiments/metrics/metrics.h"
#include "experiments/metrics/run_data.h"

namespace speclab {
namespace po = boost::program_options;
namespace {

using nlohmann::json;

/// How the steps of all lines of a case ran on a device that has its own memory. Null on the CPU.
json device_of(const CaseData& data) {
  std::int64_t steps = 0, planned = 0, verified = 0, trips = 0, wall_ns = 0, stamped_ns = 0;
  for (const auto& prompt : data.lines) {
    for (const auto& repeats : *prompt) {
      for (const LineRecord& line : repeats) {
        for (const GenerationRecord& turn : line.turns) {
          steps += static_cast<std::int64_t>(turn.steps.size());
          planned += turn.planned_steps;
          verified += turn.verified_steps;
          trips += turn.round_trips;
          if (turn.planned_steps > 0) wall_ns += turn.decode_ns;
          stamped_ns += turn.stamped_ns;
        }
      }
    }
  }
  if (steps == 0 || (planned == 0 && trips == 0)) return nullptr;
  const auto count = static_cast<double>(steps);
  json out = {{"planned_share", static_cast<double>(planned) / count},
              {"verified_share", static_cast<double>(verified) / count},
              {"round_trips_per_step", static_cast<double>(trips) / count}};
  if (planned > 0) {
    out["step_ms"] = static_cast<double>(wall_ns) * 1e-6 / static_cast<double>(planned);
    out["stamped_step_ms"] = static_cast<double>(stamped_ns) * 1e-6 / static_cast<double>(planned);
  }
  return out;
}

std::string device_text(const json& device) {
  std::string text = fmt::format(
      "device: {:.0f} % of the steps ran without the host, {:.0f} % were drafted by the host and verified on "
      "the device, {:.2f} round trips per step",
      100 * device["planned_share"].get<double>(), 100 * device["verified_share"].get<double>(),
      device["round_trips_per_step"].get<double>());
  if (device.contains("step_ms")) {
    text += fmt::format(", {:.3f} ms per step ({:.3f} ms in a second run, which times the phases)",
                        device["step_ms"].get<double>(), device["stamped_step_ms"].get<double>());
  }
  return text;
}

int explain(const Command& command, const std::vector<std::string>& arguments) {
  po::options_description options;
  options.add_options()("json", "print JSON");
  const auto values = parse_arguments(command, arguments, options, {"RUN", "CASE"});
  if (!values) return kOk;
  const RunData data = load_run(required(*values, "RUN", command));
  std::vector<std::string> known;
  for (const auto& one : data.cases) known.push_back(one->id());
  const std::string wanted = values->count("CASE") > 0
                                 ? match_case((*values)["CASE"].as<std::string>(), known, "speclab explain")
                                 : "";
  json out = json::object();
  const json theory = theory_sections(data.cases, data.calibration);
  for (const auto& one : data.cases) {
    if (!wanted.empty() && one->id() != wanted) continue;
    const json metrics = compute_metrics(*one);
    const auto explanation = explain_case(*one, metrics, theory);
    if (!explanation) {
      if (!wanted.empty()) {
        throw Error({.what = "speclab explain " + wanted,
                     .got = "no waterfall for this case",
                     .expected = "a case that drafts and has a speedup, in a run with a calibration",
                     .advice = "speclab report RUN shows which cases have a speedup."});
      }
      continue;
    }
    json& entry = out[one->id()] = {{"waterfall", waterfall_json(explanation->waterfall)},
                                    {"sensitivity", sensitivity_json(*explanation, metrics)}};
    const json iid = iid_tests(*one), device = device_of(*one), overlap = overlap_summary(*one, metrics);
    if (!iid.is_null()) entry["iid"] = iid;
    if (!overlap.is_null()) entry["ahead"] = overlap;
    if (!device.is_null()) entry["device"] = device;
    if (values->count("json") == 0) {
      fmt::print("{}{}\n{}\n{}\n", out.size() > 1 ? "\n" : "", one->id(),
                 theory::to_text(explanation->waterfall), theory::sensitivity_text(explanation->sensitivity));
      if (!iid.is_null()) fmt::print("{}\n", iid_text(iid));
      if (!overlap.is_null()) fmt::print("{}\n", overlap_text(overlap));
      if (!device.is_null()) fmt::print("{}\n", device_text(device));
    }
  }
  if (values->count("json") > 0) fmt::print("{}\n", out.dump(1));
  const bool measured = std::ranges::any_of(data.cases, [](const auto& one) { return !one->lines.empty(); });
  if (out.empty() && !measured) print_status("This run has no finished line, so no case has a waterfall.\n");
  else if (out.empty())
    print_status(
        "No case of this run has a waterfall. A waterfall needs drafts, a speedup and a calibration.\n");
  return kOk;
}

int run_explain(const Command& command, const std::vector<std::string>& arguments) {
  return reading_records(command, [&] { return explain(command, arguments); });
}

}  // namespace

const Command kExplainCommand = {
    "explain", "RUN [CASE] [--json]",
    "Explains term by term, with intervals, why a measured speedup differs from its prediction. Says what a "
    "higher alpha, a cheaper draft, flat t(n) and no overhead would bring. Tests whether acceptance is the "
    "same everywhere, as the prediction assumes.",
    "speclab explain results/runs/quickstart-20260101-120000 speculative_sampling/draft=distilled/gamma=4",
    run_explain};

}  // namespace speclab
