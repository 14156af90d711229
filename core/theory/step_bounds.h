#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/decoding/rules/accept.h"

/// What verifiers can get from one drafted tree. The tree and the rows p and q of its nodes are given, so all
/// numbers are expectations over the coins of the verifier alone. Their means over the steps of a run are
/// compared with the tokens that the run emitted.
namespace speclab::theory {

/// Entry i of by_token and by_path is the probability that a rule keeps at least i + 1 drafted tokens and
/// that the first i + 1 of them contain no end token. (A step stops at an end token.) So it is the
/// probability that the step emits at least i + 2 tokens.
struct StepBounds {
  bool chain = false;  ///< no node has several children
  /// The rule is "rejection": multi-step speculative sampling (Miao et al. 2024, Alg. 2); on a chain, the
  /// token rule.
  std::vector<double> by_token;
  /// The rule judges whole paths. On a chain, entry i is rho of the first i + 1 tokens (rules_paths.cpp): the
  /// probability that the rule "block" keeps them, averaged over the draws of the later tokens. So it does
  /// not depend on the length of the draft. No lossless verifier that uses p and q on the path has a larger
  /// mean over drafts (Sun et al. 2024, arXiv 2403.10444, Theorem 2). On other trees the rule is "traversal",
  /// and the list is no bound.
  std::vector<double> by_path;
  /// Entry i: position_bound() of the drafted children of the i-th node on the accepted path. Node 0 is the
  /// pending token. The list ends before an end token or a node without children. Copies that have no node
  /// of their own (Draft::copied_too) count as children. An entry has no value if no bound is known. There is
  /// none for draws without replacement beside other children. For copied children beside drawn ones there is
  /// one only if Draft::copies_ignore_draws is set.
  std::vector<std::optional<double>> best;

  /// 1 + the sum of a list: expected tokens of the step.
  static double tokens(const std::vector<double>& kept);
};

/// What two rules keep of the same chain with the same coins. The test of a node has the coin of the address
/// (position of the pending token, Purpose::accept, node) under both rules, as it has in the engine under
/// "block" (rules_paths.cpp). In the engine the token rule takes the coin of the token's own position
/// instead, so a step of the engine with the token rule may keep another number than `by_token`.
struct PairedOutcome {
  int by_token = 0;  ///< drafted tokens that the rule "rejection" keeps, up to an end token
  int by_path = 0;   ///< the same for the rule "block"
};
/// The mean of `by_token` over the coins is the sum of the list by_token in StepBounds. `by_path` and the sum
/// of the list by_path have equal means only over the coins and the draws of the drafts together. `position`
/// is the position of node 0. Absent unless the draft is a chain.
std::optional<PairedOutcome> paired_outcome(const Draft& draft, const TargetRows& rows, const Coins& coins,
                                            std::int64_t position, std::span<const Token> eos);

/// `accepted` are the nodes that the step kept, from depth 1 on. `eos` are tokens that end the text. The rows
/// of all candidates and of the pending token are read, so the caller must have them.
StepBounds step_bounds(const Draft& draft, const TargetRows& rows, std::span<const int> accepted,
                       std::span<const Token> eos);

}  // namespace speclab::theory
