#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/backend/rule_forms.h"
#include "core/base/options.h"
#include "core/decoding/rows/coins.h"
#include "core/decoding/rows/distribution.h"
#include "core/decoding/drafting/draft.h"
#include "core/decoding/rules/chain_law.h"

// Acceptance rules. A rule decides which drafted tokens are accepted and which token comes after them.

namespace speclab {

/// L1: an exact sample of the target's distribution; L2: token-identical to greedy decoding; L3: lossy.
enum class LossClass { l1, l2, l3 };
std::string_view to_string(LossClass loss);

/// The target's distributions at one node. `p` is the distribution after the request's sampling parameters.
/// `raw` is the softmax at temperature 1 without truncation, after the logits processors. Lossy criteria look
/// at `raw` at temperature 0.
struct TargetRow {
  const Distribution* p = nullptr;
  const Distribution* raw = nullptr;  ///< may point to the same object as p
};

/// Returns the row of a node. The row is computed from the logits when it is first requested. So a rule that
/// walks the tree costs time only for the nodes that it reaches.
using TargetRows = std::function<TargetRow(int node)>;

/// The input of a rule at one node. Besides this, AcceptanceRule::test depends only on the rule's options, so
/// tests can enumerate its results.
struct NodeTest {
  TargetRow row;
  struct Child {
    Token token;
    const Distribution* q;  ///< nullptr: one-hot
  };
  std::span<const Child> children;  ///< in the order of the tests, at least one
  const Coins* coins;
  std::int64_t position;      ///< absolute position of the children in the text
  bool want_expected = true;  ///< false: NodeVerdict::expected may hold -1 for each tested child
};

/// The row that a criterion looks at: p, or the raw row if temperature 0 has made p
/// one-hot.
inline const Distribution& criterion_row(const TargetRow& row) {
  return row.p->one_hot() && row.raw != nullptr ? *row.raw : *row.p;
}

/// What a rule decided at a node: it accepted a child, or it chose the correction token that ends the step.
struct NodeVerdict {
  int accepted = -1;      ///< index into children, or -1
  Token correction = -1;  ///< valid when accepted == -1
  /// For each tested child, in order: the rule's expected acceptance if the children before it were rejected.
  /// This is the conditional mean over the draw of the child, for example sum min(p, q) for the rule
  /// "rejection", and p(x) for one-hot q.
  std::vector<double> expected;
};

/// The parameters of all rules, with the names that configs use (except top_k and distance). Each rule lists
/// the parameters that it reads. A config that changes another parameter is refused.
struct RuleOptions {
  double lenience = 1;   ///< lenience: l in (0, 1] (Leviathan et al. 2023, A.5)
  double b = 1;          ///< uniform_b: upper end of U[0, b], in (0, 1]
  int beta = 1;          ///< top-beta: accept among the beta best tokens
  double gap = 0;        ///< gap: accept down to this many nats below the best token
  double epsilon = .09;  ///< epsilon in (0, 1] of typical acceptance and DistillSpec
  double delta = .3;     ///< typical acceptance: factor of exp(-entropy)
  double theta = 0;      ///< threshold: least probability
  int top_k = 0;         ///< threshold_top_k: the token must also be among the k best; 0 = off
  int distance = 0;      ///< distance: accept up to this many token ids from the best token
  int min_block = 1;     ///< minimum_block: least number of tokens of a block, the pending token included
  int streams = 1;       ///< coupled: number of noise streams; child k is drawn with stream k mod streams
};

/// A parameter of rules: a field of RuleOptions, with its name, help and range. Exactly one of
/// `number` and `count` is set.
struct RuleOption {
  std::string_view name;  ///< in configs
  std::string_view help;
  double RuleOptions::* number = nullptr;
  Range<double> range{0, 1, true};
  int RuleOptions::* count = nullptr;
  Range<int> counts{0, 0};
  /// True if the parameter changes the text of the reference with which a case is compared. Then cases with
  /// different values have different references. A reference has the rule "auto". It takes such parameters
  /// from the case, and all others have their defaults.
  bool changes_reference = false;

  /// Sets the parameter in `to` to its value in `from`.
  void copy(const RuleOptions& from, RuleOptions& to) const {
    if (number != nullptr) to.*number = from.*number;
    else to.*count = from.*count;
  }
};

/// Which coins decide the target's token.
enum class CoinUse {
  independent,  ///< each decision has a coin of its own
  gumbel,       ///< draft and target share the Gumbel noise of (position, token): coupled sampling
};

/// The input of a verifier for one draft. `position` is the position of node 0 in the text.
struct DraftToJudge {
  const Draft& draft;
  const TargetRows& rows;
  const Coins& coins;
  std::int64_t position;
};

struct Acceptance;
struct AcceptanceRule;
/// Walks the tree node by node, beginning at the pending token. It tests the children of a node and continues
/// at the accepted child. The walk ends with a correction when no child is accepted, and with a bonus at a
/// leaf.
void verify_by_walk(const AcceptanceRule& rule, const RuleOptions& options, const DraftToJudge& draft,
                    Acceptance& out);
/// Walks like verify_by_walk(). At each node with children it first calls `arrange`, which gets the
/// children in draw order and may change their order. The children are tested in the new order.
void verify_by_walk_arranged(const AcceptanceRule& rule, const RuleOptions& options,
                             const DraftToJudge& draft,
                             void (*arrange)(const NodeTest&, std::vector<int>& nodes), Acceptance& out);

/// An acceptance rule. This entry holds everything that the engine knows about the rule. `verify` judges a
/// whole draft and may look at all rows before it decides. It is a pure function, so tests can enumerate its
/// results. Rules that walk the tree from the pending token share verify_by_walk() and differ in `test`.
/// Ratio rules (rules_ratio.cpp) pass the current residual R from child to child (multi-step speculative
/// sampling, Miao et al. 2024, Alg. 2), so NodeVerdict::expected of a child is computed with R instead of p.
/// Criterion rules (rules_criterion.cpp) judge each token on its own, or by its depth.
struct AcceptanceRule {
  std::string_view name;
  std::string_view summary;  ///< for example "accept when u < p/q, else draw from norm(max(0, p - q))"
  std::string_view source;   ///< paper and equation
  LossClass (*loss)(const RuleOptions&, const SamplingParams&);
  std::span<const RuleOption* const> options;  ///< the options that the rule reads
  /// Judges the children of one node. Only rules that walk use it. It overwrites every field of the verdict
  /// and reuses its memory.
  void (*test)(const NodeTest&, const RuleOptions&, NodeVerdict&);
  /// Returns the bonus, the token after a fully accepted path. Autoregressive decoding under the same rule
  /// emits the same token.
  Token (*bonus)(const TargetRow&, const Coins&, std::int64_t position, const RuleOptions&);
  /// The rule's expected acceptance of a single draw from q, or of the token `one_hot` if q is null. Used for
  /// teacher-forced estimates.
  double (*expected)(const TargetRow&, const Distribution* q, Token one_hot, const RuleOptions&);
  /// Computes the distribution of the next emitted token, [vocab], at a node with one child. The child is
  /// drawn from q, or is the token `one_hot` if q is null. Used for the distances of lossy rules and for
  /// proofs.
  void (*output_law)(const TargetRow&, const Distribution* q, Token one_hot, const RuleOptions&,
                     std::vector<double>& law);
  /// Returns the rule with these options in the form that a device runs. Null: the rule has no such form, and
  /// the host judges the drafts.
  DeviceRule (*device_form)(const RuleOptions&, const SamplingParams&) = nullptr;
  CoinUse coins = CoinUse::independent;
  bool chains_only = false;  ///< the rule refuses drafts in which a node has several children
  /// The rule refuses drafts in which the draw of a child depended on another child of the same node.
  bool independent_children_only = false;
  /// The rule refuses drafts that are not independent paths: only the pending token may have several
  /// children, and they were drawn independently from one row.
  bool independent_paths_only = false;
  /// The probability that the rule keeps a token depends on the tokens of the draft after it, or on the depth
  /// of the token in the draft. So there is no acceptance probability of one draw, and such a case has no
  /// alpha.
  bool judges_whole_paths = false;
  /// The rule accepts tokens by their depth in the draft, without the test that `expected` describes. So the
  /// mean of `expected` over positions is not an alpha, and no alpha is estimated by teacher forcing.
  bool accepts_by_depth = false;
  /// After a rejection, the rule draws from q until it accepts a draw. So a step may need any number of
  /// coins, and an enumeration cuts improbable runs.
  bool draws_until_accepted = false;
  /// The rule is lossless with all its options, and it judges node by node with independent coins. It emits a
  /// one-hot token only when it accepts it, because it does not draw this token after a rejection. A replay
  /// of copied drafts needs all this (experiments/simulate/replay/certainty.h).
  bool accepts_what_it_emits = false;
  /// The rule keeps a path of the draft with the probability rho of block and traversal verification. So the
  /// expected tokens of a step are those of StepBounds::by_path (core/theory/step_bounds.h).
  bool keeps_paths_by_rho = false;
  /// The closed form of the rule's steps on chains, if there is one. Each ChainLaw belongs to one rule.
  std::optional<ChainLaw> chain_law = std::nullopt;
  /// Throws Error if the rule refuses this draft. `verify` calls it first, and so does the host before a
  /// device judges the draft. Null: `verify` makes all checks.
  void (*require)(const Draft&) = nullptr;
  void (*verify)(const AcceptanceRule&, const RuleOptions&, const DraftToJudge&,
                 Acceptance&) = verify_by_walk;
};

std::span<const AcceptanceRule> acceptance_rules();
/// Returns the rule of this name. If there is none, throws Error that suggests a similar
/// name, or lists all names if none is similar.
const AcceptanceRule& find_acceptance_rule(std::string_view name);
/// Returns the rule of this name, or null. A record may name a rule that this version does not have.
const AcceptanceRule* recorded_acceptance_rule(std::string_view name);

/// The names of the options that a rule reads.
std::vector<std::string_view> option_names(const AcceptanceRule& rule);
/// The options of all rules, each once.
std::span<const RuleOption* const> all_rule_options();
/// True if some rule has an option of this name.
bool is_rule_option(std::string_view name);

/// Result of one step's verification.
struct Acceptance {
  std::vector<int> path;  ///< accepted nodes from depth 1 on
  Token next = -1;        ///< bonus or correction
  bool bonus = false;     ///< true: the path ended at a leaf; false: at a rejection
  struct Tested {
    int node;
    double p, q;      ///< probabilities of the drafted token; q = 1 for one-hot
    double expected;  ///< expected acceptance, see NodeVerdict
    int rank;         ///< rank of the token in criterion_row(); -1 without want_ranks
    bool accepted;
  };
  std::vector<Tested> tested;
  bool want_ranks =
      false;  ///< input, kept between calls: fill Tested::rank (one pass over the row for each token)
  bool want_expected =
      true;  ///< input, kept between calls: fill Tested::expected (passes over both rows); else it may be -1
};

/// Judges a draft with one rule. `position` is the position of node 0 in the text. This is a pure function:
/// the same input gives the same result.
void accept(const AcceptanceRule& rule, const RuleOptions& options, const Draft& draft,
            const TargetRows& rows, const Coins& coins, std::int64_t position, Acceptance& out);

}  // namespace speclab
