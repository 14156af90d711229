// Metrics, comparison and reference check on hand-made records.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/measure/run_result.h"
#include "experiments/metrics/metrics.h"
#include "experiments/run/reference_check.h"
#include "experiments/metrics/run_data.h"
#include "experiments/metrics/summary.h"
#include "experiments/analysis/table.h"
#include "tests/experiments/metrics/hand_made_run.h"

namespace speclab::metrics_test {
namespace {

using namespace speclab::fixtures;
using nlohmann::json;
using ::testing::HasSubstr;

TEST_F(Record, ASummaryHasEachKeyAndEachCaseOnALineOfItsOwn) {
  json summary = summarise_run(write_run("run", 1'600'000));
  const std::string text = summary_text(summary);
  EXPECT_EQ(json::parse(text), summary);
  EXPECT_THAT(text, HasSubstr("\n\"name\":"));
  for (const json& one : summary["cases"]) EXPECT_THAT(text, HasSubstr("\n" + one.dump()));
  EXPECT_EQ(static_cast<std::size_t>(std::ranges::count(text, '\n')),
            summary.size() + summary["cases"].size() + 3);
  summary["cases"] = json::array();
  EXPECT_EQ(json::parse(summary_text(summary)), summary);
  EXPECT_EQ(summary_text(json::parse(text)), text);
}

TEST_F(Record, MetricsOfAHandMadeRun) {
  const json summary = summarise_run(write_run("run", 1'600'000));
  EXPECT_TRUE(summary["complete"].get<bool>());
  const json& m = summary["cases"][1]["metrics"];
  EXPECT_EQ(m["tokens"], 18);
  EXPECT_EQ(m["steps"], 9);
  EXPECT_DOUBLE_EQ(m["tau"], 2.0);
  EXPECT_DOUBLE_EQ(m["alpha"], 3. / 5);  // tests per text: 2 + 2 + 1; accepted 2 + 1 + 0
  EXPECT_NEAR(m["alpha_min"].get<double>(), .6, 1e-12);
  EXPECT_DOUBLE_EQ(m["draft_utilization"], 3. / 6);
  EXPECT_DOUBLE_EQ(m["acceptance_at"][0], 2. / 3);
  EXPECT_DOUBLE_EQ(m["acceptance_at"][1], 1. / 2);
  EXPECT_DOUBLE_EQ(m["joint_at"][1], 1. / 3);
  EXPECT_EQ(m["accepted_histogram"], (json{3, 3, 3}));
  EXPECT_EQ(m["source_share"], (json{{"draft", 1.}, {"text", 2. / 3}}));
  EXPECT_DOUBLE_EQ(m["hit_rate"]["draft"], 2. / 3);
  EXPECT_DOUBLE_EQ(m["hit_rate"]["text"], 1. / 2);
  EXPECT_DOUBLE_EQ(m["speedup"], 6. / (3 * 1.6));
  EXPECT_DOUBLE_EQ(m["ms_per_token"], 3 * 1.6 / 6);
  EXPECT_DOUBLE_EQ(m["tokens_per_second"], 1000 / (3 * 1.6 / 6));
  EXPECT_DOUBLE_EQ(m["time_target"], .8);
  EXPECT_DOUBLE_EQ(m["target_calls"], .5);
  EXPECT_DOUBLE_EQ(m["draft_calls"], 1.0);
  EXPECT_DOUBLE_EQ(m["wasted_rows"], .5);
  EXPECT_DOUBLE_EQ(m["c_hat"], .1);
  EXPECT_DOUBLE_EQ(m["ops_factor"], 160. / 100);
  // The text is 1 5 6 7 5 6 5; 5 6 7 5 and 6 7 5 6 occur in the prompt.
  EXPECT_DOUBLE_EQ(m["copied_4grams"], 2. / 7);
  EXPECT_TRUE(summary["cases"][0]["metrics"]["copied_4grams"].is_null()) << "its record holds no prompts";
  EXPECT_DOUBLE_EQ(m["peak_flops_share"], 960 / 4.8e-3 / 1e6);
  EXPECT_DOUBLE_EQ(m["energy_per_token"], 14. / 7);  // the token from prefill counts too
  EXPECT_DOUBLE_EQ(m["gpu_busy_share"], .75);
  EXPECT_TRUE(summary["cases"][0]["metrics"]["energy_per_token"].is_null());
  EXPECT_TRUE(summary["cases"][0]["metrics"]["gpu_busy_share"].is_null());
  EXPECT_EQ(m["matches_reference"], true);
  EXPECT_TRUE(m["first_divergence"].is_null());
  EXPECT_TRUE(m["tau_ci95"].is_array());
  EXPECT_TRUE(summary["cases"][0]["metrics"]["speedup"].is_null());
  EXPECT_TRUE(summary["cases"][0]["metrics"]["alpha"].is_null());
  EXPECT_DOUBLE_EQ(summary["cases"][1]["predictions"]["positional"]["value"], 2.0)
      << "the identity holds exactly without cuts";
  EXPECT_DOUBLE_EQ(summary["cases"][1]["categories"]["b"]["metrics"]["tau"], 2.0);
  EXPECT_NEAR(summary["noise_floor"].get<double>(), 0, 1e-12);
}

TEST_F(Record, IntensityIsOperationsPerByteBesideTheRidgePointOfTheMachine) {
  const auto path = write_run("run", 1'600'000);
  const auto of_both = [&](const std::filesystem::path& run) {
    const RunData data = load_run(run);
    return json{compute_metrics(*data.cases[0], {"arithmetic_intensity", "ridge_point"}),
                compute_metrics(*data.cases[1], {"arithmetic_intensity", "ridge_point"})};
  };
  const json weights = of_both(path);
  EXPECT_DOUBLE_EQ(weights[0]["arithmetic_intensity"], 600. / 600);
  EXPECT_DOUBLE_EQ(weights[1]["arithmetic_intensity"], (900. + 60) / (300 + 60));
  EXPECT_DOUBLE_EQ(weights[1]["ridge_point"], 1e6 / 1e9);
  rewrite(path / "cases" / "spec.jsonl", [](LineRecord& line) {
    line.turns[0].target.kv_bytes = 100;
    line.turns[0].draft.kv_bytes = 20;
  });
  EXPECT_DOUBLE_EQ(of_both(path)[1]["arithmetic_intensity"], 960. / 480) << "the cache counts";
  environment_.erase("peak_flops");
  const json unknown = of_both(write_run("unknown", 1'600'000));
  EXPECT_TRUE(unknown[1]["ridge_point"].is_null());
  EXPECT_DOUBLE_EQ(unknown[0]["arithmetic_intensity"], 1) << "it needs no measured speed";
}

// In each text one position has an infinite divergence, and two have .2 and .4.
TEST_F(Record, InfiniteDivergencesAreCountedApart) {
  const auto path = write_run("run", 1'600'000);
  const json before = summarise_run(path)["cases"][1]["metrics"];
  for (const char* name : {"distance", "kl", "kl_infinite", "perplexity"})
    EXPECT_TRUE(before[name].is_null()) << name;
  const std::vector<double> distances = {.1, 1, .3}, divergences = {.2, HUGE_VAL, .4};
  rewrite(path / "cases" / "spec.jsonl", [&](LineRecord& line) {
    for (std::size_t i = 0; i < 3; ++i) {
      line.turns[0].steps[i].drafted[0].distance = distances[i];
      line.turns[0].steps[i].drafted[0].kl = divergences[i];
    }
  });
  const json summary = summarise_run(path);
  const json& m = summary["cases"][1]["metrics"];
  EXPECT_NEAR(m["distance"].get<double>(), 1.4 / 3, 1e-12);
  EXPECT_NEAR(m["kl"].get<double>(), .3, 1e-12);
  EXPECT_EQ(m["kl_infinite"], 3) << "one in each of three texts";
  EXPECT_TRUE(m["kl_ci95"].is_array());
  const Table table = summary_table(summary);
  const auto cell = [&](const std::string& title) {
    const auto column = std::ranges::find(table.header, title) - table.header.begin();
    return table.rows.at(1).at(static_cast<std::size_t>(column));
  };
  EXPECT_EQ(cell("KL"), "0.30");
  EXPECT_EQ(cell("KL inf."), "3");
}

TEST_F(Record, PerplexityIsTheExponentialOfTheNegativeLogLikelihood) {
  const auto path = write_run("run", 1'600'000);
  for (const auto& [prompt, nats] : {std::pair{"0", 2.}, std::pair{"1", 4.}}) {
    json line = {{"kind", "nll"}, {"case", "spec"}, {"prompt", prompt}, {"seed", 1}};
    line["sum"] = nats, line["tokens"] = 4;
    JsonLinesWriter(path / "teacher.jsonl").append(line);
  }
  const json m = summarise_run(path)["cases"][1]["metrics"];
  EXPECT_NEAR(m["perplexity"].get<double>(), std::exp(6. / 8), 1e-12);
  for (const std::size_t end : {0u, 1u}) {
    EXPECT_NEAR(m["perplexity_ci95"][end].get<double>(), std::exp(m["target_nll_ci95"][end].get<double>()),
                1e-12);
  }
}

TEST_F(Record, ConfidenceIsComparedWithAcceptance) {
  const auto path = write_run("run", 1'600'000);
  const json before = summarise_run(path)["cases"][1]["metrics"];
  for (const char* name : {"confidence_ece", "confidence_brier", "confidence_bins", "accepted_by_confidence"})
    EXPECT_TRUE(before[name].is_null()) << name << " without confidences";
  std::vector<LineRecord> lines = read_case_file(path / "cases" / "spec.jsonl");
  std::filesystem::remove(path / "cases" / "spec.jsonl");
  for (LineRecord& line : lines) {
    for (StepRecord& step : line.turns[0].steps) {
      ASSERT_EQ(step.drafted.size(), 2u);
      step.drafted[0].confidence = .8f;
      step.drafted[1].confidence = .4f;
    }
    JsonLinesWriter(path / "cases" / "spec.jsonl").append(to_json(line));
  }
  // In one repeat: 9 first tokens, 6 of them accepted; 6 second ones were tested, 3 of them accepted.
  const json m = summarise_run(path)["cases"][1]["metrics"];
  ASSERT_EQ(m["confidence_bins"].size(), 2u);
  EXPECT_NEAR(m["confidence_bins"][0].get<double>(), .4, 1e-6);
  EXPECT_NEAR(m["confidence_bins"][1].get<double>(), .8, 1e-6);
  EXPECT_DOUBLE_EQ(m["accepted_by_confidence"][0], .5);
  EXPECT_DOUBLE_EQ(m["accepted_by_confidence"][1], 2. / 3);
  EXPECT_EQ(m["accepted_by_confidence_ci95"].size(), 2u);
  EXPECT_NEAR(m["confidence_ece"].get<double>(), (6 * .1 + 9 * (.8 - 2. / 3)) / 15, 1e-6);
  EXPECT_NEAR(m["confidence_brier"].get<double>(), (3 * .36 + 3 * .16 + 6 * .04 + 3 * .64) / 15, 1e-6);
}

// The controller's predictions are another forecast of the same tokens.
TEST_F(Record, PredictionsOfAControllerAreComparedWithAcceptance) {
  const auto path = write_run("run", 1'600'000);
  const std::vector<const char*> names = {"predicted_ece", "predicted_brier", "predicted_bins",
                                          "accepted_by_predicted"};
  const json before = summarise_run(path)["cases"][1]["metrics"];
  for (const char* name : names) EXPECT_TRUE(before[name].is_null()) << name << " without predictions";
  rewrite(path / "cases" / "spec.jsonl", [](LineRecord& line) {
    for (StepRecord& step : line.turns[0].steps) {
      for (std::size_t i = 0; i < 2; ++i) {
        step.drafted[i].confidence = .9f;
        step.drafted[i].predicted = i == 0 ? .75f : .25f;
      }
    }
  });
  // In one repeat: 9 first tokens, 6 of them accepted; 6 second ones were tested, 3 of them accepted.
  const json m = summarise_run(path)["cases"][1]["metrics"];
  ASSERT_EQ(m["predicted_bins"].size(), 2u);
  EXPECT_DOUBLE_EQ(m["predicted_bins"][0], .25);
  EXPECT_DOUBLE_EQ(m["predicted_bins"][1], .75);
  EXPECT_DOUBLE_EQ(m["accepted_by_predicted"][0], .5);
  EXPECT_DOUBLE_EQ(m["accepted_by_predicted"][1], 2. / 3);
  EXPECT_NEAR(m["predicted_ece"].get<double>(), (6 * .25 + 9 * (.75 - 2. / 3)) / 15, 1e-12);
  EXPECT_NEAR(m["predicted_brier"].get<double>(), (3 * .5625 + 3 * .0625 + 6 * .0625 + 3 * .5625) / 15,
              1e-12);
  ASSERT_EQ(m["confidence_bins"].size(), 1u) << "the confidences are not mixed with the predictions";
  EXPECT_NEAR(m["confidence_bins"][0].get<double>(), .9, 1e-6);
}

TEST_F(Record, EveryPromptHasItsCopiedShare) {
  const auto path = write_run("run", 1'600'000);
  LineRecord line = read_case_file(path / "cases" / "spec.jsonl").front();
  // Prompt 1 copies itself: its text was 7 7 7 7 7.
  line.prompt = "1";
  line.turns[0].context = {7};
  line.turns[0].tokens.assign(7, 7);
  std::vector<LineRecord> lines = read_case_file(path / "cases" / "spec.jsonl");
  lines[1] = line;
  std::filesystem::remove(path / "cases" / "spec.jsonl");
  for (const LineRecord& each : lines) JsonLinesWriter(path / "cases" / "spec.jsonl").append(to_json(each));
  const json summary = summarise_run(path);
  const json& prompts = summary["cases"][1]["by_prompt"];
  EXPECT_EQ(prompts.size(), 3u);
  EXPECT_DOUBLE_EQ(prompts["0"]["copied_4grams"], 2. / 7);
  EXPECT_DOUBLE_EQ(prompts["1"]["copied_4grams"], 4. / 5);
  EXPECT_DOUBLE_EQ(prompts["0"]["tau"], 2.0);
  EXPECT_DOUBLE_EQ(prompts["0"]["speedup"], 1.25);
  EXPECT_EQ(prompts["0"]["category"], "a");
  const std::string text = prompts_text(summary, "spec");
  EXPECT_THAT(text, ::testing::AllOf(HasSubstr("copied"), HasSubstr("0.29"), HasSubstr("0.80"),
                                     HasSubstr("1.25"), ::testing::Not(HasSubstr("autoregressive"))));
  EXPECT_THAT(prompts_text(summary, ""), HasSubstr("autoregressive"));
}

TEST_F(Record, TheResidualHasTheIntervalThatPromptsAndRoundsGiveIt) {
  const auto last_term = [&](const std::string& name, const std::vector<double>& rounds) {
    const auto path = write_run(name, 1'600'000);
    for (const double ns : rounds) JsonLinesWriter(path / "calibration.jsonl").append(calibration_round(ns));
    return json(summarise_run(path)["cases"][1]["waterfall"].back());
  };
  // Equal prompts and equal rounds vary in nothing. The calibrated step takes 1.2 + .2 ms, the measured
  // one 1.6 ms.
  const json steady = last_term("steady", {1e6, 1e6, 1e6});
  EXPECT_NEAR(steady["residual_share"].get<double>(), .2 / 1.6, 1e-12);
  EXPECT_NEAR(steady["residual_share_ci95"][0].get<double>(), .2 / 1.6, 1e-12);
  EXPECT_NEAR(steady["residual_share_ci95"][1].get<double>(), .2 / 1.6, 1e-12);
  // With rounds that differ, the draft's .2 ms are a larger or smaller part of a target forward.
  const json noisy = last_term("noisy", {.5e6, 1e6, 1.5e6});
  EXPECT_LT(noisy["residual_share_ci95"][0].get<double>(), .2 / 1.6 - .02);
  EXPECT_GT(noisy["residual_share_ci95"][1].get<double>(), .2 / 1.6 + .02);
  EXPECT_TRUE(last_term("single", {1e6})["residual_share_ci95"].is_null());
}

TEST_F(Record, DriftOfTheMachineIsATermOfTheWaterfall) {
  const auto path = write_run("run", 1'600'000);
  for (const double ns : {1e6, 1e6, 2e6})
    JsonLinesWriter(path / "calibration.jsonl").append(calibration_round(ns));
  const auto waterfall = [&] { return json(summarise_run(path)["cases"][1]["waterfall"]); };
  const json unknown = waterfall();
  EXPECT_EQ(unknown.size(), 7u) << "lines of older records do not name the rounds next to them";
  const auto say = [&](const char* file, int rounds) {
    std::vector<LineRecord> lines = read_case_file(path / "cases" / file);
    std::filesystem::remove(path / "cases" / file);
    for (LineRecord& line : lines) {
      line.calibration_rounds = rounds;
      JsonLinesWriter(path / "cases" / file).append(to_json(line));
    }
  };
  say("autoregressive.jsonl", 1);  // between two rounds at .75 of the mean
  say("spec.jsonl", 2);            // between .75 and 1.5
  const json known = waterfall();
  ASSERT_EQ(known.size(), 8u);
  EXPECT_EQ(known[5]["step"], "machine_drift");
  EXPECT_NEAR(known[5]["log_ratio"].get<double>(), std::log(.75 / 1.125), 1e-12);
  EXPECT_NEAR(1 - known[7]["residual_share"].get<double>(),
              (1 - unknown[6]["residual_share"].get<double>()) * 1.5, 1e-12);
}

TEST_F(Record, ACaseThatLostEqualityHasNoSpeed) {
  const auto path = write_run("run", 1'600'000);
  plan_repeats(path, 3);
  LineRecord line = read_case_file(path / "cases" / "spec.jsonl").back();
  line.repeat = 2;
  line.matches_reference = false;
  line.first_divergence = 4;
  JsonLinesWriter(path / "cases" / "spec.jsonl").append(to_json(line));
  const json summary = summarise_run(path);
  const json& m = summary["cases"][1]["metrics"];
  EXPECT_TRUE(m["speedup"].is_null());
  EXPECT_TRUE(m["ms_per_token"].is_null());
  EXPECT_FALSE(m["alpha"].is_null());
  EXPECT_EQ(m["matches_reference"], false);
  EXPECT_EQ(m["first_divergence"], 4);
  EXPECT_EQ(summary["errors"].size(), 1u);
}

TEST_F(Record, AFailedLineIsListedAndNotCounted) {
  const auto path = write_run("run", 1'600'000);
  plan_repeats(path, 3);
  LineRecord line;
  line.case_id = "spec";
  line.prompt = "2";
  line.seed = 1;
  line.repeat = 2;
  line.error = "NaN logits";
  JsonLinesWriter(path / "cases" / "spec.jsonl").append(to_json(line));
  const json summary = summarise_run(path);
  EXPECT_EQ(summary["errors"][0]["message"], "NaN logits");
  EXPECT_EQ(summary["cases"][1]["errors"], 1);
  EXPECT_EQ(summary["cases"][1]["metrics"]["tokens"], 18);
}

// With batch_of_prefixes each drafted token ends a sequence of its own, so a step is not priced by
// t(gamma + 1). The predicted tokens per step stay the same.
TEST_F(Record, AChainThatIsVerifiedWithFurtherRowsIsPricedByItsRows) {
  const auto path = write_run("prefixes", 1'600'000);
  for (int i = 0; i < 3; ++i) JsonLinesWriter(path / "calibration.jsonl").append(calibration_round(1e6));
  const json once = summarise_run(path)["cases"][1];
  rewrite(path / "cases" / "spec.jsonl", [](LineRecord& line) {
    for (StepRecord& step : line.turns[0].steps) step.rows += static_cast<int>(step.drafted.size());
  });
  json config = read_json_file(path / "config.json");
  config["cases"][1]["verify"] = "batch_of_prefixes";
  write_json_file(path / "config.json", config);
  const json batch = summarise_run(path)["cases"][1];
  EXPECT_EQ(once["waterfall"][0]["step"], "leviathan_3_8");
  EXPECT_EQ(batch["waterfall"][0]["step"], "free_rows");
  EXPECT_TRUE(once["predictions"].contains("measured_t_speedup"));
  EXPECT_FALSE(batch["predictions"].contains("measured_t_speedup"));
  EXPECT_EQ(batch["waterfall"][1]["step"], "window_rows");
  EXPECT_EQ(batch["predictions"].at("leviathan_eq_1"), once["predictions"].at("leviathan_eq_1"));
}

// A rule over whole paths has no acceptance of one draw. What does not need one is the same.
TEST_F(Record, ARuleOverWholePathsHasNoAlpha) {
  const auto path = write_run("paths", 1'600'000);
  for (int i = 0; i < 3; ++i) JsonLinesWriter(path / "calibration.jsonl").append(calibration_round(1e6));
  const json token = summarise_run(path)["cases"][1];
  json config = read_json_file(path / "config.json");
  config["cases"][1]["rule"] = "block";
  write_json_file(path / "config.json", config);
  const json summary = summarise_run(path), block = summary["cases"][1];
  for (const char* name :
       {"alpha", "alpha_min", "alpha_agreement_p", "iid_p_value", "alpha_drift_p", "tau_over_eq1"}) {
    EXPECT_TRUE(block["metrics"].at(name).is_null()) << name;
    EXPECT_FALSE(block["metrics"].contains(std::string(name) + "_ci95")) << name;
  }
  EXPECT_TRUE(block["alpha_by_prompt"].empty());
  EXPECT_FALSE(token["alpha_by_prompt"].empty());
  for (const char* name : {"tau", "acceptance_at", "draft_utilization", "speedup"})
    EXPECT_EQ(block["metrics"][name], token["metrics"][name]) << name;
  for (const char* name : {"measured_costs", "positional_speedup", "chen_ratio"})
    EXPECT_EQ(block["predictions"].at(name), token["predictions"].at(name)) << name;
  for (const char* name : {"leviathan_3_8", "measured_t_speedup", "implied_alpha_tau"}) {
    EXPECT_FALSE(block["predictions"].contains(name)) << name;
    EXPECT_TRUE(token["predictions"].contains(name)) << name;
  }
  EXPECT_EQ(block["waterfall"][0]["step"], "free_rows");
  EXPECT_NEAR(block["waterfall"].back()["unexplained_share"].get<double>(),
              token["waterfall"].back()["unexplained_share"].get<double>(), 1e-12);
}

TEST_F(Record, TablesInAllForms) {
  const json summary = summarise_run(write_run("run", 1'600'000));
  EXPECT_THAT(to_text(summary_table(summary)), HasSubstr("1.25 [1.25, 1.25] (n = 3)"));
  EXPECT_THAT(to_latex(summary_table(summary), "50 %"),
              ::testing::AllOf(HasSubstr("\\toprule"), HasSubstr("50 \\%")));
  const Table table = summary_table(summary);
  const auto alpha = std::ranges::find(table.header, "alpha");
  ASSERT_NE(alpha, table.header.end());
  EXPECT_EQ(*(alpha - 1), "rule") << "alpha belongs to a rule";
  const auto rule = alpha - 1 - table.header.begin();
  EXPECT_EQ(table.rows[1][static_cast<std::size_t>(rule)], summary["cases"][1]["rule"]);
  EXPECT_EQ(table.rows[0][static_cast<std::size_t>(rule)], number_text(nullptr)) << "it drafts nothing";
  const std::string csv = summary_csv(summary);
  EXPECT_EQ(std::count(csv.begin(), csv.end(), '\n'), 3);
  EXPECT_EQ(csv_field("a,\"b\""), "\"a,\"\"b\"\"\"");
  EXPECT_EQ(number_text(0.6666, 3), "0.667");
  EXPECT_EQ(number_text(0.00612, 3), "0.00612");
  EXPECT_EQ(number_text(0, 3), "0");
  EXPECT_EQ(number_text(12.345, 3), "12.3");
  EXPECT_EQ(number_text(nullptr), "—");
}

TEST(ReferenceCheck, PromisesByLossClass) {
  LineRecord a, b;
  a.turns = {speculative_turn(4)};
  b = a;
  GenerationOptions generation;  // greedy
  EXPECT_EQ(check_against(a, b, promise_of(generation)).matches, true);
  b.turns[0].row_hashes[3] = 8;
  EXPECT_EQ(check_against(a, b, promise_of(generation)).matches, false) << "rows count for L2";
  EXPECT_EQ(check_against(a, b, promise_of(generation)).first_divergence, 3);
  b.turns[0].tokens.pop_back();
  b.turns[0].row_hashes.assign(6, 9);
  EXPECT_EQ(check_against(a, b, promise_of(generation)).first_divergence, 6) << "a prefix is not equal";
  b = a;
  b.turns[0].row_hashes[3] = 8;
  generation.coins = CoinUse::gumbel;
  generation.sampling.temperature = 1;
  EXPECT_EQ(check_against(a, b, promise_of(generation)).matches, true) << "ids only for coupled sampling";
  b.turns[0].tokens[2] = 77;
  EXPECT_EQ(check_against(a, b, promise_of(generation)).first_divergence, 2);
  generation.coins = CoinUse::independent;
  EXPECT_FALSE(check_against(a, b, promise_of(generation)).matches.has_value());
}

}  // namespace
}  // namespace speclab::metrics_test
