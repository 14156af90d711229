// Closed forms of toys against the engine: every outcome of the coins of real decoding on tiny chains, and
// against the formulas for rows that are all equal.
#include "core/theory/toys/toy_chain.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/decoding/rules/accept.h"
#include "core/theory/audit/enumerate.h"
#include "core/theory/chain.h"
#include "core/theory/verifier_bounds.h"
#include "tests/theory/toys/toy_pair.h"

namespace speclab::theory::toy_chain_test {
namespace {

using fixtures::ToyPair;

constexpr ChainLaw kAllLaws[] = {ChainLaw::rejection, ChainLaw::sample_match, ChainLaw::coupled,
                                 ChainLaw::block};

void expect_equal_counts(const ChainCounts& found, const ChainCounts& expected, double tolerance) {
  EXPECT_NEAR(found.steps, expected.steps, tolerance);
  EXPECT_NEAR(found.emitted, expected.emitted, tolerance);
  EXPECT_NEAR(found.drafted, expected.drafted, tolerance);
  EXPECT_NEAR(found.accepted, expected.accepted, tolerance);
  EXPECT_NEAR(found.tests, expected.tests, tolerance);
}

/// Expected counts of a text of 1 + `tokens` tokens, by enumeration of all coins of the decode loop.
ChainCounts enumerated(const ToyPair& pair, const std::string& rule, int gamma, int tokens,
                       const SamplingParams& sampling, Token last) {
  fixtures::Decode decode{
      .target = pair.target,
      .draft = pair.draft,
      .strategy = fixtures::choose("speculative_sampling", {{"gamma", gamma}}),
      .options = {{"max_tokens", tokens + 1},
                  {"rule", rule},
                  {"temperature", sampling.temperature},
                  {"top_k", sampling.top_k},
                  {"top_p", sampling.top_p}},
      .prompt = {last},
      .loop = {.capacity = 32},
  };
  DecodeLoop loop(decode.target, decode.draft, decode.strategy, decode.loop);
  Request request = decode.request();
  ChainCounts sum, counts;
  enumerate::walk(
      [&](const Coins& coins) {
        request.coins = coins;
        counts = fixtures::counts_of(loop.run(request));
      },
      [&](double probability) {
        sum.steps += probability * counts.steps;
        sum.emitted += probability * counts.emitted;
        sum.drafted += probability * counts.drafted;
        sum.tests += probability * counts.tests;
        sum.accepted += probability * counts.accepted;
      });
  return sum;
}

TEST(ToyChain, CountsOfTextsByEnumerationOfTheEngine) {
  const ToyPair one({.vocab = 3, .order = 1, .seed = 3}, .6), two({.vocab = 2, .order = 2, .seed = 8}, .5);
  const SamplingParams plain{.temperature = 1, .top_k = 0, .top_p = 1},
      cut{.temperature = .7, .top_k = 2, .top_p = .95};
  for (const ToyPair* pair : {&one, &two}) {
    for (const SamplingParams& sampling : {plain, cut}) {
      for (const char* rule : {"rejection", "sample_match", "block"}) {
        for (const int gamma : {1, 2}) {
          SCOPED_TRACE(testing::Message()
                       << rule << ", gamma " << gamma << ", order " << pair->target_table.order
                       << ", temperature " << sampling.temperature);
          const ToyChain chain(pair->p(sampling), pair->q(sampling), gamma,
                               *find_acceptance_rule(rule).chain_law);
          const ChainCounts found = chain.of_texts(pair->first(sampling, 1), 3);
          ChainCounts expected = enumerated(*pair, rule, gamma, 3, sampling, 1);
          if (std::string(rule) == "block") expected.tests = 0;  // it judges whole paths
          expect_equal_counts(found, expected, 1e-9);
          EXPECT_NEAR(found.emitted, 3, 1e-9);
        }
      }
    }
  }
}

TEST(ToyChain, GreedyTextsAreCountedExactly) {
  const ToyPair pair({.vocab = 8, .order = 1, .seed = 2}, .7);
  const SamplingParams greedy{.temperature = 0, .top_k = 0, .top_p = 1};
  int accepted = 0, rejected = 0;
  for (const char* rule : {"rejection", "block"}) {
    for (Token last = 0; last < 8; ++last) {
      const ToyChain chain(pair.p(greedy), pair.q(greedy), 3, *find_acceptance_rule(rule).chain_law);
      const ChainCounts found = chain.of_texts(pair.first(greedy, last), 20);
      fixtures::Decode decode{.target = pair.target,
                              .draft = pair.draft,
                              .strategy = fixtures::choose("speculative_sampling", {{"gamma", 3}}),
                              .options = {{"max_tokens", 21}, {"temperature", 0}, {"rule", rule}},
                              .prompt = {last}};
      const ChainCounts counts = fixtures::counts_of(decode.run());
      EXPECT_DOUBLE_EQ(found.steps, counts.steps) << rule << " " << last;
      EXPECT_DOUBLE_EQ(found.accepted, counts.accepted) << rule << " " << last;
      accepted += static_cast<int>(counts.accepted);
      rejected += static_cast<int>(counts.drafted - counts.accepted);
    }
  }
  EXPECT_GT(accepted, 0);
  EXPECT_GT(rejected, 0);
}

toy::MarkovRows equal_rows(int order, const std::vector<double>& row) {
  toy::MarkovRows rows{static_cast<int>(row.size()), order, {}};
  const int contexts = toy::count_contexts(rows.vocab, order);
  for (int i = 0; i < contexts; ++i) rows.probability.insert(rows.probability.end(), row.begin(), row.end());
  return rows;
}

TEST(ToyChain, EqualRowsGiveTheIidFormulas) {
  const std::vector<double> p = {.55, .25, .15, .05}, q = {.4, .35, .05, .2};
  for (const int order : {1, 2}) {
    const toy::MarkovRows target = equal_rows(order, p), draft = equal_rows(order, q);
    for (const int gamma : {0, 1, 3}) {
      const auto of = [&](ChainLaw rule) { return ToyChain(target, draft, gamma, rule).long_run().tau(); };
      EXPECT_NEAR(of(ChainLaw::rejection), expected_tokens(row_overlap(p, q), gamma), 1e-12);
      EXPECT_NEAR(of(ChainLaw::coupled), expected_tokens(coupling_acceptance(p, q), gamma), 1e-12);
      const double match = .55 * .4 + .25 * .35 + .15 * .05 + .05 * .2;
      EXPECT_NEAR(of(ChainLaw::sample_match), expected_tokens(match, gamma), 1e-12);
      EXPECT_NEAR(of(ChainLaw::block), best_chain_tokens(p, q, gamma), 1e-12);
    }
    EXPECT_NEAR(stationary_alpha(target, draft, ChainLaw::rejection), .75, 1e-12);
  }
}

/// The same chain with its contexts as symbols: order 1.
toy::MarkovRows expanded(const toy::MarkovRows& rows) {
  const auto contexts = static_cast<std::size_t>(rows.contexts());
  toy::MarkovRows out{rows.contexts(), 1, std::vector<double>(contexts * contexts)};
  for (int context = 0; context < rows.contexts(); ++context) {
    for (int symbol = 0; symbol < rows.vocab; ++symbol)
      out.probability[static_cast<std::size_t>(context) * contexts +
                      static_cast<std::size_t>(rows.next(context, symbol))] =
          rows.row(context)[static_cast<std::size_t>(symbol)];
  }
  return out;
}

TEST(ToyChain, ContextsAreTheSymbolsOfAChainOfOrderOne) {
  const toy::MarkovRows p = toy::softmax_rows(toy::make_markov_table({.vocab = 3, .order = 2, .seed = 5})),
                        q = toy::softmax_rows(toy::make_markov_table(
                            {.vocab = 3, .order = 2, .seed = 5, .memory = 1, .noise = .2}));
  const std::vector<double> first(9, 1);  // nine texts
  for (const ChainLaw rule : kAllLaws) {
    const ToyChain chain(p, q, 3, rule), same(expanded(p), expanded(q), 3, rule);
    expect_equal_counts(chain.of_texts(first, 17), same.of_texts(first, 17), 1e-10);
    EXPECT_NEAR(chain.long_run().tau(), same.long_run().tau(), 1e-10);
  }
  EXPECT_NEAR(stationary_alpha(p, q, ChainLaw::rejection),
              stationary_alpha(expanded(p), expanded(q), ChainLaw::rejection), 1e-12);
  EXPECT_NEAR(entropy_rate(p), entropy_rate(expanded(p)), 1e-12);
}

TEST(ToyChain, LongTextsHaveTheCountsOfTheLongRun) {
  const toy::MarkovRows p = toy::softmax_rows(toy::make_markov_table({.vocab = 6, .seed = 2})),
                        q = toy::softmax_rows(toy::make_markov_table({.vocab = 6, .seed = 2, .noise = .5}));
  std::vector<double> first(6);
  first[2] = 1;
  for (const ChainLaw rule : kAllLaws) {
    const ToyChain chain(p, q, 4, rule);
    const ChainCounts shorter = chain.of_texts(first, 500), longer = chain.of_texts(first, 700),
                      step = chain.long_run();
    EXPECT_NEAR(200 / (longer.steps - shorter.steps), step.tau(), 1e-8);
    EXPECT_NEAR((longer.accepted - shorter.accepted) / (longer.steps - shorter.steps), step.accepted, 1e-8);
    EXPECT_NEAR(step.tau(), 1 + step.accepted, 1e-10);
    EXPECT_NEAR(step.steps, 1, 1e-12);
  }
  const auto tau_of = [&](ChainLaw rule) { return ToyChain(p, q, 4, rule).long_run().tau(); };
  EXPECT_GT(tau_of(ChainLaw::block), tau_of(ChainLaw::rejection));
  EXPECT_GT(tau_of(ChainLaw::rejection), tau_of(ChainLaw::coupled));
  EXPECT_GT(tau_of(ChainLaw::coupled), tau_of(ChainLaw::sample_match));
  const ChainCounts step = ToyChain(p, q, 4, ChainLaw::rejection).long_run();
  EXPECT_GT(std::abs(step.tau() - expected_tokens(step.alpha(), 4)), 1e-4)
      << "tests of a chain are not independent, so Eq. 1 is only an approximation";
  const ChainCounts block = ToyChain(p, q, 4, ChainLaw::block).long_run();
  EXPECT_GT(block.accepted, 0);
  EXPECT_TRUE(std::isnan(block.alpha())) << "it accepts tokens, but tests none alone";
}

TEST(ToyChain, AlphaIsLinearInTheNoise) {
  const toy::MarkovRows p = toy::softmax_rows(toy::make_markov_table({.vocab = 7, .seed = 1})),
                        r = toy::softmax_rows(toy::make_markov_table({.vocab = 7, .seed = 2}));
  const double apart = 1 - stationary_alpha(p, r, ChainLaw::rejection);
  for (const double noise : {0., .25, 1.}) {
    toy::MarkovRows q = p;
    for (std::size_t i = 0; i < q.probability.size(); ++i)
      q.probability[i] = (1 - noise) * p.probability[i] + noise * r.probability[i];
    EXPECT_NEAR(stationary_alpha(p, q, ChainLaw::rejection), 1 - noise * apart, 1e-12);
  }
  EXPECT_GT(apart, .2);
}

TEST(ToyChain, TheLawOfTheText) {
  const toy::MarkovRows rows = toy::softmax_rows(toy::make_markov_table({.vocab = 3, .order = 2, .seed = 6}));
  const auto law = text_law(rows, 4, 3);
  EXPECT_EQ(law.size(), 27u);
  double sum = 0;
  std::vector<double> last(9);
  for (const auto& [text, mass] : law) {
    sum += mass;
    last[static_cast<std::size_t>(text.back())] += mass;
  }
  EXPECT_NEAR(sum, 1, 1e-12);
  const int a = rows.next(4, 2), b = rows.next(a, 0), c = rows.next(b, 1);
  EXPECT_NEAR(law.at({a, b, c}), rows.row(4)[2] * rows.row(a)[0] * rows.row(b)[1], 1e-15);
  std::vector<double> before(9);
  before[4] = 1;
  const std::vector<double> after = context_law(rows, before, 3);
  for (std::size_t context = 0; context < 9; ++context) EXPECT_NEAR(after[context], last[context], 1e-14);
  const std::vector<double> stationary = toy::stationary_contexts(rows),
                            next = context_law(rows, stationary, 1);
  for (std::size_t context = 0; context < 9; ++context)
    EXPECT_NEAR(next[context], stationary[context], 1e-12);
  EXPECT_NEAR(entropy_rate(equal_rows(1, {.5, .5})), std::log(2), 1e-12);
}

TEST(ToyChain, BadInputThrows) {
  const toy::MarkovRows p = equal_rows(1, {.5, .5}), three = equal_rows(1, {.2, .3, .5});
  EXPECT_THROW(ToyChain(p, three, 2, ChainLaw::rejection), Error);
  EXPECT_THROW(ToyChain(p, p, -1, ChainLaw::rejection), Error);
  EXPECT_THROW(ToyChain(p, {2, 1, {.5, .5, .5, .6}}, 2, ChainLaw::rejection), Error);
  EXPECT_THROW(ToyChain(p, p, 30, ChainLaw::block), Error) << "2^31 paths";
  EXPECT_THROW(stationary_alpha(p, p, ChainLaw::block), Error);
  EXPECT_THROW(ToyChain(p, p, 2, ChainLaw::rejection).of_texts(std::vector<double>(3), 2), Error);
  EXPECT_THROW(text_law(p, 2, 1), Error);
  EXPECT_THROW(text_law(p, 0, 40), Error);
}

}  // namespace
}  // namespace speclab::theory::toy_chain_test
