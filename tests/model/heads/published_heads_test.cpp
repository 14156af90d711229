#include <gtest/gtest.h>

#include <cmath>

#include "core/model/heads/blockwise_heads.h"
#include "core/model/heads/hydra_heads.h"
#include "core/model/heads/medusa_heads.h"
#include "core/model/heads/mlp_speculator_heads.h"
#include "core/model/net/session.h"
#include "tests/model/heads/random_heads.h"

// The three published layouts and that of blockwise heads against double arithmetic: float32 on the CPU
// within 5e-5 of the largest logit, the simulated GPU, which rounds inputs of linear layers to bf16, within
// 6e-2.

namespace speclab::published_heads_test {
namespace {

using namespace speclab::fixtures;

constexpr int kHidden = 32, kVocab = 64, kRows = 3;  // of tiny_shape(); rows that are computed together

class PublishedHeads : public testing::TestWithParam<const char*> {
 protected:
  PublishedHeads()
      : backend_(simulated() ? make_cuda_backend({.simulated = true}) : make_cpu_backend({2, GetParam()})) {
    write_huggingface(dir_.path() / "target", tiny_);
    target_ = Model::load(Checkpoint::open(dir_.path() / "target"), backend_, {});
    states_ = random_rows(random_, kRows, kHidden);
  }
  static bool simulated() { return std::string(GetParam()) == "host-simt"; }
  HeadCard write(const std::string& kind, HeadKind of, const RandomHead& shape) {
    tensors_ = random_head_tensors(kind, tiny_.config, shape);
    write_head_folder(dir_.path() / "head", head_card(kind, tiny_.config, shape), tensors_, shape.ids);
    return read_head_card(dir_.path() / "head", of, *target_);
  }
  std::vector<double> linear(const std::string& name, const std::vector<double>& x) const {
    std::vector<double> y = times(tensors_.at(name + ".weight"), x);
    return tensors_.contains(name + ".bias") ? plus(std::move(y), tensors_.at(name + ".bias")) : y;
  }
  // R x + SiLU(W x + b)
  std::vector<double> block(const std::string& name, const std::vector<double>& x) const {
    std::vector<double> y = linear(name + "linear", x);
    const std::vector<double> residual =
        tensors_.contains(name + "res_connection.weight") ? linear(name + "res_connection", x) : x;
    for (std::size_t i = 0; i < y.size(); ++i) y[i] = residual[i] + apply(Activation::kSilu, y[i]);
    return y;
  }
  std::vector<double> embedding(Token token) const {
    std::vector<float> row(kHidden);
    target_->embed({&token, 1}, row.data());
    return {row.begin(), row.end()};
  }
  static void expect_near(HeadRunner& run, const HeadRows& rows,
                          const std::vector<std::vector<double>>& expected) {
    std::vector<float> got(static_cast<std::size_t>(rows.rows()) * static_cast<std::size_t>(rows.width()));
    run.get(rows, got.data());
    double largest = 0;
    for (const auto& row : expected)
      for (const double value : row) largest = std::max(largest, std::abs(value));
    std::size_t at = 0;
    for (const auto& row : expected)
      for (const double value : row)
        ASSERT_NEAR(got.at(at++), value, (simulated() ? 6e-2 : 5e-5) * largest) << at - 1;
    ASSERT_EQ(at, got.size());
  }

  TempDir dir_;
  TinyModel tiny_ = random_llama(tiny_shape(), 5);
  std::shared_ptr<Backend> backend_;
  std::shared_ptr<const Model> target_;
  std::mt19937_64 random_{11};
  std::vector<float> states_;  // [kRows, kHidden]
  Tensors tensors_;
};

TEST_P(PublishedHeads, MedusaEqualsDouble) {
  for (const RandomHead& shape :
       {RandomHead{.heads = 2, .blocks = 1}, RandomHead{.heads = 3, .blocks = 2, .ids = {1, 5, 7, 40}}}) {
    MedusaHeads heads(write("medusa", HeadKind::kMedusa, shape), *target_);
    ASSERT_EQ(heads.count(), shape.heads);
    EXPECT_EQ(heads.rows(), shape.ids.empty() ? kVocab : 4);
    EXPECT_EQ(std::vector<Token>(heads.ids().begin(), heads.ids().end()), shape.ids);
    HeadRunner run(target_);
    HeadRows states, logits;
    run.put(states_.data(), kRows, kHidden, states);
    for (int head = 0; head < shape.heads; ++head) {
      const std::string at = std::to_string(head) + ".";
      std::vector<std::vector<double>> expected;
      for (int row = 0; row < kRows; ++row) {
        std::vector<double> x = row_of(states_, kHidden, row);
        for (int i = 0; i < shape.blocks; ++i) x = block(at + std::to_string(i) + ".", x);
        expected.push_back(linear(at + std::to_string(shape.blocks), x));
      }
      heads.logits(run, head, states, logits);
      expect_near(run, logits, expected);
    }
  }
}

// h + U ReLU(V h + b) + c, and the output layer of the target.
TEST_P(PublishedHeads, BlockwiseEqualsDouble) {
  const RandomHead shape{.heads = 2, .inner = 24};
  BlockwiseHeads heads(write("blockwise", HeadKind::kBlockwise, shape), *target_);
  ASSERT_EQ(heads.count(), 2);
  HeadRunner run(target_);
  HeadRows states, inner, logits;
  run.put(states_.data(), kRows, kHidden, states);
  heads.prepare(run, states, inner);
  for (int head = 0; head < 2; ++head) {
    std::vector<std::vector<double>> expected;
    for (int row = 0; row < kRows; ++row) {
      const std::vector<double> x = row_of(states_, kHidden, row);
      std::vector<double> y = linear("ffn_in", x);
      for (double& value : y) value = apply(Activation::kRelu, value);
      y = linear("ffn_out." + std::to_string(head), y);
      std::vector<float> sum(kHidden), out(kVocab);
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] = static_cast<float>(x[i] + y[i]);
      target_->head(sum.data(), 1, FinalNorm::kDone, out.data());
      expected.emplace_back(out.begin(), out.end());
    }
    heads.logits(run, head, states, inner, logits);
    expect_near(run, logits, expected);
  }
}

TEST_P(PublishedHeads, HydraEqualsDouble) {
  const RandomHead shape{.heads = 3, .blocks = 2};
  HydraHeads heads(write("hydra", HeadKind::kHydra, shape), target_);
  EXPECT_EQ(heads.prefix_layer(), nullptr);
  HeadRunner run(target_);
  HeadRows states, logits;
  std::vector<HeadRows> embedded(3);
  run.put(states_.data(), kRows, kHidden, states);
  std::vector<const HeadRows*> inputs{&states};
  const std::vector<Token> tokens[] = {{4, 9, 9}, {60, 1, 2}, {3, 3, 33}};  // by depth, for each row
  for (std::size_t head = 0; head < 3; ++head) {
    run.embed(tokens[head], embedded[head]);
    inputs.push_back(&embedded[head]);
    std::vector<std::vector<double>> expected;
    for (std::size_t row = 0; row < kRows; ++row) {
      std::vector<double> x = row_of(states_, kHidden, static_cast<int>(row));
      for (std::size_t depth = 0; depth <= head; ++depth) {
        const std::vector<double> more = embedding(tokens[depth][row]);
        x.insert(x.end(), more.begin(), more.end());
      }
      const std::string at = "hydra_mlp." + std::to_string(head) + ".";
      expected.push_back(
          linear("hydra_lm_head." + std::to_string(head), block(at + "1.", block(at + "0.", x))));
    }
    heads.logits(run, static_cast<int>(head), inputs, logits);
    expect_near(run, logits, expected);
  }
}

// The prefix layer of a first position sees itself alone, so its attention gives its own value.
TEST_P(PublishedHeads, PrefixAttentionEqualsDouble) {
  HydraHeads heads(write("hydra", HeadKind::kHydra, {.heads = 1, .prefix = true}), target_);
  ASSERT_NE(heads.prefix_layer(), nullptr);
  HeadRunner run(target_);
  const auto session = heads.prefix_layer()->open(16);
  const int layers[] = {kFinalNorm};
  std::vector<float> got;
  const PromptTaps taps{layers, [&](const PromptStates& chunk) {
                          got.insert(got.end(), chunk.layers[0], chunk.layers[0] + chunk.count * kHidden);
                        }};
  session->prefill_embeddings(states_.data(), 1, Memory::kHost, nullptr, &taps);
  HeadRows prefix;
  run.put(got.data(), 1, kHidden, prefix);
  heads.finish_prefix(run, prefix);

  const std::string name = "prefix_embeding_layer.layers.0.";
  std::vector<double> x = row_of(states_, kHidden, 0);
  const auto value = times(tensors_.at(name + "self_attn.v_proj.weight"),
                           rms_normed(x, tensors_.at(name + "input_layernorm.weight"), 1e-5));
  std::vector<double> mixed;  // both query heads of a group share a value head
  for (int head = 0; head < 4; ++head)
    for (int i = 0; i < 8; ++i) mixed.push_back(value[static_cast<std::size_t>(head / 2 * 8 + i)]);
  const auto attended = times(tensors_.at(name + "self_attn.o_proj.weight"), mixed);
  for (std::size_t i = 0; i < kHidden; ++i) x[i] += attended[i];
  const auto normed = rms_normed(x, tensors_.at(name + "post_attention_layernorm.weight"), 1e-5);
  auto gate = times(tensors_.at(name + "mlp.gate_proj.weight"), normed);
  const auto up = times(tensors_.at(name + "mlp.up_proj.weight"), normed);
  for (std::size_t i = 0; i < gate.size(); ++i) gate[i] = apply(Activation::kSilu, gate[i]) * up[i];
  const auto down = times(tensors_.at(name + "mlp.down_proj.weight"), gate);
  for (std::size_t i = 0; i < kHidden; ++i) x[i] += down[i];
  expect_near(run, prefix, {rms_normed(x, tensors_.at("prefix_embeding_layer.norm.weight"), 1e-5)});
}

TEST_P(PublishedHeads, MlpSpeculatorsEqualDouble) {
  for (const RandomHead& shape :
       {RandomHead{.heads = 3, .inner = 24}, RandomHead{.heads = 4, .tied = true, .scale_input = true}}) {
    MlpSpeculatorHeads heads(write("mlp_speculator", HeadKind::kMlpSpeculator, shape), *target_);
    HeadRunner run(target_);
    HeadRows states, next, logits;
    run.put(states_.data(), kRows, kHidden, states);
    heads.prepare(run, states);
    const double state_weight = std::pow(.5, .5 / shape.heads),
                 token_weight = std::sqrt((1 - state_weight * state_weight) * shape.inner / 2);
    std::vector<std::vector<double>> state;
    for (int row = 0; row < kRows; ++row) {
      state.push_back(row_of(states_, kHidden, row));
      if (!shape.scale_input) continue;
      TinyTensor root{{kHidden}, std::vector<float>(kHidden, 1)};
      state.back() = rms_normed(state.back(), root, 1e-6);
      for (double& value : state.back()) value *= std::sqrt(.5);
    }
    for (int layer = 0; layer < shape.heads; ++layer) {
      const std::vector<Token> tokens{layer, 20 + layer, 63};
      const std::string own = std::to_string(shape.tied ? 0 : layer),
                        proj = std::to_string(shape.tied ? std::min(layer, 1) : layer);
      const TinyTensor& table = tensors_.at("emb." + own + ".weight");
      std::vector<std::vector<double>> expected;
      for (std::size_t row = 0; row < kRows; ++row) {
        std::vector<double> x = linear("proj." + proj, state[row]);
        for (std::size_t i = 0; i < x.size(); ++i) {
          const auto at = static_cast<std::size_t>(tokens[row]) * x.size() + i;
          x[i] = state_weight * x[i] + token_weight * static_cast<double>(table.values[at]);
        }
        x = plus(rms_normed(x, tensors_.at("ln." + own + ".weight"), 1e-6),
                 tensors_.at("ln." + own + ".bias"));
        for (double& value : x) value = apply(Activation::kGelu, value);
        state[row] = x;
        expected.push_back(linear("head." + own, x));
      }
      heads.advance(run, layer, layer % 2 == 0 ? states : next, tokens, layer % 2 == 0 ? next : states);
      heads.logits(run, layer, layer % 2 == 0 ? next : states, logits);
      expect_near(run, logits, expected);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, PublishedHeads, testing::Values("f32", "host-simt"), [](const auto& info) {
  return std::string(info.param) == "f32" ? "cpu" : "host_simt";
});

}  // namespace
}  // namespace speclab::published_heads_test
