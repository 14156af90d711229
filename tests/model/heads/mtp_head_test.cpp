#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <limits>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/model/heads/mtp/mtp_head.h"
#include "core/model/net/session.h"
#include "tests/base/error_text.h"
#include "tests/model/heads/random_heads.h"

// Modules for multi-token prediction: after any history of drafts and commits the cache of a module is that
// of a module that reads the text afresh, bit for bit; and what is refused with the tensor or key, what was
// found and what was expected. module_oracle_test.cpp compares the numbers.

namespace speclab::mtp_head_test {
namespace {

using namespace speclab::fixtures;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int kHidden = 32, kVocab = 64;  // of tiny_shape()

class MtpHeads : public testing::Test {
 protected:
  MtpHeads() {
    write_huggingface(dir_.path() / "target", tiny_);
    target_ = Model::load(Checkpoint::open(dir_.path() / "target"), make_cpu_backend({2, "f32"}), {});
  }
  std::filesystem::path folder() const { return dir_.path() / "head"; }
  MtpHead load() const { return MtpHead(read_head_card(folder(), HeadKind::kMtp, *target_), target_); }
  MtpHead made(const RandomHead& of) const {
    write_random_head(folder(), "mtp", tiny_.config, of);
    return load();
  }
  // What loading says about random modules whose card and tensors were changed.
  template <class Change>
  std::string loaded(const RandomHead& of, const Change& change) const {
    Json card = head_card("mtp", tiny_.config, of);
    Tensors tensors = random_head_tensors("mtp", tiny_.config, of);
    change(card, tensors);
    write_head_folder(folder(), card, tensors, of.ids);
    return message_of([&] { load(); });
  }

  TempDir dir_;
  TinyModel tiny_ = random_llama(tiny_shape(), 5);
  std::shared_ptr<const Model> target_;
};

TEST_F(MtpHeads, TheCacheIsThatOfAFreshStart) {
  MtpHead head = made({.blocks = 2});
  ASSERT_EQ(head.modules(), 2);
  HeadRunner run(target_);
  std::mt19937_64 random(7);
  const auto token = [&] { return static_cast<Token>(random() % kVocab); };
  HeadRows states, outputs, drafted, logits;
  // Reads pairs with a module and returns the logits of the last one. Commits the pairs if `keep`.
  const auto read = [&](Session& session, int module, const std::vector<float>& of_states,
                        const std::vector<Token>& tokens, bool keep) {
    const int count = static_cast<int>(tokens.size());
    std::vector<std::int32_t> parents(tokens.size());
    std::iota(parents.begin(), parents.end(), -1);
    std::vector<int> path(tokens.size());
    std::iota(path.begin(), path.end(), 0);
    const std::vector<std::int32_t> last{count - 1};
    run.put(of_states.data(), count, kHidden, states);
    head.forward(run, module, {session, tokens, states, parents, false, last}, outputs);
    if (keep) session.commit(path);
    head.logits(run, module, outputs, logits);
    std::vector<float> out(static_cast<std::size_t>(logits.width()));
    run.get(logits, out.data());
    return out;
  };
  for (int module = 0; module < 2; ++module) {
    const auto session = head.layer(module).open(128);
    std::vector<float> text_states;
    std::vector<Token> text;
    for (int round = 0; round < 6; ++round) {
      std::vector<Token> tokens(random() % 4 + 1), guesses{token(), token()};
      for (Token& each : tokens) each = token();
      const std::vector<float> more = random_rows(random, static_cast<int>(tokens.size()), kHidden),
                               guessed = random_rows(random, 2, kHidden);
      const std::vector<float> of_text = read(*session, module, more, tokens, true);
      text_states.insert(text_states.end(), more.begin(), more.end());
      text.insert(text.end(), tokens.begin(), tokens.end());
      const std::vector<float> of_draft = read(*session, module, guessed, guesses, false);
      EXPECT_EQ(session->length(), static_cast<int>(text.size())) << "a draft leaves nothing behind";
      const auto fresh = head.layer(module).open(128);
      ASSERT_EQ(of_text, read(*fresh, module, text_states, text, true)) << module << " " << round;
      ASSERT_EQ(of_draft, read(*fresh, module, guessed, guesses, false)) << module << " " << round;
      const auto blind = head.layer(module).open(128);  // read another state at position 0
      std::vector<float> other = text_states;
      other[0] += 1;
      read(*blind, module, other, text, true);
      EXPECT_NE(of_draft, read(*blind, module, guessed, guesses, false)) << "the cache does not matter";
    }
  }
}

TEST_F(MtpHeads, AReducedVocabularyHasAnOutputHeadOfItsOwn) {
  const std::vector<Token> ids{1, 5, 7, 40};
  const MtpHead head = made({.ids = ids});
  EXPECT_EQ(head.rows(), 4);
  EXPECT_EQ(std::vector<Token>(head.ids().begin(), head.ids().end()), ids);
  EXPECT_EQ(made({}).rows(), kVocab);
}

TEST_F(MtpHeads, TheCardSaysHowTheModulesAreJoined) {
  Json card = head_card("mtp", tiny_.config, {});
  const auto read = [&](const Json& changes) {
    Json changed = card;
    changed.merge_patch(changes);
    write_head_folder(folder(), changed, random_head_tensors("mtp", tiny_.config, {}));
    return read_head_card(folder(), HeadKind::kMtp, *target_).mtp;
  };
  const MtpForm usual = read(Json::object());
  EXPECT_EQ(usual.modules, 1);
  EXPECT_EQ(usual.tap, kFinalNorm);
  EXPECT_FALSE(usual.state_first || usual.passes_normed);
  EXPECT_EQ(usual.layer.heads, tiny_.config.heads);
  const MtpForm other = read({{"taps", {2}}, {"shape", {{"first", "state"}, {"passes_on", "normed"}}}});
  EXPECT_EQ(other.tap, 2);
  EXPECT_TRUE(other.state_first && other.passes_normed);
}

TEST_F(MtpHeads, RefuseCardsThatDoNotFit) {
  const auto with = [&](const Json& changes) {
    return loaded({}, [&](Json& card, Tensors&) { card.merge_patch(changes); });
  };
  EXPECT_EQ(with(Json::object()), "no error");
  EXPECT_THAT(with({{"target", {{"layers", 3}}}}), AllOf(HasSubstr("layers"), HasSubstr("got 3")));
  EXPECT_THAT(with({{"taps", {3}}}), AllOf(HasSubstr("taps"), HasSubstr("[3]"), HasSubstr("0 to 2")));
  EXPECT_THAT(with({{"taps", {1, 2}}}), AllOf(HasSubstr("taps"), HasSubstr("[1,2]")));
  EXPECT_THAT(with({{"shape", {{"modules", 0}}}}), AllOf(HasSubstr("modules"), HasSubstr("got 0")));
  EXPECT_THAT(with({{"shape", {{"first", "token"}}}}),
              AllOf(HasSubstr("shape: first"), HasSubstr("token"), HasSubstr("\"state\"")));
  EXPECT_THAT(with({{"shape", {{"passes_on", "logits"}}}}),
              AllOf(HasSubstr("passes_on"), HasSubstr("logits"), HasSubstr("\"normed\"")));
  const Json layer = layer_of_eagle();
  const auto with_layer = [&](const Json& changes) {
    Json keys = layer;
    keys.update(changes);
    return with({{"shape", {{"layer", keys}}}});
  };
  EXPECT_THAT(with_layer({{"n_routed_experts", 8}}),
              AllOf(HasSubstr("n_routed_experts"), HasSubstr("got 8"), HasSubstr("mixture of experts")));
  EXPECT_THAT(with_layer({{"num_experts", 4}}), HasSubstr("mixture of experts"));
  EXPECT_THAT(with_layer({{"kv_lora_rank", 512}}), AllOf(HasSubstr("kv_lora_rank"), HasSubstr("MLA")));
  EXPECT_THAT(with_layer({{"use_sliding_window", true}}), HasSubstr("use_sliding_window"));
  EXPECT_THAT(with_layer({{"rope_theta", nullptr}}), HasSubstr("rope_theta"));
  EXPECT_THAT(with_layer({{"hidden_act", "gelu"}}), AllOf(HasSubstr("hidden_act"), HasSubstr("silu")));
  std::filesystem::remove_all(folder());
  std::filesystem::create_directories(folder());
  write_file(folder() / "config.json", Json{{"num_nextn_predict_layers", 1}}.dump());
  EXPECT_THAT(message_of([&] { load(); }), AllOf(HasSubstr("config.json"), HasSubstr("convert_head.py")));
}

TEST_F(MtpHeads, RefuseTensorsThatDoNotFit) {
  EXPECT_THAT(
      loaded({.blocks = 2}, [](Json&, Tensors& tensors) { tensors.erase("layers.1.enorm.weight"); }),
      AllOf(HasSubstr("head.safetensors: tensor layers.1.enorm.weight"), HasSubstr("no such tensor")));
  EXPECT_THAT(
      loaded({}, [](Json&, Tensors& tensors) { tensors.at("layers.0.eh_proj.weight").shape = {64, 32}; }),
      AllOf(HasSubstr("layers.0.eh_proj.weight"), HasSubstr("got shape [64, 32]"), HasSubstr("[32, 64]")));
  EXPECT_THAT(
      loaded({}, [](Json&, Tensors& tensors) { tensors.erase("layers.0.post_attention_layernorm.weight"); }),
      AllOf(HasSubstr("layers.0.post_attention_layernorm.weight"), HasSubstr("no such tensor")));
  EXPECT_THAT(loaded({},
                     [](Json&, Tensors& tensors) {
                       tensors.at("layers.0.shared_head.norm.weight").values[3] =
                           std::numeric_limits<float>::quiet_NaN();
                     }),
              AllOf(HasSubstr("layers.0.shared_head.norm.weight"), HasSubstr("nan"), HasSubstr("finite")));
  // Layers with experts or latent attention have tensors that a dense layer does not have.
  for (const auto& [name, reason] : std::vector<std::pair<std::string, std::string>>{
           {"layers.0.mlp.gate.weight", "mixture of experts"},
           {"layers.0.mlp.experts.0.gate_proj.weight", "mixture of experts"},
           {"layers.0.self_attn.kv_a_proj_with_mqa.weight", "latent attention"}}) {
    const std::string& tensor = name;
    EXPECT_THAT(
        loaded({}, [&](Json&, Tensors& tensors) { tensors[tensor] = tensors.at("layers.0.enorm.weight"); }),
        AllOf(HasSubstr(name), HasSubstr(reason)));
  }
}

}  // namespace
}  // namespace speclab::mtp_head_test
