// The parts of a change of speedup add up to the change, whatever the costs are.
#include "experiments/analysis/compare/speedup_change.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>
#include <random>

#include "experiments/analysis/compare/time_verdict.h"
#include "tests/experiments/analysis/compare/compared_run.h"

namespace speclab::speedup_change_test {
namespace {

double sum_of(const std::array<double, kChangeParts.size()>& parts) {
  return std::accumulate(parts.begin(), parts.end(), 0.0);
}

CaseCosts random_costs(std::mt19937_64& random) {
  std::uniform_real_distribution<double> number(0, 10);
  CaseCosts costs;
  costs.times = {.draft = number(random), .target = number(random), .overhead = number(random)};
  costs.steps = 1 + number(random);
  costs.tokens = 1 + number(random);
  costs.reference_ns = 1 + number(random);
  costs.reference_tokens = 1 + number(random);
  return costs;
}

TEST(SpeedupChange, PartsAddUpAndChangeSignWithTheDirection) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 200; ++i) {
    const CaseCosts base = random_costs(random), fresh = random_costs(random);
    const auto there = change_parts(base, fresh), back = change_parts(fresh, base);
    EXPECT_NEAR(sum_of(there), std::log(fresh.speedup() / base.speedup()), 1e-12);
    EXPECT_NEAR(sum_of(there) - there[0], std::log(base.per_token() / fresh.per_token()), 1e-12);
    for (std::size_t part = 0; part < there.size(); ++part) EXPECT_NEAR(there[part], -back[part], 1e-12);
  }
}

TEST(SpeedupChange, OnePartChangesAlone) {
  const CaseCosts base{.times = {.draft = 1, .target = 8, .overhead = 1},
                       .steps = 10,
                       .tokens = 20,
                       .reference_ns = 30,
                       .reference_tokens = 20};
  const auto expect_only = [&](const CaseCosts& fresh, ChangePart part, double log_ratio) {
    const auto parts = change_parts(base, fresh);
    for (std::size_t i = 0; i < parts.size(); ++i)
      EXPECT_NEAR(parts[i], i == static_cast<std::size_t>(part) ? log_ratio : 0, 1e-12)
          << to_string(part) << ": " << to_string(kChangeParts[i]);
  };
  CaseCosts fresh = base;
  fresh.reference_ns = 27;
  expect_only(fresh, ChangePart::reference, std::log(.9));
  fresh = base;
  fresh.steps *= 2;  // as many tokens in twice as many steps, each as long as before
  fresh.times.draft *= 2, fresh.times.target *= 2, fresh.times.overhead *= 2;
  expect_only(fresh, ChangePart::acceptance, std::log(.5));
  for (const auto& [part, member] : {std::pair(ChangePart::draft, &PartTimes::draft),
                                     std::pair(ChangePart::verification, &PartTimes::target),
                                     std::pair(ChangePart::overhead, &PartTimes::overhead)}) {
    fresh = base;
    fresh.times.*member += 1;
    expect_only(fresh, part, -std::log(1.1));
  }
}

TEST(SpeedupChange, APartThatStartsAtZeroIsNoSpecialCase) {
  CaseCosts base{.times = {.draft = 0, .target = 10, .overhead = 0}, .steps = 5, .tokens = 5}, fresh = base;
  fresh.times.draft = 1;
  const auto parts = change_parts(base, fresh);
  EXPECT_NEAR(parts[static_cast<std::size_t>(ChangePart::draft)], -std::log(1.1), 1e-15);
  EXPECT_EQ(parts[static_cast<std::size_t>(ChangePart::overhead)], 0);
  EXPECT_EQ(parts[static_cast<std::size_t>(ChangePart::reference)], 0) << "without a reference";
  EXPECT_EQ(sum_of(change_parts(base, base)), 0);
  fresh.tokens = 0;
  EXPECT_TRUE(std::isnan(sum_of(change_parts(base, fresh))));
}

TEST(TypicalSteps, ADisturbanceOfOneRepeatLeavesNoTrace) {
  const ComparedRun calm = fixtures::made_run({{.repeats = {1, 1, 1}}});
  ComparedRun disturbed = fixtures::made_run({{.repeats = {1, 1, 1}}});
  auto lines = std::make_shared<PromptLines>(*disturbed.run.cases[0]->lines[1]);
  GenerationRecord& turn = (*lines)[0][2].turns[0];
  turn.steps[4].times[Phase::target] += 50'000'000;
  turn.decode_ns += 50'000'000;
  disturbed.run.cases[0]->lines[1] = lines;
  const Texts a = typical_texts(*calm.run.cases[0]), b = typical_texts(*disturbed.run.cases[0]);
  ASSERT_EQ(a.size(), 3u);
  for (const auto& [key, text] : a) EXPECT_EQ(text.times.total(), b.at(key).times.total()) << key.first;
  EXPECT_NEAR(a.at({"1", 1}).times.total(), 10e6, 1);
  EXPECT_EQ(a.at({"1", 1}).tokens, 6);
}

TEST(TypicalSteps, IfRepeatsDifferInTheirStepsTheMedianOneStandsForAll) {
  ComparedRun made = fixtures::made_run({{.repeats = {1, 1.2, 1.1}}});
  auto lines = std::make_shared<PromptLines>(*made.run.cases[0]->lines[0]);
  (*lines)[0][0].turns[0].steps[0].rows = 2;
  made.run.cases[0]->lines[0] = lines;
  EXPECT_NEAR(typical_texts(*made.run.cases[0]).at({"1", 1}).times.total(), 11e6, 1);
}

/// The verdict for a change with these ratios, each with an interval of one per cent to both sides, and noise
/// floors of 2 %.
TimeVerdict judged(double own, double speedup) {
  const auto value = [](double ratio) {
    return stats::Value{ratio, stats::Interval{.99 * ratio, 1.01 * ratio}};
  };
  SpeedupChange change;
  change.has_reference = true;
  change.own = value(own);
  change.whole = value(speedup);
  NoiseFloors floors;
  floors.times = floors.speedups = .02;
  return time_verdict(change, floors);
}

TEST(TimeVerdict, ACaseIsSlowerOnlyIfItsTimeAndItsSpeedupSaySo) {
  EXPECT_EQ(judged(.95, .95).verdict, "slower");
  EXPECT_TRUE(judged(.95, .95).suspect);
  EXPECT_EQ(judged(1.05, 1.05).verdict, "faster");
  EXPECT_EQ(judged(1, 1).verdict, "same");
  EXPECT_EQ(judged(1, 1).note, "");
  EXPECT_EQ(judged(1, .95).verdict, "same");
  EXPECT_EQ(judged(1, .95).note, "its reference is faster");
  EXPECT_EQ(judged(1, 1.05).note, "its reference is slower");
  EXPECT_EQ(judged(.95, 1).verdict, "same");
  EXPECT_EQ(judged(.95, 1).note, "slower, and so is its reference");
  EXPECT_EQ(judged(1.05, 1).note, "faster, and so is its reference");
  EXPECT_EQ(judged(1.05, .95).verdict, "unclear: its reference is faster");
  EXPECT_EQ(judged(.95, 1.05).verdict, "unclear: its reference is slower");
}

TEST(TimeVerdict, AnUnclearCaseThatSeemsSlowerIsASuspect) {
  EXPECT_EQ(judged(.975, .95).verdict, "unclear: its reference is faster");
  EXPECT_TRUE(judged(.975, .95).suspect);
  EXPECT_EQ(judged(.975, .975).verdict, "unclear");
  EXPECT_TRUE(judged(.975, .975).suspect);
  EXPECT_FALSE(judged(.985, .985).suspect) << "the loss is within the noise";
  EXPECT_FALSE(judged(1.05, 1.05).suspect);
}

}  // namespace
}  // namespace speclab::speedup_change_test
