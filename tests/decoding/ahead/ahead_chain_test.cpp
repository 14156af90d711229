// Drafting while the target verifies gives the texts, drafts and verdicts of drafting afterwards, whatever
// is accepted. These tests also run under ThreadSanitizer (scripts/sanitize.sh).
#include "core/decoding/ahead/ahead_chain.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "tests/decoding/loop/planned_loop.h"

namespace speclab::ahead_chain_test {
namespace {

using namespace planned_loop_test;
using ::testing::HasSubstr;

ModelPtr on_two_threads(const TinyModel& tiny) {
  static const std::shared_ptr<Backend> backend = make_cpu_backend({2, "f32"});
  return load_tiny_on(backend, tiny);
}

/// A table, and a draft for it that has the same rows after a share of the tokens and other rows after the
/// rest.
std::pair<ModelPtr, ModelPtr> table_and_draft(int vocab, std::uint64_t seed, double share) {
  std::vector<float> logits = toy::random_logits(vocab, vocab, seed, 2);
  const ModelPtr target = on_two_threads(markov_table(vocab, logits));
  const std::vector<float> other = toy::random_logits(vocab, vocab, seed + 1000, 2);
  std::mt19937_64 random(seed);
  for (int token = 0; token < vocab; ++token) {
    if (static_cast<double>(random() % 1000) < 1000 * share) continue;
    for (int x = 0; x < vocab; ++x) {
      const auto at = static_cast<std::size_t>(token * vocab + x);
      logits[at] = other[at];
    }
  }
  return {target, on_two_threads(markov_table(vocab, logits))};
}

struct AheadCounts {
  int right = 0, wrong = 0;
};

/// Decodes with drafts ahead and without. Everything but times and the work of the draft model must be equal.
/// Checks what the record says about the drafts ahead, and counts them.
AheadCounts expect_as_serial(Decode decode, int gamma) {
  decode.strategy = choose("overlapped_speculation", {{"gamma", gamma}});
  const GenerationRecord overlapped = decode.run();
  decode.strategy = choose("speculative_sampling", {{"gamma", gamma}});
  GenerationRecord serial = decode.run();
  AheadCounts counts;
  EXPECT_EQ(overlapped.steps.size(), serial.steps.size());
  if (overlapped.steps.size() != serial.steps.size()) return counts;
  bool ready = false;
  for (std::size_t i = 0; i < serial.steps.size(); ++i) {
    const StepRecord& step = overlapped.steps[i];
    const int drafted = static_cast<int>(step.drafted.size()),
              forwards = step.ahead ? step.ahead->forwards : 0;
    EXPECT_EQ(step.draft_calls, (ready ? 0 : drafted) + forwards) << "step " << i;
    EXPECT_FALSE(serial.steps[i].ahead);
    ready = step.ahead && step.ahead->right;
    serial.steps[i].draft_calls = step.draft_calls;
    if (!step.ahead) continue;
    ++(ready ? counts.right : counts.wrong);
    EXPECT_EQ(step.ahead->forwards, step.ahead->drafted + 1) << "step " << i;
    EXPECT_LE(step.ahead->overlapped_ns, step.ahead->ns);
    if (ready) {
      EXPECT_LT(i + 1, serial.steps.size());
      EXPECT_EQ(step.accepted, drafted);
      EXPECT_EQ(step.ahead->drafted, static_cast<int>(overlapped.steps[i + 1].drafted.size()));
    }
  }
  serial.draft = overlapped.draft;
  expect_equal(overlapped, serial);
  return counts;
}

TEST(AheadChain, RandomAcceptanceUnderEverySampling) {
  const std::vector<json> samplings = {
      json{{"temperature", 0}},
      json{{"temperature", 1}},
      json{{"temperature", .8}, {"top_p", .9}},
      json{{"temperature", 1}, {"coins", "gumbel"}},
      json{{"temperature", 1}, {"rule", "block"}},
      json{{"temperature", .5}, {"repetition_penalty", 1.3}, {"min_length", 9}}};
  AheadCounts all;
  std::uint64_t seed = 0;
  for (const double share : {0.0, .5, .8, 1.0}) {
    for (const json& sampling : samplings) {
      ++seed;
      SCOPED_TRACE(sampling.dump() + ", share " + std::to_string(share));
      const auto [target, draft] = table_and_draft(24, seed, share);
      Decode decode{.target = target, .draft = draft, .options = sampling, .prompt = {1, 2, 3}};
      decode.options["max_tokens"] = 20 + static_cast<int>(seed % 13);
      decode.coins = Coins(seed, 3);
      if (seed % 3 == 0) decode.eos = {static_cast<Token>(seed % 24)};
      const AheadCounts counts = expect_as_serial(decode, 1 + static_cast<int>(seed % 5));
      all.right += counts.right;
      all.wrong += counts.wrong;
    }
  }
  EXPECT_GT(all.right, 10);
  EXPECT_GT(all.wrong, 20);
}

TEST(AheadChain, AModelWithACache) {
  const ModelPtr target = on_two_threads(random_llama(tiny_shape(), 3));
  for (const json& sampling :
       {json{{"temperature", 0}}, json{{"temperature", 1}, {"coins", "gumbel"}}, json{{"temperature", 1}}}) {
    for (const int gamma : {1, 4}) {
      Decode decode{.target = target,
                    .draft = Model::with_layers(target, {0}),
                    .options = sampling,
                    .prompt = {3, 1, 4, 1, 5, 9, 2, 6}};
      decode.options["max_tokens"] = 60;
      expect_as_serial(decode, gamma);
      decode.loop.verify = VerifyWith::batch_of_prefixes;
      expect_as_serial(decode, gamma);
    }
  }
}

TEST(AheadChain, OnlyTheFirstDraftIsMadeAnewIfTheDraftIsTheTarget) {
  const ModelPtr target = on_two_threads(random_llama(tiny_shape(), 3));
  Decode decode{.target = target, .draft = Model::with_layers(target, {0, 1}), .prompt = {3, 1, 4}};
  decode.options["max_tokens"] = 41;  // the first from the prefill, then eight steps of five tokens
  const AheadCounts counts = expect_as_serial(decode, 4);
  EXPECT_EQ(counts.right, 7);
  EXPECT_EQ(counts.wrong, 0) << "after the last step nothing is drafted";
}

TEST(AheadChain, NothingIsUsedIfTheDraftIsAlwaysWrong) {
  std::vector<float> logits = toy::random_logits(20, 20, 5, 2);
  const ModelPtr target = on_two_threads(markov_table(20, logits));
  for (float& logit : logits) logit = -logit;
  Decode decode{.target = target, .draft = on_two_threads(markov_table(20, logits))};
  decode.options["max_tokens"] = 20;
  const AheadCounts counts = expect_as_serial(decode, 3);
  EXPECT_EQ(counts.right, 0);
  EXPECT_GT(counts.wrong, 10);
}

TEST(AheadChain, ATraceEmitsOneTokenAStep) {
  const auto [target, draft] = table_and_draft(24, 7, 1);
  Decode decode{.target = target, .draft = draft};
  decode.options = {{"max_tokens", 20}, {"emit_at_most", 1}};
  EXPECT_EQ(expect_as_serial(decode, 3).right, 0);
}

TEST(AheadChain, WatchedCoinsAreNotDrawnAhead) {
  const auto [target, draft] = table_and_draft(24, 7, .9);
  Coins::Watch watch = [](const Coins::Address&, double number) { return number; };
  Decode decode{.target = target,
                .draft = draft,
                .strategy = choose("overlapped_speculation"),
                .options = {{"temperature", 1}, {"max_tokens", 30}}};
  const GenerationRecord usual = decode.run();
  decode.coins = Coins::watched(7, 3, &watch);
  const GenerationRecord watched = decode.run();
  EXPECT_EQ(watched.tokens, usual.tokens);
  const auto ahead = [](const StepRecord& step) { return step.ahead.has_value(); };
  EXPECT_TRUE(std::ranges::any_of(usual.steps, ahead));
  EXPECT_TRUE(std::ranges::none_of(watched.steps, ahead));
}

TEST(AheadChain, LoopsThatSharePrefillsDecodeTheSameText) {
  const ModelPtr target = on_two_threads(random_llama(tiny_shape(), 3));
  const ModelPtr draft = Model::with_layers(target, {0});
  const auto prefills = std::make_shared<PrefillCache>();
  Decode decode{.target = target, .options = {{"max_tokens", 20}}, .prompt = {3, 1, 4, 1, 5}};
  const GenerationRecord expected = decode.run();
  LoopOptions shared;
  shared.capacity = 256;
  shared.prefills = prefills;
  DecodeLoop overlapped(target, draft, choose("overlapped_speculation"), shared);
  DecodeLoop plain(target, nullptr, choose("autoregressive"), shared);
  for (int i = 0; i < 2; ++i) {
    for (DecodeLoop* loop : {&overlapped, &plain}) {
      const GenerationRecord record = loop->run(decode.request());
      EXPECT_EQ(record.tokens, expected.tokens);
      EXPECT_EQ(record.row_hashes, expected.row_hashes);
    }
  }
}

// If a step fails between draft() and observe(), a draft made ahead is left over. The loop can be used
// again.
TEST(AheadChain, AFailedStepStopsDraftingAhead) {
  const ModelPtr whole = on_two_threads(counting_table(false)), broken = on_two_threads(counting_table(true));
  for (const bool target_is_broken : {true, false}) {
    const ModelPtr &target = target_is_broken ? broken : whole, &draft = target_is_broken ? whole : broken;
    DecodeLoop loop(target, draft, choose("overlapped_speculation", {{"gamma", 3}}), {.capacity = 64});
    Decode decode{.target = target, .options = {{"max_tokens", 30}}, .prompt = {1}};
    EXPECT_THROW(loop.run(decode.request()), Error) << "the row after token 7 is invalid";
    decode.options["max_tokens"] = 4;
    EXPECT_EQ(loop.run(decode.request()).tokens, (std::vector<Token>{2, 3, 4, 5}));
  }
}

TEST(AheadChain, OneThreadIsRefused) {
  const ModelPtr target = tiny_target(), draft = Model::with_layers(target, {0});
  try {
    DecodeLoop(target, draft, choose("overlapped_speculation"), {.capacity = 64});
    FAIL() << "a loop on one thread";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("overlapped_speculation"));
    EXPECT_THAT(error.what(), HasSubstr("at least 2 threads"));
  }
}

TEST(AheadChain, ASimulatedGpuIsRefused) {
  const ModelPtr target = table_on_device(20, 3), draft = table_on_device(20, 4);
  try {
    DecodeLoop(target, draft, choose("overlapped_speculation"), {.capacity = 64});
    FAIL() << "a loop on a device";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("CPU backend"));
  }
}

TEST(AheadChain, SharedThreadsAreABug) {
  const ModelPtr target = on_two_threads(random_llama(tiny_shape(), 3));
  Resources resources;
  resources.target = target;
  resources.draft = Model::with_layers(target, {0});
  resources.capacity = 64;
  EXPECT_THROW(AheadChain(DraftChainOptions{}, resources), Bug);
}

}  // namespace
}  // namespace speclab::ahead_chain_test
