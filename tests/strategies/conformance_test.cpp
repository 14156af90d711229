// Requirements on every registered strategy. A new file in strategies/ is tested here without a change.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <sstream>

#include "core/base/error.h"
#include "core/decoding/drafting/datastore.h"
#include "core/decoding/drafting/outside/proposer_link.h"
#include "core/decoding/registry.h"
#include "tests/decoding/loop/loop_fixture.h"
#include "tests/model/heads/random_heads.h"
#include "tests/strategies/outside/proposer_peer.h"

namespace speclab::conformance_test {
namespace {

using namespace speclab::fixtures;

TEST(Registry, HoldsExactlyTheFilesOfStrategies) {
  std::vector<std::string> files, names;
  std::istringstream list(SPECLAB_STRATEGY_FILES);  // from CMake
  for (std::string file; std::getline(list, file, ',');) files.push_back(std::filesystem::path(file).stem());
  for (const StrategyEntry& entry : strategies()) names.emplace_back(entry.info.name);
  std::sort(files.begin(), files.end());
  EXPECT_EQ(names, files);  // sorted by name, without duplicates
  EXPECT_GE(names.size(), 4u);
}

TEST(Registry, OneStrategyIsTheBaseline) {
  const auto all = strategies();
  EXPECT_EQ(std::count_if(all.begin(), all.end(), [](const auto& one) { return one.info.is_baseline; }), 1);
  EXPECT_TRUE(baseline_strategy().info.is_baseline);
  EXPECT_EQ(recorded_strategy("of another version"), nullptr);
}

TEST(Registry, UnknownNamesGetTheNearestKnownOne) {
  try {
    find_strategy("promt_lookup");
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("Did you mean \"prompt_lookup\"?"));
  }
}

TEST(Registry, ChoicesAreValues) {
  StrategyChoice a = choose("speculative_sampling", {{"gamma", 7}});
  StrategyChoice b = a;
  parse_options(b.fields(), {{"gamma", 2}}, "");
  EXPECT_EQ(echo_options(a.fields())["gamma"], 7);
  a = b;
  EXPECT_EQ(echo_options(a.fields())["gamma"], 2);
}

/// Makes a datastore of possible texts of the target, once.
std::string tiny_datastore(const Model& target) {
  static const TempDir dir;
  const std::filesystem::path path = dir.path() / "datastore";
  if (!std::filesystem::exists(path)) {
    Datastore::Builder builder(target.config().vocab, target.tokenizer_sha256());
    for (const std::vector<Token>& document :
         std::vector<std::vector<Token>>{{3, 1, 4, 1, 5}, {2, 2, 2, 2, 2}, {9, 2, 6, 3, 1, 4, 1, 5, 9, 2, 6}})
      builder.add(document);
    builder.write(path);
  }
  return path.string();
}

/// Starts a program that proposes copies of the text, once, and makes strategies connect to it.
void use_copying_program() {
  static const ProposerPeer peer(propose_copies);
  peer.use();
}

/// Makes random heads for the target, once for each strategy. The heads of Hydra have prefix attention.
std::string tiny_head(const std::string& strategy, const Model& target) {
  static const TempDir dir;
  const std::filesystem::path path = dir.path() / strategy;
  if (!std::filesystem::exists(path))
    write_random_head(
        path, strategy, target.config(),
        {.prefix = strategy == "hydra", .tree = {{0}, {1}, {2}, {0, 0}, {0, 1}, {1, 0}, {0, 0, 0}}});
  return path.string();
}

OptionInfo describe(const std::string& strategy, const std::string& option) {
  StrategyChoice choice(find_strategy(strategy));
  for (const OptionInfo& info : describe_options(choice.fields())) {
    if (info.name == option) return info;
  }
  return {};
}

class Conformance : public ::testing::TestWithParam<std::string> {
 protected:
  /// Two models that work at the same time need two threads.
  static ModelPtr target_of(const std::string& strategy) {
    if (!find_strategy(strategy).info.drafts_ahead) return tiny_target(3);
    static const std::shared_ptr<Backend> two_threads = make_cpu_backend({2, "f32"});
    return load_tiny_on(two_threads, random_llama(tiny_shape(), 3));
  }

  ModelPtr target = target_of(GetParam());
  ModelPtr draft = Model::with_layers(target, {0});

  /// The strategy with everything that it needs. A new kind of needed file must be made here.
  StrategyChoice chosen(json options = json::object()) const {
    const std::string_view file = find_strategy(GetParam()).info.needs_file;
    if (find_strategy(GetParam()).info.needs_program) use_copying_program();
    if (file == "datastore") {
      options["datastore"] = tiny_datastore(*target);
    } else if (file == "head") {
      options["head"] = tiny_head(GetParam(), *target);
    } else {
      EXPECT_EQ(file, "") << "this test cannot make what the strategy needs";
    }
    return choose(GetParam(), options);
  }

  Decode decode(json options = json::object(), json strategy = json::object()) const {
    json all = {{"max_tokens", 70}};
    all.update(options);
    Decode out{.target = target,
               .draft = draft,
               .strategy = chosen(strategy),
               .options = all,
               .prompt = {3, 1, 4, 1, 5, 9, 2, 6, 3, 1}};
    Decode plain = out;
    plain.strategy = choose("autoregressive");
    out.reference = plain.run().tokens;
    return out;
  }
};

TEST_P(Conformance, DescribesItself) {
  const StrategyInfo& info = find_strategy(GetParam()).info;
  for (const std::string_view text : {info.summary, info.paper, info.draft_source, info.stop_rule,
                                      info.verification, info.criterion, info.loss, info.trained}) {
    EXPECT_FALSE(text.empty());
  }
  StrategyChoice choice = choose(GetParam());
  for (const OptionInfo& option : describe_options(choice.fields()))
    EXPECT_FALSE(option.help.empty()) << option.name;
  const json echo = echo_options(choice.fields());
  StrategyChoice again = choose(GetParam(), echo);
  EXPECT_EQ(echo_options(again.fields()), echo);
  for (const StrategyBenchmark& benchmark : info.benchmarks) {
    EXPECT_TRUE(benchmark.label.starts_with(info.name)) << benchmark.label;
    EXPECT_NO_THROW(choose(GetParam(), json::parse(benchmark.options))) << benchmark.label;
    EXPECT_EQ(benchmark.kind == BenchmarkKind::from_datastore, !info.needs_file.empty()) << benchmark.label;
  }
}

TEST_P(Conformance, RefusesToRunWithoutWhatItNeeds) {
  const StrategyInfo& info = find_strategy(GetParam()).info;
  const auto error_of = [&](const StrategyChoice& choice, const ModelPtr& model) -> std::string {
    try {
      DecodeLoop(target, model, choice, {.capacity = 64});
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(error_of(chosen(), draft), "");
  if (info.needs_draft) {
    EXPECT_THAT(error_of(chosen(), nullptr), ::testing::HasSubstr("no draft model"));
  }
  if (!info.needs_file.empty()) {
    EXPECT_THAT(error_of(choose(GetParam()), draft), ::testing::HasSubstr(std::string(info.needs_file)));
  }
  if (info.needs_program) {
    ::unsetenv(outside::kSocketVariable);
    EXPECT_THAT(error_of(choose(GetParam()), draft), ::testing::HasSubstr(outside::kSocketVariable));
  }
}

TEST_P(Conformance, DraftsFromTheReferenceOnlyWhereItSaysSo) {
  Decode without = decode();
  without.reference.clear();
  if (find_strategy(GetParam()).info.needs_reference) {
    EXPECT_THROW(without.run(), Error);
  } else {
    const GenerationRecord with = decode().run(), record = without.run();
    EXPECT_EQ(record.tokens, with.tokens);
    EXPECT_EQ(record.steps.size(), with.steps.size());
  }
}

TEST_P(Conformance, GreedyTextAndRowsAreThoseOfAutoregressiveDecoding) {
  const bool has_gamma = echo_options(choose(GetParam()).fields()).contains("gamma");
  for (int gamma = 1; gamma <= (has_gamma ? 8 : 1); ++gamma) {
    const Decode fast = decode(json::object(), has_gamma ? json{{"gamma", gamma}} : json::object());
    Decode plain = fast;
    plain.strategy = choose("autoregressive");
    const GenerationRecord expected = plain.run();
    for (const VerifyWith verify :
         {VerifyWith::one_pass, VerifyWith::batch_of_leaves, VerifyWith::batch_of_prefixes}) {
      Decode verified = fast;
      verified.loop.verify = verify;
      const GenerationRecord record = verified.run();
      EXPECT_EQ(record.tokens, expected.tokens) << gamma;
      EXPECT_EQ(record.row_hashes, expected.row_hashes) << gamma;
    }
  }
}

TEST_P(Conformance, ABudgetChangesOnlyHowMuchIsVerified) {
  if (!echo_options(choose(GetParam()).fields()).contains("budget")) GTEST_SKIP();
  // A draft of the target that runs all layers saves only the time of the cached positions that it does not
  // see.
  const StrategyInfo& info = find_strategy(GetParam()).info;
  const bool all_layers = info.drafts_with_target && !info.skips_layers;
  json options = {{"budget", "fixed"}};
  if (all_layers) options.update({{"first", 0}, {"last", 0}});
  const GenerationRecord whole = decode(json::object(), options).run();
  options["budget"] = "auto";
  const auto nodes = [](const GenerationRecord& record) {
    std::size_t count = 0;
    for (const StepRecord& step : record.steps) count += step.drafted.size();
    return count;
  };
  const auto run = [&](std::vector<double> target_ns, double draft_ns, double position_ns) {
    Decode with = decode(json::object(), options);
    // A draft of the target itself leaves out one of its two layers; such a forward also takes draft_ns.
    const double layer_ns = std::max(0.0, target_ns.front() - draft_ns);
    with.loop.costs =
        std::make_shared<const StepCosts>(StepCosts{.target_ns = std::move(target_ns),
                                                    .draft_ns = {draft_ns},
                                                    .layer_ns = layer_ns,
                                                    .position_ns = all_layers ? position_ns : 0});
    return with.run();
  };
  const GenerationRecord free = run({1}, 1e-12, 1e6), half = run({10, 14, 19, 25}, .5, 1),
                         dear = run({1, 100}, .01, 0);
  for (const GenerationRecord* record : {&free, &half, &dear}) {
    EXPECT_EQ(record->tokens, whole.tokens);
    EXPECT_EQ(record->row_hashes, whole.row_hashes);
  }
  // Rows that cost nothing are all verified. A draft by learned acceptance may hold other nodes, so the texts
  // may have another number of steps. Where a chain begins with one of several sources, a shorter chain may
  // be the better one; it then needs no more steps.
  const double per_step = static_cast<double>(nodes(whole)) / static_cast<double>(whole.steps.size()),
               free_per_step = static_cast<double>(nodes(free)) / static_cast<double>(free.steps.size());
  if (std::abs(free_per_step - per_step) > .05 * per_step) {
    EXPECT_LT(nodes(free), nodes(whole));
    EXPECT_LE(free.steps.size(), whole.steps.size()) << free_per_step << " nodes a step, not " << per_step;
  }
  EXPECT_LE(nodes(half), nodes(whole));
  if (nodes(whole) > 20) {
    EXPECT_LT(nodes(half), nodes(whole));
  }
  EXPECT_EQ(nodes(dear), 0u);
  for (const StepRecord& step : dear.steps) EXPECT_EQ(step.rows, 1) << "no row besides the pending token";
  EXPECT_TRUE(json::parse(describe(GetParam(), "budget").default_value) == "auto");
  Decode without = decode(json::object(), options);
  EXPECT_THROW(without.run(), Error) << "there is no table of costs";
}

TEST_P(Conformance, CoupledTextIsThatOfAutoregressiveDecoding) {
  const Decode fast = decode({{"temperature", 1}, {"coins", "gumbel"}});
  EXPECT_EQ(fast.run().tokens, fast.reference);
}

TEST_P(Conformance, SampledTextRepeatsItself) {
  const Decode sampled = decode({{"temperature", 1}});
  const GenerationRecord first = sampled.run(), second = sampled.run();
  EXPECT_EQ(first.tokens, second.tokens);
  EXPECT_EQ(first.row_hashes, second.row_hashes);
  Decode other = sampled;
  other.coins = Coins(8, 3);
  EXPECT_NE(other.run().tokens, first.tokens);
}

TEST_P(Conformance, TheLoopServesManyPromptsOneAfterTheOther) {
  // Repeats the prompt after a longer and a shorter one: no state may leak.
  const Decode wanted = decode();
  const GenerationRecord expected = wanted.run();
  DecodeLoop loop(target, draft, wanted.strategy, {.capacity = 256});
  for (const std::vector<Token>& prompt :
       {std::vector<Token>{1}, wanted.prompt, std::vector<Token>(40, 7), wanted.prompt}) {
    Request request = wanted.request();
    request.prompt = prompt;
    const GenerationRecord record = loop.run(request);
    if (prompt != wanted.prompt) continue;
    EXPECT_EQ(record.tokens, expected.tokens);
    EXPECT_EQ(record.row_hashes, expected.row_hashes);
    EXPECT_EQ(record.steps.size(), expected.steps.size());
    EXPECT_EQ(record.draft.rows, expected.draft.rows);
  }
}

// An option that keeps something for the next prompt must be declared, because experiments then decode
// prompts in the order of their file with a separate strategy. Tries every boolean, every choice, and
// `sources` of composition.
TEST_P(Conformance, WhatCarriesMemoryToTheNextPromptSaysSo) {
  std::vector<json> settings{json::object()};
  StrategyChoice defaults = chosen();
  for (const OptionInfo& option : describe_options(defaults.fields())) {
    const json usual = json::parse(option.default_value);
    if (option.type == "boolean") settings.push_back({{option.name, !usual.get<bool>()}});
    for (const std::string& choice : option.choices) settings.push_back({{option.name, choice}});
    if (option.name == "sources") settings.push_back({{option.name, {"text", "earlier"}}});
  }
  int with_memory = 0;
  for (const json& setting : settings) {
    SCOPED_TRACE(setting.dump());
    Decode wanted = decode({{"temperature", 1}, {"coins", "gumbel"}});
    LoopOptions options{.capacity = 256};
    options.costs = std::make_shared<const StepCosts>(
        StepCosts{.target_ns = {10, 11, 12.5, 14}, .draft_ns = {.5}, .layer_ns = 9});  // for a budget
    wanted.loop = options;
    try {
      wanted.strategy = chosen(setting);
      DecodeLoop(target, draft, wanted.strategy, options);
    } catch (const Error&) {
      continue;  // it contradicts the other defaults
    }
    const bool declared = wanted.strategy.carries_memory();
    with_memory += declared;
    const GenerationRecord expected = wanted.run();
    DecodeLoop loop(target, draft, wanted.strategy, options);
    bool same = true;
    for (const std::vector<Token>& prompt :
         {wanted.prompt, std::vector<Token>{9, 2, 6, 3, 1}, wanted.prompt}) {
      Request request = wanted.request();
      request.prompt = prompt;
      if (prompt != wanted.prompt) request.coins = Coins(8, 3);
      const GenerationRecord record = loop.run(request);
      if (prompt != wanted.prompt) continue;
      EXPECT_EQ(record.tokens, expected.tokens);
      same = same && record.steps.size() == expected.steps.size();
      for (std::size_t i = 0; same && i < expected.steps.size(); ++i)
        same = record.steps[i].drafted.size() == expected.steps[i].drafted.size() &&
               record.steps[i].accepted == expected.steps[i].accepted;
    }
    EXPECT_TRUE(same || declared) << "it knows something of the prompt before";
  }
  const std::vector<std::string> known = {"composition", "lookahead", "online_speculation", "suffix_decoding",
                                          "token_recycling"};
  EXPECT_TRUE(with_memory > 0 || std::ranges::find(known, GetParam()) == known.end()) << "nothing was tried";
}

TEST_P(Conformance, SeveralSequencesTogether) {
  const std::vector<std::vector<Token>> prompts{{3, 1, 4, 1, 5, 9, 2, 6, 3, 1}, {9}, {2, 2, 2}};
  std::vector<GenerationRecord> alone;
  std::vector<Request> requests;
  std::vector<std::vector<Token>> references;
  for (const std::vector<Token>& prompt : prompts) {
    Decode one{.target = target, .options = {{"max_tokens", 30}}, .prompt = prompt};
    references.push_back(one.run().tokens);
  }
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    Decode one{.target = target,
               .draft = draft,
               .strategy = chosen(),
               .options = {{"max_tokens", 30}},
               .prompt = prompts[i],
               .reference = references[i]};
    alone.push_back(one.run());
    requests.push_back(one.request());
    requests.back().prompt = prompts[i];
    requests.back().reference = references[i];
  }
  const auto together = DecodeLoop(target, draft, chosen(), {.batch = 3, .capacity = 256}).run(requests);
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    EXPECT_EQ(together[i].tokens, alone[i].tokens);
    EXPECT_EQ(together[i].row_hashes, alone[i].row_hashes);
    EXPECT_EQ(together[i].steps.size(), alone[i].steps.size());
  }
}

std::vector<std::string> names() {
  std::vector<std::string> out;
  for (const StrategyEntry& entry : strategies()) out.emplace_back(entry.info.name);
  return out;
}
// The registry is filled before main(), and test parameters are read in main().
INSTANTIATE_TEST_SUITE_P(Strategies, Conformance, ::testing::ValuesIn(names()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace speclab::conformance_test
