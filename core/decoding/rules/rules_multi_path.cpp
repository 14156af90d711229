// Block verification of one of several paths.
//
// The plan is that of Thomas and Pal 2026 (arXiv 2602.16961): the draft is K independent paths; the rule
// greedily chooses one of them and verifies it as a block. How it chooses, and the law of the choice, are
// derived here; the paper may do this in another way.
//
// The rule goes down from the pending token. At each position, m paths begin with the tokens chosen so far.
// They share the rows p and q of the next position, and their next tokens are m independent draws from q.
// With probability lambda the rule takes the token with the largest p/q (ties: the lowest id), else the token
// of the first path. Then it keeps the paths with this token. So the next chosen token has the law
//
//   q'(x) = (1 - lambda) q(x) + lambda (C(x)^m - c(x)^m),
//
// where c(x) and C(x) are the sums of q over the tokens before x, and up to x, in ascending order of p/q.
// With lambda = 1 and many paths, q' gives more mass to a few tokens than p does. So the rule takes the
// lambda that maximises the sum of min(q', rho p), which is the mean of the next rho. m and the kind of
// choice are random, but what follows depends on them only through q'. So the chosen path is a draw from rows
// that are known, and block verification with q' in place of q is lossless for it (Sun et al. 2024, arXiv
// 2403.10444; rules_paths.cpp explains rho and the residual). With K = 1, q' is q.
//
// At depth 1 the rule does not reach the optimum for K drafts (core/theory/verifier_bounds.h), because the
// residual forgets the tokens of the paths that were not chosen.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "core/base/error.h"
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

/// b^m - a^m divided by b - a.
double difference_quotient(double a, double b, int m) {
  double sum = 0, power = 1;
  for (int i = 0; i < m; ++i) {
    sum = sum * b + power;
    power *= a;
  }
  return sum;
}

/// One node of the chosen path, its parent's row p, and the law q' of its token.
struct ChosenNode {
  int node = 0;
  Token token = -1;
  TargetRow parent{};
  std::vector<double> q;
  double rho = 0;  ///< of the path to this node
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
    // Paths with equal tokens are equally good, but the nodes must be those of one path.
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
    const Distribution& p = *chosen.parent.p;
    set_drawn(draft, p);
    const double lambda = alive_.size() > 1 ? set_best(p, rho) : 0;
    chosen.q = drawn_;
    if (lambda > 0) {
      for (std::size_t i = 0; i < drawn_.size(); ++i) chosen.q[i] += lambda * (best_[i] - drawn_[i]);
    }
    const bool best = judged.coins.bernoulli(
        lambda, {judged.position, Purpose::accept, kFirstCoinOfChoice + static_cast<std::uint32_t>(parent)});
    chosen.node = !best ? alive_.front() : *std::ranges::max_element(alive_, [&](int a, int b) {
      return comes_before(draft.tree.token(a), draft.tree.token(b));
    });
    chosen.token = draft.tree.token(chosen.node);
    const double q = chosen.q[static_cast<std::size_t>(chosen.token)];
    SPECLAB_CHECK(q > 0, "token {} was drawn from a row that gives it no mass", chosen.token);
    chosen.rho = std::min(1.0, rho * p.prob(chosen.token) / q);
  }

  /// Sets q, the law of the next token of each remaining path.
  void set_drawn(const Draft& draft, const Distribution& p) {
    const Distribution* q = draft.q_at(alive_.front());
    for (const int node : alive_) {
      const Distribution* other = draft.q_at(node);
      if (alive_.size() > 1 && (q == nullptr || other == nullptr))
        refuse("several paths with equal tokens and a copied token after them");
      SPECLAB_CHECK(other == nullptr || other->vocab() == p.vocab(),
                    "draft row of {} tokens, target row of {}", other->vocab(), p.vocab());
      if (q != nullptr && !same_row(*q, *other)) refuse("tokens after equal ones from different rows");
    }
    if (q != nullptr) {
      q->probabilities(drawn_);
      return;
    }
    drawn_.assign(static_cast<std::size_t>(p.vocab()), 0.0);
    drawn_[static_cast<std::size_t>(draft.tree.token(alive_.front()))] = 1;
  }

  /// Sets the law of the token with the largest p/q, and returns lambda.
  double set_best(const Distribution& p, double rho) {
    const auto paths = static_cast<int>(alive_.size());
    ratio_.resize(drawn_.size());
    order_.clear();
    for (std::size_t i = 0; i < drawn_.size(); ++i) {
      if (!(drawn_[i] > 0)) continue;
      ratio_[i] = p.prob(static_cast<Token>(i)) / drawn_[i];
      order_.push_back(static_cast<Token>(i));
    }
    std::ranges::sort(order_, [this](Token a, Token b) { return comes_before(a, b); });
    best_.assign(drawn_.size(), 0.0);
    double before = 0;
    for (const Token x : order_) {
      const auto i = static_cast<std::size_t>(x);
      best_[i] = drawn_[i] * difference_quotient(before, before + drawn_[i], paths);
      before += drawn_[i];
    }
    return best_share(p, rho);
  }
  bool comes_before(Token a, Token b) const {
    const double ra = ratio_[static_cast<std::size_t>(a)], rb = ratio_[static_cast<std::size_t>(b)];
    return ra < rb || (ra == rb && a > b);
  }

  /// The lambda that maximises the sum over x of min(q'(x), rho p(x)). The sum is concave in lambda and
  /// linear between the points where q'(x) = rho p(x) for some x. Its slope falls at each of them by |best -
  /// q|.
  double best_share(const Distribution& p, double rho) {
    double slope = 0;
    bends_.clear();
    for (const Token x : order_) {
      const auto i = static_cast<std::size_t>(x);
      const double limit = rho * p.prob(x), step = best_[i] - drawn_[i];
      if (step == 0) continue;
      const bool below = drawn_[i] < limit || (drawn_[i] == limit && step < 0);
      if (below) slope += step;
      const double at = (limit - drawn_[i]) / step;
      if (at > 0 && at < 1) bends_.push_back({at, std::abs(step)});
    }
    std::ranges::sort(bends_);
    for (const auto& [at, change] : bends_) {
      if (!(slope > 0)) return 0;
      slope -= change;
      if (!(slope > 0)) return at;
    }
    return slope > 0 ? 1 : 0;
  }

  /// Keeps the paths with the chosen token, and replaces their nodes by the children.
  void keep_chosen(const TokenTree& tree) {
    next_.clear();
    std::size_t kept = 0;
    for (const int node : alive_) {
      if (tree.token(node) != nodes[length - 1].token) continue;
      ++kept;
      tree.children(node, children_);
      if (children_.size() > 1) refuse(fmt::format("{} children of node {}", children_.size(), node));
      if (!children_.empty()) next_.push_back(children_.front());
    }
    if (!next_.empty() && next_.size() != kept) refuse("paths with equal tokens and different lengths");
    std::swap(alive_, next_);
  }

  /// The choice has coins of its own: numbers beyond those of the nodes.
  static constexpr std::uint32_t kFirstCoinOfChoice = 0x80000000;

  std::vector<int> alive_, next_, children_;  // one node of each remaining path
  std::vector<double> drawn_, best_, ratio_;  // q, the law of the best token, p/q
  std::vector<Token> order_;                  // the support of q, ascending in p/q
  std::vector<std::pair<double, double>> bends_;
};

/// Writes (rho p - q')+, not normalised, to `left`, and returns its sum.
double residual(double rho, const Distribution& p, const std::vector<double>& q, std::vector<double>& left) {
  left.resize(q.size());
  double sum = 0;
  for (std::size_t i = 0; i < q.size(); ++i)
    sum += left[i] = std::max(0.0, rho * p.prob(static_cast<Token>(i)) - q[i]);
  return sum;
}

/// P(the node's token is kept, given that its parent is): sum over x of min(q'(x), rho p(x)) / rho.
double kept_share(double rho, const ChosenNode& node) {
  if (!(rho > 0)) return 0;
  double kept = 0;
  for (std::size_t i = 0; i < node.q.size(); ++i)
    kept += std::min(node.q[i], rho * node.parent.p->prob(static_cast<Token>(i)));
  return kept / rho;
}

void verify_chosen_path(const AcceptanceRule& rule, const RuleOptions& options, const DraftToJudge& judged,
                        Acceptance& out) {
  thread_local ChosenPath path;
  thread_local std::vector<double> left;
  path.choose(judged);
  out.path.clear();
  out.tested.clear();
  std::size_t length = path.length;
  for (; length > 0; --length) {
    const ChosenNode& node = path.nodes[length - 1];
    double pass = node.rho;
    if (length < path.length) {
      const ChosenNode& next = path.nodes[length];
      const double sum = residual(node.rho, *next.parent.p, next.q, left);
      pass = sum > 0 ? sum / (sum + (1 - node.rho)) : node.rho < 1 ? 0 : 1;
    }
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
  const double sum = residual(length > 0 ? path.nodes[length - 1].rho : 1, *failed.parent.p, failed.q, left);
  const Coins::Address address{judged.position, Purpose::residual, static_cast<std::uint32_t>(last)};
  // With nothing left, p equals q' up to rounding, and the failure had probability 0 up to rounding.
  out.next = sum > 0 ? static_cast<Token>(judged.coins.categorical(left, address))
                     : failed.parent.p->sample(judged.coins, address);
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
     .independent_paths_only = true,
     .judges_whole_paths = true,
     .verify = verify_chosen_path},
}};

}  // namespace

std::span<const AcceptanceRule> multi_path() { return kRules; }

}  // namespace speclab::rules
