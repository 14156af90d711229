// The tests of i.i.d. acceptance that are shown with the waterfall of a case.
#include "experiments/analysis/case_iid.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <cmath>
#include <functional>

#include "tests/experiments/cli/cli.h"
#include "tests/experiments/metrics/hand_made_run.h"

namespace speclab::case_iid_test {
namespace {

using namespace speclab::fixtures;
using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

class CaseIid : public Record {
 protected:
  /// The drafting case of the hand-made run; `change` gets the first turn of every prompt.
  CaseData drafting(const std::function<void(int prompt, LineRecord&)>& change) {
    const RunData run = load_run(write_run("run" + std::to_string(++runs_), 1'600'000));
    CaseData data = *run.cases.at(1);
    for (std::size_t i = 0; i < data.lines.size(); ++i) {
      PromptLines lines = *data.lines[i];
      change(static_cast<int>(i), lines.at(0).at(0));
      data.lines[i] = std::make_shared<const PromptLines>(lines);
    }
    return data;
  }
  /// Two equal turns: the steps of every prompt accept 2, 1, 0, 2, 1, 0 tokens.
  static void twice(LineRecord& line) { line.turns.push_back(line.turns.at(0)); }
  int runs_ = 0;
};

TEST_F(CaseIid, ByHand) {
  const json tests = iid_tests(drafting([](int, LineRecord& line) { twice(line); }));
  EXPECT_NEAR(tests["prompts"]["dispersion"].get<double>(), 0, 1e-12) << "all prompts are alike";
  EXPECT_NEAR(tests["prompts"]["p_value"].get<double>(), 1, 1e-12);
  // Deviations 1, 0, -1, 1, 0, -1: products at lag 1 sum to -1 of 4; the bias of subtracted means is -1/6.
  EXPECT_NEAR(tests["steps"]["lag1"].get<double>(), -1 / 4. + 1 / 6., 1e-12);
  EXPECT_EQ(tests["steps"]["lags"], 5);
  // 12 of 18 first tokens and 6 of 12 second ones.
  const double g2 = 2 * (12 * std::log(12 / 18. / .6) + 6 * std::log(6 / 18. / .4) + 6 * std::log(.5 / .6) +
                         6 * std::log(.5 / .4));
  EXPECT_NEAR(tests["positions"]["p_value"].get<double>(), std::erfc(std::sqrt(g2 / 2)), 1e-12);

  // Each prompt accepts 3 of 4, 2 of 3 and 1 of 3 tokens in its thirds, so 6 of 10. D = 3 (.6, .2) is the sum
  // over three prompts of accepted - expected tokens in the first two thirds. Its covariance is 3 (.8 / 3)
  // [2.4, -1.2; -1.2, 2.1].
  EXPECT_EQ(tests["thirds"]["alpha"], json({3 / 4., 2 / 3., 1 / 3.}));
  EXPECT_NEAR(tests["thirds"]["p_value"].get<double>(), std::exp(-3 * 1.14 / .96 / 2), 1e-12);

  const json few = iid_tests(drafting([](int, LineRecord&) {}));
  EXPECT_TRUE(few.contains("positions"));
  EXPECT_FALSE(few.contains("steps")) << "three steps of a prompt have no pair at lag 5";
  // Prompt 0 keeps its first step alone: 2 of 2 tests accept, where alpha is 8 / 12.
  const json uneven = iid_tests(drafting([](int prompt, LineRecord& line) {
    if (prompt == 0) line.turns[0].steps.resize(1);
  }));
  EXPECT_NEAR(uneven["prompts"]["dispersion"].get<double>(), (1 + .1 + .1) / 2, 1e-12);
}

TEST_F(CaseIid, LeavesOutWhatTheStepsDoNotAllow) {
  const json varied = iid_tests(drafting([](int, LineRecord& line) {
    StepRecord& first = line.turns[0].steps[0];
    first.drafted.resize(1);
    first.accepted = 1, first.emitted = 2;
    twice(line);
  }));
  EXPECT_TRUE(varied.contains("prompts"));
  EXPECT_FALSE(varied.contains("steps")) << "lengths that vary correlate steps by themselves";
  const auto no_chain = [](int, LineRecord& line) { line.turns[0].steps[0].drafted[1].parent = 0; };
  EXPECT_TRUE(iid_tests(drafting(no_chain)).is_null());
  const auto probing = [](int, LineRecord& line) { line.turns[0].steps[0].probes.emplace_back(); };
  EXPECT_TRUE(iid_tests(drafting(probing)).is_null());
}

TEST_F(CaseIid, IsALineOfText) {
  const std::string text = iid_text(iid_tests(drafting([](int, LineRecord& line) { twice(line); })));
  EXPECT_THAT(text, AllOf(HasSubstr("Prompts: dispersion 0.00 (1 = chance), p = 1."),
                          HasSubstr("Neighbouring steps: correlation -0.083, p = "),
                          HasSubstr("Thirds of the texts: alpha 0.750, 0.667, 0.333, p = 0.168."),
                          HasSubstr("(Ljung-Box, 5 lags)"), HasSubstr("Positions in the draft: p = 0.")));
  EXPECT_THAT(iid_text(iid_tests(drafting([](int, LineRecord&) {}))), testing::Not(HasSubstr("steps")));
}

// The hand-made lines say that a device planned their steps.
TEST_F(CaseIid, ExplainPrintsItBesideTheWaterfallAndTheDevice) {
  const auto run = write_run("run", 1'600'000);
  for (int i = 0; i < 3; ++i) JsonLinesWriter(run / "calibration.jsonl").append(calibration_round(1e6));
  const auto explained = [&](std::vector<std::string> words) {
    words.insert(words.begin(), {"explain", "run"});
    Cli cli(dir_.path(), std::move(words));
    EXPECT_EQ(cli.wait(), 0) << cli.err();
    return cli.out();
  };
  const std::string text = explained({});
  const json entry = json::parse(explained({"--json"}))["spec"];
  EXPECT_EQ(entry["waterfall"].back()["step"], "measured");
  EXPECT_EQ(entry["iid"], iid_tests(drafting([](int, LineRecord&) {})));
  EXPECT_EQ(entry["device"]["planned_share"], 1);
  EXPECT_THAT(text, AllOf(HasSubstr("draft cost"), HasSubstr("\nacceptance: is it the same"),
                          HasSubstr("\ndevice: 100 % of the steps")));
}

}  // namespace
}  // namespace speclab::case_iid_test
