#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>
#include <tuple>

#include "core/decoding/drafting/tree_shape.h"
#include "core/decoding/loop/judged_step.h"
#include "core/measure/run_result.h"
#include "tests/base/error_text.h"
#include "tests/decoding/loop/loop_fixture.h"

// Trees of up to 1,024 rows.

namespace speclab::large_tree_test {
namespace {

using namespace speclab::fixtures;
using ::testing::HasSubstr;

constexpr std::size_t kMost = TreeShape::kMostDrafted;

struct LargeModels {
  ModelPtr target, draft;
};

/// A target with room for a chain of 1,023 tokens, and its first layer as the draft.
LargeModels large_models() {
  Shape shape = tiny_shape();
  shape.context = 2048;
  const ModelPtr target = load_tiny(random_llama(shape, 3));
  return {target, Model::with_layers(target, {0})};
}

/// Decodes with trees and without. Expects the same tokens and rows. Returns the record with trees.
GenerationRecord compare_with_plain(Decode decode) {
  const GenerationRecord record = decode.run();
  decode.strategy = choose("autoregressive");
  decode.draft = nullptr;
  const GenerationRecord plain = decode.run();
  EXPECT_EQ(record.tokens, plain.tokens);
  EXPECT_EQ(record.row_hashes, plain.row_hashes);
  return record;
}

std::size_t largest_draft(const GenerationRecord& record) {
  std::size_t largest = 0;
  for (const StepRecord& step : record.steps) largest = std::max(largest, step.drafted.size());
  return largest;
}

/// A tree of `drafted` tokens in which the parent of a node is one of the `near` nodes before it: deep if
/// `near` is small.
json random_tree(int drafted, int near, unsigned seed) {
  std::mt19937 random(seed);
  json parents = json::array(), ranks = json::array();
  std::vector<int> children(static_cast<std::size_t>(drafted) + 1);
  for (int node = 1; node <= drafted; ++node) {
    const int parent = node - 1 - static_cast<int>(random() % static_cast<unsigned>(std::min(node, near)));
    parents.push_back(parent);
    ranks.push_back(++children[static_cast<std::size_t>(parent)]);
  }
  return {{"format", kTreeFormat}, {"parents", parents}, {"ranks", ranks}};
}

StrategyChoice tree_of_file(const TempDir& dir, const json& tree) {
  const auto path = dir.path() / "tree.json";
  write_json_file(path, tree);
  return choose("tree_speculation", {{"tree", path.string()}});
}

TEST(LargeTree, WideTreesGiveTheTextOfAutoregressiveDecoding) {
  const auto [target, draft] = large_models();
  for (const json& options :
       {json{{"temperature", 0}}, json{{"temperature", 1}, {"rule", "coupled"}, {"coins", "gumbel"}}}) {
    for (const std::vector<int>& widths : {std::vector<int>{31, 32}, {3, 5, 2, 2, 15}}) {
      SCOPED_TRACE(options.dump() + json(widths).dump());
      Decode decode{.target = target,
                    .draft = draft,
                    .strategy = choose("tree_speculation", {{"widths", widths}}),
                    .options = options};
      decode.options["max_tokens"] = 24;
      const GenerationRecord record = compare_with_plain(decode);
      EXPECT_EQ(largest_draft(record), widths.size() == 2 ? kMost : 3u + 15 + 30 + 60 + 900);
      EXPECT_GT(total(record, &StepRecord::accepted), 0);
      EXPECT_LT(record.steps.size(), 23u) << "fewer steps than tokens after the first";
    }
  }
}

TEST(LargeTree, DeepTreesOfAnyShapeGiveTheTextOfAutoregressiveDecoding) {
  const auto [target, draft] = large_models();
  const TempDir dir;
  for (const unsigned seed : {1u, 2u}) {
    SCOPED_TRACE(seed);
    const json tree = random_tree(static_cast<int>(kMost), 12, seed);
    EXPECT_GT(TreeShape::of_json(tree, "x").depth(), 100);
    const GenerationRecord record = compare_with_plain({.target = target,
                                                        .draft = draft,
                                                        .strategy = tree_of_file(dir, tree),
                                                        .options = {{"max_tokens", 260}},
                                                        .loop = {.capacity = 600}});
    EXPECT_EQ(largest_draft(record), kMost);
    EXPECT_GT(total(record, &StepRecord::accepted), 0);
  }
}

// The draft is the target, so the first step accepts the whole chain.
TEST(LargeTree, AChainOf1023TokensIsAcceptedInOneStep) {
  const ModelPtr target = large_models().target;
  const GenerationRecord record =
      compare_with_plain({.target = target,
                          .draft = target,
                          .strategy = choose("tree_speculation", {{"widths", std::vector<int>(kMost, 1)}}),
                          .options = {{"max_tokens", 1100}},
                          .loop = {.capacity = 1200}});
  EXPECT_EQ(record.steps.at(0).accepted, static_cast<int>(kMost));
  EXPECT_EQ(record.steps.at(0).rows, static_cast<int>(kMost) + 1);
}

TEST(LargeTree, EachWayOfVerifyingGivesTheSameText) {
  const auto [target, draft] = large_models();
  for (const VerifyWith verify : {VerifyWith::batch_of_leaves, VerifyWith::batch_of_prefixes}) {
    const GenerationRecord record =
        compare_with_plain({.target = target,
                            .draft = draft,
                            .strategy = choose("tree_speculation", {{"widths", {31, 32}}}),
                            .options = {{"max_tokens", 12}},
                            .loop = {.verify = verify}});
    EXPECT_EQ(largest_draft(record), kMost);
  }
}

// 255 nodes of a level are expanded, and the draft model is fed nearly as many nodes as the target.
TEST(LargeTree, DynamicTreesKeepUpTo1023Nodes) {
  const auto [target, draft] = large_models();
  const GenerationRecord record = compare_with_plain(
      {.target = target,
       .draft = draft,
       .strategy =
           choose("dynamic_tree", {{"depth", 5}, {"expand", 255}, {"branches", 20}, {"nodes", kMost}}),
       .options = {{"max_tokens", 20}}});
  EXPECT_EQ(largest_draft(record), kMost);
}

TEST(LargeTree, MergedTreesGiveTheTextOfAutoregressiveDecoding) {
  const auto [target, draft] = large_models();
  Decode decode{
      .target = target,
      .strategy = choose("merged_trees",
                         {{"sources", {"draft"}}, {"sequences", {16, 15}}, {"length", 33}, {"nodes", kMost}}),
      .options = {{"temperature", 0}, {"max_tokens", 60}},
      .drafts = {draft, target}};
  const std::vector<Token> text = decode.run().tokens;
  EXPECT_EQ(text, (Decode{.target = target, .options = decode.options}.run().tokens));
  decode.options["temperature"] = 1;
  EXPECT_EQ(largest_draft(decode.run()), 31u * 33);
}

// Two sources of more than 128 tokens each.
TEST(LargeTree, MergedTreesDrawEachTokenWithACoinOfItsOwn) {
  const auto [target, draft] = large_models();
  std::set<std::tuple<std::int64_t, std::uint32_t>> seen;
  int drawn = 0;
  Coins::Watch watch = [&](const Coins::Address& coin, double number) {
    if (coin.purpose != Purpose::draft) return number;
    ++drawn;
    EXPECT_TRUE(seen.insert({coin.position, coin.draw}).second) << coin.position << " " << coin.draw;
    return number;
  };
  const GenerationRecord record = Decode{
      .target = target,
      .strategy = choose("merged_trees",
                         {{"sources", {"draft"}}, {"sequences", {16, 15}}, {"length", 33}, {"nodes", kMost}}),
      .options = {{"temperature", 1}, {"max_tokens", 50}},
      .coins = Coins::watched(7, 3, &watch),
      .drafts = {draft,
                 Model::with_layers(
                     target, {1})}}.run();
  EXPECT_GE(drawn, 1000);
  EXPECT_EQ(drawn, drafted(record));
}

// At temperature 1 a row of q takes 4 bytes for each token of the vocabulary.
TEST(LargeTree, HasARowForEachNodeWithChildren) {
  const auto [target, draft] = large_models();
  int whole = 0;
  Decode decode{.target = target,
                .draft = draft,
                .strategy = choose("tree_speculation", {{"widths", {31, 32}}}),
                .options = {{"temperature", 1}, {"max_tokens", 12}}};
  decode.loop.on_judged = [&](const JudgedStep& step) {
    if (step.draft.tree.drafted() != static_cast<int>(kMost)) return;
    ++whole;
    EXPECT_EQ(step.draft.q_used, 32);
    EXPECT_LE(step.draft.rows_copied(), 30u + 31) << "for the nodes that the rule reaches";
  };
  decode.run();
  EXPECT_GT(whole, 0);
}

TEST(LargeTree, TreesOf1024TokensAreRefused) {
  const auto [target, draft] = large_models();
  const auto error_of = [&](const StrategyChoice& strategy) {
    return message_of([&] { DecodeLoop(target, draft, strategy, {.capacity = 64}); });
  };
  const auto tree = [](const json& options) { return choose("tree_speculation", options); };
  EXPECT_EQ(error_of(tree({{"widths", {31, 32}}})), "no error");
  EXPECT_THAT(error_of(tree({{"widths", {32, 31}}})),
              HasSubstr("tree_speculation: widths: got more than 1023 tokens, expected 1 to 1023 tokens"));
  EXPECT_THAT(error_of(tree({{"widths", std::vector<int>(kMost + 1, 1)}})), HasSubstr("more than 1023"));
  EXPECT_THAT(error_of(tree({{"sequences", 512}, {"length", 2}})),
              HasSubstr("tree_speculation: sequences, length: got more than 1023 tokens"));
  EXPECT_THAT(message_of([&] { tree({{"widths", {1024}}}); }), HasSubstr("1 to 1023"));
  const TempDir dir;
  EXPECT_EQ(error_of(tree_of_file(dir, random_tree(1023, 50, 1))), "no error");
  EXPECT_THAT(error_of(tree_of_file(dir, random_tree(1024, 50, 1))),
              HasSubstr("/parents: got 1024 nodes, expected 1 to 1023 nodes"));
  EXPECT_THAT(message_of([] { choose("dynamic_tree", {{"nodes", 1024}}); }), HasSubstr("1 to 1023"));
  EXPECT_THAT(error_of(choose("dynamic_tree", {{"depth", 5}, {"expand", 256}})),
              HasSubstr("at most 1023 nodes that get children"));
  EXPECT_THAT(error_of(choose("merged_trees", {{"sequences", {16}}, {"length", 64}})),
              HasSubstr("got 16 x 64 tokens, expected at most 1023"));
}

}  // namespace
}  // namespace speclab::large_tree_test
