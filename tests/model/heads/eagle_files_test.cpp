#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <map>

#include "core/base/error.h"
#include "core/model/files/inflate.h"
#include "core/model/heads/eagle/eagle_head.h"
#include "tests/base/error_text.h"
#include "tests/model/heads/random_heads.h"

// Files of EAGLE and EAGLE-3 heads: what is read from the card or the published config.json, and what is
// refused with the tensor or key, what was found and what was expected.

namespace speclab::eagle_files_test {
namespace {

using namespace speclab::fixtures;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int kVocab = 64;  // of tiny_shape()

class EagleFiles : public testing::Test {
 protected:
  EagleFiles() {
    write_huggingface(dir_.path() / "target", tiny_);
    target_ = Model::load(Checkpoint::open(dir_.path() / "target"), make_cpu_backend({1, "f32"}), {});
  }
  std::filesystem::path folder() const { return dir_.path() / "head"; }
  // What loading says about a random head whose card and tensors were changed.
  template <class Change>
  std::string loaded(const RandomHead& shape, const Change& change) const {
    Json card = head_card("eagle", tiny_.config, shape);
    Tensors tensors = random_head_tensors("eagle", tiny_.config, shape);
    change(card, tensors);
    write_head_folder(folder(), card, tensors, shape.ids);
    return load();
  }
  std::string load() const {
    return message_of([&] { EagleHead(read_head_card(folder(), HeadKind::kEagle, *target_), target_); });
  }
  // Writes a published head.
  void publish(const Json& config, const Tensors& tensors, const std::vector<RawTensor>& more = {}) const {
    std::filesystem::remove_all(folder());
    std::filesystem::create_directories(folder());
    write_file(folder() / "config.json", config.dump());
    std::vector<RawTensor> raw = more;
    for (const auto& [name, tensor] : tensors)
      raw.push_back({name, "F32", tensor.shape, encode(tensor.values, "F32")});
    write_file(folder() / "model.safetensors", safetensors_file(raw));
  }
  Json config_of(const Json& more = Json::object()) const {
    Json config = {{"hidden_size", 32},        {"num_hidden_layers", 1},  {"num_attention_heads", 4},
                   {"num_key_value_heads", 2}, {"intermediate_size", 64}, {"rms_norm_eps", 1e-5},
                   {"vocab_size", 64},         {"hidden_act", "silu"},    {"max_position_embeddings", 16}};
    config.update(more);
    return config;
  }

  TempDir dir_;
  TinyModel tiny_ = random_llama(tiny_shape(), 5);
  std::shared_ptr<const Model> target_;
};

// The vocabulary map of a published head, for a target of `vocab` tokens.
std::vector<RawTensor> maps(const std::vector<std::int64_t>& offsets, const std::vector<int>& used,
                            int vocab = kVocab) {
  std::string bytes, marks(static_cast<std::size_t>(vocab), '\0');
  for (const std::int64_t offset : offsets) append(bytes, offset);
  for (const int token : used) marks[static_cast<std::size_t>(token)] = 1;
  return {{"d2t", "I64", {static_cast<std::int64_t>(offsets.size())}, bytes},
          {"t2d", "BOOL", {vocab}, marks}};
}

const auto nothing = [](Json&, Tensors&) {};
const RandomHead third{.version = 3, .ids = {1, 5, 7}};

TEST_F(EagleFiles, RefuseTensorsThatDoNotFit) {
  EXPECT_EQ(loaded({}, nothing), "no error");
  EXPECT_EQ(loaded(third, nothing), "no error");
  EXPECT_THAT(
      loaded({}, [](Json&, Tensors& tensors) { tensors.erase("fc.bias"); }),
      AllOf(HasSubstr("head.safetensors: tensor fc.bias"), HasSubstr("no such tensor"), HasSubstr("[32]")));
  EXPECT_THAT(loaded({}, [](Json&, Tensors& tensors) { tensors.erase("layers.0.self_attn.k_proj.weight"); }),
              AllOf(HasSubstr("tensor layers.0.self_attn.k_proj.weight"), HasSubstr("[16, 32]")));
  EXPECT_THAT(
      loaded({}, [](Json&, Tensors& tensors) { tensors.at("fc.weight").shape = {64, 32}; }),
      AllOf(HasSubstr("tensor fc.weight"), HasSubstr("got shape [64, 32]"), HasSubstr("expected [32, 64]")));
  // Queries, keys and values of EAGLE-3 read two vectors.
  EXPECT_THAT(loaded(third,
                     [](Json&, Tensors& tensors) {
                       TinyTensor& q = tensors.at("midlayer.self_attn.q_proj.weight");
                       q.shape = {64, 32};
                     }),
              AllOf(HasSubstr("tensor midlayer.self_attn.q_proj.weight"), HasSubstr("expected [32, 64]")));
  EXPECT_THAT(loaded(third, [](Json&, Tensors& tensors) { tensors.erase("midlayer.hidden_norm.weight"); }),
              AllOf(HasSubstr("tensor midlayer.hidden_norm.weight"), HasSubstr("[32]")));
  EXPECT_THAT(loaded(third, [](Json&, Tensors& tensors) { tensors.at("lm_head.weight").shape = {32, 3}; }),
              AllOf(HasSubstr("tensor lm_head.weight"), HasSubstr("expected [3, 32]")));
  for (const char* name :
       {"midlayer.self_attn.v_proj.weight", "midlayer.input_layernorm.weight", "fc.weight"}) {
    EXPECT_THAT(loaded(third,
                       [&](Json&, Tensors& tensors) {
                         tensors.at(name).values.back() = std::numeric_limits<float>::quiet_NaN();
                       }),
                AllOf(HasSubstr(name), HasSubstr("nan"), HasSubstr("finite")));
  }
}

TEST_F(EagleFiles, RefuseCardsThatDoNotFit) {
  const auto with = [&](const RandomHead& shape, const Json& changes) {
    return loaded(shape, [&](Json& card, Tensors&) { card.merge_patch(changes); });
  };
  EXPECT_THAT(with({}, {{"target", {{"layers", 3}}}}), AllOf(HasSubstr("layers"), HasSubstr("got 3")));
  EXPECT_THAT(with({}, {{"target", {{"hidden", 64}}}}), AllOf(HasSubstr("hidden"), HasSubstr("got 64")));
  EXPECT_THAT(with({}, {{"shape", {{"version", 2}}}}), AllOf(HasSubstr("version"), HasSubstr("1 or 3")));
  EXPECT_THAT(with({}, {{"shape", {{"version", nullptr}}}}), HasSubstr("version"));
  EXPECT_THAT(with(third, {{"taps", {0, 1}}}), AllOf(HasSubstr("taps"), HasSubstr("three states")));
  EXPECT_THAT(with(third, {{"taps", {0, 1, 3}}}), AllOf(HasSubstr("[0,1,3]"), HasSubstr("from 0 to 2")));
  EXPECT_THAT(with(third, {{"taps", nullptr}}), AllOf(HasSubstr("taps"), HasSubstr("got nothing")));
  EXPECT_THAT(with(third, {{"shape", {{"fc_bias", true}}}}), HasSubstr("fc_bias"));
  EXPECT_THAT(with({}, {{"vocabulary_map", "draft_vocab"}}), HasSubstr("vocabulary_map"));
  EXPECT_THAT(with({}, {{"shape", {{"layer", {{"num_attention_heads", 5}}}}}}),
              AllOf(HasSubstr("shape: layer: num_attention_heads"), HasSubstr("divisor of the width 32")));
}

TEST_F(EagleFiles, ReadPublishedHeads) {
  const Tensors tensors = random_head_tensors("eagle", tiny_.config, {});
  publish(config_of(), tensors);
  EXPECT_EQ(load(), "no error");
  const HeadCard card = read_head_card(folder(), HeadKind::kEagle, *target_);
  EXPECT_EQ(card.eagle.version, 1);
  EXPECT_EQ(card.eagle.taps, std::vector<int>{kFinalNorm});
  EXPECT_EQ(card.eagle.layer.rope_theta, 10'000);  // what the published code takes if nothing is stated
  EXPECT_EQ(card.eagle.layer.context, tiny_.config.context);
  publish(config_of({{"bias", false}, {"rope_theta", 500'000}}), tensors);
  EXPECT_EQ(load(), "no error");
  EXPECT_EQ(read_head_card(folder(), HeadKind::kEagle, *target_).eagle.layer.rope_theta, 500'000);
  publish(config_of({{"qkv_bias", true}}), tensors);
  EXPECT_THAT(load(), AllOf(HasSubstr("layers.0.self_attn.q_proj.bias"), HasSubstr("[32]")));
  for (const auto& [key, value] : std::map<std::string, Json>{{"hidden_size", 64},
                                                              {"vocab_size", 65},
                                                              {"num_hidden_layers", 2},
                                                              {"hidden_act", "gelu"},
                                                              {"attention_bias", true},
                                                              {"mlp_bias", true},
                                                              {"num_key_value_heads", 3},
                                                              {"head_dim", 7}}) {
    publish(config_of({{key, value}}), tensors);
    EXPECT_THAT(load(), AllOf(HasSubstr("config.json: " + key), HasSubstr(value.dump()))) << key;
  }
  publish(config_of({{"medusa_num_heads", 2}, {"num_hidden_layers", 2}}), tensors);
  EXPECT_THAT(load(), AllOf(HasSubstr("medusa"), HasSubstr("eagle")));
  // EAGLE-3 reads states of three layers, which this target does not have.
  publish(config_of({{"draft_vocab_size", 3}}), random_head_tensors("eagle", tiny_.config, third));
  EXPECT_THAT(load(), AllOf(HasSubstr("draft_vocab_size"), HasSubstr("at least 7 layers")));
}

TEST_F(EagleFiles, ReadPublishedHeadsOfThree) {
  Shape deep = tiny_shape();
  deep.layers = 8;
  write_huggingface(dir_.path() / "deep", random_llama(deep, 6));
  target_ = Model::load(Checkpoint::open(dir_.path() / "deep"), make_cpu_backend({1, "f32"}), {});
  const Tensors tensors = random_head_tensors("eagle", tiny_.config, third);
  const Json config = config_of({{"draft_vocab_size", 3}});
  publish(config, tensors, maps({1, 4, 5}, {1, 5, 7}));
  ASSERT_EQ(load(), "no error");
  const HeadCard card = read_head_card(folder(), HeadKind::kEagle, *target_);
  EXPECT_EQ(card.eagle.taps, (std::vector<int>{2, 4, 5}));
  EagleHead head(card, target_);
  EXPECT_EQ(std::vector<Token>(head.ids().begin(), head.ids().end()), (std::vector<Token>{1, 5, 7}));
  EXPECT_EQ(head.rows(), 3);

  publish(config, tensors, maps({1, 4, 62}, {1, 5}));
  EXPECT_THAT(load(),
              AllOf(HasSubstr("tensor d2t, element 2"), HasSubstr("got 64"), HasSubstr("from 0 to 63")));
  publish(config, tensors, maps({-1, 4, 5}, {5, 7}));
  EXPECT_THAT(load(), AllOf(HasSubstr("tensor d2t, element 0"), HasSubstr("got -1")));
  publish(config, tensors, maps({1, 0, 5}, {1, 7}));
  EXPECT_THAT(load(), AllOf(HasSubstr("tensor d2t, element 1"), HasSubstr("ascending")));
  publish(config, tensors, maps({1, 4, std::numeric_limits<std::int64_t>::max()}, {1, 5}));
  EXPECT_THAT(load(), HasSubstr("tensor d2t, element 2"));
  publish(config, tensors, maps({1, 4, 5}, {1, 5, 8}));
  EXPECT_THAT(load(), AllOf(HasSubstr("tensor t2d, element 7"), HasSubstr("got false")));
  publish(config, tensors, maps({1, 4, 5}, {1, 3, 5, 7}));
  EXPECT_THAT(load(), AllOf(HasSubstr("tensor t2d, element 3"), HasSubstr("got true")));
  publish(config, tensors, maps({1, 4}, {1, 5}));
  EXPECT_THAT(load(), AllOf(HasSubstr("tensor lm_head.weight"), HasSubstr("expected [2, 32]")));
  publish(config, tensors);
  EXPECT_THAT(load(), AllOf(HasSubstr("tensor d2t"), HasSubstr("no such tensor")));
  publish(config_of({{"draft_vocab_size", 3}, {"eagle_config", {{"x", 1}}}}), tensors);
  EXPECT_THAT(load(), AllOf(HasSubstr("eagle_config"), HasSubstr("head.json")));
}

// A twin with more ids than its original takes a head of the original, which knows nothing of these ids.
TEST_F(EagleFiles, PublishedHeadsOfThreeServeATwinWithMoreIds) {
  Shape deep = tiny_shape();
  deep.layers = 8;
  write_huggingface(dir_.path() / "deep", random_llama(deep, 6));
  Checkpoint checkpoint = Checkpoint::open(dir_.path() / "deep");
  checkpoint.inflate({.vocab = 100});
  target_ = Model::load(checkpoint, make_cpu_backend({1, "f32"}), {});
  const Tensors tensors = random_head_tensors("eagle", tiny_.config, third),
                whole = random_head_tensors("eagle", tiny_.config, {.version = 3});
  const Json reduced = config_of({{"draft_vocab_size", 3}});
  const auto ids_of = [&] {
    const EagleHead head(read_head_card(folder(), HeadKind::kEagle, *target_), target_);
    EXPECT_EQ(head.rows(), static_cast<int>(head.ids().size()));
    return std::vector<Token>(head.ids().begin(), head.ids().end());
  };
  publish(reduced, tensors, maps({1, 4, 5}, {1, 5, 7}));
  ASSERT_EQ(load(), "no error");
  EXPECT_EQ(ids_of(), (std::vector<Token>{1, 5, 7}));
  publish(config_of({{"draft_vocab_size", 3}, {"vocab_size", nullptr}}), tensors, maps({1, 4, 5}, {1, 5, 7}));
  EXPECT_EQ(load(), "no error");  // many heads do not state it
  publish(config_of({{"draft_vocab_size", 64}}), whole);
  ASSERT_EQ(load(), "no error");
  const std::vector<Token> all = ids_of();
  ASSERT_EQ(all.size(), 64u);
  for (std::size_t i = 0; i < all.size(); ++i) EXPECT_EQ(all[i], static_cast<Token>(i));
  // A head that was made for the twin itself.
  publish(config_of({{"draft_vocab_size", 3}, {"vocab_size", 100}}), tensors,
          maps({1, 4, 97}, {1, 5, 99}, 100));
  ASSERT_EQ(load(), "no error");
  EXPECT_EQ(ids_of(), (std::vector<Token>{1, 5, 99}));

  publish(reduced, tensors, maps({1, 4, 5}, {1, 5, 7}, 100));
  EXPECT_THAT(load(), AllOf(HasSubstr("tensor t2d"), HasSubstr("got BOOL [100]"), HasSubstr("BOOL [64]")));
  publish(reduced, tensors, maps({1, 4, 62}, {1, 5}));
  EXPECT_THAT(load(),
              AllOf(HasSubstr("tensor d2t, element 2"), HasSubstr("got 64"), HasSubstr("from 0 to 63")));
  publish(config_of({{"draft_vocab_size", 3}, {"vocab_size", 80}}), tensors, maps({1, 4, 5}, {1, 5, 7}));
  EXPECT_THAT(load(), AllOf(HasSubstr("vocab_size"), HasSubstr("got 80")));
}

}  // namespace
}  // namespace speclab::eagle_files_test
