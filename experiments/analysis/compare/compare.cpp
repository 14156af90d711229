#include "experiments/analysis/compare/compare.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/decoding/registry.h"
#include "experiments/analysis/compare/compare_lines.h"
#include "experiments/analysis/compare/time_verdict.h"
#include "experiments/analysis/compare/workload.h"
#include "experiments/metrics/noise/machine_load.h"
#include "experiments/metrics/metrics.h"
#include "experiments/metrics/metrics_detail.h"
#include "experiments/run/run_folder.h"

namespace speclab {
namespace {

using nlohmann::json;

/// Compares the same case of two runs.
class CaseComparer {
 public:
  CaseComparer(const ComparedRun& base, const ComparedRun& fresh, const CompareOptions& options,
               const Comparison& whole)
      : base_(base), fresh_(fresh), options_(options), whole_(whole) {
    work_ = common_work(base.run.config, fresh.run.config);
  }

  CaseComparison compare(const CaseData& base, const CaseData& fresh) const {
    CaseComparison result;
    result.id = base.id();
    if (!fresh.errors.empty() && base.errors.empty()) return fail(result, Failure::failed, "failed");
    if (fresh.unequal() && !base.unequal()) fail(result, Failure::lost_equality, "lost equality");
    const CommonLines lines = common_lines(base, fresh, work_);
    if (has_lines(fresh_.run)) result.missing_texts = lines.missing;
    if (result.missing_texts > 0 && !options_.allow_missing) result.failures.push_back(Failure::missing);
    compare_texts(lines, result);
    if (options_.gates.empty()) {
      judge_time(lines, result);
    } else {
      judge_gates(lines, result);
    }
    return result;
  }

  CaseComparison missing(const std::string& id) const {
    CaseComparison result;
    result.id = id;
    result.verdict = "missing";
    if (!options_.allow_missing) result.failures.push_back(Failure::missing);
    return result;
  }

 private:
  static CaseComparison& fail(CaseComparison& result, Failure failure, const char* verdict) {
    result.verdict = verdict;
    result.failures.push_back(failure);
    return result;
  }

  void leave_out(CaseComparison& result, const std::string& reason) const {
    if (!result.verdict.empty()) return;
    result.verdict = "not compared: " + reason;
    if (!options_.allow_uncompared) result.failures.push_back(Failure::not_compared);
  }

  void compare_texts(const CommonLines& lines, CaseComparison& result) const {
    result.texts = compare_line_texts(lines);
    const CaseData& fresh = *lines.fresh;
    const std::string loss_class = fresh.config.value("loss_class", "");
    const StrategyInfo* strategy = recorded_strategy(fresh.config.value("strategy", ""));
    const bool drafts_cannot_matter =
        loss_class == "L2" || (loss_class == "L1" && (fresh.options().value("coins", "") == "gumbel" ||
                                                      (strategy && strategy->is_baseline)));
    result.texts.promised =
        environment_differences(base_.run.environment, fresh_.run.environment, false).empty() &&
        same_case(base_.run.config, fresh_.run.config, result.id) &&
        (whole_.workload.empty() || drafts_cannot_matter);
    if (result.texts.changed > 0 && result.texts.promised && !options_.allow_changed_text)
      result.failures.push_back(Failure::changed_text);
  }

  void judge_time(const CommonLines& lines, CaseComparison& result) const {
    if (lines.base->lines.empty()) {
      leave_out(result, lines.why_none);
      return;
    }
    result.change = change_of_case(lines);
    if (!result.change || lines.base->unequal() || lines.fresh->unequal()) {
      if (result.verdict.empty())
        result.verdict = result.change ? "unclear: not equal to its reference" : "unclear: no time";
      result.change.reset();
      return;
    }
    result.pairs = pair_steps(typical_texts(*lines.base), typical_texts(*lines.fresh));
    result.ratio = result.change->own.value;
    result.ci = result.change->own.ci;
    result.prompts = result.change->prompts;
    const TimeVerdict time = verdict_on_time(lines, *result.change);
    result.verdict = time.verdict;
    result.note = time.note;
    result.suspect = time.suspect;
    if (result.verdict == "slower") result.failures.push_back(Failure::slower);
  }

  TimeVerdict verdict_on_time(const CommonLines& lines, const SpeedupChange& change) const {
    const NoiseFloors& floors = whole_.floors;
    const bool repeated = common_repeats(*lines.base) >= 2 && common_repeats(*lines.fresh) >= 2;
    if (!floors.times || (change.has_reference && !floors.speedups) || (floors.aa_runs == 0 && !repeated))
      return {.verdict = "unclear: no repeats", .note = ""};
    for (const json* machine : {&whole_.base_machine, &whole_.new_machine}) {
      if (machine->at("busy").get<bool>()) return {.verdict = "unclear: busy machine", .note = ""};
    }
    return time_verdict(change, floors);
  }

  void judge_gates(const CommonLines& lines, CaseComparison& result) const {
    std::string why;
    const auto [base, fresh] = gate_metrics(lines, result.id, why);
    const auto gates = why.empty() ? compare_gates(options_.gates, base, fresh) : std::nullopt;
    if (!gates) {
      leave_out(result, why.empty() ? "a summary lacks a metric of the gates" : why);
      return;
    }
    result.gates = *gates;
    const bool equal =
        std::all_of(gates->begin(), gates->end(), [](const auto& one) { return one.change == "equal"; });
    if (!equal) result.failures.push_back(Failure::gate);
    if (result.verdict.empty()) result.verdict = equal ? "equal" : "differs";
  }

  static json line_metrics(const CaseData& data) {
    return compute_metrics(data, {"tokens", "tau", "alpha", "target_rows", "target_calls", "draft_calls"});
  }

  /// The metrics of a whole case, from its lines or from the summary of a run without lines. Sets `why` when
  /// there are none.
  static json whole_metrics(const ComparedRun& one, const char* name, const std::string& id,
                            std::string& why) {
    const bool lines = has_lines(one.run);
    json metrics;
    std::size_t errors = 0;
    for (const auto& data : one.run.cases) {
      if (!lines || data->id() != id) continue;
      metrics = line_metrics(*data);
      errors = data->errors.size();
    }
    for (const json& entry : one.summary.at("cases")) {
      if (lines || entry.at("id") != id) continue;
      metrics = entry.at("metrics");
      errors = entry.value("errors", std::size_t{0});
    }
    if (!why.empty()) return metrics;
    if (!(lines ? one.run.complete : one.summary.value("complete", false)))
      why = fmt::format("{} is not complete", name);
    else if (metrics.is_null()) why = fmt::format("the case is not in the summary of {}", name);
    else if (errors > 0) why = fmt::format("the case has errors in {}", name);
    return metrics;
  }

  /// The metrics over the lines that both runs have. Sets `why` when there are none.
  std::pair<json, json> gate_metrics(const CommonLines& lines, const std::string& id,
                                     std::string& why) const {
    if (!lines.base->lines.empty()) return {line_metrics(*lines.base), line_metrics(*lines.fresh)};
    if (has_lines(base_.run) && has_lines(fresh_.run)) why = lines.why_none;
    else if (!whole_.workload.empty())
      why = "the workloads differ, and there are no raw lines to choose from";
    const json base = whole_metrics(base_, "BASE", id, why);
    return {base, whole_metrics(fresh_, "NEW", id, why)};
  }

  const ComparedRun& base_;
  const ComparedRun& fresh_;
  const CompareOptions& options_;
  const Comparison& whole_;
  CommonWork work_;
};

/// The difference of the last-level caches, "" without one. In virtual machines, processors of the same name
/// may differ in this cache, and then also in speed.
std::string cache_difference(const json& base, const json& fresh) {
  const json::json_pointer at("/cpu/cache/L3_bytes");
  const json was = base.value(at, json()), is = fresh.value(at, json());
  if (!was.is_number() || !is.is_number() || was == is) return "";
  return fmt::format("cpu/cache/L3_bytes: {}, {}", was.dump(), is.dump());
}

/// `what`: the subject of the error message.
void require_comparable(const ComparedRun& base, const ComparedRun& fresh, const CompareOptions& options,
                        const std::string& what = "speclab compare") {
  std::vector<std::string> differences =
      environment_differences(base.run.environment, fresh.run.environment, false, options.gates.empty());
  const std::string cache = cache_difference(base.run.environment, fresh.run.environment);
  if (options.gates.empty() && !cache.empty()) differences.push_back(cache);
  if (!differences.empty()) {
    throw Error({.what = what,
                 .got = "runs that differ in " + differences.front(),
                 .expected = options.gates.empty() ? "the same models, machine, numerics class and threads"
                                                   : "the same models and numerics class",
                 .advice = options.gates.empty()
                               ? "Measure both on one machine, or compare counts only, with --gate."
                               : "Run NEW with the same models and --numerics."});
  }
}

std::vector<std::string> allowed_workload(const ComparedRun& base, const ComparedRun& fresh,
                                          const CompareOptions& options) {
  const std::vector<std::string> found = workload_differences(base.run.config, fresh.run.config);
  if (found.empty() || options.allow_other_workload) return found;
  throw Error({.what = "speclab compare",
               .got = "different workloads in BASE and NEW, " + shown_differences(found),
               .expected = "the same prompts, seeds and options",
               .advice = "--allow-other-workload compares what both have."});
}

std::string why_nothing(const ComparedRun& base, const ComparedRun& fresh, const CompareOptions& options) {
  const char* lacking = !has_lines(base.run) ? "BASE" : !has_lines(fresh.run) ? "NEW" : nullptr;
  if (lacking == nullptr) return "no case could be compared";
  return fmt::format("{} has no raw lines{}", lacking,
                     options.gates.empty() ? "; compare its summary with --gate tau,alpha,rows,calls" : "");
}

}  // namespace

std::string_view to_string(Failure failure) {
  switch (failure) {
    case Failure::slower: return "slower";
    case Failure::lost_equality: return "lost equality";
    case Failure::failed: return "failed";
    case Failure::changed_text: return "changed text";
    case Failure::missing: return "missing";
    case Failure::not_compared: return "not compared";
    case Failure::gate: break;
  }
  return "gate";
}

std::string_view allowing_flag(Failure failure) {
  switch (failure) {
    case Failure::changed_text: return "--allow-changed-text";
    case Failure::missing: return "--allow-missing";
    case Failure::not_compared: return "--allow-uncompared";
    default: return "";
  }
}

bool Comparison::failed() const {
  return std::any_of(cases.begin(), cases.end(), [](const auto& one) { return !one.failures.empty(); });
}

Comparison compare_runs(const ComparedRun& base, const ComparedRun& fresh, const CompareOptions& options,
                        std::span<const ComparedRun> aa_runs) {
  require_comparable(base, fresh, options);
  std::map<std::string, const CaseData*> in_fresh;
  for (const auto& data : fresh.run.cases) in_fresh[data->id()] = data.get();
  const bool common = std::any_of(base.run.cases.begin(), base.run.cases.end(),
                                  [&](const auto& data) { return in_fresh.contains(data->id()); });
  if (!common) {
    throw Error({.what = "speclab compare",
                 .got = "no case that both runs have",
                 .expected = "runs of the same experiment",
                 .advice = "Compare two runs of one config."});
  }
  Comparison comparison;
  comparison.workload = allowed_workload(base, fresh, options);
  for (const ComparedRun& aa : aa_runs) require_comparable(base, aa, options, aa_name(aa));
  if (options.floors) comparison.floors = *options.floors;
  else if (aa_runs.empty()) comparison.floors = floors_of_repeats(base.run, fresh.run);
  else comparison.floors = floors_of_aa_runs(base, fresh, aa_runs);
  comparison.base_machine = machine_of(base.summary, base.run.environment, drift_of(base.run));
  comparison.new_machine = machine_of(fresh.summary, fresh.run.environment, drift_of(fresh.run));
  const CaseComparer comparer(base, fresh, options, comparison);
  std::vector<CaseComparison> cases;
  for (const auto& data : base.run.cases) {
    const auto found = in_fresh.find(data->id());
    cases.push_back(found == in_fresh.end() ? comparer.missing(data->id())
                                            : comparer.compare(*data, *found->second));
    if (found != in_fresh.end()) in_fresh.erase(found);
  }
  for (const auto& data : fresh.run.cases) {
    if (!in_fresh.contains(data->id())) continue;
    cases.emplace_back();
    cases.back().id = data->id();
    cases.back().verdict = "only in new";
  }
  const bool any = std::any_of(cases.begin(), cases.end(), [](const auto& one) {
    return one.texts.compared > 0 || !one.gates.empty() || one.verdict == "failed";
  });
  if (!any) comparison.nothing_compared = why_nothing(base, fresh, options);
  comparison.cases = std::move(cases);
  return comparison;
}

}  // namespace speclab
