#include "core/measure/rounds.h"

#include <gtest/gtest.h>

namespace speclab::rounds_test {
namespace {

DraftedToken tested(int parent, bool accepted, double expected) {
  DraftedToken token;
  token.parent = parent;
  token.tested = true;
  token.accepted = accepted;
  token.expected = expected;
  return token;
}

DraftedToken untested(int parent) {
  DraftedToken token;
  token.parent = parent;
  return token;
}

TEST(ChainRound, RejectionInTheMiddle) {
  StepRecord step;
  step.accepted = 1;
  step.emitted = 2;
  step.drafted = {tested(0, true, 0.5), tested(1, false, 0.25), untested(2), untested(3)};
  const Round round = *chain_round(step);
  EXPECT_EQ(round.drafted, 4);
  EXPECT_EQ(round.accepted, 1);
  EXPECT_TRUE(round.rejected);
  EXPECT_EQ(round.tests(), 2);
  EXPECT_EQ(round.emitted, 2);
  EXPECT_EQ(round.expected_sum, 0.75);
  EXPECT_EQ(round.expected_variance, 0.25 + 0.1875);
}

TEST(ChainRound, FullAcceptanceWithBonus) {
  StepRecord step;
  step.accepted = 2;
  step.emitted = 3;
  step.drafted = {tested(0, true, 1), tested(1, true, 1 + 1e-9)};
  const Round round = *chain_round(step);
  EXPECT_EQ(round.accepted, 2);
  EXPECT_FALSE(round.rejected);
  EXPECT_GE(round.expected_variance, 0);
}

TEST(ChainRound, WhatLiesBehindACutIsNotATest) {
  StepRecord step;
  step.accepted =
      1;  // the verifier accepted two and rejected the third, but the first is the end of the text
  step.emitted = 1;
  step.ended_by = EndedBy::eos;
  step.drafted = {tested(0, true, 0.5), tested(1, true, 0.5), tested(2, false, 0.5)};
  const Round round = *chain_round(step);
  EXPECT_EQ(round.accepted, 1);
  EXPECT_FALSE(round.rejected);
  EXPECT_EQ(round.expected_sum, 0.5);
}

TEST(ChainRound, ACorrectionThatEndsTheTextIsARejection) {
  StepRecord step;
  step.accepted = 1;
  step.emitted = 2;
  step.ended_by = EndedBy::eos;
  step.drafted = {tested(0, true, 0.5), tested(1, false, 0.5)};
  EXPECT_TRUE(chain_round(step)->rejected);
}

TEST(ChainRound, AutoregressiveStep) {
  StepRecord step;
  step.emitted = 1;
  const Round round = *chain_round(step);
  EXPECT_EQ(round.drafted, 0);
  EXPECT_EQ(round.tests(), 0);
}

TEST(ChainRound, UnknownExpectationsAreLeftOut) {
  StepRecord step;
  step.accepted = 2;
  step.emitted = 3;
  step.drafted = {tested(0, true, 0.5), tested(1, true, -1)};
  EXPECT_EQ(chain_round(step)->expected_sum, 0);
  EXPECT_EQ(chain_round(step)->expected_variance, 0);
}

TEST(ChainRound, BranchesAreNoRound) {
  StepRecord step;
  step.accepted = 1;
  step.emitted = 2;
  step.drafted = {tested(0, false, 0.5), tested(0, true, 0.5)};
  EXPECT_FALSE(chain_round(step));
}

}  // namespace
}  // namespace speclab::rounds_test
