#include "core/theory/verifier_bounds.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <numeric>
#include <random>

#include "core/base/error.h"
#include "core/theory/chain.h"

namespace speclab::theory::verifier_bounds_test {
namespace {

using Row = std::vector<double>;
constexpr DraftedSet kIid = DraftedSet::iid, kWithout = DraftedSet::without_replacement;
const Row kP = {.55, .25, .15, .05}, kQ = {.4, .35, .05, .2};

Row bound_row(std::size_t vocab, std::mt19937& random) {
  Row row(vocab);
  while (std::accumulate(row.begin(), row.end(), 0.0) == 0) {
    for (double& x : row) x = random() % 3 == 0 ? 0 : static_cast<double>(1 + random() % 50);
  }
  const double sum = std::accumulate(row.begin(), row.end(), 0.0);
  for (double& x : row) x /= sum;
  return row;
}

/// P(all k drafts are in H) by a walk over the draws, one after the other.
double walk_within(const Row& q, int k, DraftedSet drawn, unsigned set, double left = 1, unsigned gone = 0) {
  if (k == 0 || left <= 1e-12) return 1;
  double mass = 0;
  for (std::size_t x = 0; x < q.size(); ++x) {
    if ((gone >> x & 1) != 0 || (set >> x & 1) == 0 || q[x] <= 0) continue;
    const bool again = drawn == kIid;
    mass += q[x] / left *
            walk_within(q, k - 1, drawn, set, again ? left : left - q[x], again ? gone : gone | 1U << x);
  }
  return mass;
}

/// The bound with the minimum over all 2^V sets.
double over_all_sets(const Row& p, const Row& q, int k, DraftedSet drawn) {
  double least = 0;
  for (unsigned set = 0; set < 1U << p.size(); ++set) {
    double mass = 0;
    for (std::size_t x = 0; x < p.size(); ++x) mass += (set >> x & 1) != 0 ? p[x] : 0;
    least = std::min(least, mass - walk_within(q, k, drawn, set));
  }
  return 1 + least;
}

TEST(VerifierBounds, OfTheGoldenPair) {
  EXPECT_NEAR(row_overlap(kP, kQ), .75, 1e-12);
  EXPECT_NEAR(best_acceptance(kP, kQ, 1, kIid), .75, 1e-12) << "one draft: the overlap";
  EXPECT_NEAR(best_acceptance(kP, kQ, 1, kWithout), .75, 1e-12);
  EXPECT_NEAR(best_acceptance(kP, kQ, 2, kIid), .9475, 1e-12);
  EXPECT_NEAR(best_acceptance(kP, kQ, 3, kIid), .992625, 1e-12);
  EXPECT_NEAR(best_acceptance(kP, kQ, 2, kWithout), .972756, 5e-7);
  EXPECT_NEAR(best_acceptance(kP, kQ, 3, kWithout), 1, 1e-12);
  EXPECT_NEAR(coupling_acceptance(kP, kQ), .706441, 5e-7);
  const double by_block[] = {1, 1.75, 2.3675, 2.883625, 3.32580625, 3.708890, 4.0441};
  for (int gamma = 0; gamma <= 6; ++gamma)
    EXPECT_NEAR(best_chain_tokens(kP, kQ, gamma), by_block[gamma], gamma < 5 ? 1e-9 : 5e-5) << gamma;
  const double limit = expected_tokens_limit(row_overlap(kP, kQ));
  EXPECT_NEAR(limit, 4, 1e-12);
  EXPECT_LT(best_chain_tokens(kP, kQ, 5), limit);
  EXPECT_GT(best_chain_tokens(kP, kQ, 6), limit) << "1 / (1 - alpha) bounds the token rule only";
}

TEST(VerifierBounds, AreThoseOfALinearProgram) {
  std::ifstream file(SPECLAB_SOURCE_DIR "/tests/golden/verifier_bounds.json");
  const nlohmann::json golden = nlohmann::json::parse(file);
  ASSERT_EQ(golden.size(), 48u);
  for (const auto& one : golden) {
    Row p = one["p"].get<Row>(), q = one["q"].get<Row>();
    for (Row* row : {&p, &q}) {
      const double sum = std::accumulate(row->begin(), row->end(), 0.0);
      for (double& x : *row) x /= sum;
    }
    EXPECT_NEAR(best_acceptance(p, q, one["k"], kIid), one["iid"].get<double>(), 2e-9) << one.dump();
    EXPECT_NEAR(best_acceptance(p, q, one["k"], kWithout), one["without_replacement"].get<double>(), 2e-9)
        << one.dump();
  }
}

// The minimum over the sets of the smallest p/q is the minimum over all sets.
TEST(VerifierBounds, NeedOnlyTheSetsInOrderOfTheRatio) {
  std::mt19937 random(3);
  for (int i = 0; i < 60; ++i) {
    const std::size_t vocab = 2 + random() % 5;
    const Row p = bound_row(vocab, random), q = bound_row(vocab, random);
    for (int k = 1; k <= 3; ++k) {
      for (const DraftedSet drawn : {kIid, kWithout})
        ASSERT_NEAR(best_acceptance(p, q, k, drawn), over_all_sets(p, q, k, drawn), 1e-12) << i << " " << k;
    }
  }
}

// Enumerates all drafts of three tokens.
TEST(VerifierBounds, OfAChainAreMeansOverAllDrafts) {
  std::mt19937 random(5);
  for (int i = 0; i < 20; ++i) {
    const Row p = bound_row(4, random), q = bound_row(4, random);
    double tokens = 1;
    for (std::size_t a = 0; a < 4; ++a) {
      const double rho_a = q[a] > 0 ? std::min(1.0, p[a] / q[a]) : 0;
      tokens += q[a] * rho_a;
      for (std::size_t b = 0; b < 4; ++b) {
        const double rho_b = q[b] > 0 ? std::min(1.0, rho_a * p[b] / q[b]) : 0;
        tokens += q[a] * q[b] * rho_b;
        for (std::size_t c = 0; c < 4; ++c)
          tokens += q[c] > 0 ? q[a] * q[b] * q[c] * std::min(1.0, rho_b * p[c] / q[c]) : 0;
      }
    }
    EXPECT_NEAR(best_chain_tokens(p, q, 3), tokens, 1e-12);
    EXPECT_GE(tokens, expected_tokens(row_overlap(p, q), 3) - 1e-12) << "never below the token rule";
  }
}

TEST(VerifierBounds, OfEqualAndOfDisjointRows) {
  const Row zero_one = {0, 1}, one_zero = {1, 0};
  EXPECT_EQ(best_acceptance(zero_one, one_zero, 3, kIid), 0);
  EXPECT_EQ(coupling_acceptance(zero_one, one_zero), 0);
  EXPECT_EQ(best_chain_tokens(zero_one, one_zero, 5), 1);
  EXPECT_NEAR(best_acceptance(kP, kP, 1, kWithout), 1, 1e-12);
  EXPECT_NEAR(coupling_acceptance(kP, kP), 1, 1e-12);
  EXPECT_NEAR(best_chain_tokens(kP, kP, 5), 6, 1e-12);
  // All tokens of q are drawn when k is its support or more.
  EXPECT_NEAR(best_acceptance(one_zero, Row{.5, .5}, 2, kWithout), 1, 1e-12);
  EXPECT_NEAR(best_acceptance(one_zero, Row{.5, .5}, 2, kIid), .75, 1e-12);
  EXPECT_NEAR(best_acceptance(one_zero, Row{.5, .5}, 9, kWithout), 1, 1e-12);
}

TEST(VerifierBounds, AppearWhenTheirInputsAreKnown) {
  const auto names = [](const RowInputs& rows) {
    std::vector<std::string> out;
    for (const Prediction& one : verifier_bounds(rows)) {
      out.push_back(one.name);
      EXPECT_EQ(one.kind, PredictionKind::bound) << one.name;
    }
    return out;
  };
  using testing::ElementsAre;
  EXPECT_THAT(
      names({.p = kP, .q = kQ, .k = 2, .gamma = {}}),
      ElementsAre("row_overlap", "coupling_alpha", "best_alpha_iid", "best_alpha_without_replacement"));
  const Row wide(kMostTokensWithoutReplacement + 1, 1.0 / (kMostTokensWithoutReplacement + 1));
  EXPECT_THAT(names({.p = wide, .q = wide, .k = 2, .gamma = 2}),
              ElementsAre("row_overlap", "coupling_alpha", "best_alpha_iid", "best_chain_tau"));
}

TEST(VerifierBounds, RefuseRowsThatAreNoLaws) {
  const auto fails = [](const Row& p, const Row& q, int k, const char* text) {
    try {
      best_acceptance(p, q, k, kWithout);
      ADD_FAILURE() << text;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr(text));
    }
  };
  fails({.5, .4}, {.5, .5}, 2, "the sum 0.9");
  fails({.5, .5}, {1.5, -.5}, 2, "-0.5");
  fails({.5, .5}, {1}, 2, "2 probabilities, as in p");
  fails({.5, .5}, {.5, .5}, 0, "1 to 1000");
  const Row wide(21, 1.0 / 21);
  fails(wide, wide, 2, "at most 20 tokens");
  Row rough = {.1, .11, .12, .13, .14, .15, .25}, other = {.14, .15, .16, .13, .12, .11, .19};
  EXPECT_THROW(best_chain_tokens(rough, other, 40), Error);
}

}  // namespace
}  // namespace speclab::theory::verifier_bounds_test
