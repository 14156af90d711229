#include <fmt/format.h>

#include "experiments/command.h"
#include "experiments/compare.h"
#include "experiments/table.h"

namespace speclab {
namespace po = boost::program_options;
namespace {

using nlohmann::json;

int run(const Command& command, const std::vector<std::string>& arguments) {
  po::options_description options;
  options.add_options()("json", "as JSON");
  const auto values = parse_arguments(command, arguments, options, {"BASE", "NEW"});
  if (!values) return kOk;
  const std::string base = required(*values, "BASE", command), fresh = required(*values, "NEW", command);
  const Comparison comparison = compare_runs(load_run(base), load_run(fresh));
  if (values->count("json") > 0) {
    json cases = json::array();
    for (const CaseComparison& entry : comparison.cases) {
      cases.push_back({{"id", entry.id},
                       {"verdict", entry.verdict},
                       {"ratio", entry.ratio > 0 ? json(entry.ratio) : json(nullptr)},
                       {"ratio_ci95", entry.ci ? json{entry.ci->lo, entry.ci->hi} : json(nullptr)},
                       {"output_changed", entry.output_changed},
                       {"regression", entry.regression}});
    }
    fmt::print("{}\n", json{{"base", base},
                            {"new", fresh},
                            {"noise", comparison.noise},
                            {"regression", comparison.regression},
                            {"cases", cases}}
                           .dump(1));
  } else {
    Table table{.header = {"case", "base / new time per token [95 %]", "verdict", "text"},
                .rows = {},
                .right = {false, true, false, false}};
    for (const CaseComparison& entry : comparison.cases) {
      const std::string ratio =
          entry.ratio > 0 ? fmt::format("{:.3f}{}", entry.ratio,
                                        entry.ci ? fmt::format(" [{:.3f}, {:.3f}]{}", entry.ci->lo,
                                                               entry.ci->hi, few_prompts_text(entry.prompts))
                                                 : "")
                          : "—";
      table.rows.push_back({entry.id, ratio, entry.verdict, entry.output_changed ? "CHANGED" : "equal"});
    }
    fmt::print("{}\nA time within {:.1f} % is called the same. {}\n", to_text(table), 100 * comparison.noise,
               comparison.regression ? "REGRESSION" : "No regression.");
  }
  return comparison.regression ? kCheckFailed : kOk;
}

}  // namespace

const Command kCompareCommand = {
    "compare", "BASE NEW [--json]",
    "Compares two runs case by case: faster, slower, same or unclear; exit code 1 on a regression.",
    "speclab compare results/baselines/quickstart results/runs/quickstart-20260101-120000", run};

}  // namespace speclab
