#include "experiments/metrics/noise/machine_load.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/backend/backend_choice.h"
#include "core/decoding/registry.h"

namespace speclab {
namespace {

using nlohmann::json;

// In the committed records that are not marked as busy (a shared host, two threads), cases got at least 0.83
// of the CPU time that their threads could use. In runs beside a compilation they got 0.21 to 0.74.
constexpr double kLeastShare = .8;
// The drift across those committed runs is up to 16 %. It was 32 % in a run beside a compilation.
constexpr double kMostDrift = .2;

std::optional<double> number(const json& object, const char* name) {
  const auto found = object.find(name);
  if (found == object.end() || !found->is_number()) return std::nullopt;
  return found->get<double>();
}

/// The value of the metric cpu_share (CPU time / (wall time x threads)) that a case would have if its threads
/// always had their processors. Forwards use all threads. Drafting without a model, the acceptance rule and
/// the bookkeeping use one.
std::optional<double> share_of_threads(const json& entry, double threads) {
  const StrategyInfo* strategy = recorded_strategy(entry.value("strategy", ""));
  if (strategy != nullptr && strategy->drafts_ahead)
    return std::nullopt;  // the draft has a thread of its own
  const json& metrics = entry.at("metrics");
  const auto draft = number(metrics, "time_draft"), target = number(metrics, "time_target"),
             accept = number(metrics, "time_accept"), other = number(metrics, "time_other");
  if (!draft || !target || !accept || !other) return std::nullopt;
  const bool model = number(metrics, "draft_calls").value_or(0) > 0 ||
                     (entry.contains("draft") && !entry["draft"].is_null());
  const double all = *target + (model ? *draft : 0), one = *accept + *other + (model ? 0 : *draft);
  if (!(all + one > 0)) return std::nullopt;
  return (all + one / threads) / (all + one);
}

json reason(const char* kind, const json& case_id, double value, double limit, std::string text) {
  return {{"kind", kind}, {"case", case_id}, {"value", value}, {"limit", limit}, {"text", std::move(text)}};
}

/// Judges cpu_share / share_of_threads() of each case. Returns the reason with the lowest ratio; null when no
/// ratio is below kLeastShare. Only the CPU backend is judged, because with another one the processor waits
/// for the device. A case with tokens from another program is not judged: it waits for that program.
json low_share(const json& cases, const json& environment) {
  const double threads = environment.value("threads", 0.0);
  const std::string backend = environment.value("backend", "cpu");
  if (!is_cpu_backend(backend) || threads <= 0) return nullptr;
  double least = kLeastShare;
  int below = 0;
  json found;
  for (const json& entry : cases) {
    if (entry.contains("times_note")) continue;
    const auto share = number(entry.at("metrics"), "cpu_share");
    const auto expected = share_of_threads(entry, threads);
    if (!share || !expected || !(*share / *expected < kLeastShare)) continue;
    ++below;
    if (!(*share / *expected < least)) continue;
    least = *share / *expected;
    found = reason("cpu_share", entry.at("id"), *share, kLeastShare * *expected,
                   fmt::format("cpu_share {:.2f} of {}, where {:.0f} threads give {:.2f}", *share,
                               entry.at("id").get<std::string>(), threads, *expected));
  }
  if (below > 1)
    found["text"] =
        fmt::format("{} ({} of {} cases are low)", found["text"].get<std::string>(), below, cases.size());
  return found;
}

/// Judges speedup / tau of each case. Returns the reason with the largest ratio; null when none is above 1. A
/// step contains at least one target forward, so it takes no less time than an autoregressive step, and no
/// speedup can exceed tau. The lower end of the speedup's interval is judged, because the speedup itself
/// may exceed tau by chance.
json impossible_speedup(const json& cases) {
  json found;
  double most = 1;
  for (const json& entry : cases) {
    const json& metrics = entry.at("metrics");
    const auto tau = number(metrics, "tau"), speedup = number(metrics, "speedup");
    const auto interval = metrics.find("speedup_ci95");
    if (!tau || !speedup || interval == metrics.end() || !interval->is_array() || !(*interval)[0].is_number())
      continue;
    const auto loop = [](const json& one) {
      return one.contains("options") ? one["options"].value("device_loop", json()) : json();
    };
    bool other_loop = false;  // a device program also saves time outside target forwards
    for (const json& other : cases)
      other_loop |= other.at("id") == entry.value("reference", json()) && loop(other) != loop(entry);
    const double low = (*interval)[0].get<double>();
    if (other_loop || !(low / *tau > most)) continue;
    most = low / *tau;
    found = reason("speedup", entry.at("id"), *speedup, *tau,
                   fmt::format("speedup {:.2f} [{:.2f}, {:.2f}] of {} is above its tau {:.2f}", *speedup, low,
                               (*interval)[1].get<double>(), entry.at("id").get<std::string>(), *tau));
  }
  return found;
}

/// Returns the reason for a run whose shards were measured on several kinds of CPU (speclab merge). Null for
/// other runs.
json several_machines(const json& environment) {
  const json differences = environment.value("other_machines", json::array());
  if (differences.empty()) return nullptr;
  return reason("machines", nullptr, static_cast<double>(differences.size()), 0,
                fmt::format("the shards were measured on several kinds of CPU ({})",
                            differences[0].get<std::string>()));
}

}  // namespace

json judge_machine(const json& cases, const json& environment, std::optional<double> drift) {
  json reasons = json::array();
  for (const json& found : {low_share(cases, environment), impossible_speedup(cases)}) {
    if (!found.is_null()) reasons.push_back(found);
  }
  if (drift && *drift > kMostDrift) {
    reasons.push_back(
        reason("drift", nullptr, *drift, kMostDrift,
               fmt::format("the calibration's forwards took {:.0f} % more time in one third of the "
                           "run than in another",
                           100 * *drift)));
  }
  std::string text;
  for (const json& one : reasons)
    text += (text.empty() ? "Busy machine: " : "; ") + one["text"].get<std::string>();
  if (const json machines = several_machines(environment); !machines.is_null()) {
    reasons.push_back(machines);
    text += (text.empty() ? "" : ". ") + ("Several machines: " + machines["text"].get<std::string>());
  }
  if (!text.empty()) text += ". Times and speedups of this run are doubtful.";
  return {{"busy", !reasons.empty()},
          {"drift", drift ? json(*drift) : json()},
          {"reasons", reasons},
          {"text", text}};
}

std::optional<double> drift_of(const RunData& run) {
  return run.cases.empty() || !run.cases.front()->drift ? std::nullopt
                                                        : run.cases.front()->drift->across_run();
}

json machine_of(const json& summary, const json& environment, std::optional<double> drift) {
  const auto found = summary.find("machine");
  return found != summary.end() ? *found : judge_machine(summary.at("cases"), environment, drift);
}

std::string machine_text(const json& machine) {
  const std::string text = machine.at("text");
  return text.empty() ? "" : text + "\n";
}

}  // namespace speclab
