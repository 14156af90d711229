// Which experiments `speclab optimize config` makes of a config. No model is opened.
#include "experiments/optimize/search_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>

#include "core/base/error.h"
#include "experiments/config/config_file.h"

namespace speclab::search_plan_test {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

const std::string kSmallChain = "speculative_sampling/draft=small/gamma=8";
const std::string kSmallTree = "tree_speculation/draft=small/widths=[4]/children=best";

json config() {
  return json::parse(R"({"name": "toy", "target": "target", "drafts": {"small": {"model": "draft"}},
    "prompts": {"inline": [{"id": "one", "category": "a", "turns": ["1"]}, {"id": "two", "category": "b", "turns": ["2"]},
                           {"id": "three", "category": "a", "turns": ["3"]}, {"id": "four", "category": "a", "turns": ["4"]}]},
    "repeats": 5, "options": {"temperature": 0, "max_tokens": 24, "budget": "fixed"},
    "cases": [{"strategy": "autoregressive"},
              {"strategy": "speculative_sampling", "draft": ["small", {"layers": [0]}], "gamma": [1, 3]},
              {"strategy": "prompt_lookup", "length": 5},
              {"strategy": "dynamic_tree", "draft": "small"},
              {"strategy": "lookahead", "W": 4, "N": 3, "G": 4},
              {"strategy": "speculative_sampling", "draft": "small", "gamma": 2, "rule": "threshold", "theta": 0}]})");
}

SearchPlan plan_of(const json& content, const ConfigWish& wish = {}) {
  return SearchPlan(content, "a.json", {}, wish);
}

std::set<std::string> ids_of(const Experiment& experiment) {
  std::set<std::string> ids;
  for (const CaseSpec& spec : experiment.cases) ids.insert(spec.id);
  return ids;
}

std::set<std::string> prompts_of(const Experiment& experiment) {
  std::set<std::string> ids;
  for (const PromptSpec& prompt : experiment.prompts) ids.insert(prompt.id);
  return ids;
}

std::string refusal(const json& content) {
  try {
    plan_of(content);
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

TEST(SearchPlan, TheTraceHasEveryDrafterOnce) {
  const SearchPlan plan = plan_of(config());
  const Experiment trace = plan.trace();
  EXPECT_EQ(ids_of(trace),
            (std::set<std::string>{"autoregressive", kSmallChain,
                                   "speculative_sampling/draft=layers0/gamma=8", "prompt_lookup/length=8",
                                   kSmallTree, "tree_speculation/draft=layers0/widths=[4]/children=best"}));
  for (const CaseSpec& spec : trace.cases) EXPECT_EQ(spec.generation.emit_at_most, 1) << spec.id;
  EXPECT_EQ(prompts_of(trace), (std::set<std::string>{"one", "two", "four"}));
  EXPECT_EQ(trace.repeats, 1);
  EXPECT_EQ(trace.calibration.rows, 16);
  EXPECT_GT(trace.calibration.draft_rows, 2) << "trees need the times of wide draft forwards";
  ASSERT_EQ(plan.notes().size(), 2u) << "lookahead decoding is searched, though not in the trace";
  EXPECT_THAT(plan.notes()[0], HasSubstr("dynamic_tree"));
  EXPECT_THAT(plan.notes()[1], HasSubstr("lossy rule"));
}

TEST(SearchPlan, AConfigWithoutDraftsIsSearchedForCopies) {
  json content = config();
  content.erase("drafts");
  content["cases"] = json::array({{{"strategy", "autoregressive"}}});
  const Experiment trace = plan_of(content).trace();
  ASSERT_EQ(trace.cases.size(), 2u);
  EXPECT_EQ(std::string(trace.cases[1].strategy.info().name), "prompt_lookup");
}

TEST(SearchPlan, TheGridOfLookaheadDecodingFitsTheRows) {
  const std::optional<Experiment> grid = plan_of(config()).lookahead();
  ASSERT_TRUE(grid.has_value());
  // (W + G)(N - 1) is at most 32: W = 1, 2, 4, 8 with N = 3, and W = 1, 2, 4 with N = 5.
  EXPECT_EQ(grid->cases.size(), 1u + 4 + 3);
  EXPECT_EQ(grid->calibration.rows, 32);
  EXPECT_EQ(prompts_of(*grid), (std::set<std::string>{"one", "two", "four"}));
  for (const CaseSpec& spec : grid->cases) EXPECT_EQ(spec.generation.emit_at_most, 0) << spec.id;
  EXPECT_FALSE(plan_of(config(), {.lookahead_rows = 7}).lookahead().has_value());
  EXPECT_TRUE(plan_of(config(), {.lookahead_rows = 8}).lookahead().has_value());
}

TEST(SearchPlan, ASettingIsAnEntryOfACase) {
  const SearchPlan plan = plan_of(config());
  EXPECT_EQ(plan.setting(kSmallChain, 3, ""),
            (json{{"strategy", "speculative_sampling"}, {"draft", "small"}, {"gamma", 3}}));
  EXPECT_EQ(plan.setting("prompt_lookup/length=8", 2, ""),
            (json{{"strategy", "prompt_lookup"}, {"length", 2}}));
  EXPECT_EQ(
      plan.setting(kSmallTree, 0, "t.json"),
      (json{{"strategy", "tree_speculation"}, {"draft", "small"}, {"children", "best"}, {"tree", "t.json"}}));
}

TEST(SearchPlan, CopiesThatADraftContinuesAreShortenedWithIt) {
  json content = config();
  content["cases"] = {
      {{"strategy", "autoregressive"}},
      {{"strategy", "prompt_lookup"}, {"fallback", "draft"}, {"draft", "small"}, {"length", 5}}};
  const SearchPlan plan = plan_of(content);
  const Experiment trace = plan.trace();
  const auto hybrid = std::ranges::find_if(trace.cases, [](const CaseSpec& spec) {
    return spec.strategy.info().name == "prompt_lookup" && !spec.drafts.empty();
  });
  ASSERT_NE(hybrid, trace.cases.end());
  const json entry = plan.setting(hybrid->id, 2, ""), longer = plan.setting(hybrid->id, 7, "");
  EXPECT_EQ(entry["gamma"], 2);
  EXPECT_EQ(entry["length"], 2);
  EXPECT_EQ(longer["gamma"], 7);
  EXPECT_EQ(longer["length"], 5) << "the trace has no longer copies";
}

TEST(SearchPlan, TheMeasurementHasTheOtherPrompts) {
  const SearchPlan plan = plan_of(config(), {.repeats = 2});
  const Experiment measured =
      plan.measurement({plan.setting(kSmallChain, 3, ""), SearchPlan::lookahead_setting(2, 3, 2)});
  ASSERT_EQ(measured.cases.size(), 3u);
  EXPECT_EQ(measured.cases[0].id, "autoregressive");
  EXPECT_EQ(measured.cases[1].id, "speculative_sampling/draft=small/gamma=3");
  EXPECT_EQ(measured.cases[2].id, "lookahead/W=2/N=3/G=2");
  for (const CaseSpec& spec : measured.cases) EXPECT_EQ(spec.generation.emit_at_most, 0) << spec.id;
  EXPECT_EQ(prompts_of(measured), std::set<std::string>{"three"});
  EXPECT_EQ(measured.repeats, 2);
  EXPECT_FALSE(measured.calibration.enabled);
}

TEST(SearchPlan, TheBestConfigIsTheConfigWithOneSetting) {
  const SearchPlan plan = plan_of(config());
  const json best = plan.config_with(plan.setting(kSmallChain, 3, ""), "why");
  EXPECT_EQ(best["description"], "why");
  EXPECT_EQ(best["repeats"], 5);
  EXPECT_EQ(best["prompts"], config()["prompts"]);
  EXPECT_EQ(best["options"].value("emit_at_most", 0), 0);
  const Experiment experiment = parse_experiment(best, "best.json");
  ASSERT_EQ(experiment.cases.size(), 2u);
  EXPECT_EQ(experiment.cases[1].id, "speculative_sampling/draft=small/gamma=3");
}

TEST(SearchPlan, WhatCannotBeSearchedIsRefused) {
  json content = config();
  content["prompts"]["inline"] = {"1"};
  EXPECT_THAT(refusal(content), HasSubstr("no category with two prompts"));
  content = config();
  content.erase("target");
  content["targets"] = {{"a", "one"}, {"b", "two"}};
  EXPECT_THAT(refusal(content), HasSubstr("2 targets"));
  content = config();
  content["options"]["temperature"] = {0, .8};
  content["options"]["coins"] = "gumbel";
  content["cases"].erase(5);  // coupled texts take no other rule
  EXPECT_THAT(refusal(content), HasSubstr("different generation options"));
  content = config();
  content["cases"][1]["gamma"] = "three";
  EXPECT_THAT(refusal(content), HasSubstr("a.json: /cases/1/gamma"));
}

}  // namespace
}  // namespace speclab::search_plan_test
