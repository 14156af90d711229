// Traces of texts that are sampled with independent coins. Some records are made by hand. On average over
// many seeds, a replay takes as many steps as real decoding.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>

#include "experiments/simulate/replay.h"
#include "experiments/simulate/replay/rank_trace.h"
#include "experiments/simulate/replay/tree_replay.h"
#include "experiments/simulate/trace.h"
#include "tests/decoding/loop/loop_fixture.h"

namespace speclab::sampled_trace_test {
namespace {

namespace tiny = speclab::fixtures;
using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// A run with one case, which is a trace of one text.
RunData sampled_run(const GenerationRecord& record, const json& changes = json::object()) {
  auto data = std::make_shared<CaseData>(), reference = std::make_shared<CaseData>();
  data->config = {{"id", "spec"},
                  {"strategy", "speculative_sampling"},
                  {"draft", "d"},
                  {"rule", "rejection"},
                  {"loss_class", "L1"}};
  data->config["options"] = {{"emit_at_most", 1}, {"temperature", .8}, {"coins", "independent"}};
  data->config.merge_patch(changes);
  data->reference = reference;
  LineRecord line;
  line.prompt = "p";
  line.turns = {record};
  data->prompts = {"p"};
  data->categories = {""};
  data->lines = {std::make_shared<const PromptLines>(PromptLines{{line}})};
  RunData run;
  run.config = json::object();
  run.cases = {data};
  return run;
}

/// A text with three drafted tokens at each position. `accepted`: whether the first of them was accepted
/// there. Token k at position i has the confidence i + k / 4.
GenerationRecord drawn_record(const std::vector<bool>& accepted, double q = .5) {
  GenerationRecord out;
  out.tokens.assign(accepted.size() + 1, 7);
  for (std::size_t i = 0; i < accepted.size(); ++i) {
    StepRecord& step = out.steps.emplace_back();
    step.emitted = 1;
    for (int k = 0; k < 3; ++k) {
      DraftedToken& token = step.drafted.emplace_back();
      token.id = 9;
      token.parent = k;
      token.confidence = static_cast<float>(i) + .25F * static_cast<float>(k + 1);
      token.q = q;
      token.tested = k == 0;
      token.accepted = k == 0 && accepted[i];
    }
  }
  return out;
}

TEST(SampledTrace, ADraftFollowsWhatWasDrawnAndJudgedAtEachPosition) {
  const std::vector<Trace> traces = read_traces(sampled_run(drawn_record({true, true, false, true, true})));
  ASSERT_EQ(traces.size(), 1u);
  EXPECT_EQ(traces[0].certainty, Certainty::expectation);
  const std::vector<TracedDraft>& drafts = traces[0].texts.at(0).drafts;
  ASSERT_EQ(drafts.size(), 5u);
  EXPECT_THAT(drafts[0].confidence, ElementsAre(.25, 1.25, 2.25));
  EXPECT_EQ(drafts[0].matching, 2) << "the token of position 2 was rejected";
  EXPECT_THAT(drafts[1].confidence, ElementsAre(1.25, 2.25, 2.5))
      << "what was drawn after the rejected token";
  EXPECT_EQ(drafts[1].matching, 1);
  EXPECT_THAT(drafts[2].confidence, ElementsAre(2.25, 2.5, 2.75));
  EXPECT_EQ(drafts[2].matching, 0);
  EXPECT_THAT(drafts[3].confidence, ElementsAre(3.25, 4.25, 4.5)) << "the text ends, the draft does not";
  EXPECT_EQ(drafts[3].matching, 2);
  EXPECT_EQ(drafts[4].matching, 1);
  // gamma 3: from 0 to 3, then to the end. gamma 1: from 0 to 2, to 3, to the end.
  const Replayed three = replay_one(traces[0].texts[0], {.gamma = 3, .schedule = {}}),
                 one = replay_one(traces[0].texts[0], {.gamma = 1, .schedule = {}});
  EXPECT_EQ(three.steps, 2);
  EXPECT_EQ(three.accepted, 4);
  EXPECT_EQ(one.steps, 3);
  EXPECT_EQ(one.accepted, 2);
}

TEST(SampledTrace, TheLargestProbabilitiesFollowTheirTokens) {
  GenerationRecord record = drawn_record({true, false});
  for (StepRecord& step : record.steps) {
    step.top_width = 2;
    for (const DraftedToken& token : step.drafted) {
      step.top.push_back(token.confidence);
      step.top.push_back(.125F);
    }
  }
  const std::vector<Trace> traces = read_traces(sampled_run(record));
  ASSERT_EQ(traces.size(), 1u);
  const TracedDraft& draft = traces[0].texts.at(0).drafts.at(0);
  EXPECT_THAT(draft.confidence, ElementsAre(.25, 1.25, 1.5));
  EXPECT_THAT(draft.top_of(0), ElementsAre(.25F, .125F));
  EXPECT_THAT(draft.top_of(1), ElementsAre(1.25F, .125F)) << "of the token that was judged at position 1";
  EXPECT_THAT(draft.top_of(2), ElementsAre(1.5F, .125F));
}

TEST(SampledTrace, UnderGumbelCoinsTheTextDecides) {
  const json coupled = {{"rule", "coupled"}, {"options", {{"coins", "gumbel"}}}};
  const std::vector<Trace> traces = read_traces(sampled_run(drawn_record({true, false}), coupled));
  ASSERT_EQ(traces.size(), 1u);
  EXPECT_EQ(traces[0].certainty, Certainty::exact);
  EXPECT_EQ(traces[0].texts[0].drafts[0].matching, 0) << "token 9 is not in the text";
}

TEST(SampledTrace, CopiesAreAcceptedWhereTheTextHasThem) {
  GenerationRecord record = drawn_record({false, false, false}, 1);
  record.tokens = {5, 9, 9, 6};
  const json copies = {{"strategy", "prompt_lookup"}, {"draft", nullptr}};
  const std::vector<Trace> traces = read_traces(sampled_run(record, copies));
  ASSERT_EQ(traces.size(), 1u);
  EXPECT_EQ(traces[0].certainty, Certainty::expectation);
  EXPECT_EQ(traces[0].texts[0].drafts[0].matching, 2);
  EXPECT_EQ(traces[0].texts[0].drafts[1].matching, 1);
  EXPECT_EQ(traces[0].texts[0].drafts[2].matching, 0);
}

TEST(SampledTrace, WhatNoReplayTellsHasAReason) {
  const auto reason = [](const json& changes, double q = .5) {
    return why_not_replayed(*sampled_run(drawn_record({true}, q), changes).cases[0]);
  };
  EXPECT_EQ(reason(json::object()), "");
  EXPECT_EQ(reason({{"rule", "iterative"}}), "");
  EXPECT_THAT(reason({{"rule", "block"}}), HasSubstr("\"block\" does not judge a draft token by token"));
  EXPECT_THAT(reason({{"rule", "unheard of"}}), HasSubstr("does not know"));
  EXPECT_THAT(reason({{"strategy", "jacobi"}}), HasSubstr("--fitted"));
  EXPECT_THAT(reason({{"strategy", "jacobi"}, {"loss_class", "L2"}}), HasSubstr("earlier steps"));
  EXPECT_THAT(reason({{"strategy", "ngram_model"}}), HasSubstr("not by a draft model alone"));
  EXPECT_EQ(reason({{"strategy", "prompt_lookup"}}, 1), "");
  EXPECT_EQ(reason({{"strategy", "prompt_lookup"}, {"rule", "k_seq"}}, 1), "");
  EXPECT_THAT(reason({{"strategy", "prompt_lookup"}, {"rule", "non_iterative"}}, 1),
              HasSubstr("did not accept"));
  EXPECT_TRUE(read_traces(sampled_run(drawn_record({true}), {{"rule", "block"}})).empty());
}

/// The mean over seeds and its standard error.
struct MeanOf {
  double mean = 0, error = 0;
  explicit MeanOf(const std::vector<double>& values) {
    const auto count = static_cast<double>(values.size());
    double squares = 0;
    for (const double value : values) mean += value / count;
    for (const double value : values) squares += (value - mean) * (value - mean);
    error = std::sqrt(squares / (count - 1) / count);
  }
};

void expect_equal_means(const std::vector<double>& replayed, const std::vector<double>& real,
                        const std::string& what) {
  const MeanOf one(replayed), other(real);
  EXPECT_NEAR(one.mean, other.mean, 5 * std::hypot(one.error, other.error) + 1e-9) << what;
}

class SampledReplay : public ::testing::Test {
 protected:
  static constexpr int kSeeds = 60;

  SampledReplay() {
    decode_.target = tiny::tiny_target();
    decode_.draft = Model::with_layers(decode_.target, {0});
    decode_.options = {{"max_tokens", 41}, {"temperature", .8}};
  }
  GenerationRecord record(const json& options, int seed, int emit_at_most,
                          const std::string& strategy = "speculative_sampling") const {
    tiny::Decode decode = decode_;
    decode.strategy = tiny::choose(strategy, options);
    decode.options["emit_at_most"] = emit_at_most;
    decode.coins = Coins(static_cast<std::uint64_t>(seed), 3);
    return decode.run();
  }

  tiny::Decode decode_;
};

TEST_F(SampledReplay, TakesAsManyStepsAsRealDecodingOnAverage) {
  std::vector<TracedText> texts;
  for (int seed = 0; seed < kSeeds; ++seed) {
    const std::vector<Trace> traces = read_traces(sampled_run(record({{"gamma", 5}}, 1000 + seed, 1)));
    ASSERT_EQ(traces.size(), 1u);
    texts.push_back(traces[0].texts[0]);
  }
  const std::vector<json> settings = {
      {{"gamma", 1}},
      {{"gamma", 4}},
      {{"gamma", 5}, {"schedule", "confidence"}, {"confidence_threshold", .05}},
      {{"gamma", 2}, {"schedule", "heuristic"}, {"gamma_max", 5}}};
  for (const json& options : settings) {
    json schedule = options;
    schedule.erase("gamma");
    ReplaySetting setting{.gamma = options["gamma"], .schedule = {}};
    parse_options(option_fields(setting.schedule), schedule, "test");
    std::vector<double> replayed_steps, replayed_drafted, steps, drafted;
    for (int seed = 0; seed < kSeeds; ++seed) {
      const Replayed counts = replay_one(texts[static_cast<std::size_t>(seed)], setting);
      replayed_steps.push_back(counts.steps);
      replayed_drafted.push_back(counts.drafted);
      const GenerationRecord real = record(options, seed, 0);
      steps.push_back(static_cast<double>(real.steps.size()));
      drafted.push_back(tiny::drafted(real));
    }
    EXPECT_LT(MeanOf(steps).mean, 39) << "some drafted tokens must be accepted: " << options;
    expect_equal_means(replayed_steps, steps, "steps of " + options.dump());
    expect_equal_means(replayed_drafted, drafted, "drafted tokens of " + options.dump());
  }
}

TEST_F(SampledReplay, TreesOfBestTokensTakeAsManyStepsOnAverage) {
  const json widths = {{"widths", {3, 2}}, {"children", "best"}};
  const TreesByConfidence trees = TreeShape::of_widths(std::vector<int>{3, 2}, "test");
  std::vector<double> replayed_steps, steps;
  for (int seed = 0; seed < kSeeds; ++seed) {
    const GenerationRecord traced =
        record({{"widths", {3}}, {"children", "best"}}, 1000 + seed, 1, "tree_speculation");
    const json config = {{"strategy", "tree_speculation"},
                         {"options", {{"children", "best"}, {"max_tokens", 41}, {"budget", "fixed"}}}};
    const std::vector<RankTrace> traces = read_rank_traces(sampled_run(traced, config));
    ASSERT_EQ(traces.size(), 1u);
    EXPECT_EQ(traces[0].certainty, Certainty::expectation);
    replayed_steps.push_back(replay_trees(traces[0], std::vector<std::size_t>{0}, trees).steps);
    steps.push_back(static_cast<double>(record(widths, seed, 0, "tree_speculation").steps.size()));
  }
  EXPECT_LT(MeanOf(steps).mean, 40) << "some children must be accepted";
  expect_equal_means(replayed_steps, steps, "steps");
}

}  // namespace
}  // namespace speclab::sampled_trace_test
