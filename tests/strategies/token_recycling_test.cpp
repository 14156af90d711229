#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <map>
#include <random>

#include "tests/base/error_text.h"
#include "tests/strategies/step_by_step.h"

namespace speclab::token_recycling_test {
namespace {

using namespace speclab::fixtures;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

/// Makes steps by hand over rows whose best tokens the test chooses.
class Recycler : public StepByStep {
 public:
  explicit Recycler(const json& options) : StepByStep("token_recycling", options) {}

  /// The rows of the last draft. `best` gives the best tokens of a row by node, best
  /// first; other rows have 9, 8, 7, ...
  void observe(const std::map<int, std::vector<Token>>& best, std::vector<int> path,
               const std::vector<Token>& emitted) {
    static const auto vocab = static_cast<std::size_t>(tiny_target()->config().vocab);
    const auto size = static_cast<std::size_t>(last().tree.size());
    std::vector<float> logits(size * vocab, -5);
    std::vector<std::int32_t> row_of(size);
    for (std::size_t node = 0; node < size; ++node) {
      row_of[node] = static_cast<std::int32_t>(size - 1 - node);
      float* row = logits.data() + (size - 1 - node) * vocab;
      const auto given = best.find(static_cast<int>(node));
      std::vector<Token> order{9, 8, 7, 6};
      if (given != best.end()) order = given->second;
      for (std::size_t i = 0; i < order.size(); ++i) row[order[i]] = 10 - static_cast<float>(i);
    }
    Acceptance acceptance;
    acceptance.path = std::move(path);
    StepByStep::observe(emitted, acceptance, {logits.data(), row_of, static_cast<int>(vocab)});
  }
};

TEST(TokenRecycling, CandidatesOfARowComeBackBehindItsToken) {
  Recycler r(json{{"k", 3}, {"tree", {2, 1, 0, 1}}});
  r.begin({1, 2});
  EXPECT_THAT(r.nodes(), IsEmpty()) << "nothing is known of 2";
  r.observe({{0, {5, 6, 7}}}, {}, {5});
  EXPECT_THAT(r.nodes(), IsEmpty());
  r.observe({{0, {2, 5}}}, {}, {2});
  // 2 is followed by 5 and 6 (two of its three candidates), 5 by 2, and that 2 by 5 again.
  EXPECT_THAT(r.nodes(), ElementsAre(TreeNode{0, 5}, TreeNode{0, 6}, TreeNode{1, 2}, TreeNode{3, 5}));
  r.sequence.depth_limit = 2;
  EXPECT_THAT(r.nodes(), ElementsAre(TreeNode{0, 5}, TreeNode{0, 6}, TreeNode{1, 2}));
  r.sequence.depth_limit = 0;
  EXPECT_THAT(r.nodes(), IsEmpty());
  r.begin({1, 2});
  r.sequence.depth_limit = 100;
  EXPECT_THAT(r.nodes(), IsEmpty()) << "candidates end with the prompt";
}

TEST(TokenRecycling, RowsOfRejectedNodesAreLearntAndTheTextHasTheLastWord) {
  const auto steps = [](const json& options) {
    Recycler r(options);
    r.begin({3});
    r.draft();
    r.observe({{0, {4, 3}}}, {}, {3});
    EXPECT_THAT(r.nodes(), ElementsAre(TreeNode{0, 4}, TreeNode{0, 3}));
    // Node 1 holds 4 and is wrong, node 2 holds 3, as the pending token does.
    r.observe({{0, {3, 6}}, {1, {20, 21}}, {2, {30, 31}}}, {2}, {3, 4});
    const std::vector<TreeNode> of_4 = r.nodes();
    r.observe({{0, {3, 6}}}, {}, {3});
    return std::pair(of_4, r.nodes());
  };
  const auto [of_4, of_3] = steps({{"k", 2}, {"tree", {2}}});
  EXPECT_THAT(of_4, ElementsAre(TreeNode{0, 20}, TreeNode{0, 21}));
  EXPECT_THAT(of_3, ElementsAre(TreeNode{0, 30}, TreeNode{0, 31})) << "the later node of the text";
  const auto [accepted_4, accepted_3] = steps({{"k", 2}, {"tree", {2}}, {"learn", "accepted"}});
  EXPECT_THAT(accepted_4, IsEmpty());
  EXPECT_EQ(accepted_3, of_3);
}

// Must equal a simple version: reads every row, those of the text last, and keeps what was written last.
TEST(TokenRecycling, OneRowOfEachTokenDecides) {
  const int k = 4;
  Recycler r(json{{"k", k}, {"tree", {4, 4, 3, 2, 1, 1}}});
  std::mt19937 random(5);
  std::map<Token, std::vector<Token>> matrix;
  r.begin({0});
  int shared = 0;
  for (int step = 0; step < 60; ++step) {
    const TokenTree& tree = r.draft().tree;
    std::map<int, std::vector<Token>> best;  // by node, k different tokens out of few
    for (int node = 0; node < tree.size(); ++node) {
      std::vector<Token> order{0, 1, 2, 3, 4, 5, 6};
      std::shuffle(order.begin(), order.end(), random);
      order.resize(k);
      best[node] = order;
    }
    std::vector<int> path, children;
    for (int node = 0; tree.children(node, children), !children.empty() && random() % 3 != 0;
         path.push_back(node))
      node = children[random() % children.size()];
    std::map<Token, int> nodes_of;
    for (int node = 1; node < tree.size(); ++node) {
      if (std::ranges::find(path, node) == path.end()) matrix[tree.token(node)] = best[node];
      shared += nodes_of[tree.token(node)]++ > 0;
    }
    matrix[tree.token(0)] = best[0];
    for (const int node : path) matrix[tree.token(node)] = best[node];
    const Token next = static_cast<Token>(random() % 7);
    r.observe(best, path, {next});
    const TokenTree& drafted = r.draft().tree;
    std::vector<int> ranks(static_cast<std::size_t>(drafted.size()));
    for (int node = 1; node < drafted.size(); ++node) {
      const auto known = matrix.find(drafted.token(drafted.parent(node)));
      ASSERT_NE(known, matrix.end()) << "step " << step;
      const int rank = ranks[static_cast<std::size_t>(drafted.parent(node))]++;
      EXPECT_EQ(drafted.token(node), known->second[static_cast<std::size_t>(rank)]) << "step " << step;
    }
  }
  EXPECT_GT(shared, 100);
}

TEST(TokenRecycling, ThePublishedTree) {
  Recycler r(json::object());
  r.begin({0});
  for (Token token = 0; token < 30; ++token) {  // 8 candidates of each token, all different
    r.sequence.tokens = {token};
    r.draft().reset(token);
    std::vector<Token> best;
    for (Token i = 1; i <= 8; ++i) best.push_back((token + i) % 30);
    r.observe({{0, best}}, {}, {});
  }
  const Draft& draft = r.draft();
  EXPECT_EQ(draft.source, "recycled");
  std::vector<int> levels(7), children(9);
  for (int node = 1; node < draft.tree.size(); ++node) {
    ++levels[static_cast<std::size_t>(draft.tree.depth(node))];
    if (draft.tree.parent(node) < 9) ++children[static_cast<std::size_t>(draft.tree.parent(node))];
  }
  EXPECT_THAT(levels, ElementsAre(0, 8, 21, 25, 15, 8, 3));
  EXPECT_THAT(children, ElementsAre(8, 8, 4, 3, 2, 1, 1, 1, 1));
  // With k = 1, only the first path remains.
  Recycler chain(json{{"k", 1}});
  chain.begin({5});
  chain.draft();
  chain.observe({{0, {5}}}, {}, {5});
  EXPECT_THAT(chain.nodes(), ElementsAre(TreeNode{0, 5}, TreeNode{1, 5}, TreeNode{2, 5}, TreeNode{3, 5},
                                         TreeNode{4, 5}, TreeNode{5, 5}));
}

TEST(TokenRecycling, CandidatesMayStay) {
  Recycler r(json{{"keep", true}, {"tree", {1}}});
  r.begin({3});
  r.draft();
  r.observe({{0, {4}}}, {}, {4});
  r.begin({7, 3});
  EXPECT_THAT(r.nodes(), ElementsAre(TreeNode{0, 4}));
}

TEST(TokenRecycling, ImpossibleTreesAreRefused) {
  const auto error = [](const json& tree) { return message_of([&] { Recycler r(json{{"tree", tree}}); }); };
  EXPECT_THAT(error({1, 0, 2}), HasSubstr("got a list of 3 entries, expected at most 2, one for each node"));
  EXPECT_THAT(error({64, 64, 64, 64, 64, 64, 64, 64, 64}), HasSubstr("more than 512 nodes"));
  EXPECT_EQ(error(json::array()), "no error");
  EXPECT_EQ(error({0}), "no error");
}

class TokenRecyclingRun : public ::testing::TestWithParam<json> {};

TEST_P(TokenRecyclingRun, GreedyTextIsThatOfAutoregressiveDecoding) {
  Decode decode{.target = tiny_target(3), .options = {{"max_tokens", 150}}};
  const GenerationRecord plain = decode.run();
  decode.strategy = choose("token_recycling", GetParam());
  const GenerationRecord record = decode.run();
  EXPECT_EQ(record.tokens, plain.tokens);
  EXPECT_EQ(record.row_hashes, plain.row_hashes);
  EXPECT_GT(drafted(record), 20);
  EXPECT_LT(record.steps.size(), plain.steps.size());
}
INSTANTIATE_TEST_SUITE_P(Options, TokenRecyclingRun,
                         ::testing::Values(json::object(), json{{"k", 3}, {"tree", {3, 2, 1, 1, 1}}},
                                           json{{"learn", "accepted"}},
                                           json{{"tree", {1, 1, 1}}, {"keep", true}},
                                           json{{"k", 64}, {"tree", {64, 64, 8}}}));

// Candidates found with the head's maxima must equal those found in whole rows; a forward divided over
// devices has no maxima. Tested with several threads and a vocabulary that is only partly read.
TEST(TokenRecycling, TheTreesAreThoseOfWholeRows) {
  Shape shape = tiny_shape();
  shape.vocab = 1031;
  TempDir dir;
  write_huggingface(dir.path(), random_llama(shape, 3));
  for (const char* numerics : {"f32", "avx512-bf16-emulated"}) {
    const ModelPtr target = Model::load(Checkpoint::open(dir.path()), make_cpu_backend({3, numerics}), {});
    for (const json& options :
         {json{{"max_tokens", 200}},
          json{{"max_tokens", 200}, {"temperature", 1}, {"top_k", 2}, {"repetition_penalty", 1.01}}}) {
      Decode decode{.target = target,
                    .strategy = choose("token_recycling", {{"k", 6}, {"tree", {6, 3, 2, 2, 1, 1, 1}}}),
                    .options = options};
      const GenerationRecord noted = decode.run();
      decode.loop.devices = 2;
      const GenerationRecord whole = decode.run();
      EXPECT_EQ(noted.tokens, whole.tokens);
      ASSERT_EQ(noted.steps.size(), whole.steps.size());
      for (std::size_t i = 0; i < noted.steps.size(); ++i) {
        const auto &a = noted.steps[i].drafted, &b = whole.steps[i].drafted;
        ASSERT_EQ(a.size(), b.size()) << "step " << i;
        for (std::size_t node = 0; node < a.size(); ++node)
          ASSERT_EQ(std::pair(a[node].parent, a[node].id), std::pair(b[node].parent, b[node].id))
              << "step " << i;
      }
      EXPECT_GT(drafted(noted), 100) << numerics << " " << options;
    }
  }
}

}  // namespace
}  // namespace speclab::token_recycling_test
