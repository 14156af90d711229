// The rules "block" and "traversal", which judge whole paths. They look at nodes beyond the path that they
// accept, and usually accept more tokens of the same draft than the rule "rejection" does. Both are exact
// for the joint distribution of all tokens of a step.
//
// The rules go from a leaf towards the pending token. `rho` of a node is the probability that a step keeps
// the path to this node, given the tokens of the path and of the paths that failed before it. rho is 1 at the
// pending token. Below a node with the law R and the probability rho, a child x ~ q has the probability
// min(1, rho R(x) / q(x)). R is the target's row p until a child of the node fails. A leaf is accepted with
// probability rho. If it fails, the leaf is removed, and its parent changes (Sun et al. 2024, arXiv
// 2403.10444, for chains; "Traversal Verification for Speculative Tree Decoding", arXiv 2505.12398, for
// trees):
//
//   S = sum over x of (rho R(x) - q(x))+,   rho <- S / (S + 1 - rho),   R <- (rho R - q)+ / S,
//
// where y+ is max(y, 0). Then the rule goes to the next child of the parent, and from there always to the
// first child, until it comes to a leaf. A parent without further children is a leaf. The pending token
// always passes. The token after the accepted path is drawn from R of its last node.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "core/backend/rule_forms.h"
#include "core/base/error.h"
#include "core/decoding/rows/row_kernels.h"
#include "core/decoding/rules/rules.h"

namespace speclab::rules {
namespace {

/// The state of a node on the current path: its law R and its probability rho.
class PathNode {
 public:
  void reset(int node, const TargetRow& row, double rho) {
    this->node = node;
    this->row = row;
    this->rho = rho;
    changed_ = false;
    next_child = 0;
    tested.clear();
  }
  bool had_children() const { return next_child > 0; }

  /// R(x).
  double prob(Token x) const {
    return changed_ ? weights_[static_cast<std::size_t>(x)] / sum_ : row.p->prob(x);
  }
  /// P(a child drawn from q is kept, given that this node is kept): sum over x of min(q(x), rho R(x)) / rho.
  /// A child that was not drawn (q is null) is the token `one_hot`.
  double expected(const Distribution* q, Token one_hot) const {
    if (!(rho > 0)) return 0;
    if (q == nullptr || q->one_hot()) return prob(q == nullptr ? one_hot : q->argmax());
    if (row.p->one_hot()) return std::min(q->prob(row.p->argmax()), rho) / rho;
    if (!changed_)
      return row_kernels::sum_min({row.p->weights(), rho / row.p->sum()}, {q->weights(), 1 / q->sum()}) / rho;
    return row_kernels::sum_min_residual(weights_, sum_, rho, q->weights(), q->sum()) / rho;
  }
  /// Changes R and rho after a child failed. The child was drawn from q, or is `one_hot` if q is null.
  void remove(const Distribution* q, Token one_hot) {
    if (q != nullptr && q->one_hot()) {
      one_hot = q->argmax();
      q = nullptr;
    }
    const double left = row.p->one_hot() ? one_hot_left(q, one_hot) : subtract(q, one_hot);
    rho = rho_after_failure(rho, left);
  }
  Token sample(const Coins& coins, std::int64_t position) const {
    const Coins::Address address{position, Purpose::residual, static_cast<std::uint32_t>(node)};
    return changed_ ? static_cast<Token>(coins.categorical(weights_, address))
                    : row.p->sample(coins, address);
  }

  int node = 0;
  TargetRow row{};
  double rho = 1;
  std::size_t next_child = 0;  ///< children before this one failed or lie on the path
  std::vector<int> children;
  std::vector<Acceptance::Tested> tested;  ///< the children so far

 private:
  // The residual of a one-hot row is the row itself, so R does not change. Returns S.
  double one_hot_left(const Distribution* q, Token one_hot) const {
    const Token only = row.p->argmax();
    return path_residual(rho, 1, q != nullptr ? q->prob(only) : only == one_hot ? 1 : 0);
  }
  // Replaces R by (rho R - q)+ and returns its sum S. Leaves R as it is if S is 0.
  double subtract(const Distribution* q, Token one_hot) {
    if (!changed_ && q != nullptr) {
      spare_.resize(row.p->weights().size());
      return take(row_kernels::positive_difference({row.p->weights(), rho / row.p->sum()},
                                                   {q->weights(), 1 / q->sum()}, spare_));
    }
    spare_.resize(static_cast<std::size_t>(row.p->vocab()));
    if (q != nullptr)
      return take(row_kernels::next_residual(weights_, sum_, rho, q->weights(), q->sum(), spare_));
    row_kernels::FixedSum left;
    for (Token x = 0; x < row.p->vocab(); ++x) {
      double& to = spare_[static_cast<std::size_t>(x)];
      to = path_residual(rho, prob(x), x == one_hot ? 1 : 0);
      left.add(static_cast<std::size_t>(x), to);
    }
    return take(left.total());
  }
  double take(double left) {
    if (!(left > 0)) return 0;
    std::swap(weights_, spare_);
    sum_ = left;
    changed_ = true;
    return left;
  }

  std::vector<double> weights_, spare_;  // R, not normalised, if changed_; the next R
  double sum_ = 1;
  bool changed_ = false;
};

/// The nodes from the pending token to the current one. The nodes keep their memory between calls.
struct CurrentPath {
  std::vector<PathNode> nodes;
  std::size_t length = 0;

  PathNode& push() {
    if (length == nodes.size()) nodes.emplace_back();
    return nodes[length++];
  }
  PathNode& last() { return nodes[length - 1]; }
};

/// Goes from the last node of the path to its next child, and from there always to the first child, down to a
/// leaf.
void descend(const DraftToJudge& judged, const Acceptance& wanted, CurrentPath& path) {
  for (;;) {
    PathNode& parent = path.last();
    if (parent.next_child == parent.children.size()) return;
    const int child = parent.children[parent.next_child++];
    const Token token = judged.draft.tree.token(child);
    const Distribution* q = judged.draft.q_at(child);
    const double q_token = q != nullptr ? q->prob(token) : 1;
    SPECLAB_CHECK(q_token > 0, "token {} was drawn from a row that gives it no mass", token);
    SPECLAB_CHECK(q == nullptr || q->vocab() == parent.row.p->vocab(),
                  "draft row of {} tokens, target row of {}", q->vocab(), parent.row.p->vocab());
    const double rho = rho_of_child(parent.rho, parent.prob(token), q_token);
    parent.tested.push_back({child, parent.row.p->prob(token), q_token,
                             wanted.want_expected ? parent.expected(q, token) : -1,
                             wanted.want_ranks ? criterion_row(parent.row).rank(token) : -1, false});
    PathNode& node = path.push();  // may move the nodes, so `parent` is no longer used
    node.reset(child, judged.rows(child), rho);
    judged.draft.tree.children(child, node.children);
  }
}

void verify_paths(const AcceptanceRule& rule, const RuleOptions& options, const DraftToJudge& judged,
                  Acceptance& out) {
  thread_local CurrentPath path;
  const TokenTree& tree = judged.draft.tree;
  path.length = 0;
  PathNode& root = path.push();
  root.reset(0, judged.rows(0), 1);
  tree.children(0, root.children);
  for (;;) {
    descend(judged, out, path);
    const int node = path.last().node;
    if (path.length == 1 || judged.coins.bernoulli(path.last().rho, {judged.position, Purpose::accept,
                                                                     static_cast<std::uint32_t>(node)}))
      break;
    --path.length;
    path.last().remove(judged.draft.q_at(node), tree.token(node));
  }
  out.path.clear();
  out.tested.clear();
  for (std::size_t i = 0; i < path.length; ++i) {
    if (i > 0) out.path.push_back(path.nodes[i].node);
    if (i + 1 < path.length) path.nodes[i].tested.back().accepted = true;
    const std::vector<Acceptance::Tested>& tested = path.nodes[i].tested;
    out.tested.insert(out.tested.end(), tested.begin(), tested.end());
  }
  const PathNode& last = path.last();
  out.bonus = !last.had_children();
  out.next = out.bonus
                 ? rule.bonus(last.row, judged.coins, judged.position + tree.depth(last.node) + 1, options)
                 : last.sample(judged.coins, judged.position);
}

void require_chain(const Draft& draft) {
  thread_local std::vector<int> children;
  for (int node = 0;;) {
    draft.tree.children(node, children);
    if (children.empty()) break;
    if (children.size() > 1) {
      throw Error({.what = "acceptance rule block",
                   .got = fmt::format("a draft with {} children of one node", children.size()),
                   .expected = "a chain",
                   .advice = "Use the rule traversal, which is the same rule for trees."});
    }
    node = children.front();
  }
}

void verify_block(const AcceptanceRule& rule, const RuleOptions& options, const DraftToJudge& judged,
                  Acceptance& out) {
  require_chain(judged.draft);
  verify_paths(rule, options, judged, out);
}

DeviceRule on_device(const RuleOptions&, const SamplingParams&) { return {.rule = AcceptRule::kPaths}; }

double expected(const TargetRow& row, const Distribution* q, Token one_hot, const RuleOptions&) {
  return q == nullptr ? row.p->prob(one_hot) : overlap(*row.p, *q);
}

constexpr std::string_view kSummary =
    "from the leaf to the root: keep a path with probability rho, the product of p/q along it, capped at 1 "
    "after each token; after a rejection draw from norm(max(0, rho p - q)) at the last node that is kept";

const std::array<AcceptanceRule, 2> kRules = {{
    {.name = "block",
     .summary = kSummary,
     .source = "Sun et al. 2024 (block verification, arXiv 2403.10444); chains",
     .loss = lossless,
     .options = {},
     .test = nullptr,
     .bonus = sample_target,
     .expected = expected,
     .output_law = law_of_target,
     .device_form = on_device,
     .chains_only = true,
     .judges_whole_paths = true,
     .keeps_paths_by_rho = true,
     .chain_law = ChainLaw::block,
     .require = require_chain,
     .verify = verify_block},
    {.name = "traversal",
     .summary = kSummary,
     .source =
         "Traversal Verification for Speculative Tree Decoding (arXiv 2505.12398); on a chain it is block "
         "verification",
     .loss = lossless,
     .options = {},
     .test = nullptr,
     .bonus = sample_target,
     .expected = expected,
     .output_law = law_of_target,
     .device_form = on_device,
     .judges_whole_paths = true,
     .keeps_paths_by_rho = true,
     .verify = verify_paths},
}};

}  // namespace

std::span<const AcceptanceRule> paths() { return kRules; }

}  // namespace speclab::rules
