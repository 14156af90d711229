// Strategies on toys: over many texts, the number of steps has the expectation that the tables give.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "core/decoding/rules/accept.h"
#include "core/theory/processes/prompt_process.h"
#include "tests/theory/toys/toy_pair.h"

namespace speclab::toys_test {
namespace {

using namespace speclab::fixtures;
using theory::ChainCounts;
using theory::ToyChain;

constexpr int kToyTexts = 400, kToyTokens = 60;  // each text has one token more, which comes from the prefill

const SamplingParams kToyPlain{.temperature = 1, .top_k = 0, .top_p = 1};

/// Decodes texts that differ in their coins and compares the mean of a count with its expectation.
void expect_toy_counts(const std::function<ChainCounts(const Coins&)>& decode, const ChainCounts& expected,
                       bool has_tests) {
  std::vector<ChainCounts> texts;
  for (int i = 0; i < kToyTexts; ++i) texts.push_back(decode(Coins(5, static_cast<std::uint64_t>(i))));
  const auto compare = [&](const char* name, double ChainCounts::* field) {
    double sum = 0, squares = 0;
    for (const ChainCounts& counts : texts) sum += counts.*field, squares += counts.*field * counts.*field;
    const double mean = sum / kToyTexts, variance = std::max(0.0, squares / kToyTexts - mean * mean);
    EXPECT_NEAR(mean, expected.*field, 4.5 * std::sqrt(variance / kToyTexts) + 1e-9) << name;
  };
  compare("steps", &ChainCounts::steps);
  compare("emitted", &ChainCounts::emitted);
  compare("drafted", &ChainCounts::drafted);
  compare("accepted", &ChainCounts::accepted);
  if (has_tests) compare("tests", &ChainCounts::tests);
}

struct ToyRun {
  const char* strategy;
  json options;     // of the strategy
  json generation;  // of generation
  toy::MarkovRows p, q;
  int gamma;
  const char* rule;
};

void expect_as_the_closed_form(const ToyPair& pair, const ToyRun& run, const SamplingParams& sampling) {
  SCOPED_TRACE(testing::Message() << run.strategy << " " << run.options.dump() << " "
                                  << run.generation.dump());
  json options = {{"max_tokens", kToyTokens + 1}, {"temperature", sampling.temperature}};
  options.update(run.generation);
  Decode decode{.target = pair.target,
                .draft = pair.draft,
                .strategy = choose(run.strategy, run.options),
                .options = options,
                .prompt = {2, 0, 1}};
  DecodeLoop loop(decode.target, decode.draft, decode.strategy, {.capacity = 128});
  Request request = decode.request();
  const ToyChain chain(run.p, run.q, run.gamma, *find_acceptance_rule(run.rule).chain_law);
  const ChainCounts expected = chain.of_texts(pair.first(sampling, 1), kToyTokens);
  expect_toy_counts(
      [&](const Coins& coins) {
        request.coins = coins;
        return counts_of(loop.run(request));
      },
      expected, std::string(run.rule) != "block");
}

TEST(Toys, ChainsOfADraftModel) {
  const ToyPair pair({.vocab = 8, .order = 1, .seed = 3}, .4);
  const toy::MarkovRows p = pair.p(kToyPlain), q = pair.q(kToyPlain);
  for (const int gamma : {1, 3, 5}) {
    for (const char* rule : {"rejection", "sample_match", "block"})
      expect_as_the_closed_form(
          pair, {"speculative_sampling", {{"gamma", gamma}}, {{"rule", rule}}, p, q, gamma, rule}, kToyPlain);
    expect_as_the_closed_form(
        pair, {"speculative_sampling", {{"gamma", gamma}}, {{"coins", "gumbel"}}, p, q, gamma, "coupled"},
        kToyPlain);
  }
  const SamplingParams cool{.temperature = .6, .top_k = 0, .top_p = 1},
      hot{.temperature = 2, .top_k = 0, .top_p = 1};
  expect_as_the_closed_form(pair,
                            {"speculative_sampling",
                             {{"gamma", 3}, {"draft_temperature", 2}},
                             json::object(),
                             pair.p(cool),
                             pair.q(hot),
                             3,
                             "rejection"},
                            cool);
}

TEST(Toys, ChainsOfHigherOrder) {
  const ToyPair pair({.vocab = 4, .order = 2, .seed = 6, .sharpness = 3}, .3);
  for (const char* rule : {"rejection", "block"})
    expect_as_the_closed_form(pair,
                              {"speculative_sampling",
                               {{"gamma", 4}},
                               {{"rule", rule}},
                               pair.p(kToyPlain),
                               pair.q(kToyPlain),
                               4,
                               rule},
                              kToyPlain);
}

// A toy has no layers and no cache, so a target that drafts for itself has its own rows at the temperature of
// the draft.
TEST(Toys, TheTargetDraftsForItselfAtAnotherTemperature) {
  const ToyPair pair({.vocab = 8, .order = 1, .seed = 9}, .4);
  const SamplingParams sharper{.temperature = .5, .top_k = 0, .top_p = 1};
  const toy::MarkovRows p = pair.p(kToyPlain), q = pair.p(sharper);
  expect_as_the_closed_form(pair,
                            {"self_speculation",
                             {{"draft_by", "sparse_cache"}, {"gamma", 3}, {"draft_temperature", .5}},
                             json::object(),
                             p,
                             q,
                             3,
                             "rejection"},
                            kToyPlain);
  expect_as_the_closed_form(pair,
                            {"hierarchical_speculation",
                             {{"gamma", 3}, {"inner_gamma", 2}, {"draft_temperature", .5}},
                             json::object(),
                             p,
                             q,
                             3,
                             "rejection"},
                            kToyPlain);
}

TEST(Toys, AutoregressiveDecodingHasOneTokenAStep) {
  const ToyPair pair({.vocab = 8, .order = 1, .seed = 3}, .4);
  expect_as_the_closed_form(pair,
                            {"autoregressive", json::object(), json::object(), pair.p(kToyPlain),
                             pair.q(kToyPlain), 0, "rejection"},
                            kToyPlain);
}

TEST(Toys, SimulatedAcceptanceFollowsItsLaw) {
  const ToyPair pair({.vocab = 8, .order = 1, .seed = 3}, .4);
  const auto check = [&](json options, const theory::PromptProcess& process) {
    options["gamma"] = 4;
    SCOPED_TRACE(options.dump());
    const theory::RoundCounts law = process.of_text(4, kToyTokens);
    double sum = 0, squares = 0;
    for (int i = 0; i < kToyTexts; ++i) {
      Decode decode{.target = pair.target,
                    .options = {{"max_tokens", kToyTokens + 1}, {"temperature", 1}, {"coins", "gumbel"}},
                    .prompt = {2, 0, 1},
                    .coins = Coins(5, static_cast<std::uint64_t>(i))};
      decode.reference = decode.run().tokens;
      decode.strategy = choose("simulated", options);
      const auto steps = static_cast<double>(decode.run().steps.size());
      sum += steps, squares += steps * steps;
    }
    const double mean = sum / kToyTexts, variance = std::max(0.0, squares / kToyTexts - mean * mean);
    EXPECT_NEAR(mean, law.rounds, 4.5 * std::sqrt(variance / kToyTexts) + 1e-9);
  };
  check({{"alpha", .7}}, theory::iid_process(.7));
  check({{"alpha_at", {.9, .5}}}, theory::positional_process({.9, .5}));
  check({{"law", "minimum_variance"}, {"mean_accepted", 2.3}}, theory::minimum_variance_process(2.3));
  check({{"law", "histogram"}, {"shares", {1, 0, 2, 1, 3}}},
        theory::lengths_process(std::vector<double>{1, 0, 2, 1, 3}));
  check({{"law", "switching"}, {"alpha", .9}, {"hard_alpha", .2}, {"stay", .95}},
        theory::switching_process({.9, .2}, .95));
  check({{"law", "random_effect"}, {"alpha", .7}, {"correlation", .3}}, theory::PromptProcess::beta(.7, .3));
}

}  // namespace
}  // namespace speclab::toys_test
