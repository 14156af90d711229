// Standardising and sampling by kernels, on a simulated GPU: the bits of Distribution and Coins.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "core/backend/cuda/sampling_kernel.h"
#include "core/base/error.h"
#include "core/spec/distribution.h"
#include "tests/spec/device_step.h"

namespace speclab {
namespace {

using cuda::DeviceArray;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::vector<float> random_logits(int count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, 5);
  std::vector<float> logits(static_cast<std::size_t>(count));
  for (float& z : logits) {
    z = normal(random);
    if (random() % 8 == 0) z = 0;
    if (random() % 8 == 0) z = -0.0f;
    if (random() % 16 == 0) z = -kInfinity;
    if (random() % 16 == 0) z = std::round(z);  // ties
    if (random() % 64 == 0) z = -200;
  }
  logits[random() % logits.size()] = 3;
  return logits;
}

struct Laws {
  std::vector<float> weights;
  std::vector<cuda::Law> laws;
};

Laws standardise(simt::Machine& machine, const std::vector<float>& logits, int rows, int vocab,
                 const SamplingParams& params, const std::vector<Token>& ids = {}) {
  const int columns = static_cast<int>(logits.size()) / rows;
  const DeviceArray<float> d_logits(machine, logits),
      weights(machine, static_cast<std::size_t>(rows * vocab));
  const DeviceArray<std::int32_t> d_ids(machine, std::vector<std::int32_t>(ids.begin(), ids.end()));
  const DeviceArray<cuda::Law> laws(machine, static_cast<std::size_t>(rows));
  cuda::launch(cuda::Standardise{.logits = d_logits.data(),
                                 .ids = ids.empty() ? nullptr : d_ids.data(),
                                 .rows = rows,
                                 .columns = columns,
                                 .vocab = vocab,
                                 .greedy = params.temperature <= 0,
                                 .scale = static_cast<float>(std::min(1 / params.temperature, 1e30)),
                                 .top_k = params.top_k,
                                 .top_p = params.top_p,
                                 .weights = weights.data(),
                                 .laws = laws.data()},
               {.machine = &machine});
  return {weights.host(), laws.host()};
}

void expect_same(const Distribution& host, const Laws& device, int row) {
  const auto vocab = static_cast<std::size_t>(host.vocab());
  const cuda::Law& law = device.laws[static_cast<std::size_t>(row)];
  ASSERT_EQ(law.invalid, -1);
  if (host.one_hot()) {
    ASSERT_EQ(law.one_hot, host.argmax());
    return;
  }
  ASSERT_EQ(law.one_hot, -1);
  EXPECT_EQ(law.sum, host.sum());
  for (std::size_t i = 0; i < vocab; ++i) {
    ASSERT_EQ(std::bit_cast<std::uint32_t>(device.weights[static_cast<std::size_t>(row) * vocab + i]),
              std::bit_cast<std::uint32_t>(host.weights()[i]))
        << i;
  }
}

TEST(DeviceSampling, RowsOfLogitsBecomeTheSameLaws) {
  simt::Machine machine(1);
  unsigned seed = 0;
  for (const int vocab : {1, 2, 31, 64, 65, 1000, 1024, 1025, 5003, 49152}) {
    for (const double temperature : {0.0, .7, 1.0, 1e-40}) {
      if (vocab > 10000 && temperature != .7) continue;
      SCOPED_TRACE(fmt::format("vocabulary {}, temperature {}", vocab, temperature));
      const int rows = vocab > 1025 ? 1 : 3;
      std::vector<float> logits = random_logits(rows * vocab, ++seed);
      for (int row = 0; row < rows; ++row)
        logits[static_cast<std::size_t>(row * vocab)] = 2.5f;  // none is banned as a whole
      const Laws device = standardise(machine, logits, rows, vocab, {.temperature = temperature});
      for (int row = 0; row < rows; ++row) {
        Distribution host;
        host.assign_logits(
            std::span(logits).subspan(static_cast<std::size_t>(row * vocab), static_cast<std::size_t>(vocab)),
            {.temperature = temperature}, {}, vocab);
        ASSERT_NO_FATAL_FAILURE(expect_same(host, device, row));
      }
    }
  }
}

TEST(DeviceSampling, AReducedVocabularyIsSpread) {
  simt::Machine machine(2);
  std::vector<Token> ids;
  for (Token token = 3; token < 3000; token += 1 + token % 3) ids.push_back(token);
  const std::vector<float> logits = random_logits(static_cast<int>(ids.size()), 9);
  for (const double temperature : {0.0, 1.3}) {
    Distribution host;
    host.assign_logits(logits, {.temperature = temperature}, ids, 3001);
    expect_same(host, standardise(machine, logits, 1, 3001, {.temperature = temperature}, ids), 0);
  }
}

TEST(DeviceSampling, TopKAndTopPKeepTheSameTokens) {
  simt::Machine machine(5);
  unsigned seed = 200;
  for (const int vocab : {1, 2, 50, 1025, 49152}) {
    for (const auto& [top_k, top_p] : {std::pair{1, 1.0},
                                       {7, 1.0},
                                       {vocab - 1, 1.0},
                                       {0, .9},
                                       {0, .5},
                                       {0, 1e-9},
                                       {0, 1 - 1e-12},
                                       {20, .8},
                                       {vocab, .99}}) {
      if (top_k < 0 || (vocab > 10000 && top_k != 20 && top_p != .9)) continue;
      SCOPED_TRACE(fmt::format("vocabulary {}, top-k {}, top-p {}", vocab, top_k, top_p));
      const std::vector<float> logits = random_logits(vocab, ++seed);
      const SamplingParams params{.temperature = 1.5, .top_k = top_k, .top_p = top_p};
      Distribution host;
      host.assign_logits(logits, params, {}, vocab);
      ASSERT_NO_FATAL_FAILURE(expect_same(host, standardise(machine, logits, 1, vocab, params), 0));
    }
  }
  // All equal: ties go to the lowest tokens.
  const std::vector<float> equal(70, 1.0f);
  const Laws kept = standardise(machine, equal, 1, 70, {.temperature = 1, .top_p = .5});
  for (std::size_t i = 0; i < 70; ++i) EXPECT_EQ(kept.weights[i], i < 35 ? 1.0f : 0.0f);
}

TEST(DeviceSampling, BrokenLogitsAreReported) {
  simt::Machine machine(3);
  std::vector<float> logits = random_logits(300, 4);
  logits[117] = std::numeric_limits<float>::quiet_NaN();
  logits[250] = kInfinity;
  EXPECT_EQ(standardise(machine, logits, 1, 300, {.temperature = 1}).laws[0].invalid, 117);
  logits[117] = 1;
  EXPECT_EQ(standardise(machine, logits, 1, 300, {}).laws[0].invalid, 250);
  EXPECT_EQ(
      standardise(machine, std::vector<float>(300, -kInfinity), 1, 300, {.temperature = 1}).laws[0].invalid,
      300);
}

TEST(DeviceSampling, CoinsHaveTheSameBits) {
  const Coins coins(77, 5);
  const cuda::PhiloxCoins device{coins.key()};
  for (const std::int64_t position :
       {std::int64_t{0}, std::int64_t{3}, std::int64_t{1} << 40, std::int64_t{-7}}) {
    for (const Purpose purpose : {Purpose::target, Purpose::draft, Purpose::accept, Purpose::residual}) {
      for (std::uint32_t draw = 0; draw < 3; ++draw) {
        EXPECT_EQ(device.uniform(position, static_cast<simt::u32>(purpose), draw),
                  coins.uniform({position, purpose, draw}));
      }
    }
  }
  std::vector<float> noise(1 << 16);
  coins.gumbel(9, 0, noise);
  const PhiloxKey key = coins.key();
  for (std::size_t token = 0; token < noise.size(); token += 7) {
    const auto t = static_cast<std::uint32_t>(token);
    const float e = cuda::exponential(philox4x32({t / 64 * 16 + t % 16, 4, 9, 0}, key)[t % 64 / 16]);
    EXPECT_NEAR(-std::log(e), noise[token], 1e-6 * (1 + std::abs(noise[token])));
  }
}

std::vector<Token> sample(simt::Machine& machine, const Distribution& row, const Coins& coins,
                          const std::vector<std::int64_t>& positions, simt::u32 purpose, bool coupled) {
  const int vocab = row.vocab(), rows = static_cast<int>(positions.size());
  device_step::Rows device(vocab);
  for (int i = 0; i < rows; ++i) device.add(row);
  const DeviceArray<float> weights(machine, device.weights);
  const DeviceArray<cuda::Law> laws(machine, device.laws);
  const DeviceArray<std::int64_t> at(machine, positions);
  const DeviceArray<std::int32_t> tokens(machine, positions.size());
  cuda::launch(cuda::Sample{.weights = weights.data(),
                            .laws = laws.data(),
                            .rows = rows,
                            .vocab = vocab,
                            .key = coins.key(),
                            .positions = at.data(),
                            .purpose = purpose,
                            .coupled = coupled,
                            .tokens = tokens.data()},
               {.machine = &machine});
  return tokens.host();
}

TEST(DeviceSampling, TokensAreThoseOfTheHost) {
  simt::Machine machine(4);
  unsigned seed = 100;
  const Coins coins(5, 6);
  for (const int vocab : {1, 2, 40, 64, 999, 1024, 1057, 3000, 49152}) {
    Distribution row;
    row.assign_logits(random_logits(vocab, ++seed), {.temperature = 2}, {}, vocab);
    std::vector<std::int64_t> positions;
    for (std::int64_t i = 0; i < (vocab > 10000 ? 2 : 12); ++i) positions.push_back(i * 1000003);
    const std::vector<Token> drawn = sample(machine, row, coins, positions, 1, false),
                             raced = sample(machine, row, coins, positions, 0, true);
    for (std::size_t i = 0; i < positions.size(); ++i) {
      EXPECT_EQ(drawn[i], row.sample(coins, {positions[i], Purpose::draft, 0})) << vocab;
      EXPECT_EQ(raced[i], row.sample_coupled(coins, positions[i])) << vocab;
    }
  }
}

}  // namespace
}  // namespace speclab
