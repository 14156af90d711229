#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "core/base/error.h"
#include "core/decoding/drafting/draft_model.h"
#include "core/decoding/loop/executors/device_plan_shape.h"
#include "tests/decoding/rules/device_cases.h"
#include "tests/decoding/loop/planned_loop.h"

// Compares trees that a device drafts, verifies and compacts by itself with tree_speculation on the host.

namespace speclab::planned_loop_test {

StrategyChoice tree_of(const std::vector<int>& widths, json more = json::object()) {
  more["widths"] = widths;
  return choose("tree_speculation", more);
}

/// Counts accepted tokens after an accepted token that was not on the first path. The caches had to move for
/// them.
int behind_branches(const GenerationRecord& record) {
  int count = 0;
  for (const StepRecord& step : record.steps) {
    std::vector<char> first(step.drafted.size() + 1, 0);
    first[0] = 1;
    int last = -1;
    for (std::size_t i = 0; i < step.drafted.size(); ++i) {
      const DraftedToken& token = step.drafted[i];
      first[i + 1] = token.parent != last && first[static_cast<std::size_t>(token.parent)] != 0;
      last = token.parent;
      count += token.accepted && token.parent > 0 && first[static_cast<std::size_t>(token.parent)] == 0;
    }
  }
  return count;
}

TEST(PlannedTree, TreesOfADraftModel) {
  const TinyModel tiny = random_llama(tiny_shape(), 1);
  const ModelPtr target = on_device(tiny);
  Shape one = tiny.config;
  one.layers = 1;
  const ModelPtr other = on_device(random_llama(one, 1), target),
                 reduced = on_device(random_llama(tiny_draft_shape(tiny.config), 2), target);
  const std::pair<ModelPtr, std::vector<int>> cases[] = {
      {Model::with_layers(target, {0}), {3, 2, 1, 1}}, {other, {1, 1, 4}}, {reduced, {2, 2}}, {reduced, {4}}};
  for (const auto& [draft, widths] : cases) {
    for (const json& options : {json{{"temperature", 0}}, json{{"temperature", 1.2}, {"top_p", .95}}}) {
      SCOPED_TRACE(draft->name() + options.dump() + std::to_string(widths.size()));
      Decode decode{.target = target, .draft = draft, .strategy = tree_of(widths), .options = options};
      decode.options["max_tokens"] = 10;
      compare(decode);
    }
  }
}

// A draft that is often right, but often not with its first token.
TEST(PlannedTree, CachesMoveForBranches) {
  const ModelPtr target = on_device(random_llama(tiny_shape(), 1));
  int behind = 0;
  for (const auto& [temperature, of_draft] : {std::pair{0., 1.}, {.5, 0.}}) {
    Decode decode{.target = target,
                  .draft = target,
                  .strategy = tree_of({3, 2, 1}, {{"draft_temperature", of_draft}}),
                  .options = {{"temperature", temperature}, {"max_tokens", 30}}};
    behind += behind_branches(compare(decode));
  }
  EXPECT_GT(behind, 6);
}

class PlannedTreeRule : public ::testing::TestWithParam<std::string> {};

TEST_P(PlannedTreeRule, DecidesAsOnTheHost) {
  const std::string rule = GetParam();
  const ModelPtr target = table_on_device(90, 1), draft = table_on_device(90, 2, 1);
  for (const double temperature : {0.0, 1.0}) {
    for (const json& sampling : {json{}, json{{"draft_temperature", 0}}, json{{"draft_top_k", 2}}}) {
      SCOPED_TRACE(std::to_string(temperature) + sampling.dump());
      Decode decode{.target = target,
                    .draft = draft,
                    .strategy = tree_of({3, 2}, sampling.is_null() ? json::object() : sampling)};
      decode.options = {{"rule", rule}, {"temperature", temperature}, {"max_tokens", 24}};
      if (rule == "coupled") decode.options["coins"] = "gumbel";
      EXPECT_EQ(compare(decode).tokens.size(), 24u);
    }
  }
}

std::vector<std::string> rules_of_trees() {
  std::vector<std::string> names;
  for (const AcceptanceRule& rule : acceptance_rules()) {
    if (rule.device_form != nullptr && rule.require == nullptr) names.emplace_back(rule.name);
  }
  return names;
}
INSTANTIATE_TEST_SUITE_P(Rules, PlannedTreeRule, ::testing::ValuesIn(rules_of_trees()),
                         [](const auto& info) { return info.param; });

// The host drafts trees for rules that do not judge every tree, and checks them before the device judges.
TEST(PlannedTree, RulesThatRefuseTrees) {
  const ModelPtr target = table_on_device(90, 1), draft = table_on_device(90, 2, 1);
  Decode decode{.target = target, .draft = draft, .strategy = tree_of({3, 2}, {{"children", "independent"}})};
  decode.options = {{"rule", "rejection_any_order"}, {"temperature", 1}, {"max_tokens", 24}};
  EXPECT_EQ(compare_verdicts(decode).tokens.size(), 24u);
  decode.strategy = choose("tree_speculation", {{"sequences", 3}, {"length", 2}});
  decode.options["rule"] = "multi_path_block";
  EXPECT_EQ(compare_verdicts(decode).tokens.size(), 24u);
  decode.loop.hash_rows = decode.loop.details = false;  // for these the host runs the rule, too
  for (const char* rule : {"rejection_any_order", "block", "multi_path_block"}) {
    decode.options["rule"] = rule;
    decode.strategy = tree_of({3, 2});
    std::string refused[2];
    for (const int on : {0, 1}) {
      decode.options["device_loop"] = on == 1 ? "on" : "off";
      try {
        decode.run();
        ADD_FAILURE() << rule;
      } catch (const Error& error) {
        refused[on] = error.what();
      }
    }
    EXPECT_EQ(refused[0], refused[1]);
    EXPECT_THAT(refused[0], ::testing::HasSubstr(fmt::format("acceptance rule {}", rule)));
  }
}

// A device takes up to 128 nodes. With more, "auto" lets the host run the steps, and "on" is an error.
TEST(PlannedTree, LargerTreesAreLeftToTheHost) {
  const ModelPtr target = table_on_device(90, 1), draft = table_on_device(90, 2, 1);
  for (const std::vector<int>& widths : {std::vector<int>{10, 20}, std::vector<int>(130, 1)}) {
    Decode decode{.target = target,
                  .draft = draft,
                  .strategy = tree_of(widths),
                  .options = {{"temperature", 1}, {"max_tokens", 12}}};
    decode.options["device_loop"] = "off";
    const GenerationRecord host = decode.run();
    decode.options["device_loop"] = "auto";
    const GenerationRecord left = decode.run();
    expect_equal(left, host);
    EXPECT_EQ(left.planned_steps + left.verified_steps, 0);
    decode.options["device_loop"] = "on";
    try {
      decode.run();
      ADD_FAILURE() << "a device ran steps of " << widths.size() << " levels";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), ::testing::HasSubstr("tree_speculation drafts up to"));
    }
  }
  // The largest tree that a device takes.
  Decode decode{.target = target,
                .draft = draft,
                .strategy = tree_of({1, 63, 1}),
                .options = {{"temperature", 0}, {"max_tokens", 8}}};
  EXPECT_EQ(compare(decode).tokens.size(), 8u);
}

TEST(PlannedTree, EndsWhereTheHostEnds) {
  const ModelPtr target = table_on_device(40, 3), draft = table_on_device(40, 3, 1.7);
  Decode decode{.target = target,
                .draft = draft,
                .strategy = tree_of({2, 2, 1}),
                .options = {{"temperature", 1}, {"max_tokens", 40}}};
  const std::vector<Token> text = compare(decode).tokens;
  for (int most = 1; most <= 9; ++most) {
    decode.options["max_tokens"] = most;
    EXPECT_EQ(compare(decode).finish, Finish::length);
  }
  decode.options["max_tokens"] = 40;
  int ended = 0;
  for (std::size_t at = 1; at < 12; ++at) {
    const auto here = text.begin() + static_cast<std::ptrdiff_t>(at);
    if (std::find(text.begin(), here, *here) != here) continue;
    Decode with_end = decode;
    with_end.eos = {*here, 39};
    ended += compare(with_end).finish == Finish::eos ? 1 : 0;
  }
  EXPECT_GT(ended, 4);
  for (int capacity = 4; capacity <= 12; ++capacity) {
    Decode shorter = decode;
    shorter.loop.capacity = capacity;
    EXPECT_EQ(compare(shorter).finish, Finish::context) << capacity;
  }
}

// With one row per level, levels are deep: their positions are far after the pending token's, here in another
// split of attention.
TEST(PlannedTree, DeepLevelsCrossSplitsAndContextsEnd) {
  const TinyModel tiny = random_llama(tiny_shape(), 1);
  Shape shorter = tiny.config;
  shorter.context = 134;
  shorter.layers = 1;
  const ModelPtr target = on_device(tiny), draft = on_device(random_llama(shorter, 1), target);
  for (const double temperature : {0.0, 1.0}) {
    Decode decode{.target = target,
                  .draft = draft,
                  .strategy = tree_of({2, 1, 1, 1, 1, 1}),
                  .options = {{"temperature", temperature}, {"max_tokens", 14}}};
    for (int i = 3; i < 123; ++i) decode.prompt.push_back(i % 60);
    const GenerationRecord record = compare(decode);
    EXPECT_EQ(record.steps[0].drafted.size(), 12u);
    EXPECT_TRUE(record.steps.back().drafted.empty());
  }
}

TEST(PlannedTree, GraphsAndTextsOneAfterTheOther) {
  const TinyModel tiny = random_llama(tiny_shape(), 1);
  const ModelPtr target = on_device(tiny), draft = Model::with_layers(target, {0});
  DecodeLoop loop(target, draft, tree_of({2, 2}), {.capacity = 256});
  int i = 0;
  for (const char* graph : {"off", "round", "loop", "round"}) {
    SCOPED_TRACE(graph);
    Decode decode{.target = target, .draft = draft, .strategy = tree_of({2, 2}), .loop = {.capacity = 256}};
    decode.options = {{"temperature", 1}, {"max_tokens", 12 + i}, {"device_loop", "off"}};
    decode.prompt.assign(static_cast<std::size_t>(3 + i), 7);
    decode.coins = Coins(static_cast<std::uint64_t>(++i), 3);
    const GenerationRecord host = decode.run();
    decode.options["device_loop"] = "on";
    decode.options["device_graph"] = graph;
    expect_equal(loop.run(decode.request()), host);
  }
}

// Each level takes one draft forward, for every width. A chain moves nothing, and a level of one node is
// drawn as in a chain.
TEST(PlannedTree, GraphOfARound) {
  const ModelPtr target = on_device(random_llama(tiny_shape(), 1)),
                 draft_model = Model::with_layers(target, {0});
  const auto session = target->open(256), draft = draft_model->open(256);
  for (const std::vector<int>& widths : {std::vector<int>{3, 2, 1}, {1, 2}, {1, 1}}) {
    SCOPED_TRACE(widths.size());
    PlanShape shape;
    shape.widths = widths;
    shape.vocab = shape.draft_columns = 64;
    shape.target_capacity = shape.draft_capacity = 256;
    shape.target.greedy = shape.draft.greedy = false;
    const auto rounds = PlannedRounds::make(shape, *session, draft.get());
    session->rewind(0);
    draft->rewind(0);
    session->prefill(std::vector<Token>(20, 3));
    draft->prefill(std::vector<Token>(20, 3));
    PlanStart start;
    start.position = 20;
    start.previous = start.pending = 3;
    start.max_tokens = 12;
    start.key = Coins(7, 3).key();
    rounds->start(start, RoundQueue::kGraph, false);
    int tokens = 0;
    for (PlanEnd end = PlanEnd::kNone; end == PlanEnd::kNone;) {
      const PlanRound& round = rounds->next();
      tokens += round.emitted;
      end = round.end;
    }
    EXPECT_EQ(tokens, 12);
    ASSERT_EQ(rounds->graphs().size(), 1u);
    std::vector<std::string> kernels;
    for (const GraphNode& node : rounds->graphs().begin()->second->nodes) kernels.emplace_back(node.kernel);
    const auto count = [&](const std::string& name) {
      return std::count(kernels.begin(), kernels.end(), name);
    };
    const auto depth = static_cast<std::ptrdiff_t>(widths.size());
    const bool chain = shape.is_chain();
    EXPECT_EQ(count("lay_rows"), depth + 1);
    EXPECT_EQ(count("gather"), depth + 1);
    EXPECT_EQ(count("standardise"), depth + 1);
    const std::ptrdiff_t alone = widths[0] > 1 ? 0 : chain ? depth : 1;
    EXPECT_EQ(count("sample"), alone);
    EXPECT_EQ(count("siblings"), depth - alone);
    EXPECT_EQ(count("attention_splits"), depth + 2);
    EXPECT_EQ(count("move_accepted"), chain ? 0 : 2);
    EXPECT_EQ(kernels.back(), "settle");
    if (!chain) {
      EXPECT_EQ(std::vector<std::string>(kernels.end() - 4, kernels.end()),
                (std::vector<std::string>{"accept", "move_accepted", "move_accepted", "settle"}));
    }
  }
}

// A row that holds no numbers is an error, for target and draft, in chains and in trees.
TEST(PlannedTree, BrokenRowsAreReported) {
  const ModelPtr broken = on_device(counting_table(true)), whole = on_device(counting_table(false));
  for (const double temperature : {0., .5}) {
    for (const char* which : {"target", "draft"}) {
      for (const StrategyChoice& strategy :
           {choose("autoregressive"), choose("speculative_sampling"), tree_of({2, 2})}) {
        const bool of_target = std::string(which) == "target";
        if (!of_target && strategy.info().name == "autoregressive") continue;
        SCOPED_TRACE(fmt::format("{} at {}, {}", which, temperature, strategy.info().name));
        Decode decode{.target = of_target ? broken : whole,
                      .draft = of_target ? whole : broken,
                      .strategy = strategy,
                      .prompt = {4, 5, 6}};
        decode.options = {{"temperature", temperature}, {"max_tokens", 100}, {"device_loop", "on"}};
        try {
          decode.run();
          FAIL();
        } catch (const Error& error) {
          EXPECT_THAT(error.what(), ::testing::HasSubstr(fmt::format("logits of the {}, entry 4", which)));
        }
      }
    }
  }
}

TEST(PlannedTree, ANodeHasNoMoreChildrenThanTheRowHasTokens) {
  const TinyModel tiny = random_llama(tiny_shape(), 1);
  const ModelPtr target = on_device(tiny),
                 reduced = on_device(random_llama(tiny_draft_shape(tiny.config), 2), target);
  Decode decode{.target = target,
                .draft = reduced,
                .strategy = tree_of({40}),
                .options = {{"max_tokens", 6}, {"device_loop", "auto"}}};
  EXPECT_THROW(decode.run(), Error);
  decode.strategy = tree_of({32});
  compare(decode);
}

}  // namespace speclab::planned_loop_test

namespace speclab {
namespace {

using namespace device_step;

// Compares the kernel with SiblingDraw on rows of any kind.
TEST(DeviceSiblings, TokensAndLawsAreThoseOfTheHost) {
  simt::Machine machine(1);
  const cuda::Place place(machine);
  const std::int64_t position = 77;
  unsigned seed = 300;
  for (const int vocab : {3, 64, 1025, 3001}) {
    for (const SamplingParams& sampling :
         {SamplingParams{}, SamplingParams{.temperature = 1}, SamplingParams{.temperature = .7, .top_k = 2},
          SamplingParams{.temperature = 2, .top_p = .6}}) {
      for (const bool reduced : {false, true}) {
        for (const bool coupled : {false, true}) {
          const int count = std::min(5, reduced ? (vocab + 1) / 2 : vocab), rows = 2;
          SCOPED_TRACE(fmt::format("vocabulary {}, temperature {}, reduced {}, coupled {}", vocab,
                                   sampling.temperature, reduced, coupled));
          std::vector<Token> ids;
          for (Token token = 0; reduced && token < vocab; token += 2) ids.push_back(token);
          const int columns = reduced ? static_cast<int>(ids.size()) : vocab;
          std::vector<float> logits = random_logits(rows * columns, ++seed);
          for (int row = 0; row < rows; ++row)
            logits[static_cast<std::size_t>(row * columns)] = 2.5f;  // no row is banned completely
          const Coins coins(seed, 4);

          Draft draft;
          draft.reset(0);
          draft.add(0, 0);
          SiblingDraw host;
          for (int row = 0; row < rows; ++row) {
            host.add(draft, row, count,
                     std::span(logits).subspan(static_cast<std::size_t>(row * columns),
                                               static_cast<std::size_t>(columns)),
                     sampling, ids, vocab, [&](const Distribution& q) {
                       const auto draw = static_cast<std::uint32_t>(draft.tree.size());
                       return coupled ? q.sample_coupled(coins, position)
                                      : q.sample(coins, {position, Purpose::draft, draw});
                     });
          }
          ASSERT_EQ(draft.tree.size(), 2 + rows * count);

          const auto all = static_cast<std::size_t>(rows * count);
          const DeviceArray<float> d_logits(place, logits),
              weights(place, all * static_cast<std::size_t>(vocab));
          const DeviceArray<std::int32_t> d_ids(place, ids), tokens(place, all);
          const DeviceArray<cuda::Law> laws(place, all);
          const DeviceArray<std::int64_t> at(place, std::vector<std::int64_t>{position});
          const PlanSampling plan = device_sampling(sampling);
          cuda::Standardise standardise{.logits = d_logits.data(),
                                        .ids = reduced ? d_ids.data() : nullptr,
                                        .rows = rows,
                                        .columns = columns,
                                        .vocab = vocab,
                                        .greedy = plan.greedy,
                                        .scale = plan.scale,
                                        .top_k = plan.top_k,
                                        .top_p = plan.top_p,
                                        .weights = weights.data(),
                                        .laws = laws.data(),
                                        .every = count};
          cuda::launch(standardise, place.stream());
          cuda::launch(cuda::Siblings{.logits = d_logits.data(),
                                      .ids = reduced ? d_ids.data() : nullptr,
                                      .rows = rows,
                                      .columns = columns,
                                      .vocab = vocab,
                                      .count = count,
                                      .weights = weights.data(),
                                      .laws = laws.data(),
                                      .key = coins.key(),
                                      .position = at.data(),
                                      .draw = 2,
                                      .coupled = coupled,
                                      .tokens = tokens.data()},
                       place.stream());
          for (std::size_t i = 0; i < all; ++i) {
            const int node = 2 + static_cast<int>(i);
            ASSERT_EQ(tokens[i], draft.tree.token(node)) << i;
            const cuda::Law law = laws[i];
            const Distribution* q = draft.q_at(node);
            if (q == nullptr || q->one_hot()) {
              EXPECT_EQ(law.one_hot, draft.tree.token(node));
              continue;
            }
            EXPECT_EQ(law.one_hot, -1);
            EXPECT_EQ(law.sum, q->sum());
            for (Token x = 0; x < vocab; ++x)
              ASSERT_EQ(weights[i * static_cast<std::size_t>(vocab) + static_cast<std::size_t>(x)],
                        q->weights()[static_cast<std::size_t>(x)])
                  << x;
          }
        }
      }
    }
  }
}

// A broken row gives laws that report it.
TEST(DeviceSiblings, BrokenRowsAreReportedByEveryChild) {
  simt::Machine machine(1);
  const cuda::Place place(machine);
  std::vector<float> logits = random_logits(100, 5);
  logits[7] = std::numeric_limits<float>::quiet_NaN();
  const DeviceArray<float> d_logits(place, logits);
  const DeviceArray<std::int32_t> tokens(place, 3);
  const DeviceArray<cuda::Law> laws(place, 3);
  const DeviceArray<std::int64_t> at(place, std::vector<std::int64_t>{1});
  cuda::launch(cuda::Standardise{.logits = d_logits.data(),
                                 .rows = 1,
                                 .columns = 100,
                                 .vocab = 100,
                                 .greedy = true,
                                 .laws = laws.data(),
                                 .every = 3},
               place.stream());
  cuda::launch(cuda::Siblings{.logits = d_logits.data(),
                              .rows = 1,
                              .columns = 100,
                              .vocab = 100,
                              .count = 3,
                              .laws = laws.data(),
                              .position = at.data(),
                              .tokens = tokens.data()},
               place.stream());
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(cuda::Law(laws[i]).invalid, 7);
}

}  // namespace
}  // namespace speclab
