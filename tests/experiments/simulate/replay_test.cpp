// Replays of traces made by hand, counted by hand.
#include "experiments/simulate/replay.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/error.h"

namespace speclab {
namespace {

using nlohmann::json;

/// Drafts of three tokens with confidences .9, .5, .2, of which `matching` are right.
TracedDraft draft(int matching) { return {.confidence = {.9, .5, .2}, .matching = matching}; }

TracedText text() {
  // Positions:             0         1         2         3         4         5
  return {.prompt = "p", .turn = 0, .drafts = {draft(2), draft(0), draft(3), draft(1), draft(0), draft(0)}};
}

TEST(ReplayOne, AChainGoesOnWhereTheLastStepEnded) {
  // gamma 3: from 0, 2 accepted, to 3; 1 accepted, to 5; 0 accepted, to the end.
  const Replayed three = replay_one(text(), {.gamma = 3, .schedule = {}});
  EXPECT_EQ(three.steps, 3);
  EXPECT_EQ(three.tokens, 6);
  EXPECT_EQ(three.drafted, 9);
  EXPECT_EQ(three.accepted, 3);
  EXPECT_DOUBLE_EQ(three.tau(), 2);
  // gamma 1: from 0 to 2, 4, 5, 6.
  const Replayed one = replay_one(text(), {.gamma = 1, .schedule = {}});
  EXPECT_EQ(one.steps, 4);
  EXPECT_EQ(one.lengths, (theory::DraftLengths{0, 4}));
}

TEST(ReplayOne, AScheduleStopsTheDraftWhereItStopsTheRealOne) {
  ReplaySetting setting{.gamma = 3, .schedule = {}};
  setting.schedule.schedule = ScheduleRule::confidence;
  setting.schedule.confidence_threshold = .6;  // the token with .5 is drafted, and it is the last one
  const Replayed counts = replay_one(text(), setting);
  EXPECT_EQ(counts.lengths, (theory::DraftLengths{0, 0, 3}));
  EXPECT_EQ(counts.tokens, 6);
}

TEST(ReplayOne, TheEndOfTheTextCutsTheLastStep) {
  TracedText end{.prompt = "p", .turn = 0, .drafts = {draft(0), draft(3)}};
  end.drafts[1].matching = 1;  // the text has one more token
  const Replayed counts = replay_one(end, {.gamma = 3, .schedule = {}});
  EXPECT_EQ(counts.steps, 2);
  EXPECT_EQ(counts.tokens, 2);
  EXPECT_EQ(counts.accepted, 1);
}

TEST(ReplayOne, ADrafterThatFindsNothingTakesAPlainStep) {
  const TracedText none{.prompt = "p", .turn = 0, .drafts = {TracedDraft{}, TracedDraft{}}};
  const Replayed counts = replay_one(none, {.gamma = 3, .schedule = {}});
  EXPECT_EQ(counts.lengths, (theory::DraftLengths{2}));
  EXPECT_DOUBLE_EQ(counts.tau(), 1);
}

class ReplayTrace : public ::testing::Test {
 protected:
  ReplayTrace() {
    auto data = std::make_shared<CaseData>();
    data->config = {{"id", "spec"}, {"options", json::object()}};
    trace_.data = data;
    trace_.texts = {text(), text()};
  }
  static theory::Calibration costs() {
    theory::Calibration costs;
    costs.t_ar = 10;
    costs.target = theory::RowTimes({{1, 10.0}, {4, 13.0}});
    costs.draft_token = 1;
    return costs;
  }
  Trace trace_;
};

TEST_F(ReplayTrace, TimesComeFromTheCalibration) {
  const std::vector<std::size_t> all = {0, 1};
  const Replayed counts = replay(trace_, all, {.gamma = 3, .schedule = {}});
  EXPECT_EQ(counts.steps, 6);
  EXPECT_DOUBLE_EQ(replayed_step(counts, costs()).total(), 13 + 3);
}

TEST_F(ReplayTrace, LongerDraftsThanTheTraceHasAreRefused) {
  const std::vector<std::size_t> all = {0, 1};
  EXPECT_EQ(longest_draft(trace_), 3);
  EXPECT_THROW(replay(trace_, all, {.gamma = 4, .schedule = {}}), Error);
}

}  // namespace
}  // namespace speclab
