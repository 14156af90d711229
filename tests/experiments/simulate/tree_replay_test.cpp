// Trees that are replayed from the ranks of a trace take the steps of real runs of tiny models: at
// temperature 0, under coupled coins, up to an end token, and with a draft model whose context is too short
// for the text.
#include "experiments/simulate/replay/tree_replay.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/theory/tree_costs.h"
#include "experiments/analysis/trees/tree_acceptance.h"
#include "tests/decoding/loop/loop_fixture.h"

namespace speclab::tree_replay_test {
namespace {

namespace tiny = speclab::fixtures;
using nlohmann::json;

constexpr int kTokens = 120;

/// A run with one case, which is a trace of trees.
RunData rank_run(const GenerationRecord& record, const json& options) {
  auto data = std::make_shared<CaseData>(), reference = std::make_shared<CaseData>();
  data->config = {{"id", "tree"},
                  {"strategy", "tree_speculation"},
                  {"draft", "d"},
                  {"loss_class", "L2"},
                  {"options", options}};
  data->config["options"]["emit_at_most"] = 1;
  data->config["options"]["max_tokens"] = kTokens;
  data->reference = reference;
  LineRecord line;
  line.prompt = "p";
  line.turns = {record};
  data->prompts = {"p"};
  data->categories = {""};
  data->lines = {std::make_shared<const PromptLines>(PromptLines{{line}})};
  RunData run;
  run.config = json::object();
  run.cases = {data};
  return run;
}

/// What a replay must count.
TreeReplayed counted(const GenerationRecord& record) {
  TreeReplayed out;
  for (const StepRecord& step : record.steps) {
    out.steps += 1, out.tokens += step.emitted, out.accepted += step.accepted;
    out.drafted += static_cast<double>(step.drafted.size());
    const auto rows = static_cast<std::size_t>(step.rows);
    if (out.rows.size() <= rows) out.rows.resize(rows + 1);
    out.rows[rows] += 1;
  }
  return out;
}

double draft_calls(const GenerationRecord& record) {
  double calls = 0;
  for (const StepRecord& step : record.steps) calls += step.draft_calls;
  return calls;
}

double sum_of_forwards(const TreeReplayed& counts) {
  double sum = 0;
  for (const double count : counts.forwards) sum += count;
  return sum;
}

class TreeReplay : public ::testing::Test {
 protected:
  TreeReplay() {
    decode_.target = tiny::tiny_target();
    decode_.draft = Model::with_layers(decode_.target, {0});
    decode_.options = {{"max_tokens", kTokens}};
  }

  static json with_defaults(json options) {
    const json usual = {
        {"children", "best"}, {"budget", "fixed"}, {"draft_temperature", -1}, {"temperature", 0}};
    for (const auto& [name, value] : usual.items()) {
      if (!options.contains(name)) options[name] = value;
    }
    return options;
  }

  /// The trace of one level of `width` children.
  RankTrace trace(int width, const json& more = json::object()) {
    json options = {{"widths", {width}}, {"children", "best"}};
    options.update(more);
    tiny::Decode decode = decode_;
    decode.strategy = tiny::choose("tree_speculation", options);
    decode.options["emit_at_most"] = 1;
    const GenerationRecord record = decode.run();
    std::vector<RankTrace> traces = read_rank_traces(rank_run(record, with_defaults(options)));
    EXPECT_EQ(traces.size(), 1u);
    return traces.at(0);
  }

  /// Compares the replay of these trees with a real run of the strategy with these options.
  void expect_same(const RankTrace& trace, const TreesByConfidence& trees, json options) {
    if (!options.contains("children")) options["children"] = "best";
    tiny::Decode decode = decode_;
    decode.strategy = tiny::choose("tree_speculation", options);
    const GenerationRecord real = decode.run();
    const TreeReplayed expected = counted(real),
                       got = replay_trees(trace, std::vector<std::size_t>{0}, trees);
    EXPECT_EQ(got.steps, expected.steps) << options;
    EXPECT_EQ(got.tokens, expected.tokens) << options;
    EXPECT_EQ(got.accepted, expected.accepted) << options;
    EXPECT_EQ(got.drafted, expected.drafted) << options;
    EXPECT_EQ(got.rows, expected.rows) << options;
    EXPECT_EQ(sum_of_forwards(got), draft_calls(real)) << options;
  }

  std::string tree_file(const json& content) {
    const auto path = dir_.path() / ("tree" + std::to_string(files_++) + ".json");
    std::ofstream(path) << content.dump();
    return path.string();
  }

  tiny::Decode decode_;
  tiny::TempDir dir_;
  int files_ = 0;
};

const json kIrregular = {{"format", "speclab tree 1"},
                         {"parents", {0, 0, 0, 1, 1, 2, 4, 4, 7, 9}},
                         {"ranks", {1, 2, 3, 1, 2, 1, 1, 2, 1, 1}}};

TEST_F(TreeReplay, TakesTheStepsOfARealRun) {
  const RankTrace ranks = trace(6);
  EXPECT_EQ(ranks.width, 6);
  EXPECT_GT(std::ranges::count(ranks.texts[0].ranks, 0), 0);
  EXPECT_GT(std::ranges::count_if(ranks.texts[0].ranks, [](int rank) { return rank > 0; }), 0)
      << "siblings must matter";
  for (const std::vector<int>& widths :
       std::vector<std::vector<int>>{{1}, {6}, {1, 1, 1, 1}, {3, 2, 1}, {2, 2, 2, 1, 1}, {6, 4}})
    expect_same(ranks, TreeShape::of_widths(widths, "test"), {{"widths", widths}});
  const std::string file = tree_file(kIrregular);
  expect_same(ranks, named_trees(file).trees, {{"tree", file}});
  expect_same(ranks, named_trees("3,2,1").trees,
              {{"widths", {3, 2, 1}}, {"children", "without_replacement"}});
}

TEST_F(TreeReplay, TakesTheStepsOfARealRunUnderCoupledCoins) {
  decode_.options["temperature"] = .8;
  decode_.options["coins"] = "gumbel";
  const RankTrace ranks = trace(6);
  for (const std::vector<int>& widths : std::vector<std::vector<int>>{{6}, {3, 2, 1}, {1, 1, 1}})
    expect_same(ranks, TreeShape::of_widths(widths, "test"), {{"widths", widths}});
}

TEST_F(TreeReplay, AnEndTokenEndsTheText) {
  decode_.options["temperature"] = .8;
  decode_.options["coins"] = "gumbel";
  const std::vector<Token> text = decode_.run().tokens;
  std::size_t latest = 0;  // the token that occurs first as late as possible
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto here = text.begin() + static_cast<std::ptrdiff_t>(i);
    if (std::find(text.begin(), here, *here) == here) latest = i;
  }
  ASSERT_GT(latest, 5u);
  decode_.eos = {text[latest]};
  const RankTrace ranks = trace(6);
  ASSERT_EQ(ranks.texts[0].ranks.size(), latest);
  EXPECT_EQ(ranks.texts[0].depth_limit, kTokens - 2) << "drafts may reach as far as the limit of the text";
  for (const std::vector<int>& widths : std::vector<std::vector<int>>{{6}, {3, 2, 1}, {1, 1, 1, 1, 1, 1}})
    expect_same(ranks, TreeShape::of_widths(widths, "test"), {{"widths", widths}});
}

TEST_F(TreeReplay, AShortContextOfTheDraftModelCutsTrees) {
  tiny::Shape shape = tiny::tiny_shape();
  shape.context = 60;
  decode_.draft = tiny::load_tiny(tiny::random_llama(shape, 1));  // the target itself, with a short context
  const RankTrace ranks = trace(3);
  EXPECT_LT(ranks.texts[0].depth_limit, 60);
  expect_same(ranks, TreeShape::of_widths(std::vector<int>{2, 1, 1, 1, 1}, "test"),
              {{"widths", {2, 1, 1, 1, 1}}});
}

TEST_F(TreeReplay, TheConfidenceChoosesAmongSeveralTrees) {
  const json trees = {{"format", "speclab tree 2"},
                      {"trees",
                       {{{"from", 0}, {"to", .2}, {"parents", json::array()}, {"ranks", json::array()}},
                        {{"from", .2}, {"to", .5}, {"parents", {0, 0, 0}}, {"ranks", {1, 2, 3}}},
                        {{"from", .5}, {"to", 1}, {"parents", {0, 1, 2}}, {"ranks", {1, 1, 1}}}}}};
  const std::string file = tree_file(trees);
  const RankTrace ranks = trace(4, {{"root_confidence", true}});
  expect_same(ranks, named_trees(file).trees, {{"tree", file}});
  const RankTrace without = trace(4);
  EXPECT_THROW(replay_trees(without, std::vector<std::size_t>{0}, named_trees(file).trees), Error);
}

TEST_F(TreeReplay, MoreChildrenThanTheTraceHasAreRefused) {
  const RankTrace ranks = trace(3);
  const auto replay = [&](const char* widths) {
    return replay_trees(ranks, std::vector<std::size_t>{0}, named_trees(widths).trees);
  };
  EXPECT_GT(replay("2,3").steps, 0);
  EXPECT_THROW(replay("4"), Error);
  EXPECT_THROW(replay("2,4"), Error);
  EXPECT_THROW(named_trees("3,,1"), Error);
  EXPECT_THROW(named_trees("no such file"), Error);
}

TEST_F(TreeReplay, OnlyTracesOfTheBestTokensHaveRanks) {
  const auto best = [&](const json& options) {
    CaseData data;
    data.config = {{"options", options}};
    return drafts_best_tokens(data);
  };
  EXPECT_TRUE(best({{"children", "best"}, {"temperature", .7}}));
  EXPECT_TRUE(best({{"children", "without_replacement"}, {"temperature", 0}, {"draft_temperature", -1}}));
  EXPECT_FALSE(best({{"children", "without_replacement"}, {"temperature", .7}, {"draft_temperature", -1}}));
  EXPECT_TRUE(best({{"children", "without_replacement"}, {"temperature", .7}, {"draft_temperature", 0}}));
  EXPECT_FALSE(best({{"children", "independent"}, {"temperature", 0}}));
}

TEST(TimeOfTrees, IsTheStepTimeOfTheTreeForWholeTrees) {
  theory::TreeCosts costs;
  costs.t_ar = 10;
  costs.target = theory::RowTimes({{1, 9.0}, {16, 14.0}});
  costs.draft = theory::RowTimes({{1, .5}, {8, .9}});
  costs.draft_step = .3, costs.draft_token = .02, costs.accept_step = .1, costs.accept_token = .05;
  costs.other_step = .2, costs.other_token = .01;
  const TreeShape shape = TreeShape::of_widths(std::vector<int>{3, 2, 1}, "test");
  theory::RankedTree tree;
  for (int node = 0; node < shape.nodes(); ++node) {
    for (int child = 0; child < shape.children(node); ++child) {
      tree.parents.push_back(node);
      tree.ranks.push_back(child + 1);
    }
  }
  RankedText text{.prompt = "p", .turn = 0, .ranks = std::vector<int>(20, -1), .confidence = {}};
  text.ranks[0] = 2, text.ranks[1] = 0, text.ranks[2] = 0;  // the first step accepts three tokens
  text.confidence.assign(20, -1);
  text.depth_limit = 1000;
  const TreesByConfidence trees(shape);
  const TreeReplayed counts = TreeWalk(trees).replay(text);
  EXPECT_EQ(counts.steps, 17);
  EXPECT_EQ(counts.accepted, 3);
  const double mean = theory::tree_step_times(tree, counts.tau(), costs).total();
  EXPECT_NEAR(time_of_trees(counts, costs), 17 * mean, 1e-9);
}

}  // namespace
}  // namespace speclab::tree_replay_test
