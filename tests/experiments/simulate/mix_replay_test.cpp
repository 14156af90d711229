// Mixes of drafters over traces made by hand, counted and priced by hand.
#include "experiments/simulate/replay/mix_replay.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "core/base/error.h"

namespace speclab::mix_replay_test {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

struct HandMadeDraft {
  int drafted, matching;
};

Trace hand_made_trace(const std::string& id, const std::vector<HandMadeDraft>& drafts) {
  auto data = std::make_shared<CaseData>(), reference = std::make_shared<CaseData>();
  reference->config = {{"id", "autoregressive"}};
  data->config = {{"id", id}, {"draft", nullptr}, {"options", json::object()}};
  data->reference = reference;
  Trace trace{.data = data, .texts = {}};
  for (const char* prompt : {"p", "q"}) {
    TracedText& text =
        trace.texts.emplace_back(TracedText{.prompt = prompt, .seed = 0, .turn = 0, .drafts = {}});
    for (const auto& [drafted, matching] : drafts) {
      TracedDraft draft{.confidence = std::vector<double>(static_cast<std::size_t>(drafted), .5)};
      draft.matching = matching;
      text.drafts.push_back(draft);
    }
  }
  return trace;
}

class MixReplay : public ::testing::Test {
 protected:
  MixReplay() {
    traces_.push_back(
        hand_made_trace("prompt_lookup/length=2", {{2, 2}, {0, 0}, {0, 0}, {2, 0}, {0, 0}, {0, 0}}));
    traces_.push_back(
        hand_made_trace("speculative_sampling/draft=d", {{3, 0}, {3, 0}, {3, 0}, {3, 3}, {2, 1}, {1, 0}}));
  }
  static json calibration() {
    const auto case_costs = [](double constant, double slope) {
      const json none = {{"constant", 0}, {"slope", 0}};
      return json{
          {"draft_ns", {{"constant", constant}, {"slope", slope}}}, {"accept_ns", none}, {"other_ns", 0}};
    };
    return {{"t_n_ns", {{"1", 10}, {"4", 13}}},
            {"cases",
             {{"prompt_lookup/length=2", case_costs(1, 0)},
              {"speculative_sampling/draft=d", case_costs(.5, 2)},
              {"autoregressive", case_costs(0, 0)}}}};
  }
  std::string refusal(const std::string& text) const {
    try {
      parse_mix(text, traces_);
    } catch (const Error& error) {
      return error.what();
    }
    return "accepted";
  }

  std::vector<Trace> traces_;
};

TEST_F(MixReplay, TheFirstDrafterThatFindsAnythingDrafts) {
  const Mix mix = parse_mix("lookup+draft=d:1", traces_);
  ASSERT_EQ(mix.parts.size(), 2u);
  EXPECT_EQ(mix.parts[0].gamma, 2) << "the longest draft of its trace";
  EXPECT_EQ(mix.parts[1].gamma, 1);
  // Copies from 0: both of 2 accepted, to 3. Copies from 3: none of 2 accepted, to 4. Nothing to copy at 4:
  // the model drafts 1, which is accepted, to the end.
  const MixReplayed counts = replay_mix(traces_, mix, std::vector<std::size_t>{0});
  EXPECT_EQ(counts.by_part[0].steps, 2);
  EXPECT_EQ(counts.by_part[0].tokens, 4);
  EXPECT_EQ(counts.by_part[0].drafted, 4);
  EXPECT_EQ(counts.by_part[0].accepted, 2);
  EXPECT_EQ(counts.by_part[1].steps, 1);
  EXPECT_EQ(counts.by_part[1].tokens, 2);
  EXPECT_EQ(counts.asked, (std::vector<double>{1, 0}));
  EXPECT_DOUBLE_EQ(counts.all().tau(), 2);
}

TEST_F(MixReplay, AStepInWhichNobodyFindsAnythingBelongsToTheLastDrafter) {
  const std::vector<Trace> traces = {hand_made_trace("one", {{0, 0}, {1, 0}}),
                                     hand_made_trace("two", {{0, 0}, {1, 0}})};
  const Mix mix{.name = "m", .parts = {{0, 1}, {1, 1}}};
  const MixReplayed counts = replay_mix(traces, mix, std::vector<std::size_t>{0});
  EXPECT_EQ(counts.by_part[1].lengths, (theory::DraftLengths{1}));
  EXPECT_EQ(counts.by_part[0].lengths, (theory::DraftLengths{0, 1}));
  EXPECT_EQ(counts.asked, (std::vector<double>{1, 0}));
}

TEST_F(MixReplay, AStepCostsItsDrafterAndThoseThatFoundNothing) {
  const std::vector<Mix> mixes = {parse_mix("lookup:2+draft=d:1", traces_)};
  const json out = replayed_mixes(traces_, calibration(), mixes);
  ASSERT_EQ(out.size(), 1u);
  const json& row = out[0];
  EXPECT_EQ(row["certainty"], "exact");
  EXPECT_DOUBLE_EQ(row["tau"], 2);
  // Two steps of copies take 1 + t(3) = 13, the step of the model .5 + 2 + t(2) = 13.5 and 1 for the lookup.
  EXPECT_DOUBLE_EQ(row["speedup"], 6 * 10 / 40.5);
  EXPECT_DOUBLE_EQ(row["ms_per_token"], 1e-6 * 40.5 / 6);
  EXPECT_DOUBLE_EQ(row["speedup_ci95"][0], 6 * 10 / 40.5) << "both texts are the same";
  EXPECT_DOUBLE_EQ(row["parts"][0]["steps"], 2. / 3);
  EXPECT_DOUBLE_EQ(row["draft_utilization"], 3. / 5);
  EXPECT_THAT(replayed_mixes_text(out), HasSubstr("lookup:2+draft=d:1"));
  const json free = replayed_mixes(traces_, nullptr, mixes);
  EXPECT_DOUBLE_EQ(free[0]["tau"], 2);
  EXPECT_TRUE(free[0]["speedup"].is_null());
}

TEST_F(MixReplay, WhatIsNoMixIsRefused) {
  EXPECT_THAT(refusal("lookup"), HasSubstr("two or more drafters"));
  EXPECT_THAT(refusal("lookup+jacobi"), HasSubstr("got \"jacobi\""));
  EXPECT_THAT(refusal("lookup+"), HasSubstr("the id of one trace"));
  EXPECT_THAT(refusal("lookup+p"), HasSubstr("a part of prompt_lookup/length=2 and speculative"));
  EXPECT_THAT(refusal("lookup:3+draft=d"), HasSubstr("from 1 to 2"));
  EXPECT_THAT(refusal("lookup:0+draft=d"), HasSubstr("from 1 to 2"));
  EXPECT_THAT(refusal("lookup:x+draft=d"), HasSubstr("from 1 to 2"));
  EXPECT_THAT(refusal("lookup:99999+draft=d"), HasSubstr("from 1 to 2"));
  traces_[1].certainty = Certainty::expectation;
  EXPECT_THAT(refusal("lookup+draft=d"), HasSubstr("different texts"));
  traces_[1].certainty = Certainty::exact;
  traces_[1].texts.pop_back();
  EXPECT_THAT(refusal("lookup+draft=d"), HasSubstr("different texts"));
}

}  // namespace
}  // namespace speclab::mix_replay_test
