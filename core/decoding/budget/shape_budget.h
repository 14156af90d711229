#pragma once

#include <memory>
#include <span>
#include <vector>

#include "core/decoding/budget/step_costs.h"
#include "core/decoding/drafting/tree_shape.h"
#include "core/decoding/token_tree.h"

namespace speclab {

/// The acceptance of one kind of drafted tokens. Old observations lose weight.
struct RunningShare {
  double seen = 0, accepted = 0;
  void fade(double factor) { seen *= factor, accepted *= factor; }
  void add(bool was_accepted) { seen += 1, accepted += was_accepted ? 1 : 0; }
  /// The share if `guess` counts as `weight` further observations.
  double over(double guess, double weight) const { return (accepted + weight * guess) / (seen + weight); }
};

/// How good the evidence is for a copy that continues a match of `tokens` tokens. Returns 0 (no match) to 3
/// (a match of 4 tokens or more).
inline int evidence_of_match(int tokens) { return tokens < 2 ? tokens : tokens < 4 ? 2 : 3; }

/// Decides when to try a way of drafting that does not seem worth its time. Each step without it adds a share
/// (kShare) of the step's time to the fund. A trial starts when the fund covers the time that the trial is
/// expected to lose. So trials lose at most about this share of the time.
class TrialFund {
 public:
  static constexpr double kShare = .02;
  void begin() { earned_ = 0, left_ = 0; }
  /// Call it for each step in which this way of drafting does not seem worth its time. `ns`: time of the step
  /// without it. `loss_ns`: expected loss of one step of a trial, which takes `steps` consecutive steps.
  /// Returns true if this step belongs to a trial.
  bool try_now(double ns, double loss_ns, int steps) {
    if (left_ > 0) return --left_, true;
    earned_ += kShare * ns;
    if (earned_ < loss_ns * steps) return false;
    earned_ = 0;
    left_ = steps - 1;
    return true;
  }
  /// Call it for each step in which this way of drafting seems worth its time. If a trial is running, the
  /// step counts as one of its steps.
  void step_in_use() {
    if (left_ > 0) --left_;
  }

 private:
  double earned_ = 0;
  int left_ = 0;  // further steps of the running trial
};

/// Chooses before each step which part of a tree shape one sequence drafts, from nothing to all of it. A
/// chain is a shape with one child for each node. The budget takes the part of n tokens that maximises
///
///     (1 + sum of P(token accepted) over the n tokens) / (t(n + 1) + time of the draft's forwards),
///
/// the expected tokens of a step divided by its time. Children of a node are taken in draw order. For a chain
/// this is the goodput of SmartSpec (Liu et al. 2024, arXiv 2406.14066).
///
/// P is estimated from this sequence alone: by the depth of a token, its rank among its siblings, and the
/// evidence for the draft. Only tokens that were verified teach anything. So while nothing is worth its time,
/// the best draft that is not empty is tried now and then (TrialFund).
///
/// The choice depends on earlier steps and on the text. It is made before a token of the step is drawn. So
/// the text keeps its distribution, also when tokens are drawn.
class ShapeBudget {
 public:
  struct Settings {
    double first_guess = .6;     ///< P(a first child is accepted) before anything was seen
    bool by_draft_model = true;  ///< drafting takes one forward of the draft model for each level
    int trial_steps = 1;         ///< number of consecutive steps of a trial
  };
  /// `costs` has times of the draft model if `by_draft_model`. The shape is copied.
  ShapeBudget(std::shared_ptr<const StepCosts> costs, TreeShape shape, Settings settings);
  /// Forgets all estimates. Called when a sequence starts, so a text does not depend on other texts.
  void begin();
  /// Chooses the part for the next step. `depth`: largest depth of a token. `behind`: tokens before the
  /// pending one that the draft model has not read. `evidence`: a small number that says how good the
  /// evidence for the draft is; 0: unknown. Returns the number of chosen tokens.
  int choose(int depth, int behind = 0, int evidence = 0);
  /// Number of children of a node of the shape in the chosen part.
  int children(int node) const { return chosen_[static_cast<std::size_t>(node)]; }
  const TreeShape& shape() const { return shape_; }
  /// Largest depth of a token of the chosen part.
  int chosen_depth() const { return chosen_depth_; }
  /// Tells that drafting takes `factor` times as long as the table says, for example because guesses save
  /// forwards of the draft model. The default is 1.
  void set_draft_factor(double factor) { draft_factor_ = factor; }
  /// Tells the time that drafting takes at each depth of a chain, [depth of the shape]. By default this
  /// is the time of one forward of the draft model.
  void set_level_times(std::span<const double> ns) { level_times_.assign(ns.begin(), ns.end()); }
  /// Tells that the text reached a drafted node (or the pending token) at `depth`, that `children` drafted
  /// tokens followed it, and which of them was accepted; -1: none. Called for every node that was reached,
  /// the pending token first.
  void reached(int depth, int children, int accepted);
  /// reached() for all nodes that the text reached: the pending token and the nodes of `path`.
  void observe_tree(const TokenTree& tree, std::span<const int> path);
  /// reached() for a chain of `drafted` tokens whose first `accepted` tokens were accepted.
  void observe_chain(int drafted, int accepted);

 private:
  static constexpr int kDepths = 4, kRanks = 4, kEvidence = 4;  // larger values count as the last
  double acceptance(int depth, int rank) const;
  double level_ns(int level, int fed) const;

  std::shared_ptr<const StepCosts> costs_;
  TreeShape shape_;
  Settings settings_;
  std::vector<int> parent_, depth_, rank_;  // [nodes]
  bool chain_;
  TrialFund trials_;
  int evidence_ = 0, behind_ = 0, chosen_depth_ = 0;
  double draft_factor_ = 1;
  std::vector<double> level_times_;  // empty: forwards of the draft model
  std::vector<RunningShare> own_, by_depth_, by_rank_;
  std::vector<double> probability_;  // [nodes]
  std::vector<int> order_, chosen_, fed_, children_;
};

}  // namespace speclab
