#include "core/theory/predictions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>

#include "core/base/error.h"

namespace speclab::theory::predictions_test {
namespace {

std::vector<std::string> names(const PredictionInputs& inputs) {
  std::vector<std::string> out;
  for (const Prediction& prediction : predictions(inputs)) out.push_back(prediction.name);
  return out;
}

PredictionInputs everything() {
  PredictionInputs inputs;
  inputs.alpha = .7;
  inputs.gamma = 4;
  inputs.lengths = DraftLengths{1, 0, 0, 0, 3};
  inputs.c = .05;
  inputs.c_hat = .04;
  inputs.target = RowTimes(std::map<int, double>{{1, 10}, {5, 14}});
  inputs.acceptance = {.8, .7, .6, .5};
  inputs.tau = 2.6;
  inputs.speedup = 1.5;
  inputs.times = StepTimes{.t_ar = 10, .draft = 2, .target = 14, .accept = .3, .other = .2};
  return inputs;
}

TEST(Predictions, AppearWhenTheirInputsAreKnown) {
  using testing::ElementsAre;
  EXPECT_TRUE(names({}).empty());
  PredictionInputs inputs;
  inputs.alpha = .8;
  EXPECT_THAT(names(inputs), ElementsAre("leviathan_limit"));
  inputs.gamma = 5;
  EXPECT_THAT(names(inputs), ElementsAre("leviathan_eq_1", "leviathan_limit"));
  inputs.c = .05;
  EXPECT_THAT(names(inputs), ElementsAre("leviathan_eq_1", "leviathan_limit", "leviathan_3_8",
                                         "leviathan_3_9", "optimal_gamma", "optimal_speedup", "break_even"));
  EXPECT_THAT(
      names(everything()),
      ElementsAre("leviathan_eq_1", "leviathan_limit", "leviathan_3_8", "leviathan_3_9", "leviathan_3_11_ops",
                  "optimal_gamma", "optimal_speedup", "measured_t_speedup", "optimal_gamma_measured_t",
                  "optimal_speedup_measured_t", "positional", "positional_speedup", "mixture_eq_1",
                  "mixture_speedup", "break_even", "measured_costs", "chen_ratio", "chen_limit",
                  "implied_alpha_tau", "implied_alpha_speedup"));
}

// Constants of Fu et al. 2024 for a 7B model, N = 5; the published ablation has S = 1.96 at W = G = 15. With
// one guess Eq. 5 is Eq. 1 of Leviathan et al.
TEST(Predictions, LawOfLookaheadDecodingAlone) {
  const auto value = [](const PredictionInputs& inputs, const std::string& name) {
    for (const Prediction& prediction : predictions(inputs)) {
      if (prediction.name == name) return prediction.value;
    }
    ADD_FAILURE() << "no " << name;
    return 0.;
  };
  PredictionInputs inputs;
  inputs.alpha = .425;
  inputs.lookahead = LookaheadShape{15, 5, 15};
  EXPECT_EQ(names(inputs), (std::vector<std::string>{"leviathan_limit", "lookahead_eq5"}));
  EXPECT_NEAR(value(inputs, "lookahead_eq5"), 1 + 3.106 * .979, 2e-3);
  inputs.lookahead = LookaheadShape{1, 5, 1};
  EXPECT_NEAR(value(inputs, "lookahead_eq5"), expected_tokens(.425, 4), 1e-12);
  inputs.f = 3.106;
  EXPECT_NEAR(value(inputs, "lookahead_eq7"), 1.230,
              5e-4);  // b = 1, where W = 30, G = 1 was published at 1.79
  for (const auto& [w, s] : {std::pair{15, 1.979}, {10, 1.867}, {7, 1.762}}) {
    inputs.lookahead = LookaheadShape{w, 5, w};
    EXPECT_NEAR(value(inputs, "lookahead_eq7"), s, 5e-4) << w;
    EXPECT_EQ(value(inputs, "lookahead_rows"), 8 * w);
  }
  inputs.lookahead = LookaheadShape{30, 5, 1};
  inputs.share = .75;
  EXPECT_NEAR(value(inputs, "lookahead_eq7_extended"),
              lookahead_step_compression(lookahead_expected_tokens(.425, 4, std::pow(30, .75)), 3.106),
              1e-12);
  EXPECT_EQ(value(inputs, "lookahead_rows"), 124);
  inputs.share = 1.5;
  EXPECT_THROW(predictions(inputs), Error);
  inputs.share.reset();
  inputs.lookahead = LookaheadShape{15, 5, 15};
  inputs.target = RowTimes(std::map<int, double>{{1, 10}, {120, 10}, {240, 20}});
  EXPECT_NEAR(value(inputs, "lookahead_speedup"), 1.979, 5e-4);
  EXPECT_EQ(2 * value(inputs, "lookahead_best_W") * (value(inputs, "lookahead_best_N") - 1), 120);
  EXPECT_NEAR(value(inputs, "lookahead_best_speedup"), 1.979, 5e-4)
      << "120 free rows: the paper's own setting";
  inputs.target = RowTimes(std::map<int, double>{{1, 1}, {2, 2}});  // every row costs a forward
  EXPECT_EQ(value(inputs, "lookahead_best_W"), 0);
  EXPECT_EQ(value(inputs, "lookahead_best_speedup"), 1);
  inputs.f = .5;
  EXPECT_THROW(predictions(inputs), Error);
}

TEST(Predictions, ValuesAreThoseOfTheClosedForms) {
  std::map<std::string, double> value;
  for (const Prediction& prediction : predictions(everything())) value[prediction.name] = prediction.value;
  EXPECT_DOUBLE_EQ(value["leviathan_eq_1"], expected_tokens(.7, 4));
  EXPECT_DOUBLE_EQ(value["leviathan_limit"], 1 / (1 - .7));
  EXPECT_DOUBLE_EQ(value["leviathan_3_8"], expected_tokens(.7, 4) / 1.2);
  EXPECT_DOUBLE_EQ(value["leviathan_3_9"], 1.7 / 1.05);
  EXPECT_DOUBLE_EQ(value["leviathan_3_11_ops"], (4 * .04 + 5) / expected_tokens(.7, 4));
  EXPECT_EQ(value["optimal_gamma"], 6);
  EXPECT_NEAR(value["optimal_speedup"], 2.353, 5e-4);
  EXPECT_DOUBLE_EQ(value["measured_t_speedup"], expected_tokens(.7, 4) / 1.6);
  EXPECT_EQ(value["optimal_gamma_measured_t"], 3);  // because of t(n), the effective c is .15
  EXPECT_DOUBLE_EQ(value["optimal_speedup_measured_t"],
                   optimal_gamma_at_costs(.7, .05, *everything().target, 64).speedup);
  EXPECT_DOUBLE_EQ(value["positional"], 1 + .8 + .56 + .336 + .168);
  EXPECT_DOUBLE_EQ(value["positional_speedup"], value["positional"] / 1.6);
  EXPECT_DOUBLE_EQ(value["mixture_eq_1"], (1 + 3 * expected_tokens(.7, 4)) / 4);
  EXPECT_DOUBLE_EQ(value["mixture_speedup"], value["mixture_eq_1"] / ((1 + 3 * 1.6) / 4));
  EXPECT_DOUBLE_EQ(value["break_even"], 1.6);
  EXPECT_DOUBLE_EQ(value["measured_costs"], 26 / 16.5);
  EXPECT_DOUBLE_EQ(value["chen_ratio"], 2.6 / 1.2);
  EXPECT_DOUBLE_EQ(value["chen_limit"], 2.6);
  EXPECT_NEAR(expected_tokens(value["implied_alpha_tau"], 4), 2.6, 1e-12);
  EXPECT_NEAR(expected_tokens(value["implied_alpha_speedup"], 4), 1.5 * 1.6, 1e-12);
}

TEST(Predictions, WithoutRowTimesTheForwardIsFlat) {
  PredictionInputs inputs = everything();
  inputs.target.reset();
  std::map<std::string, double> value;
  for (const Prediction& prediction : predictions(inputs)) value[prediction.name] = prediction.value;
  EXPECT_DOUBLE_EQ(value["break_even"], 1.2);
  EXPECT_DOUBLE_EQ(value["positional_speedup"], value["positional"] / 1.2);
  EXPECT_NEAR(expected_tokens(value["implied_alpha_speedup"], 4), 1.5 * 1.2, 1e-12);
  EXPECT_EQ(value.count("measured_t_speedup"), 0u);
}

TEST(Predictions, RStandsInForTau) {
  PredictionInputs inputs;
  inputs.gamma = 4;
  inputs.c = 11.9 / 73.3;
  inputs.r = .8125;
  std::map<std::string, double> value;
  for (const Prediction& prediction : predictions(inputs)) value[prediction.name] = prediction.value;
  EXPECT_NEAR(value["chen_ratio"], 2.463, 5e-4);  // GPT-2 XL with GPT-2 small
  EXPECT_EQ(value["chen_limit"], 4.0625);
}

TEST(Predictions, ADraftThatCannotHelp) {
  PredictionInputs inputs;
  inputs.alpha = .1;
  inputs.c = .5;
  for (const Prediction& prediction : predictions(inputs)) {
    if (prediction.name == "leviathan_3_9") {
      EXPECT_EQ(prediction.value, 1);
      EXPECT_THAT(prediction.assumptions, testing::HasSubstr("no gamma helps"));
    }
    if (prediction.name == "optimal_gamma") {
      EXPECT_EQ(prediction.value, 0);
    }
  }
}

TEST(Predictions, AreNamedOnceAndSayWhatTheyAssume) {
  std::set<std::string> seen;
  const std::set<std::string> quantities = {"tau", "speedup", "ops_factor", "gamma", "alpha"};
  for (const Prediction& prediction : predictions(everything())) {
    EXPECT_TRUE(seen.insert(prediction.name).second) << prediction.name;
    EXPECT_EQ(quantities.count(prediction.quantity), 1u) << prediction.name;
    EXPECT_FALSE(prediction.equation.empty());
    EXPECT_FALSE(prediction.assumptions.empty());
  }
}

TEST(Predictions, SayWhatKindTheyAre) {
  const auto kinds = [](const PredictionInputs& inputs) {
    std::map<std::string, std::string> out;
    for (const Prediction& prediction : predictions(inputs))
      out[prediction.name] = to_string(prediction.kind);
    return out;
  };
  PredictionInputs inputs = everything();
  inputs.lengths = DraftLengths{1, 0, 0, 0, 3};
  auto kind = kinds(inputs);
  for (const char* name : {"leviathan_eq_1", "leviathan_3_8", "leviathan_3_11_ops", "measured_t_speedup",
                           "positional_speedup", "mixture_eq_1", "mixture_speedup", "measured_costs",
                           "chen_ratio", "implied_alpha_tau", "implied_alpha_speedup"})
    EXPECT_EQ(kind[name], "prediction") << name;
  EXPECT_EQ(kind["positional"], "identity") << "tau from the case's own acceptance counts";
  for (const char* name : {"leviathan_limit", "leviathan_3_9", "break_even", "chen_limit"})
    EXPECT_EQ(kind[name], "bound") << name;
  for (const char* name :
       {"optimal_gamma", "optimal_speedup", "optimal_gamma_measured_t", "optimal_speedup_measured_t"})
    EXPECT_EQ(kind[name], "optimum") << name;
  // With one drafted token, tau = 1 + alpha holds by counting.
  inputs.gamma = 1;
  inputs.tau = 1.7;
  inputs.acceptance = {.7};
  inputs.lengths = DraftLengths{2, 3, 0};
  kind = kinds(inputs);
  for (const char* name : {"leviathan_eq_1", "mixture_eq_1", "implied_alpha_tau"})
    EXPECT_EQ(kind[name], "identity") << name;
  EXPECT_EQ(kind["leviathan_3_8"], "prediction") << "its costs are not counted";
}

TEST(Predictions, BadInputThrows) {
  PredictionInputs inputs;
  inputs.alpha = 1.2;
  EXPECT_THROW(predictions(inputs), Error);
  inputs = everything();
  inputs.gamma = -1;
  EXPECT_THROW(predictions(inputs), Error);
  inputs = everything();
  inputs.tau = 7;  // more than gamma + 1
  EXPECT_THROW(predictions(inputs), Error);
  inputs = everything();
  inputs.acceptance = {.5, 1.5};
  EXPECT_THROW(predictions(inputs), Error);
}

}  // namespace
}  // namespace speclab::theory::predictions_test
