#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/model/heads/block_head.h"
#include "core/model/heads/pass_embeddings.h"
#include "tests/base/error_text.h"
#include "tests/model/heads/random_heads.h"

// Block drafts and look-ahead embeddings: what the logits of a block depend on, and what is refused with the
// file, the tensor, what was found and what was expected. block_oracle_test.cpp compares the numbers.

namespace speclab::block_head_test {
namespace {

using namespace speclab::fixtures;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int kWidth = 32;  // of tiny_shape()

class BlockHeads : public testing::Test {
 protected:
  BlockHeads() {
    write_huggingface(dir_.path() / "target", tiny_);
    target_ = Model::load(Checkpoint::open(dir_.path() / "target"), make_cpu_backend({2, "f32"}), {});
  }
  std::filesystem::path folder() const { return dir_.path() / "head"; }
  HeadCard card_of(const std::string& kind, const RandomHead& of = {}) const {
    write_random_head(folder(), kind, tiny_.config, of);
    return read_head_card(folder(), kind == "pass" ? HeadKind::kPass : HeadKind::kBlockDraft, *target_);
  }
  void extend(BlockHead& head, BlockHead::Context& context, int first, int count) {
    const std::size_t at = static_cast<std::size_t>(first) * kWidth;
    const std::vector<const float*> states{a_.data() + at, b_.data() + at};
    head.extend(run_, context, states, count);
  }
  std::vector<float> logits(BlockHead& head, BlockHead::Context& context, Token pending, int wanted) {
    HeadRows rows;
    head.logits(run_, context, pending, wanted, rows);
    std::vector<float> out(static_cast<std::size_t>(wanted) * static_cast<std::size_t>(head.rows()));
    run_.get(rows, out.data());
    return out;
  }
  // A good head whose card, and perhaps tensors, were changed.
  std::string refused(const std::string& kind, const Json& changes, const Tensors& other = {}) {
    Json card = head_card(kind, tiny_.config, {});
    card.merge_patch(changes);
    Tensors tensors = random_head_tensors(kind, tiny_.config, {});
    for (const auto& [name, tensor] : other) tensors[name] = tensor;
    write_head_folder(folder(), card, tensors);
    return message_of([&] {
      if (kind == "pass") PassEmbeddings(read_head_card(folder(), HeadKind::kPass, *target_), *target_);
      else BlockHead(read_head_card(folder(), HeadKind::kBlockDraft, *target_), target_, 16);
    });
  }
  static TinyTensor tensor(std::vector<std::int64_t> shape) {
    std::mt19937_64 random(2);
    return random_tensor(random, std::move(shape), 0, 1);
  }

  TempDir dir_;
  TinyModel tiny_ = random_llama(tiny_shape(), 5);
  std::shared_ptr<const Model> target_;
  HeadRunner run_{nullptr};
  std::vector<float> a_, b_;  // states of both taps, of 200 positions

  void SetUp() override {
    run_ = HeadRunner(target_);
    std::mt19937_64 random(3);
    a_ = random_rows(random, 200, kWidth);
    b_ = random_rows(random, 200, kWidth);
  }
};

TEST_F(BlockHeads, TheLogitsDependOnTheTextAlone) {
  BlockHead head(card_of("block_draft", {.heads = 4, .blocks = 2}), target_, 256);
  BlockHead::Context once = head.open(), bit_by_bit = head.open();
  extend(head, once, 0, 200);  // more positions than are added at once
  for (int at = 0; at < 200;) {
    const int count = std::min(1 + at % 7, 200 - at);
    extend(head, bit_by_bit, at, count);
    at += count;
    if (at % 3 == 0) logits(head, bit_by_bit, at % 64, 4);  // leaves no trace
  }
  EXPECT_EQ(once.length(), 200);
  const std::vector<float> all = logits(head, once, 9, 4), again = logits(head, bit_by_bit, 9, 4),
                           two = logits(head, bit_by_bit, 9, 2);
  EXPECT_EQ(again, all);
  ASSERT_EQ(two.size(), all.size() / 2);
  EXPECT_TRUE(std::equal(two.begin(), two.end(), all.begin()));
  EXPECT_NE(logits(head, once, 10, 4), all);
  once.clear();
  extend(head, once, 0, 199);
  extend(head, once, 0, 1);  // another state at the last position
  EXPECT_NE(logits(head, once, 9, 4), all);
}

// Each masked position sees the others: with one more of them the first logits change.
TEST_F(BlockHeads, AttentionGoesInBothDirections) {
  const Tensors tensors = random_head_tensors("block_draft", tiny_.config, {.heads = 2});
  std::vector<std::vector<float>> first;
  for (const int heads : {2, 3}) {
    write_head_folder(folder(), head_card("block_draft", tiny_.config, {.heads = heads}), tensors);
    BlockHead head(read_head_card(folder(), HeadKind::kBlockDraft, *target_), target_, 16);
    BlockHead::Context context = head.open();
    extend(head, context, 0, 5);
    first.push_back(logits(head, context, 9, 1));
  }
  EXPECT_NE(first[0], first[1]);
}

// A mask query stands where the embedding of the mask token would stand. So queries that are embeddings of
// tokens give the logits of heads with these tokens as the mask.
TEST_F(BlockHeads, MaskQueriesStandInPlaceOfTheMask) {
  const RandomHead shape{.heads = 3, .blocks = 2};
  Tensors tensors = random_head_tensors("block_draft", tiny_.config, shape);
  const auto logits_with = [&](const Json& changes) {
    Json card = head_card("block_draft", tiny_.config, shape);
    card.merge_patch({{"shape", changes}});
    write_head_folder(folder(), card, tensors);
    BlockHead head(read_head_card(folder(), HeadKind::kBlockDraft, *target_), target_, 64);
    BlockHead::Context context = head.open();
    extend(head, context, 0, 20);
    return logits(head, context, 9, 3);
  };
  const auto with_mask = [&](Token mask) { return logits_with({{"mask_token_id", mask}}); };
  const auto with_queries = [&](const std::vector<Token>& tokens) {
    TinyTensor rows{{3, kWidth}, std::vector<float>(3 * kWidth)};
    target_->embed(tokens, rows.values.data());
    tensors["mask_queries.weight"] = rows;
    return logits_with({{"mask_token_id", nullptr}, {"mask_queries", true}});
  };
  const std::vector<Token> different{7, 11, 30};
  EXPECT_EQ(with_queries({7, 7, 7}), with_mask(7));
  const std::vector<float> all = with_queries(different);
  for (const auto& [other, changed] : {std::pair{std::vector<Token>{8, 11, 30}, 0}, {{7, 12, 30}, 1}}) {
    const std::vector<float> got = with_queries(other);
    EXPECT_NE(got, all) << "query " << changed << " changes nothing";
  }
  // Without attention, each position depends on its own query alone.
  for (const char* layer : {"layers.0.", "layers.1."})
    std::ranges::fill(tensors.at(std::string(layer) + "self_attn.o_proj.weight").values, 0.f);
  const std::vector<float> apart = with_queries(different);
  const auto width = static_cast<std::ptrdiff_t>(apart.size() / 3);
  for (std::size_t place = 0; place < 3; ++place) {
    const std::vector<float> alike = with_mask(different[place]);
    const std::ptrdiff_t at = static_cast<std::ptrdiff_t>(place) * width;
    EXPECT_TRUE(std::equal(apart.begin() + at, apart.begin() + at + width, alike.begin() + at)) << place;
  }
}

TEST_F(BlockHeads, RefuseMaskQueriesThatDoNotFit) {
  const Json queries = {{"shape", {{"mask_queries", true}, {"mask_token_id", nullptr}}}};
  EXPECT_EQ(refused("block_draft", queries, {{"mask_queries.weight", tensor({3, 32})}}), "no error");
  EXPECT_THAT(refused("block_draft", queries),
              AllOf(HasSubstr("mask_queries.weight"), HasSubstr("no such tensor"), HasSubstr("[3, 32]")));
  EXPECT_THAT(refused("block_draft", queries, {{"mask_queries.weight", tensor({4, 32})}}),
              AllOf(HasSubstr("mask_queries.weight"), HasSubstr("got shape [4, 32]"), HasSubstr("[3, 32]")));
  TinyTensor bad = tensor({3, 32});
  bad.values[40] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THAT(refused("block_draft", queries, {{"mask_queries.weight", bad}}),
              AllOf(HasSubstr("mask_queries.weight"), HasSubstr("nan"), HasSubstr("finite")));
  EXPECT_THAT(refused("block_draft", {{"shape", {{"mask_queries", true}}}}),
              AllOf(HasSubstr("mask_token_id"), HasSubstr("mask_queries")));
  EXPECT_THAT(refused("block_draft", {{"shape", {{"mask_queries", 3}}}}), HasSubstr("mask_queries"));
  EXPECT_THAT(refused("block_draft", {{"shape", {{"mask_token_id", nullptr}}}}), HasSubstr("mask_token_id"));
}

TEST_F(BlockHeads, AReducedVocabularyHasAnOutputHeadOfItsOwn) {
  const std::vector<Token> ids{1, 5, 7, 40};
  BlockHead head(card_of("block_draft", {.ids = ids}), target_, 16);
  EXPECT_EQ(head.rows(), 4);
  EXPECT_EQ(std::vector<Token>(head.ids().begin(), head.ids().end()), ids);
  BlockHead::Context context = head.open();
  extend(head, context, 0, 3);
  EXPECT_EQ(logits(head, context, 9, 3).size(), 12u);
}

TEST_F(BlockHeads, RefuseCardsThatDoNotFit) {
  EXPECT_EQ(refused("block_draft", Json::object()), "no error");
  EXPECT_THAT(refused("block_draft", {{"target", {{"layers", 3}}}}),
              AllOf(HasSubstr("layers"), HasSubstr("got 3"), HasSubstr("expected 2")));
  EXPECT_THAT(refused("block_draft", {{"target", {{"hidden", 64}}}}),
              AllOf(HasSubstr("hidden"), HasSubstr("got 64"), HasSubstr("expected 32")));
  EXPECT_THAT(refused("block_draft", {{"taps", {3}}}),
              AllOf(HasSubstr("taps"), HasSubstr("[3]"), HasSubstr("0 to 2")));
  EXPECT_THAT(refused("block_draft", {{"taps", Json::array()}}), HasSubstr("a list of states"));
  EXPECT_THAT(refused("block_draft", {{"shape", {{"block_size", 1}}}}),
              AllOf(HasSubstr("block_size"), HasSubstr("got 1"), HasSubstr("from 2 to 17")));
  EXPECT_THAT(refused("block_draft", {{"shape", {{"mask_token_id", 64}}}}),
              AllOf(HasSubstr("mask_token_id"), HasSubstr("got 64"), HasSubstr("from 0 to 63")));
  EXPECT_THAT(refused("block_draft", {{"shape", {{"num_key_value_heads", 3}}}}),
              AllOf(HasSubstr("num_key_value_heads"), HasSubstr("a divisor of 2")));
  EXPECT_THAT(refused("block_draft", {{"shape", {{"mlp_bias", true}}}}),
              AllOf(HasSubstr("mlp_bias"), HasSubstr("feed-forward")));
  EXPECT_THAT(refused("block_draft", {{"shape", {{"layer_types", {"sliding_attention"}}}}}),
              AllOf(HasSubstr("layer_types"), HasSubstr("sliding window")));
  EXPECT_THAT(refused("block_draft", {{"shape", {{"rope_theta", nullptr}}}}), HasSubstr("rope_theta"));
  EXPECT_THAT(refused("pass", {{"shape", {{"heads", 0}}}}), AllOf(HasSubstr("heads"), HasSubstr("got 0")));
  EXPECT_THAT(refused("pass", {{"vocabulary_map", "draft_vocab"}}), HasSubstr("vocabulary_map"));
  EXPECT_THAT(refused("pass", {{"target", {{"vocab", 63}}}}),
              AllOf(HasSubstr("vocab"), HasSubstr("got 63"), HasSubstr("expected 64")));
  EXPECT_THAT(refused("pass", {{"kind", "block_draft"}}), HasSubstr("block_size"));
  write_head_folder(folder(), head_card("pass", tiny_.config, {}), {});
  EXPECT_THAT(message_of([&] { read_head_card(folder(), HeadKind::kBlockDraft, *target_); }),
              AllOf(HasSubstr("heads of the kind pass"), HasSubstr("block_draft")));
}

TEST_F(BlockHeads, RefuseTensorsThatDoNotFit) {
  EXPECT_EQ(refused("pass", Json::object()), "no error");
  EXPECT_THAT(refused("pass", Json::object(), {{"look_ahead.weight", tensor({3, 16})}}),
              AllOf(HasSubstr("head.safetensors"), HasSubstr("look_ahead.weight"),
                    HasSubstr("got shape [3, 16]"), HasSubstr("[3, 32]")));
  EXPECT_THAT(refused("pass", {{"shape", {{"heads", 4}}}}),
              AllOf(HasSubstr("look_ahead.weight"), HasSubstr("[4, 32]")));
  EXPECT_THAT(refused("block_draft", Json::object(), {{"fc.weight", tensor({32, 32})}}),
              AllOf(HasSubstr("fc.weight"), HasSubstr("got shape [32, 32]"), HasSubstr("[32, 64]")));
  EXPECT_THAT(
      refused("block_draft", Json::object(), {{"layers.0.self_attn.k_proj.weight", tensor({16, 32})}}),
      AllOf(HasSubstr("layers.0.self_attn.k_proj.weight"), HasSubstr("[16, 32]"), HasSubstr("[8, 32]")));
  EXPECT_THAT(refused("block_draft", {{"shape", {{"num_hidden_layers", 2}}}}),
              AllOf(HasSubstr("layers.1.input_layernorm.weight"), HasSubstr("no such tensor")));
  TinyTensor bad = tensor({8, 32});
  bad.values[70] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THAT(refused("block_draft", Json::object(), {{"layers.0.self_attn.v_proj.weight", bad}}),
              AllOf(HasSubstr("layers.0.self_attn.v_proj.weight"), HasSubstr("nan"), HasSubstr("finite")));
  bad = tensor({3, 32});
  bad.values[5] = std::numeric_limits<float>::infinity();
  EXPECT_THAT(refused("pass", Json::object(), {{"look_ahead.weight", bad}}),
              AllOf(HasSubstr("look_ahead.weight"), HasSubstr("inf"), HasSubstr("finite")));
}

// The config.json of a published draft: the id of a layer stands for the state after it.
TEST_F(BlockHeads, PublishedDraftsSayWhatTheyRead) {
  const Json config = {{"hidden_size", 32},
                       {"num_hidden_layers", 1},
                       {"num_target_layers", 2},
                       {"vocab_size", 64},
                       {"num_attention_heads", kBlockHeads},
                       {"num_key_value_heads", 1},
                       {"head_dim", kBlockHeadDim},
                       {"intermediate_size", 16},
                       {"rms_norm_eps", 1e-5},
                       {"rope_theta", 10000},
                       {"block_size", 4},
                       {"dflash_config", {{"mask_token_id", 0}, {"target_layer_ids", {0, 1}}}}};
  const auto read = [&](const Json& changes) {
    Json changed = config;
    changed.merge_patch(changes);
    std::filesystem::create_directories(folder());
    write_file(folder() / "config.json", changed.dump());
    write_head(folder() / "model.safetensors", random_head_tensors("block_draft", tiny_.config, {}));
    return read_head_card(folder(), HeadKind::kBlockDraft, *target_);
  };
  const HeadCard card = read(Json::object());
  EXPECT_TRUE(card.published);
  EXPECT_EQ(card.heads, 3);
  EXPECT_EQ(card.block.taps, (std::vector<int>{1, kFinalNorm}));
  EXPECT_NO_THROW(BlockHead(card, target_, 16));
  EXPECT_EQ(read({{"block_size", nullptr}, {"dflash_config", {{"block_size", 8}}}}).heads, 7);
  EXPECT_THAT(message_of([&] { read({{"num_target_layers", 36}}); }),
              AllOf(HasSubstr("num_target_layers"), HasSubstr("got 36"), HasSubstr("expected 2")));
  EXPECT_THAT(message_of([&] { read({{"hidden_size", 64}}); }), HasSubstr("hidden_size"));
  EXPECT_THAT(message_of([&] { read({{"dflash_config", {{"target_layer_ids", {0, 2}}}}}); }),
              AllOf(HasSubstr("target_layer_ids"), HasSubstr("[0,2]"), HasSubstr("from 0 to 1")));
  EXPECT_THAT(message_of([&] { read({{"use_sliding_window", true}}); }), HasSubstr("use_sliding_window"));
}

}  // namespace
}  // namespace speclab::block_head_test
