#pragma once

#include <memory>
#include <vector>

#include "core/base/token.h"
#include "core/decoding/budget/step_costs.h"
#include "core/decoding/drafting/draft.h"

namespace speclab {

/// Chooses how much of each draft of one sequence is verified, from nothing to all of it. It keeps the n
/// drafted tokens with the largest probability P to be accepted, where n maximises
///
///     (1 + sum of P(token accepted) over the n tokens) / t(n + 1),
///
/// the expected tokens of the step divided by the time of its forward over n + 1 rows.
///
/// P is estimated from this sequence alone, for each class of drafted tokens. The class says whether a token
/// follows the pending token directly, which rank it has among its siblings, and how good the evidence for it
/// is (Draft::evidence and Draft::confidence). After each step the emitted tokens are compared with the whole
/// draft, also with the tokens that were not verified. So the estimates stay up to date even while the
/// budget keeps nothing, and no step is spent on trying.
///
/// The first Draft::must_keep nodes are always kept. They may belong to a draft model. All other nodes are
/// one-hot: their tokens were not drawn. So the text keeps its distribution. If drawn tokens could be
/// removed, the choice of the verified tokens would depend on the draws, and the text would be biased.
class DraftBudget {
 public:
  explicit DraftBudget(std::shared_ptr<const StepCosts> costs);
  /// Forgets all estimates. Called when a sequence starts, so a text does not depend on other texts.
  void begin();
  /// Removes from the draft what is not worth its time. The draft must not have probes (nodes that are never
  /// accepted), and every q after the first must_keep nodes must be one-hot. `further_rows`: rows that the
  /// forward has besides the draft and the pending token.
  void limit(Draft& draft, int further_rows = 0);
  /// Learns from the tokens that the step emitted. `emitted` follows the pending token of the last draft that
  /// limit() saw.
  void observe(TokenSpan emitted);

 private:
  // Observations of one class of tokens. Both numbers fall by a constant factor with each observation, so old
  // text counts less.
  struct Counts {
    double seen = 0, accepted = 0;
  };
  std::size_t class_of(const Draft& draft, int node, int rank) const;
  double acceptance(std::size_t of_class) const;

  std::shared_ptr<const StepCosts> costs_;
  std::vector<Counts> classes_, wide_;  // wide_: classes that ignore the evidence
  // The last draft as it was before limit() cut it, by node:
  TokenTree tree_;
  std::vector<std::size_t> class_of_;
  std::vector<double> probability_;  // P(the node is accepted)
  std::vector<int> ranks_, order_, children_;
  std::vector<char> keep_;
};

}  // namespace speclab
