#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <numeric>
#include <tuple>

#include "core/base/error.h"
#include "core/model/net/session.h"
#include "tests/model/heads/head_fixture.h"

// Decoder layers of a head against a checkpoint of one layer that the engine runs as a model, bit for bit:
// prompts, trees, commits and rewinds; and the layer of EAGLE, which has no norm before its attention,
// against double arithmetic.

namespace speclab::decoder_layers_test {
namespace {

using namespace speclab::fixtures;

Shape one_layer_shape() {
  Shape shape = tiny_shape();
  shape.layers = 1;
  return shape;
}

class DecoderLayers : public testing::TestWithParam<const char*> {
 protected:
  DecoderLayers()
      : backend_(std::string(GetParam()) == "host-simt" ? make_cuda_backend({.simulated = true})
                                                        : make_cpu_backend({2, GetParam()})) {
    write_huggingface(dir_.path() / "model", tiny_);
    model_ = Model::load(Checkpoint::open(dir_.path() / "model"), backend_, {});
  }
  std::shared_ptr<const Model> layers_of(const Tensors& tensors, const ModelConfig& config) const {
    write_head(dir_.path() / "head.safetensors", tensors);
    return HeadFile::open(dir_.path() / "head.safetensors").decoder_layers(backend_, config, "layers.{}.");
  }

  TempDir dir_;
  TinyModel tiny_ = random_llama(one_layer_shape(), 3);
  std::shared_ptr<Backend> backend_;
  std::shared_ptr<const Model> model_;
};

TEST_P(DecoderLayers, HaveTheBitsOfAModelOfOneLayer) {
  Tensors tensors = layer_tensors(tiny_);
  std::mt19937_64 random(1);
  tensors["fc.weight"] = random_tensor(random, {32, 64}, 0, .1);  // another module of the head
  const auto layer = layers_of(tensors, decoder_layers_of(model_->config()));
  constexpr std::size_t kWidth = 32;
  const std::vector<Token> prompt{9, 8, 7, 6, 5, 4, 3}, tree{1, 2, 3, 4};
  const std::vector<std::int32_t> parents{-1, 0, 0, 2};
  std::vector<float> prompt_rows(prompt.size() * kWidth), tree_rows(tree.size() * kWidth);
  model_->embed(prompt, prompt_rows.data());
  model_->embed(tree, tree_rows.data());
  const auto of_model = model_->open(64), of_head = layer->open(64, 5);
  of_model->prefill(prompt);
  of_head->prefill_embeddings(prompt_rows.data(), static_cast<int>(prompt.size()));
  std::vector<float> expected(tree_rows.size()), got(tree_rows.size());
  for (int step = 0; step < 3; ++step) {
    const Tap model_tap{1, expected.data(), {}},
        head_tap{kFinalNorm, got.data(), {}};  // it has no final norm
    of_model->forward(tree, parents, {}, nullptr, {&model_tap, 1});
    Feed feed;
    feed.session = of_head.get();
    feed.parents = parents;
    feed.embeddings = tree_rows.data();
    feed.taps = {&head_tap, 1};
    layer->forward({&feed, 1});
    EXPECT_EQ(got, expected) << step;
    const std::vector<int> path = step == 0 ? std::vector<int>{0, 2, 3} : std::vector<int>{0, 1};
    of_model->commit(path);
    of_head->commit(path);
    if (step == 1) {
      of_model->rewind(6);
      of_head->rewind(6);
    }
  }
  EXPECT_EQ(of_head->work().keys, of_model->work().keys);
  EXPECT_EQ(of_head->work().rows, of_model->work().rows);
  const std::vector<Token> token{1};
  const std::vector<std::int32_t> root{-1};
  EXPECT_THROW(of_head->forward(token, root, {}, nullptr), Error);  // it knows no tokens
}

// EAGLE (Li et al. 2024): fc(embedding ++ hidden state) -> a layer without its first norm -> the target's
// head.
TEST_P(DecoderLayers, OfEagleEqualDouble) {
  Tensors tensors = layer_tensors(tiny_);
  tensors.erase("layers.0.input_layernorm.weight");
  std::mt19937_64 random(2);
  tensors["fc.weight"] = random_tensor(random, {32, 64}, 0, .15);
  tensors["fc.bias"] = random_tensor(random, {32}, 0, .3);
  ModelConfig config = decoder_layers_of(model_->config());
  EXPECT_THROW(layers_of(tensors, config), Error);
  config.first_attn_norm = false;
  const auto layer = layers_of(tensors, config);
  const HeadFile file = HeadFile::open(dir_.path() / "head.safetensors");
  const HeadLinear fc = file.linear(*backend_, "fc", {32, 32}, 32, Bias::kPresent);

  HeadRunner run(model_);
  const std::vector<Token> tokens{17};
  const std::vector<float> state = random_rows(random, 1, 32);
  HeadRows embedded, hidden, x, y, logits;
  run.embed(tokens, embedded);
  run.put(state.data(), 1, 32, hidden);
  run.linear(fc, {&embedded, &hidden}, x);
  const auto session = layer->open(16);
  const std::vector<std::int32_t> root{-1};
  const Tap tap{1, run.room(y, 1, 32), {}, Memory::kBackend};
  Feed feed;
  feed.session = session.get();
  feed.parents = root;
  feed.embeddings = x.data();
  feed.embeddings_in = Memory::kBackend;
  feed.taps = {&tap, 1};
  layer->forward({&feed, 1});
  run.logits(y, FinalNorm::kDone, logits);
  std::vector<float> got(64);
  run.get(logits, got.data());

  // A first token sees itself alone: attention gives its value, which both query heads of a group share.
  std::vector<float> embedding(32);
  model_->embed(tokens, embedding.data());
  std::vector<double> in(embedding.begin(), embedding.end());
  in.insert(in.end(), state.begin(), state.end());
  auto residual = plus(times(tensors.at("fc.weight"), in), tensors.at("fc.bias"));
  const auto value = times(tensors.at("layers.0.self_attn.v_proj.weight"), residual);
  std::vector<double> mixed;
  for (int head = 0; head < 4; ++head)
    for (int d = 0; d < 8; ++d) mixed.push_back(value[static_cast<std::size_t>(head / 2 * 8 + d)]);
  const auto attended = times(tensors.at("layers.0.self_attn.o_proj.weight"), mixed);
  for (std::size_t i = 0; i < 32; ++i) residual[i] += attended[i];
  const auto normed = rms_normed(residual, tensors.at("layers.0.post_attention_layernorm.weight"), 1e-5);
  auto gate = times(tensors.at("layers.0.mlp.gate_proj.weight"), normed);
  const auto up = times(tensors.at("layers.0.mlp.up_proj.weight"), normed);
  for (std::size_t i = 0; i < gate.size(); ++i) gate[i] = apply(Activation::kSilu, gate[i]) * up[i];
  const auto down = times(tensors.at("layers.0.mlp.down_proj.weight"), gate);
  for (std::size_t i = 0; i < 32; ++i) residual[i] += down[i];
  const auto expected = times(tiny_.tensors.at("head"), residual);
  double largest = 0;
  for (const double logit : expected) largest = std::max(largest, std::abs(logit));
  const double tolerance = std::string(GetParam()) == "f32" ? 1e-5 : 3e-2;
  for (std::size_t i = 0; i < expected.size(); ++i)
    EXPECT_NEAR(got[i], expected[i], tolerance * largest) << i;
}

INSTANTIATE_TEST_SUITE_P(Backends, DecoderLayers, testing::Values("f32", "f32-kv16", "host-simt"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

// GGUF files name two families otherwise than transformers. The layers of a head are in the format of
// transformers for both.
TEST(DecoderLayersOf, ATargetFromGgufHasTheNamesOfTransformers) {
  const auto backend = make_cpu_backend({1, "f32"});
  for (const auto& [folder, layers, family] :
       {std::tuple{"pythia", "gpt_neox.layers.{}.", "gptneox"}, {"gemma3", "model.layers.{}.", "gemma3"}}) {
    const std::filesystem::path golden =
        std::filesystem::path(SPECLAB_SOURCE_DIR) / "tests/golden/families" / folder;
    ModelConfig config = decoder_layers_of(Checkpoint::open(golden).config());
    const HeadFile file = HeadFile::open(golden / "model.safetensors");
    EXPECT_NO_THROW(file.decoder_layers(backend, config, layers)) << config.family;
    EXPECT_NE(config.family, family);
    config.family = family;
    EXPECT_NO_THROW(file.decoder_layers(backend, config, layers)) << family;
    config.family = "nothing";
    EXPECT_THROW(file.decoder_layers(backend, config, layers), Error);
  }
}

TEST(DecoderLayersOf, NeedATargetWithLayers) {
  EXPECT_THROW(decoder_layers_of(markov_table(2, {1, 2, 3, 4}).config), Error);
}

}  // namespace
}  // namespace speclab::decoder_layers_test
