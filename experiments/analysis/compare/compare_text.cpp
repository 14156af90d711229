#include "experiments/analysis/compare/compare_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "experiments/analysis/compare/suspects.h"
#include "experiments/analysis/table.h"
#include "experiments/metrics/noise/machine_load.h"

namespace speclab {
namespace {

using nlohmann::json;

constexpr const char* kNoValue = "—";

std::string text_cell(const CaseComparison& entry) {
  const TextComparison& texts = entry.texts;
  std::string cell = texts.compared == 0 ? kNoValue : "equal";
  if (texts.changed > 0) {
    cell = fmt::format("{} {} of {}, first prompt {} seed {} token {}", texts.promised ? "CHANGED" : "other",
                       texts.changed, texts.compared, texts.prompt, texts.seed, texts.index);
  }
  if (entry.missing_texts > 0) cell += fmt::format(", {} missing", entry.missing_texts);
  return cell;
}

std::string verdict_cell(const CaseComparison& entry) {
  return entry.verdict + (entry.note.empty() ? "" : fmt::format(" ({})", entry.note));
}

Table time_table(const Comparison& comparison) {
  Table table{.header = {"case", "base / new time per token [95 %]", "verdict", "text"},
              .rows = {},
              .right = {false, true, false, false}};
  for (const CaseComparison& entry : comparison.cases) {
    std::string ratio = entry.ratio > 0 ? fmt::format("{:.3f}", entry.ratio) : kNoValue;
    if (entry.ci)
      ratio +=
          fmt::format(" [{:.3f}, {:.3f}]{}", entry.ci->lo, entry.ci->hi, few_prompts_text(entry.prompts));
    table.rows.push_back({entry.id, ratio, verdict_cell(entry), text_cell(entry)});
  }
  return table;
}

/// 100 x a logarithm, with a sign: "+1.3", "0.0".
std::string hundredths(double logarithm) {
  const double value = std::round(1000 * logarithm) / 10;
  return value == 0 ? "0.0" : fmt::format("{:+.1f}", value);
}

/// A part of a change with half of the width of its interval: "-3.0 ±0.4".
std::string part_cell(const stats::Value& part) {
  if (!part.ci) return hundredths(part.value);
  return fmt::format("{} ±{:.1f}", hundredths(part.value), 50 * (part.ci->hi - part.ci->lo));
}

/// A ratio with its interval as 100 x its logarithm: "-3.0 [-3.4, -2.5]".
std::string change_cell(const stats::Value& ratio) {
  std::string cell = hundredths(std::log(ratio.value));
  if (ratio.ci)
    cell += fmt::format(" [{}, {}]", hundredths(std::log(ratio.ci->lo)), hundredths(std::log(ratio.ci->hi)));
  return cell;
}

std::string speedup_cell(const SpeedupChange& change) {
  if (!change.has_reference) return kNoValue;
  return fmt::format("{:.3f} → {:.3f}", change.base_speedup, change.new_speedup);
}

/// An empty table of speedups and of the parts of their changes.
Table empty_change_table() {
  Table table{.header = {"case", "speedup", "change [95 %]"}, .rows = {}, .right = {false, true, true}};
  for (const ChangePart part : kChangeParts) table.header.emplace_back(to_string(part));
  table.right.resize(table.header.size(), true);
  return table;
}

/// The row of a case in the table of empty_change_table().
std::vector<std::string> change_row(const CaseComparison& entry) {
  if (!entry.change) {
    std::vector<std::string> row(3 + kChangeParts.size(), kNoValue);
    row.front() = entry.id;
    return row;
  }
  std::vector<std::string> row = {entry.id, speedup_cell(*entry.change), change_cell(entry.change->whole)};
  for (const ChangePart part : kChangeParts) {
    const bool none = part == ChangePart::reference && !entry.change->has_reference;
    row.push_back(none ? kNoValue : part_cell(entry.change->part(part)));
  }
  return row;
}

constexpr const char* kChangeRemark =
    "Changes are 100 ln(NEW / BASE), which is close to a change in per cent. The parts of a row add up to "
    "its change. Above 0, NEW is "
    "faster. A case without a speedup shows the change of its own tokens per second.";

/// A remark on the steps that were paired one by one; "" without pairs.
std::string pairs_remark(const Comparison& comparison) {
  std::size_t pairs = 0, steps = 0;
  std::vector<double> gains;
  for (const CaseComparison& entry : comparison.cases) {
    if (!entry.pairs) continue;
    pairs += entry.pairs->pairs;
    steps += std::max(entry.pairs->base_steps, entry.pairs->new_steps);
    if (entry.pairs->paired_variance.value_or(0) > 0 && entry.pairs->unpaired_variance)
      gains.push_back(*entry.pairs->unpaired_variance / *entry.pairs->paired_variance);
  }
  if (pairs == 0) return "";
  std::string text =
      fmt::format("{} of {} steps did the same work in both runs and are paired", pairs, steps);
  if (!gains.empty())
    text +=
        fmt::format("; unpaired, the variance of a ratio of times would be {:.3g} times as large (median)",
                    stats::median(gains));
  return text + ".";
}

std::string floors_remark(const NoiseFloors& floors) {
  if (!floors.times) return "";
  std::string text = fmt::format("Noise floors from {}: {:.1f} % for times",
                                 floors.aa_runs > 0 ? "A/A runs" : "the repeats", 100 * *floors.times);
  if (floors.speedups) text += fmt::format(", {:.1f} % for speedups", 100 * *floors.speedups);
  return text +
         ". Verdict \"same\": the interval of the ratio of times or of speedups lies within the noise floor "
         "around 1.";
}

/// Reasons to doubt the numbers: allowed differences of the workloads, busy machines, and what suspects did
/// when they were measured again. One line each.
std::vector<std::string> circumstances(const Comparison& comparison, bool gates) {
  std::vector<std::string> lines;
  for (const std::string& difference : comparison.workload)
    lines.push_back("The workloads differ: " + difference);
  for (const auto& [name, machine] :
       {std::pair("BASE", &comparison.base_machine), std::pair("NEW", &comparison.new_machine)}) {
    if (gates) break;  // counts do not depend on the machine
    std::string text = machine_text(*machine);
    if (text.empty()) continue;
    text.pop_back();  // the end of the line
    lines.push_back(fmt::format("{}: {}", name, text));
  }
  for (const CaseComparison& entry : comparison.cases) {
    if (entry.again)
      lines.push_back(fmt::format("{} measured again: {}, base / new {:.3f}", entry.id, entry.again->verdict,
                                  entry.again->ratio));
  }
  return lines;
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
    row.resize(widest->gates.size() + 1, kNoValue);
    row.insert(row.end(), {entry.verdict, text_cell(entry)});
    table.rows.push_back(std::move(row));
  }
  return table;
}

/// "4 cases: 3 same, 1 unclear". The reason of a verdict, after its colon, is left out.
std::string counts_of_verdicts(const Comparison& comparison) {
  std::map<std::string, std::size_t> counts;
  for (const CaseComparison& entry : comparison.cases)
    ++counts[entry.verdict.substr(0, entry.verdict.find(':'))];
  std::vector<std::string> words;
  for (const auto& [verdict, count] : counts) words.push_back(fmt::format("{} {}", count, verdict));
  return fmt::format("{} case{}: {}", comparison.cases.size(), comparison.cases.size() == 1 ? "" : "s",
                     fmt::join(words, ", "));
}

/// The case that lost most of its own speed among those that are slower; null without one.
const CaseComparison* slowest_case(const Comparison& comparison) {
  const CaseComparison* slowest = nullptr;
  for (const CaseComparison& entry : comparison.cases) {
    if (entry.verdict == "slower" && (slowest == nullptr || entry.ratio < slowest->ratio)) slowest = &entry;
  }
  return slowest;
}

/// A sentence about the case of slowest_case() and the largest part of its change; "" if no case is slower.
std::string slowest_text(const Comparison& comparison) {
  const CaseComparison* slowest = slowest_case(comparison);
  if (slowest == nullptr) return "";
  const ChangePart part = slowest->change->largest_loss();
  return fmt::format("`{}` takes {:.1f} % more time per token; the largest part is {} ({}).", slowest->id,
                     100 * (1 / slowest->ratio - 1), to_string(part),
                     hundredths(slowest->change->part(part).value));
}

}  // namespace

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
  return text.empty() ? "No failure." : "FAILED: " + text;
}

std::string comparison_text(const Comparison& comparison, bool gates) {
  std::string text = to_text(gates ? gate_table(comparison) : time_table(comparison)) + "\n";
  const auto remark = [&](const std::string& line) {
    if (!line.empty()) text += line + "\n";
  };
  Table changes = empty_change_table();
  for (const CaseComparison& entry : comparison.cases) {
    if (entry.change) changes.rows.push_back(change_row(entry));
  }
  if (!changes.rows.empty()) {
    text += to_text(changes) + "\n";
    remark(kChangeRemark);
    remark(pairs_remark(comparison));
  }
  for (const std::string& line : circumstances(comparison, gates)) remark(line);
  if (!gates) remark(floors_remark(comparison.floors));
  if (!comparison.nothing_compared.empty())
    remark(fmt::format("Nothing was compared: {}.", comparison.nothing_compared));
  remark(failures_text(comparison));
  return text;
}

std::string comparison_markdown(const Comparison& comparison, bool gates, const std::string& base,
                                const std::string& fresh) {
  std::string text = fmt::format("**{}** {}.", failures_text(comparison), counts_of_verdicts(comparison));
  if (const std::string slowest = slowest_text(comparison); !slowest.empty()) text += " " + slowest;
  if (!comparison.nothing_compared.empty())
    text += fmt::format(" Nothing was compared: {}.", comparison.nothing_compared);
  text += fmt::format("\n\nBASE: `{}`. NEW: `{}`.\n\n", base, fresh);
  Table table = gates ? gate_table(comparison) : empty_change_table();
  if (!gates) {
    table.header.insert(table.header.end(), {"verdict", "text"});
    for (const CaseComparison& entry : comparison.cases) {
      table.rows.push_back(change_row(entry));
      table.rows.back().insert(table.rows.back().end(), {verdict_cell(entry), text_cell(entry)});
    }
  }
  for (std::vector<std::string>& row : table.rows) row.front() = fmt::format("`{}`", row.front());
  text += to_markdown(table);
  if (!gates) {
    text += fmt::format("\n{}\n", kChangeRemark);
    for (const std::string& line : {pairs_remark(comparison), floors_remark(comparison.floors)}) {
      if (!line.empty()) text += fmt::format("{}\n", line);
    }
  }
  const std::vector<std::string> lines = circumstances(comparison, gates);
  if (!lines.empty()) text += "\n";
  for (const std::string& line : lines) text += fmt::format("- {}\n", line);
  return text;
}

}  // namespace speclab
