#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "core/model/heads/block_head.h"
#include "core/model/heads/pass_embeddings.h"
#include "core/model/net/session.h"
#include "tests/decoding/loop/loop_fixture.h"
#include "tests/model/heads/random_heads.h"

// PaSS and block drafts guess all places of a draft in one forward. The token at each place is the best token
// of the row of this place, computed here without the strategy.

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
    for (const DraftedToken& token : record.steps.at(0).drafted) out.push_back(token.id);
    return out;
  }
  HeadCard write(const char* kind, HeadKind known, const RandomHead& of) {
    folder_ = write_random_head(dir_.path() / kind, kind, target_->config(), of);
    return read_head_card(folder_, known, *target_);
  }
  /// Expects the best token of each row, [kPlaces, vocab]. Not all rows may have the same best token: then
  /// this would also hold for tokens that stand at wrong places.
  void expect_best(const std::vector<Token>& drafted, const std::vector<float>& logits) const {
    const std::ptrdiff_t vocab = target_->config().vocab;
    std::vector<Token> best;
    for (auto row = logits.begin(); row != logits.end(); row += vocab)
      best.push_back(static_cast<Token>(std::max_element(row, row + vocab) - row));
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

}  // namespace
}  // namespace speclab::drafted_places_test
