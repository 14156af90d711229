// Laws fitted to cases made by hand: from the law itself, and from steps that were counted by hand.
#include "experiments/simulate/replay/laws/fitted_law.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "core/base/error.h"
#include "core/base/options_json.h"
#include "core/decoding/registry.h"
#include "core/theory/lookahead.h"
#include "experiments/simulate/replay/laws/law_table.h"

namespace speclab::fitted_laws_test {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

constexpr theory::LookaheadLaw kTrueLaw{.alpha = .4, .f = 2.5};
constexpr int kStepsOfCase = 1000;

std::shared_ptr<CaseData> empty_case(const std::string& strategy, const json& options) {
  auto data = std::make_shared<CaseData>(), reference = std::make_shared<CaseData>();
  reference->config = {{"id", "autoregressive"}};
  data->config = {{"id", strategy + options.dump()},
                  {"strategy", strategy},
                  {"rule", "rejection"},
                  {"verify", "one_pass"},
                  {"options", options}};
  data->config["draft"] = nullptr;
  data->environment = json::object();
  data->reference = reference;
  return data;
}

void add_prompt(CaseData& data, GenerationRecord turn) {
  LineRecord line;
  line.prompt = std::to_string(data.prompts.size());
  line.turns.push_back(std::move(turn));
  data.prompts.push_back(line.prompt);
  data.categories.emplace_back("a");
  data.lines.push_back(std::make_shared<const PromptLines>(PromptLines{{line}}));
}

/// A case with this tau, whose steps have `rows` rows. There are two equal prompts.
std::shared_ptr<CaseData> case_with_tau(const std::string& strategy, const json& options, double tau,
                                        int rows) {
  auto data = empty_case(strategy, options);
  GenerationRecord turn;
  const int tokens = static_cast<int>(std::lround(kStepsOfCase * tau));
  turn.tokens.assign(static_cast<std::size_t>(tokens) + 1, 5);
  for (int i = 0; i < kStepsOfCase; ++i) {
    StepRecord& step = turn.steps.emplace_back();
    step.rows = rows;
    step.drafted.resize(static_cast<std::size_t>(rows) - 1);
    step.emitted = tokens * (i + 1) / kStepsOfCase - tokens * i / kStepsOfCase;
  }
  add_prompt(*data, turn);
  add_prompt(*data, turn);
  return data;
}

TEST(FittedLaws, LookaheadDecodingFollowsItsLaw) {
  std::vector<std::shared_ptr<CaseData>> cases;
  for (const int w : {1, 3, 8, 15}) {
    for (const int n : {3, 5}) {
      const json options = {{"W", w}, {"N", n}, {"G", w}, {"temperature", 0}};
      cases.push_back(case_with_tau("lookahead", options, kTrueLaw.compression({w, n, w}), w * (n - 1)));
    }
  }
  cases.push_back(case_with_tau("lookahead", {{"W", 3}, {"N", 3}, {"G", 3}, {"temperature", 1}}, 1.9, 12));
  const std::vector<FittedLaw> laws = fitted_laws(cases, nullptr);
  ASSERT_EQ(laws.size(), 1u) << "one case alone makes no law";
  const FittedLaw& law = laws[0];
  EXPECT_EQ(law.cells.size(), 8u);
  EXPECT_NEAR(law.law.parameters["alpha"].get<double>(), kTrueLaw.alpha, .01);
  EXPECT_NEAR(law.law.parameters["f"].get<double>(), kTrueLaw.f, .05);
  EXPECT_DOUBLE_EQ(law.row_share, .5) << "w (n - 1) of 2 w (n - 1) rows";
  ASSERT_TRUE(law.other_prompts && law.other_settings);
  EXPECT_EQ(law.other_prompts->predictions, 16);
  EXPECT_LT(law.other_prompts->median, .01);
  EXPECT_EQ(law.other_settings->predictions, 8);
  EXPECT_LT(law.other_settings->median, .02);
  const json options = law.options_with({{"W", 5}, {"N", 4}, {"G", 5}});
  const LawStep step = law.predict(options);
  EXPECT_NEAR(step.tau, kTrueLaw.compression({5, 4, 5}), .02);
  EXPECT_DOUBLE_EQ(step.rows, .5 * 10 * 3);
  EXPECT_FALSE(law.step_ns(step, std::nullopt).has_value()) << "no calibration";
  EXPECT_TRUE(law.about(*case_with_tau(
      "lookahead", {{"W", 7}, {"N", 5}, {"G", 7}, {"temperature", 0}, {"max_tokens", 9}}, 2, 3)));
  EXPECT_FALSE(law.about(*cases.back())) << "another temperature";
  EXPECT_FALSE(law.about(*case_with_tau("jacobi", {{"block", 4}}, 2, 3)));
}

TEST(FittedLaws, ABlockOfJacobiDecodingIsOneGuess) {
  std::vector<std::shared_ptr<CaseData>> cases;
  for (const int block : {2, 4, 8, 16})
    cases.push_back(case_with_tau("jacobi", {{"scheme", "blocks"}, {"block", block}},
                                  kTrueLaw.compression({1, block, 1}), block));
  const std::vector<FittedLaw> laws = fitted_laws(cases, nullptr);
  ASSERT_EQ(laws.size(), 1u);
  EXPECT_DOUBLE_EQ(laws[0].row_share, 1);
  // E = (1 - alpha^6) / (1 - alpha) with alpha = .4, and one step in f = 2.5 has a good guess.
  const double expected = (2.5 - 1 + (1 - std::pow(.4, 6)) / .6) / 2.5;
  EXPECT_NEAR(laws[0].predict(laws[0].options_with({{"block", 6}})).tau, expected, .01);
}

/// A text of token recycling with the tree {2, 1}: nodes 1 and 2 below the pending token, node 3 below
/// node 1. `accepted`: the accepted nodes of each step; -1: nothing was known.
GenerationRecord recycled_text(const std::vector<std::vector<int>>& accepted) {
  GenerationRecord turn;
  int tokens = 1;
  for (const std::vector<int>& path : accepted) {
    StepRecord& step = turn.steps.emplace_back();
    const bool unknown = path == std::vector<int>{-1};
    step.emitted = unknown ? 1 : static_cast<int>(path.size()) + 1;
    step.accepted = step.emitted - 1;
    tokens += step.emitted;
    for (const int parent : {0, 0, 1}) {
      if (unknown) break;
      DraftedToken& token = step.drafted.emplace_back();
      token.parent = parent;
    }
    for (const int node : path) {
      if (node > 0) step.drafted[static_cast<std::size_t>(node) - 1].accepted = true;
    }
    step.rows = static_cast<int>(step.drafted.size()) + 1;
  }
  turn.tokens.assign(static_cast<std::size_t>(tokens), 5);
  return turn;
}

class RecyclingLaw : public ::testing::Test {
 protected:
  RecyclingLaw() {
    auto data = empty_case("token_recycling", {{"k", 8}, {"tree", {2, 1}}});
    // Tokens: 3, 2, 1, 1 and 3. The last step begins with 3 tokens left and does not count.
    add_prompt(*data, recycled_text({{1, 3}, {2}, {}, {-1}, {1, 3}}));
    cases_ = {data};
  }
  json calibration() const {
    const auto linear = [](double constant, double slope) {
      return json{{"constant", constant}, {"slope", slope}};
    };
    json out = {{"t_n_ns", {{"1", 10}, {"4", 13}}}, {"cases", json::object()}};
    out["cases"][cases_[0]->id()] = {
        {"draft_ns", linear(1, .5)}, {"accept_ns", linear(.2, .1)}, {"other_ns", .3}};
    out["cases"]["autoregressive"] = {
        {"draft_ns", linear(0, 0)}, {"accept_ns", linear(0, 0)}, {"other_ns", 0}};
    return out;
  }
  std::vector<std::shared_ptr<CaseData>> cases_;
};

TEST_F(RecyclingLaw, CandidatesAreCountedAlongTheAcceptedPath) {
  const std::vector<FittedLaw> laws = fitted_laws(cases_, calibration());
  ASSERT_EQ(laws.size(), 1u);
  const FittedLaw& law = laws[0];
  // Rank 1 was there in the steps 1 to 4 and below node 1 in step 1, and right twice. Rank 2 was there four
  // times and right once. No depth has 50 nodes, so both depths have the p of all depths.
  const json p = law.law.parameters["p"];
  ASSERT_EQ(p.size(), 2u);
  for (const json& depth : p) {
    EXPECT_DOUBLE_EQ(depth.at(0), .4);
    EXPECT_DOUBLE_EQ(depth.at(1), .25);
  }
  const auto tau = [&](const json& tree) { return law.predict(law.options_with({{"tree", tree}})).tau; };
  EXPECT_DOUBLE_EQ(tau({2, 1}), 1 + .4 + .25 + .4 * .4);
  EXPECT_DOUBLE_EQ(tau({1, 1}), 1 + .4 + .4 * .4);
  EXPECT_DOUBLE_EQ(tau({3, 0}), 1 + .4 + .25) << "no tree had a third candidate";
  EXPECT_DOUBLE_EQ(law.cells[0].tau, 10. / 5);
  EXPECT_FALSE(law.other_prompts.has_value()) << "there is one prompt";
  EXPECT_FALSE(law.other_settings.has_value()) << "there is one tree";
}

TEST_F(RecyclingLaw, AStepIsPricedByTheSharesAndCostsOfTheCells) {
  const std::vector<FittedLaw> laws = fitted_laws(cases_, calibration());
  const FittedLaw& law = laws.at(0);
  // Rows: 4, 4, 4, 1, 4 of a tree with 4 nodes. Drafted tokens: 3, 3, 3, 0, 3 of 3.
  EXPECT_DOUBLE_EQ(law.row_share, 3.4 / 4);
  EXPECT_DOUBLE_EQ(law.drafted_share, 2.4 / 3);
  const LawStep step = law.predict(law.options_with({{"tree", {1, 1}}}));
  EXPECT_DOUBLE_EQ(step.rows, 2.55);
  EXPECT_DOUBLE_EQ(step.drafted, 1.6);
  // 1 + .5 * 1.6 for drafting, t(2.55) = 11.55, .2 + .1 * 1.56 for the rule, .3 for the rest.
  EXPECT_NEAR(law.step_ns(step, std::nullopt).value(), 14.006, 1e-9);
  const json table = law_table(laws, {json{{"tree", {1, 1}}}});
  ASSERT_EQ(table.size(), 1u);
  EXPECT_EQ(table[0]["strategy"], "token_recycling");
  EXPECT_EQ(table[0]["certainty"], "fitted");
  ASSERT_EQ(table[0]["settings"].size(), 2u);
  const json &measured = table[0]["settings"][0], &asked = table[0]["settings"][1];
  EXPECT_EQ(measured["case"], cases_[0]->id());
  EXPECT_DOUBLE_EQ(measured["measured_tau"], 2);
  EXPECT_TRUE(asked["case"].is_null());
  EXPECT_NEAR(asked["speedup"].get<double>(), 1.56 * 10 / 14.006, 1e-9);
  EXPECT_THAT(law_table_text(table), HasSubstr("tree=[1,1]"));
}

TEST_F(RecyclingLaw, SettingsOfNoLawAreRefused) {
  const std::vector<FittedLaw> laws = fitted_laws(cases_, nullptr);
  EXPECT_THROW(law_table(laws, {json{{"block", 4}}}), Error);
  const FittedLaw& law = laws.at(0);
  EXPECT_THROW(law.options_with({{"tree", 4}}), Error) << "no list";
  EXPECT_THROW(law.options_with({{"tree", json::array()}}), Error) << "nothing is drafted";
  EXPECT_THROW(law.options_with({{"tree", {2, 1}}, {"k", 3}}), Error) << "k is no setting";
  EXPECT_THROW(law.options_with(nullptr), Error);
  EXPECT_THROW(law.options_with({{"tree", std::vector<int>(9, 64)}}), Error) << "too many nodes";
}

TEST(FittedLaws, EachLawIsAboutTheOptionsOfAStrategy) {
  for (const LawKind* kind : law_kinds()) {
    int strategies_of_law = 0;
    for (const StrategyEntry& entry : strategies()) {
      if (entry.info.law != kind->id) continue;
      ++strategies_of_law;
      StrategyChoice choice(entry);
      const json options = echo_options(choice.fields());
      for (const std::string_view name : kind->setting)
        EXPECT_TRUE(options.contains(std::string(name))) << entry.info.name << " " << name;
    }
    EXPECT_EQ(strategies_of_law, 1) << kind->law;
  }
}

TEST(FittedLaws, CasesThatNoLawIsAboutAreLeftOut) {
  const auto count = [](const std::shared_ptr<CaseData>& data) {
    return fitted_laws(std::vector<std::shared_ptr<CaseData>>{data}, nullptr).size();
  };
  auto data = empty_case("token_recycling", {{"k", 8}, {"tree", {2, 1}}});
  EXPECT_EQ(count(data), 0u) << "no steps";
  add_prompt(*data, recycled_text({{1}, {2}, {}, {}}));
  EXPECT_EQ(count(data), 1u);
  data->config["options"]["budget"] = "auto";
  EXPECT_EQ(count(data), 0u);
  data->config["options"]["budget"] = "fixed";
  data->config["options"]["keep"] = true;
  EXPECT_EQ(count(data), 0u) << "candidates of earlier prompts";
  EXPECT_EQ(count(case_with_tau("prompt_lookup", {{"length", 4}}, 1.5, 3)), 0u);
  data->config["options"]["keep"] = false;
  data->config["strategy"] = "strategy_of_another_version";
  EXPECT_EQ(count(data), 0u);
}

}  // namespace
}  // namespace speclab::fitted_laws_test
