// A small model drafts for the target with a sparse cache, which drafts for the target: the text, the chain,
// the joint law, the cache after every step, what is counted, and what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/base/error_text.h"
#include "tests/strategies/on_target/own_cache.h"

namespace speclab::hierarchical_speculation_test {
namespace {

using namespace speclab::fixtures;
using ::testing::HasSubstr;

StrategyChoice hierarchy(json options) { return choose("hierarchical_speculation", options); }

/// A small model that agrees with the target on many tokens.
ModelPtr first_layer_of(const ModelPtr& target) { return Model::with_layers(target, {0}); }

std::vector<json> hierarchies() {
  std::vector<json> all;
  for (const json& lengths :
       {json{{"gamma", 1}, {"inner_gamma", 1}}, json{{"gamma", 4}, {"inner_gamma", 1}},
        json{{"gamma", 7}, {"inner_gamma", 3}}, json{{"gamma", 5}, {"inner_gamma", 0}}}) {
    for (const json& views : {json{{"first", 1}, {"last", 3}, {"draft_first", 1}, {"draft_last", 4}},
                              json{{"first", 0}, {"last", 0}, {"draft_first", 0}, {"draft_last", 0}},
                              json{{"first", 4}, {"last", 252}},
                              json{{"first", 1},
                                   {"last", 2},
                                   {"keep", "retrieved"},
                                   {"keep_positions", 4},
                                   {"chunk", 2},
                                   {"refresh", 3}}}) {
      json both = lengths;
      both.update(views);
      all.push_back(both);
    }
  }
  return all;
}

TEST(HierarchicalSpeculation, GreedyTextAndRowsAreThoseOfAutoregressiveDecoding) {
  const ModelPtr target = deep_target();
  const GenerationRecord plain = Decode{.target = target, .options = {{"max_tokens", 60}}}.run();
  const ModelPtr reduced = load_tiny(random_llama(tiny_draft_shape(target->config()), 2), target);
  for (const ModelPtr& draft : {first_layer_of(target), deep_target(1, 64, 9), reduced}) {
    for (const json& options : hierarchies()) {
      for (const double temperature : {-1., .8}) {
        SCOPED_TRACE(draft->name() + options.dump());
        json with = options;
        with["draft_temperature"] = temperature;
        const GenerationRecord record = Decode{
            .target = target,
            .draft = draft,
            .strategy = hierarchy(with),
            .options = {{"max_tokens", 60}}}.run();
        EXPECT_EQ(record.tokens, plain.tokens);
        EXPECT_EQ(record.row_hashes, plain.row_hashes);
        EXPECT_GT(drafted(record), 0);
      }
    }
  }
}

// The guesses of the small model decide only how many reviews there are. With tokens that follow from the
// text (greedy, or coupled noise) the chain is that of the target with a sparse cache alone, and so is its q.
TEST(HierarchicalSpeculation, TheChainIsThatOfTheSparseTargetAlone) {
  const ModelPtr target = deep_target();
  for (const json& generation :
       {json{{"temperature", 0}}, json{{"temperature", 1}, {"coins", "gumbel"}},
        json{{"temperature", .7}, {"coins", "gumbel"}, {"top_k", 9}, {"repetition_penalty", 1.3}}}) {
    for (const char* keep : {"none", "heavy"}) {
      SCOPED_TRACE(generation.dump() + keep);
      json options = generation;
      options["max_tokens"] = 50;
      const json view = {{"gamma", 5},          {"first", 1}, {"last", 4},   {"keep", keep},
                         {"keep_positions", 3}, {"chunk", 1}, {"refresh", 2}};
      json alone = view, reviewed = view;
      alone["draft_by"] = "sparse_cache";
      reviewed.update({{"inner_gamma", 2}, {"draft_first", 1}, {"draft_last", 6}});
      const GenerationRecord expected =
          Decode{.target = target, .strategy = choose("self_speculation", alone), .options = options}.run();
      const GenerationRecord record = Decode{.target = target,
                                             .draft = first_layer_of(target),
                                             .strategy = hierarchy(reviewed),
                                             .options = options}
                                          .run();
      EXPECT_EQ(record.tokens, expected.tokens);
      ASSERT_EQ(record.steps.size(), expected.steps.size());
      for (std::size_t step = 0; step < record.steps.size(); ++step) {
        const auto &tokens = record.steps[step].drafted, &wanted = expected.steps[step].drafted;
        ASSERT_EQ(tokens.size(), wanted.size()) << step;
        for (std::size_t i = 0; i < tokens.size(); ++i) {
          EXPECT_EQ(tokens[i].id, wanted[i].id) << step;
          EXPECT_EQ(tokens[i].q, wanted[i].q) << step;
        }
      }
    }
  }
}

TEST(HierarchicalSpeculation, TheJointLawIsTheTargets) {
  struct Setting {
    int vocab, tokens;
    json options;
  };
  const json views = {{"first", 0}, {"last", 1}, {"draft_first", 0}, {"draft_last", 1}};
  const std::vector<Setting> settings = {{2, 4, {{"gamma", 2}, {"inner_gamma", 1}}},
                                         {2, 4, {{"gamma", 3}, {"inner_gamma", 2}}},
                                         {2, 4, {{"gamma", 3}, {"inner_gamma", 1}, {"draft_temperature", 2}}},
                                         {2, 4, {{"gamma", 2}, {"inner_gamma", 0}}},
                                         {2,
                                          4,
                                          {{"gamma", 3},
                                           {"inner_gamma", 1},
                                           {"keep", "heavy"},
                                           {"keep_positions", 1},
                                           {"chunk", 1},
                                           {"refresh", 2}}},
                                         {3, 3, {{"gamma", 2}, {"inner_gamma", 1}}}};
  for (const Setting& setting : settings) {
    const ModelPtr target = deep_target(4, setting.vocab, 8), draft = deep_target(1, setting.vocab, 3);
    const std::vector<Token> prompt{0, 1, 1};
    const auto expected = target_law(*target, prompt, setting.tokens);
    json options = setting.options;
    options.update(views);
    const auto law_of = [&](const std::string& rule, int* accepted) {
      return emitted_law({.target = target, .draft = draft, .strategy = hierarchy(options), .prompt = prompt},
                         setting.tokens, rule, accepted);
    };
    for (const char* rule : {"rejection", "block"}) {
      SCOPED_TRACE(options.dump() + rule);
      int accepted = 0;
      EXPECT_LT(enumerate::total_variation(law_of(rule, &accepted), expected), 1e-12);
      EXPECT_GT(accepted, 0);
    }
    // A negative control: the comparison notices a lossy rule.
    int accepted = 0;
    EXPECT_GT(enumerate::total_variation(law_of("typical", &accepted), expected), 1e-4);
  }
}

/// Positions take so much time that a draft with a sparse cache may be worth it. Rows are so dear that the
/// budget often chooses less than gamma and inner_gamma.
StepCosts costs_of_positions(double position_ns) {
  return {.target_ns = {10, 13, 15.5, 18.4},
          .draft_ns = {.5, .6, .7},
          .layer_ns = 1,
          .position_ns = position_ns,
          .context = 0};
}

// With a budget the lengths of both levels follow from what earlier steps and reviews accepted.
TEST(HierarchicalSpeculation, TheJointLawIsTheTargetsWithABudget) {
  struct Setting {
    int vocab, tokens;
    json options;
  };
  const json views = {{"first", 0}, {"last", 1}, {"draft_first", 0}, {"draft_last", 1}, {"budget", "auto"}};
  const std::vector<Setting> settings = {
      {2, 4, {{"gamma", 3}, {"inner_gamma", 2}}},
      {2, 4, {{"gamma", 2}, {"inner_gamma", 0}}},
      {2, 4, {{"gamma", 3}, {"inner_gamma", 2}, {"draft_temperature", 2}}},
      {2, 4, {{"gamma", 3}, {"inner_gamma", 1}, {"keep", "heavy"}, {"keep_positions", 1}, {"chunk", 1}}},
      {3, 3, {{"gamma", 2}, {"inner_gamma", 1}}}};
  for (const Setting& setting : settings) {
    const ModelPtr target = deep_target(4, setting.vocab, 8), draft = deep_target(1, setting.vocab, 3);
    const std::vector<Token> prompt{0, 1, 1};
    const auto expected = target_law(*target, prompt, setting.tokens);
    json options = setting.options;
    options.update(views);
    int accepted = 0;
    for (const double position_ns : {9., 30.}) {
      const auto costs = std::make_shared<const StepCosts>(costs_of_positions(position_ns));
      for (const char* rule : {"rejection", "block"}) {
        const auto law =
            emitted_law({.target = target, .draft = draft, .strategy = hierarchy(options), .prompt = prompt},
                        setting.tokens, rule, &accepted, costs);
        EXPECT_LT(enumerate::total_variation(law, expected), 1e-12) << options << rule << position_ns;
      }
    }
    EXPECT_GT(accepted, 0) << options;
    // A negative control: the comparison notices a lossy rule.
    const auto costs = std::make_shared<const StepCosts>(costs_of_positions(30));
    const auto lossy =
        emitted_law({.target = target, .draft = draft, .strategy = hierarchy(options), .prompt = prompt},
                    setting.tokens, "typical", &accepted, costs);
    EXPECT_GT(enumerate::total_variation(lossy, expected), 1e-4);
  }
}

// Text and rows are those of plain decoding. How much is drafted follows from what the positions and the
// guesses cost.
TEST(HierarchicalSpeculation, ABudgetWeighsThePositionsThatADraftDoesNotSee) {
  const ModelPtr target = deep_target(), draft = Model::with_layers(target, {0, 1, 2});
  const auto run = [&](json options, const StepCosts& costs, int max_tokens = 60) {
    const json generation = {{"max_tokens", max_tokens}};
    const GenerationRecord plain = Decode{.target = target, .options = generation}.run();
    options.update({{"budget", "auto"}, {"first", 1}, {"last", 6}});
    Decode decode{.target = target, .draft = draft, .strategy = hierarchy(options), .options = generation};
    decode.loop.costs = std::make_shared<const StepCosts>(costs);
    const GenerationRecord record = decode.run();
    EXPECT_EQ(record.tokens, plain.tokens);
    EXPECT_EQ(record.row_hashes, plain.row_hashes);
    return record;
  };
  const GenerationRecord free = run(json::object(), costs_of_positions(0)),
                         dear = run(json::object(), costs_of_positions(100));
  EXPECT_LT(drafted(free), 12) << "a sparse forward takes as long as a full one; there are trials";
  EXPECT_GT(drafted(dear), 30);
  // Each forward reads the weights of its model once, and those of the draft model are fewer.
  const auto guesses_in = [&](const GenerationRecord& record) {
    const auto whole = static_cast<double>(target->weight_bytes());
    return (static_cast<double>(record.draft.calls) * whole - record.draft.weight_bytes) /
           (whole - static_cast<double>(draft->weight_bytes()));
  };
  // Only chains of two tokens or more have guesses. The target accepts about a fifth of the tokens here, so
  // such chains are worth their time only in a longer text, where a full forward takes many times as long as
  // a sparse one.
  StepCosts guesses = costs_of_positions(100);
  EXPECT_GT(guesses_in(run({{"gamma", 8}, {"inner_gamma", 3}}, guesses, 180)), 40);
  guesses.draft_ns = {5000};
  const GenerationRecord without = run({{"gamma", 8}, {"inner_gamma", 3}}, guesses, 180);
  EXPECT_LT(guesses_in(without), 4) << "trials";
  int longer_chains = 0;
  for (const StepRecord& step : without.steps) longer_chains += step.drafted.size() > 1;
  EXPECT_GT(longer_chains, 20) << "these have room for guesses";
}

TEST(HierarchicalSpeculation, ABudgetNeedsTheTimesOfAllLevels) {
  const ModelPtr target = deep_target();
  const auto refused = [&](const StepCosts& costs, int inner_gamma) {
    return message_of([&] {
      LoopOptions loop{.capacity = 64};
      loop.costs = std::make_shared<const StepCosts>(costs);
      DecodeLoop(target, first_layer_of(target),
                 hierarchy({{"budget", "auto"}, {"inner_gamma", inner_gamma}}), loop);
    });
  };
  EXPECT_THAT(refused({.target_ns = {10, 11}, .draft_ns = {1}}, 2),
              HasSubstr("no table of costs with the time of a layer"));
  EXPECT_THAT(refused({.target_ns = {10, 11}, .layer_ns = 1}, 2),
              HasSubstr("no table of costs with times of the draft model"));
  EXPECT_EQ(refused({.target_ns = {10, 11}, .layer_ns = 1}, 0), "no error");
}

TEST(HierarchicalSpeculation, ABudgetStopsAtTheContextOfTheDraft) {
  const ModelPtr target = deep_target();
  Shape shape = tiny_shape();
  shape.layers = 1;
  shape.context = 40;
  Decode decode{.target = target, .options = {{"max_tokens", 120}}};
  const GenerationRecord expected = decode.run();
  decode.draft = load_tiny(random_llama(shape, 5));
  decode.strategy = hierarchy({{"budget", "auto"}, {"gamma", 3}, {"first", 1}, {"last", 6}});
  decode.loop.costs = std::make_shared<const StepCosts>(costs_of_positions(100));
  const GenerationRecord record = decode.run();
  EXPECT_EQ(record.tokens, expected.tokens);
  int drafts = 0;
  std::int64_t committed = record.context_length;
  for (const StepRecord& step : record.steps) {
    committed += step.emitted;
    if (committed - step.emitted < 41 || step.drafted.empty()) continue;
    EXPECT_EQ(step.draft_calls, static_cast<int>(step.drafted.size())) << "a review for each token";
    ++drafts;
  }
  EXPECT_GT(drafts, 5);
}

// Sequences share nothing that they have learned.
TEST(HierarchicalSpeculation, SequencesTogetherChooseLikeAloneWithABudget) {
  const ModelPtr target = deep_target();
  const StrategyChoice strategy = hierarchy({{"budget", "auto"}, {"first", 1}, {"last", 6}});
  LoopOptions loop{.batch = 3, .capacity = 256};
  loop.costs = std::make_shared<const StepCosts>(costs_of_positions(100));
  const std::vector<std::vector<Token>> prompts{{3, 1, 4, 1, 5, 9, 2, 6}, {9}, {2, 2, 2}};
  std::vector<GenerationRecord> alone;
  std::vector<Request> requests;
  for (const std::vector<Token>& prompt : prompts) {
    Decode one{.target = target,
               .draft = first_layer_of(target),
               .strategy = strategy,
               .options = {{"max_tokens", 40}, {"temperature", 1}},
               .prompt = prompt};
    one.loop.costs = loop.costs;
    alone.push_back(one.run());
    requests.push_back(one.request());
    requests.back().prompt = prompt;  // `one` ends here
  }
  const auto together = DecodeLoop(target, first_layer_of(target), strategy, loop).run(requests);
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    EXPECT_EQ(together[i].tokens, alone[i].tokens);
    ASSERT_EQ(together[i].steps.size(), alone[i].steps.size());
    for (std::size_t step = 0; step < alone[i].steps.size(); ++step)
      EXPECT_EQ(together[i].steps[step].drafted.size(), alone[i].steps[step].drafted.size());
    EXPECT_GT(drafted(alone[i]), 5);
  }
}

TEST(HierarchicalSpeculation, TheTargetsCacheIsThatOfPlainDecodingAfterEveryStep) {
  const ModelPtr target = deep_target();
  for (const json& options : hierarchies()) {
    SCOPED_TRACE(options.dump());
    if (options["gamma"] > 1)
      expect_cache_of_plain_decoding(target, first_layer_of(target), hierarchy(options),
                                     options["last"] > 40);
  }
}

// The draft model is the target, and both see their whole caches. Every guess passes its review, and every
// chain is accepted. A review gives inner_gamma + 1 tokens.
TEST(HierarchicalSpeculation, CountsTheForwardsOfBothLevels) {
  const ModelPtr target = deep_target();
  const ModelPtr same = Model::with_layers(target, {0, 1, 2, 3});
  for (const int temperature : {0, 1}) {
    const GenerationRecord record =
        Decode{.target = target,
               .draft = same,
               .strategy = hierarchy({{"gamma", 7}, {"inner_gamma", 2}, {"last", 300}, {"draft_last", 300}}),
               .options = {{"max_tokens", 65}, {"temperature", temperature}}}
            .run();
    ASSERT_EQ(record.steps.size(), 8u);
    for (const StepRecord& step : record.steps) {
      EXPECT_EQ(step.accepted, 7);
      EXPECT_EQ(step.draft_calls, 4 + 3);  // reviews of 2, 2 and 0 guesses
      EXPECT_EQ(step.source, "hierarchy");
      for (const DraftedToken& token : step.drafted) EXPECT_EQ(token.p, token.q);
    }
    EXPECT_EQ(record.target.calls, 8);
  }
}

// Guesses that are not kept leave rows in flight. A chain of the largest size has room for them.
TEST(HierarchicalSpeculation, ManyRejectedGuessesFit) {
  const ModelPtr target = deep_target();
  const json options = {{"gamma", 64}, {"inner_gamma", 64}, {"first", 2}, {"last", 40}};
  const json generation = {{"max_tokens", 200}, {"temperature", 1}, {"coins", "gumbel"}};
  const GenerationRecord plain = Decode{.target = target, .options = generation}.run();
  const GenerationRecord record = Decode{.target = target,
                                         .draft = deep_target(1, 64, 77),
                                         .strategy = hierarchy(options),
                                         .options = generation}
                                      .run();
  EXPECT_EQ(record.tokens, plain.tokens);
  int longest = 0;
  for (const StepRecord& step : record.steps)
    longest = std::max(longest, static_cast<int>(step.drafted.size()));
  EXPECT_EQ(longest, 64);
}

// The small model drafts as long as its context lasts. Then the middle level goes on alone.
TEST(HierarchicalSpeculation, TheMiddleLevelGoesOnWhereTheContextOfTheDraftEnds) {
  const ModelPtr target = deep_target();
  Shape shape = tiny_shape();
  shape.layers = 1;
  shape.context = 40;
  const ModelPtr draft = load_tiny(random_llama(shape, 5));
  const json generation = {{"max_tokens", 120}};
  for (const int prompt : {3, 60}) {
    Decode decode{.target = target, .options = generation, .prompt = std::vector<Token>(prompt, 7)};
    const GenerationRecord expected = decode.run();
    decode.draft = draft;
    decode.strategy = hierarchy({{"gamma", 3}, {"first", 1}, {"last", 200}});
    const GenerationRecord record = decode.run();
    EXPECT_EQ(record.tokens, expected.tokens);
    const StepRecord& last = record.steps[record.steps.size() - 2];
    EXPECT_EQ(last.drafted.size(), 3u);
    EXPECT_EQ(last.draft_calls, 3);  // one review for each token
    EXPECT_EQ(record.draft_prefill.rows, prompt == 60 ? 0 : 3);
  }
}

TEST(HierarchicalSpeculation, SequencesTogetherAreCountedLikeAlone) {
  const ModelPtr target = deep_target();
  const StrategyChoice strategy = hierarchy({{"gamma", 4}, {"inner_gamma", 1}, {"first", 1}, {"last", 5}});
  const std::vector<std::vector<Token>> prompts{{3, 1, 4, 1, 5, 9, 2, 6}, {9}, {2, 2, 2}};
  const std::vector<int> lengths{30, 7, 19};
  std::vector<GenerationRecord> alone;
  std::vector<Request> requests;
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    const Decode one{.target = target,
                     .draft = first_layer_of(target),
                     .strategy = strategy,
                     .options = {{"max_tokens", lengths[i]}, {"temperature", 1}},
                     .prompt = prompts[i]};
    alone.push_back(one.run());
    requests.push_back(one.request());
    requests.back().prompt = prompts[i];  // `one` ends here
  }
  const auto together =
      DecodeLoop(target, first_layer_of(target), strategy, {.batch = 3, .capacity = 256}).run(requests);
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    EXPECT_EQ(together[i].tokens, alone[i].tokens);
    EXPECT_EQ(together[i].row_hashes, alone[i].row_hashes);
    EXPECT_EQ(together[i].draft.calls, alone[i].draft.calls);
    EXPECT_EQ(together[i].target.calls, alone[i].target.calls);
  }
}

TEST(HierarchicalSpeculation, BadInputIsRefused) {
  const ModelPtr target = deep_target();
  const auto refused = [&](const json& options, const ModelPtr& draft) {
    return message_of([&] { DecodeLoop(target, draft, hierarchy(options), {.capacity = 64}); });
  };
  EXPECT_EQ(refused(json::object(), first_layer_of(target)), "no error");
  EXPECT_THAT(refused(json::object(), nullptr), HasSubstr("no draft model"));
  EXPECT_THAT(refused(json::object(), deep_target(1, 32)), HasSubstr("vocabulary"));
  EXPECT_THAT(refused({{"inner_gamma", -1}}, target), HasSubstr("inner_gamma"));
  EXPECT_THAT(refused({{"inner_gamma", 65}}, target), HasSubstr("inner_gamma"));
  EXPECT_THAT(refused({{"gamma", 0}}, target), HasSubstr("gamma"));
  EXPECT_THAT(refused({{"last", -1}}, target), HasSubstr("last"));
  LoopOptions divided;
  divided.devices = 2;
  const Decode decode{.target = target,
                      .draft = first_layer_of(target),
                      .strategy = hierarchy(json::object()),
                      .loop = divided};
  EXPECT_THAT(message_of([&] { decode.run(); }), HasSubstr("drafts on the target's session"));
}

TEST(HierarchicalSpeculation, ADeviceVerifiesTheChain) {
  Shape shape = tiny_shape();
  shape.layers = 3;
  const ModelPtr target = load_tiny_on(make_cuda_backend({.simulated = true}), random_llama(shape, 5));
  const auto decode = [&](const char* device_loop) {
    return Decode{.target = target,
                  .draft = first_layer_of(target),
                  .strategy = hierarchy({{"gamma", 3}, {"inner_gamma", 1}, {"first", 1}, {"last", 2}}),
                  .options = {{"max_tokens", 12}, {"temperature", 1}, {"device_loop", device_loop}}}
        .run();
  };
  const GenerationRecord host = decode("off"), device = decode("on");
  EXPECT_EQ(host.tokens, device.tokens);
  EXPECT_EQ(host.row_hashes, device.row_hashes);
  EXPECT_GT(device.verified_steps, 0);
}

}  // namespace
}  // namespace speclab::hierarchical_speculation_test
