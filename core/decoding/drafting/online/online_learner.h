#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "core/base/options.h"
#include "core/base/token.h"
#include "core/decoding/drafting/online/distillation.h"
#include "core/decoding/drafting/online/logits_correction.h"
#include "core/model/net/model_config.h"

namespace speclab {

/// Options of OnlineLearner.
struct OnlineOptions {
  DistillObjective objective = DistillObjective::forward_kl;
  double learning_rate = .3;
  double clip = 1;
  double least_gradient = 1e-3;
  int update_every = 4;
  int buffer = 16;
  int corrected_tokens = 4096;
  void fields(OptionVisitor& visit);
};

/// Trains the draft model of one sequence while it drafts (online speculative decoding: Liu et al. 2023,
/// arXiv 2310.07177). Where a drafted token was rejected, the target's distribution p is known at a position
/// at which the draft was wrong. Of such a position the learner keeps p and the draft model's state and
/// logits. After every `update_every` steps with a draft it takes one step of gradient descent at each kept
/// position, oldest first, and forgets the positions.
///
/// Only a LogitsCorrection is trained, so gradients are known in closed form and need no backward pass. p and
/// q of the objective are distributions at temperature 1, without truncation and before logits processors,
/// over the tokens that the draft can draw.
///
/// Nothing here is random or depends on a clock. While a text is generated, a correction changes only in
/// observe(), after the target has judged the draft. So the q of every drafted token is the distribution from
/// which the token was drawn.
class OnlineLearner {
 public:
  /// `draft`: the configuration of the draft model, which must outlive the learner.
  OnlineLearner(const OnlineOptions& options, const ModelConfig& draft);

  /// Forgets the correction and the kept positions.
  void forget();
  /// Corrects the logits from which the token at `depth` (from 1) of a chain is drawn. Keeps the state and
  /// the uncorrected logits until the next chain. state: [hidden], logits: [head_rows].
  void correct(int depth, std::span<const float> state, std::span<float> logits);
  /// Says that `accepted` of the `drafted` tokens of the chain were accepted. `target_logits` is the target's
  /// row of logits after the accepted tokens, [vocab]. Does nothing if nothing was drafted.
  void observe(int drafted, int accepted, std::span<const float> target_logits);

  int steps_of_descent() const { return descents_; }  ///< positions learned from since construction
  const LogitsCorrection& correction() const { return correction_; }

 private:
  struct Drafted {
    std::vector<float> state, logits;  // before the correction
  };
  struct Kept {
    Drafted drafted;
    std::vector<float> p;  // [head_rows]
  };
  void keep(const Drafted& drafted, std::span<const float> target_logits);
  void learn();
  static bool softmax(std::span<const float> logits, std::vector<float>& out);

  OnlineOptions options_;
  std::span<const Token> ids_;  // the tokens of the draft's rows; empty: all
  std::size_t vocab_;
  LogitsCorrection correction_;
  std::vector<Drafted> drafted_;       // [longest chain so far]
  std::vector<Kept> kept_;             // a ring of `buffer` positions
  std::size_t first_ = 0, count_ = 0;  // the oldest position in the ring; number of positions
  int steps_ = 0;                      // with a draft since the last update
  int descents_ = 0;
  std::vector<float> row_, p_, logits_, q_, gradient_;  // scratch
};

}  // namespace speclab
