#include "core/model/toy/random_decoder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

#include "core/backend/backend.h"
#include "core/model/net/model.h"
#include "core/model/net/session.h"

namespace speclab::toy::random_decoder_test {
namespace {

constexpr DecoderSizes kSizes{
    .hidden = 64, .layers = 3, .heads = 4, .kv_heads = 2, .head_dim = 16, .ffn = 96, .vocab = 128};

/// The logits of a text of twenty tokens, [20][vocab].
std::vector<float> logits_of_seed(std::uint64_t seed) {
  const auto model =
      Model::load(open_random_decoder(kSizes, seed), make_cpu_backend({.threads = 1, .numerics = "f32"}), {});
  std::vector<Token> tokens(20);
  std::vector<std::int32_t> parents(20), rows(20);
  for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<Token>(3 * i);
  std::iota(parents.begin(), parents.end(), -1);
  std::iota(rows.begin(), rows.end(), 0);
  std::vector<float> logits(tokens.size() * static_cast<std::size_t>(model->config().vocab));
  model->open(64)->forward(tokens, parents, rows, logits.data());
  return logits;
}

TEST(RandomDecoder, HasTheSizesThatAreAskedFor) {
  const Checkpoint checkpoint = open_random_decoder(kSizes, 1);
  const ModelConfig& config = checkpoint.config();
  EXPECT_EQ(config.hidden, 64);
  EXPECT_EQ(config.layers, 3);
  EXPECT_EQ(config.heads, 4);
  EXPECT_EQ(config.kv_heads, 2);
  EXPECT_EQ(config.head_dim, 16);
  EXPECT_EQ(config.ffn, 96);
  EXPECT_EQ(config.vocab, 128);
  EXPECT_EQ(config.context, 512);
  EXPECT_FALSE(config.tied_head);
}

TEST(RandomDecoder, TheSeedDecidesTheLogits) {
  const std::vector<float> first = logits_of_seed(1);
  EXPECT_EQ(logits_of_seed(1), first);
  EXPECT_NE(logits_of_seed(2), first);
  double sum = 0, squares = 0;
  for (const float logit : first) {
    sum += logit;
    squares += static_cast<double>(logit) * logit;
  }
  const double count = static_cast<double>(first.size()), mean = sum / count;
  const double deviation = std::sqrt(squares / count - mean * mean);
  EXPECT_GT(deviation, 3);
  EXPECT_LT(deviation, 5);
}

}  // namespace
}  // namespace speclab::toy::random_decoder_test
