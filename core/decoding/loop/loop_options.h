#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "core/base/token.h"
#include "core/decoding/budget/step_costs.h"
#include "core/measure/recorder.h"
#include "core/decoding/loop/prefill_cache.h"

namespace speclab {

struct JudgedStep;

/// How the target computes the rows of a draft. The rows have the same bits in each way.
enum class VerifyWith {
  one_pass,           ///< all nodes in one forward, with the tree's attention mask
  batch_of_leaves,    ///< each leaf is the last token of a sequence of its own (its path from the root).
                      ///< If the tree has branches, this feeds more rows than one_pass
  batch_of_prefixes,  ///< the same for each node; this feeds still more rows
};

inline constexpr std::string_view kVerifyNames[] = {"one_pass", "batch_of_leaves", "batch_of_prefixes"};
inline std::string_view to_string(VerifyWith verify) {
  return kVerifyNames[static_cast<std::size_t>(verify)];
}

/// Options of a decode loop, the same for all its generations.
struct LoopOptions {
  int batch = 1;     ///< largest number of sequences that are decoded together
  int capacity = 0;  ///< positions per sequence; 0: the target's context
  VerifyWith verify = VerifyWith::one_pass;
  /// Emulates lookahead parallelism: the tree is divided over this many devices (DividedTree). Each part is a
  /// forward of its own, and all parts run on the one real device. Only with VerifyWith::one_pass.
  int devices = 1;
  /// Room for uncommitted rows of a sequence; 0: what the executor needs for the strategy's largest draft.
  int scratch = 0;
  /// The costs from which strategies with the option "budget": "auto" or the schedule `bandit` choose the
  /// size of their drafts.
  std::shared_ptr<const StepCosts> costs = nullptr;
  bool hash_rows = true;  ///< fill GenerationRecord::row_hashes
  bool details = true;    ///< fill expected, rank, distance and kl of tested tokens
  /// Also fill GenerationRecord::row_entropies, and p, q and rank of the drafted tokens that the rule did not
  /// test. It costs a pass over the row of each emitted and of each untested token, outside the clock. Not
  /// with device_loop.
  bool row_details = false;
  /// Prefilled prompts, shared with other loops of the same target and capacity; null: the loop prefills by
  /// itself.
  std::shared_ptr<PrefillCache> prefills = nullptr;
  /// Appends the bytes of a token to a text; needed for stop strings only.
  std::function<void(Token, std::string&)> token_bytes = nullptr;
  /// Called after each step with the tokens that it emitted, and after prefill with an empty step and the
  /// first token. Its time is not measured.
  std::function<void(int slot, const StepRecord& step, TokenSpan emitted)> on_emit = nullptr;
  /// Called after each step with the draft and the target's rows. Not called for steps that a device ran by
  /// itself, because their rows stay there. Its time is not measured.
  std::function<void(const JudgedStep&)> on_judged = nullptr;
  /// run() calls it with true after the prefills and before the first step, and with false after the last
  /// step (not when a step fails). With it a profiler can record only the steps.
  std::function<void(bool begins)> on_steps = nullptr;
};

}  // namespace speclab
