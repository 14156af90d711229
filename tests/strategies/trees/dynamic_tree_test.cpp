#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <utility>

#include "core/theory/step_costs.h"
#include "tests/base/error_text.h"
#include "tests/decoding/loop/loop_fixture.h"
#include "tests/strategies/draft_rows.h"

namespace speclab::dynamic_tree_test {
namespace {

using namespace speclab::fixtures;
using ::testing::HasSubstr;

using Path = std::vector<Token>;

/// The paths of all drafted nodes of a step.
std::set<Path> paths_of(const StepRecord& step) {
  std::vector<Path> paths = {{}};
  for (const DraftedToken& token : step.drafted) {
    paths.push_back(paths[static_cast<std::size_t>(token.parent)]);
    paths.back().push_back(token.id);
  }
  return {paths.begin() + 1, paths.end()};
}

/// All paths of one and two tokens after a text, most likely first.
std::vector<Path> likely_paths(const ModelPtr& draft, const std::vector<Token>& text) {
  std::vector<std::pair<double, Path>> all;
  Distribution q, next;
  q.assign_logits(row_after(draft, text), {.temperature = 1}, {}, 64);
  for (Token first = 0; first < 64; ++first) {
    all.push_back({q.prob(first), {first}});
    std::vector<Token> longer = text;
    longer.push_back(first);
    next.assign_logits(row_after(draft, longer), {.temperature = 1}, {}, 64);
    for (Token second = 0; second < 64; ++second)
      all.push_back({q.prob(first) * next.prob(second), {first, second}});
  }
  std::stable_sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  std::vector<Path> out;
  for (auto& [reach, path] : all) out.push_back(std::move(path));
  return out;
}

TEST(DynamicTree, KeepsTheMostLikelyNodesOfAll) {
  const ModelPtr target = tiny_target(3), draft = Model::with_layers(target, {0});
  for (const double temperature : {0., 1.}) {
    const Decode decode{
        .target = target,
        .draft = draft,
        .strategy = choose("dynamic_tree", {{"depth", 2}, {"expand", 64}, {"branches", 64}, {"nodes", 20}}),
        .options = {{"max_tokens", 12}, {"temperature", temperature}}};
    const GenerationRecord record = decode.run();
    std::vector<Token> text = decode.prompt;
    text.push_back(record.tokens[0]);
    std::size_t emitted = 1;
    int compared = 0;
    for (const StepRecord& step : record.steps) {
      if (record.tokens.size() - emitted > 2) {
        const std::vector<Path> likely = likely_paths(draft, text);
        EXPECT_EQ(paths_of(step), std::set<Path>(likely.begin(), likely.begin() + 20));
        ++compared;
      }
      for (int i = 0; i < step.emitted; ++i) text.push_back(record.tokens[emitted++]);
    }
    EXPECT_GT(compared, 3);
  }
}

TEST(DynamicTree, ExpandsOnlyTheMostLikelyNodesOfALevel) {
  const ModelPtr target = tiny_target(3), draft = Model::with_layers(target, {0});
  const Decode decode{
      .target = target,
      .draft = draft,
      .strategy = choose("dynamic_tree", {{"depth", 3}, {"expand", 2}, {"branches", 4}, {"nodes", 127}}),
      .options = {{"max_tokens", 20}}};
  const StepRecord step = decode.run().steps[0];
  EXPECT_EQ(step.drafted.size(), 4u + 8 + 8);
  EXPECT_EQ(step.draft_calls, 3);
  for (const std::size_t first : {4u, 12u}) {
    std::set<int> parents;
    for (std::size_t i = first; i < first + 8; ++i) parents.insert(step.drafted[i].parent);
    EXPECT_EQ(parents.size(), 2u);
  }
  EXPECT_EQ(step.drafted[4].parent, 1);  // the best child of the pending token
}

TEST(DynamicTree, KeepsNodesWhileTheyAreWorthTheirTime) {
  const ModelPtr target = tiny_target(3), draft = Model::with_layers(target, {0});
  const theory::RowTimes times(std::map<int, double>{{1, 2}, {4, 2.1}, {40, 8}});
  const auto run = [&](json costs) {
    costs.update({{"depth", 3}, {"expand", 4}, {"branches", 4}, {"nodes", 40}});
    return Decode{.target = target,
                  .draft = draft,
                  .strategy = choose("dynamic_tree", costs),
                  .options = {{"max_tokens", 40}}}
        .run();
  };
  const GenerationRecord all = run(json::object()),
                         few = run({{"rows", {40, 1, 4}}, {"times", {8, 2, 2.1}}, {"c", .01}});
  EXPECT_EQ(all.tokens, few.tokens);
  EXPECT_EQ(all.steps[0].drafted.size(), 4u + 16 + 16);
  // Node by node, most likely first, as many of all nodes as give the most tokens in a unit of time.
  std::vector<double> reach;
  for (const DraftedToken& token : all.steps[0].drafted)
    reach.push_back(token.confidence *
                    (token.parent == 0 ? 1 : reach[static_cast<std::size_t>(token.parent) - 1]));
  std::sort(reach.begin(), reach.end(), std::greater<>());
  double tokens = 1, best = 0;
  std::size_t count = 0;
  for (std::size_t n = 1; n <= reach.size(); ++n) {
    tokens += reach[n - 1];
    const double rate = tokens / (times.ratio(static_cast<int>(n) + 1) + 3 * .01);
    if (rate > best) best = rate, count = n;
  }
  EXPECT_EQ(few.steps[0].drafted.size(), count);
  EXPECT_GT(count, 1u);
  EXPECT_LT(count, 36u);
  // Rows that cost more than any token is worth: no draft. A draft that costs as much: one level.
  EXPECT_EQ(drafted(run({{"rows", {1, 2}}, {"times", {1, 9}}})), 0);
  for (const StepRecord& step : run({{"rows", {1, 127}}, {"times", {1, 1}}, {"c", 3}}).steps)
    EXPECT_LE(step.draft_calls, 1);
}

TEST(DynamicTree, RefusesOptionsThatContradictEachOther) {
  const ModelPtr target = tiny_target();
  const auto error_with = [&](const json& options) {
    return message_of([&] { DecodeLoop(target, target, choose("dynamic_tree", options), {.capacity = 64}); });
  };
  EXPECT_EQ(error_with(json::object()), "no error");
  EXPECT_THAT(error_with({{"rows", {1, 2}}, {"times", {1}}}), HasSubstr("2 and 1 entries"));
  EXPECT_THAT(error_with({{"rows", {2}}, {"times", {1}}}), HasSubstr("1"));
  EXPECT_THAT(error_with({{"depth", 42}, {"expand", 25}}), HasSubstr("41 levels of 25 nodes"));
}

}  // namespace
}  // namespace speclab::dynamic_tree_test
