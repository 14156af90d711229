#include "core/theory/verifier_bounds.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <string>
#include <utility>

#include "core/base/error.h"
#include "core/theory/domain.h"

namespace speclab::theory {
namespace {

void require_row(const char* name, std::span<const double> row) {
  double sum = 0;
  for (const double x : row) sum += require_non_negative(name, x);
  if (!(std::abs(sum - 1) <= 1e-6)) {
    throw Error({name, fmt::format("{} numbers with the sum {}", row.size(), sum),
                 "probabilities with the sum 1", "Divide each number by the sum."});
  }
}

void require_rows(std::span<const double> p, std::span<const double> q) {
  require_row("p", p);
  require_row("q", q);
  if (p.size() != q.size()) {
    throw Error({"q", fmt::format("{} probabilities", q.size()),
                 fmt::format("{} probabilities, as in p", p.size()), "Write 0 for a token without mass."});
  }
}

int require_drafts(int k) {
  if (k < 1 || k > 1000) throw Error({"k", fmt::format("{}", k), "an integer from 1 to 1000", ""});
  return k;
}

/// The probability of each set of tokens to be the set of the first k draws without replacement. A set is a
/// number with one bit per token. `visit(set, probability)` gets each such set of k tokens. If the support of
/// q has fewer than k tokens, `visit` gets the whole support instead.
template <class Visit>
void for_sets_of_draws(std::span<const double> q, int k, const Visit& visit) {
  const auto vocab = static_cast<int>(q.size());
  if (vocab > kMostTokensWithoutReplacement) {
    throw Error(
        {"p and q", fmt::format("{} tokens", vocab),
         fmt::format("at most {} tokens for draws without replacement", kMostTokensWithoutReplacement),
         "Leave out tokens of small probability and renormalise."});
  }
  const auto support = static_cast<int>(std::ranges::count_if(q, [](double x) { return x > 0; }));
  const int most = std::min(k, support);
  std::vector<double> probability(std::size_t{1} << vocab, 0.0);
  probability[0] = 1;
  // A set is a larger number than each of its subsets, so its probability is complete when it is reached.
  for (std::uint32_t set = 0; set < probability.size(); ++set) {
    if (probability[set] <= 0) continue;
    if (std::popcount(set) == most) {
      visit(set, probability[set]);
      continue;
    }
    double left = 0;
    for (int x = 0; x < vocab; ++x) left += (set >> x & 1) != 0 ? 0 : q[static_cast<std::size_t>(x)];
    for (int x = 0; x < vocab; ++x) {
      if ((set >> x & 1) == 0)
        probability[set | std::uint32_t{1} << x] += probability[set] * q[static_cast<std::size_t>(x)] / left;
    }
  }
}

/// The tokens by ascending p/q. A token without mass in p and q counts as ratio 0.
std::vector<int> by_ratio(std::span<const double> p, std::span<const double> q) {
  std::vector<double> ratio(p.size());
  for (std::size_t x = 0; x < p.size(); ++x)
    ratio[x] = q[x] > 0 ? p[x] / q[x] : p[x] > 0 ? std::numeric_limits<double>::infinity() : 0;
  std::vector<int> order(p.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, [&](int a, int b) {
    return ratio[static_cast<std::size_t>(a)] < ratio[static_cast<std::size_t>(b)];
  });
  return order;
}

/// A value of rho, the product of p/q along a draft, capped at 1 after each factor; and its probability.
struct Kept {
  double rho, mass;
};

/// Joins neighbours whose difference is rounding, so that the list grows with the number of different
/// products.
void join_equal(std::vector<Kept>& list) {
  constexpr double kRounding = 1e-14;
  std::ranges::sort(list, {}, &Kept::rho);
  std::size_t last = 0;
  for (std::size_t i = 1; i < list.size(); ++i) {
    if (list[i].rho - list[last].rho <= kRounding * list[i].rho) list[last].mass += list[i].mass;
    else list[++last] = list[i];
  }
  list.resize(std::min(list.size(), last + 1));
}

}  // namespace

double row_overlap(std::span<const double> p, std::span<const double> q) {
  require_rows(p, q);
  double sum = 0;
  for (std::size_t x = 0; x < p.size(); ++x) sum += std::min(p[x], q[x]);
  return sum;
}

double coupling_acceptance(std::span<const double> p, std::span<const double> q) {
  require_rows(p, q);
  double sum = 0;
  for (std::size_t x = 0; x < p.size(); ++x) {
    if (!(p[x] > 0 && q[x] > 0)) continue;
    double below = 0;
    for (std::size_t y = 0; y < p.size(); ++y) below += std::max(p[y] / p[x], q[y] / q[x]);
    sum += 1 / below;
  }
  return sum;
}

std::vector<double> all_drafts_within(std::span<const double> q, int k, DraftedSet drawn,
                                      std::span<const int> order) {
  require_row("q", q);
  require_drafts(k);
  std::vector<double> within(q.size() + 1, 0.0);
  if (drawn == DraftedSet::iid) {
    double mass = 0;
    for (std::size_t i = 0; i < order.size(); ++i) {
      mass += q[static_cast<std::size_t>(order[i])];
      within[i + 1] = std::pow(mass, k);
    }
    return within;
  }
  std::vector<std::size_t> place(q.size());
  for (std::size_t i = 0; i < order.size(); ++i) place[static_cast<std::size_t>(order[i])] = i;
  for_sets_of_draws(q, k, [&](std::uint32_t set, double probability) {
    std::size_t last = 0;
    for (std::size_t x = 0; x < q.size(); ++x) {
      if ((set >> x & 1) != 0) last = std::max(last, place[x]);
    }
    within[last + 1] += probability;
  });
  std::partial_sum(within.begin(), within.end(), within.begin());
  return within;
}

double best_acceptance(std::span<const double> p, std::span<const double> q, int k, DraftedSet drawn) {
  require_rows(p, q);
  const std::vector<int> order = by_ratio(p, q);
  const std::vector<double> within = all_drafts_within(q, k, drawn, order);
  double least = 0, p_mass = 0;
  for (std::size_t i = 0; i < order.size(); ++i) {
    p_mass += p[static_cast<std::size_t>(order[i])];
    least = std::min(least, p_mass - within[i + 1]);
  }
  return 1 + least;
}

double best_chain_tokens(std::span<const double> p, std::span<const double> q, int gamma) {
  require_rows(p, q);
  require_gamma("gamma", gamma);
  constexpr std::size_t kMostValues = 400'000;
  std::vector<Kept> now = {{1, 1}}, next;
  double tokens = 1;
  for (int i = 0; i < gamma; ++i) {
    if (now.size() * p.size() > kMostValues) {
      throw Error({"gamma", fmt::format("{} with rows of {} tokens each", gamma, p.size()),
                   "a chain with fewer different products of p/q",
                   "Take a smaller gamma, or rows with fewer tokens."});
    }
    next.clear();
    for (const Kept& before : now) {
      for (std::size_t x = 0; x < p.size(); ++x) {
        if (q[x] > 0) next.push_back({std::min(1.0, before.rho * p[x] / q[x]), before.mass * q[x]});
      }
    }
    join_equal(next);
    for (const Kept& kept : next) tokens += kept.rho * kept.mass;
    std::swap(now, next);
  }
  return tokens;
}

std::vector<Prediction> verifier_bounds(const RowInputs& rows) {
  const auto& [p, q, k, gamma] = rows;
  std::vector<Prediction> out;
  const auto add = [&](const char* name, double value, const char* quantity, const char* equation,
                       std::string assumptions) {
    out.push_back({name, value, quantity, equation, std::move(assumptions), PredictionKind::bound, {}});
  };
  add("row_overlap", row_overlap(p, q), "alpha", "sum_x min(p, q)",
      "one drafted token; the rule rejection reaches it");
  add("coupling_alpha", coupling_acceptance(p, q), "alpha", "sum_x 1 / sum_y max(p_y/p_x, q_y/q_x)",
      "one drafted token, draft and target share noise and nothing else; the rule coupled reaches it");
  const char* transport = "1 + min_H (p(H) - P(all k drafts in H))";
  add("best_alpha_iid", best_acceptance(p, q, k, DraftedSet::iid), "alpha", transport,
      fmt::format("any lossless verifier of {} children of one node, drawn independently", k));
  if (p.size() <= kMostTokensWithoutReplacement) {
    add("best_alpha_without_replacement", best_acceptance(p, q, k, DraftedSet::without_replacement), "alpha",
        transport,
        fmt::format("any lossless verifier of {} children of one node, drawn without replacement", k));
  }
  if (gamma) {
    add("best_chain_tau", best_chain_tokens(p, q, *gamma), "tau", "1 + sum_i E[rho_i]",
        "any lossless verifier of a chain; the rows are the same at all positions; the rule block reaches "
        "it");
  }
  return out;
}

}  // namespace speclab::theory
