#pragma once

#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/theory/explain.h"
#include "experiments/simulate/replay.h"
#include "experiments/simulate/trace.h"

namespace speclab {

/// A search over many configurations: drafter x schedule x threshold x gamma x device. Each configuration is
/// replayed and priced; there are no intervals. A text is walked once for all devices, because a device
/// changes times and not drafts. Only a schedule that looks at costs is replayed for each device.

/// Costs by which a search prices steps.
struct SearchDevice {
  std::string name;
  bool simulated = false;  ///< false: the machine of the run
  /// [traces]: the costs of each traced case; absent if the device cannot price the case.
  std::vector<std::optional<theory::Calibration>> costs;
};

struct SearchWish {
  std::vector<int> gammas;  ///< draft lengths; those above the longest draft of a trace are left out for it
  int thresholds = 20;      ///< number of values of a parameter, at least 1; not for gamma_max
  int threads = 1;
  std::vector<std::string> controllers{};  ///< files for the schedules that need a controller
};

/// A schedule with one value of the parameter that the search varies.
struct SearchedSchedule {
  ScheduleOptions options;
  std::string parameter{};  ///< name of the option; "" if the schedule has none
  double value = 0;
};
/// All schedules that can be replayed from the trace, with the values of their parameter:
///   confidence_threshold (confidence, roc_confidence), product_threshold (product): the middles of equal
///   parts of [0, 1]; entropy_threshold: the middles of equal parts of [0, root of the largest entropy in the
///   trace]; wanted_acceptance (adaptive_confidence, adaptive_entropy), goodput_memory (goodput),
///   controller_threshold (disco, specdec_pp, with each of wish.controllers that was trained for it): as
///   confidence_threshold; exploration (bandit): the middles of equal parts of [0, 2]; gamma_max
///   (heuristics): the draft lengths.
/// Other parameters have their defaults. `costs`: whether there are costs for the schedules that need them.
std::vector<SearchedSchedule> searched_schedules(const Trace& trace, const SearchWish& wish, bool costs);

/// A configuration and what it would give.
struct SearchResult {
  std::size_t trace = 0, device = 0;  ///< indices
  std::size_t schedule = 0;           ///< index into Search::schedules[trace]
  int gamma = 0;
  double tau = 0, drafted_per_step = 0, ns_per_token = 0, speedup = 0;
};

struct Search {
  std::vector<std::vector<SearchedSchedule>> schedules;  ///< [traces]
  std::vector<SearchResult> results;                     ///< in the order trace, schedule, gamma, device
  double seconds = 0;                                    ///< time of the replays
};

/// Replays every configuration. The work is divided over `wish.threads` threads; the results do not depend on
/// their number. A trace whose longest draft is shorter than all gammas has no results, nor has a trace
/// without positions. On a device that cannot price a traced case the trace has none either.
Search search_replay(std::span<const Trace> traces, std::span<const SearchDevice> devices,
                     const SearchWish& wish);

/// The `count` fastest results of a device, fastest first. Ties go to the first in the order of the results.
std::vector<SearchResult> fastest(const Search& search, std::size_t device, std::size_t count);

/// All results as CSV: a header, then one line for each configuration.
std::string search_csv(std::span<const Trace> traces, std::span<const SearchDevice> devices,
                       const Search& search);
/// The fastest `count` configurations of each device as JSON: {"configurations", "seconds", "devices":
/// [{"device", "simulated": bool, "best": [{"case", "certainty", "schedule", "controller" | null, "gamma",
/// "parameter", "value" | null, "tau", "drafted_per_step", "ms_per_token", "speedup"}]}]}.
nlohmann::json search_json(std::span<const Trace> traces, std::span<const SearchDevice> devices,
                           const Search& search, std::size_t count);
std::string search_text(const nlohmann::json& search);  ///< tables for people

}  // namespace speclab
