#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "core/base/error.h"
#include "core/model/heads/head_card.h"
#include "core/model/heads/hydra_heads.h"
#include "core/model/heads/medusa_heads.h"
#include "core/model/heads/mlp_speculator_heads.h"
#include "tests/base/error_text.h"
#include "tests/model/heads/random_heads.h"

// Cards of heads: what is read, and what is refused with the file, what was found and what was expected.

namespace speclab::head_card_test {
namespace {

using namespace speclab::fixtures;
using ::testing::AllOf;
using ::testing::HasSubstr;

class HeadCards : public testing::Test {
 protected:
  HeadCards() {
    write_huggingface(dir_.path() / "target", tiny_);
    target_ = Model::load(Checkpoint::open(dir_.path() / "target"), make_cpu_backend({1, "f32"}), {});
  }
  std::filesystem::path folder() const { return dir_.path() / "head"; }
  HeadCard read(HeadKind kind = HeadKind::kMedusa) const { return read_head_card(folder(), kind, *target_); }
  // A good head of Medusa whose card was changed.
  std::string refused(const Json& changes) const {
    Json card = head_card("medusa", tiny_.config, {});
    card.merge_patch(changes);
    write_head_folder(folder(), card, random_head_tensors("medusa", tiny_.config, {}));
    return message_of([&] { MedusaHeads(read(), *target_); });
  }

  TempDir dir_;
  TinyModel tiny_ = random_llama(tiny_shape(), 5);
  std::shared_ptr<const Model> target_;
};

TEST_F(HeadCards, SayWhatTheHeadReadsAndHowItDrafts) {
  Json card = head_card("hydra", tiny_.config, {.heads = 2, .prefix = true});
  card["target"]["embedding_sha256"] = target_->embedding_sha256();
  card["taps"] = {1};
  card["tree"] = {{0}, {1}, {0, 2}};
  card["vocabulary_map"] = "draft_vocab";
  write_head_folder(folder(), card, {});
  const HeadCard got = read(HeadKind::kHydra);
  EXPECT_EQ(got.weights, folder() / "head.safetensors");
  EXPECT_EQ(got.tap, 1);
  EXPECT_EQ(got.heads, 2);
  EXPECT_EQ(got.blocks, 1);
  EXPECT_TRUE(got.prefix_attention);
  EXPECT_EQ(got.vocabulary_map, "draft_vocab");
  EXPECT_EQ(got.tree, (IndexPaths{{0}, {1}, {0, 2}}));
  EXPECT_FALSE(got.published);
  EXPECT_EQ(read_head_card(folder() / "head.json", HeadKind::kHydra, *target_).weights, got.weights);
}

TEST_F(HeadCards, RefuseAnotherTarget) {
  EXPECT_EQ(refused(Json::object()), "no error");
  const std::string card = (folder() / "head.json").string();
  EXPECT_THAT(refused({{"target", {{"layers", 3}}}}),
              AllOf(HasSubstr(card), HasSubstr("layers"), HasSubstr("got 3"), HasSubstr("expected 2"),
                    HasSubstr("tiny")));
  EXPECT_THAT(refused({{"target", {{"hidden", 64}}}}),
              AllOf(HasSubstr("hidden"), HasSubstr("got 64"), HasSubstr("expected 32")));
  EXPECT_THAT(refused({{"target", {{"vocab", 63}}}}),
              AllOf(HasSubstr("vocab"), HasSubstr("got 63"), HasSubstr("expected 64")));
  EXPECT_THAT(refused({{"target", {{"embedding_sha256", std::string(64, 'a')}}}}),
              AllOf(HasSubstr("embedding_sha256"), HasSubstr("aaaa"),
                    HasSubstr(target_->embedding_sha256().substr(0, 16))));
  EXPECT_THAT(refused({{"target", {{"embedding_sha256", "short"}}}}), HasSubstr("64 lower-case"));
  EXPECT_THAT(refused({{"target", {{"layers", nullptr}}}}), AllOf(HasSubstr("layers"), HasSubstr("nothing")));
}

TEST_F(HeadCards, RefuseImpossibleMembers) {
  EXPECT_THAT(refused({{"format", "speclab head 9"}}), HasSubstr("\"speclab head 1\""));
  EXPECT_THAT(refused({{"kind", "oracle"}}), AllOf(HasSubstr("kind"), HasSubstr("oracle")));
  EXPECT_THAT(refused({{"kind", "hydra"}}), AllOf(HasSubstr("hydra"), HasSubstr("medusa")));
  EXPECT_THAT(refused({{"taps", {3}}}), AllOf(HasSubstr("taps"), HasSubstr("[3]"), HasSubstr("0 to 2")));
  EXPECT_THAT(refused({{"taps", {1, 2}}}), AllOf(HasSubstr("taps"), HasSubstr("[1,2]")));
  EXPECT_THAT(refused({{"shape", {{"heads", 0}}}}), AllOf(HasSubstr("shape: heads"), HasSubstr("got 0")));
  EXPECT_THAT(refused({{"tree", {{0}, {-1}}}}), AllOf(HasSubstr("tree/1"), HasSubstr("[-1]")));
  EXPECT_THAT(refused({{"tree", Json::array()}}), AllOf(HasSubstr("tree"), HasSubstr("0 paths")));
  EXPECT_THAT(refused({{"weights", "../head.safetensors"}}), HasSubstr("weights"));
}

TEST_F(HeadCards, RefuseWeightsThatDoNotFit) {
  EXPECT_THAT(refused({{"shape", {{"heads", 4}}}}),
              AllOf(HasSubstr("head.safetensors: tensor 3.0.linear.weight"), HasSubstr("no such tensor"),
                    HasSubstr("[32, 32]")));
  EXPECT_THAT(refused({{"shape", {{"blocks", 0}}}}),
              AllOf(HasSubstr("tensor 0.0.weight"), HasSubstr("no such tensor"), HasSubstr("[64, 32]")));
  const Json card = head_card("medusa", tiny_.config, {});
  Tensors tensors = random_head_tensors("medusa", tiny_.config, {});
  const auto loaded = [&](const std::vector<Token>& ids = {}) {
    Json with_map = card;
    if (!ids.empty()) with_map["vocabulary_map"] = "draft_vocab";
    write_head_folder(folder(), with_map, tensors, ids);
    return message_of([&] { MedusaHeads(read(), *target_); });
  };
  tensors.at("1.1.weight").shape = {32, 64};
  EXPECT_THAT(loaded(), AllOf(HasSubstr("tensor 1.1.weight"), HasSubstr("got shape [32, 64]"),
                              HasSubstr("expected [64, 32]")));
  tensors.at("1.1.weight").shape = {64, 32};
  EXPECT_THAT(loaded({2, 64}), AllOf(HasSubstr("tensor draft_vocab, element 1"), HasSubstr("got 64"),
                                     HasSubstr("from 0 to 63")));
  EXPECT_THAT(loaded({-1, 3}), AllOf(HasSubstr("draft_vocab, element 0"), HasSubstr("got -1")));
  EXPECT_THAT(loaded({5, 5}), AllOf(HasSubstr("draft_vocab, element 1"), HasSubstr("ascending")));
  EXPECT_THAT(loaded({5, 6}), AllOf(HasSubstr("tensor 0.1.weight"), HasSubstr("expected [2, 32]")));
  tensors.at("2.0.linear.weight").values[7] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THAT(loaded(), AllOf(HasSubstr("tensor 2.0.linear.weight"), HasSubstr("nan"), HasSubstr("finite")));
}

TEST_F(HeadCards, RefuseFilesOfPyTorch) {
  std::filesystem::create_directories(folder());
  write_file(folder() / "config.json", Json{{"medusa_num_heads", 2}}.dump());
  write_file(folder() / "medusa_lm_head.pt", "a pickle");
  const std::string convert = "scripts/models/convert_head.py";
  EXPECT_THAT(message_of([&] { read(); }), AllOf(HasSubstr("medusa_lm_head.pt"), HasSubstr(convert)));
  EXPECT_THAT(message_of([&] { read_head_card(folder() / "x.pt", HeadKind::kMedusa, *target_); }),
              AllOf(HasSubstr("x.pt"), HasSubstr(convert)));
  EXPECT_THAT(refused({{"weights", "head.bin"}}), AllOf(HasSubstr("head.bin"), HasSubstr(convert)));
}

TEST_F(HeadCards, RefusePathsWithoutACard) {
  EXPECT_THAT(message_of([&] { read(); }), AllOf(HasSubstr(folder().string()), HasSubstr("no such folder")));
  std::filesystem::create_directories(folder());
  EXPECT_THAT(message_of([&] { read(); }), HasSubstr("neither head.json nor config.json"));
  write_head_folder(folder(), Json::object(), {});
  EXPECT_THAT(message_of([&] { read(); }), HasSubstr("medusa_num_heads"));
  EXPECT_THAT(message_of([&] { read_head_card(folder() / "head.safetensors", HeadKind::kMedusa, *target_); }),
              HasSubstr("Name the folder"));
}

// Published heads have config.json and their own names of files.
TEST_F(HeadCards, ReadPublishedHeads) {
  const auto publish = [&](const Json& config, const char* file, const Tensors& tensors) {
    std::filesystem::remove_all(folder());
    std::filesystem::create_directories(folder());
    write_file(folder() / "config.json", config.dump());
    write_head(folder() / file, tensors, "F32");
  };
  const RandomHead shape{.heads = 3, .blocks = 1};
  // The number of heads comes from the file.
  const Tensors medusa = random_head_tensors("medusa", tiny_.config, shape);
  publish({{"medusa_num_heads", 2}, {"medusa_num_layers", 1}}, "medusa_lm_head.safetensors", medusa);
  EXPECT_EQ(MedusaHeads(read(), *target_).count(), 3);
  Tensors prefixed;
  for (const auto& [name, tensor] : medusa) prefixed["medusa_head." + name] = tensor;
  publish({{"medusa_num_heads", 3}, {"hidden_size", 32}, {"num_hidden_layers", 2}}, "model.safetensors",
          prefixed);
  EXPECT_EQ(MedusaHeads(read(), *target_).count(), 3);
  publish({{"medusa_num_heads", 3}, {"num_hidden_layers", 4}}, "model.safetensors", prefixed);
  EXPECT_THAT(message_of([&] { read(); }), AllOf(HasSubstr("num_hidden_layers"), HasSubstr("got 4")));

  Json hydra = {{"hydra_num_heads", 3},
                {"hydra_num_layers", 1},
                {"hydra_head_arch", "mlp"},
                {"grounded_heads", true},
                {"hidden_state_offset", 1}};
  const Tensors of_hydra = random_head_tensors("hydra", tiny_.config, shape);
  publish(hydra, "hydra_lm_head.safetensors", of_hydra);
  EXPECT_EQ(read(HeadKind::kHydra).tap, 1);  // one layer before the last
  EXPECT_EQ(HydraHeads(read(HeadKind::kHydra), target_).count(), 3);
  hydra["grounded_heads"] = false;
  publish(hydra, "hydra_lm_head.safetensors", of_hydra);
  EXPECT_THAT(message_of([&] { read(HeadKind::kHydra); }), HasSubstr("grounded_heads"));
  hydra.update({{"grounded_heads", true}, {"hydra_head_arch", "eagle-attn"}});
  publish(hydra, "hydra_lm_head.safetensors", of_hydra);
  EXPECT_THAT(message_of([&] { read(HeadKind::kHydra); }), HasSubstr("eagle-attn"));

  Json speculator = {{"n_predict", 3},
                     {"emb_dim", 32},
                     {"inner_dim", 0},
                     {"vocab_size", 64},
                     {"model_type", "mlp_speculator"},
                     {"scale_input", true}};
  RandomHead of_width = shape;
  of_width.inner = 32;
  Tensors named;
  for (const auto& [name, tensor] : random_head_tensors("mlp_speculator", tiny_.config, of_width))
    named["speculator." + name] = tensor;
  publish(speculator, "model.safetensors", named);
  const HeadCard card = read(HeadKind::kMlpSpeculator);
  EXPECT_EQ(card.inner, 32);
  EXPECT_TRUE(card.scale_input);
  EXPECT_EQ(MlpSpeculatorHeads(card, *target_).count(), 3);
  speculator["emb_dim"] = 48;
  publish(speculator, "model.safetensors", named);
  EXPECT_THAT(message_of([&] { read(HeadKind::kMlpSpeculator); }),
              AllOf(HasSubstr("emb_dim"), HasSubstr("got 48"), HasSubstr("expected 32")));
}

}  // namespace
}  // namespace speclab::head_card_test
