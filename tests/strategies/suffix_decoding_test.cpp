#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "core/decoding/drafting/suffix_store.h"
#include "tests/strategies/step_by_step.h"

namespace speclab::suffix_decoding_test {
namespace {

using namespace speclab::fixtures;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

struct Drafted {
  std::vector<Token> tokens;
  std::vector<int> parents;
  std::vector<float> confidence;
  std::string source;
};

Drafted summary_of(const Draft& draft) {
  Drafted out;
  for (int node = 1; node < draft.tree.size(); ++node) {
    EXPECT_EQ(draft.q_at(node), nullptr);
    out.tokens.push_back(draft.tree.token(node));
    out.parents.push_back(draft.tree.parent(node));
    out.confidence.push_back(draft.confidence[static_cast<std::size_t>(node)]);
  }
  out.source = draft.source;
  return out;
}

Drafted drafted_after(const std::vector<Token>& text, const json& options) {
  StepByStep steps("suffix_decoding", options);
  steps.begin(text);
  return summary_of(steps.draft());
}

TEST(SuffixDecoding, TheMostFrequentContinuationOfTheLongestMatch) {
  // 1 2 was followed by 3, 4 and 3; 3 by 5 and 4.
  const std::vector<Token> text{1, 2, 3, 5, 1, 2, 4, 1, 2, 3, 4, 9, 1, 2};
  const Drafted one = drafted_after(text, {{"length", 1}});
  EXPECT_THAT(one.tokens, ElementsAre(3));
  EXPECT_FLOAT_EQ(one.confidence[0], 2. / 3);  // the last occurrence has no continuation
  EXPECT_EQ(one.source, "suffix");
  const Drafted two = drafted_after(text, {{"length", 5}});
  EXPECT_THAT(two.tokens, ElementsAre(3, 5));  // as many tokens as matched
  EXPECT_FLOAT_EQ(two.confidence[1], .5);
  EXPECT_THAT(drafted_after(text, {{"length", 5}, {"min_probability", .5}}).tokens, ElementsAre(3));
  EXPECT_THAT(drafted_after(text, {{"length", 5}, {"min_score", 1.1}}).tokens, IsEmpty());
  EXPECT_THAT(drafted_after(text, {{"length", 5}, {"factor", .5}}).tokens, ElementsAre(3));
  EXPECT_EQ(drafted_after(text, {{"length", 4}, {"factor", 0}, {"offset", 4}}).tokens.size(), 4u);
}

TEST(SuffixDecoding, ATreeOfTheMostProbableLeaves) {
  const std::vector<Token> text{1, 2, 3, 5, 1, 2, 4, 1, 2, 3, 4, 9, 1, 2};
  const Drafted tree = drafted_after(text, {{"length", 4}, {"factor", 2}, {"tree", true}});
  EXPECT_THAT(tree.tokens, ::testing::UnorderedElementsAre(3, 5, 4, 4));
  EXPECT_EQ(tree.tokens[0], 3);
  EXPECT_EQ(tree.parents[0], 0);
}

TEST(SuffixDecoding, AShorterContextWinsWhenItPromisesMore) {
  // 1 2 was followed by 8 and by 9, 2 mostly by 3.
  const std::vector<Token> text{1, 2, 8, 1, 2, 9, 2, 3, 2, 3, 2, 3, 2, 3, 2, 3, 1, 2};
  const Drafted one = drafted_after(text, {{"length", 1}});
  EXPECT_THAT(one.tokens, ElementsAre(3));
  EXPECT_FLOAT_EQ(one.confidence[0], 5. / 7);
  // The longest among equals: 7 1 2 was always followed by 8, and so were 1 2 and 2.
  EXPECT_THAT(drafted_after({7, 1, 2, 8, 5, 7, 1, 2}, {{"length", 9}}).tokens, ElementsAre(8, 5, 7));
}

TEST(SuffixDecoding, TrustByTheLengthOfTheMatch) {
  const std::vector<Token> text{7, 1, 2, 8, 5, 6, 4, 7, 1, 2};
  const Drafted all = drafted_after(text, {{"trust", {.2, .4, .8, .9}}, {"factor", 9}});
  EXPECT_EQ(all.tokens.size(), 7u);
  EXPECT_FLOAT_EQ(all.confidence[0], .8f);  // three tokens have matched
  EXPECT_FLOAT_EQ(all.confidence[1], .9f);
  EXPECT_FLOAT_EQ(all.confidence[4], .9f);
  EXPECT_THAT(drafted_after(text, {{"trust", {.2, .4, .8, .9}}, {"min_probability", .7}}).tokens,
              ElementsAre(8, 5));
  EXPECT_THAT(
      drafted_after(text, {{"trust", {.2, .4, .8, .9}}, {"min_probability", .7}, {"tree", true}}).tokens,
      ElementsAre(8, 5));
}

// A trie of branches like that of alipay's Lookahead (Zhao et al. 2023): every token of the text begins a
// branch of fixed length, and nodes count their visits.
class BranchTrie {
 public:
  BranchTrie(const std::vector<Token>& text, std::size_t branch) : branch_(branch) {
    for (auto at = text.begin(); at != text.end(); ++at) {
      std::vector<Token> path;
      for (auto end = at; end != text.end() && path.size() <= branch; ++end) {
        path.push_back(*end);
        ++counts_[path];
      }
    }
  }
  /// Counts by path of the nodes after the longest suffix that has as many nodes as a branch; otherwise after
  /// the shortest suffix.
  std::map<std::vector<Token>, int> retrieve(const std::vector<Token>& text) const {
    std::map<std::vector<Token>, int> found;
    for (std::size_t length = std::min(text.size(), branch_); length >= 1 && found.size() < branch_;
         --length) {
      const std::vector<Token> ending(text.end() - static_cast<std::ptrdiff_t>(length), text.end());
      std::map<std::vector<Token>, int> behind;
      for (const auto& [path, count] : counts_) {
        if (path.size() > length && std::equal(ending.begin(), ending.end(), path.begin()))
          behind[{path.begin() + static_cast<std::ptrdiff_t>(length), path.end()}] = count;
      }
      if (!behind.empty()) found = behind;
    }
    return found;
  }

 private:
  std::size_t branch_;
  std::map<std::vector<Token>, int> counts_;
};

TEST(SuffixDecoding, RetrievesWhatATrieOfBranchesRetrieves) {
  std::mt19937 random(8);
  int whole = 0, cut = 0;
  for (int round = 0; round < 60; ++round) {
    const std::size_t branch = 2 + random() % 7;
    std::vector<Token> text(5 + random() % 90);
    const unsigned alphabet = 2 + random() % 30;
    for (Token& token : text) token = static_cast<Token>(std::min(random() % alphabet, random() % alphabet));
    const auto expected = BranchTrie(text, branch).retrieve(text);
    const int length = round % 2 == 0 ? 64 : static_cast<int>(branch) + 3;
    const Drafted tree = drafted_after(
        text, {{"contexts", "enough"}, {"depth", branch + 1}, {"length", length}, {"min_probability", 0}});
    ASSERT_EQ(tree.tokens.size(), std::min<std::size_t>(expected.size(), static_cast<std::size_t>(length)));
    std::vector<std::vector<Token>> paths{{}};
    std::vector<int> got, most;
    for (std::size_t i = 0; i < tree.tokens.size(); ++i) {
      std::vector<Token> path = paths[static_cast<std::size_t>(tree.parents[i])];
      path.push_back(tree.tokens[i]);
      ASSERT_EQ(expected.count(path), 1u);
      got.push_back(expected.at(path));
      paths.push_back(path);
    }
    for (const auto& [path, count] : expected) most.push_back(count);
    std::sort(most.rbegin(), most.rend());
    most.resize(got.size());
    EXPECT_EQ(got, most) << "the most frequent ones, in that order";
    ++(expected.size() > got.size() ? cut : whole);
  }
  EXPECT_GT(whole, 10);
  EXPECT_GT(cut, 10);
}

TEST(SuffixDecoding, LimitsAndShortTexts) {
  StepByStep steps("suffix_decoding");
  steps.begin({5, 6, 5, 6, 5, 6});
  EXPECT_EQ(steps.nodes().size(), 2u);  // then the text ends
  steps.sequence.depth_limit = 1;
  EXPECT_EQ(steps.nodes().size(), 1u);
  steps.sequence.depth_limit = 0;
  EXPECT_THAT(steps.nodes(), IsEmpty());
  steps.sequence.depth_limit = -1;
  EXPECT_THAT(steps.nodes(), IsEmpty());
  EXPECT_THAT(drafted_after({1}, json::object()).tokens, IsEmpty());
  EXPECT_THAT(drafted_after({1, 2, 3}, json::object()).tokens, IsEmpty());
  EXPECT_THAT(drafted_after(std::vector<Token>(100, 4), {{"length", 9}}).tokens,
              ElementsAre(4, 4, 4, 4, 4, 4, 4, 4, 4));
}

TEST(SuffixDecoding, EarlierOutputsHelpButNotARepeatedPrompt) {
  const auto run = [](StepByStep& steps, std::vector<Token> text) {
    text.push_back(1);
    steps.begin(text);
    const Drafted out = summary_of(steps.draft());
    steps.observe({2, 3, 4});
    return out;
  };
  StepByStep outputs("suffix_decoding", {{"remember", "outputs"}, {"factor", 3}});
  EXPECT_THAT(run(outputs, {10, 11}).tokens, IsEmpty());
  const Drafted second = run(outputs, {12, 13});
  EXPECT_THAT(second.tokens, ElementsAre(2, 3, 4));
  EXPECT_EQ(second.source, "suffix of earlier texts");
  EXPECT_THAT(run(outputs, {10, 11}).tokens, IsEmpty()) << "it has been here before";
  EXPECT_THAT(run(outputs, {14, 11}).tokens, ElementsAre(2, 3, 4));
  StepByStep forgetful("suffix_decoding");
  run(forgetful, {10, 11});
  EXPECT_THAT(run(forgetful, {12, 13}).tokens, IsEmpty());
  StepByStep with_prompts("suffix_decoding", {{"remember", "texts"}});
  run(with_prompts, {1, 9, 5});
  EXPECT_THAT(run(with_prompts, {12, 13}).tokens.size(), 1u);
}

TEST(SuffixStore, ForgetsTheOldestHalf) {
  SuffixStore store(16, 40);
  for (Token document = 0; document < 10; ++document) {
    const std::vector<Token> text{100, document, 200, document};
    store.add(text);
    EXPECT_LE(store.tokens(), 40u);
    const auto known = [&](Token token) {
      const auto matches = store.match(std::vector<Token>{100, token});
      return matches[0].length == 2 || matches[1].length == 2;
    };
    EXPECT_TRUE(known(document));
    if (document > 3) {
      EXPECT_TRUE(known(document - 3));
    }
    if (document > 8) {
      EXPECT_FALSE(known(0));
    }
  }
  store.add(std::vector<Token>(100, 7));
  EXPECT_LE(store.tokens(), 40u);
  store.clear();
  EXPECT_EQ(store.tokens(), 0u);
}

class SuffixDecodingRun : public ::testing::TestWithParam<json> {};

TEST_P(SuffixDecodingRun, GreedyTextIsThatOfAutoregressiveDecoding) {
  Decode decode{.target = tiny_target(3), .options = {{"max_tokens", 150}}};
  const GenerationRecord plain = decode.run();
  decode.strategy = choose("suffix_decoding", GetParam());
  const GenerationRecord record = decode.run();
  EXPECT_EQ(record.tokens, plain.tokens);
  EXPECT_EQ(record.row_hashes, plain.row_hashes);
  EXPECT_GT(drafted(record), 20);
  EXPECT_LT(record.steps.size(), plain.steps.size());
}
INSTANTIATE_TEST_SUITE_P(
    Options, SuffixDecodingRun,
    ::testing::Values(json::object(), json{{"tree", true}, {"factor", 4}},
                      json{{"length", 30}, {"min_probability", 0}, {"offset", 3}}, json{{"depth", 2}},
                      json{{"contexts", "enough"}, {"depth", 9}, {"length", 63}, {"min_probability", 0}},
                      json{{"remember", "texts"}, {"remember_tokens", 64}}));

}  // namespace
}  // namespace speclab::suffix_decoding_test
