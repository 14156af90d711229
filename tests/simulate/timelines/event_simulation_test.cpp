// Timelines that are short enough to be played by hand.
#include "core/simulate/timelines/event_simulation.h"

#include <gtest/gtest.h>

#include <string>

namespace speclab::simulate::event_simulation_test {
namespace {

const theory::RowTimes kMoreRows({{1, 1.0}, {9, 2.0}});

/// Accepts and rejects as a text of "a" and "r" says.
TimelineRun play(const TimelineSetting& setting, const std::string& verdicts, std::int64_t tokens) {
  std::size_t next = 0;
  const auto accept = [&] { return verdicts.at(next++) == 'a'; };
  const TimelineRun run = play_timeline(setting, accept, tokens, 100);
  EXPECT_EQ(next, verdicts.size());
  return run;
}

TEST(EventSimulation, SerialStepsVerifyAllTokensAndEmitABonus) {
  const TimelineRun run = play({Timeline::serial, 2, 1, .25, kMoreRows}, "aaar", 5);
  // Two steps of .5 for drafting and 1.25 for three rows; 3 tokens, then 2.
  EXPECT_DOUBLE_EQ(run.time, 3.5);
  EXPECT_EQ(run.tokens, 5);
  EXPECT_EQ(run.draft_forwards, 4);
  EXPECT_EQ(run.target_forwards, 2);
  ASSERT_EQ(run.segments.size(), 6u);
  EXPECT_EQ(run.segments[2].rows, 3);
  EXPECT_EQ(run.segments[2].device, 1);
  EXPECT_DOUBLE_EQ(run.segments[2].start, .5);
  EXPECT_DOUBLE_EQ(run.segments[2].end, 1.75);
  EXPECT_FALSE(run.segments[3].wasted);  // the first token of the second step was accepted
  EXPECT_TRUE(run.segments[4].wasted);
  EXPECT_FALSE(run.segments[5].wasted);  // its forward gave the correction
}

TEST(EventSimulation, PearlRoundsWaitForTheSlowerOne) {
  // Round 1, pre-verify: 1. Round 2, post-verify of two rows: 1.125, judges two tokens.
  const TimelineRun run = play({Timeline::pearl, 2, 1, .5, kMoreRows}, "aar", 3);
  EXPECT_DOUBLE_EQ(run.time, 2.125);
  EXPECT_EQ(run.draft_forwards, 4);
  EXPECT_EQ(run.target_forwards, 2);
  int wasted = 0;
  for (const TimelineSegment& segment : run.segments) wasted += segment.wasted ? 1 : 0;
  EXPECT_EQ(wasted, 2);  // the rejected token and the one behind it
  // A slow draft: both rounds take as long as two draft forwards.
  EXPECT_DOUBLE_EQ(play({Timeline::pearl, 2, 1, 2, kMoreRows}, "aar", 3).time, 8);
}

TEST(EventSimulation, AmusdFeedsWhatHasBeenDrafted) {
  // Forward 1 ends at 1 and judges token 1. Two tokens are drafted then, so forward 2 feeds two rows and ends
  // at 2.125. Four tokens are drafted then, and forward 3 feeds the two new ones.
  const TimelineRun run = play({Timeline::amusd, 1, 1, .5, kMoreRows}, "aaar", 4);
  EXPECT_DOUBLE_EQ(run.time, 3.25);
  EXPECT_EQ(run.target_forwards, 3);
}

TEST(EventSimulation, ARejectionEndsForwardsThatAreUnderWay) {
  // Verifications start at 0, .25, .5, .75 on servers of their own. The second token is rejected at 1.25.
  const theory::RowTimes flat(1.0);
  const TimelineRun run = play({Timeline::dsi, 1, 4, .25, flat}, "ar", 2);
  EXPECT_DOUBLE_EQ(run.time, 1.25);
  for (const TimelineSegment& segment : run.segments) {
    EXPECT_LE(segment.end, 1.25);
    if (segment.device >= 2) {
      EXPECT_EQ(segment.wasted, segment.device > 2);
    }
  }
  EXPECT_EQ(run.target_forwards, 5);  // the first server was free again at 1
}

TEST(EventSimulation, OneServerTakesOneVerificationAfterTheOther) {
  // Lookahead 1 with one server: token k is known at k, however fast the draft is.
  const theory::RowTimes flat(1.0);
  EXPECT_DOUBLE_EQ(play({Timeline::dsi, 1, 1, .125, flat}, "aaaar", 5).time, 5);
}

TEST(EventSimulation, KeepsAsManySegmentsAsAskedFor) {
  const auto accept = [] { return true; };
  EXPECT_TRUE(play_timeline({Timeline::amusd, 1, 1, .5, kMoreRows}, accept, 100).segments.empty());
  EXPECT_EQ(play_timeline({Timeline::amusd, 1, 1, .5, kMoreRows}, accept, 100, 7).segments.size(), 7u);
}

}  // namespace
}  // namespace speclab::simulate::event_simulation_test
