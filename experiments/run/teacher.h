#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "experiments/run/decoder.h"
#include "experiments/config/experiment.h"
#include "experiments/run/model_set.h"

namespace speclab {

/// Makes untimed estimates on finished texts and writes them to teacher.jsonl (results/SCHEMA.md):
/// - {"kind": "alpha", "case", "prompt", "seed", "sum", "positions"}: the acceptance rule's expected
///   acceptance of one token drawn from the draft model, summed over the positions of the autoregressive
///   text (Leviathan et al. 2023, Corollary 3.6). The first token of a turn has no position here, because it
///   is never drafted. A turn that does not fit the draft's context is left out. Logits processors change the
///   rows of both models, as in decoding. A position where they ban every token of the draft's row does not
///   count. Only cases that draft every token from one draft model have this estimate, and not those with the
///   rule `minimum_block`.
/// - {"kind": "nll", "case", "prompt", "seed", "sum", "tokens"}: -log p of the case's own text under the
///   target at temperature 1, for lossy cases and their references.
/// - {"kind": "failed", "estimate": "alpha" | "nll", "case", "prompt", "seed", "message"}: the estimate that
///   ended in this error. A resumed run tries it again.
/// Lines that an interrupted run has left in the file are kept. `texts(case, prompt, seed)` returns a
/// finished line of repeat 0 or null.
class TeacherForcing {
 public:
  using Texts = std::function<const LineRecord*(const std::string& case_id, const std::string& prompt,
                                                std::uint64_t seed)>;
  TeacherForcing(const Experiment& experiment, const ModelSet& models, Texts texts)
      : experiment_(experiment), models_(models), texts_(std::move(texts)) {}
  /// Returns the number of estimates that failed. Stops early when interrupted.
  int run(const std::filesystem::path& file, const std::function<bool()>& interrupted);

 private:
  struct Text;
  using Ids = std::vector<std::string>;  // of cases
  std::vector<nlohmann::json> measure(const PromptSpec& prompt, std::uint64_t seed, const Ids& missing_alpha,
                                      const Ids& missing_nll, const std::function<bool()>& interrupted);
  // Measures each estimate alone, so that one that fails does not hide the others.
  std::vector<nlohmann::json> measure_each(const PromptSpec& prompt, std::uint64_t seed, const Ids& alpha,
                                           const Ids& nll, const std::function<bool()>& interrupted);

  const Experiment& experiment_;
  const ModelSet& models_;
  Texts texts_;
};

}  // namespace speclab
