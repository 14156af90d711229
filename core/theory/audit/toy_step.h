#pragma once

#include <functional>
#include <map>
#include <random>
#include <vector>

#include "core/decoding/rules/accept.h"
#include "core/theory/audit/enumerate.h"

// One step of speculative decoding on tables that take the place of the models. The tables are small enough
// to enumerate all outcomes of the step.

namespace speclab::enumerate {

/// How the rows p and q of a node are related.
enum class Rows { generic, zeros, equal, disjoint, one_hot_p, one_hot_q, near };
inline constexpr Rows kAllRows[] = {Rows::generic,   Rows::zeros,     Rows::equal, Rows::disjoint,
                                    Rows::one_hot_p, Rows::one_hot_q, Rows::near};

/// A target and two drafts as tables. The key of a row is the sequence of tokens after the pending token.
struct World {
  struct Row {
    Distribution p, raw, q[2];
  };
  int vocab = 0;
  mutable std::map<Outcome, Row> rows;
  const Row& at(const Outcome& context) const { return rows.at(context); }
};

/// Makes rows for all contexts shorter than `length`. `greedy`: p is one-hot at the argmax of raw; else p =
/// raw.
World random_world(int vocab, int length, Rows kind, bool greedy, std::mt19937& random);
World golden_world(int length);  ///< p = [.55, .25, .15, .05], q = [.4, .35, .05, .2] in every context

/// How the children of a node are drawn.
enum class Draws {
  iid,         ///< all from q[0]
  swor,        ///< without replacement: q[0] without the earlier draws, renormalised
  two_models,  ///< from q[0], q[1], q[0], ...
  one_hot,     ///< fixed tokens 0, 1, 2, ... of the vocabulary, without a row q
  duplicates,  ///< fixed tokens, all the same
  mixed,       ///< the first is sampled from q[0], the others are fixed
};
inline constexpr Draws kAllDraws[] = {Draws::iid,     Draws::swor,       Draws::two_models,
                                      Draws::one_hot, Draws::duplicates, Draws::mixed};

/// widths[d] is the number of children of each node of depth d. A drafted token whose probability is below
/// `least` gets no children, so the shape depends on the drafted tokens.
struct Shape {
  std::vector<int> widths;
  double least = 0;
  /// For trees in which nodes of one depth have different numbers of children: entry i is the number of
  /// children of node i. Nodes are drafted level by level, the pending token first. Nodes beyond the list
  /// have no children. widths[d] is then the largest number of children at depth d. Empty: all nodes have as
  /// many children as `widths` says.
  std::vector<int> children = {};
};

/// accept(), or another implementation of it.
using Verify = std::function<void(const AcceptanceRule&, const RuleOptions&, const Draft&, const TargetRows&,
                                  const Coins&, std::int64_t, Acceptance&)>;

/// True if the rule can judge drafts of this shape, with children drawn in this way and rows of this kind.
bool takes(const AcceptanceRule& rule, const Shape& shape, Draws draws, Rows rows);

/// One step of speculative decoding: the drafted tree, the result of accept(), and the emitted tokens.
struct Step {
  Draft draft;
  Acceptance acceptance;
  Outcome emitted;
};
/// Runs one step: draws the tree and verifies it, by default with accept(), as decoding does. Overwrites
/// `step`.
void run_step(const World& world, const Shape& shape, Draws draws, const AcceptanceRule& rule,
              const RuleOptions& options, const Coins& coins, Step& step, const Verify& verify = accept);

/// Returns `length` tokens: those of one step, then tokens that the rule's `bonus` draws from the target's
/// rows. If the step emits more than `length` tokens, the rest is cut.
Outcome emit(const World& world, const Shape& shape, Draws draws, const AcceptanceRule& rule,
             const RuleOptions& options, int length, const Coins& coins, const Verify& verify = accept);

/// The target's joint law of its next `length` tokens.
std::map<Outcome, double> target_law(const World& world, int length);

}  // namespace speclab::enumerate
