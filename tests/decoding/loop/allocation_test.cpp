// The hot path of sampling and verification does not allocate once its buffers have grown. Not tested under
// AddressSanitizer, which has its own operator new and does not allow another one.
#ifndef __SANITIZE_ADDRESS__
#include <gtest/gtest.h>
#include <malloc.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <new>
#include <random>

// Both replaced operators use malloc and free; the compiler sees only one of them inlined.
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"

#include "core/decoding/rules/accept.h"
#include "core/decoding/drafting/datastore.h"
#include "tests/decoding/loop/allocations.h"
#include "tests/decoding/loop/loop_fixture.h"

namespace {
std::atomic<long> allocations{0};
}
long speclab::fixtures::allocations_so_far() { return allocations.load(); }

void* operator new(std::size_t bytes) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  if (void* p = std::malloc(bytes == 0 ? 1 : bytes)) return p;
  throw std::bad_alloc();
}
void operator delete(void* p) noexcept { std::free(p); }
// The allocators of aligned vectors end here.
extern "C" int posix_memalign(void** out, std::size_t alignment, std::size_t bytes) noexcept {
  allocations.fetch_add(1, std::memory_order_relaxed);
  *out = memalign(alignment, bytes);
  return *out != nullptr ? 0 : ENOMEM;
}
void operator delete(void* p, std::size_t) noexcept { std::free(p); }

namespace speclab {
namespace {

TEST(Allocation, NoneInTheSteadyStateOfDraftingAndVerifying) {
  const int vocab = 3000;
  std::mt19937 random(1);
  std::vector<std::vector<float>> logits(8, std::vector<float>(vocab));
  for (auto& row : logits) {
    for (float& z : row) z = static_cast<float>(random() % 4096) / 512;
  }
  const SamplingParams all[] = {{1, 0, 1}, {1, 40, 1}, {.8, 0, .9}, {1, 50, .95}, {0, 0, 1}};
  Draft draft;
  Distribution p[4], raw[4];
  Acceptance acceptance;
  acceptance.want_ranks = true;
  std::vector<Token> top;
  const TargetRows rows = [&](int node) { return TargetRow{&p[node], &raw[node]}; };
  const auto step = [&](std::uint64_t seed) {
    const Coins coins(1, seed);
    for (const SamplingParams& params : all) {
      for (int i = 0; i < 4; ++i) {
        p[i].assign_logits(logits[i], params, {}, vocab);
        raw[i].assign_logits(logits[i], {1, 0, 1}, {}, vocab);
      }
      draft.reset(0);
      for (int i = 0; i < 3; ++i) {
        int index = -1;
        Distribution& q = draft.new_q(&index);
        q.assign_logits(logits[4 + i], {1, 60, .97}, {}, vocab);
        q.top(5, top);
        draft.add(q.sample(coins, {i, Purpose::draft, 0}), i < 2 ? i : 0, index);
      }
      for (const AcceptanceRule& rule : acceptance_rules()) {
        if (rule.chains_only || rule.independent_paths_only) continue;
        accept(rule, {.lenience = .5, .b = .5, .beta = 3, .gap = 1}, draft, rows, coins, 0, acceptance);
      }
    }
  };
  for (int seed = 0; seed < 12; ++seed) step(seed);  // every buffer reaches its size
  const long before = allocations.load();
  for (int seed = 0; seed < 12; ++seed) step(seed);
  EXPECT_EQ(allocations.load() - before, 0);
  {
    std::vector<int> one(1);
  }
  EXPECT_GT(allocations.load(), 0);  // the counter works
}

// Steps by hand over rows in which every fourth row equals its neighbour, so that windows, pool and tree all
// move.
void expect_no_allocation_in_steps_of(const std::string& name, const nlohmann::json& options,
                                      bool noted = false) {
  Resources resources;
  resources.target = fixtures::tiny_target();
  resources.capacity = 200;
  const int vocab = resources.target->config().vocab;
  const auto strategy = fixtures::choose(name, options).make(resources);
  const int most = std::max(128, strategy->max_nodes());
  std::vector<float> logits(static_cast<std::size_t>(most) * static_cast<std::size_t>(vocab));
  for (std::size_t i = 0; i < logits.size(); ++i)
    logits[i] = static_cast<float>((i * 7 + i / 256 * 13) % 101);
  std::vector<float> maxima;
  for (auto at = logits.begin(); noted && at != logits.end(); at += kMaximumOf)
    maxima.push_back(*std::max_element(at, at + kMaximumOf));
  ASSERT_EQ(vocab % kMaximumOf, 0);
  std::vector<std::int32_t> row_of(static_cast<std::size_t>(most));
  for (std::size_t i = 0; i < row_of.size(); ++i) row_of[i] = static_cast<std::int32_t>(i);
  Sequence sequence;
  sequence.tokens.reserve(200);
  Draft draft;
  Acceptance acceptance;
  std::size_t guesses = 0;
  const auto text = [&] {
    sequence.tokens.assign({3, 1, 4, 1, 5, 9, 2, 6});
    sequence.prompt_length = 7;
    strategy->begin(sequence);
    for (int i = 0; i < 60; ++i) {
      sequence.depth_limit = sequence.probe_limit = 100;
      draft.reset(sequence.tokens.back());
      const Sequence* const sequences[] = {&sequence};
      Draft* const drafts[] = {&draft};
      strategy->draft(sequences, drafts);
      guesses += static_cast<std::size_t>(draft.tree.drafted());
      sequence.tokens.push_back(static_cast<Token>(i % 3));
      const Outcome outcome{&draft, &acceptance, 1, {logits.data(), row_of, vocab, maxima}};
      strategy->observe(sequences, {&outcome, 1});
    }
  };
  text();
  const long before = allocations.load();
  text();
  EXPECT_EQ(allocations.load() - before, 0) << name << options;
  EXPECT_GT(guesses, 100u) << name << options;
}

TEST(Allocation, NoneInTheSteadyStateOfStrategies) {
  expect_no_allocation_in_steps_of("lookahead", {{"pool_from_prompt", true}});
  expect_no_allocation_in_steps_of("token_recycling", nlohmann::json::object());
  expect_no_allocation_in_steps_of("token_recycling", nlohmann::json::object(), true);
  expect_no_allocation_in_steps_of("ngram_model", nlohmann::json::object());
  expect_no_allocation_in_steps_of("ngram_model", {{"smoothing", "katz"}, {"draft_temperature", 1}});
  expect_no_allocation_in_steps_of("suffix_decoding", {{"contexts", "enough"}, {"depth", 9}});
  expect_no_allocation_in_steps_of("prompt_lookup", {{"reference", "prompt"}, {"candidates", 2}});
}

// Strategies that copy, on a text without repeats and then on one full of copies. A step is draft and
// observe; beginning a text may allocate.
TEST(Allocation, NoneInTheStepsOfCopies) {
  using fixtures::json;
  constexpr int kText = 190;
  Resources resources;
  const int vocab = 200;
  resources.target = fixtures::random_markov(vocab, 1);
  resources.capacity = 200;
  std::vector<Token> all_different(kText), copies(kText);
  for (int i = 0; i < kText; ++i) {
    all_different[static_cast<std::size_t>(i)] = i;
    copies[static_cast<std::size_t>(i)] = static_cast<Token>(i * i % 37 % (i < 90 ? 7 : 5));
  }
  fixtures::TempDir dir;
  const std::string datastore = (dir.path() / "datastore").string();
  Datastore::Builder builder(vocab, resources.target->tokenizer_sha256());
  builder.add(copies);
  builder.write(datastore);
  const struct {
    const char* strategy;
    json options;
  } cases[] = {
      {"prompt_lookup", {}},
      {"prompt_lookup", {{"match", "frequent"}, {"candidates", 3}, {"by_match", true}}},
      {"suffix_decoding", {}},
      {"suffix_decoding", {{"tree", true}, {"length", 64}, {"factor", 64}, {"min_probability", 0}}},
      {"suffix_decoding", {{"remember", "texts"}, {"tree", true}, {"length", 20}, {"factor", 8}}},
      {"retrieval", {{"datastore", datastore}, {"nodes", 64}, {"ngram_min", 1}}},
      {"composition", {{"sources", json::array({"text"})}}},
      {"composition",
       {{"sources", json::array({"text", "earlier"})},
        {"worth", 0},
        {"nodes", 40},
        {"trust", json::array({1})}}},
      {"composition",
       {{"sources", json::array({"text", "datastore"})},
        {"datastore", datastore},
        {"worth", 0},
        {"nodes", 40},
        {"trust", json::array({1})}}},
  };
  for (const auto& [name, options] : cases) {
    const auto strategy =
        fixtures::choose(name, options.is_null() ? json::object() : options).make(resources);
    Sequence sequence;
    sequence.tokens.reserve(200);
    Draft draft;
    draft.reset(0);
    for (int i = 0; i < 64; ++i) draft.add(0, i);  // the draft of the loop, at its largest size
    Acceptance acceptance;
    std::size_t guesses = 0;
    const auto steps_of = [&](const std::vector<Token>& text) {
      constexpr std::size_t kPrompt = 30;
      sequence.tokens.assign(text.begin(), text.begin() + kPrompt + 1);
      sequence.prompt_length = kPrompt;
      strategy->begin(sequence);
      const long before = allocations.load();
      for (std::size_t i = kPrompt + 1; i < text.size(); ++i) {
        sequence.depth_limit = 100;
        draft.reset(sequence.tokens.back());
        const Sequence* const sequences[] = {&sequence};
        Draft* const drafts[] = {&draft};
        strategy->draft(sequences, drafts);
        guesses += static_cast<std::size_t>(draft.tree.drafted());
        sequence.tokens.push_back(text[i]);
        const Outcome outcome{&draft, &acceptance, 1};
        strategy->observe(sequences, {&outcome, 1});
      }
      return allocations.load() - before;
    };
    steps_of(all_different);
    EXPECT_EQ(steps_of(copies), 0) << name << " " << options;
    EXPECT_GT(guesses, 100u) << name << " " << options;
  }
}

}  // namespace
}  // namespace speclab

#endif  // __SANITIZE_ADDRESS__
