// The option "budget": "auto": its table of costs is part of the record, and drafts depend on nothing else
// that is measured.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <fstream>
#include <string>
#include <vector>

#include "tests/experiments/cli/speclab_fixture.h"

namespace speclab::budget_cli_test {
namespace {

using namespace speclab::fixtures;

class Budgets : public Speclab {
 protected:
  Budgets() {
    json experiment = config();
    experiment["calibration"] = false;
    experiment["repeats"] = 1;
    experiment["cases"] = json::parse(
        R"([{"strategy": "prompt_lookup", "budget": ["fixed", "auto"]},
            {"strategy": "token_recycling", "tree": [3, 2, 1], "budget": "auto"}])");
    write(experiment);
  }
  /// Replaces the table in the record of a run. If it has the time of a layer, a forward without a layer then
  /// costs almost nothing, and positions cost nothing.
  void set_costs(const std::string& name, const json& target_ns, const json& draft_ns = nullptr) {
    const fs::path file = dir() / name / "environment.json";
    json environment = read_json_file(file);
    environment["step_costs"]["target_ns"] = target_ns;
    if (!draft_ns.is_null()) environment["step_costs"]["draft_ns"] = draft_ns;
    if (environment["step_costs"].contains("layer_ns")) {
      environment["step_costs"]["layer_ns"] = target_ns["1"];
      environment["step_costs"]["position_ns"] = 0;
    }
    std::ofstream(file) << environment.dump();
  }
  /// The drafted tokens of all steps of a case.
  std::size_t drafted(const std::string& name, const std::string& of_case) {
    std::size_t count = 0;
    for (const auto& entry : fs::directory_iterator(dir() / name / "cases")) {
      for (const json& line : read_json_lines(entry.path())) {
        if (line["case"] != of_case) continue;
        for (const json& step : line["steps"]) count += step["drafted"].get<std::size_t>();
      }
    }
    return count;
  }
};

TEST_F(Budgets, AreChosenFromTheTableInTheRecord) {
  measure("first");
  const json costs = read_json_file(dir() / "first" / "environment.json")["step_costs"];
  EXPECT_GE(costs["target_ns"].size(), 5u);
  double before = 0;
  for (const char* rows : {"1", "2", "3", "4", "6"}) {
    const double ns = costs["target_ns"][rows].get<double>();
    EXPECT_GE(ns, before) << rows;
    EXPECT_GT(ns, 0);
    before = ns;
  }
  const json summary = read_json_file(dir() / "first" / "summary.json");
  for (const json& entry : summary["cases"]) {
    if (entry["metrics"]["matches_reference"].is_null()) continue;  // the reference itself
    EXPECT_EQ(entry["metrics"]["matches_reference"], true) << entry["id"];
  }

  set_costs("first", {{"1", 1}, {"2", 1}});
  measure("free", {"--costs", "first"});
  EXPECT_EQ(drafted("free", "prompt_lookup/budget=auto"), drafted("free", "prompt_lookup/budget=fixed"));
  EXPECT_GT(drafted("free", "prompt_lookup/budget=auto"), 0u);
  EXPECT_EQ(read_json_file(dir() / "free" / "environment.json")["step_costs"]["target_ns"]["2"], 1);

  set_costs("first", {{"1", 1}, {"2", 100}});
  measure("dear", {"--costs", "first"});
  EXPECT_EQ(drafted("dear", "prompt_lookup/budget=auto"), 0u);
  EXPECT_GT(drafted("dear", "prompt_lookup/budget=fixed"), 0u);

  write_json_file(dir() / "table.json", {{"target_ns", {{"1", 1}, {"2", 100}}}});
  measure("of_file", {"--costs", "table.json"});
  EXPECT_EQ(drafted("of_file", "prompt_lookup/budget=auto"), 0u);
}

TEST_F(Budgets, AResumedRunKeepsItsTable) {
  measure("first");
  set_costs("first", {{"1", 1}, {"2", 100}});
  for (const auto& entry : fs::directory_iterator(dir() / "first" / "cases")) fs::remove(entry.path());
  const Result again = run({"run", "--resume", "first", "-q"});
  EXPECT_EQ(again.code, 0) << again.err;
  EXPECT_EQ(drafted("first", "prompt_lookup/budget=auto"), 0u);
  EXPECT_GT(drafted("first", "prompt_lookup/budget=fixed"), 0u);
}

TEST_F(Budgets, ATableThatIsNoneIsRefused) {
  measure("first");
  measure("other", {"--set", "cases.0.budget=fixed", "--set", "cases.1.budget=fixed"});
  expect_error(run({"run", "a.json", "--out", "x", "-q", "--costs", "nowhere"}), {"nowhere"});
  expect_error(run({"run", "a.json", "--out", "x", "-q", "--costs", "other"}), {"no \"step_costs\""});
  expect_error(run({"run", "a.json", "--out", "x", "-q", "--costs", "a.json"}),
               {"a.json", "no \"target_ns\""});
  for (const json& bad :
       {json{{"2", 5}}, json{{"1", 0}}, json{{"1", 3}, {"two", 4}}, json{{"1", "3"}}, json(3)}) {
    set_costs("first", bad);
    expect_error(run({"run", "a.json", "--out", "x", "-q", "--costs", "first"}), {"first", "step_costs"});
    EXPECT_FALSE(fs::exists(dir() / "x"));
  }
}

/// Strategies whose drafts cost time, with default options.
json with_draft_models() {
  return json::parse(
      R"([{"strategy": ["speculative_sampling", "tree_speculation", "dynamic_tree", "cascade", "staged", "merged_trees"], "draft": "small"},
          {"strategy": ["lookahead", "jacobi", "ngram_model", "composition", "self_speculation"]}])");
}

TEST_F(Budgets, AutoIsTheDefaultAndKnowsTheCostOfADraftModel) {
  json experiment = config();
  experiment["calibration"] = false;
  experiment["repeats"] = 1;
  experiment["options"].erase("budget");
  experiment["cases"] = with_draft_models();
  write(experiment);
  measure("first");
  const json costs = read_json_file(dir() / "first" / "environment.json")["step_costs"];
  ASSERT_TRUE(costs["draft_ns"].contains("small"));
  EXPECT_GT(costs["draft_ns"]["small"]["1"].get<double>(), 0);
  EXPECT_FALSE(costs["draft_ns"].contains("skip")) << "no case uses it";
  EXPECT_GE(costs["layer_ns"].get<double>(), 0) << "the target drafts for itself";
  EXPECT_GE(costs["position_ns"].get<double>(), 0);
  const auto ids = [&](const std::string& name) {
    std::vector<std::string> out;
    const json summary = read_json_file(dir() / name / "summary.json");
    for (const json& entry : summary["cases"]) {
      if (entry["metrics"]["matches_reference"].is_null()) continue;  // the reference itself
      EXPECT_EQ(entry["metrics"]["matches_reference"], true) << entry["id"];
      EXPECT_EQ(entry["options"]["budget"], "auto") << entry["id"];
      out.push_back(entry["id"]);
    }
    return out;
  };
  set_costs("first", {{"1", 10}, {"2", 10}}, {{"small", {{"1", .001}}}});
  measure("free", {"--costs", "first"});
  set_costs("first", {{"1", 1}, {"2", 100}}, {{"small", {{"1", .001}}}});
  measure("dear", {"--costs", "first"});
  EXPECT_EQ(ids("free").size(), 11u);
  for (const std::string& id : ids("dear")) {
    EXPECT_EQ(drafted("dear", id), 0u) << id;
    if (id != "composition") {  // it may find nothing to copy
      EXPECT_GT(drafted("free", id), 0u) << id;
    }
  }
  set_costs("first", {{"1", 10}, {"2", 10}}, {{"small", {{"1", 1000}}}});
  measure("slow", {"--costs", "first"});
  for (const std::string& id : ids("slow")) {
    if (id.starts_with("cascade") || id.starts_with("merged_trees")) continue;  // they may copy
    EXPECT_EQ(drafted("slow", id) == 0, id.find("draft=") != std::string::npos) << id;
  }
}

// A draft model guesses for the target with a sparse cache, which drafts for the target.
TEST_F(Budgets, ThreeLevelsNeedTheTimesOfTheDraftModelAndOfCachedPositions) {
  json experiment = config();
  experiment["calibration"] = false;
  experiment["repeats"] = 1;
  experiment["options"].erase("budget");
  experiment["cases"] = json::parse(
      R"([{"strategy": "hierarchical_speculation", "draft": "small", "first": 0, "last": [0, 4]}])");
  write(experiment);
  measure("first");
  json environment = read_json_file(dir() / "first" / "environment.json");
  json& costs = environment["step_costs"];
  EXPECT_TRUE(costs["draft_ns"].contains("small"));
  EXPECT_GE(costs["layer_ns"].get<double>(), 0);
  EXPECT_GE(costs["position_ns"].get<double>(), 0);
  costs["context"] = 0, costs["position_ns"] = 1000 * costs["target_ns"]["1"].get<double>();
  write_json_file(dir() / "first" / "environment.json", environment);
  measure("dear_positions", {"--costs", "first"});
  int cases = 0;
  const json summary = read_json_file(dir() / "dear_positions" / "summary.json");
  for (const json& entry : summary["cases"]) {
    if (entry["metrics"]["matches_reference"].is_null()) continue;  // the reference itself
    EXPECT_EQ(entry["metrics"]["matches_reference"], true) << entry["id"];
    EXPECT_EQ(entry["options"]["budget"], "auto") << entry["id"];
    EXPECT_GT(drafted("dear_positions", entry["id"].get<std::string>()), 0u) << entry["id"];
    ++cases;
  }
  EXPECT_EQ(cases, 2);
}

TEST_F(Budgets, SeveralDraftModelsHaveTimesOfTheirOwn) {
  json experiment = config();
  experiment["calibration"] = false;
  experiment["repeats"] = 1;
  experiment["options"].erase("budget");
  experiment["cases"] = json::parse(
      R"([{"strategy": ["cascade", "staged", "merged_trees"], "drafts": ["small", "skip"]},
          {"strategy": "cascade", "drafts": ["small", "skip"], "max_gram": false}])");
  write(experiment);
  measure("first");
  const json costs = read_json_file(dir() / "first" / "environment.json")["step_costs"];
  EXPECT_TRUE(costs["draft_ns"].contains("small"));
  EXPECT_TRUE(costs["draft_ns"].contains("skip"));
  EXPECT_FALSE(costs.contains("layer_ns")) << "no case drafts with the target itself";
  measure("again", {"--costs", "first"});
  EXPECT_EQ(record_of(dir() / "again"), record_of(dir() / "first")) << "the same drafts, not only texts";
  const std::string chain = "cascade/drafts=small+skip/max_gram=false";
  const json free = {{"1", 10}, {"2", 10}}, none = {{"1", .001}}, much = {{"1", 1000}};
  set_costs("first", free, {{"small", none}, {"skip", much}});
  measure("large", {"--costs", "first"});
  EXPECT_GT(drafted("large", chain), 0u) << "the larger draft drafts without the smaller one";
  set_costs("first", free, {{"small", much}, {"skip", none}});
  measure("little", {"--costs", "first"});
  EXPECT_GT(drafted("little", chain), 0u) << "the smaller draft drafts without the larger one";
  set_costs("first", free, {{"small", much}, {"skip", much}});
  measure("none", {"--costs", "first"});
  EXPECT_EQ(drafted("none", chain), 0u);
  EXPECT_EQ(drafted("none", "staged/drafts=small+skip"), 0u);
}

TEST_F(Budgets, ATableWithoutTheDraftModelIsRefusedWhereItIsNeeded) {
  json experiment = config();
  experiment["calibration"] = false;
  experiment["repeats"] = 1;
  experiment["options"]["budget"] = "auto";
  experiment["cases"] = json::parse(R"([{"strategy": "prompt_lookup"}])");
  write(experiment);
  measure("old");  // a table as older versions wrote it
  EXPECT_FALSE(read_json_file(dir() / "old" / "environment.json")["step_costs"].contains("draft_ns"));
  measure("again", {"--costs", "old"});
  experiment["cases"] = json::parse(R"([{"strategy": "prompt_lookup", "draft": "small"}])");
  write(experiment);
  measure("unused", {"--costs", "old"});
  experiment["cases"] = json::parse(R"([{"strategy": "speculative_sampling", "draft": "small"}])");
  write(experiment);
  expect_error(run({"run", "a.json", "--out", "x", "-q", "--costs", "old"}),
               {"no table of costs with times of the draft model", "an older version"});
  experiment["cases"] = json::parse(R"([{"strategy": "self_speculation"}])");
  write(experiment);
  expect_error(run({"run", "a.json", "--out", "x", "-q", "--costs", "old"}),
               {"no table of costs with the time of a layer", "an older version"});
  experiment["cases"] = json::parse(R"([{"strategy": "cascade", "drafts": ["small", "skip"]}])");
  write(experiment);
  set_costs("old", {{"1", 5}}, {{"small", {{"1", 1}}}});
  expect_error(run({"run", "a.json", "--out", "x", "-q", "--costs", "old"}),
               {"no table of costs with times of the draft model"});
  experiment["cases"] = json::parse(R"([{"strategy": "speculative_sampling", "draft": "small"}])");
  write(experiment);
  for (const json& bad :
       {json{{"small", {{"2", 5}}}}, json{{"small", 3}}, json(3), json{{"small", {{"1", -1}}}}}) {
    set_costs("old", {{"1", 5}}, bad);
    expect_error(run({"run", "a.json", "--out", "x", "-q", "--costs", "old"}), {"old", "step_costs"});
  }
}

TEST_F(Budgets, GenerateMeasuresATableOrTakesOne) {
  const Result measured =
      run({"generate", "--model", "target", "--plain", "--prompt", "1 2 3 1 2 3 1 2", "--strategy",
           "prompt_lookup", "--set", "budget=auto", "--set", "max_tokens=8"});
  EXPECT_EQ(measured.code, 0) << measured.err;
  const Result with_draft =
      run({"generate", "--model", "target", "--plain", "--prompt", "1 2 3 1 2 3 1 2", "--strategy",
           "speculative_sampling", "--draft", "layers:0", "--set", "max_tokens=8"});
  EXPECT_EQ(with_draft.code, 0) << with_draft.err;
  EXPECT_EQ(with_draft.out, measured.out);
  const Result cascade =
      run({"generate", "--model", "target", "--plain", "--prompt", "1 2 3 1 2 3 1 2", "--strategy", "cascade",
           "--draft", "draft", "--draft", "layers:0", "--set", "max_tokens=8"});
  EXPECT_EQ(cascade.code, 0) << cascade.err;
  EXPECT_EQ(cascade.out, measured.out);
  const Result own = run({"generate", "--model", "target", "--plain", "--prompt", "1 2 3 1 2 3 1 2",
                          "--strategy", "self_speculation", "--set", "max_tokens=8"});
  EXPECT_EQ(own.code, 0) << own.err;
  EXPECT_EQ(own.out, measured.out);
  expect_error(run({"generate", "--model", "target", "--plain", "--prompt", "1 2", "--strategy",
                    "prompt_lookup", "--set", "budget=auto", "--costs", "nowhere"}),
               {"nowhere"});
}

}  // namespace
}  // namespace speclab::budget_cli_test
