#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/measure/stats.h"
#include "experiments/analysis/compare/compared_run.h"
#include "experiments/analysis/compare/gates.h"
#include "experiments/analysis/compare/noise_floors.h"
#include "experiments/analysis/compare/speedup_change.h"
#include "experiments/analysis/compare/step_pairs.h"

namespace speclab {

/// Why a comparison fails.
enum class Failure { slower, lost_equality, failed, changed_text, missing, not_compared, gate };
std::string_view to_string(Failure failure);
/// The option that allows a failure, such as "--allow-missing"; "" when there is none.
std::string_view allowing_flag(Failure failure);

struct CompareOptions {
  std::vector<std::string> gates = {};  ///< see parse_gates; times are judged only if this is empty
  bool allow_changed_text = false, allow_missing = false, allow_uncompared = false,
       allow_other_workload = false;
  /// Noise floors of an earlier comparison; they replace the floors that this comparison would find.
  std::optional<NoiseFloors> floors = {};
};

/// The texts of a case in both runs. A text belongs to one prompt and one seed.
struct TextComparison {
  std::size_t compared = 0, changed = 0;
  bool promised = false;  ///< true when a changed text is a failure
  std::string prompt;     ///< prompt and seed of the first changed text
  std::uint64_t seed = 0;
  std::size_t index = 0;  ///< index of the first token that differs in this text
};

/// What a second measurement of a suspect said (settle_suspects).
struct SecondMeasurement {
  std::string verdict;
  double ratio = 0;
  std::optional<stats::Interval> ci;
};

/// One case of two runs.
struct CaseComparison {
  std::string id;
  /// "faster", "slower", "same", "unclear", "unclear: REASON" (with gates: "equal" or "differs"), or "lost
  /// equality", "failed", "missing", "only in new", "not compared: REASON".
  std::string verdict;
  std::string note;  ///< a remark on the verdict, such as "its reference is faster"; often ""
  double ratio = 0;  ///< time per emitted token, base / new: above 1 the new run is faster; 0: not known
  std::optional<stats::Interval> ci;
  std::size_t prompts = 0;  ///< number of prompts behind the interval
  TextComparison texts;
  std::size_t missing_texts = 0;  ///< texts of the base that the new run should have and lacks
  std::vector<GateResult> gates;
  std::vector<Failure> failures;  ///< failures that the options do not allow
  /// The change of the speedup and its parts; absent with gates, and when the times are not compared.
  std::optional<SpeedupChange> change;
  std::optional<StepPairs> pairs;          ///< present if `change` is
  bool suspect = false;                    ///< the case may be slower and should be measured again
  std::optional<SecondMeasurement> again;  ///< see settle_suspects
};

struct Comparison {
  std::vector<CaseComparison> cases;  ///< in the order of the base, then the cases that only the new run has
  NoiseFloors floors;                 ///< without A/A runs: no values if one run has no repeats
  std::vector<std::string> workload;  ///< allowed differences of the workloads
  nlohmann::json base_machine, new_machine;  ///< see judge_machine
  std::string nothing_compared;              ///< why no case was compared; "" when one was
  bool failed() const;
};

/// Compares the run `fresh` with the run `base`, case by case. Lines with the same case id, prompt and seed
/// are compared with each other.
///
/// Texts: decoding is deterministic. On one machine and numerics class, the same case with the same options,
/// models, prompt and seed gives the same token ids, lossy or not. So a changed text is a failure. If the
/// workloads differ and the options allow that, a changed text is a failure only for lossless cases whose
/// text cannot depend on the drafts: greedy decoding, coupled sampling and the autoregressive case. In other
/// cases the text may depend on the drafts, and drafts may depend on other prompts of the run.
///
/// Times are compared per emitted token on the texts that both runs have, by the typical time of each step
/// (typical_steps.h). time_verdict() gives the verdict. The verdict is "unclear: REASON" instead if the case
/// is not equal to its reference or has no time, if the noise is not known (no `aa_runs`, and fewer than two
/// repeats in a run), or if one of the runs was made on a busy machine. `aa_runs`: see floors_of_aa_runs().
///
/// Gates are computed from the lines that both runs have. If a run has no raw lines, both runs must be
/// complete and have the same workload. The summary of that run is then compared with all lines of the other
/// run, or with the other run's summary if the other run has no raw lines either.
///
/// Throws Error when models or numerics class differ, when the workloads differ and that is not allowed, and
/// when the runs have no case in common. Without gates, it also throws Error when machine, backend or threads
/// differ.
Comparison compare_runs(const ComparedRun& base, const ComparedRun& fresh, const CompareOptions& options = {},
                        std::span<const ComparedRun> aa_runs = {});

}  // namespace speclab
