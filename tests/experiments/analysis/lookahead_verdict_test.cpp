#include "experiments/analysis/lookahead_verdict.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/base/options_json.h"
#include "experiments/config/config_file.h"
#include "experiments/analysis/lookahead_fit.h"

namespace speclab::lookahead_verdict_test {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

constexpr theory::LookaheadLaw kVerdictLaw{.alpha = .4, .f = 2.5};

json options_of(int w, int n, int g) {
  json options = json::object();
  StrategyChoice choice(find_strategy("lookahead"));
  GenerationOptions generation;
  options.update(echo_options(choice.fields()));
  options.update(echo_options(option_fields(generation)));
  options.update({{"W", w}, {"N", n}, {"G", g}, {"pool_from_prompt", true}, {"max_tokens", 48}});
  return options;
}

/// The summary of a run over W = G and N on a machine with this t(n). The case W = 8, N = 3 was the fastest.
json summary_of(const json& t_n_ns) {
  json fit = {{"alpha", kVerdictLaw.alpha}, {"f", kVerdictLaw.f},     {"share", nullptr},
              {"row_share", 1.0},           {"cells", json::array()}, {"machines", json::array()}};
  json cases =
      json::array({{{"id", "autoregressive"}, {"strategy", "autoregressive"}, {"metrics", json::object()}}});
  for (const int w : {1, 8}) {
    for (const int n : {3, 5}) {
      const std::string id = "lookahead/W=" + std::to_string(w) + "/N=" + std::to_string(n);
      fit["cells"].push_back({{"case", id}, {"W", w}, {"N", n}, {"G", w}});
      cases.push_back({{"id", id},
                       {"strategy", "lookahead"},
                       {"options", options_of(w, n, w)},
                       {"metrics", {{"speedup", w == 8 && n == 3 ? .9 : .5}}}});
    }
  }
  return {{"lookahead", json::array({fit})}, {"calibration", {{"t_n_ns", t_n_ns}}}, {"cases", cases}};
}

const json kDearRows = {{"1", 1.0}, {"2", 2.0}, {"4", 4.0}, {"8", 8.0}};
const json kFreeRows = {{"1", 1.0}, {"32", 1.0}, {"64", 2.0}, {"128", 4.0}};

json follow_up_of(const json& candidates, double speedup, double lo, double hi) {
  json cases =
      json::array({{{"id", "autoregressive"}, {"strategy", "autoregressive"}, {"metrics", json::object()}}});
  for (const json& one : candidates) {
    cases.push_back({{"id", "lookahead/W=" + one["W"].dump()},
                     {"strategy", "lookahead"},
                     {"options", options_of(one["W"], one["N"], one["G"])},
                     {"metrics", {{"tau", 1.5}, {"speedup", speedup}, {"speedup_ci95", {lo, hi}}}}});
    speedup += .05;
  }
  // Absolute times moved by a third between repeats, their ratios by two percent.
  return {{"cases", cases}, {"noise_floor", .358}, {"ratio_noise", .02}};
}

TEST(LookaheadVerdict, RecommendsTheBestSettingOfTheLawForTheMachine) {
  const json summary = summary_of(kFreeRows);
  const json candidates = lookahead_candidates(summary);
  ASSERT_EQ(candidates.size(), 2u);
  EXPECT_EQ(candidates[0]["role"], "recommended");
  EXPECT_LE(2 * candidates[0]["W"].get<int>() * (candidates[0]["N"].get<int>() - 1), 33);
  EXPECT_GT(candidates[0]["speedup"], 1.3);
  EXPECT_EQ(candidates[1]["role"], "fastest in the run");
  EXPECT_EQ(candidates[1]["W"], 8);
  EXPECT_EQ(candidates[1]["N"], 3);

  json verdict = lookahead_verdict(summary, nullptr);
  EXPECT_FALSE(verdict["degenerate"]);
  EXPECT_TRUE(verdict["never_slower"].is_null());
  EXPECT_EQ(verdict["free_rows"], 33);
  ASSERT_EQ(verdict["by_free_rows"].size(), 9u);
  EXPECT_EQ(verdict["by_free_rows"][0]["W"], 0) << "no row is free";
  EXPECT_EQ(verdict["by_free_rows"][5]["speedup"], verdict["best"]["speedup"])
      << "32 free rows, as on this machine";
  EXPECT_GT(verdict["by_free_rows"][8]["speedup"], verdict["best"]["speedup"]);
  EXPECT_THAT(to_verdict_text(verdict), HasSubstr("a forward over 33 rows takes at most 5 % longer"));

  verdict = lookahead_verdict(summary, follow_up_of(candidates, 1.2, 1.1, 1.3));
  EXPECT_EQ(verdict["never_slower"], true);
  EXPECT_EQ(verdict["measured"][0]["verdict"], "faster");
  EXPECT_EQ(verdict["measured"][0]["predicted"]["speedup"], candidates[0]["speedup"]);
  EXPECT_NEAR(verdict["regret"], 1 - 1.2 / 1.25, 1e-12);
  EXPECT_THAT(to_verdict_text(verdict),
              HasSubstr("not slower than autoregressive decoding by more than 5 %"));

  verdict = lookahead_verdict(summary, follow_up_of(candidates, .9, .85, .97));
  EXPECT_EQ(verdict["never_slower"], false);
  EXPECT_THAT(to_verdict_text(verdict), HasSubstr("SLOWER"));
}

TEST(LookaheadVerdict, IsJudgedByTheNoiseOfRatiosNotOfTimes) {
  const json summary = summary_of(kFreeRows);
  const json candidates = lookahead_candidates(summary);
  const auto judge = [&](double speedup, double lo, double hi, json noise = .02) {
    json follow_up = follow_up_of(json::array({candidates[0]}), speedup, lo, hi);
    follow_up["ratio_noise"] = std::move(noise);
    return lookahead_verdict(summary, follow_up);
  };
  json verdict = judge(1.15, 1.04, 1.28);
  EXPECT_EQ(verdict["measured"][0]["verdict"], "faster");
  EXPECT_EQ(verdict["ratio_noise"], .02);
  EXPECT_THAT(to_verdict_text(verdict), HasSubstr("differs by up to 2.0 % between repeats"));
  EXPECT_EQ(judge(1.15, 1.04, 1.28, .06)["measured"][0]["verdict"], "unclear") << "1.04 is within this noise";
  EXPECT_EQ(judge(1.15, 1.04, 1.28, .5)["measured"][0]["verdict"], "unclear")
      << "a noisy machine proves nothing";
  EXPECT_EQ(judge(1.15, 1.04, 1.28, .5)["never_slower"], nullptr);

  verdict = judge(.74, .72, .76);
  EXPECT_EQ(verdict["never_slower"], false) << "26 % slower";
  EXPECT_EQ(judge(.74, .72, .76, .36)["never_slower"], nullptr) << "neither slower nor faster for certain";
  EXPECT_THAT(to_verdict_text(judge(.74, .72, .76, .36)), HasSubstr("It is not decided"));

  verdict = judge(1, .98, 1.02);
  EXPECT_EQ(verdict["measured"][0]["verdict"], "same");
  EXPECT_EQ(verdict["never_slower"], true);
  EXPECT_EQ(judge(.97, .93, 1.01)["never_slower"], nullptr) << "it may be 7 % slower";
}

TEST(LookaheadVerdict, NeedsRepeatsAndAnInterval) {
  const json summary = summary_of(kFreeRows);
  json follow_up = follow_up_of(lookahead_candidates(summary), 1, .99, 1.01);
  follow_up["ratio_noise"] = nullptr;
  json verdict = lookahead_verdict(summary, follow_up);
  for (const json& row : verdict["measured"]) EXPECT_EQ(row["verdict"], "unclear: no repeats");
  EXPECT_TRUE(verdict["never_slower"].is_null());
  EXPECT_THAT(to_verdict_text(verdict), HasSubstr("no repeats"));
  follow_up["ratio_noise"] = .02;
  for (json& entry : follow_up["cases"]) entry["metrics"]["speedup_ci95"] = nullptr;
  verdict = lookahead_verdict(summary, follow_up);
  for (const json& row : verdict["measured"]) EXPECT_EQ(row["verdict"], "unclear: one prompt");
  EXPECT_TRUE(verdict["never_slower"].is_null());
}

// A follow-up whose recommended case failed says nothing about it: it is not as good as autoregressive
// decoding.
TEST(LookaheadVerdict, WithoutTheRecommendedCaseThereIsNoRegret) {
  const json summary = summary_of(kFreeRows);
  json follow_up = follow_up_of(lookahead_candidates(summary), 1.2, 1.1, 1.3);
  follow_up["cases"][1]["metrics"]["speedup"] = nullptr;
  const json verdict = lookahead_verdict(summary, follow_up);
  EXPECT_EQ(verdict["measured"].size(), 1u);
  EXPECT_TRUE(verdict["regret"].is_null());
  EXPECT_TRUE(verdict["never_slower"].is_null());
  EXPECT_THAT(to_verdict_text(verdict), HasSubstr("The recommended setting has no measured speedup."));
}

TEST(LookaheadVerdict, SaysWhenTheRecommendationIsDegenerate) {
  const json summary = summary_of(kDearRows);
  const json candidates = lookahead_candidates(summary);
  EXPECT_EQ(candidates[0]["role"], "best of lookahead") << "it is measured although the law expects a loss";
  EXPECT_LT(candidates[0]["speedup"], 1);
  const json verdict = lookahead_verdict(summary, follow_up_of(candidates, .8, .7, .9));
  EXPECT_EQ(verdict["best"]["W"], 0);
  EXPECT_TRUE(verdict["degenerate"]);
  EXPECT_EQ(verdict["never_slower"], true);
  EXPECT_EQ(verdict["regret"], 0.);
  EXPECT_EQ(verdict["free_rows"], 1);
  const std::string text = to_verdict_text(verdict);
  EXPECT_THAT(text, HasSubstr("no setting of lookahead decoding is predicted to be faster"));
  EXPECT_THAT(text, HasSubstr("a second row costs more than 5 %"));
  // A window of one column is degenerate too.
  json one = {
      {"machine", "m"}, {"best", {{"W", 1}, {"N", 3}, {"G", 1}, {"speedup", 1.1}}}, {"degenerate", true}};
  EXPECT_THAT(lookahead_sentence(one), HasSubstr("degenerate"));
}

TEST(LookaheadVerdict, TheFollowUpIsAValidExperiment) {
  const json run_config = {{"name", "grid"},
                           {"target", "models/a.gguf"},
                           {"seeds", {4}},
                           {"source", {{"prompts", {{"inline", {"1 2 3"}}}}}}};
  const json config = follow_up_config(run_config, summary_of(kFreeRows));
  const Experiment experiment = parse_experiment(config, "grid_verdict");
  ASSERT_EQ(experiment.cases.size(), 3u);
  EXPECT_EQ(experiment.cases[0].strategy.info().name, "autoregressive");
  EXPECT_EQ(experiment.cases[2].id, "lookahead/W=8/N=3/G=8/pool_from_prompt=true");
  EXPECT_GT(experiment.repeats, 1) << "noise is judged by repeats";
  for (const CaseSpec& spec : experiment.cases) EXPECT_EQ(spec.generation.max_tokens, 48);
  json with_limit = summary_of(kFreeRows);  // its law is about V = 8 guesses of lists of 30
  for (json& entry : with_limit["cases"]) {
    if (entry.contains("options")) entry["options"].update({{"V", 8}, {"G", 30}});
  }
  const Experiment limited = parse_experiment(follow_up_config(run_config, with_limit), "grid_verdict");
  EXPECT_EQ(limited.cases[2].options()["G"], 8);
  EXPECT_EQ(limited.cases[2].options()["V"], 0) << "V would limit the recommended G";
  json uncalibrated = summary_of(kFreeRows);
  uncalibrated["calibration"] = nullptr;
  EXPECT_THROW(lookahead_verdict(uncalibrated, nullptr), Error);
  uncalibrated["lookahead"] = json::array();
  EXPECT_THROW(largest_lookahead_fit(uncalibrated), Error);
}

}  // namespace
}  // namespace speclab::lookahead_verdict_test
