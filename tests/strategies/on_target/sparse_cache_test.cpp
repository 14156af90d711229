// Drafts that see the positions of the cache with the most attention: the choice computed again by hand, and
// what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "tests/base/error_text.h"
#include "tests/strategies/draft_rows.h"
#include "tests/strategies/on_target/own_cache.h"

namespace speclab::sparse_cache_test {
namespace {

using namespace speclab::fixtures;
using ::testing::HasSubstr;

/// Attention of the last token of a text to those before it, [layers][positions].
std::vector<std::vector<float>> attention_after(const Model& model, const std::vector<Token>& text,
                                                std::vector<float>* logits = nullptr) {
  const std::size_t positions = text.size() - 1;
  const auto session = model.open(256);
  session->prefill(TokenSpan(text).first(positions));
  std::vector<float> all(model.layers().size() * positions),
      row(static_cast<std::size_t>(model.config().vocab));
  const std::int32_t root = -1, wanted = 0;
  Feed feed{session.get(), {&text.back(), 1}, {&root, 1}, {&wanted, 1}, row.data()};
  feed.attention = all.data();
  model.forward({&feed, 1});
  if (logits != nullptr) *logits = row;
  std::vector<std::vector<float>> out;
  for (std::size_t layer = 0; layer < model.layers().size(); ++layer) {
    const auto begin = all.begin() + static_cast<std::ptrdiff_t>(layer * positions);
    out.emplace_back(begin, begin + static_cast<std::ptrdiff_t>(positions));
  }
  return out;
}

TEST(FeedAttention, IsReadBesideTheSameLogits) {
  const ModelPtr target = deep_target(3);
  const std::vector<Token> text{3, 1, 4, 1, 5, 9, 2, 6, 5, 3};
  std::vector<float> logits;
  const auto attention = attention_after(*target, text, &logits);
  EXPECT_EQ(logits, row_after(target, text));
  ASSERT_EQ(attention.size(), 3u);
  for (const auto& layer : attention) {
    double sum = 0;
    for (const float weight : layer) {
      EXPECT_GT(weight, 0);
      sum += weight;
    }
    EXPECT_LT(sum, 1);  // the token attends to itself, too
    EXPECT_GT(sum, .3);
  }
  EXPECT_NE(attention[0], attention[1]);
}

TEST(FeedAttention, IsRefusedWithAViewAndWithoutAReader) {
  const ModelPtr target = deep_target(3);
  const auto session = target->open(64);
  session->prefill(std::vector<Token>{1, 2, 3});
  const Token token = 4;
  const std::int32_t root = -1;
  std::vector<float> attention(9);
  const CacheView view = CacheView::ends(1, 1);
  Feed feed{session.get(), {&token, 1}, {&root, 1}, {}, nullptr};
  feed.attention = attention.data();
  feed.view = &view;
  EXPECT_THROW(target->forward({&feed, 1}), std::logic_error);
  EXPECT_TRUE(target->reads_attention());
  EXPECT_FALSE(
      load_tiny_on(make_cuda_backend({.simulated = true}), random_llama(tiny_shape(), 5))->reads_attention());
}

struct Keeping {
  std::string keep;
  int first, last, positions, chunk, refresh;
};

/// The positions that a draft sees in one layer, with the sums of attention that were read out.
std::vector<std::int32_t> seen_by_hand(const Keeping& k, const std::vector<float>& sums, int committed) {
  std::vector<std::pair<double, int>> chunks;  // negative mass, begin
  for (int begin = 0; begin + k.chunk <= static_cast<int>(sums.size()); begin += k.chunk) {
    const bool seen_anyway = begin + k.chunk <= k.first || begin >= static_cast<int>(sums.size()) - k.last;
    double mass = 0;
    for (int at = begin; at < begin + k.chunk; ++at) mass += sums[static_cast<std::size_t>(at)];
    if (!seen_anyway) chunks.emplace_back(-mass, begin);
  }
  std::sort(chunks.begin(), chunks.end());
  chunks.resize(std::min(chunks.size(), static_cast<std::size_t>(k.positions / k.chunk)));
  std::set<std::int32_t> seen;
  for (int at = 0; at < std::min(k.first, committed); ++at) seen.insert(at);
  for (int at = std::max(0, committed - k.last); at < committed; ++at) seen.insert(at);
  for (const auto& [mass, begin] : chunks)
    for (int at = begin; at < begin + k.chunk; ++at) seen.insert(at);
  return {seen.begin(), seen.end()};
}

TEST(SparseCache, KeepsThePositionsWithTheMostAttention) {
  const ModelPtr target = deep_target(4, 64, 31);
  std::vector<Token> prompt;
  for (int i = 0; i < 50; ++i) prompt.push_back((i * 37 + 11) % 64);
  constexpr int kGamma = 4;
  for (const Keeping& k : {Keeping{"retrieved", 2, 5, 8, 4, 1},
                           {"retrieved", 1, 4, 6, 1, 3},
                           {"heavy", 0, 6, 9, 3, 1},
                           {"heavy", 2, 3, 5, 1, 2}}) {
    SCOPED_TRACE(k.keep + std::to_string(k.chunk));
    const GenerationRecord record =
        Decode{.target = target,
               .strategy = choose("self_speculation", {{"draft_by", "sparse_cache"},
                                                       {"first", k.first},
                                                       {"last", k.last},
                                                       {"keep", k.keep},
                                                       {"keep_positions", k.positions},
                                                       {"chunk", k.chunk},
                                                       {"refresh", k.refresh},
                                                       {"gamma", kGamma}}),
               .options = {{"max_tokens", 60}},
               .prompt = prompt}
            .run();
    std::vector<Token> text = prompt;
    text.push_back(record.tokens[0]);
    std::vector<std::vector<float>> sums(target->layers().size());
    std::size_t emitted = 1, steps = 0;
    int other_than_window = 0;
    for (const StepRecord& step : record.steps) {
      if (record.tokens.size() - emitted <= kGamma) break;  // the end of the text cuts the draft
      const bool reads = steps++ % static_cast<std::size_t>(k.refresh) == 0;
      const int committed = static_cast<int>(text.size()) - 1;
      if (reads) {
        const auto newest = attention_after(*target, text);
        for (std::size_t layer = 0; layer < sums.size(); ++layer) {
          if (k.keep == "retrieved") sums[layer].clear();
          sums[layer].resize(newest[layer].size());
          for (std::size_t at = 0; at < newest[layer].size(); ++at) sums[layer][at] += newest[layer][at];
        }
      }
      std::vector<CacheView> views;
      for (const std::vector<float>& of_layer : sums) {
        const auto seen = seen_by_hand(k, of_layer, committed);
        other_than_window += static_cast<int>(seen.size()) > k.first + k.last;
        views.push_back(CacheView::list(seen));
      }
      const CacheView view = CacheView::per_layer(views);
      const auto session = target->open(256);
      session->prefill(TokenSpan(text).first(text.size() - 1));
      Token token = text.back();
      ASSERT_EQ(step.drafted.size(), static_cast<std::size_t>(kGamma));
      for (int depth = 0; depth < kGamma; ++depth) {
        std::vector<float> row(static_cast<std::size_t>(target->config().vocab));
        const std::int32_t parent = depth - 1, wanted = 0;
        Feed feed{session.get(), {&token, 1}, {&parent, 1}, {&wanted, 1}, row.data()};
        feed.continues = depth > 0;
        feed.view = depth == 0 && reads ? nullptr : &view;
        target->forward({&feed, 1});
        token = order_of(row).front();
        EXPECT_EQ(step.drafted[static_cast<std::size_t>(depth)].id, token) << steps << " " << depth;
      }
      if (reads) {
        EXPECT_GE(step.accepted, 1);  // its first row saw the whole cache
      }
      for (int i = 0; i < step.emitted; ++i) text.push_back(record.tokens[emitted++]);
    }
    EXPECT_GT(steps, 10u);
    EXPECT_GT(other_than_window, 20);
  }
}

TEST(SparseCache, BadInputIsRefused) {
  const ModelPtr target = deep_target();
  const auto refused = [&](const std::string& strategy, json options, const ModelPtr& model) {
    if (strategy == "self_speculation" && !options.contains("draft_by")) options["draft_by"] = "sparse_cache";
    return message_of([&] {
      DecodeLoop(model, Model::with_layers(model, {0}), choose(strategy, options), {.capacity = 64});
    });
  };
  const ModelPtr elsewhere =
      load_tiny_on(make_cuda_backend({.simulated = true}), random_llama(tiny_shape(), 5));
  for (const char* strategy : {"self_speculation", "hierarchical_speculation"}) {
    EXPECT_EQ(refused(strategy, {{"keep", "heavy"}}, target), "no error");
    EXPECT_THAT(refused(strategy, {{"keep", "heavy"}, {"chunk", 0}}, target), HasSubstr("chunk"));
    EXPECT_THAT(refused(strategy, {{"keep", "retrieved"}, {"chunk", 9}, {"keep_positions", 8}}, target),
                HasSubstr("at most keep_positions, 8"));
    EXPECT_THAT(refused(strategy, {{"keep", "heavy"}, {"refresh", 0}}, target), HasSubstr("refresh"));
    EXPECT_THAT(refused(strategy, {{"keep", "best"}}, target), HasSubstr("keep"));
    EXPECT_THAT(refused(strategy, {{"keep", "heavy"}}, elsewhere),
                HasSubstr("tells the weights of attention"));
    EXPECT_EQ(refused(strategy, {{"keep", "none"}}, elsewhere), "no error");
  }
  EXPECT_THAT(refused("self_speculation", {{"draft_by", "layer_skip"}, {"keep", "heavy"}}, target),
              HasSubstr("unless draft_by is sparse_cache"));
}

}  // namespace
}  // namespace speclab::sparse_cache_test
