#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "core/decoding/drafting/tree_shape.h"
#include "core/measure/run_result.h"
#include "tests/base/error_text.h"
#include "core/theory/audit/enumerate.h"
#include "tests/decoding/loop/loop_fixture.h"
#include "tests/strategies/draft_rows.h"

namespace speclab::tree_speculation_test {
namespace {

using namespace speclab::fixtures;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

StrategyChoice tree_of(const std::vector<int>& widths, json more = json::object()) {
  more["widths"] = widths;
  return choose("tree_speculation", more);
}

// After rejections, other branches and bonus tokens the cache must contain exactly the text: every level
// equals that of a fresh prefill of its path.
TEST(TreeSpeculation, GreedyChildrenAreTheBestTokensOfTheRowOfTheirPath) {
  const ModelPtr target = tiny_target(3), draft = Model::with_layers(target, {0});
  const Decode decode{
      .target = target, .draft = draft, .strategy = tree_of({3, 2, 1, 2}), .options = {{"max_tokens", 40}}};
  const GenerationRecord record = decode.run();
  std::vector<Token> text = decode.prompt;
  text.push_back(record.tokens[0]);
  std::size_t emitted = 1;
  int branches = 0, full = 0;
  for (const StepRecord& step : record.steps) {
    for_families(text, step,
                 [&](const std::vector<Token>& path, const std::vector<const DraftedToken*>& children) {
                   const std::vector<Token> best = order_of(row_after(draft, path));
                   for (std::size_t i = 0; i < children.size(); ++i) EXPECT_EQ(children[i]->id, best[i]);
                 });
    if (record.tokens.size() - emitted > 4) {
      EXPECT_EQ(step.drafted.size(), 3u + 6 + 6 + 12);
      EXPECT_EQ(step.draft_calls, 4);
    }
    for (std::size_t i = 1; i < step.drafted.size(); ++i)
      branches +=
          step.drafted[i].accepted && step.drafted[i].id != step.drafted[0].id && step.drafted[i].parent == 0;
    full += step.accepted == 4;
    for (int i = 0; i < step.emitted; ++i) text.push_back(record.tokens[emitted++]);
  }
  EXPECT_EQ(emitted, record.tokens.size());
  EXPECT_GT(branches, 3);
  EXPECT_GT(full, 0);
}

TEST(TreeSpeculation, WidthsOfOneAreSpeculativeSampling) {
  const ModelPtr target = tiny_target(3), draft = Model::with_layers(target, {0});
  for (const json& options :
       {json{{"temperature", 0}}, json{{"temperature", 1}}, json{{"temperature", 1}, {"coins", "gumbel"}},
        json{{"temperature", .9}, {"top_k", 9}, {"repetition_penalty", 1.3}}}) {
    SCOPED_TRACE(options.dump());
    Decode chain{.target = target,
                 .draft = draft,
                 .strategy = choose("speculative_sampling", {{"gamma", 3}}),
                 .options = options};
    chain.options["max_tokens"] = 40;
    Decode tree = chain;
    tree.strategy = tree_of({1, 1, 1});
    const GenerationRecord a = tree.run(), b = chain.run();
    EXPECT_EQ(a.tokens, b.tokens);
    ASSERT_EQ(a.steps.size(), b.steps.size());
    for (std::size_t i = 0; i < a.steps.size(); ++i) {
      ASSERT_EQ(a.steps[i].drafted.size(), b.steps[i].drafted.size());
      for (std::size_t j = 0; j < a.steps[i].drafted.size(); ++j) {
        const DraftedToken &x = a.steps[i].drafted[j], &y = b.steps[i].drafted[j];
        EXPECT_EQ(x.id, y.id);
        EXPECT_EQ(x.q, y.q);
        EXPECT_EQ(x.confidence, y.confidence);
        EXPECT_EQ(x.expected, y.expected);
      }
    }
    EXPECT_EQ(a.draft.rows, b.draft.rows);
    EXPECT_EQ(a.draft.calls, b.draft.calls);
    EXPECT_EQ(a.draft.keys, b.draft.keys);
    EXPECT_EQ(a.draft.kv_bytes, b.draft.kv_bytes);
  }
}

// The expected q of a child: that of the row, without the earlier siblings.
TEST(TreeSpeculation, SampledChildrenAreDrawnWithoutReplacement) {
  const ModelPtr target = tiny_target(3), draft = Model::with_layers(target, {0});
  const Decode decode{.target = target,
                      .draft = draft,
                      .strategy = tree_of({3, 2}, {{"draft_top_k", 6}}),
                      .options = {{"temperature", 1}, {"max_tokens", 40}}};
  const GenerationRecord record = decode.run();
  std::vector<Token> text = decode.prompt;
  text.push_back(record.tokens[0]);
  std::size_t emitted = 1;
  int families = 0;
  std::set<Token> seconds;
  for (const StepRecord& step : record.steps) {
    for_families(text, step,
                 [&](const std::vector<Token>& path, const std::vector<const DraftedToken*>& children) {
                   Distribution q;
                   q.assign_logits(row_after(draft, path), {.temperature = 1, .top_k = 6}, {}, 64);
                   double left = 1;
                   for (const DraftedToken* child : children) {
                     EXPECT_NEAR(child->confidence, q.prob(child->id) / left, 1e-6);
                     EXPECT_GT(child->confidence, 0);  // so no token comes twice
                     left -= q.prob(child->id);
                   }
                   ++families;
                   seconds.insert(children[1]->id);
                 });
    for (int i = 0; i < step.emitted; ++i) text.push_back(record.tokens[emitted++]);
  }
  EXPECT_GT(families, 30);
  EXPECT_GT(seconds.size(), 5u);
}

// Fewer tokens have mass than there are children. The next best tokens fill the rest; they are not drawn.
TEST(TreeSpeculation, WhereNoMassIsLeftTheNextBestTokensFollow) {
  const ModelPtr target = tiny_target(3), draft = Model::with_layers(target, {0});
  const Decode decode{.target = target,
                      .draft = draft,
                      .strategy = tree_of({4}, {{"draft_top_k", 2}}),
                      .options = {{"temperature", 1}, {"max_tokens", 30}}};
  const GenerationRecord record = decode.run();
  std::vector<Token> text = decode.prompt;
  text.push_back(record.tokens[0]);
  std::size_t emitted = 1;
  for (const StepRecord& step : record.steps) {
    for_families(
        text, step, [&](const std::vector<Token>& path, const std::vector<const DraftedToken*>& children) {
          const std::vector<Token> best = order_of(row_after(draft, path));
          EXPECT_EQ(std::set<Token>({children[0]->id, children[1]->id}), std::set<Token>({best[0], best[1]}));
          EXPECT_EQ(children[1]->confidence, 1);  // the last token has all remaining mass
          for (const std::size_t i : {2u, 3u}) {
            EXPECT_EQ(children[i]->id, best[i]);
            EXPECT_EQ(children[i]->confidence, -1);
          }
        });
    for (int i = 0; i < step.emitted; ++i) text.push_back(record.tokens[emitted++]);
  }
}

// P(a child of the pending token is accepted) of multi-step speculative sampling: 1 - E prod r_i, r_i = sum
// (R_i - q_i)+, R_{i+1} = norm((R_i - q_i)+), over the draws.
double rejected(std::vector<double> r, std::vector<double> q, int draws) {
  if (draws == 0) return 1;
  std::vector<double> next = r;
  double left = 0, out = 0;
  for (std::size_t x = 0; x < r.size(); ++x) left += next[x] = std::max(0.0, r[x] - q[x]);
  for (double& each : next) each /= left;
  for (std::size_t x = 0; x < q.size(); ++x) {
    if (!(q[x] > 0)) continue;
    std::vector<double> without = q;
    without[x] = 0;
    for (double& each : without) each /= 1 - q[x];
    out += q[x] * std::max(0.0, 1 - r[x] / q[x]) * rejected(next, without, draws - 1);
  }
  return out;
}

TEST(TreeSpeculation, AcceptanceIsThatOfTheClosedForm) {
  const std::vector<double> p = {.55, .25, .15, .05}, q = {.4, .35, .05, .2};
  const auto table = [](const std::vector<double>& law) {
    std::vector<float> logits;
    for (int row = 0; row < 4; ++row) {
      for (const double mass : law) logits.push_back(static_cast<float>(std::log(mass)));
    }
    return load_tiny(markov_table(4, logits));
  };
  const auto law_of = [](const ModelPtr& model) {
    Distribution row;
    std::vector<double> out;
    row.assign_logits(row_after(model, {0}), {.temperature = 1}, {}, 4);
    row.probabilities(out);
    return out;
  };
  const ModelPtr target = table(p), draft = table(q);
  const double golden[] = {.75, .9021, .9281};
  for (int width = 1; width <= 3; ++width) {
    Decode decode{.target = target,
                  .draft = draft,
                  .strategy = tree_of({width}),
                  .options = {{"temperature", 1}, {"max_tokens", 3}},
                  .prompt = {1}};
    DecodeLoop loop(target, draft, decode.strategy, {.capacity = 16});
    GenerationRecord record;
    double accepted = 0;
    enumerate::walk(
        [&](const Coins& coins) {
          decode.coins = coins;
          record = loop.run(decode.request());
        },
        [&](double probability) { accepted += record.steps[0].accepted * probability; });
    EXPECT_NEAR(accepted, 1 - rejected(law_of(target), law_of(draft), width), 1e-9) << width;
    EXPECT_NEAR(accepted, golden[width - 1], 5e-3) << width;  // tolerance for tables in bf16
  }
}

// Every child has the same q, so equal children occur and stay.
TEST(TreeSpeculation, IndependentChildrenAreDrawnFromOneRow) {
  const ModelPtr target = tiny_target(3), draft = Model::with_layers(target, {0});
  const Decode decode{.target = target,
                      .draft = draft,
                      .strategy = tree_of({3, 2}, {{"draft_top_k", 4}, {"children", "independent"}}),
                      .options = {{"temperature", 1}, {"max_tokens", 60}}};
  const GenerationRecord record = decode.run();
  std::vector<Token> text = decode.prompt;
  text.push_back(record.tokens[0]);
  std::size_t emitted = 1;
  int equal = 0, different = 0;
  for (const StepRecord& step : record.steps) {
    for_families(text, step,
                 [&](const std::vector<Token>& path, const std::vector<const DraftedToken*>& children) {
                   Distribution q;
                   q.assign_logits(row_after(draft, path), {.temperature = 1, .top_k = 4}, {}, 64);
                   for (const DraftedToken* child : children)
                     EXPECT_FLOAT_EQ(child->confidence, static_cast<float>(q.prob(child->id)));
                   ++(children[0]->id == children[1]->id ? equal : different);
                 });
    for (int i = 0; i < step.emitted; ++i) text.push_back(record.tokens[emitted++]);
  }
  EXPECT_GT(equal, 10);
  EXPECT_GT(different, 10);
}

TEST(TreeSpeculation, SequencesBranchAtThePendingTokenOnly) {
  const ModelPtr target = tiny_target(3), draft = Model::with_layers(target, {0});
  const Decode chains{.target = target,
                      .draft = draft,
                      .strategy = choose("tree_speculation", {{"sequences", 4}, {"length", 3}}),
                      .options = {{"temperature", 1}, {"max_tokens", 30}}};
  Decode tree = chains;
  tree.strategy = tree_of({4, 1, 1}, {{"children", "independent"}});
  const GenerationRecord a = chains.run(), b = tree.run();
  EXPECT_EQ(a.tokens, b.tokens);
  ASSERT_FALSE(a.steps.empty());
  EXPECT_EQ(a.steps[0].drafted.size(), 12u);
  for (std::size_t i = 4; i < 12; ++i) EXPECT_EQ(a.steps[0].drafted[i].parent, static_cast<int>(i) - 3);
}

TEST(TreeSpeculation, BestChildrenAreNotDrawn) {
  const ModelPtr target = tiny_target(3), draft = Model::with_layers(target, {0});
  const Decode decode{.target = target,
                      .draft = draft,
                      .strategy = tree_of({3, 2}, {{"children", "best"}}),
                      .options = {{"temperature", 1}, {"max_tokens", 30}}};
  const GenerationRecord record = decode.run();
  std::vector<Token> text = decode.prompt;
  text.push_back(record.tokens[0]);
  std::size_t emitted = 1;
  for (const StepRecord& step : record.steps) {
    for_families(text, step,
                 [&](const std::vector<Token>& path, const std::vector<const DraftedToken*>& children) {
                   const std::vector<Token> best = order_of(row_after(draft, path));
                   for (std::size_t i = 0; i < children.size(); ++i) {
                     EXPECT_EQ(children[i]->id, best[i]);
                     if (children[i]->tested) {
                       EXPECT_EQ(children[i]->q, 1);
                     }
                   }
                 });
    for (int i = 0; i < step.emitted; ++i) text.push_back(record.tokens[emitted++]);
  }
}

// q has two tokens. The other two children come from all other tokens: 1/62 and 1/61 each.
TEST(TreeSpeculation, WhereNoMassIsLeftTheRestMayBeDrawnUniformly) {
  const ModelPtr target = tiny_target(3), draft = Model::with_layers(target, {0});
  const Decode decode{
      .target = target,
      .draft = draft,
      .strategy = tree_of({4}, {{"draft_top_k", 2}, {"used_up", "uniform"}, {"draft_temperature", 2}}),
      .options = {{"temperature", 1}, {"max_tokens", 30}}};
  std::set<Token> seen;
  for (const StepRecord& step : decode.run().steps) {
    if (step.drafted.empty()) continue;
    ASSERT_EQ(step.drafted.size(), 4u);
    EXPECT_FLOAT_EQ(step.drafted[2].confidence, 1.0f / 62);
    EXPECT_FLOAT_EQ(step.drafted[3].confidence, 1.0f / 61);
    std::set<Token> tokens;
    for (const DraftedToken& token : step.drafted) tokens.insert(token.id);
    EXPECT_EQ(tokens.size(), 4u);
    seen.insert({step.drafted[2].id, step.drafted[3].id});
  }
  EXPECT_GT(seen.size(), 8u);
}

json tree_json(std::vector<int> parents, std::vector<int> ranks) {
  return {{"format", kTreeFormat}, {"parents", parents}, {"ranks", ranks}};
}

TEST(TreeSpeculation, AFileGivesAnyShape) {
  const ModelPtr target = tiny_target(3), draft = Model::with_layers(target, {0});
  const TempDir dir;
  const auto with = [&](const json& file) {
    write_json_file(dir.path() / "tree.json", file);
    return choose("tree_speculation", {{"tree", (dir.path() / "tree.json").string()}});
  };
  for (const json& options : {json{{"temperature", 0}}, json{{"temperature", 1}}}) {
    // The nodes of <2, 2> in another order.
    Decode by_file{.target = target,
                   .draft = draft,
                   .strategy = with(tree_json({0, 1, 0, 3, 3, 1}, {1, 2, 2, 1, 2, 1})),
                   .options = options};
    by_file.options["max_tokens"] = 30;
    Decode by_widths = by_file;
    by_widths.strategy = tree_of({2, 2});
    const GenerationRecord a = by_file.run(), b = by_widths.run();
    EXPECT_EQ(a.tokens, b.tokens);
    EXPECT_EQ(a.draft.rows, b.draft.rows);
    // A tree that is deep on its first path only. Leaves are not fed to the draft.
    by_file.strategy = with(tree_json({0, 0, 0, 1, 1, 4}, {1, 2, 3, 1, 2, 1}));
    const GenerationRecord record = by_file.run();
    std::vector<int> parents;
    for (const DraftedToken& token : record.steps[0].drafted) parents.push_back(token.parent);
    EXPECT_THAT(parents, ElementsAre(0, 0, 0, 1, 1, 4));
    EXPECT_EQ(record.steps[0].draft_calls, 3);
    if (options["temperature"] == 0) {
      EXPECT_EQ(record.tokens, (Decode{.target = target, .options = by_file.options}.run().tokens));
    }
  }
  // With the target as its own draft, every step accepts the first path. So the draft is fed as many tokens
  // as for a chain, if it is not fed the leaves.
  Decode deep{.target = target,
              .draft = target,
              .strategy = with(tree_json({0, 0, 0, 1, 1, 4}, {1, 2, 3, 1, 2, 1})),
              .options = {{"max_tokens", 30}}};
  Decode chain = deep;
  chain.strategy = tree_of({1, 1, 1});
  EXPECT_EQ(deep.run().draft.rows, chain.run().draft.rows);
}

TEST(TreeSpeculation, BadTreeFilesAreRefused) {
  const TempDir dir;
  const std::string path = (dir.path() / "bad.json").string();
  const auto error_of = [&](const json& file) {
    write_json_file(path, file);
    const std::string error = message_of([&] { TreeShape::read(path); });
    EXPECT_THAT(error, HasSubstr(path));
    return error;
  };
  EXPECT_EQ(TreeShape::of_json(tree_json({0, 0, 1}, {2, 1, 1}), "x").nodes(), 4);
  EXPECT_THAT(error_of(tree_json({0, 2, 1}, {1, 1, 1})), HasSubstr("node 2 is a child of node 2"));
  EXPECT_THAT(error_of(tree_json({0, 3, 2}, {1, 1, 1})), HasSubstr("node 2 is a child of node 3"));
  EXPECT_THAT(error_of(tree_json({0, 0}, {1, 3})),
              HasSubstr("node 0 has a child of rank 3 and none of rank 2"));
  EXPECT_THAT(error_of(tree_json({0, 1, 1}, {1, 1, 1})), HasSubstr("rank 1 of node 3"));
  EXPECT_THAT(error_of(tree_json({0}, {0})), HasSubstr("rank 0 of node 1"));
  EXPECT_THAT(error_of(tree_json({0, 0}, {1})), HasSubstr("2 parents and 1 ranks"));
  EXPECT_THAT(error_of(tree_json({}, {})), HasSubstr("0 nodes"));
  EXPECT_THAT(error_of(tree_json(std::vector<int>(1024, 0), std::vector<int>(1024, 1))),
              HasSubstr("1024 nodes"));
  json text = tree_json({0}, {1});
  text["parents"][0] = "0";
  EXPECT_THAT(error_of(text), HasSubstr("/parents/0: got \"0\" for node 1"));
  text["parents"][0] = 1e9;
  EXPECT_THAT(error_of(text), HasSubstr("/parents/0"));
  text.erase("parents");
  EXPECT_THAT(error_of(text), HasSubstr("/parents: got nothing"));
  EXPECT_THAT(error_of({{"parents", {0}}}), HasSubstr("another format"));
  EXPECT_THAT(error_of(json::array()), HasSubstr("another format"));
  // 33 children of node 1, where the draft can draw 32 tokens.
  const TinyModel tiny = random_llama(tiny_shape(), 1);
  const ModelPtr target = load_tiny(tiny),
                 draft = load_tiny(random_llama(tiny_draft_shape(tiny.config), 2), target);
  json wide = tree_json({0}, {1});
  for (int rank = 1; rank <= 33; ++rank) wide["parents"].push_back(1), wide["ranks"].push_back(rank);
  write_json_file(path, wide);
  const StrategyChoice choice = choose("tree_speculation", {{"tree", path}});
  EXPECT_THAT(message_of([&] { DecodeLoop(target, draft, choice, {.capacity = 64}); }),
              ::testing::AllOf(HasSubstr(path), HasSubstr("node 1 with 33 children"), HasSubstr("32")));
  EXPECT_THAT(message_of([&] {
                DecodeLoop(target, target, choose("tree_speculation", {{"tree", path}, {"sequences", 2}}),
                           {.capacity = 64});
              }),
              HasSubstr("only one of them"));
}

TEST(TreeSpeculation, RecordsKnowItsFormerName) {
  ASSERT_NE(recorded_strategy("draft_tree"), nullptr);
  EXPECT_EQ(recorded_strategy("draft_tree")->name, "tree_speculation");
  EXPECT_THAT(message_of([] { find_strategy("draft_tree"); }), HasSubstr("now called \"tree_speculation\""));
}

TEST(TreeSpeculation, DraftsNoDeeperThanTheTextMayGo) {
  const TinyModel tiny = random_llama(tiny_shape(), 3);
  const ModelPtr target = load_tiny(tiny);
  TinyModel small = tiny;
  small.config.context = 20;
  const ModelPtr draft = load_tiny(small);
  const GenerationRecord record = Decode{
      .target = target,
      .draft = draft,
      .strategy = tree_of({2, 2, 1}),
      .options = {{"max_tokens", 30}}}.run();
  EXPECT_EQ(record.tokens, (Decode{.target = target, .options = {{"max_tokens", 30}}}.run().tokens));
  std::vector<std::size_t> sizes;
  int position = 3;
  for (const StepRecord& step : record.steps) {
    const int depth = std::clamp(20 - position, 0, 3);
    EXPECT_EQ(step.drafted.size(), (std::vector<std::size_t>{0, 2, 6, 10})[static_cast<std::size_t>(depth)])
        << position;
    position += step.emitted;
  }
  EXPECT_GT(position, 20);
  const GenerationRecord end =
      Decode{
          .target = target, .draft = target, .strategy = tree_of({2, 2, 1}), .options = {{"max_tokens", 8}}}
          .run();
  for (const StepRecord& step : end.steps) sizes.push_back(step.drafted.size());
  EXPECT_THAT(sizes, ElementsAre(10, 6)) << "one token of prefill, four, three";
}

TEST(TreeSpeculation, RefusesMoreChildrenThanAReducedVocabularyHas) {
  const TinyModel tiny = random_llama(tiny_shape(), 1);
  const ModelPtr target = load_tiny(tiny),
                 draft = load_tiny(random_llama(tiny_draft_shape(tiny.config), 2), target);
  const auto loop_with = [&](const StrategyChoice& strategy) {
    return message_of([&] { DecodeLoop(target, draft, strategy, {.capacity = 96}); });
  };
  const std::string most = "at most 32, the number of tokens that the draft can draw";
  EXPECT_EQ(loop_with(tree_of({32, 1})), "no error");
  EXPECT_THAT(loop_with(tree_of({33, 1})),
              AllOf(HasSubstr("tree_speculation: widths: got node 0 with 33 children"), HasSubstr(most)));
  EXPECT_THAT(loop_with(tree_of({1, 40}, {{"children", "best"}})), HasSubstr("node 1 with 40 children"));
  EXPECT_THAT(loop_with(choose("staged", {{"widths", {33}}})),
              AllOf(HasSubstr("staged: widths"), HasSubstr(most)));
  EXPECT_EQ(loop_with(tree_of({40, 1}, {{"children", "independent"}})), "no error") << "equal children stay";
  Decode decode{
      .target = target, .draft = draft, .strategy = tree_of({32, 1}), .options = {{"max_tokens", 10}}};
  for (const StepRecord& step : decode.run().steps) {
    if (step.drafted.empty()) continue;
    EXPECT_GE(step.drafted.size(), 32u);
    for (const DraftedToken& token : step.drafted) EXPECT_EQ(token.id % 2, 0);  // the head has even ids only
  }
  std::vector<int> even;
  for (int id = 0; id < 64; id += 2) even.push_back(id);
  decode.options["banned_tokens"] = even;
  EXPECT_EQ(drafted(decode.run()), 0);
}

TEST(TreeSpeculation, RefusesTreesThatNoSessionHasRoomFor) {
  const ModelPtr target = tiny_target();
  const auto error_with = [&](const std::vector<int>& widths) {
    return message_of([&] { DecodeLoop(target, target, tree_of(widths), {.capacity = 64}); });
  };
  EXPECT_EQ(error_with({1, 63, 1}), "no error");
  EXPECT_EQ(error_with({1, 2, 4, 2, 1, 1}), "no error");
  EXPECT_THAT(error_with({64, 15}), HasSubstr("more than 1023 tokens"));
  EXPECT_THAT(error_with({127, 127, 127, 127, 127, 127, 127, 127, 127, 127}),
              HasSubstr("more than 1023 tokens"));
  EXPECT_THAT(error_with({}), HasSubstr("no widths"));
  Decode wide{.target = target,
              .draft = target,
              .strategy = tree_of({2, 2, 2, 2, 2, 2}),
              .options = {{"max_tokens", 20}}};
  EXPECT_EQ(wide.run().tokens, (Decode{.target = target, .options = {{"max_tokens", 20}}}.run().tokens));
}

}  // namespace
}  // namespace speclab::tree_speculation_test
