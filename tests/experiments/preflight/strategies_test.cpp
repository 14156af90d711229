// The best setting of each strategy, from predictions made by hand.
#include "experiments/preflight/strategies.h"

#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "core/base/error.h"
#include "core/decoding/drafting/tree_shape.h"

namespace speclab::strategies_of_preflight_test {
namespace {

using nlohmann::json;

std::shared_ptr<CaseData> traced(const std::string& id, const std::string& strategy, const json& draft) {
  auto data = std::make_shared<CaseData>();
  data->config = {{"id", id}, {"strategy", strategy}, {"options", json::object()}};
  data->config["draft"] = draft;
  return data;
}

ReplayedSetting chain(const std::string& id, int length, double speedup) {
  ReplayedSetting setting;
  setting.case_id = id;
  setting.length = length;
  setting.tau = 1.5;
  setting.speedup = speedup;
  setting.speedup_ci95 = {speedup - .1, speedup + .1};
  return setting;
}

ReplayedSetting tree(const std::string& id, double speedup) {
  ReplayedSetting setting = chain(id, 0, speedup);
  setting.tree = {.parents = {0, 0, 1}, .ranks = {1, 2, 1}};
  return setting;
}

RunData run_of_three() {
  RunData run;
  run.cases = {traced("chain", "speculative_sampling", "d"), traced("tree", "tree_speculation", "d"),
               traced("copies", "prompt_lookup", nullptr)};
  return run;
}

TEST(BestOfStrategies, EachTracedCaseHasItsFastestSetting) {
  const RunData run = run_of_three();
  const std::vector<ReplayedSetting> settings = {chain("chain", 1, 1.2), chain("chain", 3, 1.4),
                                                 tree("tree", 1.3), chain("copies", 5, 1.6),
                                                 chain("copies", 2, 1.1)};
  const json found = best_of_strategies(run, settings, *run.cases[0]);
  ASSERT_EQ(found.size(), 3u);
  EXPECT_EQ(found[0]["what"], "prompt copies");
  EXPECT_EQ(found[0]["own"], false);
  EXPECT_EQ(found[0]["gamma"], 5);
  EXPECT_TRUE(found[0]["tree"].is_null());
  EXPECT_EQ(found[1]["what"], "draft chain");
  EXPECT_EQ(found[1]["own"], true);
  EXPECT_EQ(found[1]["gamma"], 3);
  EXPECT_NEAR(found[1]["speedup_ci95"][0].get<double>(), 1.3, 1e-12);
  EXPECT_EQ(found[2]["what"], "draft tree");
  EXPECT_EQ(found[2]["own"], true);
  EXPECT_TRUE(found[2]["gamma"].is_null());
  EXPECT_EQ(TreeShape::of_json(tree_file_of(found[2]), "test").nodes(), 4);
  EXPECT_EQ(setting_words(found[1]), "drafts of 3 tokens");
  EXPECT_EQ(setting_words(found[2]), "a tree of 3 drafted tokens in 2 levels");
}

TEST(BestOfStrategies, NgramsAreADraftWithoutAModel) {
  RunData run;
  run.cases = {traced("ngrams", "ngram_model", nullptr), traced("copies", "prompt_lookup", nullptr)};
  const json found =
      best_of_strategies(run, std::vector{chain("ngrams", 1, 1.1), chain("copies", 4, 1.05)}, *run.cases[0]);
  EXPECT_EQ(found[0]["what"], "n-gram chain");
  EXPECT_EQ(found[0]["own"], true);
  EXPECT_EQ(setting_words(found[0]), "drafts of 1 token");
  EXPECT_EQ(found[1]["own"], false);
}

TEST(BestOfStrategies, OtherStrategiesHaveTheirOwnNames) {
  RunData run;
  run.cases = {traced("chain", "speculative_sampling", "d"), traced("ngrams", "ngram_model", nullptr),
               traced("new", "strategy_of_another_version", nullptr)};
  const json found = best_of_strategies(
      run, std::vector{chain("chain", 1, 1.3), chain("ngrams", 1, 1.2), chain("new", 1, 1.1)}, *run.cases[0]);
  EXPECT_EQ(found[1]["what"], "ngram_model") << "it is not the draft that is judged";
  EXPECT_EQ(found[2]["what"], "strategy_of_another_version");
  EXPECT_TRUE(is_searched_as(*run.cases[1], SearchedAs::ngram_chain));
  EXPECT_FALSE(is_searched_as(*run.cases[1], SearchedAs::copies));
  EXPECT_FALSE(is_searched_as(*run.cases[2], SearchedAs::nothing));
}

TEST(BestOfStrategies, ASettingOfAnUnknownCaseIsRefused) {
  const RunData run = run_of_three();
  EXPECT_THROW(best_of_strategies(run, std::vector{chain("other", 1, 1.1)}, *run.cases[0]), Error);
}

}  // namespace
}  // namespace speclab::strategies_of_preflight_test
