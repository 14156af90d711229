#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "core/measure/run_result.h"
#include "core/decoding/loop/decode_loop.h"
#include "experiments/run/conversation.h"
#include "experiments/config/experiment.h"
#include "experiments/run/model_set.h"

namespace speclab {

/// Decodes prompts under cases, all turns of a prompt through one decode loop. Loops hold caches, so only the
/// most recently used ones stay open.
/// Of a case that carries memory there are two: the one of its lines stays open as long as the decoder lives,
/// because its strategy is the memory; warm-up and calibration have another one, so that they leave nothing
/// in the first.
class Decoder {
 public:
  /// Opens a loop for every case, so that what does not fit fails before anything is measured. Throws Error.
  Decoder(const Experiment& experiment, const ModelSet& models);
  Decoder(const Decoder&) = delete;  // its loops call it
  Decoder& operator=(const Decoder&) = delete;

  struct Job {
    const CaseSpec* spec;
    const PromptSpec* prompt;
    std::uint64_t seed;
    int max_tokens =
        0;  ///< at most so many per turn; 0: as the case says (warm-up and calibration are short)
    const LineRecord* reference = nullptr;  ///< autoregressive line of the same prompt and seed, when known
    std::function<void(const StepRecord&)> after_step =
        nullptr;                                  ///< called behind each step, outside the clock
    std::function<bool()> interrupted = nullptr;  ///< asked before each step; true: stop there
    bool apart = false;                           ///< no line: warm-up or calibration
  };
  /// All turns of the prompt; null when it was interrupted before its end. What fails throws Error.
  std::optional<std::vector<GenerationRecord>> decode(const Job& job);
  /// Empties the memory of a case: its strategy is made anew.
  void forget(const CaseSpec& spec);
  /// Generation options of a case for a prompt.
  static GenerationOptions generation_for(const CaseSpec& spec, const PromptSpec& prompt);
  /// Positions that a sequence may need for the longest prompt.
  int capacity() const { return capacity_; }
  /// Mean over prompts of the cached positions in the middle of a decoding.
  int mean_context() const { return mean_context_; }

 private:
  DecodeLoop& loop_for(const CaseSpec& spec, bool apart);
  std::unique_ptr<DecodeLoop> make_loop(const CaseSpec& spec, const StrategyChoice& strategy) const;

  const Experiment& experiment_;
  const ModelSet& models_;
  int capacity_ = 0;
  int mean_context_ = 0;
  struct Open {
    std::unique_ptr<DecodeLoop> loop;  ///< null: closed
    long last_use = 0;
    bool stays = false;  ///< it holds the memory of a case
  };
  std::vector<Open> loops_;  ///< [cases], then [cases] apart of those with memory
  std::shared_ptr<PrefillCache> prefills_ = std::make_shared<PrefillCache>();
  long uses_ = 0;
  const Job* job_ = nullptr;  ///< that is decoded
  std::stop_source stop_;     ///< of it
};

}  // namespace speclab
