// Acceptance by the entropy of the target's rows, for cases made by hand.
#include "experiments/analysis/acceptance_by_entropy.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "core/base/error.h"

namespace speclab::acceptance_by_entropy_test {
namespace {

using nlohmann::json;

StepRecord tested_step(const std::vector<bool>& accepted, int tested, int emitted) {
  StepRecord step;
  step.emitted = emitted;
  for (std::size_t i = 0; i < accepted.size(); ++i) {
    DraftedToken token;
    token.parent = static_cast<int>(i);
    token.tested = static_cast<int>(i) < tested;
    token.accepted = accepted[i];
    step.drafted.push_back(token);
  }
  return step;
}

std::shared_ptr<const PromptLines> one_line(const std::vector<float>& entropies,
                                            const std::vector<StepRecord>& steps) {
  LineRecord line;
  GenerationRecord turn;
  turn.tokens.resize(entropies.size());
  turn.row_entropies = entropies;
  turn.steps = steps;
  line.turns.push_back(turn);
  return std::make_shared<const PromptLines>(PromptLines{{line}});
}

/// Two prompts. Every row has an entropy of its own, so a row that is off by one falls into another bin.
CaseData entropy_case(int emit_at_most) {
  CaseData data;
  data.config = {{"id", "spec"}, {"draft", "d"}, {"options", {{"emit_at_most", emit_at_most}}}};
  data.prompts = {"p", "q"};
  data.categories = {"chat", "maths"};
  // The entropy of the token from prefill comes first. No drafted token is judged by that row.
  data.lines = {
      one_line({9, .1f, .6f, .2f, .3f}, {tested_step({true, false, false}, 2, 2), tested_step({true}, 1, 2)}),
      one_line({9, .7f, .8f}, {tested_step({false}, 1, 1), tested_step({}, 0, 1)})};
  return data;
}

TEST(AcceptanceByEntropy, EachTestedTokenHasTheEntropyOfItsRow) {
  const json out = acceptance_by_entropy(entropy_case(0), 4);
  EXPECT_EQ(out["tokens"], 4);
  // Samples: .1 accepted, .2 accepted (the second step begins at the third token), .6 and .7 rejected.
  EXPECT_NEAR(out["median"].get<double>(), .4, 1e-6);
  ASSERT_EQ(out["bins"].size(), 4u);
  const double expected[4][2] = {{.1, 1}, {.2, 1}, {.6, 0}, {.7, 0}};
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_NEAR(out["bins"][i]["entropy"].get<double>(), expected[i][0], 1e-6);
    EXPECT_EQ(out["bins"][i]["acceptance"], expected[i][1]);
    EXPECT_EQ(out["bins"][i]["tokens"], 1);
  }
  EXPECT_NEAR(out["bins"][1]["to"].get<double>(), .6, 1e-6);
  ASSERT_EQ(out["categories"].size(), 2u);
  const json &chat = out["categories"][0], &maths = out["categories"][1];
  EXPECT_EQ(chat["category"], "chat");
  EXPECT_EQ(chat["tokens"], 3);
  EXPECT_NEAR(chat["easy_share"].get<double>(), 2. / 3, 1e-12);
  EXPECT_EQ(chat["easy"], 1);
  EXPECT_EQ(chat["hard"], 0);
  EXPECT_TRUE(maths["easy"].is_null());
  EXPECT_EQ(maths["easy_share"], 0);
  EXPECT_EQ(chat["bins"][3]["tokens"], 0);
  EXPECT_TRUE(chat["bins"][3]["acceptance"].is_null());
  EXPECT_EQ(maths["bins"][3]["acceptance"], 0);
  EXPECT_NE(acceptance_by_entropy_text(out).find("Easy tokens"), std::string::npos);
}

TEST(AcceptanceByEntropy, APositionOfATraceCountsOnce) {
  CaseData data = entropy_case(1);
  // Each step emits one token, so the second step begins at the second token: its row has .6.
  data.lines[0] =
      one_line({9, .1f, .6f}, {tested_step({true, true}, 2, 1), tested_step({false, false}, 1, 1)});
  const json out = acceptance_by_entropy(data, 3);
  EXPECT_EQ(out["tokens"], 3) << ".1, .6 and .7";
  EXPECT_EQ(out["bins"][0]["acceptance"], 1);
  EXPECT_EQ(out["bins"][1]["acceptance"], 0);
}

TEST(AcceptanceByEntropy, EqualEntropiesStayInOneBin) {
  CaseData data = entropy_case(0);
  data.lines[0] = one_line({9, .5f, .5f, .5f}, {tested_step({true, true, false}, 3, 3)});
  const json out = acceptance_by_entropy(data, 4);
  ASSERT_EQ(out["bins"].size(), 2u) << ".5 three times, and .7";
  EXPECT_EQ(out["bins"][0]["tokens"], 3);
  EXPECT_NEAR(out["bins"][0]["acceptance"].get<double>(), 2. / 3, 1e-12);
}

TEST(AcceptanceByEntropy, TreesAndRecordsWithoutEntropiesHaveNone) {
  CaseData data = entropy_case(0);
  for (auto& lines : data.lines) {
    PromptLines copy = *lines;
    copy[0][0].turns[0].row_entropies.clear();
    lines = std::make_shared<const PromptLines>(copy);
  }
  EXPECT_TRUE(acceptance_by_entropy(data, 4).is_null());
  data = entropy_case(0);
  PromptLines copy = *data.lines[0];
  copy[0][0].turns[0].steps[0].drafted[1].parent = 0;
  data.lines[0] = std::make_shared<const PromptLines>(copy);
  EXPECT_TRUE(acceptance_by_entropy(data, 4).is_null());
  EXPECT_THROW(acceptance_by_entropy(entropy_case(0), 0), Error);
}

}  // namespace
}  // namespace speclab::acceptance_by_entropy_test
