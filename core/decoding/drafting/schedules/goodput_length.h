#pragma once

#include <vector>

#include "core/decoding/budget/shape_budget.h"

namespace speclab {

/// Chooses the length n of each draft, from 1 to `longest`, that maximises the goodput of the step
///
///     (1 + a + a^2 + ... + a^n) / time(n),
///
/// the expected tokens of a step divided by its time. a is one acceptance for all positions: a moving average
/// over the drafts of the text. A draft teaches `accepted` acceptances and, if it had more tokens, one
/// rejection. Before each draft, earlier counts lose weight by the factor `memory`. A first guess of .6
/// counts as one token. Of equal goodputs the shortest length wins. The time comes from a table and not from
/// a clock, so a text follows from config, seed and table.
///
/// Source: Liu et al. 2024, SmartSpec (arXiv 2406.14066), for one request. SmartSpec may choose no draft.
/// Here a draft has at least one token, because a step without a draft teaches nothing. The option "budget":
/// "auto" has the same criterion with an acceptance for each depth; it tries drafts again after it stopped
/// drafting.
class GoodputLength {
 public:
  /// `step_ns`: a result of chain_step_ns(), positive, with at least two entries. `memory`: from 0 to 1.
  GoodputLength(std::vector<double> step_ns, double memory);
  void begin() { share_ = {}; }  ///< starts a text: forgets all drafts
  double acceptance() const;     ///< the moving average
  int choose() const;
  /// Learns from a draft of `drafted` > 0 tokens.
  void observe(int drafted, int accepted);

 private:
  std::vector<double> step_ns_;  // [longest + 1]
  double memory_;
  RunningShare share_;
};

}  // namespace speclab
