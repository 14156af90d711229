#include "core/theory/position_bound.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

namespace speclab::theory::position_bound_test {
namespace {

using Weights = std::vector<double>;

Distribution law(const Weights& weights) {
  Distribution out;
  out.assign_weights(weights);
  return out;
}

/// k children of q, drawn independently or without replacement. The bound looks at the rows alone, so any
/// tokens will do: those of the smallest ids.
struct DrawnChildren {
  std::vector<Distribution> rows;
  std::vector<NodeTest::Child> children;
  DrawnChildren(const Distribution& q, int k, DraftedSet drawn) {
    rows.reserve(static_cast<std::size_t>(k));
    Token next = 0;
    for (int i = 0; i < k; ++i) {
      rows.push_back(i == 0 ? q : rows.back());
      if (i > 0 && drawn == DraftedSet::without_replacement) {
        rows.back().take_out(children.back().token);
        if (!(rows.back().sum() > 0)) break;
      }
      while (!(rows.back().prob(next) > 0)) ++next;
      children.push_back({next, &rows.back()});
      if (drawn == DraftedSet::without_replacement) ++next;
    }
  }
};

double bound(const Weights& p, const Weights& q, int k, DraftedSet drawn) {
  const Distribution of_q = law(q);
  const DrawnChildren drafted(of_q, k, drawn);
  return position_bound(law(p), drafted.children).value();
}

const Weights kGoldenP = {.55, .25, .15, .05}, kGoldenQ = {.4, .35, .05, .2};

TEST(PositionBound, GoldenPair) {
  EXPECT_NEAR(bound(kGoldenP, kGoldenQ, 1, DraftedSet::iid), .75, 1e-7);
  EXPECT_NEAR(bound(kGoldenP, kGoldenQ, 2, DraftedSet::iid), .9475, 1e-7);
  EXPECT_NEAR(bound(kGoldenP, kGoldenQ, 3, DraftedSet::iid), .992625, 1e-7);
  EXPECT_NEAR(bound(kGoldenP, kGoldenQ, 2, DraftedSet::without_replacement), .972756, 1e-6);
  EXPECT_NEAR(bound(kGoldenP, kGoldenQ, 3, DraftedSet::without_replacement), 1, 1e-7);
}

// best_acceptance() sums over all sets of tokens; tests compare it with a linear program.
TEST(PositionBound, EqualsTheSumOverSets) {
  std::mt19937 random(3);
  for (int trial = 0; trial < 200; ++trial) {
    const std::size_t vocab = 4 + random() % 5;
    Weights p(vocab), q(vocab);
    for (std::size_t x = 0; x < vocab; ++x) {
      p[x] = random() % 4 == 0 ? 0 : static_cast<double>(1 + random() % 100);
      // Weights over nine orders of magnitude, as in a row of a model.
      q[x] = random() % 5 == 0 ? 0 : std::pow(10., -static_cast<double>(random() % 900) / 100);
    }
    p[0] += 1;
    q[1] += 1;
    const double p_sum = std::accumulate(p.begin(), p.end(), 0.),
                 q_sum = std::accumulate(q.begin(), q.end(), 0.);
    for (std::size_t x = 0; x < vocab; ++x) p[x] /= p_sum, q[x] /= q_sum;
    const int k = 2 + static_cast<int>(random() % 3);
    const auto support = std::ranges::count_if(q, [](double weight) { return weight > 0; });
    EXPECT_NEAR(bound(p, q, k, DraftedSet::iid), best_acceptance(p, q, k, DraftedSet::iid), 1e-6);
    if (support >= k) {
      EXPECT_NEAR(bound(p, q, k, DraftedSet::without_replacement),
                  best_acceptance(p, q, k, DraftedSet::without_replacement), 2e-6)
          << trial << " k " << k;
    }
  }
}

/// The bound of two draws without replacement, by P(both in H) = q(H) A(H) - B(H), where A is the sum of
/// q / (1 - q) over H and B that of q^2 / (1 - q).
double two_without_replacement(const Weights& p, const Weights& q) {
  std::vector<std::size_t> order(p.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::sort(order, [&](std::size_t a, std::size_t b) { return p[a] * q[b] < p[b] * q[a]; });
  double least = 0, of_p = 0, of_q = 0, a = 0, b = 0;
  for (const std::size_t x : order) {
    of_p += p[x];
    of_q += q[x];
    a += q[x] / (1 - q[x]);
    b += q[x] * q[x] / (1 - q[x]);
    least = std::min(least, of_p - (of_q * a - b));
  }
  return 1 + least;
}

// Groups make the bound larger, never smaller.
TEST(PositionBound, OfARowWithManyTokens) {
  std::mt19937 random(5);
  std::normal_distribution<double> normal;
  for (const double spread : {2., 3., 4.}) {
    Weights p(20'000), q(20'000);
    double p_sum = 0, q_sum = 0;
    for (std::size_t x = 0; x < p.size(); ++x) {
      p_sum += p[x] = std::exp(spread * normal(random));
      q_sum += q[x] = std::exp(spread * normal(random));
    }
    for (std::size_t x = 0; x < p.size(); ++x) p[x] /= p_sum, q[x] /= q_sum;
    const double exact = two_without_replacement(p, q),
                 found = bound(p, q, 2, DraftedSet::without_replacement);
    EXPECT_GT(found, exact - 1e-5);
    EXPECT_LT(found, exact + .002);
    EXPECT_LT(exact, .99) << "a row in which the bound says something";
  }
}

TEST(PositionBound, OfCopiedChildrenIsTheirMass) {
  const std::vector<NodeTest::Child> children = {{0, nullptr}, {2, nullptr}, {0, nullptr}};
  EXPECT_NEAR(*position_bound(law(kGoldenP), children), .7, 1e-7) << "a token counts once";
}

TEST(PositionBound, TellsHowChildrenWereDrawn) {
  const Distribution q = law(kGoldenQ), other = law(kGoldenP);
  const DrawnChildren iid(q, 2, DraftedSet::iid), without(q, 2, DraftedSet::without_replacement);
  EXPECT_EQ(how_drawn(iid.children), ChildrenDrawn::iid);
  EXPECT_EQ(how_drawn(without.children), ChildrenDrawn::without_replacement);
  const std::vector<NodeTest::Child> models = {{0, &q}, {1, &other}}, merged = {{0, &q}, {1, nullptr}};
  EXPECT_EQ(how_drawn(models), ChildrenDrawn::independent);
  EXPECT_EQ(how_drawn(merged), ChildrenDrawn::independent);
  const std::vector<NodeTest::Child> beside = {without.children[0], {2, &other}, without.children[1]},
                                     copied = {without.children[0], without.children[1], {3, nullptr}};
  EXPECT_EQ(how_drawn(beside), ChildrenDrawn::mixed) << "the third row depends on the first draw";
  EXPECT_EQ(how_drawn(copied), ChildrenDrawn::mixed);
  EXPECT_FALSE(position_bound(q, beside));
  EXPECT_FALSE(position_bound(q, copied));
}

/// 1 + min over all sets H of (p(H) - P(all children in H)), with one draw from each row and with copies.
double over_all_sets(const Weights& p, const std::vector<Weights>& rows, const std::vector<Token>& copies) {
  double least = 0;
  for (unsigned set = 0; set < 1u << p.size(); ++set) {
    const auto mass = [&](const Weights& row) {
      double sum = 0;
      for (std::size_t x = 0; x < row.size(); ++x) sum += (set >> x & 1) != 0 ? row[x] : 0;
      return sum;
    };
    double all = 1;
    for (const Weights& row : rows) all *= mass(row);
    for (const Token token : copies) all *= set >> token & 1;
    least = std::min(least, mass(p) - all);
  }
  return 1 + least;
}

// The minimum may be at a set that is not tried, so the bound may lie above the optimum. It is never below
// it.
TEST(PositionBound, OfIndependentDrawsIsNeverBelowTheOptimum) {
  std::mt19937 random(11);
  constexpr int kTrials = 1000;
  int reached = 0, of_one_row = 0;
  for (int trial = 0; trial < kTrials; ++trial) {
    const std::size_t vocab = 3 + random() % 4, count = 1 + random() % 3;
    const auto row = [&] {
      Weights weights(vocab);
      for (double& weight : weights) weight = random() % 4 == 0 ? 0 : static_cast<double>(1 + random() % 100);
      weights[0] += 1;
      const double sum = std::accumulate(weights.begin(), weights.end(), 0.);
      for (double& weight : weights) weight /= sum;
      return weights;
    };
    const Weights p = row();
    std::vector<Weights> rows;
    const bool one_row = random() % 3 == 0;
    for (std::size_t i = 0; i < count; ++i) rows.push_back(one_row && i > 0 ? rows.front() : row());
    std::vector<Token> copies(random() % 3);
    for (Token& token : copies) token = static_cast<Token>(random() % vocab);
    std::vector<Distribution> laws;
    for (const Weights& weights : rows) laws.push_back(law(weights));
    std::vector<NodeTest::Child> children;
    // Every row contains token 0, and each drawn child is token 0. So no row looks like another row without a
    // drawn token, and the draws count as independent.
    for (const Distribution& q : laws) children.push_back({0, &q});
    for (const Token token : copies) children.push_back({token, nullptr});
    const double found = position_bound(law(p), children).value(), best = over_all_sets(p, rows, copies);
    ASSERT_GE(found, best - 1e-6) << trial;
    ASSERT_LE(found, 1) << trial;
    reached += found < best + 1e-6 ? 1 : 0;
    if (one_row || count == 1) {
      ++of_one_row;
      EXPECT_NEAR(found, best, 1e-6) << trial << ": one row, " << count << " draws";
    }
  }
  EXPECT_GT(of_one_row, kTrials / 4);
  EXPECT_GE(reached, kTrials * 98 / 100) << "the sets that are tried are nearly always enough";
}

}  // namespace
}  // namespace speclab::theory::position_bound_test
