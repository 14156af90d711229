#include "core/theory/lookahead.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "core/base/error.h"

namespace speclab::theory::lookahead_test {
namespace {

constexpr LookaheadLaw kPaper{.alpha = .425, .f = 3.106};

LookaheadCell cell(const LookaheadShape& shape, double compression, int prompts = 1) {
  LookaheadCell out{shape, {}, {}};
  for (int i = 0; i < prompts; ++i) {
    out.tokens.push_back(100 * compression);
    out.steps.push_back(100);
  }
  return out;
}

std::vector<LookaheadCell> grid(const LookaheadLaw& law, bool only_square) {
  std::vector<LookaheadCell> cells;
  for (const int n : {3, 5, 7}) {
    for (const int w : {1, 4, 15}) {
      cells.push_back(cell({w, n, w}, law.compression({w, n, w})));
      if (!only_square) cells.push_back(cell({w, n, 2 * w + 1}, law.compression({w, n, 2 * w + 1})));
    }
  }
  return cells;
}

// Published ablation on a 7B model, no n-grams of the prompt: W = G = 15, N = 5 has S = 1.96.
TEST(LookaheadLaw, GoldenValues) {
  EXPECT_NEAR(kPaper.compression({15, 5, 15}), 1.979, 5e-4);
  EXPECT_NEAR(kPaper.compression({10, 5, 10}), 1.867, 5e-4);
  EXPECT_NEAR(kPaper.compression({7, 5, 7}), 1.762, 5e-4);
  EXPECT_EQ(lookahead_rows({15, 5, 15}), 120);
}

TEST(LookaheadLaw, BetweenWindowAndGuesses) {
  const LookaheadLaw law{.alpha = .4, .f = 2, .share = .7};
  EXPECT_GT(law.compression({30, 5, 1}), law.compression({1, 5, 30}));
  EXPECT_LT(law.compression({30, 5, 1}), law.compression({30, 5, 30}));
  EXPECT_EQ(law.compression({0, 5, 30}), 1);
  EXPECT_EQ(law.compression({30, 5, 0}), 1);
}

TEST(LookaheadFit, FindsTheLawThatMadeTheCells) {
  for (const LookaheadLaw& law :
       {kPaper, LookaheadLaw{.alpha = .7, .f = 6}, LookaheadLaw{.alpha = .1, .f = 1.2}}) {
    const LookaheadLaw found = fit_lookahead(grid(law, true));
    EXPECT_NEAR(found.alpha, law.alpha, 1e-3);
    EXPECT_NEAR(found.f, law.f, 1e-2);
  }
  const LookaheadLaw both{.alpha = .5, .f = 2.5, .share = .65};
  const LookaheadLaw found = fit_lookahead(grid(both, false));
  EXPECT_NEAR(found.alpha, both.alpha, 2e-3);
  EXPECT_NEAR(found.f, both.f, 2e-2);
  EXPECT_NEAR(found.share, both.share, 5e-3);
  EXPECT_THROW(fit_lookahead(std::vector<LookaheadCell>{cell({3, 4, 3}, 1.2)}), Error);
}

TEST(LookaheadFit, HasIntervalsOverPrompts) {
  // Noise per prompt that is the same in all cells, as with easy and hard prompts.
  std::mt19937 random(3);
  std::normal_distribution<double> noise(0, .2);
  std::vector<double> ease;
  for (int i = 0; i < 20; ++i) ease.push_back(noise(random));
  std::vector<LookaheadCell> cells = grid(kPaper, true);
  for (LookaheadCell& c : cells) {
    const double s = c.compression();
    c.tokens.clear();
    c.steps.clear();
    for (const double e : ease) {
      c.tokens.push_back(200);
      c.steps.push_back(200 / (1 + (s - 1) * std::exp(e)));
    }
  }
  const LookaheadFit fit = analyse_lookahead(cells, 200);
  EXPECT_FALSE(fit.share_fitted);
  ASSERT_TRUE(fit.alpha && fit.f);
  EXPECT_LT(fit.f->lo, fit.law.f);
  EXPECT_GT(fit.f->hi, fit.law.f);
  EXPECT_LT(fit.f->hi - fit.f->lo, 1.5);
  EXPECT_FALSE(fit.share);
}

TEST(LookaheadKnee, FollowsTheMachine) {
  // Rows are free up to 128 and cost their share beyond. The best setting uses all free rows.
  std::map<int, double> flat{{1, 1.0}, {128, 1.0}, {256, 2.0}};
  const LookaheadChoice gpu = best_lookahead(kPaper, RowTimes(flat), 64, 8);
  EXPECT_LE(lookahead_rows(gpu.shape), 128);
  EXPECT_GT(gpu.speedup, 1.9);
  // If every row costs a third of a forward, no setting pays.
  const LookaheadChoice cpu =
      best_lookahead(kPaper, RowTimes(std::map<int, double>{{1, 1.0}, {4, 2.0}, {100, 34.0}}), 64, 8);
  EXPECT_EQ(cpu.shape.W, 0);
  EXPECT_EQ(cpu.speedup, 1);
  const LookaheadChoice given = predict_lookahead(kPaper, {15, 5, 15}, RowTimes(flat));
  EXPECT_NEAR(given.speedup, 1.979, 5e-4);
  // With half of the rows per column, twice the window is free.
  const LookaheadChoice wide = predict_lookahead(kPaper, {32, 5, 32}, RowTimes(flat), .5);
  EXPECT_EQ(wide.speedup, wide.compression);
  EXPECT_GT(best_lookahead(kPaper, RowTimes(flat), 64, 8, .5).speedup, gpu.speedup);
  // One and a half rows must not be rounded to one. Here every row costs a forward, so no setting pays.
  const LookaheadChoice narrow =
      predict_lookahead(kPaper, {1, 2, 1}, RowTimes(std::map<int, double>{{1, 1.0}, {2, 2.0}}), .75);
  EXPECT_NEAR(narrow.speedup, narrow.compression / 1.5, 1e-12);
  // A bar of 0 returns the best setting even if it is slow.
  const LookaheadChoice slow =
      best_lookahead(kPaper, RowTimes(std::map<int, double>{{1, 1.0}, {4, 4.0}}), 64, 8, 1, {{}, 1, 0});
  EXPECT_GE(slow.shape.W, 1);
  EXPECT_LT(slow.speedup, 1);
}

TEST(LookaheadParallelism, DividesColumnsAndGuesses) {
  const LookaheadShape shape{15, 5, 15};
  EXPECT_EQ(lookahead_device_rows(shape, 1), std::vector<int>{120});
  const std::vector<int> four = lookahead_device_rows(shape, 4);
  int columns = 0;
  for (const int rows : four) {
    EXPECT_LT(rows, 60);
    columns += rows;
  }
  EXPECT_GT(columns, 120);  // the first level and the pending token are fed more than once
  const RowTimes linear(std::map<int, double>{{1, 1.0}, {2, 1.1}, {240, 24.9}});
  const double one = lookahead_parallel_speedup(kPaper, shape, linear, 1, 9),
               two = lookahead_parallel_speedup(kPaper, shape, linear, 2, 0);
  EXPECT_GT(two, one);
  EXPECT_LT(lookahead_parallel_speedup(kPaper, shape, linear, 2, 1), two);
  // If a row costs as much as t(1), feeding S - 1 tokens again costs S - 1.
  const RowTimes dear(std::map<int, double>{{1, 1.0}, {240, 240.0}});
  const double compression = kPaper.compression(shape);
  const std::vector<int> halves = lookahead_device_rows(shape, 2);
  EXPECT_NEAR(lookahead_parallel_speedup(kPaper, shape, dear, 2, 3),
              compression / (*std::max_element(halves.begin(), halves.end()) + compression - 1 + 3), 1e-12);
  EXPECT_THROW(lookahead_device_rows(shape, 0), Error);
}

}  // namespace
}  // namespace speclab::theory::lookahead_test
