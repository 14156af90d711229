// Drives the decode loop step by step. Requests arrive and finish at any time, and each gets the same record
// as alone.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "core/base/error.h"
#include "tests/decoding/loop/planned_loop.h"

namespace speclab::arrivals_test {
namespace {

using namespace planned_loop_test;
using ::testing::HasSubstr;

struct Setting {
  const char* name;
  StrategyChoice strategy;
  json options;  // of every request
  LoopOptions loop = {};
};

std::vector<Setting> settings() {
  const json greedy = json::object(), sampled = {{"temperature", 1}},
             coupled = {{"temperature", 1}, {"coins", "gumbel"}};
  const StrategyChoice chain = choose("speculative_sampling", {{"gamma", 3}}),
                       tree = choose("tree_speculation", {{"widths", {2, 2}}}),
                       lookahead = choose("lookahead", {{"W", 3}, {"N", 3}, {"G", 3}});
  return {{"autoregressive", choose("autoregressive"), sampled},
          {"chain, greedy", chain, greedy},
          {"chain, sampled", chain, sampled},
          {"chain, coupled", chain, coupled},
          {"tree", tree, sampled},
          {"prompt_lookup", choose("prompt_lookup"), greedy},
          {"lookahead", lookahead, greedy},
          {"lookahead on three devices", lookahead, greedy, {.devices = 3}},
          {"batch of prefixes", tree, sampled, {.verify = VerifyWith::batch_of_prefixes}}};
}

std::vector<std::vector<Token>> prompts_of(std::mt19937_64& random, int count) {
  std::vector<std::vector<Token>> prompts(static_cast<std::size_t>(count));
  for (auto& prompt : prompts) {
    prompt.resize(1 + random() % 12);
    for (Token& token : prompt) token = static_cast<Token>(random() % 60);
  }
  return prompts;
}

// The record without its times.
void expect_same(const GenerationRecord& together, const GenerationRecord& alone) {
  EXPECT_EQ(together.tokens, alone.tokens);
  EXPECT_EQ(together.row_hashes, alone.row_hashes);
  EXPECT_EQ(together.finish, alone.finish);
  ASSERT_EQ(together.steps.size(), alone.steps.size());
  for (std::size_t i = 0; i < alone.steps.size(); ++i) {
    EXPECT_EQ(together.steps[i].accepted, alone.steps[i].accepted) << i;
    EXPECT_EQ(together.steps[i].drafted.size(), alone.steps[i].drafted.size()) << i;
    EXPECT_EQ(together.steps[i].rows, alone.steps[i].rows) << i;
  }
  EXPECT_EQ(together.target.rows, alone.target.rows);
  EXPECT_EQ(together.draft.rows, alone.draft.rows);
}

/// Decodes `count` requests of random length that arrive at random steps, at most `batch` at a time, and
/// compares each record with that of a loop of its own.
void check_arrivals(const Setting& setting, const ModelPtr& target, const ModelPtr& draft, std::uint64_t seed,
                    int count, int batch) {
  std::mt19937_64 random(seed);
  const std::vector<std::vector<Token>> prompts = prompts_of(random, count);
  std::vector<Request> requests;
  std::vector<GenerationRecord> alone;
  LoopOptions options = setting.loop;
  options.capacity = 96;
  for (int i = 0; i < count; ++i) {
    Decode one{.target = target,
               .draft = draft,
               .strategy = setting.strategy,
               .options = setting.options,
               .prompt = prompts[static_cast<std::size_t>(i)],
               .loop = options,
               .coins = Coins(seed, static_cast<std::uint64_t>(i))};
    one.options["max_tokens"] = 1 + static_cast<int>(random() % 20);
    alone.push_back(one.run());
    requests.push_back(one.request());
    requests.back().prompt = prompts[static_cast<std::size_t>(i)];
  }

  options.batch = batch;
  DecodeLoop loop(target, draft, setting.strategy, options);
  std::map<std::uint64_t, std::size_t> index;  // request by ticket
  std::size_t next = 0, done = 0;
  while (done < requests.size()) {
    while (next < requests.size() && loop.has_room() && (loop.idle() || random() % 3 != 0)) {
      index[loop.add(requests[next])] = next;
      ++next;
    }
    loop.step();
    for (const DecodeLoop::Finished& finished : loop.finished()) {
      SCOPED_TRACE(fmt::format("{}, request {}", setting.name, index.at(finished.ticket)));
      expect_same(finished.record, alone[index.at(finished.ticket)]);
      ++done;
    }
  }
  EXPECT_TRUE(loop.idle());
}

TEST(Arrivals, ARequestGetsWhatItGetsAlone) {
  const ModelPtr target = tiny_target(), draft = Model::with_layers(target, {0});
  for (const Setting& setting : settings()) {
    for (std::uint64_t seed = 1; seed <= 3; ++seed) check_arrivals(setting, target, draft, seed, 9, 3);
  }
}

TEST(Arrivals, WhereTheDeviceVerifies) {
  const ModelPtr target = table_on_device(60, 5), draft = table_on_device(60, 6);
  for (Setting setting : settings()) {
    if (setting.loop.devices > 1 || setting.loop.verify == VerifyWith::batch_of_prefixes) continue;
    setting.options["device_loop"] = "auto";
    check_arrivals(setting, target, draft, 2, 5, 2);
  }
}

TEST(Arrivals, ARequestWithoutRoomIsRefusedAndTheOthersGoOn) {
  const ModelPtr target = tiny_target();
  const std::vector<Token> prompt{1, 2, 3}, endless(100, 7);
  Decode decode{.target = target, .options = {{"max_tokens", 6}}, .prompt = prompt};
  const GenerationRecord alone = decode.run();
  Request fits = decode.request(), too_long = fits;
  fits.prompt = prompt;
  too_long.prompt = endless;
  DecodeLoop loop(target, nullptr, choose("autoregressive"), {.batch = 2, .capacity = 64});
  const auto error_of = [&](const Request& request) -> std::string {
    try {
      loop.add(request);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  loop.add(fits);
  loop.step();
  EXPECT_THAT(error_of(too_long), HasSubstr("at most 64, the context of this run"));
  loop.add(fits);
  EXPECT_FALSE(loop.has_room());
  EXPECT_THAT(error_of(fits), HasSubstr("at most 2 at a time"));
  while (!loop.idle()) loop.step();
  const std::vector<DecodeLoop::Finished> finished = loop.finished();
  ASSERT_EQ(finished.size(), 2u);
  for (const DecodeLoop::Finished& one : finished) {
    EXPECT_EQ(one.record.tokens, alone.tokens);
    EXPECT_EQ(one.record.row_hashes, alone.row_hashes);
  }
  EXPECT_TRUE(loop.finished().empty());  // they were taken
}

TEST(Arrivals, ACancelledBatchIsEmptyAndUsable) {
  const ModelPtr target = tiny_target();
  const std::vector<Token> prompt{1, 2, 3};
  Decode decode{.target = target, .options = {{"max_tokens", 6}}, .prompt = prompt};
  const GenerationRecord alone = decode.run();
  Request request = decode.request();
  request.prompt = prompt;
  DecodeLoop loop(target, nullptr, choose("autoregressive"), {.batch = 2, .capacity = 64});
  loop.add(request);
  loop.step();
  loop.add(request);
  loop.step();
  loop.cancel();
  EXPECT_TRUE(loop.idle());
  const std::vector<DecodeLoop::Finished> cancelled = loop.finished();
  ASSERT_EQ(cancelled.size(), 2u);
  for (const DecodeLoop::Finished& one : cancelled) EXPECT_EQ(one.record.finish, Finish::cancelled);
  EXPECT_EQ(cancelled[0].record.steps.size(), 2u);
  EXPECT_EQ(cancelled[1].record.steps.size(), 1u);
  EXPECT_EQ(loop.run(request).tokens, alone.tokens);
}

}  // namespace
}  // namespace speclab::arrivals_test
