// The target drafts for itself on its own cache: the text, the joint law, the cache after every step, what is
// counted, and what is refused.
#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/decoding/budget/step_costs.h"
#include "core/measure/run_result.h"
#include "tests/base/error_text.h"
#include "tests/strategies/on_target/own_cache.h"

namespace speclab::self_speculation_test {
namespace {

using namespace speclab::fixtures;
using ::testing::HasSubstr;

struct Mode {
  std::string name;
  json options;
};
std::vector<Mode> modes() {
  return {
      {"every second layer", {{"draft_by", "layer_skip"}}},
      {"first and third layer skipped", {{"draft_by", "layer_skip"}, {"skip", {0, 2}}}},
      {"exit after one layer", {{"draft_by", "early_exit"}, {"exit", 1}}},
      {"exit after three layers", {{"draft_by", "early_exit"}, {"exit", 3}}},
      {"exits by probability", {{"draft_by", "early_exit"}, {"exits", {1, 2, 3}}, {"exit_threshold", .5}}},
      {"exits by agreement", {{"draft_by", "early_exit"}, {"exits", {1, 2, 3}}, {"exit_when", "agreement"}}},
      {"exits by similarity",
       {{"draft_by", "early_exit"},
        {"exits", {1, 2, 3}},
        {"exit_when", "similarity"},
        {"exit_threshold", .8}}},
      {"sets of skipped layers",
       {{"draft_by", "layer_skip"}, {"skip_sets", {"", "1", "0,2"}}, {"skip_bounds", {.4, .6}}}},
      {"sparse cache", {{"draft_by", "sparse_cache"}, {"first", 1}, {"last", 2}}},
      {"retrieved chunk",
       {{"draft_by", "sparse_cache"},
        {"first", 1},
        {"last", 1},
        {"keep", "retrieved"},
        {"keep_positions", 2},
        {"chunk", 2},
        {"refresh", 1}}},
      {"heavy hitters and skipped layer",
       {{"draft_by", "sparse_cache"},
        {"first", 0},
        {"last", 1},
        {"keep", "heavy"},
        {"keep_positions", 1},
        {"chunk", 1},
        {"refresh", 2},
        {"skip", {2}}}},
      {"empty cache", {{"draft_by", "sparse_cache"}, {"first", 0}, {"last", 0}}},
      {"sparse cache and skipped layer",
       {{"draft_by", "sparse_cache"}, {"first", 1}, {"last", 2}, {"skip", {1}}}}};
}
bool runs_all_layers(const Mode& mode) {
  return mode.options.contains("skip_sets") ||
         (mode.options["draft_by"] == "sparse_cache" && !mode.options.contains("skip"));
}
StrategyChoice choose_mode(const Mode& mode, json more) {
  more.update(mode.options);
  return choose("self_speculation", more);
}

TEST(SelfSpeculation, GreedyTextAndRowsAreThoseOfAutoregressiveDecoding) {
  const ModelPtr target = deep_target();
  const GenerationRecord plain = Decode{.target = target, .options = {{"max_tokens", 60}}}.run();
  for (const Mode& mode : modes()) {
    for (const json& length :
         {json{{"gamma", 1}}, json{{"gamma", 3}}, json{{"gamma", 8}, {"schedule", "adaptive_confidence"}},
          json{{"gamma", 2}, {"schedule", "heuristic"}}, json{{"gamma", 4}, {"draft_temperature", 1}}}) {
      SCOPED_TRACE(mode.name + length.dump());
      const GenerationRecord record = Decode{
          .target = target,
          .strategy = choose_mode(mode, length),
          .options = {{"max_tokens", 60}}}.run();
      EXPECT_EQ(record.tokens, plain.tokens);
      EXPECT_EQ(record.row_hashes, plain.row_hashes);
      EXPECT_GT(drafted(record), 0);
    }
  }
}

// With all layers but a full view of the cache, the draft is the target, so every token is accepted.
TEST(SelfSpeculation, AViewOfTheWholeCacheIsAlwaysAccepted) {
  const ModelPtr target = deep_target();
  for (const int temperature : {0, 1}) {
    const GenerationRecord record =
        Decode{.target = target,
               .strategy = choose("self_speculation",
                                  {{"draft_by", "sparse_cache"}, {"first", 0}, {"last", 300}, {"gamma", 3}}),
               .options = {{"max_tokens", 40}, {"temperature", temperature}}}
            .run();
    for (const StepRecord& step : record.steps) {
      EXPECT_EQ(step.accepted, static_cast<int>(step.drafted.size()));
      for (const DraftedToken& token : step.drafted) EXPECT_EQ(token.p, token.q);
    }
  }
}

TEST(SelfSpeculation, TheJointLawIsTheTargets) {
  const ModelPtr target = deep_target(4, 3, 8);
  const std::vector<Token> prompt{0, 2, 1};
  const auto expected = target_law(*target, prompt, 4);
  const auto law_of = [&](const StrategyChoice& strategy, const std::string& rule, int* accepted) {
    // Rows are so dear that a budget often drafts less than gamma.
    const auto costs = std::make_shared<const StepCosts>(
        StepCosts{.target_ns = {10, 13, 15.5, 18.4}, .layer_ns = 9, .position_ns = .1, .context = 4});
    return emitted_law({.target = target, .strategy = strategy, .prompt = prompt}, 4, rule, accepted, costs);
  };
  for (const Mode& mode : modes()) {
    for (const json& length : {json{{"gamma", 2}}, json{{"gamma", 2}, {"schedule", "confidence"}},
                               json{{"gamma", 2},
                                    {"schedule", "adaptive_confidence"},
                                    {"threshold_step", 1},
                                    {"first_threshold", .4}},
                               json{{"gamma", 3}, {"budget", "auto"}}}) {
      for (const char* rule : {"rejection", "block"}) {
        SCOPED_TRACE(mode.name + length.dump() + rule);
        int accepted = 0;
        EXPECT_LT(enumerate::total_variation(law_of(choose_mode(mode, length), rule, &accepted), expected),
                  1e-12);
        // A draft that runs all layers over such a short context is not worth its time.
        EXPECT_EQ(accepted > 0, !(length.contains("budget") && runs_all_layers(mode)));
      }
    }
  }
  // A negative control: the comparison notices a lossy rule.
  int accepted = 0;
  EXPECT_GT(enumerate::total_variation(law_of(choose_mode(modes()[0], {{"gamma", 2}}), "typical", &accepted),
                                       expected),
            1e-3);
}

TEST(SelfSpeculation, TheTargetsCacheIsThatOfPlainDecodingAfterEveryStep) {
  const ModelPtr target = deep_target();
  for (const Mode& mode : modes()) {
    for (const char* schedule : {"constant", "heuristic", "adaptive_confidence"}) {
      SCOPED_TRACE(mode.name + schedule);
      expect_cache_of_plain_decoding(target, nullptr,
                                     choose_mode(mode, {{"schedule", schedule}, {"gamma", 5}}));
    }
  }
}

std::string error_of(const std::function<void()>& run) {
  try {
    run();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

// With a budget the draft follows from the time of a layer: much where layers take the time, nothing where
// the output head does. Text and rows stay those of autoregressive decoding.
TEST(SelfSpeculation, ABudgetWeighsTheLayersThatADraftLeavesOut) {
  const ModelPtr target = deep_target();
  const GenerationRecord plain = Decode{.target = target, .options = {{"max_tokens", 60}}}.run();
  const auto run = [&](const Mode& mode, const StepCosts& costs) {
    Decode decode{.target = target,
                  .strategy = choose_mode(mode, {{"gamma", 4}, {"budget", "auto"}}),
                  .options = {{"max_tokens", 60}}};
    decode.loop.costs = std::make_shared<const StepCosts>(costs);
    return decode.run();
  };
  for (const Mode& mode : modes()) {
    SCOPED_TRACE(mode.name);
    const StepCosts head{.target_ns = {10, 11}, .layer_ns = 0}, layers{.target_ns = {10, 11}, .layer_ns = 9};
    const GenerationRecord by_head = run(mode, head), by_layers = run(mode, layers);
    for (const GenerationRecord* record : {&by_head, &by_layers}) {
      EXPECT_EQ(record->tokens, plain.tokens);
      EXPECT_EQ(record->row_hashes, plain.row_hashes);
    }
    EXPECT_LT(drafted(by_head), 10) << "a draft forward takes as long as one of the target; there are trials";
    if (!runs_all_layers(mode)) {
      EXPECT_GT(drafted(by_layers), 20);
    }
  }
  // A sparse cache saves time only if positions cost time.
  const std::vector<Mode> all = modes();
  const Mode& sparse = *std::ranges::find(all, "empty cache", &Mode::name);
  StepCosts positions{.target_ns = {10, 11}, .layer_ns = 1, .position_ns = 3, .context = 3};
  EXPECT_GT(drafted(run(sparse, positions)), 20);
  positions.position_ns = 0;
  EXPECT_LT(drafted(run(sparse, positions)), 10);
}

TEST(SelfSpeculation, ABudgetNeedsTheTimeOfALayer) {
  const ModelPtr target = deep_target();
  EXPECT_THAT(error_of([&] {
                Decode decode{.target = target, .strategy = choose("self_speculation", {{"budget", "auto"}})};
                decode.loop.costs = std::make_shared<const StepCosts>(StepCosts{.target_ns = {10, 11}});
                decode.run();
              }),
              HasSubstr("no table of costs with the time of a layer"));
}

// Weights are read once per forward, and a forward reads those of the layers that it runs.
TEST(SelfSpeculation, CountsTheLayersThatRan) {
  const ModelPtr target = deep_target();
  const double whole = static_cast<double>(target->weight_bytes());
  const auto of = [&](std::vector<int> layers) {
    return static_cast<double>(Model::with_layers(target, std::move(layers))->weight_bytes());
  };
  const auto run = [&](const json& options) {
    return Decode{
        .target = target, .strategy = choose("self_speculation", options), .options = {{"max_tokens", 40}}}
        .run();
  };
  const auto drafting_steps = [](const GenerationRecord& record) {
    return std::ranges::count_if(record.steps, [](const StepRecord& step) { return !step.drafted.empty(); });
  };
  const GenerationRecord skip = run({{"skip", {1, 2}}, {"gamma", 3}});
  EXPECT_EQ(skip.draft.calls, drafted(skip));
  EXPECT_EQ(skip.draft.rows, drafted(skip));
  EXPECT_EQ(skip.draft.weight_bytes, static_cast<double>(drafted(skip)) * of({0, 3}));
  EXPECT_EQ(skip.target.calls, static_cast<std::int64_t>(skip.steps.size()));
  EXPECT_EQ(skip.target.weight_bytes, static_cast<double>(skip.steps.size()) * whole);
  EXPECT_EQ(total(skip, &StepRecord::draft_calls), drafted(skip));

  // The target's own forwards read the first layers once, for the last drafted token, and the others once.
  const GenerationRecord exit = run({{"draft_by", "early_exit"}, {"exit", 3}, {"gamma", 3}});
  EXPECT_EQ(exit.draft.calls, drafted(exit));
  EXPECT_EQ(exit.draft.weight_bytes, static_cast<double>(drafted(exit)) * of({0, 1, 2}));
  EXPECT_EQ(exit.target.calls, static_cast<std::int64_t>(exit.steps.size()) + drafting_steps(exit));
  EXPECT_EQ(exit.target.weight_bytes, static_cast<double>(exit.steps.size()) * whole);
  // Every row runs every layer once, as in a forward of the whole draft. Drafting adds only output heads.
  double flops = static_cast<double>(drafted(exit)) * target->head_work(1).flops;
  std::int64_t committed = exit.context_length;
  for (const StepRecord& step : exit.steps) {
    const std::int64_t n = step.rows;
    flops += target->work(n, n, committed, n * committed + n * (n + 1) / 2).flops;
    committed += step.emitted;
  }
  EXPECT_EQ(exit.target.flops + exit.draft.flops, flops);
}

TEST(SelfSpeculation, SequencesTogetherAreCountedLikeAlone) {
  const ModelPtr target = deep_target();
  for (const Mode& mode : modes()) {
    SCOPED_TRACE(mode.name);
    const StrategyChoice strategy = choose_mode(mode, {{"gamma", 4}, {"schedule", "confidence"}});
    const std::vector<std::vector<Token>> prompts{{3, 1, 4, 1, 5, 9, 2, 6}, {9}, {2, 2, 2}};
    const std::vector<int> lengths{30, 7, 19};
    std::vector<GenerationRecord> alone;
    std::vector<Request> requests;
    for (std::size_t i = 0; i < prompts.size(); ++i) {
      const Decode one{.target = target,
                       .strategy = strategy,
                       .options = {{"max_tokens", lengths[i]}, {"temperature", 1}},
                       .prompt = prompts[i]};
      alone.push_back(one.run());
      requests.push_back(one.request());
      requests.back().prompt = prompts[i];
    }
    const auto together = DecodeLoop(target, nullptr, strategy, {.batch = 3, .capacity = 256}).run(requests);
    for (std::size_t i = 0; i < prompts.size(); ++i) {
      EXPECT_EQ(together[i].tokens, alone[i].tokens);
      EXPECT_EQ(together[i].row_hashes, alone[i].row_hashes);
      EXPECT_EQ(together[i].draft.calls, alone[i].draft.calls);
      EXPECT_EQ(together[i].target.calls, alone[i].target.calls);
      EXPECT_EQ(together[i].target.flops, alone[i].target.flops);
    }
  }
}

TEST(SelfSpeculation, BadOptionsAreRefused) {
  const ModelPtr target = deep_target();
  const TempDir dir;
  const auto file = [&](const json& content) {
    const std::string path = (dir.path() / "skip.json").string();
    write_json_file(path, content);
    return path;
  };
  const auto refused = [&](const json& options, const ModelPtr& model) {
    return message_of(
        [&] { DecodeLoop(model, nullptr, choose("self_speculation", options), {.capacity = 64}); });
  };
  EXPECT_EQ(refused(json::object(), target), "no error");
  EXPECT_THAT(refused({{"skip", {1, 4}}}, target), HasSubstr("[1, 4]"));
  EXPECT_THAT(refused({{"skip", {2, 1}}}, target), HasSubstr("ascending"));
  EXPECT_THAT(refused({{"skip", {1, 1}}}, target), HasSubstr("each once"));
  EXPECT_THAT(refused({{"skip", {0, 1, 2, 3}}}, target), HasSubstr("all 4 layers"));
  EXPECT_THAT(refused({{"draft_by", "early_exit"}, {"exit", 4}}, target), HasSubstr("1 to 3"));
  EXPECT_THAT(refused({{"exit", 2}}, target), HasSubstr("draft_by is early_exit"));
  EXPECT_THAT(refused({{"draft_by", "early_exit"}, {"skip", {1}}}, target), HasSubstr("early_exit"));
  const auto exits = [&](const json& list, json more = json::object()) {
    more.update({{"draft_by", "early_exit"}, {"exits", list}});
    return refused(more, target);
  };
  EXPECT_EQ(exits({1, 3}), "no error");
  EXPECT_THAT(exits({1, 4}), HasSubstr("got [1, 4], expected 1 to 3, ascending"));
  EXPECT_THAT(exits({2, 1}), HasSubstr("[2, 1]"));
  EXPECT_THAT(exits({2, 2}), HasSubstr("[2, 2]"));
  EXPECT_THAT(exits({0, 2}), HasSubstr("exits"));
  EXPECT_THAT(exits({1, 2}, {{"exit", 1}}), HasSubstr("both"));
  EXPECT_THAT(exits({1, 2}, {{"exit_threshold", 1.5}}), HasSubstr("exit_threshold"));
  EXPECT_THAT(refused({{"exits", {1}}}, target), HasSubstr("draft_by is early_exit"));
  EXPECT_THAT(refused({{"draft_by", "early_exit"}, {"exits", {1}}}, deep_target(1)),
              HasSubstr("at least 2 layers"));
  const auto sets = [&](const json& list, const json& bounds, json more = json::object()) {
    more.update({{"skip_sets", list}, {"skip_bounds", bounds}});
    return refused(more, target);
  };
  EXPECT_EQ(sets({"", "1,2"}, {.5}), "no error");
  EXPECT_EQ(sets({"1,2"}, json::array()), "no error");
  EXPECT_THAT(sets({"1", "2"}, json::array()), HasSubstr("0 bounds for 2 sets"));
  EXPECT_THAT(sets({"1"}, {.5}), HasSubstr("1 bounds for 1 sets"));
  EXPECT_THAT(sets({"1", "2", "3"}, {.5, .5}), HasSubstr("bounds that ascend"));
  EXPECT_THAT(sets({"1", "2"}, {1.5}), HasSubstr("skip_bounds"));
  for (const char* text : {"a", "1,", ",1", "1 2", "1,,2", "-1", "4", "2,1", "1,1", "99999999999"})
    EXPECT_THAT(sets({text}, json::array()), HasSubstr("skip_sets")) << text;
  EXPECT_THAT(sets({"0,1,2,3"}, json::array()), HasSubstr("all 4 layers"));
  EXPECT_THAT(sets({"1"}, json::array(), {{"skip", {1}}}), HasSubstr("skip_sets"));
  EXPECT_THAT(sets({"1"}, json::array(), {{"draft_by", "sparse_cache"}}), HasSubstr("layer_skip"));
  EXPECT_THAT(refused({{"skip_bounds", {.5}}}, target), HasSubstr("without skip_sets"));
  EXPECT_THAT(refused(json::object(), deep_target(1)), HasSubstr("at least 2 layers"));
  EXPECT_THAT(refused({{"draft_by", "early_exit"}}, deep_target(1)), HasSubstr("at least 2 layers"));
  EXPECT_THAT(refused(json::object(), random_markov(3, 1)), HasSubstr("at least 2 layers"));
  const json good = {{"format", "speclab skip 1"}, {"layers", {0, 1, 2, 3}}, {"skip", {1, 2}}};
  const auto with = [&](const char* key, const json& value) {
    json changed = good;
    changed[key] = value;
    return json{{"skip_file", file(changed)}};
  };
  EXPECT_EQ(refused(with("note", 1), target), "no error");
  EXPECT_THAT(refused(with("skip", {9}), target), HasSubstr("skip.json"));
  EXPECT_THAT(refused(with("skip", "1"), target), HasSubstr("/skip"));
  EXPECT_THAT(refused(with("skip", {-1}), target), HasSubstr("/skip"));
  EXPECT_THAT(refused(with("skip", {0, 1, 2, 3}), target), HasSubstr("all 4 layers"));
  EXPECT_THAT(refused(with("layers", {0, 1}), target), HasSubstr("/layers"));
  EXPECT_THAT(refused(with("format", "speclab tree 1"), target), HasSubstr("another format"));
  EXPECT_THAT(refused({{"skip_file", file(good)}, {"skip", {1}}}, target), HasSubstr("both"));
}

TEST(SelfSpeculation, ExecutorsThatCannotVerifyItSayWhy) {
  const ModelPtr target = deep_target();
  const auto run = [&](const json& options, LoopOptions loop) {
    return message_of([&] {
      Decode{.target = target, .strategy = choose("self_speculation", options), .loop = loop}.run();
    });
  };
  LoopOptions prefixes, divided;
  prefixes.verify = VerifyWith::batch_of_prefixes;
  divided.devices = 2;
  const json exits = {{"draft_by", "early_exit"}};
  EXPECT_EQ(run(json::object(), prefixes), "no error");
  EXPECT_THAT(run(exits, prefixes), HasSubstr("verification in one pass"));
  EXPECT_THAT(run(exits, divided), HasSubstr("verification in one pass"));
  EXPECT_THAT(run(json::object(), divided), HasSubstr("drafts on the target's session"));
}

TEST(SelfSpeculation, ADeviceVerifiesDraftsThatItDropsFirst) {
  Shape shape = tiny_shape();
  shape.layers = 4;
  const ModelPtr target = load_tiny_on(make_cuda_backend({.simulated = true}), random_llama(shape, 5));
  const auto decode = [&](const json& strategy, const char* device_loop) {
    return Decode{.target = target,
                  .strategy = choose("self_speculation", strategy),
                  .options = {{"max_tokens", 12}, {"temperature", 1}, {"device_loop", device_loop}}}
        .run();
  };
  const GenerationRecord host = decode({{"gamma", 2}}, "off"), device = decode({{"gamma", 2}}, "on");
  EXPECT_EQ(host.tokens, device.tokens);
  EXPECT_EQ(host.row_hashes, device.row_hashes);
  EXPECT_EQ(host.draft.weight_bytes, device.draft.weight_bytes);
  EXPECT_EQ(host.target.weight_bytes, device.target.weight_bytes);
  EXPECT_GT(device.verified_steps, 0);
  EXPECT_THAT(message_of([&] { decode({{"draft_by", "early_exit"}}, "on"); }), HasSubstr("rows in flight"));
}

}  // namespace
}  // namespace speclab::self_speculation_test
