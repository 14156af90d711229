#include "experiments/analysis/case_names.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/decoding/rules/accept.h"

namespace speclab::case_names_test {
namespace {

using ::testing::ElementsAre;

/// Cases whose ids begin with the name of their strategy.
std::vector<NamedCase> cases_with(const std::vector<std::string>& ids) {
  std::vector<NamedCase> cases;
  for (const std::string& id : ids) cases.push_back({id, id.substr(0, id.find('/'))});
  return cases;
}

// The names that the pages of results have (python/speclab/record.py).
TEST(ShortNames, AreThoseOfThePages) {
  EXPECT_THAT(short_names(cases_with({"autoregressive", "speculative_sampling/draft=distilled/gamma=3",
                                      "speculative_sampling/draft=skip20/gamma=1", "prompt_lookup/length=5",
                                      "prompt_lookup/draft=distilled/length=5/fallback=draft/gamma=4/"
                                      "schedule=confidence/confidence_threshold=0.6"})),
              ElementsAre("autoregressive", "distilled γ 3", "skip20 γ 1", "lookup",
                          "lookup + distilled γ 4 confidence ≥ 0.6"));
  EXPECT_THAT(
      short_names(cases_with({"autoregressive/coins=independent", "autoregressive/coins=gumbel",
                              "tree_speculation/draft=distilled/widths=[3,2,1]/coins=independent",
                              "tree_speculation/draft=distilled/widths=[3,2,1]/coins=gumbel",
                              "speculative_sampling/draft=a/temperature=1/rule=top_beta/beta=2",
                              "speculative_sampling/draft=a/temperature=0/rule=rejection"})),
      ElementsAre("autoregressive coins independent", "autoregressive coins gumbel",
                  "tree speculation + distilled coins independent",
                  "tree speculation + distilled coins gumbel", "a T 1 top beta 2", "a T 0 rejection"));
}

// Every parameter of a rule follows the name of the rule.
TEST(ShortNames, TheValueOfAParameterFollowsTheRule) {
  std::vector<std::string> ids = {"speculative_sampling/draft=a/rule=rejection"};
  std::vector<std::string> names = {"a rejection"};
  for (const RuleOption* option : all_rule_options()) {
    ids.push_back("speculative_sampling/draft=a/rule=" + std::string(option->name) + "_rule/" +
                  std::string(option->name) + "=2");
    std::string rule = std::string(option->name) + " rule";
    std::ranges::replace(rule, '_', ' ');
    names.push_back("a " + rule + " 2");
  }
  EXPECT_EQ(short_names(cases_with(ids)), names);
}

TEST(ShortNames, SettingsThatDoNotDifferAreLeftOut) {
  EXPECT_THAT(short_names(cases_with({"speculative_sampling/draft=a/gamma=4"})), ElementsAre("a"));
  EXPECT_THAT(short_names(cases_with(
                  {"speculative_sampling/draft=a/gamma=4", "speculative_sampling/draft=a/gamma=5"})),
              ElementsAre("a γ 4", "a γ 5"));
}

TEST(ShortNames, AnAmbiguousNameIsTheId) {
  // The temperature of references does not count, so their names would be the same.
  EXPECT_THAT(short_names(cases_with({"autoregressive/temperature=0", "autoregressive/temperature=1",
                                      "speculative_sampling/draft=a/gamma=4"})),
              ElementsAre("autoregressive/temperature=0", "autoregressive/temperature=1", "a"));
}

TEST(ShortNames, WhatCannotBeReadStaysAsItIs) {
  EXPECT_THAT(
      short_names(cases_with(
          {"tree_speculation/draft=a/tree=fits/best.json", "unknown_one/x=1", "tree_speculation/=3"})),
      ElementsAre("tree_speculation/draft=a/tree=fits/best.json", "unknown one", "tree_speculation/=3"));
  EXPECT_TRUE(short_names(std::vector<NamedCase>{}).empty());
}

TEST(ShortNames, ASummaryHasThemToo) {
  const nlohmann::json cases = nlohmann::json::parse(
      R"([{"id": "autoregressive", "strategy": "autoregressive"},
          {"id": "jacobi/N=4", "strategy": "jacobi"}, {"id": "jacobi/N=8", "strategy": "jacobi"}])");
  EXPECT_THAT(short_names(cases), ElementsAre("autoregressive", "jacobi N 4", "jacobi N 8"));
}

}  // namespace
}  // namespace speclab::case_names_test
