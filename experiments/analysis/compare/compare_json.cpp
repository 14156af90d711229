#include "experiments/analysis/compare/compare_json.h"

#include <nlohmann/json.hpp>

#include "experiments/metrics/metrics_detail.h"

namespace speclab {
namespace {

using nlohmann::json;

template <class Number>
json number_or_null(const std::optional<Number>& value) {
  return value ? json(*value) : json(nullptr);
}

json positive_or_null(double value) { return value > 0 ? json(value) : json(nullptr); }

json change_json(const SpeedupChange& change) {
  json parts = json::object();
  for (const ChangePart part : kChangeParts) {
    const stats::Value& value = change.part(part);
    parts[std::string(to_string(part))] = {{"log_ratio", value.value}, {"ci95", interval_json(value.ci)}};
  }
  return {{"speedup",
           {{"base", positive_or_null(change.base_speedup)}, {"new", positive_or_null(change.new_speedup)}}},
          {"tau", {{"base", change.base_tau}, {"new", change.new_tau}}},
          {"ratio", change.whole.value},
          {"ratio_ci95", interval_json(change.whole.ci)},
          {"parts", parts}};
}

json pairs_json(const StepPairs& pairs) {
  return {{"pairs", pairs.pairs},
          {"base_steps", pairs.base_steps},
          {"new_steps", pairs.new_steps},
          {"ratio", positive_or_null(pairs.ratio)},
          {"ratio_ci95", interval_json(pairs.ci)},
          {"variance_paired", number_or_null(pairs.paired_variance)},
          {"variance_unpaired", number_or_null(pairs.unpaired_variance)}};
}

json compared_case_json(const CaseComparison& entry) {
  json texts = {{"compared", entry.texts.compared},
                {"changed", entry.texts.changed},
                {"promised", entry.texts.promised}};
  if (entry.texts.changed > 0)
    texts["first"] = {
        {"prompt", entry.texts.prompt}, {"seed", entry.texts.seed}, {"token", entry.texts.index}};
  json gates = json::array(), failures = json::array(), again = nullptr;
  for (const GateResult& gate : entry.gates) {
    gates.push_back({{"gate", gate.gate},
                     {"metric", gate.metric},
                     {"base", gate.base},
                     {"new", gate.fresh},
                     {"change", gate.change}});
  }
  for (const Failure failure : entry.failures) failures.push_back(to_string(failure));
  if (entry.again)
    again = {{"verdict", entry.again->verdict},
             {"ratio", positive_or_null(entry.again->ratio)},
             {"ratio_ci95", interval_json(entry.again->ci)}};
  return {{"id", entry.id},
          {"verdict", entry.verdict},
          {"note", entry.note},
          {"ratio", positive_or_null(entry.ratio)},
          {"ratio_ci95", interval_json(entry.ci)},
          {"prompts", entry.prompts},
          {"change", entry.change ? change_json(*entry.change) : json(nullptr)},
          {"paired_steps", entry.pairs ? pairs_json(*entry.pairs) : json(nullptr)},
          {"suspect", entry.suspect},
          {"again", again},
          {"texts", texts},
          {"missing_texts", entry.missing_texts},
          {"gates", gates},
          {"failures", failures}};
}

}  // namespace

json comparison_json(const Comparison& comparison, const std::string& base, const std::string& fresh) {
  json cases = json::array();
  for (const CaseComparison& entry : comparison.cases) cases.push_back(compared_case_json(entry));
  return {{"base", base},
          {"new", fresh},
          {"base_machine", comparison.base_machine},
          {"new_machine", comparison.new_machine},
          {"noise", number_or_null(comparison.floors.times)},
          {"speedup_noise", number_or_null(comparison.floors.speedups)},
          {"aa_runs", comparison.floors.aa_runs},
          {"workload_differences", comparison.workload},
          {"nothing_compared",
           comparison.nothing_compared.empty() ? json(nullptr) : json(comparison.nothing_compared)},
          {"failed", comparison.failed()},
          {"cases", cases}};
}

}  // namespace speclab
