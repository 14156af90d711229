// Block verification of one of several paths.
//
// The plan follows Thomas and Pal 2026 (arXiv 2602.16961): the draft is K independent paths; the rule
// greedily chooses one of them and verifies it as a block. How it chooses, and the law of the choice, are
// derived here; the paper may do this in another way.
//
// The rule goes down from the pending token. At each position, m paths begin with the tokens chosen so far.
// They share the rows p and q of the next position, and their next tokens are m independent draws from q.
// Tokens with almost the same p/q form a class (core/backend/path_choice.h), and the classes are ordered by
// p/q. With probability lambda the rule takes the token with the highest class (ties: the token of the first
// path), else the token of the first path. Then it keeps the paths with this token. So the next chosen token
// has the law
//
//   q'(x) = q(x) (1 - lambda + lambda (C^m - c^m) / (C - c)),
//
// where c is the sum of q over the classes below the class of x, and C also includes the class of x. With
// lambda = 1 and many paths, q' gives more mass to a few tokens than p does. So the rule takes the lambda
// that maximises the sum over the classes of min(q', rho p), with rho of the path so far (rules_paths.cpp).
// Because p/q is almost constant in a class, this sum is almost the mean of the next rho. m and the kind of
// choice are random, but what follows depends on them only through q'. So the chosen path is a draw from rows
// that are known, and block verification with q' in place of q is lossless for it (Sun et al. 2024, arXiv
// 2403.10444; rules_paths.cpp explains the residual). This holds for any order of any classes and for any
// lambda. With K = 1, q' is q.
//
// At depth 1 the rule does not reach the optimum for K drafts (core/theory/verifier_bounds.h), because the
// residual forgets the tokens of the paths that were not chosen.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "core/backend/path_choice.h"
#include "core/backend/rule_forms.h"
#include "core/base/error.h"
#include "core/decoding/rows/row_kernels.h"
#include "core/decoding/rules/rules.h"
#include "core/decoding/rules/sibling_draws.h"

namespace speclab::rules {
namespace {

[[noreturn]] void refuse(std::string got) {
  throw Error({.what = "acceptance rule multi_path_block",
               .got = std::move(got),
               .expected = "one chain, or several that were drawn independently from the pending token on",
               .advice = "Use the rule traversal, which judges every tree."});
}

/// Throws Error unless the draft consists of independent paths: only the pending token has several children,
/// tokens after equal tokens were drawn from equal rows, and paths with equal tokens have equal lengths.
void require_independent_paths(const Draft& draft) {
  // The number of children of each node, and the first node whose path has the same tokens.
  thread_local std::vector<int> children, same;
  const TokenTree& tree = draft.tree;
  const int nodes = tree.drafted() + 1;
  children.assign(static_cast<std::size_t>(nodes), 0);
  same.assign(static_cast<std::size_t>(nodes), 0);
  const auto at = [](int node) { return static_cast<std::size_t>(node); };
  for (int node = 1; node < nodes; ++node) ++children[at(tree.parent(node))];
  for (int node = 1; node < nodes; ++node) {
    if (children[at(node)] > 1) refuse(fmt::format("{} children of node {}", children[at(node)], node));
    same[at(node)] = node;
    bool compared = false;
    for (int other = 1; other < node && same[at(node)] == node; ++other) {
      if (same[at(tree.parent(other))] != same[at(tree.parent(node))]) continue;
      const Distribution *a = draft.q_at(other), *b = draft.q_at(node);
      if (a == nullptr || b == nullptr)
        refuse("several paths with equal tokens and a copied token after them");
      if (!compared && !same_row(*a, *b)) refuse("equal tokens whose next tokens are from different rows");
      compared = true;
      if (tree.token(other) == tree.token(node)) same[at(node)] = other;
    }
  }
  for (int node = 1; node < nodes; ++node) {
    if (children[at(node)] != children[at(same[at(node)])])
      refuse("paths with equal tokens and different lengths");
  }
}

/// One node of the chosen path, its parent's row p, and the law q' of its token.
struct ChosenNode {
  int node = 0;
  Token token = -1;
  TargetRow parent{};
  std::vector<double> p, q;  ///< p and q' of all tokens
  double rho = 0;            ///< of the path to this node
};

/// The chosen path. Nodes keep their memory between calls.
class ChosenPath {
 public:
  /// Chooses a path of the draft and computes the laws of its tokens.
  void choose(const DraftToJudge& judged) {
    length = 0;
    const TokenTree& tree = judged.draft.tree;
    tree.children(0, alive_);
    for (int parent = 0; !alive_.empty(); parent = nodes[length - 1].node) {
      extend(judged, parent);
      keep_chosen(tree);
    }
    // Paths with equal tokens are equally good, but all nodes must belong to one path.
    for (std::size_t i = length; i > 1; --i) nodes[i - 2].node = tree.parent(nodes[i - 1].node);
  }

  std::vector<ChosenNode> nodes;
  std::size_t length = 0;

 private:
  /// Adds the next token, after the node `parent`.
  void extend(const DraftToJudge& judged, int parent) {
    const Draft& draft = judged.draft;
    const double rho = length > 0 ? nodes[length - 1].rho : 1;
    if (length == nodes.size()) nodes.emplace_back();
    ChosenNode& chosen = nodes[length++];
    chosen.parent = judged.rows(parent);
    chosen.parent.p->probabilities(chosen.p);
    set_drawn(draft, alive_.front(), chosen);
    const Distribution* drawn = draft.q_at(alive_.front());
    const bool several = alive_.size() > 1 && !drawn->one_hot();
    const double lambda = several ? set_choice(chosen, rho) : 0;
    const bool best = judged.coins.bernoulli(
        lambda, {judged.position, Purpose::accept, kFirstCoinOfChoice + static_cast<std::uint32_t>(parent)});
    chosen.node = alive_.front();
    if (best) {
      chosen.node = *std::ranges::max_element(
          alive_, {}, [&](int node) { return class_of_[static_cast<std::size_t>(draft.tree.token(node))]; });
    }
    chosen.token = draft.tree.token(chosen.node);
    const auto token = static_cast<std::size_t>(chosen.token);
    SPECLAB_CHECK(drawn == nullptr || drawn->prob(chosen.token) > 0,
                  "token {} was drawn from a row that gives it no mass", chosen.token);
    if (lambda > 0) {
      for (std::size_t x = 0; x < chosen.q.size(); ++x)
        chosen.q[x] *= factor_at(classes_[static_cast<std::size_t>(class_of_[x])].factor, lambda);
    }
    chosen.rho = rho_of_child(rho, chosen.p[token], chosen.q[token]);
  }

  /// Sets chosen.q to the law q that the node's token was drawn from. If lambda is 0, this q is also q'.
  static void set_drawn(const Draft& draft, int node, ChosenNode& chosen) {
    if (const Distribution* q = draft.q_at(node)) {
      SPECLAB_CHECK(q->vocab() == chosen.parent.p->vocab(), "draft row of {} tokens, target row of {}",
                    q->vocab(), chosen.parent.p->vocab());
      q->probabilities(chosen.q);
      return;
    }
    chosen.q.assign(chosen.p.size(), 0.0);
    chosen.q[static_cast<std::size_t>(draft.tree.token(node))] = 1;
  }

  /// Sets the class of each token and the RatioClass of each class. Returns lambda.
  double set_choice(const ChosenNode& chosen, double rho) {
    class_of_.assign(chosen.q.size(), 0);
    q_masses_.assign(kRatioClasses, 0);
    p_masses_.assign(kRatioClasses, 0);
    std::uint64_t all = 0, before = 0;
    for (std::size_t x = 0; x < chosen.q.size(); ++x) {
      if (!(chosen.q[x] > 0)) continue;
      class_of_[x] = ratio_class(chosen.p[x], chosen.q[x]);
      const std::uint64_t mass = class_mass(chosen.q[x]);
      all += mass;
      q_masses_[static_cast<std::size_t>(class_of_[x])] += mass;
      p_masses_[static_cast<std::size_t>(class_of_[x])] += class_mass(chosen.p[x]);
    }
    classes_.clear();
    for (std::size_t i = 0; i < q_masses_.size(); ++i) {
      classes_.push_back(
          ratio_class_of(before, q_masses_[i], p_masses_[i], all, static_cast<int>(alive_.size()), rho));
      before += q_masses_[i];
    }
    ShareSearch search;
    while (!search.done()) {
      row_kernels::FixedSum slope;
      for (std::size_t i = 0; i < classes_.size(); ++i)
        slope.add(i, slope_of(classes_[i].gain, classes_[i].room, search.share()));
      search.tell(slope.total());
    }
    return search.found();
  }

  /// Keeps the paths that have the chosen token and go on. Replaces each path's node by the node's child.
  void keep_chosen(const TokenTree& tree) {
    next_.clear();
    for (const int node : alive_) {
      if (tree.token(node) != nodes[length - 1].token) continue;
      tree.children(node, children_);
      if (!children_.empty()) next_.push_back(children_.front());
    }
    std::swap(alive_, next_);
  }

  std::vector<int> alive_, next_, children_;  // alive_: one node of each remaining path; the others: scratch
  std::vector<int> class_of_;                 // [vocab]; only of tokens that q can draw
  std::vector<std::uint64_t> q_masses_, p_masses_;
  std::vector<RatioClass> classes_;
};

/// Writes max(0, rho p - q'), not normalised, to `left`, and returns its sum.
double residual(double rho, const ChosenNode& node, std::vector<double>& left) {
  left.resize(node.q.size());
  return row_kernels::positive_difference(node.p, rho, node.q, left);
}

/// P(the node's token is kept, given that the parent node is kept): sum over x of min(q'(x), rho p(x)) / rho.
double kept_share(double rho, const ChosenNode& node) {
  if (!(rho > 0)) return 0;
  return row_kernels::sum_min_scaled(node.p, node.q, rho) / rho;
}

void verify_chosen_path(const AcceptanceRule& rule, const RuleOptions& options, const DraftToJudge& judged,
                        Acceptance& out) {
  thread_local ChosenPath path;
  thread_local std::vector<double> left;
  require_independent_paths(judged.draft);
  path.choose(judged);
  out.path.clear();
  out.tested.clear();
  std::size_t length = path.length;
  for (; length > 0; --length) {
    const ChosenNode& node = path.nodes[length - 1];
    double pass = node.rho;
    if (length < path.length)
      pass = rho_after_failure(node.rho, residual(node.rho, path.nodes[length], left));
    if (judged.coins.bernoulli(pass,
                               {judged.position, Purpose::accept, static_cast<std::uint32_t>(node.node)}))
      break;
  }
  // A token counts as tested if all tokens before it were accepted.
  for (std::size_t i = 0; i < std::min(length + 1, path.length); ++i) {
    const ChosenNode& node = path.nodes[i];
    const double rho = i > 0 ? path.nodes[i - 1].rho : 1;
    const Distribution* q = judged.draft.q_at(node.node);
    out.tested.push_back({node.node, node.parent.p->prob(node.token),
                          q != nullptr ? q->prob(node.token) : 1.0,
                          out.want_expected ? kept_share(rho, node) : -1,
                          out.want_ranks ? criterion_row(node.parent).rank(node.token) : -1, i < length});
    if (i < length) out.path.push_back(node.node);
  }
  const int last = length > 0 ? path.nodes[length - 1].node : 0;
  out.bonus = length == path.length;
  if (out.bonus) {
    out.next = rule.bonus(judged.rows(last), judged.coins,
                          judged.position + judged.draft.tree.depth(last) + 1, options);
    return;
  }
  const ChosenNode& failed = path.nodes[length];
  const double sum = residual(length > 0 ? path.nodes[length - 1].rho : 1, failed, left);
  const Coins::Address address{judged.position, Purpose::residual, static_cast<std::uint32_t>(last)};
  // With nothing left, p equals q' up to rounding, and the failure had probability 0 up to rounding.
  out.next = sum > 0 ? static_cast<Token>(judged.coins.categorical(left, address))
                     : failed.parent.p->sample(judged.coins, address);
}

DeviceRule multi_path_on_device(const RuleOptions&, const SamplingParams&) {
  return {.rule = AcceptRule::kMultiPath};
}

double expected_of_path(const TargetRow& row, const Distribution* q, Token one_hot, const RuleOptions&) {
  return q == nullptr ? row.p->prob(one_hot) : overlap(*row.p, *q);
}

const std::array<AcceptanceRule, 1> kRules = {{
    {.name = "multi_path_block",
     .summary =
         "choose one of several independent paths, token by token, by p/q; verify it like block with the "
         "law of the choice",
     .source =
         "after Thomas and Pal 2026 (greedy multi-path block verification, arXiv 2602.16961); the choice is "
         "ours",
     .loss = lossless,
     .options = {},
     .test = nullptr,
     .bonus = sample_target,
     .expected = expected_of_path,
     .output_law = law_of_target,
     .device_form = multi_path_on_device,
     .independent_paths_only = true,
     .judges_whole_paths = true,
     .require = require_independent_paths,
     .verify = verify_chosen_path},
}};

}  // namespace

std::span<const AcceptanceRule> multi_path() { return kRules; }

}  // namespace speclab::rules
