#include "core/decoding/drafting/schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "core/base/error.h"

namespace speclab {
namespace {

Schedule make(ScheduleRule rule, int gamma, ScheduleOptions options = {}) {
  options.schedule = rule;
  Schedule schedule(options, gamma);
  schedule.begin(0);
  return schedule;
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
  schedule.observe(4, 4);  // the mean is .5 * 0 + .5 * 1, below .9
  EXPECT_NEAR(schedule.threshold(), .801, 1e-12);
  schedule.observe(4, 4);  // .75
  schedule.observe(4, 4);  // .875
  EXPECT_NEAR(schedule.threshold(), .803, 1e-12);
  schedule.observe(4, 4);  // .9375: the draft stopped early, and could have been longer
  EXPECT_NEAR(schedule.threshold(), .802, 1e-12);
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
  schedule.observe(2, 2);  // .5, more than .4
  EXPECT_NEAR(schedule.threshold(), .48, 1e-12);
  schedule.observe(2, 0);  // .25
  EXPECT_NEAR(schedule.threshold(), .5, 1e-12);
}

TEST(Schedule, ConfidenceStopsBelowTheThreshold) {
  Schedule schedule = make(ScheduleRule::confidence, 8);
  EXPECT_TRUE(schedule.needs_confidence());
  schedule.start_draft();
  EXPECT_FALSE(schedule.stop_after(.9));
  EXPECT_FALSE(schedule.stop_after(.4));  // not below
  EXPECT_TRUE(schedule.stop_after(.39));
}

TEST(Schedule, ProductRunsOverOneDraft) {
  ScheduleOptions options;
  options.product_threshold = .3;
  Schedule schedule = make(ScheduleRule::product, 8, options);
  for (int draft = 0; draft < 2; ++draft) {
    schedule.start_draft();
    EXPECT_FALSE(schedule.stop_after(.7));
    EXPECT_FALSE(schedule.stop_after(.7));  // .49
    EXPECT_TRUE(schedule.stop_after(.6));   // .294
  }
}

TEST(Schedule, ListNamesTheOptionsThatEachReads) {
  ScheduleOptions options;
  std::vector<std::string> names;
  for (const OptionInfo& info : describe_options(option_fields(options))) names.push_back(info.name);
  ASSERT_EQ(schedules().size(), 6u);
  for (const ScheduleInfo& info : schedules()) {
    EXPECT_FALSE(info.summary.empty() || info.source.empty()) << info.name;
    for (const std::string_view option : info.options)
      EXPECT_THAT(names, ::testing::Contains(std::string(option)));
    make(info.rule, 3);
  }
}

TEST(Schedule, GammaBeyondTheHeuristicsLimitIsRefused) {
  ScheduleOptions options;
  options.gamma_max = 4;
  EXPECT_THROW(make(ScheduleRule::heuristic, 5, options), Error);
  EXPECT_NO_THROW(make(ScheduleRule::constant, 5, options));
}

}  // namespace
}  // namespace speclab
