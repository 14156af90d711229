// What a run emitted against the bounds of its drafts: metrics, and the verdict on a rule that emits more
// than a lossless one can.
#include <gmock/gmock.h>

#include <cmath>
#include <random>

#include "core/base/error.h"
#include "core/theory/audit/toy_step.h"
#include "experiments/analysis/table.h"
#include "experiments/metrics/bound_verdict.h"
#include "experiments/metrics/recorded_bounds.h"
#include "experiments/metrics/summary.h"
#include "tests/experiments/metrics/hand_made_run.h"

namespace speclab::bounds_test {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

/// Block verification of a chain with one error: it tests the whole draft with the product of all ratios,
/// which is not capped on the way, while the residuals use the capped one. The law of the first token stays
/// right. E[tau] is 2.974 for three drafted tokens of the golden rows; the largest possible is 2.8836.
void uncapped_block(const AcceptanceRule&, const RuleOptions&, const Draft& draft, const TargetRows& rows,
                    const Coins& coins, std::int64_t position, Acceptance& out) {
  const int gamma = draft.tree.drafted();
  std::vector<double> rho = {1};
  double product = 1;
  for (int node = 1; node <= gamma; ++node) {
    const Token x = draft.tree.token(node);
    const double ratio = rows(node - 1).p->prob(x) / draft.q_at(node)->prob(x);
    rho.push_back(std::min(1.0, rho.back() * ratio));
    product *= ratio;
  }
  const auto passes = [&](int length) {
    double pass = std::min(1.0, product);
    if (length < gamma) {
      const double kept = rho[static_cast<std::size_t>(length)];
      double left = 0;
      for (Token x = 0; x < 4; ++x)
        left += std::max(0.0, kept * rows(length).p->prob(x) - draft.q_at(length + 1)->prob(x));
      pass = left > 0 ? left / (left + 1 - kept) : kept < 1 ? 0 : 1;
    }
    return coins.bernoulli(pass, {position, Purpose::accept, static_cast<std::uint32_t>(length)});
  };
  int length = gamma;
  while (length > 0 && !passes(length)) --length;
  out.path.clear();
  for (int node = 1; node <= length; ++node) out.path.push_back(node);
  out.next = 0;  // the bound does not depend on it
}

/// Steps on the golden rows.
std::vector<RecordedStep> golden_steps(const char* rule, std::vector<int> widths, enumerate::Draws draws,
                                       int count, const enumerate::Verify& verify = accept) {
  const enumerate::World world = enumerate::golden_world(static_cast<int>(widths.size()) + 1);
  std::vector<RecordedStep> steps;
  for (int i = 0; i < count; ++i) {
    enumerate::Step step;
    run_step(world, {widths}, draws, find_acceptance_rule(rule), {}, Coins(17, static_cast<std::uint64_t>(i)),
             step,
             [&](const AcceptanceRule& used, const RuleOptions& options, const Draft& draft,
                 const TargetRows& rows, const Coins& coins, std::int64_t position, Acceptance& out) {
               verify(used, options, draft, rows, coins, position, out);
               steps.push_back(recorded_step(
                   {draft, rows, out.path, static_cast<int>(out.path.size()) + 1, {}, coins, position}));
             });
  }
  return steps;
}

class Bounds : public fixtures::Record {
 protected:
  /// A run whose case "spec" has these steps in bounds.jsonl, divided over its three prompts.
  std::filesystem::path run_with(const std::string& name, const char* rule,
                                 const std::vector<RecordedStep>& steps, const char* loss = "L1") {
    const auto folder = write_run(name, 1'000'000);
    json config = read_json_file(folder / "config.json");
    config["cases"][1]["rule"] = rule;
    config["cases"][1]["loss_class"] = loss;
    write_json_file(folder / "config.json", config);
    JsonLinesWriter writer(folder / "bounds.jsonl");
    const std::size_t third = steps.size() / 3;
    for (std::size_t i = 0; i < 3; ++i) {
      const auto first = steps.begin() + static_cast<std::ptrdiff_t>(i * third);
      writer.append(
          bounds_line("spec", std::to_string(i), 1, {first, first + static_cast<std::ptrdiff_t>(third)}));
    }
    return folder;
  }
  static json spec_of(const json& summary) { return summary["cases"][1]; }
};

constexpr int kSteps = 12'000;

TEST_F(Bounds, ARuleThatReachesItsBoundIsNotWrong) {
  const json entry = spec_of(summarise_run(
      run_with("block", "block", golden_steps("block", {1, 1, 1}, enumerate::Draws::iid, kSteps))));
  const json& metrics = entry["metrics"];
  EXPECT_NEAR(metrics["tau_bound"].get<double>(), 2.8836, .03);
  EXPECT_NEAR(metrics["tau_of_bound"].get<double>(), 1, .015);
  EXPECT_LT(std::abs(metrics["tau_excess"].get<double>()), .05);
  EXPECT_TRUE(entry["above_bound"].is_null()) << entry["above_bound"];
}

TEST_F(Bounds, TheTokenRuleIsBelowTheBoundByThePairedGain) {
  const json metrics = spec_of(summarise_run(run_with(
      "token", "rejection", golden_steps("rejection", {1, 1, 1}, enumerate::Draws::iid, kSteps))))["metrics"];
  EXPECT_NEAR(metrics["tau_token_rule"].get<double>(), 2.734375, .03);
  EXPECT_NEAR(metrics["tau_path_rule"].get<double>(), 2.883625, .03);
  // The gain is paired, so its error is far below that of the two means.
  EXPECT_NEAR(metrics["path_gain"].get<double>(), .14925, .005);
  EXPECT_NEAR(metrics["path_gain_drawn"].get<double>(), .14925, .04) << "four standard errors";
  EXPECT_LT(std::abs(metrics["path_gain_z"].get<double>()), 4);
  EXPECT_LT(metrics["path_gain_drawn_ci95"][0].get<double>(),
            metrics["path_gain_drawn_ci95"][1].get<double>());
  ASSERT_EQ(metrics["path_gain_at"].size(), 3u);
  EXPECT_NEAR(metrics["path_gain_at"][0].get<double>(), 0, 1e-9);
  EXPECT_NEAR(metrics["path_gain_at"][1].get<double>(), .055, .003);
  EXPECT_NEAR(metrics["path_gain_at"][2].get<double>(), metrics["path_gain"].get<double>(), 1e-9);
  EXPECT_NEAR(metrics["tau_excess"].get<double>(), -.14925, .04);
  EXPECT_NEAR(metrics["position_bound"].get<double>(), .75, 1e-6) << "one draft: the overlap";
  EXPECT_NEAR(metrics["position_acceptance"].get<double>(), .75, .01);
}

TEST_F(Bounds, TheDrawnGainNeedsChainsAndARecordThatHasIt) {
  auto steps = golden_steps("rejection", {1, 1}, enumerate::Draws::iid, 30);
  const auto gain = [&](const char* name) {
    const json metrics = spec_of(summarise_run(run_with(name, "rejection", steps)))["metrics"];
    EXPECT_EQ(metrics["path_gain_z"].is_null(), metrics["path_gain_drawn"].is_null()) << name;
    return metrics["path_gain_drawn"];
  };
  EXPECT_TRUE(gain("new").is_number());
  steps.back().paired.reset();
  EXPECT_TRUE(gain("old").is_null());
  steps = golden_steps("rejection", {2, 1}, enumerate::Draws::iid, 30);
  EXPECT_TRUE(gain("trees").is_null());
}

// By hand: three steps with the differences .25, .25 and 1 - .5 = .5 have the mean 1/3 and the standard
// error sqrt(.0625 + .0625 + .25) / 3.
TEST_F(Bounds, TheZOfTheDrawnGainIsItsDifferenceInStandardErrors) {
  auto steps = golden_steps("rejection", {1, 1}, enumerate::Draws::iid, 3);
  const auto z = [&](const char* name) {
    return spec_of(summarise_run(run_with(name, "rejection", steps)))["metrics"]["path_gain_z"].get<double>();
  };
  for (RecordedStep& step : steps) {
    step.bounds.by_token = {.5, .25};
    step.bounds.by_path = {.5, .5};
    step.paired = theory::PairedOutcome{.by_token = 1, .by_path = 1};
  }
  EXPECT_NEAR(z("below"), -std::sqrt(3.), 1e-6);
  steps[0].bounds.by_path = steps[1].bounds.by_path = {.5, 0};
  steps[2].bounds.by_path = {.5, .75};
  steps[2].paired->by_path = 2;
  EXPECT_NEAR(z("above"), 1 / std::sqrt(.375), 1e-6);
  steps[2] = steps[1];
  for (RecordedStep& step : steps) step.bounds.by_path = {.5, .25 + 1e-7};
  EXPECT_EQ(z("rounding"), 0);
}

// The record has the numbers of another rule in place of those of block.
TEST_F(Bounds, DrawnNumbersOfAnotherRuleAreFarFromTheExpectedGain) {
  auto steps = golden_steps("rejection", {1, 1, 1}, enumerate::Draws::iid, 3000);
  for (RecordedStep& step : steps) step.paired->by_path = step.paired->by_token;
  const json metrics = spec_of(summarise_run(run_with("swapped", "rejection", steps)))["metrics"];
  EXPECT_LT(metrics["path_gain_z"].get<double>(), -10);
}

TEST_F(Bounds, AVerifierThatEmitsMoreThanTheOptimumIsWrong) {
  const auto folder = run_with(
      "nc13", "block", golden_steps("block", {1, 1, 1}, enumerate::Draws::iid, kSteps, uncapped_block));
  const json summary = summarise_run(folder);
  const json wrong = spec_of(summary)["above_bound"];
  ASSERT_FALSE(wrong.is_null());
  EXPECT_EQ(wrong["what"], "tokens per step");
  EXPECT_NEAR(wrong["measured"].get<double>(), 2.974, .04);
  EXPECT_NEAR(wrong["bound"].get<double>(), 2.8836, .03);
  EXPECT_GT(wrong["deviations"].get<double>(), kWrongDeviations);
  EXPECT_THAT(wrong_rules_text(summary), HasSubstr("WRONG VERIFIER: spec: tokens per step: 2.9"));
  EXPECT_THAT(notes_text(summary), HasSubstr("WRONG VERIFIER: spec"));
  EXPECT_THAT(to_text(summary_table(summary)), HasSubstr("WRONG"));
}

TEST_F(Bounds, ALossyRuleMayLieAboveTheBound) {
  const json entry = spec_of(summarise_run(
      run_with("lossy", "lenience",
               golden_steps("block", {1, 1, 1}, enumerate::Draws::iid, kSteps, uncapped_block), "L3")));
  EXPECT_TRUE(entry["above_bound"].is_null());
}

TEST_F(Bounds, TreesOfARuleThatWalksAreBoundedByTheirPositions) {
  const json entry = spec_of(summarise_run(
      run_with("tree", "rejection", golden_steps("rejection", {2, 2}, enumerate::Draws::swor, kSteps))));
  const json& metrics = entry["metrics"];
  EXPECT_NEAR(metrics["position_bound"].get<double>(), .972756, 1e-5);
  EXPECT_NEAR(metrics["position_acceptance"].get<double>(), .902067, .01);
  EXPECT_NEAR(metrics["tau_bound"].get<double>(), 1 + .972756 * (1 + .902067), .02);
  EXPECT_NEAR(metrics["tau_path_rule"].get<double>() - metrics["tau_token_rule"].get<double>(),
              2.734356 - 2.715793, .004);
  EXPECT_TRUE(metrics["path_gain_at"].is_null());
  EXPECT_TRUE(entry["above_bound"].is_null());
}

// A rule over whole paths may pass the bound of its visited positions, but not that of the first one.
TEST_F(Bounds, TreesOfARuleOverWholePathsAreBoundedAtTheFirstPosition) {
  const auto steps = golden_steps("traversal", {2, 1}, enumerate::Draws::iid, kSteps);
  const json entry = spec_of(summarise_run(run_with("paths", "traversal", steps)));
  EXPECT_TRUE(entry["metrics"]["tau_bound"].is_null());
  EXPECT_TRUE(entry["above_bound"].is_null());
  const auto always_first = [](const AcceptanceRule&, const RuleOptions&, const Draft&, const TargetRows&,
                               const Coins&, std::int64_t, Acceptance& out) {
    out.path = {1};
    out.next = 0;
  };
  const json wrong = spec_of(summarise_run(run_with(
      "always", "traversal", golden_steps("traversal", {2, 1}, enumerate::Draws::iid, 900, always_first))));
  ASSERT_FALSE(wrong["above_bound"].is_null());
  EXPECT_EQ(wrong["above_bound"]["what"], "first token");
  EXPECT_NEAR(wrong["above_bound"]["bound"].get<double>(), .9475, 1e-6);
}

// No bound of the tokens per step is known for it, but its own expectation is.
TEST_F(Bounds, TreesOfTraversalMayNotExceedItsExpectation) {
  const auto one_more = [](const AcceptanceRule& rule, const RuleOptions& options, const Draft& draft,
                           const TargetRows& rows, const Coins& coins, std::int64_t position,
                           Acceptance& out) {
    accept(rule, options, draft, rows, coins, position, out);
    if (out.path.size() == 1) out.path.push_back(out.path.front() + 2);  // nodes 3 and 4 follow 1 and 2
  };
  const auto steps = golden_steps("traversal", {2, 1}, enumerate::Draws::iid, 3000, one_more);
  const json summary = summarise_run(run_with("one_more", "traversal", steps));
  const json wrong = spec_of(summary)["above_bound"];
  ASSERT_FALSE(wrong.is_null());
  EXPECT_EQ(wrong["what"], "expected tokens");
  EXPECT_NEAR(wrong["bound"].get<double>(), 2.5644, .05);
  EXPECT_NEAR(wrong["measured"].get<double>(), 2.7250, .05);
  EXPECT_GT(wrong["deviations"].get<double>(), kWrongDeviations);
  EXPECT_THAT(wrong_rules_text(summary), HasSubstr("expected of its rule on the same drafts"));
  EXPECT_TRUE(spec_of(summarise_run(run_with("other", "multi_path_block", steps)))["above_bound"].is_null())
      << "a rule with another expectation";
}

TEST_F(Bounds, ARunWithoutThemHasNoSuchMetrics) {
  const json entry = spec_of(summarise_run(write_run("none", 1'000'000)));
  for (const char* metric : {"tau_bound", "tau_of_bound", "tau_excess", "position_bound", "path_gain",
                             "path_gain_drawn", "path_gain_z"})
    EXPECT_TRUE(entry["metrics"][metric].is_null()) << metric;
  EXPECT_TRUE(entry["above_bound"].is_null());
}

TEST_F(Bounds, OfTwoEqualLinesTheFirstCounts) {
  const auto steps = golden_steps("block", {1}, enumerate::Draws::iid, 30);
  const auto folder = run_with("twice", "block", steps);
  JsonLinesWriter(folder / "bounds.jsonl").append(bounds_line("spec", "0", 1, steps));
  EXPECT_EQ(read_bounds(folder / "bounds.jsonl").at("spec").at("0").size(), 10u);
}

TEST_F(Bounds, ADrawnNumberAboveTheLengthOfTheDraftIsDamage) {
  auto steps = golden_steps("rejection", {1, 1}, enumerate::Draws::iid, 30);
  steps.front().paired->by_path = 3;
  try {
    summarise_run(run_with("long", "rejection", steps));
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("paired: got 3, expected a number from 0 to 2"));
  }
}

TEST_F(Bounds, ADamagedLineIsNamed) {
  const auto folder = write_run("damaged", 1'000'000);
  JsonLinesWriter(folder / "bounds.jsonl")
      .append({{"case", "spec"},
               {"prompt", "0"},
               {"seed", 1},
               {"steps",
                {{{"accepted", 1},
                  {"emitted", 2},
                  {"chain", true},
                  {"by_token", {1.5}},
                  {"by_path", {1}},
                  {"best", json::array()}}}}});
  try {
    summarise_run(folder);
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("bounds.jsonl: line 1"));
    EXPECT_THAT(error.what(), HasSubstr("a number from 0 to 1"));
  }
}

}  // namespace
}  // namespace speclab::bounds_test
