#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <numeric>
#include <random>

#include "core/model/heads/eagle/eagle_head.h"
#include "tests/model/heads/random_heads.h"

// Heads of EAGLE and EAGLE-3: after any history of drafts and commits the cache is that of a head that reads
// the text afresh, bit for bit.

namespace speclab::eagle_head_test {
namespace {

using namespace speclab::fixtures;

constexpr int kHidden = 32, kVocab = 64;  // of tiny_shape()
using Rows = std::vector<float>;

/// A text with states of its positions, and the head's cache of it.
class Reader {
 public:
  Reader(EagleHead& head, HeadRunner& runner) : head_(head), run_(runner), session_(head.layer().open(128)) {}

  /// Reads the pairs of the next positions, and keeps them.
  void read(const Rows& states, const std::vector<Token>& tokens) {
    const int count = static_cast<int>(tokens.size());
    std::vector<std::int32_t> parents(tokens.size());
    std::iota(parents.begin(), parents.end(), -1);
    std::vector<int> path(tokens.size());
    std::iota(path.begin(), path.end(), 0);
    const std::vector<std::int32_t> last{count - 1};
    run_.put(states.data(), count, head_.state_width(), states_);
    head_.features(run_, states_, features_);
    head_.forward(run_, {*session_, tokens, features_, parents, false, last}, newest_);
    session_->commit(path);
  }
  /// Logits after the newest position.
  Rows logits() { return logits_of(newest_); }
  /// Drafts a tree of two tokens with one child each from the head's own features. The first feature is that
  /// of the reader `from`. Keeps nothing.
  Rows draft(const std::vector<Token>& tokens, const Reader& from) {
    const std::vector<std::int32_t> roots{-1, -1}, both{0, 0}, each{0, 1};
    run_.select(from.newest_, both, features_);
    head_.forward(run_, {*session_, TokenSpan(tokens).first(2), features_, roots}, drafted_);
    Rows out = logits_of(drafted_);
    run_.select(drafted_, each, features_);
    head_.forward(run_, {*session_, TokenSpan(tokens).last(2), features_, each, true}, drafted_);
    const Rows below = logits_of(drafted_);
    out.insert(out.end(), below.begin(), below.end());
    return out;
  }
  Rows draft(const std::vector<Token>& tokens) { return draft(tokens, *this); }
  int length() const { return session_->length(); }

 private:
  Rows logits_of(const HeadRows& features) {
    head_.logits(run_, features, logits_);
    Rows out(static_cast<std::size_t>(logits_.rows()) * static_cast<std::size_t>(logits_.width()));
    run_.get(logits_, out.data());
    return out;
  }

  EagleHead& head_;
  HeadRunner& run_;
  std::unique_ptr<Session> session_;
  HeadRows states_, features_, newest_, drafted_, logits_;
};

class EagleHeads : public testing::TestWithParam<const char*> {
 protected:
  EagleHeads()
      : backend_(std::string(GetParam()) == "host-simt" ? make_cuda_backend({.simulated = true})
                                                        : make_cpu_backend({2, GetParam()})) {
    write_huggingface(dir_.path() / "target", tiny_);
    target_ = Model::load(Checkpoint::open(dir_.path() / "target"), backend_, {});
  }
  HeadCard write(const RandomHead& shape) const {
    write_random_head(dir_.path() / "head", "eagle", tiny_.config, shape);
    return read_head_card(dir_.path() / "head", HeadKind::kEagle, *target_);
  }
  TempDir dir_;
  TinyModel tiny_ = random_llama(tiny_shape(), 5);
  std::shared_ptr<Backend> backend_;
  std::shared_ptr<const Model> target_;
};

TEST_P(EagleHeads, TheCacheIsThatOfAFreshStart) {
  for (const RandomHead& shape : {RandomHead{}, RandomHead{.version = 3, .ids = {1, 5, 7, 40, 41}}}) {
    SCOPED_TRACE(shape.version);
    EagleHead head(write(shape), target_);
    EXPECT_EQ(head.rows(), shape.ids.empty() ? kVocab : 5);
    EXPECT_EQ(head.state_width(), (shape.version == 3 ? 3 : 1) * kHidden);
    HeadRunner run(target_);
    std::mt19937_64 random(7);
    const auto token = [&] { return static_cast<Token>(random() % kVocab); };
    Reader reader(head, run);
    Rows text_states;
    std::vector<Token> text;
    for (int round = 0; round < 8; ++round) {
      const int count = static_cast<int>(random() % 4) + 1;  // committed since the last draft
      const Rows states = random_rows(random, count, head.state_width());
      std::vector<Token> tokens;
      for (int i = 0; i < count; ++i) tokens.push_back(token());
      reader.read(states, tokens);
      text_states.insert(text_states.end(), states.begin(), states.end());
      text.insert(text.end(), tokens.begin(), tokens.end());
      const std::vector<Token> guesses{token(), token(), token(), token()};
      const Rows drafted = reader.draft(guesses);
      EXPECT_EQ(reader.length(), static_cast<int>(text.size())) << "a draft leaves nothing behind";
      Reader fresh(head, run);
      fresh.read(text_states, text);
      ASSERT_EQ(reader.logits(), fresh.logits()) << round;
      ASSERT_EQ(drafted, fresh.draft(guesses)) << round;
      Reader blind(head, run);  // read another state at position 0
      Rows without = text_states;
      without[0] += 1;
      blind.read(without, text);
      EXPECT_NE(drafted, blind.draft(guesses, reader)) << "the drafts do not depend on the cache";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, EagleHeads, testing::Values("f32", "host-simt"), [](const auto& info) {
  return std::string(info.param) == "f32" ? "cpu" : "host_simt";
});

}  // namespace
}  // namespace speclab::eagle_head_test
