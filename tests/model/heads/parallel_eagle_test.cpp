#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/model/heads/eagle/parallel_eagle_head.h"
#include "core/model/net/session.h"
#include "tests/base/error_text.h"
#include "tests/model/heads/random_heads.h"

// Heads of P-EAGLE: what the logits of masks depend on, which embedding is read, and what is refused with the
// file, the tensor, what was found and what was expected. module_oracle_test.cpp compares the numbers.

namespace speclab::parallel_eagle_test {
namespace {

using namespace speclab::fixtures;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int kVocab = 64;  // of tiny_shape()

class ParallelEagleHeads : public testing::Test {
 protected:
  ParallelEagleHeads() {
    write_huggingface(dir_.path() / "target", tiny_);
    target_ = Model::load(Checkpoint::open(dir_.path() / "target"), make_cpu_backend({2, "f32"}), {});
    run_ = std::make_unique<HeadRunner>(target_);
  }
  std::filesystem::path folder() const { return dir_.path() / "head"; }
  HeadCard card() const { return read_head_card(folder(), HeadKind::kParallelEagle, *target_); }
  ParallelEagleHead load() const { return ParallelEagleHead(card(), target_); }
  ParallelEagleHead made(const RandomHead& of) const {
    write_random_head(folder(), "parallel_eagle", tiny_.config, of);
    return load();
  }
  std::vector<float> draft(ParallelEagleHead& head, Session& session, const std::vector<float>& states,
                           const std::vector<Token>& after, int wanted) {
    HeadRows rows;
    head.draft(*run_, session, states.data(), after, wanted, rows);
    std::vector<float> out(static_cast<std::size_t>(wanted) * static_cast<std::size_t>(head.rows()));
    run_->get(rows, out.data());
    return out;
  }
  // What loading says about a random head whose card and tensors were changed.
  template <class Change>
  std::string loaded(const RandomHead& of, const Change& change) const {
    Json changed = head_card("parallel_eagle", tiny_.config, of);
    Tensors tensors = random_head_tensors("parallel_eagle", tiny_.config, of);
    change(changed, tensors);
    write_head_folder(folder(), changed, tensors, of.ids);
    return message_of([&] { load(); });
  }

  TempDir dir_;
  TinyModel tiny_ = random_llama(tiny_shape(), 5);
  std::shared_ptr<const Model> target_;
  std::unique_ptr<HeadRunner> run_;
};

// After any history, the logits are those of a head that reads the text afresh, and fewer masks have the same
// logits as the first of more masks.
TEST_F(ParallelEagleHeads, TheLogitsDependOnTheTextAlone) {
  for (const RandomHead& of : {RandomHead{}, RandomHead{.heads = 4, .blocks = 2, .ids = {1, 5, 7, 40, 41}}}) {
    SCOPED_TRACE(of.blocks);
    ParallelEagleHead head = made(of);
    EXPECT_EQ(head.count(), of.heads);
    EXPECT_EQ(head.rows(), of.ids.empty() ? kVocab : 5);
    std::mt19937_64 random(7);
    const auto session = head.layers().open(128);
    std::vector<float> text_states;
    std::vector<Token> text;
    for (int round = 0; round < 6; ++round) {
      std::vector<Token> tokens(random() % 4 + 1);
      for (Token& each : tokens) each = static_cast<Token>(random() % kVocab);
      const std::vector<float> states =
          random_rows(random, static_cast<int>(tokens.size()), head.state_width());
      text_states.insert(text_states.end(), states.begin(), states.end());
      text.insert(text.end(), tokens.begin(), tokens.end());
      const std::vector<float> all = draft(head, *session, states, tokens, head.count());
      EXPECT_EQ(session->length(), static_cast<int>(text.size())) << "masks leave nothing behind";
      const auto fresh = head.layers().open(128), shorter = head.layers().open(128);
      ASSERT_EQ(draft(head, *fresh, text_states, text, head.count()), all) << round;
      const std::vector<float> one = draft(head, *shorter, text_states, text, 1);
      ASSERT_TRUE(std::equal(one.begin(), one.end(), all.begin())) << round;
      const auto blind = head.layers().open(128);  // read another state at position 0
      std::vector<float> other = text_states;
      other[0] += 1;
      EXPECT_NE(draft(head, *blind, other, text, head.count()), all) << "the cache does not matter";
    }
  }
}

// The first token is that of EAGLE-3 with the same tensors and the target's embedding.
TEST_F(ParallelEagleHeads, WithoutAMaskAHeadIsThatOfEagle) {
  Tensors tensors = random_head_tensors("parallel_eagle", tiny_.config, {});
  tensors.erase("embed_tokens.weight");
  const Json own = head_card("parallel_eagle", tiny_.config, {});
  write_head_folder(folder(), own, tensors);
  ParallelEagleHead head = load();
  const std::vector<Token> after{3, 9, 60};
  std::mt19937_64 random(4);
  const std::vector<float> states = random_rows(random, 3, head.state_width());
  const std::vector<float> got = draft(head, *head.layers().open(32), states, after, 1);

  Json card = head_card("eagle", tiny_.config, {.version = 3});
  card["taps"] = own["taps"];
  write_head_folder(folder(), card, tensors);
  EagleHead eagle(read_head_card(folder(), HeadKind::kEagle, *target_), target_);
  HeadRows rows, features, predicted, logits;
  run_->put(states.data(), 3, eagle.state_width(), rows);
  eagle.features(*run_, rows, features);
  const auto session = eagle.layer().open(32);
  const std::vector<std::int32_t> parents{-1, 0, 1}, last{2};
  eagle.forward(*run_, {*session, after, features, parents, false, last}, predicted);
  eagle.logits(*run_, predicted, logits);
  std::vector<float> expected(static_cast<std::size_t>(kVocab));
  run_->get(logits, expected.data());
  EXPECT_EQ(got, expected);

  // With an embedding of its own, the head reads that one.
  ParallelEagleHead with_embedding = made({});
  EXPECT_NE(draft(with_embedding, *with_embedding.layers().open(32), states, after, 1), expected);
}

TEST_F(ParallelEagleHeads, RefuseCardsThatDoNotFit) {
  const auto with = [&](const Json& changes) {
    return loaded({}, [&](Json& changed, Tensors&) { changed.merge_patch(changes); });
  };
  EXPECT_EQ(with(Json::object()), "no error");
  EXPECT_THAT(with({{"taps", {0, 1}}}), AllOf(HasSubstr("taps"), HasSubstr("three states")));
  EXPECT_THAT(with({{"shape", {{"heads", 17}}}}), AllOf(HasSubstr("heads"), HasSubstr("got 17")));
  EXPECT_THAT(with({{"shape", {{"mask_token_id", 64}}}}),
              AllOf(HasSubstr("mask_token_id"), HasSubstr("got 64"), HasSubstr("from 0 to 63")));
  EXPECT_THAT(with({{"shape", {{"layers", 2}}}}),
              AllOf(HasSubstr("tensor layers.1.input_layernorm.weight"), HasSubstr("no such tensor")));
  EXPECT_THAT(with({{"target", {{"hidden", 64}}}}), AllOf(HasSubstr("hidden"), HasSubstr("got 64")));
}

TEST_F(ParallelEagleHeads, RefuseTensorsThatDoNotFit) {
  EXPECT_THAT(loaded({}, [](Json&, Tensors& tensors) { tensors.erase("mask_hidden"); }),
              AllOf(HasSubstr("tensor mask_hidden"), HasSubstr("no such tensor"), HasSubstr("[1, 96]")));
  EXPECT_THAT(loaded({}, [](Json&, Tensors& tensors) { tensors.at("mask_hidden").shape = {3, 32}; }),
              AllOf(HasSubstr("tensor mask_hidden"), HasSubstr("got shape [3, 32]"), HasSubstr("[1, 96]")));
  EXPECT_THAT(loaded({},
                     [](Json&, Tensors& tensors) {
                       tensors.at("mask_hidden").values[7] = std::numeric_limits<float>::infinity();
                     }),
              AllOf(HasSubstr("mask_hidden"), HasSubstr("inf"), HasSubstr("finite")));
  EXPECT_THAT(loaded({}, [](Json&, Tensors& tensors) { tensors.at("embed_tokens.weight").shape = {32, 64}; }),
              AllOf(HasSubstr("embed_tokens.weight"), HasSubstr("[64, 32]")));
}

// The config.json of a published head, for a target of eight layers.
TEST_F(ParallelEagleHeads, PublishedHeadsSayWhatTheyRead) {
  Shape deep = tiny_shape();
  deep.layers = 8;
  write_huggingface(dir_.path() / "deep", random_llama(deep, 6));
  target_ = Model::load(Checkpoint::open(dir_.path() / "deep"), make_cpu_backend({1, "f32"}), {});
  const Json config = {{"hidden_size", 32},        {"num_hidden_layers", 2},  {"num_attention_heads", 4},
                       {"num_key_value_heads", 2}, {"intermediate_size", 64}, {"rms_norm_eps", 1e-5},
                       {"vocab_size", 64},         {"ptd_token_id", 3}};
  const auto read = [&](const Json& changes) {
    Json changed = config;
    changed.update(changes);
    std::filesystem::remove_all(folder());
    std::filesystem::create_directories(folder());
    write_file(folder() / "config.json", changed.dump());
    write_head(folder() / "model.safetensors",
               random_head_tensors("parallel_eagle", tiny_.config, {.blocks = 2}), "F32");
    return card();
  };
  const HeadCard usual = read(Json::object());
  EXPECT_TRUE(usual.published);
  EXPECT_EQ(usual.eagle.parallel, 8);
  EXPECT_EQ(usual.eagle.mask, 3);
  EXPECT_EQ(usual.eagle.taps, (std::vector<int>{2, 4, 5}));
  EXPECT_EQ(usual.eagle.layer.layers, 2);
  EXPECT_EQ(usual.vocabulary_map, "");
  EXPECT_EQ(ParallelEagleHead(usual, target_).rows(), kVocab);
  EXPECT_EQ(read({{"para_num", 4}}).eagle.parallel, 4);
  EXPECT_EQ(read({{"draft_vocab_size", 5}}).vocabulary_map, "d2t");
  EXPECT_TRUE(read({{"attention_bias", true}}).eagle.layer.attn_out_bias);
  EXPECT_THAT(message_of([&] { read({{"ptd_token_id", 64}}); }),
              AllOf(HasSubstr("ptd_token_id"), HasSubstr("got 64")));
  EXPECT_THAT(message_of([&] { read({{"norm_before_residual", true}}); }),
              AllOf(HasSubstr("norm_before_residual"), HasSubstr("false")));
  EXPECT_THAT(message_of([&] { read({{"eagle_aux_hidden_state_layer_ids", {1, 2, 3}}}); }),
              AllOf(HasSubstr("eagle_aux_hidden_state_layer_ids"), HasSubstr("head.json")));
  read(Json::object());
  EXPECT_THAT(message_of([&] { read_head_card(folder(), HeadKind::kEagle, *target_); }),
              AllOf(HasSubstr("heads of the kind parallel_eagle"), HasSubstr("eagle")));
}

}  // namespace
}  // namespace speclab::parallel_eagle_test
