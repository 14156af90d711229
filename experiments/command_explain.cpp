#include <fmt/format.h>

#include "core/base/error.h"
#include "core/base/nearest.h"
#include "experiments/case_theory.h"
#include "experiments/command.h"
#include "experiments/lookahead_fit.h"
#include "experiments/metrics.h"
#include "experiments/run_data.h"

namespace speclab {
namespace po = boost::program_options;
namespace {

using nlohmann::json;

int run(const Command& command, const std::vector<std::string>& arguments) {
  po::options_description options;
  options.add_options()("json", "as JSON");
  const auto values = parse_arguments(command, arguments, options, {"RUN", "CASE"});
  if (!values) return kOk;
  const RunData data = load_run(required(*values, "RUN", command));
  const std::string wanted = values->count("CASE") > 0 ? (*values)["CASE"].as<std::string>() : "";
  json out = json::object();
  std::vector<std::string> known;
  bool found = false;
  const json fits = lookahead_fits(data.cases, data.calibration);
  for (const auto& one : data.cases) {
    known.push_back(one->id());
    if (!wanted.empty() && one->id() != wanted) continue;
    found = true;
    const auto waterfall = case_waterfall(*one, compute_metrics(*one), fits);
    if (!waterfall) {
      if (!wanted.empty()) {
        throw Error({.what = "speclab explain " + wanted,
                     .got = "no waterfall for this case",
                     .expected = "a case that drafts, with a speedup, in a run with a calibration",
                     .advice = ""});
      }
      continue;
    }
    out[one->id()] = waterfall_json(*waterfall);
    if (values->count("json") == 0)
      fmt::print("{}{}\n{}\n", out.size() > 1 ? "\n" : "", one->id(), theory::to_text(*waterfall));
  }
  if (!found)
    throw Error({.what = "speclab explain",
                 .got = fmt::format("no case \"{}\"", wanted),
                 .expected = "",
                 .advice = suggest(wanted, known)});
  if (values->count("json") > 0) fmt::print("{}\n", out.dump(1));
  if (out.empty())
    fmt::print(stderr, "no case of this run has a waterfall: it needs drafts, a speedup and a calibration\n");
  return kOk;
}

}  // namespace

const Command kExplainCommand = {
    "explain", "RUN [CASE] [--json]", "Shows the waterfall from prediction to measurement, term by term.",
    "speclab explain results/runs/quickstart-20260101-120000 speculative_sampling/draft=distilled/gamma=4",
    run};

}  // namespace speclab
