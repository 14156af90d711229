#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "core/decoding/budget/step_costs.h"
#include "core/decoding/loop/judged_step.h"
#include "core/theory/audit/enumerate.h"
#include "core/theory/step_bounds.h"
#include "tests/base/error_text.h"
#include "tests/decoding/loop/loop_fixture.h"
#include "tests/strategies/draft_rows.h"
#include "tests/strategies/step_by_step.h"

namespace speclab::merged_trees_test {
namespace {

using namespace speclab::fixtures;
using enumerate::Law;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int kTokens = 3;

/// The law of the first `count` tokens of a text. With `drafts` also that of every draft and of what the
/// target accepted of it.
Law law_of(const std::vector<ModelPtr>& models, const StrategyChoice& strategy, int count,
           bool drafts = false) {
  DecodeLoop loop(random_markov(kTokens, 11, 1.5), models, strategy, {.capacity = 32});
  const std::vector<Token> prompt{0, 2, 1};
  Request request;
  request.prompt = prompt;
  request.options = generation({{"max_tokens", count}, {"temperature", 1}});
  return enumerate::law_of(
      [&](const Coins& coins) {
        request.coins = coins;
        const GenerationRecord record = loop.run(request);
        std::vector<Token> out = record.tokens;
        if (!drafts) return out;
        for (const StepRecord& step : record.steps) {
          out.push_back(-2);
          std::vector<std::vector<Token>> nodes{{}};  // the path of each node, and whether it was accepted
          for (const DraftedToken& token : step.drafted) {
            nodes.push_back(std::vector<Token>(nodes[static_cast<std::size_t>(token.parent)]));
            nodes.back().push_back(token.id);
          }
          for (std::size_t i = 1; i < nodes.size(); ++i) nodes[i].push_back(step.drafted[i - 1].accepted);
          std::sort(nodes.begin(), nodes.end());  // the order of the nodes does not count
          for (const std::vector<Token>& node : nodes) {
            out.push_back(-1);
            out.insert(out.end(), node.begin(), node.end());
          }
        }
        return out;
      },
      0);
}

ModelPtr draft_model(int i) { return random_markov(kTokens, static_cast<std::uint64_t>(12 + i), 1.5); }

// Two equal drafts draw what two independent chains of one draft draw: the law of the drafted trees and of
// their outcomes is the same, not only that of the text.
TEST(MergedTrees, EqualDraftsHaveTheLawOfOneDraft) {
  const json two = {{"length", 2}, {"sources", {"draft"}}};
  json one = two;
  one["sequences"] = {2};
  const Law by_two = law_of({draft_model(0), draft_model(0)}, choose("merged_trees", two), 3, true),
            by_one = law_of({draft_model(0)}, choose("merged_trees", one), 3, true);
  EXPECT_GT(by_one.mass.size(), 100u);
  EXPECT_LT(enumerate::total_variation(by_two.mass, by_one.mass), 1e-12);
  const Law other = law_of({draft_model(0), draft_model(1)}, choose("merged_trees", two), 3, true);
  EXPECT_GT(enumerate::total_variation(other.mass, by_one.mass), .05);
}

/// A way to spoil the drafts of merged_trees, or to look at them.
struct Spoiling {
  const char* options;
  void (*change)(Draft& draft);
};

/// Drafts with merged_trees, then changes the draft.
class Spoilt final : public Strategy {
 public:
  Spoilt(const Resources& resources, const Spoiling& spoiling)
      : inner_(choose("merged_trees", json::parse(spoiling.options)).make(resources)),
        change_(spoiling.change) {}
  void begin(const Sequence& sequence) override { inner_->begin(sequence); }
  void draft(std::span<const Sequence* const> sequences, std::span<Draft* const> drafts) override {
    inner_->draft(sequences, drafts);
    for (Draft* draft : drafts) change_(*draft);
  }
  void observe(std::span<const Sequence* const> sequences, std::span<const Outcome> outcomes) override {
    inner_->observe(sequences, outcomes);
  }

 private:
  std::unique_ptr<Strategy> inner_;
  void (*change_)(Draft&);
};

template <typename Drop>
void drop_nodes(Draft& draft, const Drop& drop) {
  std::vector<char> keep(static_cast<std::size_t>(draft.tree.size()), 1);
  for (int node = 1; node < draft.tree.size(); ++node) keep[static_cast<std::size_t>(node)] = !drop(node);
  draft.keep(keep);
}
bool is_duplicate(const Draft& draft, int node) {
  return draft.tree.child(draft.tree.parent(node), draft.tree.token(node)) != node;
}

constexpr const char* kModels = R"({"length": 1, "sources": ["draft"]})";
constexpr Spoiling kNothing{kModels, [](Draft&) {}};
constexpr Spoiling kNoDuplicates{
    kModels, [](Draft& draft) { drop_nodes(draft, [&](int node) { return is_duplicate(draft, node); }); }};
constexpr Spoiling kNothingUnlikely{
    kModels, [](Draft& draft) {
      drop_nodes(draft, [&](int node) { return draft.q_at(node)->prob(draft.tree.token(node)) < .4; });
    }};

template <const Spoiling& kSpoiling>
StrategyChoice spoilt() {
  static const StrategyEntry entry = [] {
    StrategyEntry made =
        local_entry([](const void*, const Resources& resources) -> std::unique_ptr<Strategy> {
          return std::make_unique<Spoilt>(resources, kSpoiling);
        });
    made.info.most_drafts = 3;
    return made;
  }();
  return StrategyChoice(entry);
}

// Negative controls: leaving out the second draw of a token, or drawn tokens that are unlikely, changes the
// law.
TEST(MergedTrees, DroppingDrawnTokensIsSeen) {
  const std::vector<ModelPtr> models{draft_model(0), draft_model(1)};
  const Law exact = law_of({}, choose("autoregressive"), 3);
  const auto distance = [&](const StrategyChoice& strategy) {
    return enumerate::total_variation(law_of(models, strategy, 3).mass, exact.mass);
  };
  EXPECT_LT(distance(spoilt<kNothing>()), 1e-12);
  EXPECT_GT(distance(spoilt<kNoDuplicates>()), 1e-3);
  EXPECT_GT(distance(spoilt<kNothingUnlikely>()), 1e-3);
}

// Each child is judged with the q of its own source: a copy is one-hot, and a token of the n-gram model has
// the q of that model.
constexpr const char* kMixed =
    R"({"sources": ["draft", "ngram", "text"], "length": 1, "copies": 2, "ngram_known": 0})";
constexpr Spoiling kCopiesAsDrawn{R"({"sources": ["draft", "text"], "length": 1})", [](Draft& draft) {
                                    for (int& q : draft.q_of) q = std::max(q, 0);
                                  }};
constexpr Spoiling kNgramsAsTheModels{kMixed, [](Draft& draft) {
                                        for (int& q : draft.q_of) q = std::min(q, 0);
                                      }};

TEST(MergedTrees, EverySourceIsJudgedWithItsOwnQ) {
  const Law exact = law_of({}, choose("autoregressive"), 3);
  const auto distance = [&](const StrategyChoice& strategy, std::vector<ModelPtr> models) {
    return enumerate::total_variation(law_of(models, strategy, 3).mass, exact.mass);
  };
  const ModelPtr model = draft_model(0);
  for (const json& sources :
       {json{"draft", "text"}, json{"draft", "ngram"}, json{"draft", "ngram", "text"}}) {
    const json options = {
        {"sources", sources}, {"length", 2}, {"copies", 2}, {"nodes", 5}, {"ngram_known", 0}};
    EXPECT_LT(distance(choose("merged_trees", options), {model}), 1e-12) << sources;
  }
  for (const json& sources : {json::array({"ngram"}), json::array({"text"}), json{"ngram", "text"}}) {
    const json options = {{"sources", sources}, {"length", 2}, {"ngram_sequences", 2}, {"worth", .1}};
    EXPECT_LT(distance(choose("merged_trees", options), {}), 1e-12) << sources;
  }
  EXPECT_LT(distance(choose("merged_trees", json::parse(kMixed)), {model}), 1e-12);
  EXPECT_GT(distance(spoilt<kCopiesAsDrawn>(), {model}), 1e-3);
  EXPECT_GT(distance(spoilt<kNgramsAsTheModels>(), {model}), 1e-3);
}

// A copy that equals a drawn child has no node of its own, but it counts in the bound. So the bound of the
// first position depends on the text alone. Averaged over the draws, the probability that the step accepts a
// child is not above the bound.
TEST(MergedTrees, TheBoundOfAPositionDoesNotDependOnTheDraws) {
  struct OfText {
    std::vector<double> bounds;
    double probability = 0, kept = 0;
  };
  std::map<Token, OfText> texts;  // by the token before the step
  bool first = false, kept = false;
  double bound = 0;
  Token before = -1;
  int with_node = 0, without_node = 0;
  LoopOptions loop_options;
  loop_options.capacity = 32;
  loop_options.on_judged = [&](const JudgedStep& step) {
    if (!std::exchange(first, false)) return;
    const auto bounds = theory::step_bounds(step.draft, step.rows, step.accepted, step.eos);
    ASSERT_FALSE(bounds.best.empty());
    ASSERT_TRUE(bounds.best[0].has_value());
    bound = *bounds.best[0];
    kept = !step.accepted.empty();
    before = step.draft.tree.token(0);
    (step.draft.copied_too.empty() ? with_node : without_node) += 1;
  };
  const json options = {{"sources", {"draft", "text"}}, {"length", 1}, {"copies", 1}, {"least_match", 1}};
  DecodeLoop loop(random_markov(kTokens, 11, 1.5), std::vector<ModelPtr>{draft_model(0), draft_model(1)},
                  choose("merged_trees", options), loop_options);
  const std::vector<Token> prompt{0, 2, 1};
  Request request;
  request.prompt = prompt;
  request.options = generation({{"max_tokens", 3}, {"temperature", 1}});
  enumerate::walk(
      [&](const Coins& coins) {
        first = true;
        request.coins = coins;
        loop.run(request);
      },
      [&](double probability) {
        OfText& text = texts[before];
        text.bounds.push_back(bound);
        text.probability += probability;
        text.kept += kept ? probability : 0;
      });
  EXPECT_GT(with_node, 0);
  EXPECT_GT(without_node, 0);
  EXPECT_EQ(texts.size(), static_cast<std::size_t>(kTokens));
  for (const auto& [token, text] : texts) {
    for (const double each : text.bounds) EXPECT_NEAR(each, text.bounds.front(), 1e-9) << token;
    EXPECT_LE(text.kept / text.probability, text.bounds.front() + 1e-6) << token;
  }
}

// The nodes that n-grams and copies draft at temperature 0.
TEST(MergedTrees, NgramsAndCopiesWithoutAModel) {
  const auto nodes = [](const std::vector<Token>& text, json options) {
    options.update({{"ngram_order", 1}, {"ngram_known", 0}, {"length", 2}, {"copies", 3}});
    StepByStep steps("merged_trees", options);
    steps.sequence.sampling.temperature = 0;
    steps.begin(text);
    return steps.nodes();
  };
  using Nodes = std::vector<TreeNode>;
  const std::vector<Token> text{9, 9, 5, 3, 4, 5};
  const Nodes frequent{{0, 5}, {1, 5}}, copied{{0, 3}, {1, 4}, {2, 5}};
  EXPECT_EQ(nodes(text, {{"sources", {"ngram"}}}), frequent) << "5 and 9 occur twice";
  EXPECT_EQ(nodes(text, {{"sources", {"text"}}}), copied);
  EXPECT_EQ(nodes(text, {{"sources", {"text", "ngram"}}}), (Nodes{{0, 5}, {1, 5}, {0, 3}, {3, 4}, {4, 5}}));
  EXPECT_EQ(nodes({7, 5, 3, 7, 5}, {{"sources", {"ngram", "text"}}, {"length", 2}}),
            (Nodes{{0, 5}, {1, 5}, {0, 3}, {3, 7}, {4, 5}}));
  EXPECT_EQ(nodes({9, 5, 5, 3, 9}, {{"sources", {"ngram", "text"}}}), (Nodes{{0, 5}, {1, 5}, {2, 3}}))
      << "the copy shares the nodes of the first two tokens";
  const json few = {{"sources", {"ngram", "text"}}, {"nodes", 3}};
  EXPECT_EQ(nodes(text, few), copied) << "the copy has the larger weights";
  json trusting = few;
  trusting.update({{"trust_in_ngrams", 1}, {"trust_in_copies", .01}});
  EXPECT_EQ(nodes(text, trusting), (Nodes{{0, 5}, {1, 5}, {0, 3}}));
  const json two = {{"sources", {"text"}}, {"least_match", 2}};
  EXPECT_TRUE(nodes(text, two).empty()) << "only one token has matched";
  EXPECT_EQ(nodes({4, 5, 3, 8, 4, 5}, two), (Nodes{{0, 3}, {1, 8}, {2, 4}}));
}

struct MergedModels {
  ModelPtr target, two, one;
  MergedModels() {
    Shape shape = tiny_shape();
    shape.layers = 3;
    target = load_tiny(random_llama(shape, 3));
    two = Model::with_layers(target, {0, 1});
    one = Model::with_layers(target, {0});
  }
};

GenerationRecord run(const MergedModels& models, std::vector<ModelPtr> drafts, const json& strategy,
                     json options = {{"temperature", 0}}) {
  options["max_tokens"] = 50;
  const Decode decode{
      .target = models.target,
      .strategy = drafts.empty() ? choose("autoregressive") : choose("merged_trees", strategy),
      .options = options,
      .prompt = {3, 1, 4, 1, 5, 9, 2, 6, 3, 1, 4, 1, 5},
      .drafts = drafts};
  return decode.run();
}

/// The paths from the root to all nodes of a step's tree.
std::multiset<std::vector<Token>> paths(const StepRecord& step) {
  std::vector<std::vector<Token>> of{{}};
  for (const DraftedToken& token : step.drafted) {
    of.push_back(of[static_cast<std::size_t>(token.parent)]);
    of.back().push_back(token.id);
  }
  return {of.begin() + 1, of.end()};
}

// At temperature 0 the tree is the trie of the greedy chains of the drafts, and pruning takes a part of it
// that contains the parents of its nodes: those with the largest products of probabilities.
TEST(MergedTrees, GreedyTreeIsATrieAndPruningKeepsItsHeaviestNodes) {
  const MergedModels models;
  const json whole = {{"length", 4}, {"sources", {"draft"}}, {"nodes", 100}},
             few = {{"length", 4}, {"sources", {"draft"}}, {"nodes", 5}};
  const GenerationRecord all = run(models, {models.two, models.one}, whole),
                         some = run(models, {models.two, models.one}, few);
  int shared = 0, pruned = 0;
  for (const auto& [record, nodes] : {std::pair{&all, 100}, std::pair{&some, 5}}) {
    std::vector<Token> text{3, 1, 4, 1, 5, 9, 2, 6, 3, 1, 4, 1, 5};
    text.push_back(record->tokens[0]);
    std::size_t emitted = 1;
    for (const StepRecord& step : record->steps) {
      if (record->tokens.size() - emitted > 5) {
        std::map<std::vector<Token>, double> weights;  // of the whole trie
        for (const ModelPtr& model : {models.two, models.one}) {
          std::vector<Token> path;
          double weight = 1;
          for (int depth = 0; depth < 4; ++depth) {
            std::vector<Token> context = text;
            context.insert(context.end(), path.begin(), path.end());
            const std::vector<float> row = row_after(model, context);
            Distribution q;
            q.assign_logits(row, {.temperature = 1}, {}, 64);
            path.push_back(order_of(row).front());
            weight *= q.prob(path.back());
            weights[path] = std::max(weights[path], weight);
          }
        }
        std::vector<std::pair<double, std::vector<Token>>> order;
        for (const auto& [path, weight] : weights) order.emplace_back(-weight, path);
        std::sort(order.begin(), order.end());
        std::multiset<std::vector<Token>> expected;
        for (std::size_t i = 0; i < std::min<std::size_t>(order.size(), static_cast<std::size_t>(nodes)); ++i)
          expected.insert(order[i].second);
        EXPECT_EQ(paths(step), expected);
        shared += weights.size() < 8;
        pruned += weights.size() > static_cast<std::size_t>(nodes);
      }
      for (int i = 0; i < step.emitted; ++i) text.push_back(record->tokens[emitted++]);
    }
  }
  EXPECT_GT(shared, 2);
  EXPECT_GT(pruned, 2);
}

TEST(MergedTrees, DrawnDuplicatesStayAndTheBudgetHolds) {
  const MergedModels models;
  const GenerationRecord record =
      run(models, {models.two, models.one}, {{"length", 3}, {"sequences", {2, 2}}, {"nodes", 9}},
          {{"temperature", .4}, {"top_k", 3}});
  int duplicates = 0;
  for (const StepRecord& step : record.steps) {
    EXPECT_LE(step.drafted.size(), 9u);
    const auto all = paths(step);
    duplicates += all.size() > std::set<std::vector<Token>>(all.begin(), all.end()).size();
  }
  EXPECT_GT(duplicates, 3);
  EXPECT_GT(record.drafts[0].calls, 0);
  EXPECT_GT(record.drafts[1].calls, 0);
}

// All sources together have more tokens than a tree may have.
TEST(MergedTrees, NoTreeHasMoreThanItsNodes) {
  const MergedModels models;
  const json strategy = {{"sources", {"draft", "ngram", "text"}},
                         {"length", 3},
                         {"sequences", {2, 1}},
                         {"ngram_sequences", 2},
                         {"ngram_known", 0},
                         {"copies", 4},
                         {"nodes", 4}};
  for (const json& options : {json{{"temperature", 0}}, json{{"temperature", .4}},
                              json{{"temperature", .4}, {"top_k", 1}}, json{{"temperature", 1}}}) {
    std::size_t largest = 0;
    for (const StepRecord& step : run(models, {models.two, models.one}, strategy, options).steps)
      largest = std::max(largest, step.drafted.size());
    EXPECT_EQ(largest, 4u) << options;
  }
}

TEST(MergedTrees, TextIsTheTargetsOwn) {
  const MergedModels models;
  for (const json& options : {json{{"temperature", 0}}, json{{"temperature", 0}, {"repetition_penalty", 1.3}},
                              json{{"temperature", 1}, {"coins", "gumbel"}}}) {
    const GenerationRecord plain = run(models, {}, {}, options);
    for (const json& strategy : {json{{"nodes", 4}}, json{{"sequences", {2, 1}}, {"worth", .05}},
                                 json{{"length", 2}, {"draft_temperature", 1}},
                                 json{{"sources", {"draft", "ngram", "text"}}, {"ngram_sequences", 2}}}) {
      const GenerationRecord record = run(models, {models.two, models.one}, strategy, options);
      EXPECT_EQ(record.tokens, plain.tokens) << strategy << options;
      EXPECT_GT(total(record, &StepRecord::accepted), 0) << strategy << options;
    }
  }
}

// A budget decides for each source by what it costs: a slow model is left out, n-grams and copies go on.
TEST(MergedTrees, ABudgetChoosesForEverySource) {
  const MergedModels models;
  Decode decode{.target = models.target,
                .strategy = choose("merged_trees", {{"sources", {"draft", "ngram", "text", "earlier"}},
                                                    {"length", 2},
                                                    {"copies", 2},
                                                    {"budget", "auto"}}),
                .options = {{"temperature", 0}, {"max_tokens", 50}},
                .prompt = {3, 1, 4, 1, 5, 9, 2, 6, 3, 1, 4, 1, 5},
                .drafts = {models.one}};
  const std::vector<Token> plain =
      Decode{.target = models.target, .options = decode.options, .prompt = decode.prompt}.run().tokens;
  const auto steps_of = [&](std::vector<double> target_ns, double draft_ns) {
    decode.loop.costs = std::make_shared<const StepCosts>(
        StepCosts{.target_ns = std::move(target_ns), .draft_ns = {draft_ns}});
    const GenerationRecord record = decode.run();
    EXPECT_EQ(record.tokens, plain);
    std::map<std::string, int> steps;
    for (const StepRecord& step : record.steps) {
      if (step.contributions.empty() && !step.source.empty()) ++steps[step.source];
      for (const Contribution& part : step.contributions) ++steps[part.source];
    }
    return steps;
  };
  std::map<std::string, int> free = steps_of({1}, 1e-9), slow = steps_of({10, 10.01}, 1000);
  EXPECT_GT(free["draft 1"], 0);
  EXPECT_GT(free["ngram"] + free["copies"], 0);
  EXPECT_EQ(slow["draft 1"], 0);
  EXPECT_GT(slow["ngram"] + slow["copies"], 0);
  EXPECT_TRUE(steps_of({1, 100}, 1e-9).empty()) << "rows are dear";
}

TEST(MergedTrees, RefusesWhatItCannotDraft) {
  const MergedModels models;
  const auto message = [&](const json& options, std::vector<ModelPtr> drafts) {
    return message_of([&] { run(models, std::move(drafts), options); });
  };
  EXPECT_THAT(message({{"sequences", {1, 1}}}, {models.one}), HasSubstr("2 entries"));
  EXPECT_THAT(message({{"trust", {1}}}, {models.one, models.two}),
              HasSubstr("one for each of the 2 draft models"));
  EXPECT_THAT(message({{"sequences", {16}}, {"length", 64}}, {models.one}), HasSubstr("at most 1023"));
  EXPECT_THAT(message(json::object(), {models.one, models.one, models.one, models.one}),
              HasSubstr("at most 3"));
  EXPECT_THAT(message({{"sources", {"draft", "ngrams"}}}, {models.one}),
              AllOf(HasSubstr("sources: got \"ngrams\""), HasSubstr("Did you mean \"ngram\"?")));
  EXPECT_THAT(message({{"sources", {"text", "text"}}}, {models.one}), HasSubstr("\"text\" twice"));
  EXPECT_THAT(message({{"sources", json::array()}}, {models.one}), HasSubstr("an empty list"));
  EXPECT_THAT(message({{"sources", {1}}}, {models.one}), HasSubstr("sources"));
  EXPECT_THAT(message({{"least_match", 0}}, {models.one}),
              HasSubstr("least_match: got 0, expected an integer, 1 to 64"));
  EXPECT_THAT(message({{"copies", 0}}, {models.one}), HasSubstr("copies: got 0"));
  EXPECT_THAT(message({{"trust", {"much"}}}, {models.one}),
              HasSubstr("trust/0: got \"much\", expected a number"));
  EXPECT_THAT(message({{"trust", {std::nan("")}}}, {models.one}), HasSubstr("trust/0: got"));
  EXPECT_THAT(message({{"trust_in_copies", "all"}}, {models.one}), HasSubstr("trust_in_copies: got \"all\""));
  EXPECT_THAT(message({{"sources", {"draft", "ngram"}}, {"ngram_counts", "file"}}, {models.one}),
              HasSubstr("merged_trees: ngram_file: got none"));
  EXPECT_THAT(
      message({{"sources", {"draft", "ngram"}}, {"ngram_sequences", 16}, {"length", 64}}, {models.one}),
      HasSubstr("17 x 64 tokens"));
  EXPECT_THAT(message_of([&] {
                DecodeLoop(models.target, nullptr, choose("merged_trees", {{"sources", {"draft"}}}),
                           {.capacity = 64});
              }),
              HasSubstr("no draft model"));
}

}  // namespace
}  // namespace speclab::merged_trees_test
