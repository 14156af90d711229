#pragma once

#include <cstddef>
#include <vector>

#include "core/decoding/strategy.h"
#include "core/model/net/taps.h"

namespace speclab {

/// The target's hidden states of the committed positions of one sequence, for a head that drafts from them.
/// They are states that the target really computed for the text, never states that a head predicted. A state
/// arrives with the prompt, or after the step that commits its position. So before a draft, the newest state
/// belongs to the position before the pending token. If the head reads states after several layers, they are
/// stored one after the other for each position.
class CommittedStates {
 public:
  /// `width` is the width of the state after one layer. If `all` is true, states stay until clear() or until
  /// the next prompt begins. Otherwise only the states of the newest position stay.
  CommittedStates(int width, bool all, int layers = 1)
      : of_layer_(static_cast<std::size_t>(width)),
        layers_(static_cast<std::size_t>(layers)),
        width_(of_layer_ * layers_),
        all_(all) {}

  /// What a strategy has to declare in Strategy::reads(), for states after `taps` (Tap::layer).
  static Reads reads(std::vector<int> taps);
  /// For Strategy::observe_prompt(). Forgets everything when a prompt begins.
  void take_prompt(const PromptStates& states);
  /// For Strategy::observe(): takes the states of the pending token and of the accepted tokens that the step
  /// committed.
  void take_step(const Outcome& outcome);

  int count() const { return static_cast<int>(rows_.size() / width_); }
  const float* data() const { return rows_.data(); }  ///< [count, layers * width], oldest first
  /// The states of the newest position, [layers * width]. There must be one.
  const float* newest() const;
  void clear() { rows_.clear(); }

 private:
  float* grow(std::size_t count);

  std::size_t of_layer_, layers_, width_;  // width_: of a position
  bool all_;
  std::vector<float> rows_;
};

}  // namespace speclab
