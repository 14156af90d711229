#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "core/base/error.h"
#include "core/decoding/loop/executors/device_verifier.h"
#include "tests/decoding/loop/planned_loop.h"

// Compares drafts of the host that a (simulated) device verifies with the same decoding with verdicts of the
// host: tokens, rows, verdicts, counts and work are bitwise equal.

namespace speclab::planned_loop_test {

using ::testing::HasSubstr;

/// The drafts of Guesses. alike: the children of a node are all drawn or all copied. paths: paths from the
/// pending token, drawn independently.
enum class Form { any, alike, chains, paths };

/// Drafts trees of any form and size, also chains: right tokens, wrong tokens, and tokens drawn from laws
/// that siblings may share. The text alone determines the draft.
template <int kMost, Form kForm>
struct Guesses final : Strategy {
  explicit Guesses(int tokens) : vocab(tokens) {}
  void begin(const Sequence&) override {}
  void draft(std::span<const Sequence* const> sequences, std::span<Draft* const> drafts) override {
    for (std::size_t i = 0; i < sequences.size(); ++i) guess(*sequences[i], *drafts[i]);
  }
  void observe(std::span<const Sequence* const>, std::span<const Outcome> outcomes) override {
    for (const Outcome& outcome : outcomes) EXPECT_EQ(outcome.rows.logits, nullptr);
  }
  void guess(const Sequence& sequence, Draft& draft) const {
    const std::int64_t position = sequence.position();
    std::mt19937 random(static_cast<unsigned>(position));
    const int nodes = static_cast<int>(random() % kMost);
    const bool chain = random() % 3 == 0 || kForm == Form::chains;
    std::vector<char> right(1, 1);
    if (kForm == Form::paths && !chain) return guess_paths(sequence, draft, random);
    std::vector<float> logits(static_cast<std::size_t>(vocab));
    while (draft.tree.size() <= nodes) {
      const int node = draft.tree.size(),
                parent = chain ? node - 1 : static_cast<int>(random() % static_cast<unsigned>(node));
      const int depth = draft.tree.depth(parent) + 1;
      if (depth > sequence.depth_limit) {
        if (chain || sequence.depth_limit <= 0) break;
        continue;
      }
      const auto index = static_cast<std::size_t>(position + depth - sequence.prompt_length);
      const Token expected = right[static_cast<std::size_t>(parent)] != 0 && index < sequence.reference.size()
                                 ? sequence.reference[index]
                                 : -1;
      Token token = random() % 2 == 0 && expected >= 0
                        ? expected
                        : static_cast<Token>(random() % static_cast<unsigned>(vocab));
      int law = Draft::kOneHot;
      if (kForm == Form::alike ? parent % 3 != 2 : random() % 3 == 0) {
        const int before = draft.q_of.back();
        if (node > 1 && draft.tree.parent(node - 1) == parent && before != Draft::kOneHot) {
          law = before;
        } else {
          for (float& z : logits) z = static_cast<float>(random() % 8) - 4;
          if (expected >= 0) logits[static_cast<std::size_t>(expected)] = 6;
          const bool greedy = kForm != Form::alike && random() % 8 == 0;
          draft.new_q(&law).assign_logits(logits, {.temperature = greedy ? 0. : 1.}, {}, vocab);
        }
        const Coins::Address coin{position + depth, Purpose::draft, static_cast<std::uint32_t>(node)};
        token = draft.q[static_cast<std::size_t>(law)].sample(sequence.coins, coin);
      }
      draft.add(token, parent, law, .25f);
      right.push_back(token == expected);
    }
    if (draft.tree.drafted() > 0) draft.source = "guesses";
  }
  /// Tokens after equal tokens are drawn from one law, which often gives few tokens all mass.
  void guess_paths(const Sequence& sequence, Draft& draft, std::mt19937& random) const {
    const int paths = 2 + static_cast<int>(random() % 2),
              length = std::min(1 + static_cast<int>(random() % 3), sequence.depth_limit);
    std::map<std::vector<Token>, int> laws;
    std::vector<float> logits(static_cast<std::size_t>(vocab));
    for (int path = 0; path < paths; ++path) {
      std::vector<Token> tokens;
      for (int depth = 1; depth <= length; ++depth) {
        if (laws.count(tokens) == 0) {
          const auto index = static_cast<std::size_t>(sequence.position() + depth - sequence.prompt_length);
          for (float& z : logits) z = static_cast<float>(random() % 8) - 4;
          if (index < sequence.reference.size())
            logits[static_cast<std::size_t>(sequence.reference[index])] = 6;
          draft.new_q(&laws[tokens]).assign_logits(logits, {.temperature = 1}, {}, vocab);
        }
        const int node = draft.tree.size(), law = laws[tokens];
        const Token token = draft.q[static_cast<std::size_t>(law)].sample(
            sequence.coins, {sequence.position() + depth, Purpose::draft, static_cast<std::uint32_t>(node)});
        draft.add(token, depth == 1 ? 0 : node - 1, law, .25f);
        tokens.push_back(token);
      }
    }
    if (draft.tree.drafted() > 0) draft.source = "guesses";
  }
  int vocab;
};

template <int kMost, Form kForm = Form::any>
StrategyChoice guesses() {
  static const StrategyEntry entry =
      local_entry([](const void*, const Resources& resources) -> std::unique_ptr<Strategy> {
        return std::make_unique<Guesses<kMost, kForm>>(resources.target->config().vocab);
      });
  return StrategyChoice(entry);
}

/// Sets the autoregressive text as the reference.
Decode with_reference(Decode decode) {
  Decode plain = decode;
  plain.strategy = choose("autoregressive");
  decode.reference = plain.run().tokens;
  return decode;
}

TEST(VerifiedLoop, TreesOfTheHost) {
  const ModelPtr target = on_device(random_llama(tiny_shape(), 1));
  int accepted = 0, rejected = 0, moved = 0;
  for (const json& options :
       {json{{"temperature", 0}}, json{{"temperature", .8}, {"top_k", 12}, {"top_p", .9}},
        json{{"temperature", 1}, {"coins", "gumbel"}}}) {
    SCOPED_TRACE(options.dump());
    Decode decode{.target = target, .strategy = guesses<12>(), .options = options};
    decode.options["max_tokens"] = 25;
    const GenerationRecord record = compare_verdicts(with_reference(decode));
    EXPECT_EQ(record.tokens.size(), 25u);
    for (const StepRecord& step : record.steps) {
      accepted += step.accepted;
      rejected += static_cast<int>(step.drafted.size()) - step.accepted;
      int depth = 0;
      for (std::size_t i = 0; i < step.drafted.size(); ++i)
        moved += step.drafted[i].accepted && static_cast<int>(i) != depth++;
    }
  }
  EXPECT_GT(accepted, 15);
  EXPECT_GT(rejected, 30);
  EXPECT_GT(moved, 4);
}

TEST(VerifiedLoop, TreesOfAnySize) {
  const ModelPtr target = table_on_device(40, 3);
  Decode decode{.target = target,
                .strategy = guesses<128>(),
                .options = {{"temperature", 1}, {"coins", "gumbel"}, {"max_tokens", 24}}};
  const GenerationRecord record = compare_verdicts(with_reference(decode));
  int most = 0;
  for (const StepRecord& step : record.steps) most = std::max(most, step.rows);
  EXPECT_GT(most, 64);
  decode.loop.scratch = 100;  // not a power of two
  decode.strategy = guesses<100>();
  compare_verdicts(with_reference(decode));
}

class VerifiedRule : public ::testing::TestWithParam<std::string> {};

TEST_P(VerifiedRule, DecidesAsOnTheHost) {
  const std::string rule = GetParam();
  const json options = {{"lenience", {{"lenience", .5}}},
                        {"uniform_b", {{"b", .7}}},
                        {"distillspec_lin", {{"epsilon", .6}}},
                        {"distillspec_sq", {{"epsilon", .8}}},
                        {"distillspec_exp", {{"epsilon", .6}}},
                        {"top_beta", {{"beta", 3}}},
                        {"gap", {{"gap", .7}}},
                        {"specdec", {{"beta", 3}, {"gap", .7}}},
                        {"distance", {{"token_distance", 9}}},
                        {"minimum_block", {{"beta", 2}, {"min_block", 3}}},
                        {"typical", {{"epsilon", .05}, {"delta", .5}}},
                        {"threshold", {{"theta", .01}, {"top_k", 20}}},
                        {"top_beta_longest", {{"beta", 3}}},
                        {"gap_longest", {{"gap", .7}}},
                        {"typical_longest", {{"epsilon", .05}, {"delta", .5}}},
                        {"threshold_longest", {{"theta", .01}, {"top_k", 20}}},
                        {"specdec_longest", {{"beta", 3}, {"gap", .7}}},
                        {"distance_longest", {{"token_distance", 9}}},
                        {"coupled", {{"coins", "gumbel"}}}};
  const AcceptanceRule& entry = find_acceptance_rule(rule);
  for (const double temperature : {0.0, 1.0}) {
    SCOPED_TRACE(temperature);
    Decode decode{.target = table_on_device(90, 1), .strategy = guesses<8>()};
    if (entry.chains_only) decode.strategy = guesses<8, Form::chains>();
    if (entry.independent_children_only) decode.strategy = guesses<8, Form::alike>();
    if (entry.independent_paths_only) decode.strategy = guesses<8, Form::paths>();
    decode.options = options.value(rule, json::object());
    decode.options.update({{"rule", rule}, {"temperature", temperature}, {"max_tokens", 30}});
    EXPECT_EQ(compare_verdicts(with_reference(decode)).tokens.size(), 30u);
  }
}

std::vector<std::string> rules_of_verdicts() {
  std::vector<std::string> names;
  for (const AcceptanceRule& rule : acceptance_rules()) {
    if (rule.device_form != nullptr) names.emplace_back(rule.name);
  }
  return names;
}
INSTANTIATE_TEST_SUITE_P(Rules, VerifiedRule, ::testing::ValuesIn(rules_of_verdicts()),
                         [](const auto& info) { return info.param; });

// Every strategy that needs no file and no other program. The device verifies those that have no plan of
// whole steps and read no rows.
TEST(VerifiedLoop, EveryStrategyGivesTheTextOfTheHost) {
  const ModelPtr target = table_on_device(30, 3), draft = table_on_device(30, 3, 1.6);
  int verified = 0, on_the_host = 0;
  for (const StrategyEntry& entry : strategies()) {
    if (!entry.info.needs_file.empty() || entry.info.needs_program) continue;
    if (entry.info.skips_layers) continue;  // the table has no layers
    if (entry.info.drafts_ahead) continue;  // the threads of a device cannot be divided
    for (const json& sampling : {json{{"temperature", 0}}, json{{"temperature", 1}}}) {
      SCOPED_TRACE(std::string(entry.info.name) + sampling.dump());
      Decode decode{.target = target,
                    .draft = draft,
                    .strategy = choose(std::string(entry.info.name)),
                    .options = sampling,
                    .prompt = {1, 2, 3, 4, 1, 2, 3, 4, 1, 2}};
      decode.options.update({{"max_tokens", 20}, {"device_loop", "off"}});
      decode = with_reference(decode);
      const GenerationRecord host = decode.run();
      decode.options["device_loop"] = "auto";
      const GenerationRecord record = decode.run();
      expect_equal(record, host);
      const bool host_verifies = reads_rows(decode.strategy, target, draft);
      EXPECT_EQ(record.planned_steps + record.verified_steps,
                host_verifies ? 0 : static_cast<int>(record.steps.size()));
      verified += record.verified_steps > 0;
      on_the_host += host_verifies;
    }
  }
  EXPECT_GE(verified, 10);
  EXPECT_GE(on_the_host, 8);
}

// Tokens that the host drew from a model come with their laws.
TEST(VerifiedLoop, LawsOfDrawnTokens) {
  const ModelPtr target = table_on_device(40, 3), draft = table_on_device(40, 3, 1.5);
  for (const auto& [name, options] :
       {std::pair<const char*, json>{"speculative_sampling", {{"gamma", 4}, {"schedule", "heuristic"}}},
        {"prompt_lookup", {{"fallback", "draft"}, {"merge", "tree"}, {"ngram_min", 1}}},
        {"composition", {{"sources", {"text", "draft"}}}},
        {"ngram_model", {{"known", 0}}}}) {
    SCOPED_TRACE(name);
    Decode decode{.target = target,
                  .draft = draft,
                  .strategy = choose(name, options),
                  .options = {{"temperature", .9}, {"max_tokens", 30}},
                  .prompt = {1, 2, 3, 1, 2, 3}};
    const GenerationRecord record = compare_verdicts(decode);
    int drawn = 0;
    for (const StepRecord& step : record.steps) {
      for (const DraftedToken& token : step.drafted) drawn += token.tested && token.q < 1;
    }
    EXPECT_GT(drawn, 5);
  }
}

TEST(VerifiedLoop, EndsWhereTheHostEnds) {
  const ModelPtr target = table_on_device(40, 3);
  Decode decode{.target = target,
                .strategy = guesses<8>(),
                .options = {{"temperature", 1}, {"coins", "gumbel"}, {"max_tokens", 40}}};
  decode = with_reference(decode);
  const std::vector<Token> text = compare_verdicts(decode).tokens;
  for (int most = 2; most <= 13; ++most) {
    decode.options["max_tokens"] = most;
    EXPECT_EQ(compare_verdicts(decode).finish, Finish::length);
  }
  decode.options["max_tokens"] = 40;
  int ended = 0, stopped = 0;
  for (std::size_t at = 1; at < 14; ++at) {
    if (std::find(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(at), text[at]) !=
        text.begin() + static_cast<std::ptrdiff_t>(at))
      continue;
    Decode with_end = decode;
    with_end.eos.resize(kMostPlanEnds, 39);  // more than a plan has room for
    with_end.eos.push_back(text[at]);
    ended += compare_verdicts(with_end).finish == Finish::eos;
    Decode with_stop = decode;  // the host finds stop strings
    with_stop.loop.token_bytes = [](Token token, std::string& out) {
      out += "<" + std::to_string(token) + ">";
    };
    with_stop.options["stop"] = {"<" + std::to_string(text[at]) + ">"};
    stopped += compare_verdicts(with_stop).finish == Finish::stop;
    with_stop.strategy = choose("autoregressive");
    EXPECT_EQ(compare_verdicts(with_stop).finish, Finish::stop);
  }
  EXPECT_GT(ended, 5);
  EXPECT_GT(stopped, 5);
  for (int capacity = 4; capacity <= 16; ++capacity) {
    Decode shorter = decode;
    shorter.loop.capacity = capacity;
    EXPECT_EQ(compare_verdicts(shorter).finish, Finish::context) << capacity;
  }
}

// Tests positions more than a split of attention after the first tier, and the end of the context, where
// there is no room for padding.
TEST(VerifiedLoop, LongTextsAndTheEndOfTheContext) {
  Shape shape = tiny_shape();
  shape.context = 420;
  const ModelPtr target = on_device(random_llama(shape, 1));
  for (const int length : {250, 390, 418}) {
    Decode decode{
        .target = target, .strategy = guesses<7>(), .options = {{"temperature", 0}, {"max_tokens", 20}}};
    decode.loop.capacity = 420;
    decode.prompt.clear();
    for (int i = 0; i < length; ++i) decode.prompt.push_back(i % 60);
    EXPECT_EQ(compare_verdicts(with_reference(decode)).finish,
              length == 418 ? Finish::context : Finish::length);
  }
}

// One loop decodes several texts, with other coins, lengths, sampling and launches. One is cancelled, one
// cannot be verified by the device.
TEST(VerifiedLoop, GoesOnWithTheNextText) {
  const ModelPtr target = on_device(random_llama(tiny_shape(), 1));
  DecodeLoop loop(target, nullptr, guesses<8>(), {.capacity = 256});
  Decode decode{.target = target, .strategy = guesses<8>(), .loop = {.capacity = 256}};
  int i = 0;
  for (const char* graph : {"off", "round", "loop", "round", "off"}) {
    SCOPED_TRACE(i);
    decode.options = {{"temperature", i % 3 == 1 ? 0 : 1}, {"max_tokens", 8 + 3 * i}, {"device_loop", "off"}};
    if (i == 3) decode.options["repetition_penalty"] = 1.3;
    decode.prompt.assign(static_cast<std::size_t>(3 + i), 7);
    decode.coins = Coins(static_cast<std::uint64_t>(i), 3);
    decode = with_reference(decode);
    const GenerationRecord host = decode.run();
    decode.options["device_loop"] = "auto";
    decode.options["device_graph"] = graph;
    if (i == 2) {
      std::stop_source source;
      source.request_stop();
      EXPECT_EQ(loop.run(decode.request(), source.get_token()).finish, Finish::cancelled);
    }
    const GenerationRecord record = loop.run(decode.request());
    expect_equal(record, host);
    EXPECT_EQ(record.verified_steps, i++ == 3 ? 0 : static_cast<int>(record.steps.size()));
  }
}

// The sequences of a batch have different trees and end at different steps.
TEST(VerifiedLoop, ABatchOfSequences) {
  const ModelPtr target = table_on_device(90, 1);
  for (const char* rule : {"rejection", "traversal", "typical_longest", "k_seq"}) {
    SCOPED_TRACE(rule);
    std::vector<GenerationRecord> alone;
    std::vector<Decode> decodes;
    for (int i = 0; i < 3; ++i) {
      Decode decode{.target = target, .strategy = guesses<8>()};
      decode.prompt.assign(static_cast<std::size_t>(3 + i), 7 + i);
      decode.coins = Coins(static_cast<std::uint64_t>(i), 3);
      decode.options = {{"rule", rule}, {"temperature", 1}, {"max_tokens", 12 + 5 * i}};
      decode = with_reference(decode);
      decode.options["device_loop"] = "off";
      alone.push_back(decode.run());
      decode.options["device_loop"] = "on";
      decodes.push_back(decode);
    }
    std::vector<Request> requests;
    for (const Decode& decode : decodes) requests.push_back(decode.request());
    DecodeLoop loop(target, nullptr, guesses<8>(), {.batch = 3, .capacity = 256});
    const std::vector<GenerationRecord> together = loop.run(requests);
    ASSERT_EQ(together.size(), alone.size());
    for (std::size_t i = 0; i < alone.size(); ++i) {
      EXPECT_EQ(together[i].tokens, alone[i].tokens) << i;
      EXPECT_EQ(together[i].steps.size(), alone[i].steps.size());
      EXPECT_EQ(together[i].verified_steps, static_cast<int>(together[i].steps.size()));
    }
  }
}

TEST(VerifiedLoop, StreamsAndWorksWithoutRows) {
  const ModelPtr target = table_on_device(50, 4);
  std::vector<Token> streamed;
  Decode decode{
      .target = target, .strategy = guesses<8>(), .options = {{"temperature", 1}, {"max_tokens", 20}}};
  decode = with_reference(decode);
  const std::vector<Token> expected = decode.run().tokens;
  decode.options["device_loop"] = "on";
  decode.loop.hash_rows = decode.loop.details = false;
  decode.loop.on_emit = [&](int, const StepRecord&, TokenSpan emitted) {
    streamed.insert(streamed.end(), emitted.begin(), emitted.end());
  };
  const GenerationRecord record = decode.run();
  EXPECT_EQ(record.tokens, expected);
  EXPECT_EQ(streamed, expected);
  EXPECT_TRUE(record.row_hashes.empty());
  EXPECT_GT(record.steps[0].times[Phase::target], 0);
}

/// Reads a row without having declared it.
struct Silent final : Strategy {
  void begin(const Sequence&) override {}
  void draft(std::span<const Sequence* const>, std::span<Draft* const>) override {}
  void observe(std::span<const Sequence* const>, std::span<const Outcome> outcomes) override {
    outcomes[0].rows.best(0);
  }
};

TEST(VerifiedLoop, ReadingRowsMustBeDeclared) {
  const StrategyEntry silent = local_entry(
      [](const void*, const Resources&) -> std::unique_ptr<Strategy> { return std::make_unique<Silent>(); });
  for (const ModelPtr& target : {random_markov(20, 1), table_on_device(20, 1)}) {
    Decode decode{.target = target, .strategy = StrategyChoice(silent), .options = {{"max_tokens", 4}}};
    try {
      decode.run();
      FAIL();
    } catch (const Bug& bug) {
      EXPECT_THAT(bug.what(), HasSubstr("reads()"));
    }
  }
}

// A step is [rows | forward | accept | move | settle]. There is one graph for each number of rows, the same
// for all drafts.
TEST(VerifiedLoop, GraphOfAVerdict) {
  const ModelPtr target = on_device(random_llama(tiny_shape(), 1));
  const auto session = target->open(256);
  session->prefill(std::vector<Token>(20, 3));
  for (const int rows : {1, 2, 4}) {
    SCOPED_TRACE(rows);
    PlanShape shape;
    shape.vocab = 64;
    shape.target_capacity = 256;
    shape.given = rows;
    const auto rounds = PlannedRounds::make(shape, *session, nullptr);
    PlanStart start;
    start.position = 20;
    start.previous = start.pending = 3;
    start.max_tokens = 100;
    const std::vector<Token> tokens{5, 6, 7};
    const std::vector<std::int32_t> chain{0, 1, 2}, star{0, 0, 0}, laws(3, -1);
    std::vector<Token> next;
    for (const auto& parents : {chain, star}) {
      for (std::size_t drafted = 0; drafted < static_cast<std::size_t>(rows); ++drafted) {
        start.draft = {TokenSpan(tokens).first(drafted),
                       std::span(parents).first(drafted),
                       std::span(laws).first(drafted),
                       {}};
        rounds->start(start, RoundQueue::kGraph, false);
        const PlanRound& round = rounds->next(1);
        EXPECT_EQ(round.nodes, 1 + static_cast<int>(drafted));
        EXPECT_EQ(round.position, 20);
        next.push_back(round.accepted == 0 ? round.next : round.tokens[round.path[0]]);
      }
    }
    EXPECT_EQ(next, std::vector<Token>(next.size(), next[0]));
    ASSERT_EQ(rounds->graphs().size(), 1u);
    std::vector<std::string> kernels;
    for (const GraphNode& node : rounds->graphs().begin()->second->nodes) kernels.emplace_back(node.kernel);
    EXPECT_EQ(kernels.front(), "lay_rows");
    EXPECT_EQ(std::count(kernels.begin(), kernels.end(), "lay_rows"), 1);
    EXPECT_EQ(std::count(kernels.begin(), kernels.end(), "gather"), 1);
    std::vector<std::string> last{"standardise", "accept", "move_accepted", "settle"};
    if (rows <= 2) last.erase(last.begin() + 2);
    EXPECT_EQ(
        std::vector<std::string>(kernels.end() - static_cast<std::ptrdiff_t>(last.size()), kernels.end()),
        last);
  }
}

TEST(VerifiedLoop, InvalidDraftsAreRefused) {
  const ModelPtr target = table_on_device(20, 1);
  const auto session = target->open(64);
  PlanShape shape;
  shape.vocab = 20;
  shape.target_capacity = 64;
  const auto verifier = DeviceVerifier::make(shape, *session, 4);
  ASSERT_NE(verifier, nullptr);
  Draft draft;
  const auto verify = [&] { verifier->verify(draft, 3, 1, Coins(1, 1), RoundQueue::kLaunches); };
  draft.reset(2);
  for (int i = 0; i < 3; ++i) draft.add(i, 0);
  EXPECT_NO_THROW(verify());
  draft.add(3, 0);
  EXPECT_THROW(verify(), Bug);  // five nodes
  draft.reset(2);
  draft.add_probe(1, 0);
  EXPECT_THROW(verify(), Bug);

  shape.given = 4;
  const auto rounds = PlannedRounds::make(shape, *session, nullptr);
  const std::vector<Token> tokens{5, 6};
  const std::vector<float> weights(20, 1.f);
  const PlanLaw law{weights.data(), 20};
  using Numbers = std::vector<std::int32_t>;
  const std::pair<Numbers, Numbers> wrong[] = {
      {{0, 2}, {-1, -1}}, {{-1, 0}, {-1, -1}}, {{0}, {-1}}, {{0, 1}, {0, -1}}};
  for (const auto& [parents, laws] : wrong) {
    PlanStart start;
    start.position = 3;
    start.max_tokens = 9;
    start.draft = {tokens, parents, laws, {}};
    if (laws[0] == 0) start.draft.laws = {&law, 1};  // although the plan has none
    EXPECT_THROW(rounds->start(start, RoundQueue::kLaunches, false), Bug);
  }
}

// Some rules look at nodes beyond the accepted path. The first row that they need must hold numbers.
TEST(VerifiedLoop, BrokenRowsBeyondTheAcceptedPathAreReported) {
  const ModelPtr target = on_device(counting_table(true));
  const auto session = target->open(64);
  session->prefill(std::vector<Token>(20, 3));
  Draft draft;
  draft.reset(3);
  draft.add(7, 0);  // the row after token 7 holds no numbers
  draft.add(4, 1);
  draft.add(4, 0);
  for (const auto& [rule, greedy, broken] : {std::tuple{AcceptRule::kPaths, false, true},
                                             {AcceptRule::kPaths, true, true},
                                             {AcceptRule::kLongest, false, true},
                                             {AcceptRule::kLongest, true, true},
                                             {AcceptRule::kExact, true, false}}) {
    SCOPED_TRACE(fmt::format("rule {}, {}", static_cast<int>(rule), greedy));
    PlanShape shape;
    shape.vocab = 20;
    shape.target_capacity = 64;
    shape.rule = rule;
    shape.target.greedy = greedy;
    const auto verifier = DeviceVerifier::make(shape, *session, 4);
    std::string found;
    try {
      verifier->verify(draft, 20, 3, Coins(1, 1), RoundQueue::kLaunches);
    } catch (const Error& error) {
      found = error.what();
    }
    EXPECT_EQ(found.find("logits of the target, entry 4") != std::string::npos, broken) << found;
  }
}

// The rule that chooses a path needs the row after a token to judge the next one, and the row after the last
// accepted token for the bonus.
TEST(VerifiedLoop, BrokenRowsOfAChosenPathAreReported) {
  const ModelPtr target = on_device(counting_table(true));
  const auto session = target->open(64);
  session->prefill(std::vector<Token>(20, 3));
  for (const int tokens : {2, 1}) {
    Draft draft;
    draft.reset(6);
    draft.add(7, 0);  // the row after token 7 holds no numbers
    if (tokens == 2) draft.add(4, 1);
    PlanShape shape;
    shape.vocab = 20;
    shape.target_capacity = 64;
    shape.rule = AcceptRule::kMultiPath;
    shape.target = {.greedy = false, .scale = .5f};  // about four of ten drafts are accepted
    const auto verifier = DeviceVerifier::make(shape, *session, 4);
    int found = 0;
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
      try {
        verifier->verify(draft, 20, 3, Coins(seed, 1), RoundQueue::kLaunches);
      } catch (const Error& error) {
        EXPECT_THAT(error.what(), HasSubstr("logits of the target, entry 4"));
        ++found;
      }
    }
    EXPECT_GT(found, tokens == 2 ? 19 : 0);
    EXPECT_LT(found, tokens == 2 ? 21 : 20);
  }
}

// A row that holds no numbers is an error, as on the host. The loop can be used again.
TEST(VerifiedLoop, BrokenRowsAreReported) {
  const ModelPtr target = on_device(counting_table(true));
  for (const double temperature : {0., .5}) {
    Decode decode{.target = target,
                  .strategy = choose("prompt_lookup"),
                  .options = {{"temperature", temperature}, {"max_tokens", 60}, {"device_loop", "on"}}};
    DecodeLoop loop(target, nullptr, decode.strategy, {.capacity = 128});
    try {
      loop.run(decode.request());
      FAIL();
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("logits of the target, entry 4"));
    }
    decode.prompt = {9, 10, 11};
    decode.options["max_tokens"] = 6;
    decode.options["temperature"] = 0;
    EXPECT_EQ(loop.run(decode.request()).tokens.size(), 6u);
  }
}

}  // namespace speclab::planned_loop_test
