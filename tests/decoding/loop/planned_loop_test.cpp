#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <string>

#include "core/base/error.h"
#include "core/measure/clock.h"
#include "core/decoding/loop/executors/planned_rounds.h"
#include "tests/decoding/loop/planned_loop.h"
#include "tests/decoding/loop/silent_device.h"

// Compares steps that a (simulated) device runs by itself with the same decoding by the host: tokens, rows,
// verdicts, counts and work are bitwise equal.

namespace speclab::planned_loop_test {

using ::testing::HasSubstr;

TEST(PlannedLoop, AutoregressiveTextIsThatOfTheHost) {
  const ModelPtr target = on_device(random_llama(tiny_shape(), 1));
  for (const json& options : {json{{"temperature", 0}}, json{{"temperature", 1}},
                              json{{"temperature", .8}, {"top_k", 12}, {"top_p", .9}},
                              json{{"temperature", 1}, {"coins", "gumbel"}}}) {
    SCOPED_TRACE(options.dump());
    Decode decode{.target = target, .options = options};
    decode.options["max_tokens"] = 12;
    const GenerationRecord record = compare(decode);
    EXPECT_EQ(record.tokens.size(), 12u);
    EXPECT_GT(record.stamped_ns, 0);
    EXPECT_GT(record.steps[3].times[Phase::target], 0);
  }
}

TEST(PlannedLoop, ChainsOfADraftModel) {
  const TinyModel tiny = random_llama(tiny_shape(), 1);
  const ModelPtr target = on_device(tiny);
  Shape one = tiny.config;
  one.layers = 1;
  const ModelPtr other = on_device(random_llama(one, 1), target),
                 reduced = on_device(random_llama(tiny_draft_shape(tiny.config), 2), target);
  int accepted = 0, rejected = 0;
  for (const ModelPtr& draft : {target, other, reduced}) {
    for (const json& options : {json{{"temperature", 0}}, json{{"temperature", 1.2}, {"top_p", .95}}}) {
      for (const int gamma : {1, 4}) {
        SCOPED_TRACE(draft->name() + options.dump() + std::to_string(gamma));
        Decode decode{.target = target,
                      .draft = draft,
                      .strategy = choose("speculative_sampling", {{"gamma", gamma}}),
                      .options = options};
        decode.options["max_tokens"] = 10;
        const GenerationRecord record = compare(decode);
        accepted += total(record, &StepRecord::accepted);
        rejected += drafted(record) - total(record, &StepRecord::accepted);
      }
    }
  }
  EXPECT_GT(accepted, 20);
  EXPECT_GT(rejected, 20);
}

class PlannedRule : public ::testing::TestWithParam<std::string> {};

TEST_P(PlannedRule, DecidesAsOnTheHost) {
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
                        {"coupled", {{"coins", "gumbel"}}}};
  const ModelPtr target = table_on_device(90, 1), draft = table_on_device(90, 2, 1);
  for (const double temperature : {0.0, 1.0}) {
    for (const double draft_temperature : {-1.0, 0.0}) {
      SCOPED_TRACE(temperature);
      Decode decode{.target = target,
                    .draft = draft,
                    .strategy = choose("speculative_sampling",
                                       {{"gamma", 3}, {"draft_temperature", draft_temperature}})};
      decode.options = options.value(rule, json::object());
      decode.options.update({{"rule", rule}, {"temperature", temperature}, {"max_tokens", 30}});
      EXPECT_EQ(compare(decode).tokens.size(), 30u);
    }
  }
}

std::vector<std::string> every_rule() {
  std::vector<std::string> names;
  for (const AcceptanceRule& rule : acceptance_rules()) {
    if (rule.device_form != nullptr) names.emplace_back(rule.name);
  }
  return names;
}
INSTANTIATE_TEST_SUITE_P(Rules, PlannedRule, ::testing::ValuesIn(every_rule()),
                         [](const auto& info) { return info.param; });

TEST(PlannedLoop, EndsWhereTheHostEnds) {
  const ModelPtr target = table_on_device(40, 3);
  Decode decode{.target = target,
                .draft = target,
                .strategy = choose("speculative_sampling", {{"gamma", 5}}),
                .options = {{"temperature", 1}, {"max_tokens", 60}}};
  const std::vector<Token> text = compare(decode).tokens;
  // The end may be at the pending token, inside a draft, at its end, or at the bonus.
  for (int most = 1; most <= 13; ++most) {
    decode.options["max_tokens"] = most;
    EXPECT_EQ(compare(decode).finish, Finish::length);
  }
  decode.options["max_tokens"] = 60;
  int ended = 0;
  for (int at = 1; at < 14; ++at) {
    const auto index = static_cast<std::size_t>(at);
    if (std::find(text.begin(), text.begin() + at, text[index]) != text.begin() + at) continue;
    Decode with_end = decode;
    with_end.eos = {text[index], 39};
    const GenerationRecord record = compare(with_end);
    ended += record.finish == Finish::eos && record.steps.back().ended_by == EndedBy::eos ? 1 : 0;
    with_end.options["ignore_eos"] = true;
    EXPECT_EQ(compare(with_end).finish, Finish::length);
  }
  EXPECT_GT(ended, 5);
  for (int capacity = 4; capacity <= 16; ++capacity) {
    Decode shorter = decode;
    shorter.loop.capacity = capacity;
    EXPECT_EQ(compare(shorter).finish, Finish::context) << capacity;
  }
}

TEST(PlannedLoop, ContextsOfTargetAndDraftEnd) {
  const TinyModel tiny = random_llama(tiny_shape(), 1);
  Shape shorter = tiny.config;
  shorter.context = 20;
  shorter.layers = 1;
  const ModelPtr target = on_device(tiny), draft = on_device(random_llama(shorter, 1), target);
  for (const int length : {3, 17, 19, 20, 21, 30}) {
    SCOPED_TRACE(length);
    Decode decode{.target = target,
                  .draft = draft,
                  .strategy = choose("speculative_sampling", {{"gamma", 4}}),
                  .options = {{"temperature", 1}, {"max_tokens", 12}}};
    for (int i = 3; i < length; ++i) decode.prompt.push_back(i);
    compare(decode);
  }
  Shape small = tiny.config;
  small.context = 40;
  const ModelPtr whole = on_device(random_llama(small, 1));
  Decode to_the_end{.target = whole,
                    .draft = whole,
                    .strategy = choose("speculative_sampling", {{"gamma", 7}}),
                    .options = {{"temperature", 0}, {"max_tokens", 50}}};
  to_the_end.loop.capacity = whole->config().context;
  for (int i = 3; i < whole->config().context - 12; ++i) to_the_end.prompt.push_back(i % 60);
  EXPECT_EQ(compare(to_the_end).finish, Finish::context);
}

// One loop and one plan decode several texts, with other coins, lengths and prompts; one of them is
// cancelled.
TEST(PlannedLoop, GoesOnWithTheNextText) {
  const ModelPtr target = table_on_device(50, 4), draft = table_on_device(50, 5, 1);
  DecodeLoop loop(target, draft, choose("speculative_sampling", {{"gamma", 3}}), {.capacity = 256});
  Decode decode{.target = target,
                .draft = draft,
                .strategy = choose("speculative_sampling", {{"gamma", 3}}),
                .loop = {.capacity = 256}};
  for (int i = 0; i < 6; ++i) {
    decode.options = {{"temperature", 1}, {"max_tokens", 80 + 7 * i}, {"device_loop", "off"}};
    decode.prompt.assign(static_cast<std::size_t>(3 + i), 7);
    decode.coins = Coins(static_cast<std::uint64_t>(i), 3);
    const GenerationRecord host = decode.run();
    decode.options["device_loop"] = "auto";
    if (i == 2) {
      std::stop_source source;
      source.request_stop();
      EXPECT_EQ(loop.run(decode.request(), source.get_token()).finish, Finish::cancelled);
    }
    expect_equal(loop.run(decode.request()), host);
  }
}

// Cancelling a text does not wait for the replay that gives the hashes of its rows.
TEST(PlannedLoop, StopsBetweenRounds) {
  const ModelPtr target = table_on_device(50, 4), draft = table_on_device(50, 5, 1);
  const Decode decode{.target = target,
                      .draft = draft,
                      .strategy = choose("speculative_sampling", {{"gamma", 3}}),
                      .options = {{"temperature", 1}, {"max_tokens", 90}, {"device_loop", "on"}},
                      .loop = {.capacity = 256}};
  std::stop_source source;
  int calls = 0;
  LoopOptions options = decode.loop;
  options.on_emit = [&](int, const StepRecord&, TokenSpan) {
    if (++calls == 4) source.request_stop();
  };
  DecodeLoop loop(target, draft, decode.strategy, options);
  const GenerationRecord stopped = loop.run(decode.request(), source.get_token());
  EXPECT_EQ(stopped.finish, Finish::cancelled);
  EXPECT_EQ(stopped.steps.size(), 3u) << "the first call is that of prefill";
  EXPECT_EQ(stopped.row_hashes.size(), 1u) << "of the token from prefill";
  Decode host = decode;
  host.options["device_loop"] = "off";
  expect_equal(loop.run(decode.request()), host.run());
}

TEST(PlannedLoop, GraphsAndLaunchesAreTheSame) {
  const ModelPtr target = table_on_device(50, 4), draft = table_on_device(50, 5, 1);
  for (const char* graph : {"off", "round", "loop"}) {
    SCOPED_TRACE(graph);
    for (const int most : {2, 40}) {
      Decode decode{.target = target,
                    .draft = draft,
                    .strategy = choose("speculative_sampling", {{"gamma", 3}}),
                    .options = {{"temperature", 1}, {"device_graph", graph}, {"max_tokens", most}}};
      compare(decode);
    }
  }
}

PlanStart start_at(std::int64_t position, int most) {
  PlanStart start;
  start.position = position;
  start.previous = 1;
  start.pending = 2;
  start.max_tokens = most;
  start.key = Coins(7, 3).key();
  return start;
}

// A round is one sequence of launches, the same for every replay. One graph per context tier is enough, and
// the memory that it uses stays valid when the buffers of the models grow.
TEST(PlannedLoop, GraphOfARound) {
  const TinyModel tiny = random_llama(tiny_shape(), 1);
  const ModelPtr target = on_device(tiny);
  const auto draft_model = Model::with_layers(target, {0});
  const auto session = target->open(256), draft = draft_model->open(256);
  PlanShape shape;
  shape.widths = {1, 1};
  shape.vocab = shape.draft_columns = 64;
  shape.target_capacity = shape.draft_capacity = 256;
  shape.target.greedy = shape.draft.greedy = false;
  const auto rounds = PlannedRounds::make(shape, *session, draft.get());
  std::vector<Token> prompt(20, 3);
  session->prefill(prompt);
  draft->prefill(prompt);
  std::vector<std::vector<Token>> texts;
  for (const RoundQueue queue : {RoundQueue::kGraph, RoundQueue::kLoop, RoundQueue::kGraph}) {
    if (texts.size() == 2) {  // more rows than before
      const auto other = target->open(256), another = draft_model->open(256);
      other->prefill(std::vector<Token>(100, 5));
      another->prefill(std::vector<Token>(100, 5));
    }
    rounds->start(start_at(20, 30), queue, queue == RoundQueue::kLoop);
    std::vector<Token> text;
    for (PlanEnd end = PlanEnd::kNone; end == PlanEnd::kNone;) {
      const PlanRound& round = rounds->next();
      for (int i = 0; i < round.emitted; ++i)
        text.push_back(i < round.accepted ? round.tokens[i + 1] : round.next);
      end = round.end;
    }
    texts.push_back(text);
  }
  EXPECT_EQ(texts[0].size(), 30u);
  EXPECT_EQ(texts[1], texts[0]);
  EXPECT_EQ(texts[2], texts[0]);
  ASSERT_EQ(rounds->graphs().size(), 2u);

  const Graph& plain = *rounds->graphs().at({PlannedRounds::kTier, false, false});
  std::vector<std::string> kernels;
  for (const GraphNode& node : plain.nodes) kernels.emplace_back(node.kernel);
  const auto count = [&](const std::string& name) {
    return std::count(kernels.begin(), kernels.end(), name);
  };
  // There are rows of two drafts and of the target, and a draw for each draft. The drafts have one layer, the
  // target has two.
  EXPECT_EQ(count("lay_rows"), 3);
  EXPECT_EQ(count("gather"), 3);
  EXPECT_EQ(count("sample"), 2);
  EXPECT_EQ(count("standardise"), 3);
  EXPECT_EQ(count("attention_splits"), 4);
  EXPECT_EQ(count("attention_sum"), 3);  // part of the product after it in the draft's forward of one row
  EXPECT_EQ(std::count_if(kernels.begin(), kernels.end(),
                          [](const std::string& name) { return name.starts_with("linear"); }),
            2 * 5 + 9);
  EXPECT_EQ(count("stamp"), 0);
  EXPECT_EQ(kernels.front(), "lay_rows");
  EXPECT_EQ(std::vector<std::string>(kernels.end() - 3, kernels.end()),
            (std::vector<std::string>{"standardise", "accept", "settle"}));
  for (std::size_t i = 0; i < kernels.size(); ++i) {
    if (kernels[i] == "sample") {
      EXPECT_EQ(kernels[i - 1], "standardise");
    }
    if (kernels[i] == "gather") {
      EXPECT_EQ(kernels[i - 1], "lay_rows");
    }
    EXPECT_GE(plain.nodes[i].threads, 32) << kernels[i];
    EXPECT_LE(plain.nodes[i].shared_bytes, 227 << 10) << kernels[i];
  }
  EXPECT_FALSE(plain.kept.empty());

  const Graph& loop = *rounds->graphs().at({PlannedRounds::kTier, true, true});
  EXPECT_TRUE(loop.loop);
  EXPECT_EQ(loop.nodes.size(), plain.nodes.size() + 4);  // three stamps, and the decision to continue
  EXPECT_EQ(loop.nodes.front().kernel, "stamp");
  EXPECT_EQ(loop.nodes.back().kernel, "continue_loop");
}

TEST(PlannedLoop, ARecordingTakesNoCopies) {
  const ModelPtr target = table_on_device(50, 4);
  Backend& backend = target->backend();
  const Buffer<float> there = backend.allocate_buffer<float>(4);
  DeviceProgram& program = *backend.device_program();
  const std::vector<float> here(4);
  EXPECT_THROW(program.record(false, [&] { backend.upload(here.data(), 16, there.data()); }), Bug);
  EXPECT_THROW(program.record(false, [&] { program.record(false, [] {}); }), Bug);
  const auto graph = program.record(true, [&] { backend.scale(2, 1, 4, there.data()); });
  EXPECT_THROW(program.replay(*graph), Bug);  // it has no end
}

TEST(PlannedLoop, StreamsAndWorksWithoutRows) {
  const ModelPtr target = table_on_device(50, 4);
  std::vector<Token> streamed;
  Decode decode{.target = target, .options = {{"temperature", 1}, {"max_tokens", 20}, {"device_loop", "on"}}};
  decode.loop.hash_rows = decode.loop.details = false;
  decode.loop.on_emit = [&](int, const StepRecord&, TokenSpan emitted) {
    streamed.insert(streamed.end(), emitted.begin(), emitted.end());
  };
  const GenerationRecord record = decode.run();
  EXPECT_EQ(streamed, record.tokens);
  EXPECT_EQ(record.stamped_ns, 0);
  std::int64_t sum = 0;
  for (const StepRecord& step : record.steps) sum += step.times.total();
  EXPECT_EQ(sum, record.decode_ns);
}

TEST(PlannedLoop, SaysWhyNot) {
  const ModelPtr target = table_on_device(50, 4), host = random_markov(50, 4);
  const auto error_of = [](Decode decode) -> std::string {
    decode.options["device_loop"] = "on";
    decode.options["max_tokens"] = 4;
    decode.eos = {49};
    try {
      decode.run();
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(error_of({.target = host}), HasSubstr("backend cpu"));
  EXPECT_THAT(error_of({.target = host, .strategy = choose("prompt_lookup")}), HasSubstr("backend cpu"));
  for (const char* learns : {"lookahead", "jacobi", "token_recycling"})
    EXPECT_THAT(error_of({.target = target, .strategy = choose(learns)}),
                HasSubstr(std::string(learns) + " learns from the target's rows"));
  EXPECT_THAT(error_of({.target = target, .options = {{"banned_tokens", {5}}}}),
              HasSubstr("logits processors (repetition_penalty, min_length, banned_tokens)"));
  EXPECT_THAT(error_of({.target = target, .loop = {.verify = VerifyWith::batch_of_prefixes}}),
              HasSubstr("batch of sequences"));
  EXPECT_EQ(error_of({.target = target}), "");
  Decode automatic{.target = host, .options = {{"device_loop", "auto"}, {"max_tokens", 4}}};
  EXPECT_EQ(automatic.run().planned_steps, 0);
}

class DeviceWait : public ::testing::Test {
 protected:
  void TearDown() override { unsetenv("SPECLAB_DEVICE_WAIT_SECONDS"); }
  static std::string failure(const ModelPtr& target, const json& options) {
    Decode decode{.target = target, .options = options};
    decode.options.update({{"device_loop", "on"}, {"max_tokens", 6}});
    try {
      decode.run();
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  }
};

// A device that never writes the result of a step.
TEST_F(DeviceWait, ASilentDeviceIsGivenUp) {
  setenv("SPECLAB_DEVICE_WAIT_SECONDS", "0.2", 1);
  for (const bool busy : {true, false}) {
    for (const char* graph : {"off", "round"}) {
      SCOPED_TRACE(std::string(busy ? "busy" : "idle") + ", graph " + graph);
      const auto backend = std::make_shared<SilentBackend>(busy);
      const ModelPtr target = load_tiny_on(backend, random_table(20, 1));
      const std::int64_t begun = wall_now_ns();
      const std::string text = failure(target, {{"device_graph", graph}});
      EXPECT_LT(wall_now_ns() - begun, 3'000'000'000);
      EXPECT_THAT(text, ::testing::AllOf(HasSubstr("round 1 of "), HasSubstr("simulated GPU"),
                                         HasSubstr("no result after 0.2 s"),
                                         HasSubstr(busy ? "is still busy" : "has nothing left to do"),
                                         HasSubstr("SPECLAB_DEVICE_WAIT_SECONDS")));
      // Nothing waits for this device again.
      EXPECT_THAT(failure(target, {{"device_loop", "off"}}), HasSubstr("given up"));
      EXPECT_THROW(backend->allocate(8), Error);
    }
  }
}

TEST_F(DeviceWait, TheLimitIsCheckedOnlyWhenADeviceKeepsTheHostWaiting) {
  setenv("SPECLAB_DEVICE_WAIT_SECONDS", "soon", 1);
  const auto silent = std::make_shared<SilentBackend>(true);
  EXPECT_THAT(failure(load_tiny_on(silent, random_table(20, 1)), json::object()),
              ::testing::AllOf(HasSubstr("SPECLAB_DEVICE_WAIT_SECONDS"), HasSubstr("\"soon\""),
                               HasSubstr("seconds, above 0")));
  EXPECT_EQ(failure(table_on_device(20, 1), json::object()), "no error");
}

TEST(ProfiledSteps, LieBetweenThePromptAndTheEnd) {
  Decode decode{.target = tiny_target(), .options = {{"max_tokens", 3}}};
  std::vector<std::string> events;
  decode.loop.on_steps = [&](bool begins) { events.emplace_back(begins ? "begin" : "end"); };
  decode.loop.on_emit = [&](int, const StepRecord& step, TokenSpan) {
    events.emplace_back(step.emitted > 0 ? "step" : "prompt");
  };
  EXPECT_EQ(decode.run().tokens.size(), 3u);
  EXPECT_THAT(events, ::testing::ElementsAre("prompt", "begin", "step", "step", "end"));
}

}  // namespace speclab::planned_loop_test
