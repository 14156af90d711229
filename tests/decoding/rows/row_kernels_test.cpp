#include "core/decoding/rows/row_kernels.h"

#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "core/base/exp_log.h"
#include "core/decoding/rules/accept.h"
#include "core/decoding/rows/top_kernels.h"

namespace speclab::row_kernels_test {
namespace {

/// Restores the choice of the CPU's best instruction set.
struct Targets {
  ~Targets() { use(0); }
  static void use(std::int64_t targets) {
    hwy::SetSupportedTargetsForTest(targets);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }
};

/// All results of the kernels for one pair of rows, as bits.
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
  std::vector<float> maxima;
  std::vector<TopEntry> entries;
  first_entries(z, {}, 8, maxima, entries);
  for (const TopEntry& e : entries) put(e.index);
  std::vector<double> residual(vocab);
  p.assign_logits(z, {1, 0, 1}, {}, vocab);
  put(row_kernels::positive_difference({p.weights(), 1 / p.sum()}, {q.weights(), 1 / q.sum()}, residual));
  for (const double r : residual) put(r);
  std::vector<double> further(vocab);
  put(row_kernels::next_residual(residual, .7, 1.3, q.weights(), q.sum(), further));
  for (const double r : further) put(r);
  put(row_kernels::sum_min_residual(residual, .7, 1.3, q.weights(), q.sum()));
  put(row_kernels::sum_min_divided(residual, further, 1.3));
  put(row_kernels::sum_min_scaled(residual, further, 1.3));
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

// A GPU computes residual_weight() entry by entry, and the host must have its bits.
TEST(RowKernels, TheNextResidualIsThatOfTheScalarFormula) {
  std::mt19937 random(7);
  for (const int vocab : {1, 15, 16, 17, 300, 2100}) {
    for (const double scale : {1.0, 1 / .7}) {
      std::vector<double> law(vocab), out(vocab);
      std::vector<double> weights(vocab);
      for (double& x : law) x = random() % 3 == 0 ? 0 : static_cast<double>(random() % 1000) / 999;
      for (double& x : weights) x = static_cast<double>(1 + random() % 50);
      Distribution q;
      q.assign_weights(weights);
      const double law_sum = row_kernels::sum(law) + .1;
      const RatioForm form{.scale = scale};
      row_kernels::FixedSum sum;
      std::vector<double> wanted(vocab);
      for (int x = 0; x < vocab; ++x) {
        const auto i = static_cast<std::size_t>(x);
        wanted[i] = residual_weight(form, law[i] / law_sum, q.prob(x));
        EXPECT_EQ(path_residual(scale, law[i] / law_sum, q.prob(x)), wanted[i]) << x;
        sum.add(i, wanted[i]);
      }
      const double left = row_kernels::next_residual(law, law_sum, scale, q.weights(), q.sum(), out);
      EXPECT_EQ(left, sum.total()) << vocab;
      EXPECT_EQ(out, wanted) << vocab;
    }
  }
}

// A GPU computes difference_weight() entry by entry.
TEST(RowKernels, TheDifferenceOfTwoRowsIsThatOfTheScalarFormula) {
  std::mt19937 random(9);
  for (const int vocab : {1, 15, 16, 17, 300, 2100}) {
    for (const double scale : {1.0, 1 / .7, .3}) {
      std::vector<double> of_p(vocab), of_q(vocab), out(vocab), wanted(vocab);
      for (double& x : of_p) x = static_cast<double>(1 + random() % 50);
      for (double& x : of_q) x = static_cast<double>(1 + random() % 50);
      Distribution p, q;
      p.assign_weights(of_p);
      q.assign_weights(of_q);
      const double p_factor = scale / p.sum(), q_factor = 1 / q.sum();
      row_kernels::FixedSum sum;
      for (int x = 0; x < vocab; ++x) {
        const auto i = static_cast<std::size_t>(x);
        wanted[i] = difference_weight(p.weights()[i], p_factor, q.weights()[i], q_factor);
        sum.add(i, wanted[i]);
      }
      EXPECT_EQ(row_kernels::positive_difference({p.weights(), p_factor}, {q.weights(), q_factor}, out),
                sum.total())
          << vocab;
      EXPECT_EQ(out, wanted) << vocab;
    }
  }
}

TEST(RowKernels, SumsOfSmallerEntriesAreThoseOfTheScalarFormula) {
  std::mt19937 random(8);
  for (const int vocab : {1, 15, 16, 17, 300, 2100}) {
    std::vector<double> law(vocab), drawn(vocab), weights(vocab);
    for (double& x : law) x = random() % 3 == 0 ? 0 : static_cast<double>(random() % 1000) / 999;
    for (double& x : weights) x = static_cast<double>(1 + random() % 50);
    Distribution q;
    q.assign_weights(weights);
    q.probabilities(drawn);
    const double law_sum = row_kernels::sum(law) + .1, scale = .8, rho = 1.7;
    row_kernels::FixedSum divided, residual, scaled, difference;
    std::vector<double> left(vocab), wanted(vocab);
    for (int x = 0; x < vocab; ++x) {
      const auto i = static_cast<std::size_t>(x);
      divided.add(i, std::min(drawn[i], law[i] / rho));
      residual.add(i, std::min(q.prob(x), scale * (law[i] / law_sum)));
      scaled.add(i, std::min(drawn[i], scale * law[i]));
      difference.add(i, wanted[i] = path_residual(scale, law[i], drawn[i]));
    }
    EXPECT_EQ(row_kernels::sum_min_scaled(law, drawn, scale), scaled.total()) << vocab;
    EXPECT_EQ(row_kernels::positive_difference(law, scale, drawn, left), difference.total()) << vocab;
    EXPECT_EQ(left, wanted) << vocab;
    EXPECT_EQ(row_kernels::sum_min_divided(law, drawn, rho), divided.total()) << vocab;
    EXPECT_EQ(row_kernels::sum_min_residual(law, law_sum, scale, q.weights(), q.sum()), residual.total())
        << vocab;
  }
}

// At least `count` entries must reach the bar. In an unordered row few more may, which makes the bar useful.
TEST(RowKernels, ABarThatEnoughEntriesReach) {
  std::mt19937 random(1);
  double reaching = 0;
  for (int round = 0; round < 200; ++round) {
    const std::size_t size = round < 100 ? 768 : 1 + random() % 100;
    std::vector<float> row(size);
    for (float& x : row) x = static_cast<float>(random() % (round % 2 == 0 ? 1 << 24 : 5));
    if (round % 3 == 0) row[random() % size] = NAN;
    for (std::size_t count = 1; count <= std::min<std::size_t>(16, size); ++count) {
      const float bar = row_kernels::reached_by(row, count);
      const auto found = static_cast<std::size_t>(std::count_if(
          row.begin(), row.end(), [&](float x) { return x >= bar || (std::isnan(x) && bar < 0); }));
      EXPECT_GE(found, count) << size;
      if (round < 100 && round % 2 == 0 && count == 8) reaching += static_cast<double>(found) / 50;
    }
  }
  EXPECT_LT(reaching, 13);  // 10.6 on average: sum over j < 8 of 16 / (16 - j)
}

TEST(RowKernels, FirstEntriesAreThoseOfTheSortedRow) {
  std::mt19937 random(2);
  std::vector<float> scratch;
  std::vector<TopEntry> found;
  for (const std::size_t size : {1, 7, 64, 65, 130, 1000, 1031, 5000}) {
    for (const unsigned levels : {1u, 3u, 40u, 1u << 24}) {  // few levels give many ties
      std::vector<float> row(size);
      std::vector<TopEntry> sorted;
      for (std::size_t i = 0; i < size; ++i) {
        row[i] = random() % 9 == 0 ? -INFINITY : static_cast<float>(random() % levels) - 3;
        sorted.push_back({row[i], static_cast<Token>(i)});
      }
      std::sort(sorted.begin(), sorted.end(), comes_first);
      std::vector<float> by_block;
      for (std::size_t i = 0; i < size; i += row_kernels::kBlock)
        by_block.push_back(
            *std::max_element(row.begin() + i, row.begin() + std::min(i + row_kernels::kBlock, size)));
      for (const std::size_t count : {0, 1, 2, 8, 16, 17, 64, 900, 6000}) {
        for (const bool known : {false, true}) {
          first_entries(row, known ? std::span<const float>(by_block) : std::span<const float>(), count,
                        scratch, found);
          std::sort(found.begin(), found.end(), comes_first);
          ASSERT_EQ(found.size(), std::min(count, size));
          for (std::size_t i = 0; i < found.size(); ++i)
            ASSERT_EQ(found[i].index, sorted[i].index)
                << size << " entries, " << levels << " levels, " << i << " of " << count << ", " << known;
        }
      }
    }
  }
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

// The race skips tokens that cannot win. It must find the winner of the full race, also for heavy tails and
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

// Devices compute entropies with exact_log (core/backend/cuda/kernels/criterion.h).
TEST(RowKernels, LogarithmsAreThoseOfADevice) {
  std::mt19937 random(3);
  for (int i = 0; i < 10000; ++i) {
    const float w = i == 0 ? 0.0f : std::exp(-std::uniform_real_distribution<float>(-5, 87)(random));
    EXPECT_EQ(row_kernels::sum_w_log_w({&w, 1}), w * exact_log(w)) << w;
  }
}

}  // namespace
}  // namespace speclab::row_kernels_test
