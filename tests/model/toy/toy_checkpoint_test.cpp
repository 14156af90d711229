// Toys as models: the logits of a model are the table, for every order, and drafts are made from the target's
// table as their description says.
#include "core/model/toy/toy_checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <utility>
#include <vector>

#include "core/backend/backend.h"
#include "core/base/error.h"
#include "core/model/net/model.h"
#include "tests/model/files/model_files.h"

namespace speclab::toy::toy_checkpoint_test {
namespace {

/// All logits of a model without layers, [tokens][tokens].
std::vector<float> logits_of(const Model& model) {
  const int tokens = model.config().vocab;
  std::vector<Token> all;
  for (Token token = 0; token < tokens; ++token) all.push_back(token);
  std::vector<float> states(static_cast<std::size_t>(tokens) *
                            static_cast<std::size_t>(model.config().hidden)),
      logits(static_cast<std::size_t>(tokens) * static_cast<std::size_t>(tokens));
  model.embed(all, states.data());
  model.head(states.data(), tokens, FinalNorm::kApply, logits.data());
  return logits;
}

TEST(ToyCheckpoint, TheLogitsOfTheModelAreTheTable) {
  const auto backend = make_cpu_backend({1, "f32"});
  for (const int order : {1, 2, 3}) {
    const MarkovTable table = make_markov_table({.vocab = 5, .order = order, .seed = 7, .sharpness = 3});
    const auto model = Model::load(open_toy(table, "toy"), backend, {});
    const MarkovRows shape = softmax_rows(table);
    const int tokens = shape.contexts();
    EXPECT_EQ(model->config().vocab, tokens);
    EXPECT_EQ(model->name(), "toy");
    const std::vector<float> logits = logits_of(*model);
    for (int context = 0; context < tokens; ++context) {
      std::map<int, float> expected;
      for (int symbol = 0; symbol < 5; ++symbol)
        expected[shape.next(context, symbol)] = table.logits[static_cast<std::size_t>(context * 5 + symbol)];
      ASSERT_EQ(expected.size(), 5u);
      for (int next = 0; next < tokens; ++next) {
        const float found = logits[static_cast<std::size_t>(context * tokens + next)];
        if (expected.contains(next)) {
          ASSERT_EQ(found, expected[next]) << "order " << order << ", context " << context;
        } else {
          ASSERT_LT(found, -1e8f) << "order " << order << ", context " << context;
        }
      }
    }
  }
}

TEST(ToyCheckpoint, ContextsAreDigits) {
  const MarkovRows rows{3, 2, std::vector<double>(27, 1. / 3)};
  EXPECT_EQ(rows.contexts(), 9);
  EXPECT_EQ(rows.next(1 * 3 + 2, 0), 2 * 3 + 0) << "the oldest symbol leaves";
  EXPECT_EQ(rows.next(2 * 3 + 0, 1), 0 * 3 + 1);
}

TEST(ToyCheckpoint, AWrittenToyIsTheOneThatIsOpened) {
  const fixtures::TempDir dir, temporary;
  ::setenv("TMPDIR", temporary.path().c_str(), 1);
  const MarkovTable table = make_markov_table({.vocab = 4, .order = 2, .seed = 3});
  write_toy(dir.path() / "toy", table, "a toy");
  const Checkpoint written = Checkpoint::open(dir.path() / "toy"), opened = open_toy(table, "a toy");
  EXPECT_EQ(written.sha256(), opened.sha256());
  EXPECT_EQ(written.config().name, "a toy");
  EXPECT_FALSE(opened.tokenizer());
  EXPECT_TRUE(std::filesystem::is_empty(temporary.path())) << "no file is left behind";
  opened.require_unchanged();
  const Checkpoint other = open_toy(make_markov_table({.vocab = 4, .order = 2, .seed = 4}), "a toy");
  EXPECT_NE(other.sha256(), opened.sha256());
  ::unsetenv("TMPDIR");
}

TEST(ToyTable, IsTheSameOnEveryMachine) {
  // Computed with another implementation of the generator (mt19937-64).
  const std::vector<float> logits = random_logits(1, 3, 1, 2);
  EXPECT_FLOAT_EQ(logits[0], -1.4644934239f);
  EXPECT_FLOAT_EQ(logits[1], -1.4543718546f);
  EXPECT_FLOAT_EQ(logits[2], -0.19514038462f);
}

TEST(ToyTable, SharpnessZeroIsUniform) {
  for (const double p : softmax_rows(make_markov_table({.vocab = 8, .sharpness = 0})).probability)
    EXPECT_DOUBLE_EQ(p, 1. / 8);
  const MarkovRows sharp = softmax_rows(make_markov_table({.vocab = 8, .sharpness = 20}));
  double surest = 0;
  for (const double p : sharp.probability) surest = std::max(surest, p);
  EXPECT_GT(surest, .99);
}

TEST(ToyTable, NoiseMixesAnotherTable) {
  const MarkovSpec spec{.vocab = 6, .seed = 5, .noise = .3, .noise_seed = 9};
  const MarkovRows mixed = softmax_rows(make_markov_table(spec)),
                   own = softmax_rows(make_markov_table({.vocab = 6, .seed = 5})),
                   other = softmax_rows(make_markov_table({.vocab = 6, .seed = 9}));
  double difference = 0;
  for (std::size_t i = 0; i < mixed.probability.size(); ++i) {
    // Logits are rounded to 8 bits, so probabilities are off by up to about one part in a hundred.
    EXPECT_NEAR(mixed.probability[i], .7 * own.probability[i] + .3 * other.probability[i],
                .03 * mixed.probability[i]);
    difference = std::max(difference, std::abs(mixed.probability[i] - own.probability[i]));
  }
  EXPECT_GT(difference, .02);
  EXPECT_EQ(make_markov_table({.vocab = 6, .seed = 5, .noise = .3}).logits,
            make_markov_table({.vocab = 6, .seed = 5, .noise = .3, .noise_seed = 6}).logits);
}

TEST(ToyTable, AShorterMemoryIsTheNgramModelOfItsText) {
  const MarkovRows whole =
                       softmax_rows(make_markov_table({.vocab = 3, .order = 2, .seed = 4, .sharpness = 3})),
                   shorter = softmax_rows(
                       make_markov_table({.vocab = 3, .order = 2, .seed = 4, .sharpness = 3, .memory = 1}));
  for (int context = 0; context < 9; ++context) {
    for (int symbol = 0; symbol < 3; ++symbol)
      EXPECT_EQ(shorter.row(context)[static_cast<std::size_t>(symbol)],
                shorter.row(context % 3)[static_cast<std::size_t>(symbol)]);
  }
  std::map<std::pair<int, int>, double> pairs;
  std::map<int, double> singles;
  const std::vector<Token> text = sample_text(whole, 300'000, 1);
  for (std::size_t i = 1; i < text.size(); ++i) {
    ++pairs[{text[i - 1] % 3, text[i] % 3}];
    ++singles[text[i - 1] % 3];
  }
  double differs = 0;
  for (const auto& [pair, count] : pairs) {
    const double found = shorter.row(pair.first)[static_cast<std::size_t>(pair.second)];
    EXPECT_NEAR(found, count / singles[pair.first], .01) << pair.first << " " << pair.second;
    differs =
        std::max(differs, std::abs(found - whole.row(pair.first)[static_cast<std::size_t>(pair.second)]));
  }
  EXPECT_GT(differs, .05) << "the contexts differ, so the mean is not one of them";
}

TEST(ToyTable, SampledTextsFollowTheChain) {
  const MarkovRows rows = softmax_rows(make_markov_table({.vocab = 3, .order = 2, .seed = 2}));
  std::vector<double> seen(9);
  const std::vector<Token> text = sample_text(rows, 200'000, 5);
  for (std::size_t i = 1; i < text.size(); ++i) {
    ASSERT_EQ(text[i] / 3, text[i - 1] % 3) << "a token continues the context before it";
    ++seen[static_cast<std::size_t>(text[i])];
  }
  const std::vector<double> law = stationary_contexts(rows);
  for (std::size_t context = 0; context < 9; ++context)
    EXPECT_NEAR(seen[context] / 200'000, law[context], .006);
  EXPECT_EQ(sample_text(rows, 20, 5), std::vector<Token>(text.begin(), text.begin() + 20));
}

TEST(ToyTable, DescriptionsAndErrors) {
  EXPECT_EQ(describe({}), "markov vocab=16 order=1 seed=1 sharpness=2");
  EXPECT_EQ(describe({.noise = .25}), "markov vocab=16 order=1 seed=1 sharpness=2 noise=0.25");
  EXPECT_THROW(make_markov_table({.vocab = 17, .order = 3}), Error) << "4913 contexts";
  EXPECT_NO_THROW(count_contexts(16, 3));
  EXPECT_THROW(count_contexts(16, 4), Error);
  EXPECT_THROW(make_markov_table({.vocab = 3, .order = 1, .memory = 2}), Error);
  EXPECT_THROW(require_rows("rows", {2, 1, {.5, .5, .4, .5}}), Error);
  EXPECT_THROW(require_rows("rows", {2, 1, {.5, .5}}), Error);
}

}  // namespace
}  // namespace speclab::toy::toy_checkpoint_test
