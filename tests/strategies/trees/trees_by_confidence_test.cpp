// A tree file with several trees: reading it, and the choice of a tree in each step.
#include "core/decoding/drafting/trees_by_confidence.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "core/measure/run_result.h"
#include "tests/base/error_text.h"
#include "tests/decoding/loop/loop_fixture.h"
#include "tests/strategies/draft_rows.h"

namespace speclab::trees_by_confidence_test {
namespace {

using namespace speclab::fixtures;
using ::testing::AllOf;
using ::testing::HasSubstr;

struct TreeRange {
  double from, to;
  std::vector<int> parents, ranks;
};

json trees_json(const std::vector<TreeRange>& ranges) {
  json trees = json::array();
  for (const TreeRange& range : ranges) {
    trees.push_back({{"from", range.from}, {"to", range.to}});
    trees.back()["parents"] = range.parents;
    trees.back()["ranks"] = range.ranks;
  }
  json file = {{"format", kTreesFormat}};
  file["trees"] = std::move(trees);
  return file;
}

// A wide tree, one that is deeper on its first path, and a chain. The nodes are in the order of drafting.
const TreeRange kWideTree{0, .3, {0, 0, 0}, {1, 2, 3}}, kMixedTree{.3, .6, {0, 0, 1, 1, 3}, {1, 2, 1, 2, 1}},
    kChainTree{.6, 1, {0, 1, 2, 3}, {1, 1, 1, 1}};

TEST(TreesByConfidenceFile, BothFormatsAreRead) {
  const TreesByConfidence one = TreesByConfidence::of_json(
      {{"format", kTreeFormat}, {"parents", {0, 0, 1}}, {"ranks", {1, 2, 1}}}, "x");
  EXPECT_FALSE(one.several());
  for (const double confidence : {0., .5, 1.}) EXPECT_EQ(one.number_at(confidence), 0);
  EXPECT_EQ(one.tree(0).nodes(), 4);

  const TempDir dir;
  const auto path = dir.path() / "trees.json";
  write_json_file(path, trees_json({kWideTree, kMixedTree, kChainTree}));
  const TreesByConfidence trees = TreesByConfidence::read(path);
  ASSERT_EQ(trees.count(), 3);
  for (const auto& [confidence, number] : std::vector<std::pair<double, int>>{
           {0, 0}, {.2999, 0}, {.3, 1}, {.5999, 1}, {.6, 2}, {.99, 2}, {1, 2}, {1.0000001, 2}})
    EXPECT_EQ(trees.number_at(confidence), number) << confidence;
  EXPECT_EQ(trees.nodes(), 6);
  EXPECT_EQ(trees.depth(), 4);
  EXPECT_EQ(trees.tree(0).children(0), 3);
  // A range may draft nothing.
  const TreesByConfidence with_empty =
      TreesByConfidence::of_json(trees_json({{0, .6, {}, {}}, kChainTree}), "x");
  EXPECT_EQ(with_empty.tree(0).nodes(), 1);
  EXPECT_EQ(with_empty.tree(0).depth(), 0);
  EXPECT_EQ(with_empty.depth(), 4);
}

TEST(TreesByConfidenceFile, BadFilesAreRefused) {
  const auto error_of = [](const json& file) {
    const std::string error = message_of([&] { TreesByConfidence::of_json(file, "bad.json"); });
    EXPECT_THAT(error, HasSubstr("bad.json"));
    return error;
  };
  EXPECT_EQ(
      message_of([] { TreesByConfidence::of_json(trees_json({kWideTree, kMixedTree, kChainTree}), "x"); }),
      "no error");
  TreeRange gap = kMixedTree, overlap = kMixedTree, backwards = kMixedTree, late = kWideTree,
            early = kChainTree;
  gap.from = .4, overlap.from = .2, backwards.to = .3, late.from = .1, early.to = .9;
  EXPECT_THAT(error_of(trees_json({kWideTree, gap, kChainTree})),
              AllOf(HasSubstr("/trees/1/from: got 0.4, expected 0.3"), HasSubstr("no gap")));
  EXPECT_THAT(error_of(trees_json({kWideTree, overlap, kChainTree})),
              AllOf(HasSubstr("/trees/1/from: got 0.2, expected 0.3"), HasSubstr("do not overlap")));
  EXPECT_THAT(error_of(trees_json({kWideTree, backwards, kChainTree})),
              AllOf(HasSubstr("/trees/1/to: got 0.3"), HasSubstr("more than 0.3")));
  EXPECT_THAT(error_of(trees_json({late, kMixedTree, kChainTree})),
              HasSubstr("/trees/0/from: got 0.1, expected 0,"));
  EXPECT_THAT(error_of(trees_json({kWideTree, kMixedTree, early})),
              HasSubstr("/trees/2/to: got 0.9, expected 1,"));
  EXPECT_THAT(error_of(trees_json({kMixedTree, kWideTree, kChainTree})), HasSubstr("/trees/0/from"))
      << "another order";
  TreeRange cycle = kMixedTree, crowd = kChainTree, twice = kWideTree;
  cycle.parents = {0, 3, 2, 1, 3};
  crowd.parents.assign(1024, 0), crowd.ranks.assign(1024, 1);
  twice.ranks = {1, 2, 2};
  EXPECT_THAT(error_of(trees_json({kWideTree, cycle, kChainTree})),
              HasSubstr("bad.json: /trees/1/parents/1: got node 2 is a child of node 3"));
  EXPECT_THAT(error_of(trees_json({kWideTree, kMixedTree, crowd})),
              HasSubstr("/trees/2/parents: got 1024 nodes, expected 0 to 1023 nodes"));
  EXPECT_THAT(error_of(trees_json({twice, kMixedTree, kChainTree})),
              HasSubstr("/trees/0/ranks/2: got rank 2 of node 3"));
  EXPECT_THAT(error_of(trees_json({{0, .6, {}, {}}, {.6, 1, {}, {}}})), HasSubstr("without a drafted token"));
  EXPECT_THAT(error_of(trees_json({})), HasSubstr("/trees: got 0 trees, expected a list of 1 to 64 trees"));
  std::vector<TreeRange> many;
  for (int i = 0; i < 65; ++i) many.push_back({i / 65., (i + 1) / 65., {0}, {1}});
  EXPECT_THAT(error_of(trees_json(many)), HasSubstr("got 65 trees"));
  json file = trees_json({kWideTree, kMixedTree, kChainTree});
  file["trees"][1]["to"] = 1.5;
  EXPECT_THAT(error_of(file), HasSubstr("/trees/1/to: got 1.5, expected a confidence from 0 to 1"));
  file["trees"][1]["to"] = "0.6";
  EXPECT_THAT(error_of(file), HasSubstr("/trees/1/to: got \"0.6\""));
  file["trees"][1].erase("to");
  EXPECT_THAT(error_of(file), HasSubstr("/trees/1/to: got nothing"));
  file["trees"][1] = 7;
  EXPECT_THAT(error_of(file), HasSubstr("/trees/1/from: got nothing"));
  file["trees"] = 7;
  EXPECT_THAT(error_of(file), HasSubstr("/trees: got 7"));
  EXPECT_THAT(error_of({{"format", "speclab tree 3"}}), HasSubstr("another format"));
  EXPECT_THAT(error_of(json::array()), HasSubstr("another format"));
}

class TreesByConfidenceDraft : public ::testing::Test {
 protected:
  ModelPtr target = tiny_target(3), draft = Model::with_layers(target, {0});

  StrategyChoice with(const json& file, json options = json::object()) {
    options["tree"] = (dir_.path() / "trees.json").string();
    write_json_file(options["tree"].get<std::string>(), file);
    return choose("tree_speculation", options);
  }
  Decode decode(const StrategyChoice& strategy, json options) {
    options["max_tokens"] = 60;
    return {.target = target, .draft = draft, .strategy = strategy, .options = std::move(options)};
  }
  /// The three trees above, with limits that a third of the steps of this text exceed.
  std::vector<TreeRange> thirds(const json& options) {
    std::vector<double> all;
    const GenerationRecord record =
        decode(choose("tree_speculation", {{"widths", {2}}, {"root_confidence", true}}), options).run();
    for (const StepRecord& step : record.steps) all.push_back(static_cast<double>(step.root_confidence));
    std::ranges::sort(all);
    const double low = all[all.size() / 3], high = all[2 * all.size() / 3];
    EXPECT_LT(low, high);
    std::vector<TreeRange> ranges = {kWideTree, kMixedTree, kChainTree};
    ranges[0].to = ranges[1].from = low;
    ranges[1].to = ranges[2].from = high;
    return ranges;
  }

 private:
  TempDir dir_;
};

// The confidence is that of the whole row: here top-k leaves three tokens to draw.
TEST_F(TreesByConfidenceDraft, EachStepDraftsTheTreeOfItsConfidence) {
  for (const json& options : {json{{"temperature", 0}}, json{{"temperature", 1.3}}}) {
    SCOPED_TRACE(options.dump());
    const std::vector<TreeRange> ranges = thirds(options);
    const TreesByConfidence trees = TreesByConfidence::of_json(trees_json(ranges), "x");
    const Decode by_confidence = decode(with(trees_json(ranges), {{"draft_top_k", 3}}), options);
    const GenerationRecord record = by_confidence.run();
    std::vector<Token> text = by_confidence.prompt;
    text.push_back(record.tokens[0]);
    std::size_t emitted = 1;
    std::set<int> seen;
    for (const StepRecord& step : record.steps) {
      if (record.tokens.size() - emitted > 4) {
        const std::vector<float> row = row_after(draft, text);
        const double temperature = options["temperature"] == 0 ? 1 : options["temperature"].get<double>();
        const float best = *std::ranges::max_element(row);
        double sum = 0;
        for (const float logit : row) sum += std::exp(static_cast<double>(logit - best) / temperature);
        EXPECT_NEAR(step.root_confidence, 1 / sum, 1e-5);
        EXPECT_EQ(step.tree_number, trees.number_at(static_cast<double>(step.root_confidence)));
        std::vector<int> parents;
        for (const DraftedToken& token : step.drafted) parents.push_back(token.parent);
        ASSERT_TRUE(step.tree_number >= 0 && step.tree_number < 3);
        EXPECT_EQ(parents, ranges[static_cast<std::size_t>(step.tree_number)].parents);
        seen.insert(step.tree_number);
      }
      for (int i = 0; i < step.emitted; ++i) text.push_back(record.tokens[emitted++]);
    }
    EXPECT_EQ(seen.size(), 3u);
  }
}

TEST_F(TreesByConfidenceDraft, TheTextIsThatOfAutoregressiveDecoding) {
  for (const json& options : {json{{"temperature", 0}}, json{{"temperature", 0}, {"repetition_penalty", 1.3}},
                              json{{"temperature", 1}, {"coins", "gumbel"}},
                              json{{"temperature", .8}, {"top_k", 9}, {"coins", "gumbel"}}}) {
    SCOPED_TRACE(options.dump());
    std::vector<TreeRange> ranges = thirds(options);
    for (const bool empty : {false, true}) {
      if (empty) ranges[0].parents = ranges[0].ranks = {};
      for (const VerifyWith verify : {VerifyWith::one_pass, VerifyWith::batch_of_prefixes}) {
        Decode fast = decode(with(trees_json(ranges)), options);
        fast.loop.verify = verify;
        const GenerationRecord record = fast.run(), plain = decode(choose("autoregressive"), options).run();
        EXPECT_EQ(record.tokens, plain.tokens);
        if (options["temperature"] == 0) {
          EXPECT_EQ(record.row_hashes, plain.row_hashes);
        }
        std::set<int> seen;
        for (const StepRecord& step : record.steps) {
          if (step.tree_number >= 0) seen.insert(step.tree_number);  // the last step may draft nothing
        }
        EXPECT_EQ(seen.size(), 3u);
      }
    }
  }
}

// A step that drafts nothing has run the draft model once, to know its confidence.
TEST_F(TreesByConfidenceDraft, AnEmptyTreeCostsOneForwardOfTheDraft) {
  const json greedy = {{"temperature", 0}};
  std::vector<TreeRange> ranges = thirds(greedy);
  ranges[0].parents = ranges[0].ranks = {};
  const GenerationRecord record = decode(with(trees_json(ranges)), greedy).run();
  int empty = 0;
  for (const StepRecord& step : record.steps) {
    if (step.tree_number != 0) continue;
    ++empty;
    EXPECT_TRUE(step.drafted.empty());
    EXPECT_EQ(step.draft_calls, 1);
    EXPECT_EQ(step.rows, 1);
    EXPECT_TRUE(step.ended_by == EndedBy::none || &step == &record.steps.back());
  }
  EXPECT_GT(empty, 5);
}

TEST_F(TreesByConfidenceDraft, TheOptionOnlyAddsToTheRecord) {
  for (const json& options : {json{{"temperature", 0}}, json{{"temperature", 1}}}) {
    const GenerationRecord without = decode(choose("tree_speculation", {{"widths", {2, 2}}}), options).run(),
                           with = decode(choose("tree_speculation",
                                                {{"widths", {2, 2}}, {"root_confidence", true}}),
                                         options)
                                      .run();
    EXPECT_EQ(with.tokens, without.tokens);
    EXPECT_EQ(with.draft.rows, without.draft.rows);
    ASSERT_EQ(with.steps.size(), without.steps.size());
    for (std::size_t i = 0; i < with.steps.size(); ++i) {
      EXPECT_EQ(with.steps[i].drafted.size(), without.steps[i].drafted.size());
      EXPECT_EQ(without.steps[i].root_confidence, -1);
      EXPECT_EQ(with.steps[i].tree_number, -1);
      if (!with.steps[i].drafted.empty()) {
        EXPECT_GT(with.steps[i].root_confidence, 0);
        EXPECT_LE(with.steps[i].root_confidence, 1);
      }
    }
  }
}

// Steps of different shapes cannot be planned on a device, and a device computes no confidence.
TEST_F(TreesByConfidenceDraft, ADeviceDoesNotPlanSuchSteps) {
  Resources resources;
  resources.target = target;
  resources.draft = draft;
  resources.drafts = {draft};
  resources.capacity = 64;
  const auto planned = [&](const StrategyChoice& choice) {
    return choice.make(resources)->device_plan({.temperature = 1}).has_value();
  };
  EXPECT_TRUE(planned(choose("tree_speculation", {{"widths", {2, 2}}})));
  EXPECT_FALSE(planned(choose("tree_speculation", {{"widths", {2, 2}}, {"root_confidence", true}})));
  EXPECT_FALSE(planned(with(trees_json({{0, .5, {0}, {1}}, {.5, 1, {0, 1}, {1, 1}}}))));
  EXPECT_TRUE(planned(with(trees_json({{0, 1, {0, 1}, {1, 1}}})))) << "one tree for every confidence";
}

TEST_F(TreesByConfidenceDraft, BadSettingsAreRefused) {
  const json file = trees_json({kWideTree, kMixedTree, kChainTree});
  const auto error_of = [&](const StrategyChoice& choice, const ModelPtr& model) {
    return message_of([&] {
      DecodeLoop(target, model, choice,
                 {.capacity = 64,
                  .costs = std::make_shared<const StepCosts>(StepCosts{.target_ns = {1}, .draft_ns = {1}})});
    });
  };
  EXPECT_EQ(error_of(with(file), draft), "no error");
  EXPECT_THAT(
      error_of(with(file, {{"budget", "auto"}}), draft),
      AllOf(HasSubstr("tree_speculation: budget: got auto, and 3 trees in"), HasSubstr("expected fixed")));
  EXPECT_EQ(error_of(with(trees_json({{0, 1, {0}, {1}}}), {{"budget", "auto"}}), draft), "no error");
  EXPECT_THAT(error_of(with(file, {{"sequences", 2}}), draft), HasSubstr("only one of them"));
  // Three trees, the second with 33 children of node 1; the draft can draw 32 tokens.
  const TinyModel tiny = random_llama(tiny_shape(), 1);
  const ModelPtr few = load_tiny(random_llama(tiny_draft_shape(tiny.config), 2), target);
  TreeRange wide = kMixedTree;
  wide.parents = {0}, wide.ranks = {1};
  for (int rank = 1; rank <= 33; ++rank) wide.parents.push_back(1), wide.ranks.push_back(rank);
  EXPECT_THAT(error_of(with(trees_json({kWideTree, wide, kChainTree})), few),
              AllOf(HasSubstr("/trees/1"), HasSubstr("node 1 with 33 children")));
}

}  // namespace
}  // namespace speclab::trees_by_confidence_test
