// What row details add to a record: the entropy of the target's row at every token, and p, q and rank of the
// drafted tokens that the rule did not test. Forwards over the text alone give the same numbers.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "core/base/error.h"
#include "core/decoding/loop/judged_step.h"
#include "tests/decoding/loop/loop_fixture.h"

namespace speclab::row_details_test {
namespace {

using namespace speclab::fixtures;

std::vector<float> logits_after(const ModelPtr& model, const std::vector<Token>& text) {
  std::vector<float> logits(static_cast<std::size_t>(model->config().vocab));
  model->open(256)->prefill(text, logits.data());
  return logits;
}

/// The probabilities of a row; at temperature 0 that of the best token is 1.
std::vector<double> softmax(const std::vector<float>& logits, double temperature) {
  const auto best = std::max_element(logits.begin(), logits.end());
  std::vector<double> out(logits.size());
  if (temperature == 0) {
    out[static_cast<std::size_t>(best - logits.begin())] = 1;
    return out;
  }
  double sum = 0;
  for (std::size_t x = 0; x < out.size(); ++x) {
    out[x] = std::exp((static_cast<double>(logits[x]) - static_cast<double>(*best)) / temperature);
    sum += out[x];
  }
  for (double& p : out) p /= sum;
  return out;
}

double entropy_in_double(const std::vector<double>& p) {
  double sum = 0;
  for (const double each : p) sum -= each > 0 ? each * std::log(each) : 0;
  return sum;
}

int tokens_before(const std::vector<float>& logits, Token token) {
  const float own = logits[static_cast<std::size_t>(token)];
  int count = 0;
  for (std::size_t x = 0; x < logits.size(); ++x)
    count += logits[x] > own || (logits[x] == own && static_cast<Token>(x) < token) ? 1 : 0;
  return count;
}

Decode details_of(const ModelPtr& target, const json& options) {
  Decode decode{.target = target, .draft = Model::with_layers(target, {0})};
  decode.options = options;
  decode.options["max_tokens"] = 40;
  decode.strategy = choose("speculative_sampling", {{"gamma", 5}});
  decode.loop.row_details = true;
  return decode;
}

TEST(RowDetails, AreThoseOfForwardsOverTheText) {
  const ModelPtr target = tiny_target();
  for (const double temperature : {0., .8}) {
    const Decode decode = details_of(target, {{"temperature", temperature}});
    const GenerationRecord record = decode.run();
    ASSERT_EQ(record.row_entropies.size(), record.tokens.size());
    std::vector<Token> text = decode.prompt;
    for (std::size_t i = 0; i < record.tokens.size(); ++i) {
      EXPECT_NEAR(record.row_entropies[i], entropy_in_double(softmax(logits_after(target, text), 1)), 1e-5)
          << "at temperature 1, whatever that of the text; token " << i;
      text.push_back(record.tokens[i]);
    }
    int untested = 0;
    std::size_t pending = 0;
    for (const StepRecord& step : record.steps) {
      text = decode.prompt;
      text.insert(text.end(), record.tokens.begin(),
                  record.tokens.begin() + static_cast<std::ptrdiff_t>(pending) + 1);
      for (const DraftedToken& token : step.drafted) {  // each token after the drafted ones before it
        const std::vector<float> row = logits_after(target, text);
        const auto x = static_cast<std::size_t>(token.id);
        EXPECT_NEAR(token.p, softmax(row, temperature)[x], 1e-5);
        EXPECT_NEAR(token.q, softmax(logits_after(decode.draft, text), temperature)[x], 1e-5);
        EXPECT_EQ(token.rank, tokens_before(row, token.id));
        untested += token.tested ? 0 : 1;
        text.push_back(token.id);
      }
      pending += static_cast<std::size_t>(step.emitted);
    }
    EXPECT_GT(untested, 10);
  }
}

// A second run, in which the same numbers come from the rows that on_judged shows.
TEST(RowDetails, LogitsProcessorsSeeTheTextBeforeTheStep) {
  const ModelPtr target = tiny_target();
  Decode decode = details_of(target, {{"temperature", 1}, {"repetition_penalty", 1.4}});
  const GenerationRecord record = decode.run();
  decode.loop.row_details = false;
  std::vector<float> entropies;
  std::vector<double> p;
  decode.loop.on_judged = [&](const JudgedStep& step) {
    for (int i = 0; i < step.emitted; ++i)
      entropies.push_back(static_cast<float>(
          step.rows(i == 0 ? 0 : step.accepted[static_cast<std::size_t>(i) - 1]).p->entropy()));
    const TokenTree& tree = step.draft.tree;
    for (int node = 1; node <= tree.drafted(); ++node)
      p.push_back(step.rows(tree.parent(node)).p->prob(tree.token(node)));
  };
  const GenerationRecord plain = decode.run();
  EXPECT_EQ(record.tokens, plain.tokens);
  EXPECT_TRUE(plain.row_entropies.empty());
  ASSERT_EQ(record.row_entropies.size(), entropies.size() + 1);
  for (std::size_t i = 0; i < entropies.size(); ++i) EXPECT_EQ(record.row_entropies[i + 1], entropies[i]);
  std::size_t place = 0;
  int untested = 0;
  for (std::size_t s = 0; s < record.steps.size(); ++s) {
    for (std::size_t i = 0; i < record.steps[s].drafted.size(); ++i) {
      const DraftedToken& token = record.steps[s].drafted[i];
      ASSERT_LT(place, p.size());
      EXPECT_EQ(token.p, p[place++]);
      if (token.tested) continue;
      ++untested;
      EXPECT_EQ(plain.steps[s].drafted[i].p, -1);
      EXPECT_EQ(plain.steps[s].drafted[i].rank, -1);
    }
  }
  EXPECT_EQ(place, p.size());
  EXPECT_GT(untested, 10);
}

TEST(RowDetails, EveryNodeOfATreeHasThem) {
  Decode decode = details_of(tiny_target(), {{"emit_at_most", 1}});
  decode.strategy = choose("tree_speculation", {{"widths", {3, 2}}});
  const GenerationRecord record = decode.run();
  EXPECT_EQ(record.row_entropies.size(), record.tokens.size());
  ASSERT_EQ(record.steps.front().drafted.size(), 9u);
  for (const StepRecord& step : record.steps) {
    std::vector<int> ranks_at_root;
    for (const DraftedToken& token : step.drafted) {
      EXPECT_TRUE(token.p == 0 || token.p == 1) << "temperature 0";
      EXPECT_EQ(token.p == 1, token.rank == 0);
      if (token.parent == 0) ranks_at_root.push_back(token.rank);
    }
    std::sort(ranks_at_root.begin(), ranks_at_root.end());
    EXPECT_EQ(std::unique(ranks_at_root.begin(), ranks_at_root.end()), ranks_at_root.end());
  }
}

TEST(RowDetails, ADeviceLoopIsRefused) {
  const Decode decode = details_of(tiny_target(), {{"device_loop", "auto"}});
  EXPECT_THROW(decode.run(), Error);
}

}  // namespace
}  // namespace speclab::row_details_test
