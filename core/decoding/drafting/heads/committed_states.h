#pragma once

#include <cstddef>
#include <vector>

#include "core/decoding/strategy.h"
#include "core/model/net/taps.h"

namespace speclab {

/// The target's hidden states of the committed positions of one sequence, for a head that drafts from them.
/// They are states that the target really computed for the text, never states that a head predicted. A state
/// arrives with the prompt, or after the step that commits its position. So before a draft, the newest state
/// is that of the position before the pending token.
class CommittedStates {
 public:
  /// `width`: of a state. If `all` is true, states stay until clear(), otherwise only the newest one stays.
  CommittedStates(int width, bool all) : width_(static_cast<std::size_t>(width)), all_(all) {}

  /// What a strategy has to declare in Strategy::reads(), for states after `tap` (Tap::layer).
  static Reads reads(int tap);
  /// For Strategy::observe_prompt(). Forgets everything when a prompt begins.
  void take_prompt(const PromptStates& states);
  /// For Strategy::observe(): takes the states of the pending token and of the accepted tokens that the step
  /// committed.
  void take_step(const Outcome& outcome);

  int count() const { return static_cast<int>(rows_.size() / width_); }
  const float* data() const { return rows_.data(); }  ///< [count, width], oldest first
  /// The newest state, [width]. There must be one.
  const float* newest() const;
  void clear() { rows_.clear(); }

 private:
  void take(const float* rows, std::size_t count);

  std::size_t width_;
  bool all_;
  std::vector<float> rows_;
};

}  // namespace speclab
