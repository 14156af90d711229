#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include "core/model/heads/block_head.h"
#include "core/model/heads/falcon/falcon_head.h"
#include "core/model/heads/mtp/mtp_head.h"
#include "core/model/heads/eagle/parallel_eagle_head.h"
#include "core/model/heads/pass_embeddings.h"
#include "core/model/net/session.h"
#include "tests/decoding/loop/loop_fixture.h"
#include "tests/model/heads/random_heads.h"

// PaSS, P-EAGLE and block drafts guess all places of a draft in one forward, Falcon guesses several places in
// one, and modules for multi-token prediction guess one place after the other. The token at each place is the
// best token of the row of this place, computed here without the strategy.

namespace speclab::drafted_places_test {
namespace {

using namespace speclab::fixtures;

constexpr int kPlaces = 3;

class DraftedPlaces : public testing::Test {
 protected:
  /// Drafts a chain of the best tokens after the prompt {1, 2, 3}. Sets pending_ to the token before it.
  std::vector<Token> draft(const char* strategy) {
    const Decode decode{
        .target = target_,
        .strategy =
            choose(strategy, {{"head", folder_.string()}, {"widths", {1, 1, 1}}, {"children", "best"}}),
        .options = {{"max_tokens", 12}}};
    const GenerationRecord record = decode.run();
    pending_ = record.tokens.at(0);
    std::vector<Token> out;
    confidences_.clear();
    for (const DraftedToken& token : record.steps.at(0).drafted) {
      out.push_back(token.id);
      confidences_.push_back(token.confidence);
    }
    return out;
  }
  HeadCard write(const char* kind, HeadKind known, const RandomHead& of) {
    folder_ = write_random_head(dir_.path() / kind, kind, target_->config(), of);
    return read_head_card(folder_, known, *target_);
  }
  /// Expects the best token of each row, [kPlaces, vocab], and its probability as the confidence. Not all
  /// rows may have the same best token: then this would also hold for tokens that stand at wrong places. A
  /// row that lacks a part of what it should read has other probabilities, even if its best token is the
  /// same.
  void expect_best(const std::vector<Token>& drafted, const std::vector<float>& logits) const {
    const std::ptrdiff_t vocab = target_->config().vocab;
    std::vector<Token> best;
    for (auto row = logits.begin(); row != logits.end(); row += vocab) {
      const auto most = std::max_element(row, row + vocab);
      double sum = 0;
      for (auto logit = row; logit != row + vocab; ++logit) sum += std::exp(*logit - *most);
      ASSERT_LT(best.size(), confidences_.size());
      EXPECT_NEAR(confidences_[best.size()], 1 / sum, 1e-5) << "place " << best.size();
      best.push_back(static_cast<Token>(most - row));
    }
    EXPECT_EQ(drafted, best);
    EXPECT_NE(best.front(), best.back()) << "take another seed";
  }
  std::vector<float> row_space() const {
    return std::vector<float>(kPlaces * static_cast<std::size_t>(target_->config().vocab));
  }

  TempDir dir_;
  std::filesystem::path folder_;
  ModelPtr target_ = tiny_target(3);
  HeadRunner run_{target_};
  const std::vector<Token> prompt_{1, 2, 3};
  Token pending_ = 0;
  std::vector<double> confidences_;  // of the drafted tokens
};

TEST_F(DraftedPlaces, OfPass) {
  PassEmbeddings embeddings(write("pass", HeadKind::kPass, {.heads = kPlaces - 1}), *target_);
  const std::vector<Token> drafted = draft("pass");
  const auto session = target_->open(32, 8);
  session->prefill(prompt_);
  HeadRows inputs;
  embeddings.inputs(run_, pending_, kPlaces - 1, inputs);
  const std::vector<std::int32_t> parents{-1, 0, 1}, rows{0, 1, 2};
  std::vector<float> logits = row_space();
  Feed feed;
  feed.session = session.get();
  feed.parents = parents;
  feed.rows = rows;
  feed.logits = logits.data();
  feed.embeddings = inputs.data();
  feed.embeddings_in = Memory::kBackend;
  target_->forward({&feed, 1});
  expect_best(drafted, logits);
}

TEST_F(DraftedPlaces, OfABlockDraft) {
  BlockHead head(write("block_draft", HeadKind::kBlockDraft, {.heads = kPlaces, .blocks = 2, .seed = 1}),
                 target_, 64);
  const std::vector<Token> drafted = draft("block_draft");
  const auto session = target_->open(32, 8);
  BlockHead::Context context = head.open();
  const PromptTaps taps{
      head.taps(), [&](const PromptStates& chunk) { head.extend(run_, context, chunk.layers, chunk.count); }};
  session->prefill(prompt_, nullptr, &taps);
  HeadRows rows;
  head.logits(run_, context, pending_, kPlaces, rows);
  std::vector<float> logits = row_space();
  run_.get(rows, logits.data());
  expect_best(drafted, logits);
}

TEST_F(DraftedPlaces, OfMasks) {
  ParallelEagleHead head(
      write("parallel_eagle", HeadKind::kParallelEagle, {.heads = kPlaces, .blocks = 2, .seed = 1}), target_);
  const std::vector<Token> drafted = draft("parallel_eagle");
  const std::vector<int> layers{0, target_->config().layers / 2, target_->config().layers};
  std::vector<float> states;  // by position, one tap after the other
  const PromptTaps taps{layers, [&](const PromptStates& chunk) {
                          const int width = target_->config().hidden;
                          for (int position = 0; position < chunk.count; ++position)
                            for (const float* of_tap : chunk.layers)
                              states.insert(states.end(), of_tap + position * width,
                                            of_tap + (position + 1) * width);
                        }};
  target_->open(32, 8)->prefill(prompt_, nullptr, &taps);
  const auto session = head.layers().open(32, 8);
  HeadRows rows;
  head.draft(run_, *session, states.data(), std::vector<Token>{2, 3, pending_}, kPlaces, rows);
  std::vector<float> logits = row_space();
  run_.get(rows, logits.data());
  expect_best(drafted, logits);
}

// A block of two tokens comes from the newest two positions, and the next one from the drafted tokens.
TEST_F(DraftedPlaces, OfBlocksInOrder) {
  FalconHead head(write("falcon", HeadKind::kFalcon, {.heads = 2, .seed = 1}), target_, 32, 2);
  const std::vector<Token> drafted = draft("falcon");
  ASSERT_EQ(drafted.size(), static_cast<std::size_t>(kPlaces));
  const std::vector<int> layers{kFinalNorm};
  FalconHead::Context context;
  head.clear(run_, context);
  const std::vector<Token> after{2, 3, pending_};
  const PromptTaps taps{
      layers, [&](const PromptStates& chunk) { head.extend(run_, context, chunk.layers[0], after); }};
  target_->open(32, 8)->prefill(prompt_, nullptr, &taps);
  ASSERT_EQ(context.length(), 3);
  FalconHead::Level first, second;
  HeadRows rows;
  head.first(run_, context, first);
  const std::vector<std::int32_t> parents{0};
  head.next(run_, context, first, parents, TokenSpan(drafted).first(2), second);
  std::vector<float> logits, of_block(2 * static_cast<std::size_t>(head.rows()));
  for (const FalconHead::Level* level : {&first, &second}) {
    head.logits(run_, level->outputs, rows);
    run_.get(rows, of_block.data());
    logits.insert(logits.end(), of_block.begin(), of_block.end());
  }
  logits.resize(row_space().size());  // the last token of the second block is not drafted
  expect_best(drafted, logits);
}

// The definition of DeepSeek-V3: module k reads at every position i the output of module k - 1 at i and the
// token i + k. Here each module reads the whole text afresh, with the tokens that were drafted so far.
TEST_F(DraftedPlaces, OfModulesInOrder) {
  MtpHead head(write("mtp", HeadKind::kMtp, {.blocks = kPlaces, .seed = 1}), target_);
  ASSERT_EQ(head.modules(), kPlaces);
  const std::vector<Token> drafted = draft("mtp");
  ASSERT_EQ(drafted.size(), static_cast<std::size_t>(kPlaces));
  std::vector<Token> text = prompt_;
  text.push_back(pending_);
  const std::vector<int> layers{kFinalNorm};
  HeadRows states, outputs, newest, row;
  const PromptTaps taps{layers, [&](const PromptStates& chunk) {
                          run_.put(chunk.layers[0], chunk.count, target_->config().hidden, states);
                        }};
  target_->open(32, 8)->prefill(prompt_, nullptr, &taps);
  const int count = static_cast<int>(prompt_.size());
  std::vector<std::int32_t> parents(prompt_.size());
  std::iota(parents.begin(), parents.end(), -1);
  const std::vector<std::int32_t> last{count - 1}, all{0, 1, 2};
  ASSERT_EQ(all.size(), prompt_.size());
  std::vector<float> logits;
  for (int module = 0; module < kPlaces; ++module) {
    const auto session = head.layer(module).open(32, 8);
    const TokenSpan after =
        TokenSpan(text).subspan(static_cast<std::size_t>(module) + 1, static_cast<std::size_t>(count));
    head.forward(run_, module, {*session, after, states, parents}, outputs);
    run_.select(outputs, last, newest);
    head.logits(run_, module, newest, row);
    std::vector<float> place(static_cast<std::size_t>(target_->config().vocab));
    run_.get(row, place.data());
    logits.insert(logits.end(), place.begin(), place.end());
    text.push_back(drafted[static_cast<std::size_t>(module)]);
    run_.select(outputs, all, states);
  }
  expect_best(drafted, logits);
}

// One module drafts on its own outputs: its output at the newest position takes the place of the next state.
TEST_F(DraftedPlaces, OfOneModule) {
  MtpHead head(write("mtp", HeadKind::kMtp, {.seed = 1}), target_);
  const std::vector<Token> drafted = draft("mtp");
  ASSERT_EQ(drafted.size(), static_cast<std::size_t>(kPlaces));
  std::vector<Token> text = prompt_;
  text.push_back(pending_);
  const std::vector<int> layers{kFinalNorm};
  HeadRows states, newest, row, longer;
  const PromptTaps taps{layers, [&](const PromptStates& chunk) {
                          run_.put(chunk.layers[0], chunk.count, target_->config().hidden, states);
                        }};
  target_->open(32, 8)->prefill(prompt_, nullptr, &taps);
  std::vector<float> logits;
  for (int place = 0; place < kPlaces; ++place) {
    const auto session = head.layer(0).open(32, 8);
    const int count = states.rows();
    std::vector<std::int32_t> parents(static_cast<std::size_t>(count));
    std::iota(parents.begin(), parents.end(), -1);
    const std::vector<std::int32_t> last{count - 1};
    const TokenSpan after = TokenSpan(text).subspan(1, static_cast<std::size_t>(count));
    head.forward(run_, 0, {*session, after, states, parents, false, last}, newest);
    head.logits(run_, 0, newest, row);
    std::vector<float> of_place(static_cast<std::size_t>(target_->config().vocab));
    run_.get(row, of_place.data());
    logits.insert(logits.end(), of_place.begin(), of_place.end());
    text.push_back(drafted[static_cast<std::size_t>(place)]);
    const HeadRows* const parts[] = {&states, &newest};
    run_.stack(parts, longer);
    std::vector<std::int32_t> all(static_cast<std::size_t>(longer.rows()));
    std::iota(all.begin(), all.end(), 0);
    run_.select(longer, all, states);
  }
  expect_best(drafted, logits);
}

}  // namespace
}  // namespace speclab::drafted_places_test
