#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <random>

#include "core/decoding/strategy.h"
#include "tests/decoding/loop/loop_fixture.h"

// The best tokens of the rows of a step, with and without maxima that a forward has noted.

namespace speclab::step_rows_test {
namespace {

using namespace speclab::fixtures;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(StepRows, TheBestTokensOfARow) {
  const int vocab = 300;
  std::vector<float> logits(static_cast<std::size_t>(vocab) * 2, 1);
  logits[300 + 17] = 4;
  logits[300 + 3] = 4;
  logits[300 + 290] = 9;
  const std::vector<std::int32_t> row_of{-1, 1, 0};
  const std::vector<float> maxima{1, 1, 1, 1, 1, 4, 1, 1, 1, 9};
  for (const bool noted : {false, true}) {
    StepRows rows{logits.data(), row_of, vocab};
    if (noted) rows.maxima = maxima;
    std::vector<Token> top;
    rows.top(1, 4, top);
    EXPECT_THAT(top, ElementsAre(290, 3, 17, 0));
    rows.top(2, 0, top);
    EXPECT_THAT(top, IsEmpty());
    rows.top(2, 1000, top);
    EXPECT_EQ(top.size(), 300u);
    EXPECT_EQ(rows.best(1), 290);
    EXPECT_EQ(rows.best(2), 0);
  }
}

TEST(StepRows, OfARowWithNaNSomeTokens) {
  const int vocab = 130;
  std::vector<float> logits(vocab, 1), none(3, std::numeric_limits<float>::quiet_NaN());
  logits[5] = std::numeric_limits<float>::quiet_NaN();
  const std::vector<std::int32_t> row_of{0};
  for (const std::vector<float>& maxima : {std::vector<float>(), std::vector<float>{1, 1, 1}, none}) {
    const StepRows rows{logits.data(), row_of, vocab, maxima};
    std::vector<Token> top;
    rows.top(0, 2, top);
    EXPECT_LE(top.size(), 2u);
    EXPECT_GE(rows.best(0), 0);
    EXPECT_LT(rows.best(0), vocab);
  }
}

// Compares forwards of 1 to 80 rows with a plain sort, on 1 to 3 threads and for vocabularies that are no
// multiple of a block. Logits have few levels, so that many are equal.
TEST(StepRows, TheBestOfAForwardAreThoseOfASort) {
  std::mt19937 random(1);
  for (const int vocab : {1, 63, 64, 65, 200, 709}) {
    std::vector<float> table(static_cast<std::size_t>(vocab) * static_cast<std::size_t>(vocab));
    for (float& logit : table) logit = static_cast<float>(random() % 40) - 30;
    TempDir dir;
    write_huggingface(dir.path(), markov_table(vocab, table));
    for (const int threads : {1, 2, 3}) {
      const auto model = Model::load(Checkpoint::open(dir.path()), make_cpu_backend({threads, "f32"}), {});
      const auto session = model->open(100);
      for (int n = 1; n <= 80; n += vocab > 200 ? 13 : 1) {
        std::vector<Token> tokens(static_cast<std::size_t>(n));
        for (Token& token : tokens) token = static_cast<Token>(random() % static_cast<unsigned>(vocab));
        std::vector<std::int32_t> parents(tokens.size(), -1), nodes(tokens.size());
        std::iota(nodes.begin(), nodes.end(), 0);
        std::vector<float> logits(tokens.size() * static_cast<std::size_t>(vocab)), maxima;
        const Feed feed{session.get(), tokens, parents, nodes, logits.data(), {}, &maxima};
        model->forward({&feed, 1});
        ASSERT_EQ(maxima.size(), tokens.size() * static_cast<std::size_t>(maxima_of(vocab)));
        const StepRows rows{logits.data(), nodes, vocab, maxima};
        for (const std::int32_t node : nodes) {
          const float* row = table.data() + tokens[static_cast<std::size_t>(node)] * vocab;
          std::vector<Token> sorted(static_cast<std::size_t>(vocab)), top;
          std::iota(sorted.begin(), sorted.end(), 0);
          std::stable_sort(sorted.begin(), sorted.end(), [&](Token a, Token b) { return row[a] > row[b]; });
          const int k = 1 + static_cast<int>(random() % 20);
          sorted.resize(static_cast<std::size_t>(std::min(k, vocab)));
          rows.top(node, k, top);
          ASSERT_EQ(top, sorted) << vocab << " tokens, " << threads << " threads, row " << node << " of "
                                 << n;
          ASSERT_EQ(rows.best(node), sorted[0]) << vocab << " tokens, row " << node << " of " << n;
        }
      }
    }
  }
}

/// Drafts nothing and counts the maxima that it gets.
template <bool kReads>
struct Watcher final : Strategy {
  static inline std::size_t seen = 0, steps = 0;
  Reads reads() const override { return {.rows = kReads}; }
  void begin(const Sequence&) override { seen = steps = 0; }
  void draft(std::span<const Sequence* const>, std::span<Draft* const>) override {}
  void observe(std::span<const Sequence* const>, std::span<const Outcome> outcomes) override {
    for (const Outcome& outcome : outcomes) seen += outcome.rows.maxima.size(), ++steps;
  }
};

TEST(StepRows, MaximaAreForStrategiesThatReadRows) {
  const StrategyEntry reads = local_entry([](const void*, const Resources&) -> std::unique_ptr<Strategy> {
    return std::make_unique<Watcher<true>>();
  });
  const StrategyEntry passes = local_entry([](const void*, const Resources&) -> std::unique_ptr<Strategy> {
    return std::make_unique<Watcher<false>>();
  });
  Decode decode{
      .target = random_markov(130, 1), .strategy = StrategyChoice(reads), .options = {{"max_tokens", 9}}};
  decode.run();
  EXPECT_EQ(Watcher<true>::steps, 8u);
  EXPECT_EQ(Watcher<true>::seen, 8u * 3);
  decode.loop.devices = 2;  // each device has a part of the rows
  decode.run();
  EXPECT_EQ(Watcher<true>::seen, 0u);
  decode.loop.devices = 1;
  decode.strategy = StrategyChoice(passes);
  decode.run();
  EXPECT_EQ(Watcher<false>::steps, 8u);
  EXPECT_EQ(Watcher<false>::seen, 0u);
}

}  // namespace
}  // namespace speclab::step_rows_test
