#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/decoding/drafting/selection/drafter_costs.h"
#include "core/decoding/rows/coins.h"

namespace speclab {

/// How a drafter is chosen by the scores of all drafters.
enum class DrafterLearner {
  exponential,  ///< drawn at random; the weights are exponential in the scores (Hedge)
  leader,       ///< the drafter with the best score (follow the leader)
};

/// Chooses among drafters with full information: after each step the emitted tokens tell for every drafter
/// what it would have achieved, also for those that did not draft. No target forward is needed for this. But
/// every draft model must read the emitted tokens, which costs a forward of this model in each step, and the
/// scores count that time.
///
/// A place of the text is scored once the tokens after it are known. There a drafter with a draft of n tokens
/// would have emitted
///
///     E(n) = 1 + sum over d <= n of (product of its acceptance at the d tokens after the place)
///
/// tokens in the time
///
///     T(n) = time of a step that drafts n tokens + time of all other models to read E(n) tokens (rounded)
///            + (probability that all n tokens are accepted) * time of its own model to read token n.
///
/// A drafter's rate is (sum of E) / (sum of T) over the scored places, with n the longest draft, or, with
/// `any_length`, the n that gives the largest rate. The score of a drafter is its rate divided by the largest
/// possible rate. A drafter that has not been scored gets the best score of the others.
///
/// leader: the drafter with the best score; the first of several. exponential: drafter i is drawn with the
/// weight exp(r * places * score_i), where r is Settings::rate and `places` is the largest number of scored
/// places of a drafter that can draft now. For K drafters and N places with rewards in [0, 1],
/// r = sqrt(8 ln K / N) bounds the regret by sqrt(N ln K / 2) (Cesa-Bianchi and Lugosi 2006, Theorem 2.2).
/// The default .3 is this r for K = 3 and N = 98. That bound holds for rewards that are summed. Here
/// tokens and times have a sum each, because the goal is the tokens of the whole text divided by its time.
///
/// With a memory below 1, each scored place first multiplies the sums of its drafter, and their number of
/// places, by the memory.
///
/// The choice depends on earlier steps and on coins of its own. So the text keeps its distribution.
///
/// Source: Liu et al. 2025, Not-a-Bandit (arXiv 2510.20064): every draft model is evaluated on the verified
/// text. The cost of that evaluation and the choice by time are ours.
class DrafterScores {
 public:
  struct Settings {
    DrafterLearner learner = DrafterLearner::exponential;
    double rate = .3;
    double memory = 1;        ///< above 0, at most 1
    bool any_length = false;  ///< a drafter counts with its best length, not with its longest draft
  };
  /// longest[i] >= 1: tokens of the longest draft of drafter i.
  DrafterScores(std::shared_ptr<const DrafterCosts> costs, std::vector<int> longest, Settings settings);
  void begin();  ///< starts a text: forgets all scores
  /// Scores a place of the text for a drafter. acceptance[d]: the probability that token d of its draft there
  /// is accepted if all tokens before it were. The draft has as many tokens as the list, at most
  /// longest[drafter].
  void add(int drafter, std::span<const double> acceptance);
  /// The drafter's tokens per ns; 0 if it has not been scored.
  double rate(int drafter) const;
  /// Returns the drafter of the next step, or -1 if none is awake. awake[i]: whether drafter i has something
  /// to draft, [drafters]. `exponential` draws with the coin (position, Purpose::simulate, 0).
  int choose(std::span<const char> awake, const Coins& coins, std::int64_t position);

 private:
  struct Sums {
    double tokens = 0, ns = 0;
  };
  struct Scored {
    std::vector<Sums> by_length;  // [longest], of drafts of 1, 2, ... tokens
    double places = 0;
  };
  std::shared_ptr<const DrafterCosts> costs_;
  Settings settings_;
  double best_rate_;
  std::vector<Scored> drafters_;
  std::vector<double> weights_;  // scratch
};

}  // namespace speclab
