// How a draft learns while it drafts: the gradients, the correction of logits, and which positions are
// learned from.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "core/decoding/drafting/online/distillation.h"
#include "core/decoding/drafting/online/logits_correction.h"
#include "core/decoding/drafting/online/online_learner.h"

namespace speclab::online_learning_test {
namespace {

using ::testing::ElementsAre;
using ::testing::FloatNear;

constexpr DistillObjective kObjectives[] = {DistillObjective::forward_kl, DistillObjective::reverse_kl,
                                            DistillObjective::jsd, DistillObjective::total_variation};

std::vector<double> softmax_of(const std::vector<double>& logits) {
  const double most = *std::ranges::max_element(logits);
  std::vector<double> out;
  double sum = 0;
  for (const double logit : logits) sum += out.emplace_back(std::exp(logit - most));
  for (double& weight : out) weight /= sum;
  return out;
}

std::vector<float> floats(const std::vector<double>& values) { return {values.begin(), values.end()}; }

/// The objectives by their definitions.
double distance_of(DistillObjective objective, const std::vector<double>& p, const std::vector<double>& q) {
  double sum = 0;
  for (std::size_t i = 0; i < p.size(); ++i) {
    const double middle = (p[i] + q[i]) / 2;
    switch (objective) {
      case DistillObjective::forward_kl: sum += p[i] * std::log(p[i] / q[i]); break;
      case DistillObjective::reverse_kl: sum += q[i] * std::log(q[i] / p[i]); break;
      case DistillObjective::jsd:
        sum += (p[i] * std::log(p[i] / middle) + q[i] * std::log(q[i] / middle)) / 2;
        break;
      case DistillObjective::total_variation: sum += std::abs(p[i] - q[i]) / 2; break;
    }
  }
  return sum;
}

TEST(Distillation, GradientsAreThoseOfFiniteDifferences) {
  const std::vector<double> p = softmax_of({.2, .8, -.6, 1.1, .5, -2, 1.7}),
                            logits{1.2, -.3, .4, 2, -1.5, .1, .9};
  for (const DistillObjective objective : kObjectives) {
    SCOPED_TRACE(static_cast<int>(objective));
    const std::vector<float> q = floats(softmax_of(logits));
    std::vector<float> gradient(q.size());
    distillation_gradient(objective, floats(p), q, gradient);
    double sum = 0, squares = 0;
    for (std::size_t i = 0; i < q.size(); ++i) {
      const auto moved = [&](double by) {
        std::vector<double> other = logits;
        other[i] += by;
        return distance_of(objective, p, softmax_of(other));
      };
      EXPECT_NEAR(gradient[i], (moved(1e-4) - moved(-1e-4)) / 2e-4, 2e-6) << i;
      sum += gradient[i], squares += gradient[i] * gradient[i];
    }
    EXPECT_NEAR(sum, 0, 1e-6);
    EXPECT_GT(squares, 1e-3) << "a gradient of zeros would show nothing";
  }
}

TEST(Distillation, ZerosOfBothDistributionsAreHarmless) {
  const std::vector<float> p{.5f, .5f, 0, 0}, q{.25f, 0, .75f, 0};
  for (const DistillObjective objective : kObjectives) {
    SCOPED_TRACE(static_cast<int>(objective));
    std::vector<float> gradient(4);
    distillation_gradient(objective, p, q, gradient);
    for (const float slope : gradient) EXPECT_TRUE(std::isfinite(slope));
    EXPECT_LT(gradient[0], 0) << "q is below p";
    EXPECT_GT(gradient[2], 0) << "q is above p";
    EXPECT_EQ(gradient[3], 0);
  }
}

std::vector<float> corrected(const LogitsCorrection& correction, const std::vector<float>& state,
                             std::vector<float> logits) {
  correction.apply(state, logits);
  return logits;
}

TEST(LogitsCorrection, AStepMovesTheLogitsOfItsStateByRateTimesGradient) {
  LogitsCorrection correction(2, 3, 3);
  const std::vector<float> state{1, 2}, zeros{0, 0, 0};
  EXPECT_EQ(corrected(correction, state, {1, 2, 3}), (std::vector<float>{1, 2, 3}));
  correction.descend(state, std::vector<float>{.5f, -.25f, 0}, {.rate = 1, .clip = 10, .least = 0});
  EXPECT_EQ(correction.rows(), 2);
  EXPECT_THAT(corrected(correction, state, zeros),
              ElementsAre(FloatNear(-.5f, 1e-6f), FloatNear(.25f, 1e-6f), 0));
  // Another state h' moves by (h h' + 1) / (|h|^2 + 1) = (2 + 1) / (5 + 1) of that.
  EXPECT_THAT(corrected(correction, {0, 1}, zeros),
              ElementsAre(FloatNear(-.25f, 1e-6f), FloatNear(.125f, 1e-6f), 0));
  correction.descend(state, std::vector<float>{-1, 0, 0}, {.rate = .5, .clip = 10, .least = 0});
  EXPECT_NEAR(corrected(correction, state, zeros)[0], 0, 1e-6);
  correction.clear();
  EXPECT_EQ(correction.rows(), 0);
  EXPECT_EQ(corrected(correction, state, {1, 2, 3}), (std::vector<float>{1, 2, 3}));
}

TEST(LogitsCorrection, LongGradientsAreShortenedAndSmallEntriesLeftOut) {
  LogitsCorrection correction(1, 3, 3);
  correction.descend(std::vector<float>{3}, std::vector<float>{3, 4, 0}, {.rate = 1, .clip = 1, .least = 0});
  EXPECT_THAT(corrected(correction, {3}, {0, 0, 0}),
              ElementsAre(FloatNear(-.6f, 1e-6f), FloatNear(-.8f, 1e-6f), 0));
  correction.clear();
  correction.descend(std::vector<float>{3}, std::vector<float>{.5f, .0005f, -.5f},
                     {.rate = 1, .clip = 1, .least = .001});
  EXPECT_EQ(correction.rows(), 2);
  EXPECT_EQ(corrected(correction, {3}, {0, 0, 0})[1], 0);
}

TEST(LogitsCorrection, TheRowThatWasTakenLongestAgoIsDropped) {
  LogitsCorrection correction(1, 4, 2);
  const auto step = [&](std::size_t entry) {
    std::vector<float> gradient(4);
    gradient[entry] = 1;
    correction.descend(std::vector<float>{0}, gradient, {.rate = 1, .clip = 1, .least = 0});
    return corrected(correction, {0}, {0, 0, 0, 0});
  };
  step(0);
  EXPECT_THAT(step(1), ElementsAre(-1, -1, 0, 0));
  EXPECT_THAT(step(0), ElementsAre(-2, -1, 0, 0)) << "a token that has a row keeps it";
  EXPECT_THAT(step(2), ElementsAre(0, -1, -1, 0));
  EXPECT_THAT(step(3), ElementsAre(0, 0, -1, -1));
  EXPECT_THAT(step(0), ElementsAre(-1, 0, 0, -1)) << "it begins at zero again";
  EXPECT_EQ(correction.rows(), 2);
}

// A width that is no multiple of the number of partial sums.
TEST(LogitsCorrection, WideStates) {
  constexpr int kWidth = 37;
  std::vector<float> state(kWidth);
  for (std::size_t i = 0; i < state.size(); ++i) state[i] = static_cast<float>(i % 5) - 2;
  LogitsCorrection correction(kWidth, 2, 2);
  correction.descend(state, std::vector<float>{.75f, 0}, {.rate = 1, .clip = 1, .least = 0});
  EXPECT_NEAR(corrected(correction, state, {0, 0})[0], -.75, 1e-5);
  for (float& value : state) value = -value;  // now h h' = -|h|^2
  double squares = 0;
  for (const float value : state) squares += value * value;
  EXPECT_NEAR(corrected(correction, state, {0, 0})[0], -.75 * (1 - squares) / (1 + squares), 1e-5);
}

/// A draft that can draw the tokens 1, 3 and 4 of 6.
ModelConfig small_draft() {
  ModelConfig config;
  config.vocab = 6;
  config.hidden = 2;
  config.head_ids = {1, 3, 4};
  return config;
}

class Learner : public ::testing::Test {
 protected:
  static std::vector<float> row_of(float a, float b, float c) { return {9, a, 9, b, c, 9}; }
  /// The logits {0, 1, 2} of a state, corrected.
  static std::vector<float> logits_at(const OnlineLearner& learner, const std::vector<float>& state) {
    return corrected(learner.correction(), state, {0, 1, 2});
  }
  /// Drafts one token at a state. The target rejects it and has this row.
  static void reject(OnlineLearner& learner, const std::vector<float>& state, const std::vector<float>& row) {
    std::vector<float> logits{0, 1, 2};
    learner.correct(1, state, logits);
    learner.observe(1, 0, row);
  }
  ModelConfig draft = small_draft();
  const std::vector<float> a{1, 0}, b{0, 2}, c{1, 1};
};

TEST_F(Learner, LearnsTheTargetsRowAmongTheTokensThatItCanDraw) {
  for (const DistillObjective objective :
       {DistillObjective::forward_kl, DistillObjective::reverse_kl, DistillObjective::jsd}) {
    SCOPED_TRACE(static_cast<int>(objective));
    OnlineLearner learner(
        {.objective = objective, .learning_rate = 1, .least_gradient = 0, .update_every = 1}, draft);
    for (int i = 0; i < 300; ++i) reject(learner, a, row_of(1, -1, 0));
    const std::vector<float> learned = logits_at(learner, a);
    const std::vector<double> q = softmax_of({learned.begin(), learned.end()}), p = softmax_of({1, -1, 0});
    for (std::size_t i = 0; i < 3; ++i) EXPECT_NEAR(q[i], p[i], 1e-3);
    EXPECT_EQ(learner.steps_of_descent(), 300);
  }
}

TEST_F(Learner, UpdatesComeEverySoManySteps) {
  OnlineLearner learner({.update_every = 3}, draft);
  const std::vector<float> before = logits_at(learner, a);
  reject(learner, a, row_of(1, -1, 0));
  reject(learner, b, row_of(0, 3, 0));
  EXPECT_EQ(logits_at(learner, a), before);
  reject(learner, a, row_of(1, -1, 0));
  EXPECT_NE(logits_at(learner, a), before);
  EXPECT_EQ(learner.steps_of_descent(), 3);
  const std::vector<float> after = logits_at(learner, a);
  reject(learner, a, row_of(1, -1, 0));
  EXPECT_EQ(logits_at(learner, a), after);
  learner.observe(0, 0, {});  // nothing was drafted
  learner.observe(0, 0, {});
  EXPECT_EQ(logits_at(learner, a), after) << "only steps with a draft count";
}

TEST_F(Learner, OnlyTheNewestPositionsAreKept) {
  const std::vector<float> first = row_of(5, 0, 0), second = row_of(0, 5, 0), third = row_of(0, 0, -5),
                           fourth = row_of(-3, 3, 0);
  OnlineLearner learner({.update_every = 4, .buffer = 2}, draft);
  reject(learner, a, first);
  reject(learner, b, second);
  reject(learner, c, third);
  reject(learner, a, fourth);
  EXPECT_EQ(learner.steps_of_descent(), 2);
  OnlineLearner newest({.update_every = 2, .buffer = 2}, draft);
  reject(newest, c, third);
  reject(newest, a, fourth);
  OnlineLearner all({.update_every = 4, .buffer = 4}, draft);
  reject(all, a, first);
  reject(all, b, second);
  reject(all, c, third);
  reject(all, a, fourth);
  for (const std::vector<float>& state : {a, b, c}) {
    EXPECT_EQ(logits_at(learner, state), logits_at(newest, state));
    EXPECT_NE(logits_at(learner, state), logits_at(all, state));
  }
}

TEST_F(Learner, LearnsAtTheRejectedPositionAlone) {
  const std::vector<float> row = row_of(2, 0, -2);
  OnlineLearner learner({.update_every = 1}, draft), of_second({.update_every = 1}, draft);
  const auto draft_three = [&] {
    for (int depth = 1; depth <= 3; ++depth) {
      std::vector<float> logits{0, 1, 2};
      learner.correct(depth, depth == 1 ? a : depth == 2 ? b : c, logits);
    }
  };
  draft_three();
  learner.observe(3, 3, row);
  EXPECT_EQ(learner.steps_of_descent(), 0) << "all were accepted";
  EXPECT_EQ(logits_at(learner, b), (std::vector<float>{0, 1, 2}));
  draft_three();
  learner.observe(3, 1, row);
  reject(of_second, b, row);
  EXPECT_EQ(learner.steps_of_descent(), 1);
  for (const std::vector<float>& state : {a, b, c})
    EXPECT_EQ(logits_at(learner, state), logits_at(of_second, state));
}

TEST_F(Learner, RowsThatTeachNothingAreLeftOut) {
  const float none = -std::numeric_limits<float>::infinity();
  OnlineLearner learner({.update_every = 2, .buffer = 1}, draft);
  reject(learner, a, row_of(none, none, none));
  reject(learner, a, row_of(std::numeric_limits<float>::quiet_NaN(), 0, 0));
  EXPECT_EQ(learner.steps_of_descent(), 0);
  reject(learner, a, row_of(1, 0, 0));
  reject(learner, a, row_of(none, none, none));
  EXPECT_EQ(learner.steps_of_descent(), 1) << "the position before it stays in the buffer";
  const float before = logits_at(learner, a)[1];
  reject(learner, a, row_of(1, none, 0));
  reject(learner, a, row_of(1, none, 0));
  EXPECT_EQ(learner.steps_of_descent(), 2);
  EXPECT_LT(logits_at(learner, a)[1], before) << "a token that the target never draws";
}

TEST_F(Learner, ForgetsEverything) {
  OnlineLearner learner({.update_every = 2}, draft), fresh({.update_every = 2}, draft);
  for (int i = 0; i < 3; ++i) reject(learner, a, row_of(1, -1, 0));
  learner.forget();
  EXPECT_EQ(logits_at(learner, a), (std::vector<float>{0, 1, 2}));
  for (int i = 0; i < 2; ++i) {
    reject(learner, b, row_of(0, 4, 0));
    reject(fresh, b, row_of(0, 4, 0));
    EXPECT_EQ(logits_at(learner, a), logits_at(fresh, a));
  }
  EXPECT_NE(logits_at(fresh, b), (std::vector<float>{0, 1, 2}));
}

TEST_F(Learner, ARateOfZeroChangesNothing) {
  OnlineLearner learner({.learning_rate = 0, .update_every = 1}, draft);
  for (int i = 0; i < 5; ++i) reject(learner, a, row_of(4, -1, 0));
  EXPECT_EQ(logits_at(learner, a), (std::vector<float>{0, 1, 2}));
}

}  // namespace
}  // namespace speclab::online_learning_test
