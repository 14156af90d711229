// Faults in a running decode loop: a delay is in the phase where it was planted, texts stay the same, a
// replaced token loses acceptance and nothing else, and a comparison names the right part.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "experiments/analysis/compare/speedup_change.h"
#include "tests/base/error_text.h"
#include "tests/planted/plant.h"
#include "tests/strategies/on_target/own_cache.h"

namespace speclab::planted::planted_test {
namespace {

using namespace speclab::fixtures;
using ::testing::HasSubstr;

class PlantedLoop : public ::testing::Test {
 protected:
  ~PlantedLoop() override { set_plant({}); }

  /// Greedy decoding with this fault. `draft`: null for autoregressive decoding.
  GenerationRecord decode(const Plant& plant, const ModelPtr& draft, int tokens = 40) const {
    set_plant(plant);
    return Decode{
        .target = target,
        .draft = draft,
        .strategy = draft ? choose("speculative_sampling", {{"gamma", 3}}) : choose("autoregressive"),
        .options = {{"max_tokens", tokens}}}
        .run();
  }

  ModelPtr target = tiny_target();
  ModelPtr skip = Model::with_layers(target, {0});
  ModelPtr twin = Model::with_layers(target, {0, 1});  // the target itself: every token is accepted
};

std::int64_t time_in(const GenerationRecord& record, const std::vector<Phase>& phases) {
  std::int64_t ns = 0;
  for (const StepRecord& step : record.steps) {
    for (const Phase phase : phases) ns += step.times[phase];
  }
  return ns;
}

TEST_F(PlantedLoop, ADelayIsInItsPhaseAndChangesNothingElse) {
  const GenerationRecord plain = decode({}, skip);
  const std::pair<Fault, std::vector<Phase>> faults[] = {{Fault::draft, {Phase::draft}},
                                                         {Fault::verification, {Phase::target}},
                                                         {Fault::bookkeeping, {Phase::other}}};
  for (const auto& [fault, phases] : faults) {
    SCOPED_TRACE(to_string(fault));
    const Plant plant{fault, 2};
    const GenerationRecord record = decode(plant, skip);
    EXPECT_EQ(record.tokens, plain.tokens);
    EXPECT_EQ(record.row_hashes, plain.row_hashes);
    EXPECT_EQ(record.steps.size(), plain.steps.size());
    EXPECT_EQ(record.target.rows, plain.target.rows);
    EXPECT_EQ(record.draft.calls, plain.draft.calls);
    const Tally& counts = tally();
    const auto steps = static_cast<std::int64_t>(record.steps.size());
    EXPECT_EQ(counts.steps, steps);
    EXPECT_EQ(counts.replaced, 0);
    // Each step after the first waits for twice the time of the step before it; rounding loses half a
    // nanosecond.
    EXPECT_GE(counts.delay_ns, 2 * (counts.step_ns - counts.last_ns) - steps);
    EXPECT_GE(time_in(record, phases), counts.delay_ns);
    EXPECT_GE(record.decode_ns, counts.step_ns + counts.delay_ns);
  }
}

TEST_F(PlantedLoop, TheDelayIsAShareOfTheStepBefore) {
  EXPECT_EQ(delay_ns({Fault::draft, .03}, 1'000'000), 30'000);
  EXPECT_EQ(delay_ns({Fault::draft, 1.5}, 3), 5);
  EXPECT_EQ(delay_ns({Fault::draft, .03}, 0), 0);
  EXPECT_EQ(delay_ns({}, 1'000'000), 0);
}

TEST_F(PlantedLoop, AutoregressiveDecodingHasNoFault) {
  const GenerationRecord plain = decode({}, nullptr), slow = decode({Fault::verification, 50}, nullptr);
  EXPECT_EQ(tally().steps, 0);
  EXPECT_EQ(tally().delay_ns, 0);
  EXPECT_EQ(slow.tokens, plain.tokens);
}

TEST_F(PlantedLoop, AReplacedTokenIsRejectedAndTheTextStaysTheSame) {
  constexpr double kRate = .25;
  const GenerationRecord plain = decode({}, nullptr, 200),
                         record = decode({Fault::acceptance, kRate}, twin, 200);
  EXPECT_EQ(record.tokens, plain.tokens);
  EXPECT_EQ(record.row_hashes, plain.row_hashes);
  const Tally counts = tally();
  EXPECT_EQ(counts.drafted, drafted(record));
  EXPECT_EQ(counts.delay_ns, 0);
  int tested = 0, accepted = 0;
  for (const StepRecord& step : record.steps) {
    for (const DraftedToken& token : step.drafted) {
      tested += token.tested ? 1 : 0;
      accepted += token.accepted ? 1 : 0;
    }
  }
  // Without the fault everything is accepted. The bounds are four standard deviations for 100 tokens.
  ASSERT_GT(tested, 100);
  EXPECT_NEAR(static_cast<double>(accepted) / tested, 1 - kRate, .18);
  EXPECT_NEAR(static_cast<double>(counts.replaced) / static_cast<double>(counts.drafted), kRate, .18);
  EXPECT_GE(counts.replaced, tested - accepted);
}

std::vector<Token> drafted_ids(const GenerationRecord& record) {
  std::vector<Token> ids;
  for (const StepRecord& step : record.steps) {
    for (const DraftedToken& token : step.drafted) ids.push_back(token.id);
  }
  return ids;
}

TEST_F(PlantedLoop, RepeatsReplaceTheSameTokens) {
  const std::vector<Token> first = drafted_ids(decode({Fault::acceptance, .3, 1}, skip)),
                           again = drafted_ids(decode({Fault::acceptance, .3, 1}, skip)),
                           other = drafted_ids(decode({Fault::acceptance, .3, 2}, skip));
  EXPECT_EQ(first, again);
  EXPECT_NE(first, other);
}

// The tokens to replace are fixed, because the script of the enumeration makes all other random choices. For
// each choice of tokens the law of the text must be the target's.
TEST_F(PlantedLoop, ReplacedTokensLeaveTheLawOfSampledTextsAsItIs) {
  const ModelPtr small = deep_target(2, 3), draft = Model::with_layers(small, {0});
  const std::vector<Token> prompt{0, 2, 1};
  struct Drafts {
    const char* strategy;
    json options;
    int tokens;
  };
  std::int64_t drafted_tokens = 0, replaced_tokens = 0;
  for (const Drafts& one : {Drafts{"speculative_sampling", {{"gamma", 2}}, 4},
                            Drafts{"tree_speculation", {{"widths", {2, 1}}}, 3}}) {
    const auto expected = target_law(*small, prompt, one.tokens);
    for (std::uint64_t seed = 1; seed <= 4; ++seed) {
      SCOPED_TRACE(std::string(one.strategy) + ", seed " + std::to_string(seed));
      set_plant({Fault::acceptance, .5, seed});
      int accepted = 0;
      const auto law = emitted_law(
          {.target = small, .draft = draft, .strategy = choose(one.strategy, one.options), .prompt = prompt},
          one.tokens, "rejection", &accepted);
      EXPECT_LT(enumerate::total_variation(law, expected), 1e-12);
      drafted_tokens += tally().drafted;
      replaced_tokens += tally().replaced;
    }
  }
  EXPECT_GT(replaced_tokens, 0);
  EXPECT_GT(drafted_tokens, replaced_tokens);
}

/// The texts of a case as `speclab compare` sees them: four prompts, three repeats.
Texts texts_with(const Plant& plant, const ModelPtr& target, const ModelPtr& draft) {
  set_plant(plant);
  DecodeLoop loop(target, draft, choose("speculative_sampling", {{"gamma", 3}}), {.capacity = 64});
  CaseData data;
  for (Token prompt = 0; prompt < 4; ++prompt) {
    const Decode decode{.target = target, .options = {{"max_tokens", 33}}, .prompt = {1, prompt, 5}};
    std::vector<LineRecord> repeats;
    for (int repeat = 0; repeat < 3; ++repeat) {
      LineRecord line;
      line.prompt = std::to_string(prompt);
      line.seed = 1;
      line.repeat = repeat;
      line.turns.push_back(loop.run(decode.request()));
      repeats.push_back(std::move(line));
    }
    data.prompts.push_back(std::to_string(prompt));
    data.categories.emplace_back();
    data.lines.push_back(std::make_shared<PromptLines>(PromptLines{std::move(repeats)}));
  }
  return typical_texts(data);
}

// The delays are five steps long, so that the verdict does not depend on what else the machine does.
TEST_F(PlantedLoop, AComparisonNamesThePartOfTheFault) {
  const Texts base = texts_with({}, target, twin);
  for (const auto& [fault, part] :
       {std::pair(Fault::draft, ChangePart::draft), std::pair(Fault::verification, ChangePart::verification),
        std::pair(Fault::bookkeeping, ChangePart::overhead),
        std::pair(Fault::acceptance, ChangePart::acceptance)}) {
    SCOPED_TRACE(to_string(fault));
    const bool tokens = fault == Fault::acceptance;
    const Texts fresh = texts_with({fault, tokens ? .9 : 5}, target, twin);
    const auto change = speedup_change(base, fresh, nullptr, nullptr);
    ASSERT_TRUE(change);
    EXPECT_EQ(change->largest_loss(), part);
    const double acceptance = change->part(ChangePart::acceptance).value;
    if (tokens) {
      EXPECT_LT(acceptance, std::log(.5));
    } else {
      EXPECT_EQ(acceptance, 0);
    }
  }
}

TEST_F(PlantedLoop, WhatCannotBePlantedIsRefused) {
  const auto early_exit = [&](const Plant& plant) {
    set_plant(plant);
    return Decode{.target = target,
                  .strategy = choose("self_speculation", {{"draft_by", "early_exit"}, {"exit", 1}}),
                  .options = {{"max_tokens", 20}}}
        .run()
        .tokens;
  };
  EXPECT_THAT(message_of([&] { early_exit({Fault::acceptance, .1}); }),
              HasSubstr("self_speculation, which leaves rows in flight"));
  EXPECT_EQ(early_exit({Fault::draft, .1}), decode({}, nullptr, 20).tokens);
  const auto on_device = [&] {
    Decode{.target = target, .options = {{"max_tokens", 4}, {"device_loop", "on"}}}.run();
  };
  EXPECT_THAT(message_of(on_device), HasSubstr("only in steps that the host runs"));
}

TEST(PlantedFault, IsReadFromAWord) {
  const Plant plant = parse_plant("bookkeeping=0.03");
  EXPECT_EQ(plant.fault, Fault::bookkeeping);
  EXPECT_EQ(plant.amount, .03);
  EXPECT_EQ(parse_plant("acceptance=1").fault, Fault::acceptance);
  for (const char* bad : {"", "draft", "draft=", "draft=x", "draft=0", "draft=-1", "draft=101", "draft=nan",
                          "draft=inf", "draft=.03 ", "acceptance=1.5", "speed=0.1", "=0.1"}) {
    EXPECT_THAT(message_of([&] { parse_plant(bad); }),
                HasSubstr("--plant: got \"" + std::string(bad) + "\", expected draft=SHARE"))
        << bad;
  }
}

}  // namespace
}  // namespace speclab::planted::planted_test
