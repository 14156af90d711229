#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "core/measure/run_result.h"
#include "core/decoding/loop/decode_loop.h"
#include "core/decoding/loop/judged_step.h"
#include "experiments/run/conversation.h"
#include "experiments/run/cost_table.h"
#include "experiments/config/experiment.h"
#include "experiments/run/model_set.h"

namespace speclab {

/// Decodes prompts under the cases of an experiment. One decode loop decodes all turns of a prompt. A loop
/// holds caches, so only the most recently used loops stay open. A case that carries memory has two loops.
/// The loop of its lines stays open as long as the decoder lives, because its strategy holds the memory.
/// Warm-up and calibration use the other loop, so that they leave nothing in that memory.
class Decoder {
 public:
  /// Opens a loop for every case. So a case that cannot run with these models throws Error before anything is
  /// measured. `costs`: for cases with the option "budget": "auto" or the schedule `bandit`; empty if there
  /// is no such case.
  Decoder(const Experiment& experiment, const ModelSet& models, CostsByDrafts costs = {});
  Decoder(const Decoder&) = delete;  // its loops hold callbacks to it
  Decoder& operator=(const Decoder&) = delete;

  struct Job {
    const CaseSpec* spec;
    const PromptSpec* prompt;
    std::uint64_t seed;
    int max_tokens = 0;  ///< limit per turn; 0: the case's limit. Warm-up and calibration use a lower one
    const LineRecord* reference = nullptr;  ///< autoregressive line of the same prompt and seed, when known
    /// Called after each step, outside the clock.
    std::function<void(const StepRecord&)> after_step = nullptr;
    /// Called after each step whose rows are on the host, if the experiment wants bounds; outside the clock.
    std::function<void(const JudgedStep&)> on_judged = nullptr;
    /// Called before each turn and after each step; true stops the decoding.
    std::function<bool()> interrupted = nullptr;
    bool apart = false;  ///< true for warm-up and calibration, which are not lines
  };
  /// Decodes all turns of the prompt. Returns null when it was interrupted. Throws Error when decoding fails.
  std::optional<std::vector<GenerationRecord>> decode(const Job& job);
  /// Empties the memory of a case by making its strategy anew.
  void forget(const CaseSpec& spec);
  /// Generation options of a case for a prompt.
  static GenerationOptions generation_for(const CaseSpec& spec, const PromptSpec& prompt);
  /// Positions that a sequence needs for the longest prompt, with all its turns and answers.
  int capacity() const { return capacity_; }
  /// Estimated number of cached positions in the middle of a prompt's first answer, as the mean over prompts.
  int mean_context() const { return mean_context_; }

 private:
  DecodeLoop& loop_for(const CaseSpec& spec, bool apart);
  std::unique_ptr<DecodeLoop> make_loop(const CaseSpec& spec, const StrategyChoice& strategy) const;

  const Experiment& experiment_;
  const ModelSet& models_;
  CostsByDrafts costs_;
  int capacity_ = 0;
  int mean_context_ = 0;
  struct Open {
    std::unique_ptr<DecodeLoop> loop;  ///< null: closed
    long last_use = 0;
    bool stays = false;  ///< true when its strategy holds the memory of a case
  };
  std::vector<Open> loops_;  ///< [cases], then [cases] for warm-up and calibration of cases with memory
  std::shared_ptr<PrefillCache> prefills_ = std::make_shared<PrefillCache>();
  long uses_ = 0;
  const Job* job_ = nullptr;  ///< the job that is being decoded
  std::stop_source stop_;     ///< stops that job
};

}  // namespace speclab
