// What-ifs of a calibrated step, against the closed forms.
#include "core/theory/explained/sensitivity.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/theory/chain.h"
#include "core/theory/explain.h"

namespace speclab::theory::sensitivity_test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr double kOneRow = 10;

/// A case of chains of gamma tokens whose acceptance is i.i.d. Times are in units of a tenth of t(1).
struct Chain {
  double alpha = .7;
  int gamma = 4;
  double c = .05, t_verify = 1.2;
  double rule = 0, rule_row = 0, other = 0, reference_overhead = 0;

  Calibration costs() const {
    std::map<int, double> times = {{1, kOneRow}};
    times[gamma + 1] = kOneRow * (gamma == 0 ? 1 : t_verify);
    return {.t_ar = kOneRow + reference_overhead,
            .target = RowTimes(times),
            .draft_token = kOneRow * c,
            .accept_step = rule,
            .accept_row = rule_row,
            .other = other};
  }
  SensitivityInput input() const {
    const double tau = expected_tokens(alpha, gamma);
    return {.tau = tau,
            .step = calibrated_step(costs(), constant_draft_length(gamma), tau),
            .one_row = kOneRow,
            .accept_row = rule_row,
            .gain = chain_gain(alpha, constant_draft_length(gamma))};
  }
  std::map<std::string, double> speedups() const { return by_name(sensitivity(input())); }

  static std::map<std::string, double> by_name(const std::vector<Prediction>& list) {
    std::map<std::string, double> values;
    for (const Prediction& one : list) values[one.name] = one.value;
    return values;
  }
};

RankAcceptance by_depth(std::vector<std::vector<double>> p) { return RankAcceptance(std::move(p)); }

TEST(Sensitivity, IsTheorem38WithoutOtherCosts) {
  for (const double alpha : {0., .3, .7, .94}) {
    for (const int gamma : {1, 3, 8}) {
      for (const double c : {0., .05, .4}) {
        for (const double t : {1., 1.7}) {
          SCOPED_TRACE(fmt::format("alpha {}, gamma {}, c {}, t {}", alpha, gamma, c, t));
          const auto got = Chain{.alpha = alpha, .gamma = gamma, .c = c, .t_verify = t}.speedups();
          EXPECT_NEAR(got.at("measured_costs"), walltime_improvement(alpha, gamma, c, t), 1e-12);
          EXPECT_NEAR(got.at("what_if_more_alpha"), walltime_improvement(alpha + .05, gamma, c, t), 1e-12);
          EXPECT_NEAR(got.at("what_if_half_c"), walltime_improvement(alpha, gamma, c / 2, t), 1e-12);
          EXPECT_NEAR(got.at("what_if_flat_t"), walltime_improvement(alpha, gamma, c), 1e-12);
          EXPECT_NEAR(got.at("what_if_no_overhead"), walltime_improvement(alpha, gamma, c, t), 1e-12);
        }
      }
    }
  }
}

TEST(Sensitivity, OverheadIsTakenFromCaseAndReference) {
  const Chain chain{.rule = .3, .rule_row = .1, .other = .5, .reference_overhead = .6};
  const auto got = chain.speedups();
  const double tau = expected_tokens(.7, 4), more = expected_tokens(.75, 4), forwards = 4 * .5 + 12;
  EXPECT_NEAR(got.at("measured_costs"), tau * 10.6 / (forwards + .3 + .1 * tau + .5), 1e-12);
  EXPECT_NEAR(got.at("what_if_no_overhead"), walltime_improvement(.7, 4, .05, 1.2), 1e-12);
  EXPECT_NEAR(got.at("what_if_more_alpha"), more * 10.6 / (forwards + .3 + .1 * more + .5), 1e-12)
      << "the rule reads more rows";
  EXPECT_NEAR(got.at("what_if_half_c"), tau * 10.6 / (1 + 12 + .3 + .1 * tau + .5), 1e-12);
  EXPECT_NEAR(got.at("what_if_flat_t"), tau * 10.6 / (2 + 10 + .3 + .1 * tau + .5), 1e-12);
}

TEST(Sensitivity, AlphaEndsAtOne) {
  for (const double alpha : {.951, .97, 1.}) {
    const auto got = Chain{.alpha = alpha}.speedups();
    EXPECT_NEAR(got.at("what_if_more_alpha"), walltime_improvement(1, 4, .05, 1.2), 1e-12) << alpha;
  }
  EXPECT_NEAR(Chain{.alpha = 1}.speedups().at("measured_costs"), walltime_improvement(1, 4, .05, 1.2), 1e-12);
}

TEST(Sensitivity, TokensEndAtTheDraft) {
  SensitivityInput input = Chain{.alpha = .95}.input();
  input.tau = 4.9;  // more than Eq. 1 gives at .95, because acceptance falls along the draft
  const auto got = Chain::by_name(sensitivity(input));
  EXPECT_GT(4.9 * expected_tokens(1, 4) / expected_tokens(.95, 4), 5);
  EXPECT_NEAR(got.at("what_if_more_alpha"), 5 * 10 / (2. + 12), 1e-12);
}

TEST(Sensitivity, StepsWithoutADraftGainNothing) {
  const DraftLengths lengths = {3, 0, 0, 0, 1};  // a drafter that finds a copy in a quarter of the steps
  const TokenGain gain = chain_gain(.7, lengths);
  EXPECT_NEAR(gain.factor, (3 + expected_tokens(.75, 4)) / (3 + expected_tokens(.7, 4)), 1e-14);
  EXPECT_DOUBLE_EQ(gain.most, 2);
  EXPECT_DOUBLE_EQ(chain_gain(.7, {5}).factor, 1);
  EXPECT_THROW(chain_gain(1.2, lengths), Error);
  EXPECT_THROW(chain_gain(.5, {}), Error);
}

TEST(Sensitivity, AlphaBeginsAtZero) {
  const auto got = Chain{.alpha = 0, .gamma = 1}.speedups();
  EXPECT_NEAR(got.at("what_if_more_alpha") / got.at("measured_costs"), 1.05, 1e-12);
}

TEST(Sensitivity, OfATreeByHand) {
  // Node 0 has the children 1 and 2; node 1 has the children 3 and 4.
  const RankedTree tree{.parents = {0, 0, 1, 1}, .ranks = {1, 2, 1, 2}};
  const RankAcceptance acceptance = by_depth({{.5, .2}, {.3, .1}});
  const TokenGain gain = tree_gain(std::vector{tree}, acceptance);
  const double now = 1 + .7 + .5 * .4, more = 1 + .75 + .5 * .75 / .7 * .45;
  EXPECT_NEAR(gain.factor, more / now, 1e-14);
  EXPECT_DOUBLE_EQ(gain.most, 3);
  const RankedTree none{};  // a step without a draft
  EXPECT_NEAR(tree_gain(std::vector{tree, none}, acceptance).factor, (more + 1) / (now + 1), 1e-14);
  EXPECT_DOUBLE_EQ(tree_gain(std::vector{tree, none}, acceptance).most, 2);
}

TEST(Sensitivity, OfATreeEndsAtOneAndBeginsAtZero) {
  const RankedTree fork{.parents = {0, 0}, .ranks = {1, 2}};
  EXPECT_NEAR(tree_gain(std::vector{fork}, by_depth({{.6, .38}})).factor, 2 / 1.98, 1e-14);
  EXPECT_NEAR(tree_gain(std::vector{fork}, by_depth({{0., 0.}})).factor, 1.05, 1e-14);
  const RankedTree below{.parents = {0, 0, 1, 2}, .ranks = {1, 2, 1, 1}};
  EXPECT_NEAR(tree_gain(std::vector{below}, by_depth({{0., 0.}, {.5}})).factor, 1 + .05 * 1.55, 1e-14)
      << "both children get half of it";
}

TEST(Sensitivity, AChainIsATreeToo) {
  for (const double alpha : {.2, .8, .96}) {
    const RankedTree chain{.parents = {0, 1, 2, 3}, .ranks = {1, 1, 1, 1}};
    const TokenGain gain = tree_gain(std::vector{chain}, by_depth({{alpha}})),
                    by_eq_1 = chain_gain(alpha, constant_draft_length(4));
    EXPECT_NEAR(gain.factor, by_eq_1.factor, 1e-12) << alpha;
    EXPECT_DOUBLE_EQ(gain.most, by_eq_1.most);
  }
}

TEST(Sensitivity, WithoutAGainThereIsNoWhatIfOfAcceptance) {
  SensitivityInput input = Chain{}.input();
  input.gain.reset();
  std::vector<std::string> names;
  for (const Prediction& one : sensitivity(input)) names.push_back(one.name);
  EXPECT_THAT(names,
              ElementsAre("measured_costs", "what_if_half_c", "what_if_flat_t", "what_if_no_overhead"));
}

TEST(Sensitivity, SaysItsFormulaAndAssumptions) {
  for (const Prediction& one : sensitivity(Chain{}.input())) {
    const bool own = one.name == "measured_costs";
    EXPECT_EQ(one.kind, own ? PredictionKind::prediction : PredictionKind::what_if) << one.name;
    EXPECT_EQ(to_string(one.kind), own ? "prediction" : "what_if");
    EXPECT_EQ(one.quantity, "speedup");
    EXPECT_THAT(one.equation, HasSubstr("tau")) << one.name;
    EXPECT_FALSE(one.assumptions.empty()) << one.name;
  }
}

TEST(Sensitivity, AsText) {
  std::vector<Prediction> list = sensitivity(Chain{}.input());
  list[1].ci = stats::Interval{1.25, 1.75};
  const std::string text = sensitivity_text(list);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 4);
  const double own = walltime_improvement(.7, 4, .05, 1.2), flat = walltime_improvement(.7, 4, .05);
  EXPECT_THAT(text, HasSubstr(fmt::format("calibrated step, {:.3f} = tau t_ar / (draft", own)));
  EXPECT_THAT(text, HasSubstr(fmt::format("\nflat t(n)      {:.3f}", flat)));
  EXPECT_THAT(text, HasSubstr(fmt::format("{:+.1f} %   tau t_ar / (draft + t(1)", 100 * (flat / own - 1))));
  EXPECT_THAT(text, AllOf(HasSubstr("\nalpha + .05 "), HasSubstr("[1.250, 1.750]"), HasSubstr("\nhalf of c "),
                          HasSubstr("\nno overhead ")));
}

TEST(Sensitivity, BadInputThrows) {
  SensitivityInput input = Chain{}.input();
  input.one_row = 0;
  EXPECT_THROW(sensitivity(input), Error);
  input = Chain{}.input();
  input.step.draft = -1;
  EXPECT_THROW(sensitivity(input), Error);
  EXPECT_THROW(tree_gain({}, by_depth({{.5}})), Error);
  const RankedTree wrong{.parents = {2, 0}, .ranks = {1, 1}};
  EXPECT_THROW(tree_gain(std::vector{wrong}, by_depth({{.5}})), Error);
}

}  // namespace
}  // namespace speclab::theory::sensitivity_test
