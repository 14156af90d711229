// The best draft length for measured times of rows: by the monotone fit, with
// the interval that chance gives it.
#include <gtest/gtest.h>

#include <cmath>

#include "core/theory/predictions.h"

namespace speclab::theory::optimal_gamma_test {
namespace {

/// Times of a forward by rows, measured on two cores. From six rows on each has few samples, and the one of
/// 25 rows was fast by luck.
RowTimes measured() {
  return RowTimes(std::map<int, double>{
      {1, 1},      {2, 1.028},  {3, 1.047},  {4, 1.077},  {5, 1.097},  {6, 1.144},  {7, 1.149},
      {8, 1.208},  {9, 1.181},  {10, 1.107}, {11, 1.142}, {12, 1.187}, {13, 1.23},  {14, 1.327},
      {15, 1.422}, {16, 1.468}, {17, 1.723}, {18, 1.844}, {19, 1.46},  {20, 1.506}, {21, 1.61},
      {22, 1.587}, {23, 1.703}, {24, 2.219}, {25, 1.54},  {26, 1.761}, {27, 1.808}, {28, 2.095},
      {29, 2.109}, {30, 1.673}, {31, 2.022}, {32, 2.049}});
}

Prediction named(const PredictionInputs& inputs, const std::string& name) {
  for (const Prediction& prediction : predictions(inputs)) {
    if (prediction.name == name) return prediction;
  }
  ADD_FAILURE() << "no " << name;
  return {};
}

TEST(OptimalGamma, IsNotThatOfALuckySample) {
  constexpr double kAlpha = .93;
  // The raw times would choose 24 drafted tokens, because the forward of 25 rows was faster than that of 24.
  double raw = 0;
  int raw_gamma = 0;
  for (int gamma = 0; gamma < 32; ++gamma) {
    const double speedup = expected_tokens(kAlpha, gamma) / measured().ratio(gamma + 1);
    if (speedup > raw) raw = speedup, raw_gamma = gamma;
  }
  EXPECT_EQ(raw_gamma, 24);
  EXPECT_NEAR(raw, 7.76, .01);
  const OptimalGamma best = optimal_gamma_at_costs(kAlpha, 0, measured(), 31);
  EXPECT_EQ(best.gamma, 12);
  EXPECT_NEAR(best.speedup, 7.09, .01);

  const std::vector<double> acceptance(31, kAlpha);
  EXPECT_EQ(optimal_gamma_positional(acceptance, 0, measured()).gamma, 12);

  PredictionInputs inputs;
  inputs.alpha = kAlpha, inputs.c = 0, inputs.target = measured(), inputs.max_gamma = 31;
  EXPECT_EQ(named(inputs, "optimal_gamma_measured_t").value, 12);
  EXPECT_NEAR(named(inputs, "optimal_speedup_measured_t").value, 7.09, .01);
  EXPECT_NE(named(inputs, "optimal_gamma_measured_t").assumptions.find("monotone fit"), std::string::npos);
}

TEST(OptimalGamma, OfLookaheadDecodingNeither) {
  PredictionInputs inputs;
  inputs.alpha = .5, inputs.f = 2, inputs.lookahead = LookaheadShape{4, 3, 4};
  std::map<int, double> times;
  for (int rows = 1; rows <= 64; ++rows) times[rows] = 1 + rows / 10.;
  inputs.target = RowTimes(times);
  const double honest = named(inputs, "lookahead_best_speedup").value;
  times[32] = 1;  // a forward of 32 rows takes the time of one row
  inputs.target = RowTimes(times);
  const double chosen = named(inputs, "lookahead_best_speedup").value;
  EXPECT_LT(chosen, 1.25 * honest) << "a lucky sample lowers the fit around it, and no more";
}

TEST(OptimalGamma, HasTheIntervalOfOtherCalibrations) {
  PredictionInputs inputs;
  inputs.alpha = .8, inputs.c = .05, inputs.target = measured();
  EXPECT_FALSE(named(inputs, "optimal_gamma_measured_t").ci);
  for (int i = 0; i <= 40; ++i) inputs.resampled.push_back({.02 + .002 * i, measured()});  // c from .02 to .1
  const Prediction gamma = named(inputs, "optimal_gamma_measured_t");
  const Prediction speedup = named(inputs, "optimal_speedup_measured_t");
  ASSERT_TRUE(gamma.ci && speedup.ci);
  const OptimalGamma cheap = optimal_gamma_at_costs(.8, .022, measured(), 64),
                     dear = optimal_gamma_at_costs(.8, .098, measured(), 64);
  EXPECT_EQ(gamma.ci->lo, dear.gamma);
  EXPECT_EQ(gamma.ci->hi, cheap.gamma);
  EXPECT_NEAR(speedup.ci->lo, dear.speedup, 1e-12);
  EXPECT_NEAR(speedup.ci->hi, cheap.speedup, 1e-12);
  EXPECT_LE(gamma.ci->lo, gamma.value);
  EXPECT_GE(gamma.ci->hi, gamma.value);
  inputs.resampled.resize(8);  // with few, the quantile falls between two draft lengths
  const Prediction of_few = named(inputs, "optimal_gamma_measured_t");
  EXPECT_EQ(of_few.ci->lo, std::floor(of_few.ci->lo));
  EXPECT_EQ(of_few.ci->hi, std::ceil(of_few.ci->hi));
  EXPECT_FALSE(named(inputs, "optimal_speedup").ci) << "t(n) is not in it";
}

}  // namespace
}  // namespace speclab::theory::optimal_gamma_test
