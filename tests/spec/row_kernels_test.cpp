#include "core/spec/row_kernels.h"

#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "core/spec/accept.h"

namespace speclab {
namespace {

/// Restores the choice of the CPU's best instruction set.
struct Targets {
  ~Targets() { use(0); }
  static void use(std::int64_t targets) {
    hwy::SetSupportedTargetsForTest(targets);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }
};

/// Everything that the kernels say about one pair of rows, as bits.
std::vector<std::uint64_t> everything(int vocab) {
  std::mt19937 random(vocab);
  std::vector<float> z(vocab), y(vocab);
  const auto next = [&] { return static_cast<float>(random() % 4096) / 256 - 8; };
  for (float& x : z) x = next();
  for (float& x : y) x = next();
  if (vocab > 3) z[3] = -INFINITY;
  std::vector<std::uint64_t> out;
  const auto put = [&](double x) { out.push_back(std::bit_cast<std::uint64_t>(x)); };
  const Coins coins(vocab, 5);
  Distribution p, q;
  for (const SamplingParams params : {SamplingParams{1, 0, 1}, {.7, 40, 1}, {1.3, 0, .9}, {0, 0, 1}}) {
    p.assign_logits(z, params, {}, vocab);
    q.assign_logits(y, {1, 0, 1}, {}, vocab);
    put(p.sum());
    for (const float w : p.weights()) put(w);
    put(p.entropy());
    put(overlap(p, q));
    put(agreement(p, q));
    put(kl_divergence(p, q));
    put(p.argmax());
    put(p.rank(vocab / 2));
    for (int i = 0; i < 20; ++i) {
      put(p.sample(coins, {i, Purpose::target, 0}));
      put(p.sample_coupled(coins, i));
    }
    for (const AcceptanceRule& rule : acceptance_rules()) {
      put(rule.expected({&p, &q}, &q, 0, {.lenience = .7, .b = .6, .beta = 3, .gap = 1}));
    }
  }
  std::vector<float> noise(vocab);
  coins.gumbel(9, 1, noise);
  for (const float g : noise) put(g);
  std::vector<double> residual(vocab);
  p.assign_logits(z, {1, 0, 1}, {}, vocab);
  put(row_kernels::positive_difference({p.weights(), 1 / p.sum()}, {q.weights(), 1 / q.sum()}, residual));
  for (const double r : residual) put(r);
  return out;
}

TEST(RowKernels, SameBitsForEveryInstructionSet) {
  Targets restore;
  int sets = 0;
  const std::int64_t all = hwy::SupportedTargets();
  for (const int vocab : {1, 5, 16, 63, 64, 200, 1031}) {
    Targets::use(0);
    const std::vector<std::uint64_t> best = everything(vocab);
    std::string names = row_kernels::target_name();
    for (std::int64_t rest = all; rest != 0; rest &= rest - 1) {
      Targets::use(rest & -rest);
      ++sets;
      EXPECT_EQ(everything(vocab), best) << row_kernels::target_name() << " against " << names;
    }
  }
  EXPECT_GE(sets, 7);
}

TEST(RowKernels, SumsAreThoseOfSixteenPartialSums) {
  std::vector<float> row(1000);
  for (std::size_t i = 0; i < row.size(); ++i) row[i] = 1.0f / static_cast<float>(i + 1);
  double parts[16] = {};
  for (std::size_t i = 0; i < row.size(); ++i) parts[i % 16] += static_cast<double>(row[i]);
  double total = 0;
  for (const double part : parts) total += part;
  EXPECT_EQ(row_kernels::sum(row), total);
  EXPECT_EQ(row_kernels::sum(std::vector<double>(row.begin(), row.end())), total);
  EXPECT_EQ(row_kernels::sum(std::vector<float>{}), 0);
}

// The race skips tokens that cannot win: it must find the winner of the full race, also for heavy tails and
// few tokens.
TEST(RowKernels, RaceSkipsOnlyLosers) {
  std::mt19937 random(1);
  const int vocab = 3000;
  std::vector<float> weights(vocab), noise(vocab);
  for (int round = 0; round < 400; ++round) {
    const double spread = round % 4 == 0 ? 0 : (round % 40) * .5;
    for (float& w : weights) {
      w = round % 3 == 1 && random() % 10 != 0
              ? 0.0f
              : static_cast<float>(std::exp(-spread * (random() % 1000) / 500.0));
    }
    weights[round] = 1;
    const Coins coins(round, 2);
    coins.gumbel(4, 0, noise);
    const std::size_t winner = coins.race(4, weights);
    ASSERT_LT(winner, weights.size());
    const double score = std::log(double(weights[winner])) + noise[winner];
    for (int x = 0; x < vocab; ++x) {
      ASSERT_TRUE(!(weights[x] > 0) || std::log(double(weights[x])) + noise[x] <= score + 1e-5) << x;
    }
  }
}

}  // namespace
}  // namespace speclab
