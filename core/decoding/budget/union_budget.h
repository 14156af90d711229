#pragma once

#include <array>
#include <memory>
#include <span>
#include <vector>

#include "core/decoding/budget/shape_budget.h"
#include "core/decoding/budget/step_costs.h"

namespace speclab {

/// Chooses before a tree is made how long the chains of each of several sources are. The sources draft side
/// by side, and their chains below the pending token are merged into one tree. The budget takes the lengths
/// that maximise
///
///     (1 + sum over depths d of P(some chain of at least d tokens is right up to depth d))
///         / (t(rows) + time of the drafts),
///
/// the expected tokens of a step divided by its time. A length of 0 means that a source does not draft.
///
/// Sources often propose the same tokens. So P is learned for each set of sources, from the steps in which
/// all sources of the set drafted: how often some chain of the set is right up to depth d, if some chain of
/// the set is right up to depth d - 1. A source that is not in use is tried again now and then (TrialFund).
///
/// Only some lengths are tried: 0, 1, 2, 3, 4, 6, 8, ... The budget compares all their combinations if these
/// are few. If they are many, it makes several searches. The first begins without chains. For each source,
/// one more begins with chains of one token of this source. A search changes the length of one source after
/// the other as long as that helps. It may miss the best combination.
///
/// The choice depends on the text and on earlier steps. It is made before a token of the step is drawn. So
/// the text keeps its distribution, also when tokens are drawn.
class UnionBudget {
 public:
  static constexpr int kMostSources = 6, kMostLength = 64, kEvidence = 4;

  /// `costs` has the times of the target.
  UnionBudget(std::shared_ptr<const StepCosts> costs, int sources);
  /// Forgets all estimates. Called when a sequence starts.
  void begin();
  /// What a source could draft in the next step.
  struct Source {
    int most = 0;         ///< length of its longest chain; 0: it has nothing to draft
    int chains = 1;       ///< largest number of different chains that it drafts
    double first_ns = 0;  ///< time of the first tokens of its chains
    double next_ns = 0;   ///< time of the tokens at each further depth
  };
  /// Returns the number of tokens of the chosen chains. A token that several chains share counts once for
  /// each of them. `most_tokens`: the largest number that may be returned. `most_nodes`: the most nodes of
  /// the merged tree, without the pending token. `evidence`: how good the evidence for the chain of the last
  /// source is, from 1 to kEvidence - 1; 0: unknown.
  int choose(std::span<const Source> sources, int most_tokens, int most_nodes, int evidence = 0);
  /// The length of the chains of a source, by the last choice.
  int length(int source) const { return chosen_[static_cast<std::size_t>(source)]; }
  /// Tells what became of the step of the last choice. drafted[source] is the length of the source's longest
  /// chain. right[source] is the length of the longest beginning of one of its chains that the step emitted.
  /// `emitted`: tokens that the step emitted. `nodes`: nodes of the merged tree, without the pending token.
  void observe(std::span<const int> drafted, std::span<const int> right, int emitted, int nodes);

 private:
  static constexpr int kDepths = 4;  // a greater depth counts as this one
  static constexpr unsigned kSets = 1U << kMostSources;
  using Lengths = std::array<int, kMostSources>;
  struct Plan {
    Lengths lengths{};
    int tokens = 0;
    double expected = 1, ns = 0;
    double rate() const { return expected / ns; }
  };
  double one_alone(int source, int depth) const;
  double next_is_right(unsigned set, int depth) const;
  void find_reach(std::span<const Source> sources, int deepest);
  Plan plan_of(std::span<const Source> sources, const Lengths& lengths, int most_nodes) const;
  template <class Visit>
  void try_all(std::span<const Source> sources, const Visit& visit) const;
  template <class Visit>
  void climb(std::span<const Source> sources, Lengths lengths, const Visit& visit) const;

  std::shared_ptr<const StepCosts> costs_;
  int sources_, evidence_ = 0;
  std::vector<RunningShare> by_depth_, own_;  // [sets, depths], [sets, depths, evidence]
  RunningShare fresh_;  // share of new nodes among the tokens of all drafting sources except the first
  std::array<TrialFund, kMostSources> trials_;
  Lengths chosen_{}, chains_{};
  std::array<std::array<double, kMostLength + 1>, kSets> reach_{};  // by set and depth
};

}  // namespace speclab
