#include "core/theory/cost.h"

#include <gtest/gtest.h>

#include <vector>

#include "core/base/error.h"
#include "core/theory/chain.h"

namespace speclab::theory::cost_test {
namespace {

DecoderShape gpt2(int layers, int hidden, int heads) {
  return {.layers = layers,
          .hidden = hidden,
          .heads = heads,
          .kv_heads = heads,
          .head_dim = 64,
          .ffn = 4 * hidden,
          .gated = false,
          .vocab = 50257};
}

ModelConfig smollm2() {
  ModelConfig config;
  config.layers = 30;
  config.hidden = 576;
  config.embedding_dim = 576;
  config.heads = 9;
  config.kv_heads = 3;
  config.head_dim = 64;
  config.ffn = 1536;
  config.vocab = 49152;
  return config;
}

TEST(Cost, Gpt2SmallAndXl) {
  const DecoderShape small = gpt2(12, 768, 12), xl = gpt2(48, 1600, 25);
  EXPECT_NEAR(body_weights(small), 84.9e6, 5e4);
  EXPECT_NEAR(head_weights(small), 38.6e6, 5e4);
  EXPECT_NEAR(body_weights(xl), 1474.6e6, 5e4);
  EXPECT_NEAR(head_weights(xl), 80.4e6, 5e4);
  EXPECT_NEAR(c_hat(small, xl), .0794, 5e-5);
  EXPECT_GT(c_hat(small, xl, 1000), c_hat(small, xl));  // attention has a larger share in the small model
}

TEST(Cost, GroupedQueriesAndGatedFeedForward) {
  const DecoderShape shape = decoder_shape(smollm2());
  EXPECT_EQ(layer_weights(shape), 2 * 576 * 576 + 2 * 576 * 192 + 3 * 576 * 1536);
  EXPECT_EQ(body_weights(shape) + head_weights(shape), 134'479'872);
  EXPECT_NEAR(forward_cost(shape, {}).weight_bytes, 269e6, 1e5);
}

TEST(Cost, DraftWithProjectedEmbeddingAndReducedHead) {
  ModelConfig config = smollm2();
  config.layers = 2;
  config.hidden = 256;
  config.embedding_dim = 576;
  config.head_ids.assign(8192, 0);
  const DecoderShape shape = decoder_shape(config);
  EXPECT_EQ(shape.extra_weights, 576 * 256);
  EXPECT_EQ(head_weights(shape), 8192 * 256);
  EXPECT_EQ(body_weights(shape), 2 * layer_weights(shape) + 576 * 256);
}

TEST(Cost, VisibleKeys) {
  EXPECT_EQ(causal_keys(100, 4), 4 * 100 + 10);
  EXPECT_EQ(dense_keys(100, 4), 4 * 104);
  const std::vector<int> chain = {0, 1, 2, 3}, star = {0, 1, 1, 1};
  EXPECT_EQ(tree_keys(100, chain), causal_keys(100, 4));
  EXPECT_EQ(tree_keys(100, star), 4 * 100 + 1 + 3 * 2);
}

TEST(Cost, ForwardCountsEveryPart) {
  const DecoderShape shape{.layers = 2,
                           .hidden = 8,
                           .heads = 4,
                           .kv_heads = 2,
                           .head_dim = 3,
                           .ffn = 10,
                           .gated = true,
                           .vocab = 100,
                           .weight_bytes = 2,
                           .kv_bytes = 4};
  const double layer = 8 * 12 + 2 * 8 * 6 + 12 * 8 + 3 * 8 * 10;
  const ForwardCost cost =
      forward_cost(shape, {.tokens = 3, .logit_rows = 2, .context = 7, .keys = causal_keys(7, 3)});
  EXPECT_EQ(cost.body_flops, 2 * 3 * 2 * layer);
  EXPECT_EQ(cost.head_flops, 2 * 2 * 800);
  EXPECT_EQ(cost.attention_flops, 4 * 2 * 4 * 3 * (3 * 7 + 6));
  EXPECT_EQ(cost.weight_bytes, 2 * (2 * layer + 800));
  EXPECT_EQ(cost.embedding_bytes, 3 * 8 * 2);
  EXPECT_EQ(cost.kv_read_bytes, 2 * 2 * 2 * 3 * 4 * (7 + 3));
  EXPECT_EQ(cost.kv_write_bytes, 2 * 2 * 2 * 3 * 4 * 3);
  EXPECT_EQ(cost.logits_bytes, 2 * 100 * 4);
  EXPECT_EQ(cost.flops(), cost.body_flops + cost.head_flops + cost.attention_flops);
  EXPECT_EQ(cost.bytes(), cost.weight_bytes + 48 + cost.kv_read_bytes + cost.kv_write_bytes + 800);
  EXPECT_EQ(forward_cost(shape, {.tokens = 3, .logit_rows = 0}).weight_bytes, 2 * 2 * layer);
  EXPECT_EQ(commit_bytes(shape, 5), 2 * 2 * 2 * 2 * 3 * 4 * 5);
  EXPECT_EQ(flops_per_token(shape), 2 * (2 * layer + 800));
  EXPECT_EQ(flops_per_token(shape, 9), 2 * (2 * layer + 800) + 4 * 2 * 4 * 3 * 10);
}

TEST(Cost, WindowedLayersReadTheirWindow) {
  DecoderShape full{
      .layers = 4, .hidden = 8, .heads = 4, .kv_heads = 2, .head_dim = 3, .ffn = 10, .vocab = 100};
  DecoderShape windowed = full;
  windowed.windowed_layers = 3;
  windowed.window = 5;
  // Below the window nothing changes.
  const ForwardSize near{.tokens = 2, .logit_rows = 1, .context = 3, .keys = causal_keys(3, 2)};
  EXPECT_EQ(forward_cost(windowed, near).flops(), forward_cost(full, near).flops());
  EXPECT_EQ(forward_cost(windowed, near).bytes(), forward_cost(full, near).bytes());
  // Beyond it, every row of three layers sees 5 keys; they read 4 committed positions and the rows
  // themselves.
  const ForwardSize far{.tokens = 2, .logit_rows = 1, .context = 100, .keys = causal_keys(100, 2)};
  const ForwardCost cost = forward_cost(windowed, far);
  EXPECT_EQ(cost.attention_flops, 4 * 4 * 3 * (203 + 3 * 2 * 5));
  EXPECT_EQ(cost.kv_read_bytes, 2 * 2 * 3 * 2 * (102 + 3 * (4 + 2)));
  EXPECT_EQ(cost.kv_write_bytes, forward_cost(full, far).kv_write_bytes);
  EXPECT_EQ(flops_per_token(windowed, 1000) - flops_per_token(windowed, 999),
            4 * 4 * 3);  // only one layer grows
  EXPECT_LT(kv_to_weight_ratio(windowed, 8, 1000), 0.3 * kv_to_weight_ratio(full, 8, 1000));
  ModelConfig config;
  config.layers = 3;
  config.windows = {0, 7, 7};
  EXPECT_EQ(decoder_shape(config).windowed_layers, 2);
  EXPECT_EQ(decoder_shape(config).window, 7);
  windowed.windowed_layers = 5;
  EXPECT_THROW(forward_cost(windowed, far), Error);
}

TEST(Cost, MeasuredOperationsMeetTheorem311) {
  // A run that follows the i.i.d. law exactly, with gamma 4, alpha .7, constant attention and logits for all
  // rows.
  const DecoderShape draft = gpt2(12, 768, 12), target = gpt2(48, 1600, 25);
  const double steps = 100, tokens = steps * expected_tokens(.7, 4);
  const double measured =
      measured_operations_factor(steps * 5 * flops_per_token(target), steps * 4 * flops_per_token(draft),
                                 tokens, flops_per_token(target));
  EXPECT_NEAR(measured, operations_factor(.7, 4, c_hat(draft, target)), 1e-12);
  EXPECT_THROW(measured_operations_factor(1, 1, 0, 1), Error);
}

TEST(Roofline, TurnsAtTheRidge) {
  const DecoderShape shape{.layers = 1,
                           .hidden = 1000,
                           .heads = 10,
                           .kv_heads = 10,
                           .head_dim = 100,
                           .ffn = 4000,
                           .gated = true,
                           .vocab = 1};
  const Machine machine{.peak_flops = 1e12, .bandwidth = 2e10, .overhead_seconds = 1e-5};
  EXPECT_EQ(ridge_rows(shape, machine), 50);
  auto seconds = [&](int n) {
    return roofline_seconds(forward_cost(shape, {.tokens = n, .keys = 0}), machine) - 1e-5;
  };
  EXPECT_NEAR(seconds(40) / seconds(1), 1, 0.03);
  EXPECT_NEAR(seconds(200) / seconds(100), 2, 1e-6);
  EXPECT_NEAR(seconds(1), forward_cost(shape, {.keys = 0}).bytes() / 2e10, 1e-12);
  EXPECT_DOUBLE_EQ(kv_to_weight_ratio(shape, 4, 500), 4 * 2.0 * 1000 * 2 * 500 / (2 * 16'001'000.0));
}

TEST(Cost, BadInputThrows) {
  DecoderShape shape = gpt2(2, 64, 1);
  EXPECT_THROW(forward_cost(shape, {.tokens = 0}), Error);
  EXPECT_THROW(forward_cost(shape, {.tokens = 2, .logit_rows = 3}), Error);
  EXPECT_THROW(forward_cost(shape, {.context = -1}), Error);
  EXPECT_THROW(commit_bytes(shape, -1), Error);
  EXPECT_THROW(c_hat(shape, DecoderShape{}), Error);
  EXPECT_THROW(roofline_seconds({}, {}), Error);
  shape.ffn = -1;
  EXPECT_THROW(layer_weights(shape), Error);
}

}  // namespace
}  // namespace speclab::theory::cost_test
