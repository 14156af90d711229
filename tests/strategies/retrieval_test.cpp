#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <random>

#include "core/decoding/drafting/datastore.h"
#include "tests/base/error_text.h"
#include "tests/strategies/step_by_step.h"

namespace speclab::retrieval_test {
namespace {

using namespace speclab::fixtures;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class DatastoreTest : public ::testing::Test {
 protected:
  std::string write(const std::vector<std::vector<Token>>& documents, int vocab = 64,
                    const std::string& tokenizer = "") {
    Datastore::Builder builder(vocab, tokenizer);
    for (const auto& document : documents) builder.add(document);
    const std::string path = (dir_.path() / "store").string();
    builder.write(path);
    return path;
  }
  TempDir dir_;
};

TEST_F(DatastoreTest, FindsWhatAScanFinds) {
  std::mt19937 random(4);
  for (const unsigned alphabet : {1u, 2u, 5u, 60u}) {
    std::vector<std::vector<Token>> documents(7);
    for (auto& document : documents) {
      document.resize(random() % 90);
      for (Token& token : document) token = static_cast<Token>(random() % alphabet);
    }
    documents[3].assign(70, 0);  // longer than the sorted depth
    const Datastore store = Datastore::open(write(documents));
    for (int round = 0; round < 300; ++round) {
      std::vector<Token> text(1 + random() % 12);
      for (Token& token : text) token = static_cast<Token>(random() % alphabet);
      const auto count = [&](TokenSpan phrase, std::vector<Token>* followers) {
        std::size_t found = 0;
        for (const auto& document : documents) {
          for (auto at = document.begin();; ++at) {
            at = std::search(at, document.end(), phrase.begin(), phrase.end());
            if (at == document.end()) break;
            ++found;
            const auto after = at + static_cast<std::ptrdiff_t>(phrase.size());
            followers->push_back(after == document.end() ? -1 : *after);
          }
        }
        return found;
      };
      std::vector<Token> expected, got;
      const auto range = store.find(text);
      ASSERT_EQ(range.size(), count(text, &expected));
      for (std::size_t i = range.first; i < range.last; ++i) got.push_back(store.token(i, range.length));
      std::sort(expected.begin(), expected.end());
      EXPECT_TRUE(text.size() >= Datastore::kDepth || std::is_sorted(got.begin(), got.end()));
      ASSERT_EQ(got, expected);
      int longest = std::min(9, static_cast<int>(text.size()));
      while (longest >= 2 && count(TokenSpan(text).last(static_cast<std::size_t>(longest)), &expected) == 0)
        --longest;
      const auto ending = store.find_suffix(text, 2, 9);
      ASSERT_EQ(ending.length, longest >= 2 ? longest : 0);
      EXPECT_EQ(ending.size() > 0, longest >= 2);
    }
  }
}

TEST_F(DatastoreTest, WhatIsNoDatastoreIsRefused) {
  const std::string path = write({{1, 2, 3}, {4, 5}}, 64, std::string(64, 'a'));
  const auto open = [&] { Datastore::open(path).require(64, std::string(64, 'a')); };
  EXPECT_EQ(message_of(open), "no error");
  EXPECT_THAT(message_of([&] { Datastore::open(path).require(65, std::string(64, 'a')); }),
              HasSubstr("vocabulary of 64"));
  EXPECT_THAT(message_of([&] { Datastore::open(path).require(64, std::string(64, 'b')); }),
              HasSubstr("another tokenizer"));
  std::ifstream in(path, std::ios::binary);
  const std::string good((std::istreambuf_iterator<char>(in)), {});
  const auto with = [&](const std::string& bytes) {
    std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
    return message_of(open);
  };
  for (std::size_t size = 0; size < good.size(); ++size)
    EXPECT_NE(with(good.substr(0, size)), "no error") << size;
  for (std::size_t at = 0; at < good.size(); ++at) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ 0x40);
    EXPECT_NE(with(bad), "no error") << at;
  }
  EXPECT_THAT(with(good.substr(0, good.size() - 4)), HasSubstr("expected a whole datastore"));
  EXPECT_THAT(with(good.substr(0, good.size() - 1) + "x"), HasSubstr("checksum"));
  EXPECT_THAT(with("{\"no\": \"datastore\"}" + std::string(200, ' ')), HasSubstr("another kind"));
  EXPECT_EQ(with(good), "no error");
  EXPECT_THAT(message_of([&] { Datastore::Builder(4, "").write(path); }), HasSubstr("no tokens"));
  EXPECT_THAT(message_of([&] { Datastore::Builder(4, "").add(std::vector<Token>{1, 4}); }),
              HasSubstr("token 4"));
}

class RetrievalTest : public DatastoreTest {
 protected:
  std::vector<TreeNode> drafted_after(const std::vector<Token>& text, const json& options) {
    StepByStep steps("retrieval", options, target);
    steps.begin(text);
    return steps.nodes();
  }
  ModelPtr target = tiny_target(3);
  int vocab = target->config().vocab;
  std::string tokenizer = target->tokenizer_sha256();
};

TEST_F(RetrievalTest, TheMostFrequentBeginningsAsATree) {
  const std::string path =
      write({{1, 2, 3, 4}, {5, 1, 2, 3, 4}, {1, 2, 3, 6}, {1, 2, 7}, {2, 8}, {9, 9, 2, 8}}, vocab, tokenizer);
  EXPECT_THAT(drafted_after({0, 1, 2}, {{"datastore", path}, {"nodes", 3}}),
              ElementsAre(TreeNode{0, 3}, TreeNode{1, 4}, TreeNode{0, 7}));
  EXPECT_THAT(drafted_after({0, 1, 2}, {{"datastore", path}, {"nodes", 9}, {"min_share", .5}}),
              ElementsAre(TreeNode{0, 3}, TreeNode{1, 4}));
  EXPECT_THAT(drafted_after({0, 1, 2}, {{"datastore", path}, {"length", 1}, {"nodes", 9}}),
              ElementsAre(TreeNode{0, 3}, TreeNode{0, 7}));
  EXPECT_THAT(drafted_after({7, 2}, {{"datastore", path}}), ElementsAre());  // one token is no match
  EXPECT_THAT(drafted_after({7, 2}, {{"datastore", path}, {"ngram_min", 1}, {"nodes", 1}}),
              ElementsAre(TreeNode{0, 3}));
  EXPECT_THAT(message_of([&] { drafted_after({1}, {{"datastore", path}, {"ngram_min", 17}}); }),
              HasSubstr("at most ngram_max"));
}

// Four continuations follow "1 2": three begin with 3 (two of these go on with 4), and one begins with 7.
TEST_F(RetrievalTest, TheConfidenceOfATokenIsItsShareBelowItsParent) {
  const std::string path =
      write({{1, 2, 3, 4}, {5, 1, 2, 3, 4}, {1, 2, 3, 6}, {1, 2, 7}, {2, 8}}, vocab, tokenizer);
  StepByStep steps("retrieval", {{"datastore", path}, {"nodes", 9}}, target);
  steps.begin({0, 1, 2});
  ASSERT_THAT(steps.nodes(), ElementsAre(TreeNode{0, 3}, TreeNode{1, 4}, TreeNode{0, 7}, TreeNode{1, 6}));
  const std::vector<float>& confidence = steps.draft().confidence;
  const std::vector<double> expected{3. / 4, 2. / 3, 1. / 4, 1. / 3};
  for (std::size_t i = 0; i < expected.size(); ++i)
    EXPECT_FLOAT_EQ(confidence[i + 1], static_cast<float>(expected[i])) << i;
}

TEST_F(RetrievalTest, WithoutADatastoreOrWithAnEmptyOneThereIsNothingToRetrieve) {
  EXPECT_THAT(message_of([&] { drafted_after({1, 2}, json::object()); }), HasSubstr("no \"datastore\""));
  const std::string path = (dir_.path() / "nothing").string();
  EXPECT_THAT(message_of([&] { drafted_after({1, 2}, {{"datastore", path}}); }), HasSubstr("nothing"));
  std::ofstream(path, std::ios::binary).close();
  EXPECT_THAT(message_of([&] { drafted_after({1, 2}, {{"datastore", path}}); }), HasSubstr("datastore"));
  // A well-formed file that holds a separator and no text.
  constexpr TokenFile::Kind kind{{'S', 'P', 'E', 'C', 'D', 'A', 'T', 'A'}, 2, "datastore", ""};
  const Token separator = -1;
  const std::span<const std::byte> sections[] = {std::as_bytes(std::span(&separator, 1))};
  TokenFile::write(path, kind, vocab, tokenizer, sections);
  EXPECT_THAT(message_of([&] { drafted_after({1, 2}, {{"datastore", path}}); }), HasSubstr("no tokens"));
}

TEST_F(RetrievalTest, GreedyTextIsThatOfAutoregressiveDecoding) {
  Decode decode{.target = target, .options = {{"max_tokens", 150}}};
  const GenerationRecord plain = decode.run();
  std::vector<Token> text = decode.prompt;
  text.insert(text.end(), plain.tokens.begin(), plain.tokens.end());
  const std::string path = write({text, {4, 5, 6}}, vocab, tokenizer);
  decode.strategy = choose("retrieval", {{"datastore", path}, {"ngram_min", 1}});
  const GenerationRecord record = decode.run();
  EXPECT_EQ(record.tokens, plain.tokens);
  EXPECT_EQ(record.row_hashes, plain.row_hashes);
  EXPECT_LT(record.steps.size(), plain.steps.size() / 3);
  const std::string other = write({{1, 2}}, vocab, std::string(64, '0'));
  decode.strategy = choose("retrieval", {{"datastore", other}});
  EXPECT_THAT(message_of([&] { decode.run(); }), HasSubstr("another tokenizer"));
}

}  // namespace
}  // namespace speclab::retrieval_test
