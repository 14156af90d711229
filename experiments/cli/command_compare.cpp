#include <boost/program_options.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>

#include "core/base/error.h"
#include "experiments/cli/command.h"
#include "experiments/analysis/compare.h"
#include "experiments/metrics/machine_load.h"
#include "experiments/analysis/table.h"

namespace speclab {
namespace po = boost::program_options;
namespace {

using nlohmann::json;

json interval_json(const std::optional<stats::Interval>& interval) {
  return interval ? json{interval->lo, interval->hi} : json(nullptr);
}

json case_json(const CaseComparison& entry) {
  json texts = {{"compared", entry.texts.compared},
                {"changed", entry.texts.changed},
                {"promised", entry.texts.promised}};
  if (entry.texts.changed > 0)
    texts["first"] = {
        {"prompt", entry.texts.prompt}, {"seed", entry.texts.seed}, {"token", entry.texts.index}};
  json gates = json::array(), failures = json::array();
  for (const GateResult& gate : entry.gates) {
    gates.push_back({{"gate", gate.gate},
                     {"metric", gate.metric},
                     {"base", gate.base},
                     {"new", gate.fresh},
                     {"change", gate.change}});
  }
  for (const Failure failure : entry.failures) failures.push_back(to_string(failure));
  return {{"id", entry.id},
          {"verdict", entry.verdict},
          {"ratio", entry.ratio > 0 ? json(entry.ratio) : json(nullptr)},
          {"ratio_ci95", interval_json(entry.ci)},
          {"prompts", entry.prompts},
          {"texts", texts},
          {"missing_texts", entry.missing_texts},
          {"gates", gates},
          {"failures", failures}};
}

json comparison_json(const std::string& base, const std::string& fresh, const Comparison& comparison) {
  json cases = json::array();
  for (const CaseComparison& entry : comparison.cases) cases.push_back(case_json(entry));
  return {{"base", base},
          {"new", fresh},
          {"base_machine", comparison.base_machine},
          {"new_machine", comparison.new_machine},
          {"noise", comparison.noise ? json(*comparison.noise) : json(nullptr)},
          {"workload_differences", comparison.workload},
          {"nothing_compared",
           comparison.nothing_compared.empty() ? json(nullptr) : json(comparison.nothing_compared)},
          {"failed", comparison.failed()},
          {"cases", cases}};
}

std::string text_cell(const CaseComparison& entry) {
  const TextComparison& texts = entry.texts;
  std::string cell = texts.compared == 0 ? "—" : "equal";
  if (texts.changed > 0) {
    cell = fmt::format("{} {} of {}, first prompt {} seed {} token {}", texts.promised ? "CHANGED" : "other",
                       texts.changed, texts.compared, texts.prompt, texts.seed, texts.index);
  }
  if (entry.missing_texts > 0) cell += fmt::format(", {} missing", entry.missing_texts);
  return cell;
}

Table time_table(const Comparison& comparison) {
  Table table{.header = {"case", "base / new time per token [95 %]", "verdict", "text"},
              .rows = {},
              .right = {false, true, false, false}};
  for (const CaseComparison& entry : comparison.cases) {
    std::string ratio = entry.ratio > 0 ? fmt::format("{:.3f}", entry.ratio) : "—";
    if (entry.ci)
      ratio +=
          fmt::format(" [{:.3f}, {:.3f}]{}", entry.ci->lo, entry.ci->hi, few_prompts_text(entry.prompts));
    table.rows.push_back({entry.id, ratio, entry.verdict, text_cell(entry)});
  }
  return table;
}

/// A gate's value as text. A count is written in full, a ratio with `digits` digits.
std::string gate_value(const json& value, int digits) {
  return value.is_number_integer() ? value.dump() : number_text(value, digits);
}

/// The table of a comparison with --gate: one column for each metric that the gates compare.
Table gate_table(const Comparison& comparison) {
  Table table{.header = {"case"}, .rows = {}, .right = {false}};
  const auto widest =
      std::max_element(comparison.cases.begin(), comparison.cases.end(),
                       [](const auto& a, const auto& b) { return a.gates.size() < b.gates.size(); });
  for (const GateResult& gate : widest->gates) {
    table.header.push_back(gate.metric);
    table.right.push_back(true);
  }
  table.header.insert(table.header.end(), {"verdict", "text"});
  for (const CaseComparison& entry : comparison.cases) {
    std::vector<std::string> row = {entry.id};
    for (const GateResult& gate : entry.gates) {
      const bool equal = gate.change == "equal";
      row.push_back(equal ? gate_value(gate.fresh, 4)
                          : fmt::format("{} -> {} {}", gate_value(gate.base, 6), gate_value(gate.fresh, 6),
                                        gate.change));
    }
    row.resize(widest->gates.size() + 1, "—");
    row.insert(row.end(), {entry.verdict, text_cell(entry)});
    table.rows.push_back(std::move(row));
  }
  return table;
}

/// "2 cases: changed text (--allow-changed-text allows it); ..."; "" without failures.
std::string failures_text(const Comparison& comparison) {
  std::string text;
  for (const Failure failure :
       {Failure::slower, Failure::lost_equality, Failure::failed, Failure::changed_text, Failure::missing,
        Failure::not_compared, Failure::gate}) {
    const auto count =
        std::count_if(comparison.cases.begin(), comparison.cases.end(), [&](const auto& entry) {
          return std::find(entry.failures.begin(), entry.failures.end(), failure) != entry.failures.end();
        });
    if (count == 0) continue;
    const std::string_view flag = allowing_flag(failure);
    text += fmt::format("{}{} case{}: {}{}", text.empty() ? "" : "; ", count, count == 1 ? "" : "s",
                        to_string(failure), flag.empty() ? "" : fmt::format(" ({} allows it)", flag));
  }
  return text;
}

void print_text(const Comparison& comparison, bool gates) {
  fmt::print("{}\n", to_text(gates ? gate_table(comparison) : time_table(comparison)));
  for (const std::string& difference : comparison.workload)
    fmt::print("The workloads differ: {}\n", difference);
  if (!gates) {
    for (const auto& [name, machine] :
         {std::pair("BASE", &comparison.base_machine), std::pair("NEW", &comparison.new_machine)}) {
      if (const std::string text = machine_text(*machine); !text.empty()) fmt::print("{}: {}", name, text);
    }
    if (comparison.noise)
      fmt::print("Verdict \"same\": the whole interval is within {:.1f} % of 1.\n", 100 * *comparison.noise);
  }
  if (!comparison.nothing_compared.empty())
    fmt::print("Nothing was compared: {}.\n", comparison.nothing_compared);
  const std::string failures = failures_text(comparison);
  fmt::print("{}\n", failures.empty() ? "No failure." : "FAILED: " + failures);
}

int run_compare(const Command& command, const std::vector<std::string>& arguments) {
  po::options_description options;
  std::string gates;
  options.add_options()("json", "print JSON")(
      "gate", po::value(&gates),
      "compare counts exactly and ignore times: any of tau, alpha, rows, calls, separated by commas. Works "
      "on "
      "committed records without raw lines, and across machines with the same numerics class")(
      "allow-changed-text", "texts may differ")("allow-missing",
                                                "cases and texts of BASE may be missing in NEW")(
      "allow-uncompared", "a case with nothing to compare, for example without raw lines, is no failure")(
      "allow-other-workload", "prompts, seeds and options may differ; compare what both runs have");
  const auto values = parse_arguments(command, arguments, options, {"BASE", "NEW"});
  if (!values) return kOk;
  const std::string base = required(*values, "BASE", command), fresh = required(*values, "NEW", command);
  CompareOptions wanted;
  if (values->count("gate") > 0) wanted.gates = parse_gates(gates);
  wanted.allow_changed_text = values->count("allow-changed-text") > 0;
  wanted.allow_missing = values->count("allow-missing") > 0;
  wanted.allow_uncompared = values->count("allow-uncompared") > 0;
  wanted.allow_other_workload = values->count("allow-other-workload") > 0;
  const ComparedRun old_run = load_compared_run(base), new_run = load_compared_run(fresh);
  try {
    const Comparison comparison = compare_runs(old_run, new_run, wanted);
    if (values->count("json") > 0) fmt::print("{}\n", comparison_json(base, fresh, comparison).dump(1));
    else print_text(comparison, !wanted.gates.empty());
    return comparison.failed() ? kCheckFailed : kOk;
  } catch (const json::exception& error) {
    throw Error({.what = fmt::format("{} or {}", base, fresh),
                 .got = error.what(),
                 .expected = "the record of a run",
                 .advice = "See results/SCHEMA.md."});
  }
}

}  // namespace

const Command kCompareCommand = {"compare", "BASE NEW [options]",
                                 "Compares texts and times of two runs. Exit code 1: a case is slower, "
                                 "failed, changed, missing, not compared or no longer equal to its "
                                 "reference, or a gate differs; 2: the runs differ in "
                                 "machine, models or workload.",
                                 "speclab compare results/baselines/epyc-avx512-2cores/quickstart "
                                 "results/runs/quickstart-20260101-120000 --gate "
                                 "tau,alpha,rows,calls",
                                 run_compare};

}  // namespace speclab
