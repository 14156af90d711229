#include "experiments/metrics/best_chain.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

#include "experiments/analysis/table.h"
#include "experiments/metrics/summary.h"
#include "tests/experiments/metrics/hand_made_run.h"
#include "tests/experiments/metrics/tree_steps.h"

namespace speclab::best_chain_test {
namespace {

using namespace speclab::fixtures;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

/// A run of autoregressive decoding, the chain "spec" and the cases that a test adds.
class BestChain : public Record {
 protected:
  BestChain() : run_(write_run("a", 1'600'000)) {
    rewrite(run_ / "cases" / "spec.jsonl", [](LineRecord& line) { chain(line, 1'600'000); });
  }
  /// Six tokens in three steps of this time, by chains or by trees of the draft model.
  static void chain(LineRecord& line, std::int64_t step_ns) {
    line.turns = {speculative_turn(step_ns)};
    for (StepRecord& step : line.turns[0].steps) step.source = "draft", step.contributions.clear();
  }
  static void tree(LineRecord& line, std::int64_t step_ns) {
    chain(line, step_ns);
    line.turns[0].steps = {tree_step({2, 5}), tree_step({}), tree_step({1})};
    for (StepRecord& step : line.turns[0].steps) step.times.ns = {0, step_ns, 0, 0};
  }
  /// Adds a case with the lines of "spec", changed by `change`; `settings` change its entry in the config.
  template <class Change>
  void add(const std::string& id, const json& settings, Change change) {
    json config = read_json_file(run_ / "config.json");
    json entry = config["cases"][1];
    entry["id"] = entry["strategy"] = id;
    entry.update(settings);
    config["cases"].push_back(entry);
    write_json_file(run_ / "config.json", config);
    JsonLinesWriter writer(run_ / "cases" / (id + ".jsonl"));
    for (LineRecord& line : read_case_file(run_ / "cases" / "spec.jsonl")) {
      line.case_id = id;
      change(line);
      writer.append(to_json(line));
    }
  }
  json summary() { return summarise_run(run_); }
  static const json& entry_of(const json& summary, const std::string& id) {
    for (const json& entry : summary["cases"]) {
      if (entry["id"] == id) return entry;
    }
    throw std::out_of_range(id);
  }
  std::filesystem::path run_;
};

TEST_F(BestChain, IsTheFastestOfTheSameDraft) {
  add("fast", json::object(), [](LineRecord& line) { chain(line, 1'200'000); });
  add("tree", json::object(), [](LineRecord& line) { tree(line, 1'000'000); });
  // Faster chains that are not comparable.
  add("other_draft", {{"draft", "e"}}, [](LineRecord& line) { chain(line, 500'000); });
  add("no_draft", {{"draft", nullptr}}, [](LineRecord& line) { chain(line, 500'000); });
  add("lossy", {{"rule", "typical"}, {"loss_class", "L3"}}, [](LineRecord& line) { chain(line, 500'000); });
  add("copies", json::object(), [](LineRecord& line) {
    chain(line, 500'000);
    for (StepRecord& step : line.turns[0].steps) step.source = "lookup";
  });
  add("own_reference", {{"reference", nullptr}}, [](LineRecord& line) { chain(line, 500'000); });
  const json all = summary();
  const json& found = entry_of(all, "tree");
  EXPECT_EQ(found["best_chain"], "fast");
  EXPECT_NEAR(found["metrics"]["speed_over_chain"].get<double>(), 1.2, 1e-12);
  EXPECT_NEAR(found["metrics"]["speed_over_chain_ci95"][0].get<double>(), 1.2, 1e-12);
  EXPECT_FALSE(entry_of(all, "fast").contains("best_chain"));
  EXPECT_TRUE(entry_of(all, "fast")["metrics"]["speed_over_chain"].is_null());
  EXPECT_THAT(summary_table(all).header, Contains("over chain [95 %]"));
  EXPECT_THAT(notes_text(all), HasSubstr("in this run: fast (1 case)."));
  // Parts of the case are compared with the same part of the chain.
  EXPECT_NEAR(found["categories"]["a"]["metrics"]["speed_over_chain"].get<double>(), 1.2, 1e-12);
}

TEST_F(BestChain, ALossyTreeHasAChainWithItsOwnRule) {
  const json lossy = {{"rule", "typical"}, {"loss_class", "L3"}};
  json strict = lossy, loose = lossy;
  strict["options"] = {{"temperature", 0}, {"epsilon", .1}, {"delta", .3}};
  loose["options"] = {{"temperature", 0}, {"epsilon", .9}, {"delta", .3}};
  add("tree", strict, [](LineRecord& line) { tree(line, 1'000'000); });
  add("loose", loose, [](LineRecord& line) { chain(line, 500'000); });
  EXPECT_TRUE(entry_of(summary(), "tree")["best_chain"].is_null());
  add("strict", strict, [](LineRecord& line) { chain(line, 1'500'000); });
  EXPECT_EQ(entry_of(summary(), "tree")["best_chain"], "strict");
}

TEST_F(BestChain, SeveralDraftsMayHaveAChainOfOneOfThem) {
  add("merged", {{"draft", "d+e"}, {"drafts", {"d", "e"}}}, [](LineRecord& line) {
    tree(line, 1'000'000);
    for (StepRecord& step : line.turns[0].steps) {
      step.source = "merged";
      step.contributions = {{1, "draft 1"}, {3, "draft 2"}, {5, "text"}};
    }
  });
  EXPECT_EQ(entry_of(summary(), "merged")["best_chain"], "spec");
}

TEST_F(BestChain, ATreeWithoutAChainIsNamed) {
  add("tree", {{"draft", "e"}}, [](LineRecord& line) { tree(line, 1'000'000); });
  const json all = summary();
  EXPECT_TRUE(entry_of(all, "tree")["best_chain"].is_null());
  EXPECT_TRUE(entry_of(all, "tree")["metrics"]["speed_over_chain"].is_null());
  EXPECT_THAT(notes_text(all), HasSubstr("1 case with trees has no chain of the same draft"));
  EXPECT_THAT(summary_table(all).header, Not(Contains("over chain [95 %]")));
}

// Only chains of a model have tested tokens and probabilities that can be compared.
TEST_F(BestChain, TreesAndCopiesHaveNoConfidenceToCompare) {
  const auto confident = [](LineRecord& line) {
    for (StepRecord& step : line.turns[0].steps) {
      for (DraftedToken& token : step.drafted) token.confidence = .5f;
    }
  };
  add("chain", json::object(), confident);
  add("copies", {{"draft", nullptr}}, confident);
  add("self_speculation", {{"draft", nullptr}}, confident);
  add("tree", json::object(), [&](LineRecord& line) {
    tree(line, 1'000'000);
    confident(line);
  });
  add("a_branch", json::object(), [&](LineRecord& line) {  // one step of one prompt branches
    if (line.prompt == "0") line.turns[0].steps[1] = tree_step({1});
    confident(line);
  });
  const json all = summary();
  for (const char* name :
       {"confidence_ece", "confidence_brier", "confidence_bins", "accepted_by_confidence"}) {
    EXPECT_FALSE(entry_of(all, "chain")["metrics"][name].is_null()) << name;
    EXPECT_FALSE(entry_of(all, "self_speculation")["metrics"][name].is_null())
        << name << ": the target drafts";
    EXPECT_TRUE(entry_of(all, "tree")["metrics"][name].is_null()) << name;
    EXPECT_TRUE(entry_of(all, "a_branch")["metrics"][name].is_null()) << name;
    EXPECT_TRUE(entry_of(all, "copies")["metrics"][name].is_null()) << name << ": a share of copies";
  }
  EXPECT_TRUE(entry_of(all, "a_branch")["categories"]["b"]["metrics"]["confidence_ece"].is_null())
      << "also where no draft branches";
}

// The rule, trees, masks, commit and recording take a quarter of the steps of the hand-made chain.
TEST_F(BestChain, TheOverheadIsAShareOfTheSteps) {
  const json all = summary();
  EXPECT_NEAR(entry_of(all, "spec")["metrics"]["overhead_share"].get<double>(), .25, 1e-12);
  EXPECT_EQ(entry_of(all, "autoregressive")["metrics"]["overhead_share"], 0);
}

}  // namespace
}  // namespace speclab::best_chain_test
