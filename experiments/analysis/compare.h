#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/measure/stats.h"
#include "experiments/analysis/gates.h"
#include "experiments/metrics/run_data.h"

namespace speclab {

/// One side of a comparison. A committed record has a summary and no raw lines.
struct ComparedRun {
  RunData run;
  nlohmann::json summary;  ///< summary.json
};
/// Reads a run folder. A run that was killed has no summary; it is computed then, and not written. Throws
/// Error when the folder holds no run.
ComparedRun load_compared_run(const std::filesystem::path& folder);

/// Why a comparison fails.
enum class Failure { slower, lost_equality, failed, changed_text, missing, not_compared, gate };
std::string_view to_string(Failure failure);
std::string_view allowing_flag(Failure failure);  ///< "--allow-missing"; "" where there is none

struct CompareOptions {
  std::vector<std::string> gates = {};  ///< see parse_gates; not empty: times are ignored
  bool allow_changed_text = false, allow_missing = false, allow_uncompared = false,
       allow_other_workload = false;
};

/// The texts of a case in both runs. A text is what one prompt and one seed gave.
struct TextComparison {
  std::size_t compared = 0, changed = 0;
  bool promised = false;  ///< a change is a failure
  std::string prompt;     ///< of the first changed text
  std::uint64_t seed = 0;
  std::size_t index = 0;  ///< of its first token that differs
};

/// One case of two runs.
struct CaseComparison {
  std::string id;
  /// "faster", "slower", "same", "unclear: REASON"; "lost equality", "failed", "missing", "only in new", "not
  /// compared: REASON"; with gates "equal" and "differs" instead of the first four.
  std::string verdict;
  double ratio =
      0;  ///< time per emitted token, base / new: above 1 = the new one is faster; 0: there is none
  std::optional<stats::Interval> ci;
  std::size_t prompts = 0;  ///< that the interval was drawn from
  TextComparison texts;
  std::size_t missing_texts = 0;  ///< that the base has and the new run should have
  std::vector<GateResult> gates;
  std::vector<Failure> failures;  ///< those that are not allowed
};

struct Comparison {
  std::vector<CaseComparison> cases;  ///< in the order of the base, then those that only the new run has
  std::optional<double> noise;        ///< the larger noise floor of both runs; absent: one has no repeats
  std::vector<std::string> workload;  ///< how the workloads differ, where that is allowed
  nlohmann::json base_machine, new_machine;  ///< see judge_machine
  std::string nothing_compared;              ///< why no case was compared; "" when one was
  bool failed() const;
};

/// Joins on case id, then on prompt and seed.
///
/// Texts: decoding is deterministic and every coin has an address. The same case with the same options,
/// models, prompt and seed gives the same ids on one machine and numerics class, lossy or not; a change is a
/// failure. Where the workloads differ and that is allowed, this holds for greedy decoding and coupled
/// sampling only: drafts may depend on other prompts of the run.
///
/// Times: per emitted token, on the texts that both have. There is no verdict without two repeats in both
/// runs, because the noise is unknown then, and none when one of both was measured on a busy machine.
///
/// Gates: computed from the lines that both have. When one run has no raw lines, both must be complete and
/// have the same workload; its summary is then held against all lines of the other one, or its summary.
///
/// Throws Error when models or numerics differ, without gates also when the machine, backend or threads do,
/// when the workloads differ and that is not allowed, and when no case is common.
Comparison compare_runs(const ComparedRun& base, const ComparedRun& fresh,
                        const CompareOptions& options = {});

}  // namespace speclab
