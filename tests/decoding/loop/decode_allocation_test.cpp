// A whole step of the decode loop on the real CPU backend allocates nothing: draft, forward, verification,
// commit and recording. Only the lists that the record keeps of a step are allocated, one block each.
#ifndef __SANITIZE_ADDRESS__
#include <gtest/gtest.h>

#include "tests/decoding/loop/allocations.h"
#include "tests/decoding/loop/loop_fixture.h"

namespace speclab::decode_allocation_test {
namespace {

using fixtures::json;

// The number of blocks that a copy of the step needs.
int lists_of(const StepRecord& step) {
  return !step.drafted.empty() + !step.contributions.empty() + !step.reviews.empty() + !step.parts.empty() +
         !step.probes.empty();
}

struct AllocationCase {
  const char* name;
  const char* strategy;
  json options;
  json generation;
  int batch = 1;
  VerifyWith verify = VerifyWith::one_pass;
  int devices = 1;
};

std::ostream& operator<<(std::ostream& out, const AllocationCase& c) { return out << c.name; }

const AllocationCase kAllocationCases[] = {
    {"autoregressive", "autoregressive", json::object(), json::object()},
    {"autoregressive_sampled", "autoregressive", json::object(), {{"temperature", .8}, {"top_p", .9}}},
    {"autoregressive_processed", "autoregressive", json::object(), {{"repetition_penalty", 1.2}}},
    {"autoregressive_batch", "autoregressive", json::object(), json::object(), 2},
    {"speculative_sampling", "speculative_sampling", {{"gamma", 4}}, json::object()},
    {"speculative_sampling_sampled", "speculative_sampling", {{"gamma", 3}}, {{"temperature", 1}}},
    {"speculative_sampling_batch", "speculative_sampling", {{"gamma", 3}}, {{"temperature", 1}}, 2},
    {"online_speculation", "online_speculation", {{"gamma", 4}, {"update_every", 2}}, json::object()},
    {"online_speculation_sampled", "online_speculation", {{"gamma", 3}, {"buffer", 2}}, {{"temperature", 1}}},
    {"overlapped_speculation", "overlapped_speculation", {{"gamma", 3}}, json::object()},
    {"overlapped_speculation_sampled", "overlapped_speculation", {{"gamma", 3}}, {{"temperature", 1}}},
    {"overlapped_speculation_batch", "overlapped_speculation", {{"gamma", 3}}, {{"temperature", 1}}, 2},
    {"tree_speculation", "tree_speculation", {{"widths", {2, 2, 1}}}, json::object()},
    {"tree_speculation_sampled", "tree_speculation", {{"widths", {3, 2}}}, {{"temperature", 1}}},
    {"tree_speculation_batch", "tree_speculation", {{"widths", {3, 2}}}, {{"temperature", 1}}, 2},
    {"tree_speculation_confidence",
     "tree_speculation",
     {{"widths", {2, 2, 1}}, {"root_confidence", true}},
     json::object()},
    {"tree_speculation_independent",
     "tree_speculation",
     {{"widths", {2, 2}}, {"children", "independent"}},
     {{"temperature", 1}}},
    {"dynamic_tree", "dynamic_tree", {{"depth", 3}, {"expand", 3}, {"branches", 2}}, json::object()},
    {"prompt_lookup", "prompt_lookup", {{"ngram_min", 1}}, json::object()},
    {"prompt_lookup_tree", "prompt_lookup", {{"ngram_min", 1}, {"candidates", 3}}, json::object()},
    {"token_recycling", "token_recycling", json::object(), json::object()},
    {"token_recycling_prefixes", "token_recycling", json::object(), json::object(), 1,
     VerifyWith::batch_of_prefixes},
    {"lookahead", "lookahead", json::object(), json::object()},
    {"speculative_sampling_budget",
     "speculative_sampling",
     {{"gamma", 4}, {"budget", "auto"}},
     {{"temperature", 1}}},
    {"tree_speculation_budget",
     "tree_speculation",
     {{"widths", {2, 2, 1}}, {"budget", "auto"}},
     {{"temperature", 1}}},
    {"dynamic_tree_budget",
     "dynamic_tree",
     {{"depth", 3}, {"expand", 3}, {"branches", 2}, {"budget", "auto"}},
     json::object()},
    {"prompt_lookup_budget",
     "prompt_lookup",
     {{"ngram_min", 1}, {"candidates", 3}, {"budget", "auto"}},
     json::object()},
    {"token_recycling_budget", "token_recycling", {{"budget", "auto"}}, json::object()},
    {"lookahead_budget",
     "lookahead",
     {{"W", 2}, {"N", 3}, {"pool_from_prompt", true}, {"budget", "auto"}},
     json::object()},
    {"lookahead_divided", "lookahead", json::object(), json::object(), 1, VerifyWith::one_pass, 2},
};

class StepAllocations : public testing::TestWithParam<AllocationCase> {};
INSTANTIATE_TEST_SUITE_P(All, StepAllocations, testing::ValuesIn(kAllocationCases),
                         [](const auto& info) { return std::string(info.param.name); });

struct Counted {
  long steps = 0, drafted = 0;
  long allocations = 0;  // without the lists of the record
};

// Decodes `first` tokens, and then counts while it decodes `second` tokens after the same prompt.
Counted count_second(const AllocationCase& c, const char* numerics, int first, int second) {
  const auto backend = make_cpu_backend({2, numerics});
  const auto target = fixtures::load_tiny_on(backend, fixtures::random_llama(fixtures::tiny_shape(), 1));
  fixtures::Shape draft_shape = fixtures::tiny_shape();
  draft_shape.layers = 1;
  const auto draft = fixtures::load_tiny_on(backend, fixtures::random_llama(draft_shape, 1), target);

  Counted counted;
  bool counting = false;
  long before = 0;
  LoopOptions options;
  options.capacity = 256;
  options.batch = c.batch;
  options.verify = c.verify;
  options.devices = c.devices;
  // Rows are so dear that a budget drafts a part of what it could.
  options.costs = std::make_shared<const StepCosts>(StepCosts{{10, 10.5, 11, 12}, {.1}});
  options.on_emit = [&](int, const StepRecord& step, TokenSpan) {
    const long made = fixtures::allocations_so_far() - before;
    if (counting && step.emitted > 0) {
      ++counted.steps;
      counted.drafted += static_cast<long>(step.drafted.size());
      counted.allocations += made - lists_of(step);
    }
    before = fixtures::allocations_so_far();
  };
  DecodeLoop loop(target, draft, fixtures::choose(c.strategy, c.options), options);
  for (const int max_tokens : {first, second}) {
    fixtures::Decode decode{.target = target, .options = c.generation, .prompt = {1, 2, 3, 4, 5, 1, 2, 3}};
    decode.options["max_tokens"] = max_tokens;
    const std::vector<Request> requests(static_cast<std::size_t>(c.batch), decode.request());
    loop.run(requests);
    counting = true;
  }
  return counted;
}

TEST_P(StepAllocations, NoneOnceBuffersHaveGrown) {
  for (const char* numerics : {"f32", "avx512-bf16-emulated"}) {
    const Counted counted = count_second(GetParam(), numerics, 200, 200);
    EXPECT_GE(counted.steps, 20) << numerics;
    EXPECT_EQ(counted.drafted > 0, std::string_view(GetParam().strategy) != "autoregressive") << numerics;
    EXPECT_EQ(counted.allocations, 0) << numerics << ", in " << counted.steps << " steps";
  }
}

// No buffer grows with the text: the second text is longer than all before.
TEST(StepAllocation, NoneAsATextGrows) {
  for (const char* numerics : {"f32", "avx512-bf16-emulated"})
    EXPECT_EQ(count_second(kAllocationCases[0], numerics, 10, 240).allocations, 0) << numerics;
}

}  // namespace
}  // namespace speclab::decode_allocation_test

#endif  // __SANITIZE_ADDRESS__
