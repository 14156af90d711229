#include "core/theory/position_bound.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <set>
#include <vector>

#include "core/decoding/rules/sibling_draws.h"

namespace speclab::theory {
namespace {

/// A token that q may draw, or several neighbours in the order of p/q that count as one.
struct TokenMass {
  double p, q;
};

/// The tokens of the support of q, by ascending p/q.
std::vector<TokenMass> by_ratio(const Distribution& p, const Distribution& q) {
  std::vector<TokenMass> parts;
  for (Token x = 0; x < q.vocab(); ++x) {
    if (const double drawn = q.prob(x); drawn > 0) parts.push_back({p.prob(x), drawn});
  }
  std::ranges::sort(parts, [](const TokenMass& a, const TokenMass& b) { return a.p * b.q < b.p * a.q; });
  return parts;
}

/// Joins neighbours of small q if there are many parts.
std::vector<TokenMass> grouped(const std::vector<TokenMass>& parts) {
  if (parts.size() <= kMostSingleTokens) return parts;
  constexpr double kMostOfGroup = 1.0 / static_cast<double>(kMostSingleTokens);
  std::vector<TokenMass> out;
  for (const TokenMass& part : parts) {
    if (!out.empty() && out.back().q + part.q <= kMostOfGroup) out.back().p += part.p, out.back().q += part.q;
    else out.push_back(part);
  }
  return out;
}

/// P(the first k draws without replacement are in H), for growing sets H.
///
/// Give each token x an arrival time with the rate q(x). The order of arrival is that of draws without
/// replacement. The first token outside H arrives at a time t with the density r e^(-r t), where r is the
/// mass outside H. All k draws are in H if at least k tokens of H have arrived by then. The number of these
/// is a sum of independent indicators with the probabilities 1 - e^(-q t). The integral over log t is a sum
/// over a grid; the integrand is smooth and falls off fast on both sides, so the sum converges exponentially.
class RaceWithin {
 public:
  explicit RaceWithin(int k) : k_(k), count_(static_cast<std::size_t>(k)) {
    for (std::size_t i = 0; i < kTimes; ++i) time_[i] = std::exp(kFirst + kStep * static_cast<double>(i));
    for (std::size_t j = 0; j < count_.size(); ++j) count_[j].fill(j == 0 ? 1 : 0);
  }
  void add(double q) {
    for (std::size_t i = 0; i < kTimes; ++i) {
      const double stays_away = std::exp(-q * time_[i]);
      for (std::size_t j = count_.size(); j-- > 1;)
        count_[j][i] = count_[j][i] * stays_away + count_[j - 1][i] * (1 - stays_away);
      count_[0][i] *= stays_away;
    }
    ++tokens_;
  }
  double probability(double outside) const {
    if (!(outside > kNothing)) return 1;
    if (tokens_ < k_) return 0;
    double sum = 0;
    for (std::size_t i = 0; i < kTimes; ++i) {
      double fewer = 0;
      for (const auto& exactly : count_) fewer += exactly[i];
      sum += outside * time_[i] * std::exp(-outside * time_[i]) * (1 - fewer);
    }
    return std::clamp(sum * kStep, 0.0, 1.0);
  }

 private:
  static constexpr std::size_t kTimes = 82;
  static constexpr double kFirst = -10, kStep = .5;  // times from 5e-5 to 2e13
  static constexpr double kNothing = 1e-12;          // a smaller mass is rounding
  int k_, tokens_ = 0;
  std::array<double, kTimes> time_{};
  std::vector<std::array<double, kTimes>> count_;  // [j][time]: P(exactly j tokens of H have arrived)
};

double bound_without_replacement(const std::vector<TokenMass>& tokens, int k) {
  // With k tokens or fewer in the support, every one of them is drafted.
  if (tokens.size() <= static_cast<std::size_t>(k)) {
    double p = 0;
    for (const TokenMass& token : tokens) p += token.p;
    return std::min(1.0, p);
  }
  const std::vector<TokenMass> parts = grouped(tokens);
  std::vector<double> outside(parts.size() + 1, 0.0);
  for (std::size_t i = parts.size(); i-- > 0;) outside[i] = outside[i + 1] + parts[i].q;
  // Every set H gives a bound. In a long row only some of the sets are tried.
  const double step = parts.size() <= 256 ? 0 : 1.0 / 1024;
  RaceWithin race(k);
  double least = 0, p = 0, tried = 0;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    p += parts[i].p;
    race.add(parts[i].q);
    const double within = p + (1 - outside[i + 1]);
    if (within - tried < step && i + 1 < parts.size()) continue;
    tried = within;
    least = std::min(least, p - race.probability(outside[i + 1]));
  }
  return 1 + least;
}

/// A row from which some of the children were drawn, and how many of them.
struct DrawnRow {
  const Distribution* q;
  int children;
};

std::vector<DrawnRow> drawn_rows(std::span<const NodeTest::Child> children) {
  std::vector<DrawnRow> rows;
  for (const NodeTest::Child& child : children) {
    if (is_copied(child)) continue;
    const auto known =
        std::ranges::find_if(rows, [&](const DrawnRow& row) { return rules::same_row(*row.q, *child.q); });
    if (known != rows.end()) ++known->children;
    else rows.push_back({child.q, 1});
  }
  return rows;
}

std::set<Token> copied_tokens(std::span<const NodeTest::Child> children) {
  std::set<Token> tokens;
  for (const NodeTest::Child& child : children) {
    if (is_copied(child)) tokens.insert(child.q == nullptr ? child.token : child.q->argmax());
  }
  return tokens;
}

/// The sets H of independent draws, see position_bound().
class IndependentDraws {
 public:
  IndependentDraws(const Distribution& p, std::span<const NodeTest::Child> children)
      : p_(&p), rows_(drawn_rows(children)), within_(rows_.size(), 0.0) {
    const std::set<Token> copied = copied_tokens(children);
    for (Token x = 0; x < p.vocab(); ++x) {
      if (copied.contains(x) || !(p.prob(x) > 0)) add(x);
      else rest_.push_back(x);
    }
    least_ = std::min(0.0, value());
  }
  double bound() {
    for (const DrawnRow& row : rows_) try_in_order([&](Token x) { return row.q->prob(x); });
    if (rows_.size() > 1) {
      try_in_order([&](Token x) {
        double sum = 0;
        for (const DrawnRow& row : rows_) sum += row.q->prob(x);
        return sum;
      });
    }
    return std::min(1.0, 1 + least_);
  }

 private:
  void add(Token x) {
    of_p_ += p_->prob(x);
    for (std::size_t j = 0; j < rows_.size(); ++j) within_[j] += rows_[j].q->prob(x);
  }
  /// p(H) - P(all children in H).
  double value() const {
    double all = 1;
    for (std::size_t j = 0; j < rows_.size(); ++j)
      all *= std::pow(std::min(1.0, within_[j]), rows_[j].children);
    return of_p_ - all;
  }
  /// Tries the sets of the first tokens by ascending p/q. Afterwards H is again what it was before.
  template <class Q>
  void try_in_order(const Q& q) {
    ordered_.clear();
    for (const Token x : rest_) {
      if (const double of_q = q(x); of_q > 0) ordered_.push_back({p_->prob(x) / of_q, x});
    }
    std::ranges::sort(ordered_, {}, &Ordered::ratio);
    const double of_p = of_p_;
    const std::vector<double> within = within_;
    for (const Ordered& entry : ordered_) {
      add(entry.token);
      least_ = std::min(least_, value());
    }
    of_p_ = of_p;
    within_ = within;
  }

  struct Ordered {
    double ratio;
    Token token;
  };
  const Distribution* p_;
  std::vector<DrawnRow> rows_;
  double of_p_ = 0;             // p(H)
  std::vector<double> within_;  // [rows]: q_j(H)
  double least_ = 0;
  std::vector<Token> rest_;  // tokens that are not in every H
  std::vector<Ordered> ordered_;
};

}  // namespace

ChildrenDrawn how_drawn(std::span<const NodeTest::Child> children) {
  std::vector<NodeTest::Child> drawn;
  std::ranges::remove_copy_if(children, std::back_inserter(drawn), is_copied);
  if (drawn.empty()) return ChildrenDrawn::copied;
  bool same = true, without = true;
  for (std::size_t i = 1; i < drawn.size(); ++i) {
    same = same && rules::same_row(*drawn[0].q, *drawn[i].q);
    without = without && rules::drawn_without(*drawn[i - 1].q, drawn[i - 1].token, *drawn[i].q);
  }
  const bool copies = drawn.size() < children.size();
  if (same) return copies ? ChildrenDrawn::independent : ChildrenDrawn::iid;
  if (without) return copies ? ChildrenDrawn::mixed : ChildrenDrawn::without_replacement;
  for (std::size_t j = 1; j < drawn.size(); ++j) {
    for (std::size_t i = 0; i < j; ++i) {
      if (rules::drawn_without(*drawn[i].q, drawn[i].token, *drawn[j].q)) return ChildrenDrawn::mixed;
    }
  }
  return ChildrenDrawn::independent;
}

std::optional<double> position_bound(const Distribution& p, std::span<const NodeTest::Child> children) {
  const auto k = static_cast<int>(children.size());
  switch (how_drawn(children)) {
    case ChildrenDrawn::copied: {
      double mass = 0;
      for (const Token token : copied_tokens(children)) mass += p.prob(token);
      return std::min(1.0, mass);
    }
    case ChildrenDrawn::iid:
      return k == 1 ? overlap(p, *children[0].q) : IndependentDraws(p, children).bound();
    case ChildrenDrawn::without_replacement: return bound_without_replacement(by_ratio(p, *children[0].q), k);
    case ChildrenDrawn::independent: return IndependentDraws(p, children).bound();
    case ChildrenDrawn::mixed: return std::nullopt;
  }
  return std::nullopt;
}

}  // namespace speclab::theory
