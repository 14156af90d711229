// What-ifs in a record and in `speclab explain`.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <filesystem>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "experiments/metrics/summary.h"
#include "tests/experiments/cli/cli.h"
#include "tests/experiments/metrics/hand_made_run.h"
#include "tests/experiments/metrics/tree_steps.h"

namespace speclab::sensitivity_test {
namespace {

using namespace speclab::fixtures;
using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

// alpha .6 in chains of two tokens: more acceptance multiplies the tokens by this factor.
constexpr double kGain = (1 + .65 + .65 * .65) / (1 + .6 + .6 * .6);

class WhatIfs : public Record {
 protected:
  /// Writes a run whose drafting case has these lines and this calibration.
  std::filesystem::path write(const std::function<void(LineRecord&)>& change, const json& round,
                              int rounds = 3) {
    const auto path = write_run("run", 1'600'000);
    rewrite(path / "cases" / "spec.jsonl", change);
    for (int i = 0; i < rounds; ++i) JsonLinesWriter(path / "calibration.jsonl").append(round);
    return path;
  }
  static void expect_value(const json& list, const char* name, double value) {
    ASSERT_TRUE(list.contains(name)) << name << list.dump(1);
    EXPECT_NEAR(list[name]["value"].get<double>(), value, 1e-9) << name;
  }
  std::string explained(const std::vector<std::string>& more) {
    std::vector<std::string> words = {"explain", "run", "spec"};
    words.insert(words.end(), more.begin(), more.end());
    Cli cli(dir_.path(), std::move(words));
    EXPECT_EQ(cli.wait(), 0) << cli.err();
    return cli.out();
  }
};

// A forward of three rows takes 1.2 times as long as one of one row, and drafting two tokens .2 times.
TEST_F(WhatIfs, OfAChain) {
  const auto path = write([](LineRecord&) {}, calibration_round(1e6));
  const json predictions = summarise_run(path)["cases"][1]["predictions"];
  expect_value(predictions, "measured_costs", 2 / 1.4);
  expect_value(predictions, "what_if_more_alpha", 2 * kGain / 1.4);
  expect_value(predictions, "what_if_half_c", 2 / 1.3);
  expect_value(predictions, "what_if_flat_t", 2 / 1.2);
  expect_value(predictions, "what_if_no_overhead", 2 / 1.4);
  const json& flat = predictions["what_if_flat_t"];
  EXPECT_EQ(flat["kind"], "what_if");
  EXPECT_EQ(flat["quantity"], "speedup");
  EXPECT_TRUE(flat["measured"].is_null());
  EXPECT_TRUE(flat["error"].is_null());
  EXPECT_NEAR(flat["change"].get<double>(), 1.4 / 1.2 - 1, 1e-9);
  EXPECT_NEAR(flat["value_ci95"][0].get<double>(), 2 / 1.2, 1e-9) << "prompts and rounds are equal";
  EXPECT_NEAR(flat["value_ci95"][1].get<double>(), 2 / 1.2, 1e-9);
  EXPECT_FALSE(predictions["measured_costs"].contains("value_ci95"));
  EXPECT_FALSE(predictions["measured_costs"].contains("change"));

  const json entry = json::parse(explained({"--json"}))["spec"];
  const json& sensitivity = entry["sensitivity"];
  EXPECT_EQ(sensitivity.size(), 5u);
  EXPECT_EQ(sensitivity["what_if_flat_t"], flat);
  expect_value(sensitivity, "measured_costs", 2 / 1.4);
  EXPECT_THAT(explained({}),
              AllOf(HasSubstr("\nWhat would change the speedup of the calibrated step, 1.429 [1.429, 1.429]"),
                    HasSubstr("\nflat t(n)      1.667 [1.667, 1.667]"), HasSubstr("+16.7 %"),
                    HasSubstr("E = mean over steps of (1 - alpha^(gamma_i+1)) / (1 - alpha)")));
}

TEST_F(WhatIfs, HaveIntervalsOverPrompts) {
  const auto path = write(
      [](LineRecord& line) {
        std::vector<StepRecord>& steps = line.turns[0].steps;
        if (line.prompt == "0") steps = {steps[0], steps[0]};  // accepts all its drafts
      },
      calibration_round(1e6));
  const json half = summarise_run(path)["cases"][1]["predictions"]["what_if_half_c"];
  // Between two tokens per step, if only the other prompts are drawn, and three.
  EXPECT_NEAR(half["value"].get<double>(), 18 / 8. / 1.3, 1e-9);
  EXPECT_GE(half["value_ci95"][0].get<double>(), 2 / 1.3 - 1e-9);
  EXPECT_LE(half["value_ci95"][1].get<double>(), 3 / 1.3 + 1e-9);
  EXPECT_GT(half["value_ci95"][1].get<double>() - half["value_ci95"][0].get<double>(), .2);
}

// A drafter that copies and finds nothing in one step of three. It has no draft model, so it starts from
// Eq. 1.
TEST_F(WhatIfs, OfCopies) {
  const auto path = write(
      [](LineRecord& line) {
        GenerationRecord& turn = line.turns[0];
        StepRecord nothing;
        nothing.emitted = nothing.rows = 1;
        nothing.times.ns = {0, 1'600'000, 0, 0};
        turn.steps = {turn.steps[0], nothing, turn.steps[1]};
        turn.draft = {};
      },
      calibration_round(1e6));
  json config = read_json_file(path / "config.json");
  config["cases"][1]["draft"] = nullptr;
  write_json_file(path / "config.json", config);
  const json entry = summarise_run(path)["cases"][1];
  const json& predictions = entry["predictions"];
  const double alpha = 3 / 4., more = .8, target = (1 + 2 * 1.2) / 3, draft = .1 * 4 / 3;
  const auto tokens = [](double a) { return 1 + 2 * (1 + a + a * a); };
  expect_value(predictions, "measured_costs", 2 / (target + draft));
  expect_value(predictions, "what_if_more_alpha", 2 * tokens(more) / tokens(alpha) / (target + draft));
  expect_value(predictions, "what_if_half_c", 2 / (target + draft / 2));
  expect_value(predictions, "what_if_flat_t", 2 / (1 + draft));
  EXPECT_THAT(entry["waterfall"][0]["explanation"].get<std::string>(), HasSubstr("Eq. 1"));
  for (const json& term : entry["waterfall"]) {
    const bool end = term["step"] == "leviathan_3_8" || term["step"] == "measured";
    EXPECT_TRUE(term.at(end ? "speedup_ci95" : "log_ratio_ci95").is_array()) << term["step"];
  }
}

// The children of a node of the tree <2, 2> are accepted with probability .4 and .2 in these steps, so one of
// them is with .6, as in the chain above. Forwards of 1 and 7 rows take 1 and 1.3 ms, drafting 6 tokens .3
// ms, the rule .02 ms and .01 ms for each emitted token, everything else .05 ms.
TEST_F(WhatIfs, OfATree) {
  const auto step = [](int drafted, int accepted, double draft, double accept, double other) {
    return json{{"drafted", drafted},
                {"accepted", accepted},
                {"ns", {{"draft", draft}, {"accept", accept}, {"other", other}, {"step", 1}}}};
  };
  json round = calibration_round(1e6);
  round["t_n_ns"] = {{"1", 1e6}, {"7", 1.3e6}};
  round["cases"] = {{"autoregressive", {step(0, 0, 0, 2e4, 3e4)}},
                    {"spec", {step(6, 0, 3e5, 3e4, 5e4), step(6, 2, 3e5, 5e4, 5e4)}}};
  const auto path = write(
      [](LineRecord& line) {
        line.turns[0].steps = {tree_step({2, 5}), tree_step({}), tree_step({1})};
        line.turns[0].target = passes(3, 21, 2100, 300);  // every row has logits
      },
      round);
  const json entry = summarise_run(path)["cases"][1];
  EXPECT_EQ(entry["waterfall"][0]["step"], "free_rows");
  for (const json& term : entry["waterfall"]) {
    const bool end = term["step"] == "free_rows" || term["step"] == "measured";
    EXPECT_TRUE(term.at(end ? "speedup_ci95" : "log_ratio_ci95").is_array()) << term["step"];
  }
  const json& predictions = entry["predictions"];
  const double more = 2 * kGain;
  expect_value(predictions, "measured_costs", 2 * 1.05 / (.3 + 1.3 + .04 + .05));
  expect_value(predictions, "what_if_more_alpha", more * 1.05 / (.3 + 1.3 + .02 + .01 * more + .05));
  expect_value(predictions, "what_if_half_c", 2 * 1.05 / (.15 + 1.3 + .04 + .05));
  expect_value(predictions, "what_if_flat_t", 2 * 1.05 / (.3 + 1 + .04 + .05));
  expect_value(predictions, "what_if_no_overhead", 2 * 1 / (.3 + 1.3));
  EXPECT_EQ(predictions["measured_costs"]["kind"], "prediction");
  EXPECT_NEAR(predictions["measured_costs"]["measured"].get<double>(),
              entry["metrics"]["speedup"].get<double>(), 1e-12);
  EXPECT_FALSE(predictions["measured_costs"].contains("value_ci95"));
  EXPECT_THAT(predictions["what_if_more_alpha"]["equation"].get<std::string>(), HasSubstr("prod p_dk"));
}

// Steps that feed two probes and draft nothing test no token, so their acceptance has no law; the other
// what-ifs remain.
TEST_F(WhatIfs, WithoutALawThereIsNoWhatIfOfAcceptance) {
  const auto path = write(
      [](LineRecord& line) {
        StepRecord one;
        one.emitted = 1;
        one.rows = 3;
        one.probes = {{.id = 5, .parent = 0, .best = 6}, {.id = 6, .parent = 1, .best = 7}};
        one.times.ns = {0, 1'600'000, 0, 0};
        line.turns[0].steps.assign(6, one);
      },
      calibration_round(1e6));
  const json predictions = summarise_run(path)["cases"][1]["predictions"];
  EXPECT_FALSE(predictions.contains("what_if_more_alpha"));
  EXPECT_TRUE(predictions.contains("what_if_half_c"));
}

TEST_F(WhatIfs, NeedACalibration) {
  const auto path = write([](LineRecord&) {}, nullptr, 0);
  const json predictions = summarise_run(path)["cases"][1]["predictions"];
  EXPECT_FALSE(predictions.empty());
  for (const auto& [name, entry] : predictions.items()) EXPECT_NE(entry["kind"], "what_if") << name;
}

}  // namespace
}  // namespace speclab::sensitivity_test
