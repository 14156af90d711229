#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "tests/decoding/loop/loop_fixture.h"

namespace speclab::simulated_test {
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

/// Number of right tokens in each step that no limit made shorter, over several seeds.
std::vector<int> accepted_of_whole_steps(const std::vector<GenerationRecord>& records, std::size_t gamma) {
  std::vector<int> accepted;
  for (const GenerationRecord& record : records) {
    for (const StepRecord& step : record.steps) {
      if (step.drafted.size() == gamma) accepted.push_back(step.accepted);
    }
  }
  return accepted;
}

TEST_F(Simulated, MinimumVarianceHasTheMeanWithTwoLengths) {
  for (const auto& [options, mean] :
       std::vector<std::pair<json, double>>{{{{"mean_accepted", 2.36}}, 2.36},
                                            {{{"mean_accepted", 3}}, 3},
                                            {{{"mean_accepted", 0}}, 0},
                                            {{{"alpha", .8}}, .8 + .64 + .512 + .4096}}) {  // as iid has
    SCOPED_TRACE(options.dump());
    std::vector<GenerationRecord> records;
    json all = {{"law", "minimum_variance"}, {"gamma", 4}};
    all.update(options);
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
      decode.coins = Coins(seed, 0);
      records.push_back(run(all));
    }
    const std::vector<int> accepted = accepted_of_whole_steps(records, 4);
    const double low = std::floor(mean), part = mean - low;
    double sum = 0, squares = 0;
    for (const int n : accepted) {
      EXPECT_TRUE(n == static_cast<int>(low) || (part > 0 && n == static_cast<int>(low) + 1)) << n;
      sum += n;
      squares += n * n;
    }
    const auto count = static_cast<double>(accepted.size());
    ASSERT_GT(count, 900);
    const double error = 4.5 * std::sqrt(part * (1 - part) / count);
    EXPECT_NEAR(sum / count, mean, error + 1e-12);
    EXPECT_NEAR(squares / count - sum / count * (sum / count), part * (1 - part), error + 1e-12);
  }
}

TEST_F(Simulated, AHistogramHasItsShares) {
  const std::vector<double> shares = {2, 0, 3, 1, 4};
  std::vector<GenerationRecord> records;
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    decode.coins = Coins(seed, 0);
    records.push_back(run({{"law", "histogram"}, {"gamma", 4}, {"shares", shares}}));
  }
  const std::vector<int> accepted = accepted_of_whole_steps(records, 4);
  std::vector<double> found(shares.size());
  for (const int n : accepted) ++found[static_cast<std::size_t>(n)];
  const auto count = static_cast<double>(accepted.size());
  ASSERT_GT(count, 1500);
  for (std::size_t n = 0; n < shares.size(); ++n) {
    const double share = shares[n] / 10;
    EXPECT_NEAR(found[n] / count, share, 4.5 * std::sqrt(share * (1 - share) / count)) << n;
  }
  EXPECT_EQ(found[1], 0) << "a length without a share never occurs";
}

TEST_F(Simulated, SwitchingMakesNeighbouringStepsAlike) {
  // alpha 1 and 0: a step accepts everything or nothing, and stays so with probability .9.
  int same = 0, pairs = 0, easy = 0;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    decode.coins = Coins(seed, 0);
    const GenerationRecord record =
        run({{"law", "switching"}, {"alpha", 1}, {"hard_alpha", 0}, {"stay", .9}, {"gamma", 3}});
    const std::vector<int> accepted = accepted_of_whole_steps({record}, 3);
    for (std::size_t i = 0; i < accepted.size(); ++i) {
      EXPECT_TRUE(accepted[i] == 0 || accepted[i] == 3);
      if (i == 0) {
        easy += accepted[i] == 3 ? 1 : 0;
        continue;
      }
      ++pairs;
      same += accepted[i] == accepted[i - 1] ? 1 : 0;
    }
  }
  EXPECT_NEAR(same / static_cast<double>(pairs), .9, 4.5 * std::sqrt(.09 / pairs));
  EXPECT_GT(easy, 1) << "the first step is easy in about half of the texts";
  EXPECT_LT(easy, 19);
}

TEST_F(Simulated, ARandomEffectHoldsForAWholePrompt) {
  // With a correlation near 1, alpha is nearly 0 or nearly 1 for a whole text.
  int extreme = 0, high = 0;
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    decode.coins = Coins(seed, 0);
    const GenerationRecord record =
        run({{"law", "random_effect"}, {"alpha", .5}, {"correlation", .99}, {"gamma", 4}});
    int accepted = 0, drafted_tokens = 0;
    for (const StepRecord& step : record.steps) {
      accepted += step.accepted;
      drafted_tokens += static_cast<int>(step.drafted.size());
    }
    const double share = accepted / static_cast<double>(drafted_tokens);
    extreme += share < .05 || share > .95 ? 1 : 0;
    high += share > .5 ? 1 : 0;
  }
  EXPECT_GT(extreme, 34);
  EXPECT_GT(high, 6);
  EXPECT_LT(high, 34);
}

TEST_F(Simulated, OptionsOfAnotherLawAreRefused) {
  const std::pair<json, const char*> bad[] = {
      {{{"mean_accepted", 1}}, "mean_accepted"},
      {{{"law", "minimum_variance"}, {"mean_accepted", 5}, {"gamma", 4}}, "at most gamma"},
      {{{"shares", {1, 2}}}, "shares"},
      {{{"law", "histogram"}}, "shares"},
      {{{"law", "histogram"}, {"shares", {1, 1, 1}}, {"gamma", 1}}, "gamma + 1"},
      {{{"law", "histogram"}, {"shares", {0, 0}}}, "above 0"},
      {{{"law", "switching"}, {"alpha_at", {.5}}}, "alpha_at"},
      {{{"law", "minimum_variance"}, {"trace", {1}}}, "trace"}};
  for (const auto& [options, word] : bad) {
    decode.strategy = choose("simulated", options);
    try {
      decode.run();
      ADD_FAILURE() << options.dump() << " was accepted";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), ::testing::HasSubstr(word)) << options.dump();
    }
  }
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
}  // namespace speclab::simulated_test
