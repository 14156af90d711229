#include "experiments/analysis/lookahead_fit.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <cmath>

#include "core/theory/lookahead.h"
#include "experiments/metrics/metrics.h"

namespace speclab::lookahead_fit_test {
namespace {

using nlohmann::json;

constexpr theory::LookaheadLaw kLaw{.alpha = .4, .f = 2.5};
constexpr int kSteps = 1000;

std::shared_ptr<CaseData> case_of(const std::string& strategy, const json& options, double tau, int rows) {
  auto data = std::make_shared<CaseData>();
  data->config = {{"id", strategy + options.dump()},
                  {"strategy", strategy},
                  {"verify", "one_pass"},
                  {"options", options}};
  data->config["draft"] = nullptr;
  data->environment = json::object();
  for (int prompt = 0; prompt < 3; ++prompt) {
    GenerationRecord turn;
    turn.tokens.assign(1 + static_cast<std::size_t>(std::lround(kSteps * tau)), 5);
    turn.steps.resize(kSteps);
    const int tokens = static_cast<int>(turn.tokens.size()) - 1;
    for (int i = 0; i < kSteps; ++i) {
      StepRecord& step = turn.steps[static_cast<std::size_t>(i)];
      step.rows = rows;
      step.emitted = tokens * (i + 1) / kSteps - tokens * i / kSteps;
    }
    LineRecord line;
    line.turns.push_back(std::move(turn));
    data->prompts.push_back(std::to_string(prompt));
    data->categories.emplace_back("a");
    data->lines.push_back(std::make_shared<const PromptLines>(PromptLines{{line}}));
  }
  return data;
}

std::vector<std::shared_ptr<CaseData>> grid() {
  std::vector<std::shared_ptr<CaseData>> cases{case_of("autoregressive", {{"temperature", 0}}, 1, 1)};
  for (const int w : {1, 3, 8, 15}) {
    for (const int n : {3, 5}) {
      const json options = {{"W", w}, {"N", n}, {"G", w}, {"temperature", 0}};
      cases.push_back(case_of("lookahead", options, kLaw.compression({w, n, w}), 2 * w * (n - 1) - 1));
    }
  }
  // These cases belong to no fit: one is alone in its group, one has no window.
  cases.push_back(case_of("lookahead", {{"W", 3}, {"N", 3}, {"G", 3}, {"temperature", 1}}, 1.9, 12));
  cases.push_back(case_of("lookahead", {{"W", 0}, {"N", 3}, {"G", 3}, {"temperature", 0}}, 1.9, 12));
  return cases;
}

TEST(LookaheadFits, OneFitForCasesThatDifferInWNGAlone) {
  const auto cases = grid();
  const json calibration = {{"t_n_ns", {{"1", 1e6}, {"4", 1.5e6}, {"16", 4e6}, {"64", 15e6}}}};
  const json fits = lookahead_fits(cases, calibration);
  ASSERT_EQ(fits.size(), 1u);
  const json& fit = fits[0];
  EXPECT_NEAR(fit["alpha"], kLaw.alpha, .01);
  EXPECT_NEAR(fit["f"], kLaw.f, .05);
  EXPECT_TRUE(fit["share"].is_null());
  EXPECT_GT(fit["row_share"], .8);
  EXPECT_LT(fit["row_share"], 1);
  EXPECT_EQ(fit["cells"].size(), 8u);
  ASSERT_EQ(fit["held_out"].size(), 4u);
  EXPECT_EQ(fit["held_out"][0]["what"], "prompts");
  EXPECT_EQ(fit["held_out"][0]["error"], nullptr);
  EXPECT_LT(fit["held_out"][0]["error_other_prompts"], .01);
  const json& by_window = fit["held_out"][2];
  EXPECT_EQ(by_window["what"], "W");
  EXPECT_EQ(by_window["cells"], 8);
  EXPECT_EQ(by_window["interpolated"], 4) << "W = 3 and 8 of 1, 3, 8, 15";
  EXPECT_LT(by_window["error"], .01);
  EXPECT_GT(by_window["mean_error"], .05);
  EXPECT_EQ(fit["held_out"][3]["what"], "N");
  EXPECT_EQ(fit["held_out"][3]["interpolated"], 0) << "there are two N";
  for (const json& cell : fit["cells"]) {
    EXPECT_NEAR(cell["held_out"]["W"]["tau"], cell["tau"], .02);
    EXPECT_EQ(cell["held_out"]["W"]["interpolation"], cell["W"] == 3 || cell["W"] == 8);
    EXPECT_EQ(cell["rows"].get<double>(), cell["most_rows"].get<double>() - 1);
  }
  ASSERT_EQ(fit["machines"].size(), 2u);
  const auto at_120_rows = [&](double last) {  // predicted speedup at W = G = 15, N = 5
    const json noisy = {
        {"t_n_ns", {{"1", 1e6}, {"8", 2e6}, {"16", 4e6}, {"24", 6e6}, {"31", 7.8e6}, {"32", last}}}};
    return lookahead_fits(cases, noisy)[0]["machines"][0]["published"][0]["speedup"].get<double>();
  };
  EXPECT_NEAR(at_120_rows(7.7e6) / at_120_rows(8.0e6), 1, .1) << "noise of the last point";
  EXPECT_TRUE(fit["machines"][0]["degenerate"]) << "rows of this machine cost a quarter of a forward each";
  EXPECT_EQ(fit["machines"][0]["measured_rows"], 64);
  EXPECT_FALSE(fit["machines"][1]["degenerate"]);
  EXPECT_GT(fit["machines"][1]["best"]["speedup"], 1.8);
  for (const json& machine : fit["machines"]) {
    for (const json& row : machine["published"]) EXPECT_GE(row["regret"], 0);
    EXPECT_EQ(machine["devices"].size(), 8u);
  }
  const std::string text = lookahead_text({{"lookahead", fits}});
  EXPECT_NE(text.find("over 8 cases: alpha 0.4"), std::string::npos) << text;
  EXPECT_NE(text.find("all cells with the same W"), std::string::npos) << text;
  EXPECT_NE(text.find("half of the prompts"), std::string::npos) << text;
  EXPECT_NE(text.find("G = 15 divided over 1 to 8 devices, if their exchange takes no time: "),
            std::string::npos)
      << text;
  EXPECT_EQ(lookahead_text(json::object()), "");
  EXPECT_EQ(lookahead_fits(cases, nullptr)[0]["machines"].size(), 1u);
  EXPECT_TRUE(lookahead_fits(std::span(cases).first(2), calibration).empty());
}

// The law is about the guesses that a step verifies. The option V limits them, whatever the pool keeps (G).
TEST(LookaheadFits, TheGuessesOfAStepCountNotThoseOfThePool) {
  EXPECT_EQ(lookahead_shape({{"W", 3}, {"N", 5}, {"G", 7}}).G, 7) << "a record without V";
  EXPECT_EQ(lookahead_shape({{"W", 3}, {"N", 5}, {"G", 7}, {"V", 0}}).G, 7);
  EXPECT_EQ(lookahead_shape({{"W", 3}, {"N", 5}, {"G", 7}, {"V", 9}}).G, 7);
  EXPECT_EQ(lookahead_shape({{"W", 3}, {"N", 5}, {"G", 7}, {"V", 4}}).G, 4);
  EXPECT_EQ(lookahead_shape({{"W", 3}, {"N", 5}, {"G", -1}, {"V", 4}}).G, 4);
  EXPECT_EQ(lookahead_shape({{"W", 3}, {"N", 5}, {"G", -1}}).G, -1);
  std::vector<std::shared_ptr<CaseData>> cases{case_of("autoregressive", {{"temperature", 0}}, 1, 1)};
  for (const int w : {1, 3, 8, 15}) {
    const json options = {{"W", w}, {"N", 5}, {"G", 40}, {"V", 3}, {"temperature", 0}};
    cases.push_back(case_of("lookahead", options,
                            theory::LookaheadLaw{.alpha = .4, .f = 2.5}.compression({w, 5, 3}),
                            4 * (w + 3) - 1));
  }
  const json fits = lookahead_fits(cases, nullptr);
  ASSERT_EQ(fits.size(), 1u);
  EXPECT_NEAR(fits[0]["alpha"], .4, .02);
  EXPECT_NEAR(fits[0]["f"], 2.5, .2);
  for (const json& cell : fits[0]["cells"]) {
    EXPECT_EQ(cell["G"], 3);
    EXPECT_EQ(cell["most_rows"], 4 * (cell["W"].get<int>() + 3));
  }
}

TEST(LookaheadFits, PredictEachCaseFromTheOthers) {
  const auto cases = grid();
  const json fits = lookahead_fits(cases, nullptr);
  const json prediction = lookahead_prediction(fits, cases[3]->id(), 1.5);
  ASSERT_TRUE(prediction.contains("lookahead_eq7"));
  EXPECT_NEAR(prediction["lookahead_eq7"]["error"],
              prediction["lookahead_eq7"]["value"].get<double>() / 1.5 - 1, 1e-12);
  EXPECT_EQ(prediction["lookahead_eq7"]["quantity"], "tau");
  const auto assumptions = [&](int i) {
    return lookahead_prediction(fits, cases[i]->id(), 1.5)["lookahead_eq7"]["assumptions"].get<std::string>();
  };
  EXPECT_NE(assumptions(3).find("another W, on the same prompts: interpolation"), std::string::npos)
      << assumptions(3);
  EXPECT_NE(assumptions(1).find("another W, on the same prompts: extrapolation"), std::string::npos)
      << "W = 1";
  EXPECT_TRUE(lookahead_prediction(fits, cases[0]->id(), 1).empty());
}

TEST(MisplacedNgrams, AreRightTokensAtAWrongPlace) {
  auto data = case_of("jacobi", {{"block", 5}}, 1, 1);
  data->intervals = false;
  LineRecord line = data->lines[0]->front().front();
  line.turns[0].tokens = {1, 2, 3, 4, 5, 6, 7, 8};
  line.turns[0].steps.assign(1, {});
  StepRecord& step = line.turns[0].steps[0];
  step.emitted = 1;
  // The draft stands where the text has 2 3 4 5 6. (3 4 5) occurs one place later, (4 5 9) and (5 9 9)
  // nowhere.
  for (const Token id : {3, 4, 5, 9, 9}) step.drafted.emplace_back().id = id;
  data->lines.assign(1, std::make_shared<const PromptLines>(PromptLines{{line}}));
  data->prompts = {"0"};
  data->categories = {"a"};
  EXPECT_DOUBLE_EQ(compute_metrics(*data)["misplaced_ngrams"], 1. / 3);
  data->config["strategy"] = "lookahead";
  EXPECT_TRUE(compute_metrics(*data)["misplaced_ngrams"].is_null());
}

}  // namespace
}  // namespace speclab::lookahead_fit_test
