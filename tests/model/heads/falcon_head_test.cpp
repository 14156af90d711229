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
#include "core/model/heads/falcon/falcon_head.h"
#include "tests/base/error_text.h"
#include "tests/model/heads/random_heads.h"

// Heads of Falcon: what the logits of blocks depend on, and what is refused with the file, the tensor, what
// was found and what was expected. module_oracle_test.cpp compares the numbers.

namespace speclab::falcon_head_test {
namespace {

using namespace speclab::fixtures;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int kWidth = 32, kVocab = 64;  // of tiny_shape()
constexpr int kBlock = 3, kPositions = 40;
using Rows = std::vector<float>;

class FalconHeads : public testing::Test {
 protected:
  FalconHeads() {
    write_huggingface(dir_.path() / "target", tiny_);
    target_ = Model::load(Checkpoint::open(dir_.path() / "target"), make_cpu_backend({2, "f32"}), {});
    run_ = std::make_unique<HeadRunner>(target_);
    std::mt19937_64 random(3);
    states_ = random_rows(random, kPositions, kWidth);
    for (int i = 0; i < kPositions; ++i) tokens_.push_back(static_cast<Token>(random() % kVocab));
  }
  std::filesystem::path folder() const { return dir_.path() / "head"; }
  FalconHead load() const {
    return FalconHead(read_head_card(folder(), HeadKind::kFalcon, *target_), target_, 64, 4);
  }
  FalconHead made(const RandomHead& of = {.heads = kBlock}) const {
    write_random_head(folder(), "falcon", tiny_.config, of);
    return load();
  }
  void extend(FalconHead& head, FalconHead::Context& context, const Rows& states, int first, int count) {
    head.extend(*run_, context, states.data() + static_cast<std::size_t>(first) * kWidth,
                TokenSpan(tokens_).subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(count)));
  }
  Rows logits_of(FalconHead& head, const HeadRows& outputs) {
    HeadRows logits;
    head.logits(*run_, outputs, logits);
    Rows out(static_cast<std::size_t>(logits.rows()) * static_cast<std::size_t>(logits.width()));
    run_->get(logits, out.data());
    return out;
  }
  // The logits of the first block, of two blocks below it, and of one below the second of these.
  Rows draft(FalconHead& head, FalconHead::Context& context) {
    FalconHead::Level first, second, third;
    const std::vector<Token> two{1, 2, 3, 4, 5, 6}, one{7, 8, 9};
    const std::vector<std::int32_t> roots{0, 0}, last{1};
    head.first(*run_, context, first);
    head.next(*run_, context, first, roots, two, second);
    head.next(*run_, context, second, last, one, third);
    Rows out;
    for (const FalconHead::Level* level : {&first, &second, &third}) {
      const Rows more = logits_of(head, level->outputs);
      out.insert(out.end(), more.begin(), more.end());
    }
    return out;
  }
  // What loading says about a random head whose card and tensors were changed.
  template <class Change>
  std::string loaded(const Change& change) const {
    Json card = head_card("falcon", tiny_.config, {.heads = kBlock});
    Tensors tensors = random_head_tensors("falcon", tiny_.config, {.heads = kBlock});
    change(card, tensors);
    write_head_folder(folder(), card, tensors);
    return message_of([&] { load(); });
  }

  TempDir dir_;
  TinyModel tiny_ = random_llama(tiny_shape(), 5);
  std::shared_ptr<const Model> target_;
  std::unique_ptr<HeadRunner> run_;
  Rows states_;  // [kPositions, kWidth]
  std::vector<Token> tokens_;
};

TEST_F(FalconHeads, TheLogitsDependOnTheTextAlone) {
  FalconHead head = made();
  FalconHead::Context once, bit_by_bit, blind;
  for (FalconHead::Context* context : {&once, &bit_by_bit, &blind}) head.clear(*run_, *context);
  extend(head, once, states_, 0, kPositions);
  for (int at = 0; at < kPositions;) {
    const int count = std::min(1 + at % 5, kPositions - at);
    extend(head, bit_by_bit, states_, at, count);
    at += count;
    if (at >= kBlock) draft(head, bit_by_bit);  // leaves no trace
    EXPECT_EQ(bit_by_bit.length(), at);
  }
  const Rows all = draft(head, once);
  ASSERT_EQ(all.size(), static_cast<std::size_t>(4 * kBlock * kVocab));
  EXPECT_EQ(draft(head, bit_by_bit), all);
  head.clear(*run_, once);  // a new text
  extend(head, once, states_, 0, kPositions);
  EXPECT_EQ(draft(head, once), all);
  Rows other = states_;
  other[0] += 1;  // another state at position 0
  extend(head, blind, other, 0, kPositions);
  EXPECT_NE(draft(head, blind), all);
}

// Each position of a block sees the others: with another state of the newest position, the first logits of
// the block change too.
TEST_F(FalconHeads, AttentionGoesInBothDirectionsInsideABlock) {
  FalconHead head = made();
  std::vector<Rows> first;
  for (const float more : {0.f, 1.f}) {
    Rows states = states_;
    states[static_cast<std::size_t>(9 * kWidth)] += more;  // of the newest of ten positions
    FalconHead::Context context;
    head.clear(*run_, context);
    extend(head, context, states, 0, 10);
    FalconHead::Level level;
    head.first(*run_, context, level);
    const Rows all = logits_of(head, level.outputs);
    first.emplace_back(all.begin(), all.begin() + kVocab);
  }
  EXPECT_NE(first[0], first[1]);
}

// Blocks of one level do not see each other.
TEST_F(FalconHeads, BlocksSideBySideAreIndependent) {
  FalconHead head = made();
  FalconHead::Context context;
  head.clear(*run_, context);
  extend(head, context, states_, 0, 10);
  FalconHead::Level first, both, alone;
  head.first(*run_, context, first);
  const std::vector<Token> two{1, 2, 3, 4, 5, 6};
  const std::vector<std::int32_t> roots{0, 0};
  head.next(*run_, context, first, roots, two, both);
  head.next(*run_, context, first, TokenSpan(roots).first(1), TokenSpan(two).last(kBlock), alone);
  const Rows of_both = logits_of(head, both.outputs), of_one = logits_of(head, alone.outputs);
  ASSERT_EQ(of_both.size(), 2 * of_one.size());
  EXPECT_TRUE(
      std::equal(of_one.begin(), of_one.end(), of_both.begin() + static_cast<std::ptrdiff_t>(of_one.size())));
  EXPECT_FALSE(std::equal(of_one.begin(), of_one.end(), of_both.begin()));
}

TEST_F(FalconHeads, AReducedVocabularyHasAnOutputHeadOfItsOwn) {
  const std::vector<Token> ids{1, 5, 7, 40};
  const FalconHead head = made({.heads = kBlock, .ids = ids});
  EXPECT_EQ(head.rows(), 4);
  EXPECT_EQ(std::vector<Token>(head.ids().begin(), head.ids().end()), ids);
}

TEST_F(FalconHeads, RefuseWhatDoesNotFit) {
  const auto with = [&](const Json& changes) {
    return loaded([&](Json& card, Tensors&) { card.merge_patch(changes); });
  };
  EXPECT_EQ(with(Json::object()), "no error");
  EXPECT_THAT(with({{"shape", {{"block", 0}}}}), AllOf(HasSubstr("block"), HasSubstr("got 0")));
  EXPECT_THAT(with({{"shape", {{"lstm_layers", 3}}}}),
              AllOf(HasSubstr("tensor lstm.2.i.weight"), HasSubstr("no such tensor"), HasSubstr("[32, 64]")));
  EXPECT_THAT(with({{"shape", {{"layer", nullptr}}}}), HasSubstr("layer"));
  EXPECT_THAT(with({{"shape", {{"layer", {{"num_hidden_layers", 2}}}}}}),
              AllOf(HasSubstr("num_hidden_layers"), HasSubstr("got 2")));
  EXPECT_THAT(with({{"shape", {{"layer", {{"attention_bias", true}}}}}}), HasSubstr("attention_bias"));
  EXPECT_THAT(with({{"taps", {1}}}), AllOf(HasSubstr("taps"), HasSubstr("final_norm")));
  EXPECT_THAT(with({{"target", {{"hidden", 64}}}}), AllOf(HasSubstr("hidden"), HasSubstr("got 64")));
  EXPECT_THAT(loaded([](Json&, Tensors& tensors) { tensors.erase("lstm.0.f.bias"); }),
              AllOf(HasSubstr("tensor lstm.0.f.bias"), HasSubstr("no such tensor")));
  EXPECT_THAT(loaded([](Json&, Tensors& tensors) { tensors.at("lstm.0.o.weight").shape = {96, 32}; }),
              AllOf(HasSubstr("lstm.0.o.weight"), HasSubstr("got shape [96, 32]"), HasSubstr("[32, 96]")));
  EXPECT_THAT(loaded([](Json&, Tensors& tensors) {
                tensors.at("lstm.1.g.bias").values[4] = std::numeric_limits<float>::quiet_NaN();
              }),
              AllOf(HasSubstr("lstm.1.g.bias"), HasSubstr("nan"), HasSubstr("finite")));
}

}  // namespace
}  // namespace speclab::falcon_head_test
