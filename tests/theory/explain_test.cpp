#include "core/theory/explain.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "core/base/error.h"

namespace speclab::theory::explain_test {
namespace {

ExplainInput example() {
  ExplainInput input;
  input.alpha = 0.7;
  input.lengths = constant_draft_length(4);
  input.tau = 2.9;
  input.speedup = 1.55;
  input.calibration = {.t_ar = 10,
                       .target = RowTimes(std::map<int, double>{{1, 9.5}, {5, 13}}),
                       .draft_token = 0.5,
                       .draft_step = 0.2,
                       .accept_step = 0.1,
                       .accept_row = 0.05,
                       .other = 0.3};
  return input;
}

double sum_of_terms(const Waterfall& waterfall) {
  return std::accumulate(waterfall.terms.begin(), waterfall.terms.end(), 0.0,
                         [](double sum, const WaterfallTerm& term) { return sum + term.log_ratio; });
}

TEST(Explain, TermsByHand) {
  const Waterfall waterfall = explain(example());
  ASSERT_EQ(waterfall.terms.size(), 5u);
  const double eq1 = expected_tokens(.7, 4), draft = 4 * .5 + .2, accept = .1 + .05 * 2.9;
  EXPECT_DOUBLE_EQ(waterfall.predicted, eq1);
  EXPECT_EQ(waterfall.terms[0].name, "i.i.d. assumption");
  EXPECT_NEAR(waterfall.terms[0].factor, 2.9 / eq1, 1e-14);
  EXPECT_EQ(waterfall.terms[1].name, "draft cost");
  EXPECT_NEAR(waterfall.terms[1].factor, 10 / (10 + draft), 1e-14);
  EXPECT_EQ(waterfall.terms[2].name, "verification width");
  EXPECT_NEAR(waterfall.terms[2].factor, (10 + draft) / (.5 + 13 + draft), 1e-14);
  EXPECT_EQ(waterfall.terms[3].name, "sampling and bookkeeping");
  EXPECT_NEAR(waterfall.terms[3].factor, (.5 + 13 + draft) / (13 + draft + accept + .3), 1e-14);
  EXPECT_EQ(waterfall.terms[4].name, "residual");
  const double modelled = 13 + draft + accept + .3, step = 2.9 * 10 / 1.55;
  EXPECT_DOUBLE_EQ(waterfall.modelled_step, modelled);
  EXPECT_NEAR(waterfall.terms[4].factor, modelled / step, 1e-14);
  EXPECT_NEAR(waterfall.residual_share, (step - modelled) / step, 1e-14);
  EXPECT_NEAR(waterfall.terms[3].speedup, measured_cost_speedup(2.9, {10, draft, 13, accept, .3}), 1e-14);
}

TEST(Explain, DriftOfTheMachineIsATermAndLeavesTheResidual) {
  const Waterfall still = explain(example());
  ExplainInput input = example();
  input.drift = Drift{.9, DriftSource::lines};  // the machine was slower during the case
  const Waterfall waterfall = explain(input);
  ASSERT_EQ(waterfall.terms.size(), 6u);
  EXPECT_EQ(waterfall.terms[4].key, "machine_drift");
  EXPECT_EQ(waterfall.terms[4].name, "forwards timed again in the line");
  EXPECT_NEAR(waterfall.terms[4].factor, .9, 1e-14);
  EXPECT_THAT(waterfall.terms[4].explanation, testing::HasSubstr("11.1 % slower for this case"));
  EXPECT_NEAR(waterfall.terms[5].factor, still.terms[4].factor / .9, 1e-14);
  EXPECT_DOUBLE_EQ(still.unexplained_share, still.residual_share);
  EXPECT_DOUBLE_EQ(waterfall.unexplained_share, still.residual_share);
  EXPECT_NEAR(1 - waterfall.residual_share, (1 - still.residual_share) / .9, 1e-14);
  EXPECT_DOUBLE_EQ(waterfall.modelled_step, still.modelled_step);
  EXPECT_NEAR(sum_of_terms(waterfall), std::log(waterfall.measured / waterfall.predicted), 1e-14);
  input.drift->factor = 0;
  EXPECT_THROW(explain(input), Error);
}

TEST(Explain, TheDriftTermNamesItsMeasurement) {
  ExplainInput input = example();
  const auto term = [&](DriftSource source) {
    input.drift = Drift{1.1, source};
    return explain(input).terms[4];
  };
  using testing::HasSubstr;
  EXPECT_THAT(term(DriftSource::lines).explanation, HasSubstr("inside the lines"));
  EXPECT_THAT(term(DriftSource::probes).explanation, HasSubstr("by probes in the lines (probe_every)"));
  EXPECT_THAT(term(DriftSource::rounds).explanation,
              HasSubstr("by the calibration rounds next to the lines"));
  EXPECT_THAT(term(DriftSource::rounds).name, testing::Not(HasSubstr("in the line")));
  EXPECT_THAT(term(DriftSource::both).explanation, HasSubstr("9.1 % faster"));
}

TEST(Explain, TextHasTheResidualFirstWithoutTheDrift) {
  ExplainInput input = example();
  input.drift = Drift{.9, DriftSource::lines};
  input.intervals = {
      .unexplained = stats::Interval{.01, .09}, .residual = stats::Interval{-.05, .02}, .prompts = 9};
  const Waterfall waterfall = explain(input);
  const std::string text = to_text(waterfall);
  const std::size_t first = text.find("\nresidual"), measured = text.find("\nmeasured"),
                    drift = text.find("\nforwards timed again in the line"),
                    second = text.rfind("\nresidual");
  EXPECT_LT(first, measured);
  EXPECT_LT(measured, drift);
  EXPECT_LT(drift, second);
  ASSERT_NE(second, std::string::npos);
  const std::string all = text.substr(first, measured - first), rest = text.substr(second);
  EXPECT_THAT(
      all, testing::HasSubstr(fmt::format("{:.1f} % of the step time", 100 * waterfall.unexplained_share)));
  EXPECT_THAT(all, testing::HasSubstr("interval 1.0 to 9.0 (n = 9)"));
  EXPECT_THAT(rest,
              testing::HasSubstr(fmt::format("{:.1f} % of the step time", 100 * waterfall.residual_share)));
  EXPECT_THAT(rest, testing::HasSubstr("interval -5.0 to 2.0 (n = 9): no more than noise"));
}

TEST(Explain, StartsAtTheDraftLengthThatWasAskedFor) {
  ExplainInput input = example();
  input.assumed_c = .05;
  input.lengths = {0, 0, 1, 0, 9};  // one draft in ten is cut by the end of a text
  const Waterfall as_they_were = explain(input);
  input.gamma = 4;
  const Waterfall asked = explain(input);
  EXPECT_DOUBLE_EQ(asked.predicted, walltime_improvement(.7, 4, .05));
  EXPECT_LT(as_they_were.predicted, asked.predicted);
  EXPECT_NEAR(sum_of_terms(asked), std::log(asked.measured / asked.predicted), 1e-14);
  EXPECT_DOUBLE_EQ(asked.modelled_step, as_they_were.modelled_step);
}

RowsExplainInput window_example() {
  RowsExplainInput input;
  input.predicted_tau = 1.8;
  input.law = "a law";
  input.tau = 1.6;
  input.speedup = .7;
  input.calibration = {.t_ar = 10,
                       .target = RowTimes(std::map<int, double>{{1, 9}, {11, 19}, {31, 39}}),
                       .draft_token = .01,
                       .draft_step = .2,
                       .accept_step = .1,
                       .accept_row = .05,
                       .other = .3};
  input.drafted = 8;
  input.window_rows = DraftLengths(12, 0.);
  input.window_rows[11] = 4;
  input.rows = DraftLengths(28, 0.);
  input.rows[11] = 2, input.rows[27] = 2;
  input.equivalent_share = .75;
  return input;
}

TEST(ExplainRows, TermsByHand) {
  const Waterfall waterfall = explain_rows(window_example());
  EXPECT_EQ(waterfall.start_name, "free_rows");
  EXPECT_EQ(waterfall.predicted, 1.8);
  const double target = ((8.25 - 1 + 9) + (20.25 - 1 + 9)) / 2, draft = .2 + .01 * 8, accept = .1 + .05 * 1.6;
  const std::vector<std::pair<std::string, double>> wanted = {
      {"law", 1.6},
      {"window rows", 1.6 * 10 / (1 + 19)},
      {"drafted rows", 1.6 * 10 / (1 + (19 + 35) / 2.)},
      {"rows without logits", 1.6 * 10 / (1 + target)},
      {"draft cost", 1.6 * 10 / (1 + target + draft)},
      {"sampling and bookkeeping", 1.6 * 10 / (target + draft + accept + .3)},
      {"residual", .7}};
  ASSERT_EQ(waterfall.terms.size(), wanted.size());
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    EXPECT_EQ(waterfall.terms[i].name, wanted[i].first);
    EXPECT_NEAR(waterfall.terms[i].speedup, wanted[i].second, 1e-12) << wanted[i].first;
  }
  EXPECT_NEAR(sum_of_terms(waterfall), std::log(.7 / 1.8), 1e-15);
  EXPECT_NEAR(waterfall.residual_share, 1 - .7 / wanted[5].second, 1e-12);
}

TEST(ExplainRows, TermsWithoutEffectAreLeftOut) {
  RowsExplainInput input = window_example();
  input.predicted_tau = 0;
  input.window_rows = {0, 4};
  input.equivalent_share = 1;
  const Waterfall waterfall = explain_rows(input);
  EXPECT_EQ(waterfall.predicted, input.tau);
  ASSERT_EQ(waterfall.terms.size(), 4u);
  EXPECT_EQ(waterfall.terms[0].name, "drafted rows");
  EXPECT_NEAR(sum_of_terms(waterfall), std::log(.7 / 1.6), 1e-15);
  input.rows.clear();
  EXPECT_THROW(explain_rows(input), Error);
  input = window_example();
  input.tau = .5;
  EXPECT_THROW(explain_rows(input), Error);
}

// Layers that ran while drafting are not paid again: t(n) is then share t(1) + (1 - share) t(n).
TEST(ExplainRows, AVerificationAfterDraftingIsCheaper) {
  RowsExplainInput input = window_example();
  input.predicted_tau = 0;
  input.window_rows = {0, 4};
  input.equivalent_share = 1;
  RowsExplainInput same = input;
  input.calibration.done_share = .25;
  same.calibration.target =
      RowTimes(std::map<int, double>{{1, 9}, {11, .25 * 9 + .75 * 19}, {31, .25 * 9 + .75 * 39}});
  const Waterfall waterfall = explain_rows(input), wanted = explain_rows(same);
  EXPECT_NEAR(waterfall.modelled_step, wanted.modelled_step, 1e-12);
  ASSERT_EQ(waterfall.terms.size(), wanted.terms.size());
  for (std::size_t i = 0; i < wanted.terms.size(); ++i)
    EXPECT_NEAR(waterfall.terms[i].speedup, wanted.terms[i].speedup, 1e-12) << wanted.terms[i].name;
}

TEST(Explain, TermsAddUpToTheGap) {
  std::mt19937_64 random(4);
  auto uniform = [&](double low, double high) { return low + (high - low) * ((random() >> 11) * 0x1p-53); };
  for (int trial = 0; trial < 1000; ++trial) {
    ExplainInput input = example();
    input.alpha = uniform(0, 1);
    input.lengths = {uniform(0, 1), uniform(0, 1), 0, uniform(0.1, 1)};
    input.tau = uniform(1, 4);
    input.speedup = uniform(0.2, 4);
    input.assumed_c = uniform(0, 0.3);
    input.calibration.draft_token = uniform(0, 5);
    input.calibration.other = uniform(0, 3);
    const Waterfall waterfall = explain(input);
    const double gap = std::log(waterfall.measured / waterfall.predicted);
    EXPECT_NEAR(sum_of_terms(waterfall), gap, 4e-16 * (1 + std::abs(gap)));
    double speedup = waterfall.predicted;
    for (const WaterfallTerm& term : waterfall.terms) {
      EXPECT_NEAR(term.factor, std::exp(term.log_ratio), 1e-13 * term.factor);
      speedup *= term.factor;
      EXPECT_NEAR(term.speedup, speedup, 1e-12 * speedup);
    }
    EXPECT_DOUBLE_EQ(waterfall.terms.back().speedup, input.speedup);
  }
}

TEST(Explain, TheResidualSaysWhetherItIsMoreThanNoise) {
  ExplainInput input = example();
  EXPECT_EQ(explain(input).terms.back().explanation.find("interval"), std::string::npos);
  input.intervals = {.unexplained = stats::Interval{-.02, .05}, .residual = {}, .prompts = 12};
  const Waterfall within = explain(input);
  EXPECT_EQ(within.intervals.unexplained->hi, .05);
  EXPECT_NE(within.terms.back().explanation.find("interval -2.0 to 5.0: no more than noise"),
            std::string::npos);
  input.intervals.unexplained = stats::Interval{.01, .05};
  const std::string beyond = explain(input).terms.back().explanation;
  EXPECT_NE(beyond.find("interval 1.0 to 5.0"), std::string::npos);
  EXPECT_EQ(beyond.find("noise"), std::string::npos);
}

TEST(Explain, EveryTermHasTheIntervalOfItsResamples) {
  ResampledWaterfalls resampled;
  std::map<std::string, std::vector<double>> log_ratios, others;
  for (int i = 0; i < 40; ++i) {
    ExplainInput one = example();
    one.alpha = .6 + .004 * i;
    one.tau = 2.5 + .02 * ((7 * i) % 40);
    one.speedup = 1.4 + .01 * ((13 * i) % 40);
    one.calibration.draft_token = .4 + .01 * ((3 * i) % 40);
    one.drift = Drift{.8 + .01 * ((11 * i) % 40), DriftSource::rounds};
    const Waterfall waterfall = explain(one);
    resampled.add(waterfall);
    for (const WaterfallTerm& term : waterfall.terms) log_ratios[term.key].push_back(term.log_ratio);
    others["predicted"].push_back(waterfall.predicted);
    others["measured"].push_back(waterfall.measured);
    others["unexplained"].push_back(waterfall.unexplained_share);
    others["residual"].push_back(waterfall.residual_share);
  }
  ExplainInput input = example();
  input.drift = Drift{1, DriftSource::rounds};
  input.intervals = resampled.intervals(7);
  const Waterfall waterfall = explain(input);
  const auto expect_middle = [](const std::optional<stats::Interval>& ci, const std::vector<double>& values) {
    ASSERT_TRUE(ci);
    EXPECT_NEAR(ci->lo, stats::quantile(values, .025), 1e-12);
    EXPECT_NEAR(ci->hi, stats::quantile(values, .975), 1e-12);
    EXPECT_LT(ci->lo, ci->hi);
  };
  ASSERT_EQ(waterfall.terms.size(), 6u);
  for (const WaterfallTerm& term : waterfall.terms) {
    SCOPED_TRACE(term.key);
    expect_middle(term.ci, log_ratios.at(term.key));
  }
  expect_middle(waterfall.intervals.predicted, others["predicted"]);
  expect_middle(waterfall.intervals.measured, others["measured"]);
  expect_middle(waterfall.intervals.unexplained, others["unexplained"]);
  expect_middle(waterfall.intervals.residual, others["residual"]);

  const std::string text = to_text(waterfall);
  const auto factors = [](const stats::Interval& ci) {
    return fmt::format("[{:.3f}, {:.3f}]", std::exp(ci.lo), std::exp(ci.hi));
  };
  for (const WaterfallTerm& term : waterfall.terms)
    EXPECT_THAT(text, testing::HasSubstr(factors(*term.ci))) << term.key;
  const stats::Interval unexplained = *waterfall.intervals.unexplained;
  EXPECT_THAT(text,
              testing::HasSubstr(fmt::format("[{:.3f}, {:.3f}]", 1 - unexplained.hi, 1 - unexplained.lo)))
      << "the residual with the drift";
  const stats::Interval predicted = *waterfall.intervals.predicted, measured = *waterfall.intervals.measured;
  EXPECT_THAT(text, testing::HasSubstr(
                        fmt::format("1), 95 % interval {:.3f} to {:.3f}\n", predicted.lo, predicted.hi)));
  EXPECT_THAT(
      text, testing::HasSubstr(fmt::format("   95 % interval {:.3f} to {:.3f}\n", measured.lo, measured.hi)));
  EXPECT_THAT(text, testing::EndsWith("bootstrap over 7 prompts and the calibration rounds."));
  input.intervals = {};
  EXPECT_EQ(to_text(explain(input)).find("interval"), std::string::npos);
}

TEST(ExplainRows, ATermThatAResampleLacksHasNoEffectThere) {
  ResampledWaterfalls resampled;
  double effect = 0;
  for (int i = 0; i < 10; ++i) {
    RowsExplainInput input = window_example();
    if (i > 0) input.equivalent_share = 1;  // all rows have logits
    const Waterfall waterfall = explain_rows(input);
    for (const WaterfallTerm& term : waterfall.terms)
      effect += term.key == "rows_without_logits" ? term.log_ratio : 0;
    resampled.add(waterfall);
  }
  const WaterfallIntervals intervals = resampled.intervals(3);
  ASSERT_GT(effect, .1);
  EXPECT_EQ(intervals.log_ratios.at("rows_without_logits").lo, 0);
  EXPECT_NEAR(intervals.log_ratios.at("rows_without_logits").hi, .775 * effect, 1e-12);
  for (int i = 0; i < 11; ++i) resampled.add_undefined();
  EXPECT_TRUE(resampled.intervals(3).log_ratios.empty()) << "more than half are undefined";
  EXPECT_FALSE(resampled.intervals(3).predicted);
}

TEST(Explain, AnIdealRunHasNoTerms) {
  ExplainInput input;
  input.alpha = 0.8;
  input.lengths = constant_draft_length(5);
  input.tau = expected_tokens(0.8, 5);
  input.calibration = {.t_ar = 8, .target = RowTimes(8), .draft_token = 0.4};
  input.assumed_c = 0.05;
  input.speedup = walltime_improvement(0.8, 5, 0.05);
  const Waterfall waterfall = explain(input);
  EXPECT_NEAR(waterfall.predicted, walltime_improvement(0.8, 5, 0.05), 1e-14);
  for (const WaterfallTerm& term : waterfall.terms) EXPECT_NEAR(term.log_ratio, 0, 1e-14) << term.name;
  EXPECT_NEAR(waterfall.residual_share, 0, 1e-14);
}

TEST(Explain, EachCauseLandsInItsOwnTerm) {
  // Starts from a run without gaps and disturbs one thing at a time; the speedup follows the measured-cost
  // formula.
  ExplainInput ideal;
  ideal.alpha = 0.6;
  ideal.lengths = constant_draft_length(3);
  ideal.tau = expected_tokens(0.6, 3);
  ideal.calibration = {.t_ar = 10, .target = RowTimes(10), .draft_token = 1};
  ideal.assumed_c = 0.1;
  auto only_term = [](ExplainInput input, double extra_time = 0) {
    const Calibration& costs = input.calibration;
    const double step =
        3 * costs.draft_token + costs.target.at(4) + costs.accept_step + costs.other + extra_time;
    input.speedup = input.tau * costs.t_ar / step;
    std::string names;
    for (const WaterfallTerm& term : explain(input).terms) {
      if (std::abs(term.log_ratio) > 1e-12) names += term.name + ";";
    }
    return names;
  };
  EXPECT_EQ(only_term(ideal), "");
  ExplainInput input = ideal;
  input.tau = 1.9;
  EXPECT_EQ(only_term(input), "i.i.d. assumption;");
  input = ideal;
  input.calibration.draft_token = 2;
  EXPECT_EQ(only_term(input), "draft cost;");
  input = ideal;
  input.calibration.target = RowTimes(std::map<int, double>{{1, 10}, {4, 14}});
  EXPECT_EQ(only_term(input), "verification width;");
  input = ideal;
  input.calibration.other = 0.5;
  EXPECT_EQ(only_term(input), "sampling and bookkeeping;");
  EXPECT_EQ(only_term(ideal, 0.4), "residual;");
}

TEST(Explain, StepsThatFindNothingStillPayTheSearch) {
  ExplainInput input = example();
  input.lengths = {3, 0, 0, 0, 1};  // a drafter that finds a draft in a quarter of the steps
  const Waterfall waterfall = explain(input);
  EXPECT_NEAR(waterfall.terms[1].factor, 10 / (10 + .2 + 4 * .5 / 4), 1e-14);
  EXPECT_NEAR(waterfall.predicted, (3 + expected_tokens(.7, 4)) / 4, 1e-14);
  const StepTimes step = calibrated_step(input.calibration, input.lengths, input.tau);
  EXPECT_NEAR(step.draft, .7, 1e-14);
  EXPECT_NEAR(step.target, (3 * 9.5 + 13) / 4, 1e-14);
  EXPECT_NEAR(step.accept, .1 + .05 * 2.9, 1e-14);
  EXPECT_EQ(step.other, .3);
  EXPECT_NEAR(waterfall.modelled_step, step.total(), 1e-14);
}

TEST(Explain, TextHasOneLinePerTerm) {
  const std::string text = to_text(explain(example()));
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 7);
  EXPECT_THAT(text, testing::HasSubstr("predicted"));
  EXPECT_THAT(text, testing::HasSubstr("4.00 drafted tokens a step take 22.0 % of an autoregressive step"));
  EXPECT_THAT(text, testing::HasSubstr("a forward over 5.00 rows costs 1.368 times one row"));
  EXPECT_THAT(text, testing::EndsWith("1.550"));
}

TEST(Explain, BadInputThrows) {
  ExplainInput input = example();
  input.tau = 0.5;
  EXPECT_THROW(explain(input), Error);
  input = example();
  input.speedup = 0;
  EXPECT_THROW(explain(input), Error);
  input = example();
  input.lengths = {};
  EXPECT_THROW(explain(input), Error);
  input = example();
  input.calibration.t_ar = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THROW(explain(input), Error);
  input = example();
  input.calibration.accept_row = -1;
  EXPECT_THROW(explain(input), Error);
  input = example();
  input.calibration.target =
      RowTimes(std::map<int, double>{{1, 100}, {5, 50}});  // cannot be from the same machine as t_ar
  EXPECT_THROW(explain(input), Error);
}

}  // namespace
}  // namespace speclab::theory::explain_test
