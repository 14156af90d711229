#include "core/theory/conversions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "core/base/error.h"

namespace speclab::theory::conversions_test {
namespace {

std::map<std::string, Prediction> converted(const PredictionInputs& inputs,
                                            std::optional<double> utilization = {}) {
  std::map<std::string, Prediction> out;
  for (const Prediction& one : conversions(inputs, utilization)) out[one.name] = one;
  return out;
}

std::vector<std::string> conversion_names(const PredictionInputs& inputs) {
  std::vector<std::string> out;
  for (const Prediction& one : conversions(inputs, {})) out.push_back(one.name);
  return out;
}

TEST(Conversions, AppearWhenTheirInputsAreKnown) {
  using testing::ElementsAre;
  PredictionInputs inputs;
  EXPECT_THAT(conversion_names(inputs), ElementsAre());
  inputs.alpha = .8;
  EXPECT_THAT(conversion_names(inputs), ElementsAre());
  inputs.gamma = 0;
  inputs.speedup = 1;
  EXPECT_THAT(conversion_names(inputs), ElementsAre("tau_deviation")) << "without drafts tau is always 1";
  inputs.gamma = 5;
  EXPECT_THAT(conversion_names(inputs), ElementsAre("tau_deviation", "draft_utilization", "implied_c"));
  inputs.acceptance = {.8, .7};
  EXPECT_THAT(conversion_names(inputs), ElementsAre("tau_deviation", "draft_utilization", "implied_c"));
  inputs.c = .05;
  EXPECT_THAT(conversion_names(inputs),
              ElementsAre("tau_deviation", "draft_utilization", "implied_c", "optimal_gamma_positional",
                          "optimal_speedup_positional"));
}

TEST(Conversions, ByHand) {
  PredictionInputs inputs;
  inputs.alpha = .5;
  inputs.gamma = 1;  // tau is 1 or 2 with probability 1/2 each
  EXPECT_DOUBLE_EQ(converted(inputs)["tau_deviation"].value, .5);
  EXPECT_DOUBLE_EQ(converted(inputs)["draft_utilization"].value, .5);
  // E[tau] = 1.5. At a speedup of 1.2 a step takes 1.25 target steps.
  inputs.speedup = 1.2;
  EXPECT_NEAR(converted(inputs)["implied_c"].value, .25, 1e-12);
  inputs.target = RowTimes(std::map<int, double>{{1, 10}, {2, 11}});
  EXPECT_NEAR(converted(inputs)["implied_c"].value, .15, 1e-12);
}

TEST(Conversions, UtilizationOfOtherEnginesBecomesAlpha) {
  PredictionInputs inputs;
  inputs.gamma = 6;
  EXPECT_NEAR(converted(inputs, .378)["implied_alpha_utilization"].value, .727, 5e-4);
  inputs.gamma = 0;
  EXPECT_THROW(conversions(inputs, .4), Error);
  inputs.gamma.reset();
  try {
    conversions(inputs, .4);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.text().got, "no gamma");
  }
  inputs.gamma = 6;
  EXPECT_THROW(conversions(inputs, 1.2), Error);
}

// A row of Leviathan et al. 2023, Table 2: the measured speedup is above that of a free draft.
TEST(Conversions, ASpeedupAboveTheFreeDraftSaysSo) {
  PredictionInputs inputs;
  inputs.alpha = .62, inputs.gamma = 7, inputs.speedup = 2.6;
  const Prediction above = converted(inputs)["implied_c"];
  EXPECT_NEAR(above.value, -.001, 5e-4);
  EXPECT_THAT(above.assumptions, testing::StartsWith("negative"));
  inputs.speedup = 2.;
  EXPECT_THAT(converted(inputs)["implied_c"].assumptions, testing::Not(testing::HasSubstr("negative")));
}

TEST(Conversions, BestLengthByPosition) {
  PredictionInputs inputs;
  inputs.c = .1;
  inputs.acceptance = {.9, .8, .1};  // 1.9 / 1.1, 2.62 / 1.2 = 2.183, 2.692 / 1.3 = 2.071
  EXPECT_EQ(converted(inputs)["optimal_gamma_positional"].value, 2);
  EXPECT_NEAR(converted(inputs)["optimal_speedup_positional"].value, 2.62 / 1.2, 1e-12);
  EXPECT_THAT(converted(inputs)["optimal_gamma_positional"].assumptions, testing::HasSubstr("t(n) = t(1)"));
  inputs.target = RowTimes(std::map<int, double>{{1, 1}, {2, 1}, {3, 2}});
  EXPECT_EQ(converted(inputs)["optimal_gamma_positional"].value, 1) << "a third row doubles the time";
  EXPECT_THAT(converted(inputs)["optimal_gamma_positional"].assumptions,
              testing::Not(testing::HasSubstr("t(n) = t(1)")));
  inputs.target = RowTimes(3.);
  EXPECT_EQ(converted(inputs)["optimal_gamma_positional"].value, 2);
  EXPECT_THAT(converted(inputs)["optimal_gamma_positional"].assumptions, testing::HasSubstr("t(n) = t(1)"));
  inputs.acceptance = {.9, .8};
  EXPECT_THAT(converted(inputs)["optimal_gamma_positional"].assumptions,
              testing::StartsWith("the speedup still grows"));
}

}  // namespace
}  // namespace speclab::theory::conversions_test
