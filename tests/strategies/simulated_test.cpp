#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/error.h"
#include "tests/decoding/loop/loop_fixture.h"

namespace speclab {
namespace {

using namespace speclab::fixtures;

class Simulated : public ::testing::Test {
 protected:
  ModelPtr target = tiny_target(3);
  Decode decode{.target = target, .options = {{"max_tokens", 240}}};
  void SetUp() override {
    plain = decode.run();
    decode.reference = plain.tokens;
  }
  GenerationRecord run(const json& options) {
    decode.strategy = choose("simulated", options);
    GenerationRecord record = decode.run();
    EXPECT_EQ(record.tokens, plain.tokens);
    EXPECT_EQ(record.row_hashes, plain.row_hashes);
    return record;
  }
  GenerationRecord plain;
};

TEST_F(Simulated, CertainSuccessAndCertainFailure) {
  for (const StepRecord& step : run({{"alpha", 1}, {"gamma", 5}}).steps)
    EXPECT_EQ(step.accepted, static_cast<int>(step.drafted.size()));
  EXPECT_EQ(total(run({{"alpha", 0}, {"gamma", 5}}), &StepRecord::accepted), 0);
}

TEST_F(Simulated, AcceptanceIsAlpha) {
  int accepted = 0, rejected = 0;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    decode.coins = Coins(seed, 0);
    const GenerationRecord record = run({{"alpha", .6}, {"gamma", 4}});
    accepted += total(record, &StepRecord::accepted);
    for (const StepRecord& step : record.steps) rejected += step.ended_by == EndedBy::rejection ? 1 : 0;
  }
  // About 3,800 tests: a standard deviation of .008.
  EXPECT_NEAR(accepted / static_cast<double>(accepted + rejected), .6, .032);
}

TEST_F(Simulated, AlphaByPosition) {
  for (const StepRecord& step : run({{"alpha_at", {1, 1, 0}}, {"gamma", 5}}).steps) {
    EXPECT_EQ(step.accepted, std::min(2, static_cast<int>(step.drafted.size())));
  }
}

TEST_F(Simulated, ATraceIsPlayedBack) {
  const GenerationRecord record = run({{"trace", {3, 0, 2}}, {"gamma", 3}});
  ASSERT_GT(record.steps.size(), 10u);
  for (std::size_t i = 0; i + 3 < record.steps.size(); ++i)
    EXPECT_EQ(record.steps[i].accepted, (std::vector<int>{3, 0, 2}[i % 3])) << i;
}

TEST_F(Simulated, ATraceStartsAgainWithEachPrompt) {
  DecodeLoop loop(target, nullptr, choose("simulated", {{"trace", {3, 0, 2}}, {"gamma", 3}}),
                  {.capacity = 256});
  decode.options["max_tokens"] = 11;  // three complete steps, then the trace starts again
  const Request request = decode.request();
  for (int repeat = 0; repeat < 3; ++repeat) {
    const GenerationRecord record = loop.run(request);
    EXPECT_EQ(record.steps[0].accepted, 3);
    EXPECT_EQ(record.steps[1].accepted, 0);
    EXPECT_EQ(record.steps.size(), 4u);
  }
}

TEST_F(Simulated, ADraftModelRunsForItsCostAlone) {
  const GenerationRecord alone = run({{"alpha", .6}, {"gamma", 4}});
  EXPECT_EQ(alone.draft.calls, 0);
  decode.draft = Model::with_layers(target, {0});
  const GenerationRecord with_draft = run({{"alpha", .6}, {"gamma", 4}});
  EXPECT_EQ(with_draft.draft.calls, drafted(with_draft));
  ASSERT_EQ(with_draft.steps.size(), alone.steps.size());
  int full = 0;
  for (std::size_t i = 0; i < alone.steps.size(); ++i) {
    EXPECT_EQ(with_draft.steps[i].accepted, alone.steps[i].accepted);
    EXPECT_EQ(with_draft.steps[i].source, alone.steps[i].source);
    const StepRecord& step = with_draft.steps[i];
    full += i + 1 < alone.steps.size() && step.accepted == static_cast<int>(step.drafted.size()) &&
                    !with_draft.steps[i + 1].drafted.empty()
                ? 1
                : 0;
  }
  EXPECT_EQ(with_draft.draft.rows,
            drafted(with_draft) + full);  // the draft model is fed the proposed tokens, so its cache is right
}

TEST_F(Simulated, NeedsAReference) {
  decode.reference.clear();
  decode.strategy = choose("simulated");
  EXPECT_THROW(decode.run(), Error);
  decode.reference = plain.tokens;
  decode.strategy = choose("simulated", {{"alpha_at", {.5}}, {"trace", {1}}});
  EXPECT_THROW(decode.run(), Error);
}

}  // namespace
}  // namespace speclab
