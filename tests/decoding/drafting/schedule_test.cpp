#include "core/decoding/drafting/schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "core/base/error.h"
#include "core/decoding/budget/step_costs.h"

namespace speclab::schedule_test {
namespace {

const StepCosts kCosts{.target_ns = {10, 12, 14, 16}, .draft_ns = {1}};

Schedule make(ScheduleRule rule, int gamma, ScheduleOptions options = {}) {
  options.schedule = rule;
  Schedule schedule(options, gamma, &kCosts);
  schedule.begin(0);
  return schedule;
}

/// Tells the schedule of a draft that its threshold stopped after `drafted` tokens.
void observe_stopped(Schedule& schedule, int drafted, int accepted) {
  schedule.start_draft();
  EXPECT_TRUE(schedule.stop_after(0));
  schedule.observe(drafted, accepted);
}

TEST(Schedule, ConstantStaysWhateverHappens) {
  Schedule schedule = make(ScheduleRule::constant, 5);
  schedule.observe(5, 0);
  EXPECT_EQ(schedule.limit(), 5);
  schedule.observe(5, 5);
  EXPECT_EQ(schedule.limit(), 5);
  EXPECT_FALSE(schedule.stop_after(0));
  EXPECT_FALSE(schedule.needs_confidence());
}

TEST(Schedule, HeuristicGrowsByTwoAndShrinksByOne) {
  Schedule schedule = make(ScheduleRule::heuristic, 5);
  std::vector<int> limits;
  for (const int accepted : {5, 7, 8, 0, 0}) {
    schedule.observe(schedule.limit(), accepted);
    limits.push_back(schedule.limit());
  }
  EXPECT_THAT(limits, ::testing::ElementsAre(7, 9, 8, 7, 6));
  for (int i = 0; i < 20; ++i) schedule.observe(schedule.limit(), 0);
  EXPECT_EQ(schedule.limit(), 1);
  for (int i = 0; i < 40; ++i) schedule.observe(schedule.limit(), schedule.limit());
  EXPECT_EQ(schedule.limit(), 32);  // gamma_max
}

TEST(Schedule, TransientStartsAfreshAtEveryTurnHeuristicAtEveryConversation) {
  for (const bool transient : {false, true}) {
    Schedule schedule = make(transient ? ScheduleRule::heuristic_transient : ScheduleRule::heuristic, 5);
    schedule.observe(5, 5);
    schedule.begin(1);
    EXPECT_EQ(schedule.limit(), transient ? 5 : 7);
    schedule.begin(0);
    EXPECT_EQ(schedule.limit(), 5);
  }
}

// Zhang et al. 2024: the numbers follow their published code.
TEST(Schedule, AdaptiveConfidenceFollowsTheAcceptance) {
  Schedule schedule = make(ScheduleRule::adaptive_confidence, 8);
  EXPECT_TRUE(schedule.needs_confidence());
  EXPECT_EQ(schedule.limit(), 8);
  EXPECT_FALSE(schedule.stop_after(.8));
  EXPECT_TRUE(schedule.stop_after(.79));
  observe_stopped(schedule, 4, 4);  // the mean is .5 * 0 + .5 * 1, below .9
  EXPECT_NEAR(schedule.threshold(), .801, 1e-12);
  observe_stopped(schedule, 4, 4);  // .75
  observe_stopped(schedule, 4, 4);  // .875
  EXPECT_NEAR(schedule.threshold(), .803, 1e-12);
  observe_stopped(schedule, 4, 4);  // .9375: the draft stopped early, and could have been longer
  EXPECT_NEAR(schedule.threshold(), .802, 1e-12);
  schedule.start_draft();
  schedule.observe(8, 8);  // it was as long as it may be
  EXPECT_NEAR(schedule.threshold(), .802, 1e-12);
  schedule.observe(8, 0);  // about .484
  EXPECT_NEAR(schedule.threshold(), .803, 1e-12);
  EXPECT_EQ(schedule.limit(), 8);
  for (const int turn : {1, 0}) {
    schedule.begin(turn);
    EXPECT_EQ(schedule.threshold(), .8);
    schedule.observe(8, 8);
    EXPECT_NEAR(schedule.threshold(), .801, 1e-12) << "the mean of the text before is forgotten";
  }
}

TEST(Schedule, AdaptiveConfidenceReadsItsOptions) {
  Schedule schedule = make(ScheduleRule::adaptive_confidence, 4,
                           {.first_threshold = .5, .threshold_step = .2, .wanted_acceptance = .4});
  EXPECT_EQ(schedule.threshold(), .5);
  observe_stopped(schedule, 2, 2);  // .5, more than .4
  EXPECT_NEAR(schedule.threshold(), .48, 1e-12);
  schedule.observe(2, 0);  // .25
  EXPECT_NEAR(schedule.threshold(), .5, 1e-12);
}

// The last drafts of a text are short because the text ends. They say nothing about the threshold.
TEST(Schedule, AdaptiveConfidenceDoesNotLearnFromDraftsThatALimitCut) {
  Schedule schedule = make(ScheduleRule::adaptive_confidence, 8, {.wanted_acceptance = .4});
  const auto cut = [&](int drafted, int accepted) {
    schedule.start_draft();
    EXPECT_FALSE(schedule.stop_after(.95));
    schedule.observe(drafted, accepted);
  };
  cut(2, 2);  // the mean is .5
  EXPECT_NEAR(schedule.threshold(), .8, 1e-12);
  observe_stopped(schedule, 2, 2);
  EXPECT_NEAR(schedule.threshold(), .799, 1e-12);
  cut(2, 2);
  EXPECT_NEAR(schedule.threshold(), .799, 1e-12) << "a draft does not stop because the one before it did";
  cut(1, 0);
  cut(1, 0);  // the mean is about .22
  EXPECT_GT(schedule.threshold(), .799) << "too few accepted tokens count for every draft";
}

TEST(Schedule, ConfidenceStopsBelowTheThreshold) {
  Schedule schedule = make(ScheduleRule::confidence, 8);
  EXPECT_TRUE(schedule.needs_confidence());
  schedule.start_draft();
  EXPECT_FALSE(schedule.stop_after(.9));
  EXPECT_FALSE(schedule.stop_after(.4));  // not below
  EXPECT_TRUE(schedule.stop_after(.39));
}

// Huang et al. 2024, SpecDec++: stop at 1 - product > h, here with h = .7.
TEST(Schedule, ProductRunsOverOneDraft) {
  ScheduleOptions options;
  options.product_threshold = .3;
  Schedule schedule = make(ScheduleRule::product, 8, options);
  for (int draft = 0; draft < 2; ++draft) {
    schedule.start_draft();
    EXPECT_FALSE(schedule.stop_after(.7));
    EXPECT_FALSE(schedule.stop_after(.7));  // .49
    EXPECT_TRUE(schedule.stop_after(.6));   // .294, and 1 - .294 > .7
  }
}

// Zhang et al. 2024, SVIP: stop at sqrt(H) > h.
TEST(Schedule, EntropyStopsAboveTheThreshold) {
  Schedule schedule = make(ScheduleRule::entropy, 8, {.entropy_threshold = .8});
  EXPECT_TRUE(schedule.needs_entropy());
  EXPECT_TRUE(schedule.needs_confidence()) << "it costs nothing more, and a trace then has both";
  schedule.start_draft();
  EXPECT_FALSE(schedule.stop_after(.1, 0));    // a sure row, whatever was drawn from it
  EXPECT_FALSE(schedule.stop_after(.1, .63));  // .794
  EXPECT_TRUE(schedule.stop_after(.9, .65));   // .806
  EXPECT_FALSE(make(ScheduleRule::confidence, 8).needs_entropy());
}

// Agrawal et al. 2024, AdaEDL: stop at 1 - sqrt(.2 H) < threshold.
TEST(Schedule, AdaptiveEntropyFollowsTheAcceptance) {
  Schedule schedule = make(ScheduleRule::adaptive_entropy, 8);
  EXPECT_FALSE(schedule.stop_after(.5, .19));  // .805, and the first threshold is .8
  EXPECT_TRUE(schedule.stop_after(.5, .21));   // .795
  schedule.observe(4, 4);                      // the mean is .5 * 0 + .5 * 1, below .9
  EXPECT_NEAR(schedule.threshold(), .801, 1e-12);
  schedule.observe(4, 4);  // .75
  schedule.observe(4, 4);  // .875
  EXPECT_NEAR(schedule.threshold(), .803, 1e-12);
  schedule.observe(8, 8);  // .9375, and gamma tokens were accepted: it stays
  EXPECT_NEAR(schedule.threshold(), .803, 1e-12);
  schedule.observe(8, 7);  // .90625: it falls, although gamma tokens were drafted
  EXPECT_NEAR(schedule.threshold(), .802, 1e-12);
  schedule.begin(1);
  EXPECT_EQ(schedule.threshold(), .8);

  Schedule other = make(ScheduleRule::adaptive_entropy, 8, {.first_threshold = .5, .entropy_factor = 1});
  EXPECT_FALSE(other.stop_after(.5, .24));  // .510
  EXPECT_TRUE(other.stop_after(.5, .26));   // .490
}

/// Drafts tokens of these confidences, and observes that the first `accepted` were accepted.
void draft_with(Schedule& schedule, const std::vector<double>& confidences, int accepted) {
  schedule.start_draft();
  for (const double confidence : confidences) schedule.stop_after(confidence);
  schedule.observe(static_cast<int>(confidences.size()), accepted);
}

TEST(Schedule, RocSeparatesAcceptedFromRejectedTokens) {
  Schedule schedule = make(ScheduleRule::roc_confidence, 8);
  EXPECT_TRUE(schedule.needs_confidence());
  EXPECT_FALSE(schedule.stop_after(.4));
  EXPECT_TRUE(schedule.stop_after(.39));
  draft_with(schedule, {.9, .8, .3}, 2);
  draft_with(schedule, {.95, .35}, 2);
  EXPECT_EQ(schedule.threshold(), .4) << "the fate of 5 tokens is known, 6 are needed";
  draft_with(schedule, {.7, .2}, 0);
  // Accepted: .95 .9 .8 .35; rejected: .7 .3. The fate of .2 is unknown. FPR + 3 FNR at the thresholds .8,
  // .7, .35 and .3: 0 + 3/4, 1/2 + 3/4, 1/2 + 0, 1 + 0.
  EXPECT_EQ(schedule.threshold(), .35);
  EXPECT_FALSE(schedule.stop_after(.35));
  EXPECT_TRUE(schedule.stop_after(.34));
  for (int i = 0; i < 2; ++i) draft_with(schedule, {.75}, 0);
  EXPECT_EQ(schedule.threshold(), .8);  // .8: 0 + 3/4; .35: 3/4 + 0; the larger of equals
  schedule.begin(1);
  EXPECT_EQ(schedule.threshold(), .4);
  draft_with(schedule, {.9, .9, .9, .9, .9, .9}, 6);
  EXPECT_EQ(schedule.threshold(), .4) << "no rejected token is known";
}

// Beside a count of every threshold, on confidences that are often equal. A threshold soon settles down, so
// there are several texts.
TEST(Schedule, RocFindsTheLeastCost) {
  std::mt19937 random(5);
  Schedule schedule = make(ScheduleRule::roc_confidence, 8, {.least_samples = 2});
  std::vector<std::pair<double, bool>> known;
  int changes = 0;
  for (int draft = 0; draft < 200; ++draft) {
    if (draft % 20 == 0) {
      schedule.begin(1);
      known.clear();
    }
    std::vector<double> confidences(1 + random() % 4);
    for (double& confidence : confidences) confidence = static_cast<double>(random() % 10) / 10;
    const int accepted = static_cast<int>(random() % (confidences.size() + 1));
    const double before = schedule.threshold();
    draft_with(schedule, confidences, accepted);
    for (std::size_t i = 0; i < confidences.size() && static_cast<int>(i) <= accepted; ++i)
      known.emplace_back(confidences[i], static_cast<int>(i) < accepted);
    double all_accepted = 0, all_rejected = 0;
    for (const auto& [confidence, was_accepted] : known) ++(was_accepted ? all_accepted : all_rejected);
    if (all_accepted == 0 || all_rejected == 0) continue;
    const auto cost = [&](double threshold) {
      double false_positives = 0, false_negatives = 0;
      for (const auto& [confidence, was_accepted] : known) {
        if (confidence >= threshold && !was_accepted) ++false_positives;
        if (confidence < threshold && was_accepted) ++false_negatives;
      }
      return false_positives / all_rejected + 3 * false_negatives / all_accepted;
    };
    for (int tenth = 0; tenth < 10; ++tenth)
      ASSERT_LE(cost(schedule.threshold()), cost(tenth / 10.) + 1e-12) << draft;
    changes += schedule.threshold() != before ? 1 : 0;
  }
  EXPECT_GT(changes, 20);
}

TEST(Schedule, BanditTriesEachLengthAndThenTheUpperConfidenceBound) {
  EXPECT_EQ(chain_step_ns(kCosts, 3), (std::vector<double>{10, 13, 16, 19}));
  EXPECT_EQ(chain_step_ns({.target_ns = {10, 12}}, 2), (std::vector<double>{10, 12, 14}));
  Schedule schedule = make(ScheduleRule::bandit, 3);
  EXPECT_EQ(schedule.largest(), 3);
  EXPECT_EQ(schedule.limit(), 1);
  EXPECT_FALSE(schedule.stop_after(0));
  schedule.observe(1, 1);  // reward 2/13; the largest possible one is 4/19, so scaled .731
  EXPECT_EQ(schedule.limit(), 2);
  schedule.observe(2, 0);  // 1/16, scaled .297
  EXPECT_EQ(schedule.limit(), 3);
  schedule.observe(3, 3);          // scaled 1
  EXPECT_EQ(schedule.limit(), 3);  // all bonuses are sqrt(2 ln 3)
  schedule.observe(3, 0);          // scaled 1/4
  EXPECT_EQ(schedule.limit(), 1);  // .731 + sqrt(2 ln 4) = 2.396; .297 + 1.665 = 1.962; .625 + 1.177 = 1.802
  schedule.begin(1);
  EXPECT_EQ(schedule.limit(), 1);
}

TEST(Schedule, BanditWithoutExplorationTakesTheBestMean) {
  Schedule schedule = make(ScheduleRule::bandit, 3, {.exploration = 0});
  schedule.observe(1, 1);
  schedule.observe(2, 0);
  schedule.observe(2, 2);  // the limit is 3; something else ended the draft. 3/16, scaled .891
  EXPECT_EQ(schedule.limit(), 3);
  schedule.observe(3, 0);  // the mean is (.891 + .25) / 2 = .570
  EXPECT_EQ(schedule.limit(), 1);
  schedule.observe(1, 0);          // (.731 + .365) / 2 = .548
  EXPECT_EQ(schedule.limit(), 3);  // .570
}

TEST(Schedule, BanditNeedsCosts) {
  EXPECT_THROW(Schedule({.schedule = ScheduleRule::bandit}, 3), Error);
  EXPECT_THROW(Schedule({.schedule = ScheduleRule::goodput}, 3), Error);
  EXPECT_NO_THROW(Schedule({.schedule = ScheduleRule::entropy}, 3));
}

// Liu et al. 2024, SmartSpec: the most of (1 + a + ... + a^n) / time, where steps of 1, 2 and 3 drafted
// tokens take 13, 16 and 19.
TEST(Schedule, GoodputFollowsTheMovingAcceptance) {
  Schedule schedule = make(ScheduleRule::goodput, 3);
  EXPECT_EQ(schedule.largest(), 3);
  EXPECT_EQ(schedule.limit(), 1);  // a = .6: 1.6 / 13 = .1231, 1.96 / 16 = .1225, 2.176 / 19 = .1145
  EXPECT_FALSE(schedule.stop_after(0));
  schedule.observe(1, 1);
  EXPECT_EQ(schedule.limit(), 3);  // a = (1 + .6) / 2 = .8: .1385, .1525, .1554
  schedule.observe(3, 0);
  EXPECT_EQ(schedule.limit(), 1);  // a = (.9 + .6) / (1.9 + 1) = .517: .1167, .1115, .1012
  schedule.observe(1, 1);
  EXPECT_EQ(schedule.limit(), 2);  // a = (1.81 + .6) / (2.71 + 1) = .650: .1269, .1295, .1235
  schedule.begin(1);
  EXPECT_EQ(schedule.limit(), 1);

  Schedule forgetful = make(ScheduleRule::goodput, 3, {.goodput_memory = 0});
  for (int i = 0; i < 5; ++i) forgetful.observe(3, 0);
  forgetful.observe(1, 1);
  EXPECT_EQ(forgetful.limit(), 3) << "only the last draft counts: .8";
}

TEST(Schedule, ListNamesTheOptionsThatEachReads) {
  ScheduleOptions options;
  std::vector<std::string> names;
  for (const OptionInfo& info : describe_options(option_fields(options))) names.push_back(info.name);
  ASSERT_GE(schedules().size(), 13u);
  for (const ScheduleInfo& info : schedules()) {
    EXPECT_FALSE(info.summary.empty() || info.source.empty()) << info.name;
    for (const std::string_view option : info.options)
      EXPECT_THAT(names, ::testing::Contains(std::string(option)));
    EXPECT_EQ(&schedule_info(info.rule), &info);
    EXPECT_EQ(recorded_schedule(info.name), &info);
    if (info.needs_controller) {
      EXPECT_THROW(make(info.rule, 3), Error) << info.name << " without a controller";
    } else {
      make(info.rule, 3);
    }
  }
  EXPECT_EQ(recorded_schedule("unheard of"), nullptr);
}

TEST(Schedule, GammaBeyondTheHeuristicsLimitIsRefused) {
  ScheduleOptions options;
  options.gamma_max = 4;
  EXPECT_THROW(make(ScheduleRule::heuristic, 5, options), Error);
  EXPECT_NO_THROW(make(ScheduleRule::constant, 5, options));
}

}  // namespace
}  // namespace speclab::schedule_test
