// Exits and skipped layers that are chosen for each drafted token, computed again by hand: from models of the
// first layers, and from forwards of the whole draft.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "core/decoding/on_target/token_skips.h"
#include "tests/strategies/draft_rows.h"
#include "tests/strategies/on_target/own_cache.h"

namespace speclab::token_choices_test {
namespace {

using namespace speclab::fixtures;
using ::testing::ElementsAre;

const std::vector<int> kExits{1, 2, 4};

double probability_of(const std::vector<float>& row, Token token) {
  Distribution soft;
  soft.assign_logits(row, {.temperature = 1, .top_k = 0, .top_p = 1}, {}, static_cast<int>(row.size()));
  return soft.prob(token);
}

/// The hidden state of the last token after the first `layers` layers.
std::vector<float> state_after(const Model& model, const std::vector<Token>& text, int layers) {
  std::vector<float> state(static_cast<std::size_t>(model.config().hidden));
  const auto session = model.open(256);
  session->prefill(TokenSpan(text).first(text.size() - 1));
  const std::int32_t root = -1;
  const Tap tap{layers, state.data(), {}, Memory::kHost};
  session->forward({&text.back(), 1}, {&root, 1}, {}, nullptr, {&tap, 1});
  return state;
}

double cosine_of(const std::vector<float>& a, const std::vector<float>& b) {
  double both = 0, of_a = 0, of_b = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    both += static_cast<double>(a[i]) * static_cast<double>(b[i]);
    of_a += static_cast<double>(a[i]) * static_cast<double>(a[i]);
    of_b += static_cast<double>(b[i]) * static_cast<double>(b[i]);
  }
  return both / std::sqrt(of_a * of_b);
}

/// Calls visit(text before the step, step) for each step that the end of the text does not cut.
template <class Visit>
void for_whole_steps(const GenerationRecord& record, const std::vector<Token>& prompt, int gamma,
                     const Visit& visit) {
  std::vector<Token> text = prompt;
  text.push_back(record.tokens[0]);
  std::size_t emitted = 1;
  for (const StepRecord& step : record.steps) {
    if (static_cast<int>(record.tokens.size() - emitted) > gamma) visit(text, step);
    for (int i = 0; i < step.emitted; ++i) text.push_back(record.tokens[emitted++]);
  }
}

struct RuleCase {
  const char* when;
  double threshold;
};

TEST(TokenExits, EachTokenLeavesWhereTheRuleSays) {
  const ModelPtr target = deep_target(5, 64, 21);
  std::vector<ModelPtr> fronts;
  for (const int exit : kExits) {
    std::vector<int> layers(static_cast<std::size_t>(exit));
    std::iota(layers.begin(), layers.end(), 0);
    fronts.push_back(Model::with_layers(target, layers));
  }
  for (const RuleCase& rule : {RuleCase{"probability", .6}, {"agreement", 0}, {"similarity", .75}}) {
    SCOPED_TRACE(rule.when);
    const std::string when = rule.when;
    const Decode decode{.target = target,
                        .strategy = choose("self_speculation", {{"draft_by", "early_exit"},
                                                                {"exits", kExits},
                                                                {"exit_when", when},
                                                                {"exit_threshold", rule.threshold},
                                                                {"gamma", 5}}),
                        .options = {{"max_tokens", 60}}};
    const GenerationRecord record = decode.run();
    std::vector<int> left_at(kExits.size());
    for_whole_steps(record, decode.prompt, 5, [&](std::vector<Token> text, const StepRecord& step) {
      int calls = 0;
      ASSERT_EQ(step.drafted.size(), 5u);
      for (const DraftedToken& token : step.drafted) {
        std::size_t level = 0;
        for (bool leaves = false;; ++level) {
          const std::vector<float> row = row_after(fronts[level], text);
          const Token best = order_of(row).front();
          if (when == "probability") {
            leaves = probability_of(row, best) >= rule.threshold;
          } else if (level > 0 && when == "agreement") {
            leaves = best == order_of(row_after(fronts[level - 1], text)).front();
          } else if (level > 0) {
            leaves = cosine_of(state_after(*target, text, kExits[level]),
                               state_after(*target, text, kExits[level - 1])) >= rule.threshold;
          }
          if (!leaves && level + 1 < kExits.size()) continue;
          EXPECT_EQ(token.id, best);
          break;
        }
        ++left_at[level];
        calls += static_cast<int>(level) + 1 + (when == "similarity");  // the head is a call of its own
        text.push_back(token.id);
      }
      EXPECT_EQ(step.draft_calls, calls);
    });
    EXPECT_EQ(left_at[0] > 0, when == "probability");
    EXPECT_GT(left_at[1], 3);
    EXPECT_GT(left_at[2], 3);
  }
}

// Every row runs every layer once, as in a forward of the whole draft, and the target reads its weights once
// per step. Drafting adds output heads.
TEST(TokenExits, EveryRowRunsEveryLayerOnce) {
  const ModelPtr target = deep_target(5, 64, 21);
  for (const RuleCase& rule : {RuleCase{"probability", .6}, {"agreement", 0}, {"similarity", .75}}) {
    SCOPED_TRACE(rule.when);
    const GenerationRecord record = Decode{
        .target = target,
        .strategy = choose("self_speculation", {{"draft_by", "early_exit"},
                                                {"exits", kExits},
                                                {"exit_when", rule.when},
                                                {"exit_threshold", rule.threshold},
                                                {"gamma", 4}}),
        .options = {{"max_tokens", 50},
                    {"temperature", 1}}}.run();
    const bool similar = std::string(rule.when) == "similarity";
    // Each call of the draft runs the head once. With `similarity` the head runs once for each token.
    const auto heads = similar ? drafted(record) : static_cast<int>(record.draft.calls);
    double flops = heads * target->head_work(1).flops;
    std::int64_t committed = record.context_length;
    for (const StepRecord& step : record.steps) {
      const std::int64_t n = step.rows;
      flops += target->work(n, n, committed, n * committed + n * (n + 1) / 2).flops;
      committed += step.emitted;
    }
    EXPECT_EQ(record.target.flops + record.draft.flops, flops);
  }
}

TEST(TokenSkips, ChoosesByTheProbabilityOfTheTokenBefore) {
  const std::vector<int> layers{0, 1, 2, 3};
  const TokenSkips skips({"", "2", "1,3"}, {.25, .5}, layers, "test");
  ASSERT_EQ(skips.sets(), 3);
  EXPECT_THAT(skips.kept(0), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(skips.kept(1), ElementsAre(0, 1, 3));
  EXPECT_THAT(skips.kept(2), ElementsAre(0, 2));
  EXPECT_EQ(skips.after(0), 0);
  EXPECT_EQ(skips.after(.2499), 0);
  EXPECT_EQ(skips.after(.25), 1);
  EXPECT_EQ(skips.after(.4), 1);
  EXPECT_EQ(skips.after(.5), 2);
  EXPECT_EQ(skips.after(1), 2);
  const TokenSkips one({"1"}, {}, layers, "test");
  EXPECT_EQ(one.after(.9), 0);
}

// Each token comes from a forward of the whole draft with the layers of its set.
TEST(TokenSkips, EachTokenHasTheLayersOfItsSet) {
  const ModelPtr target = deep_target(5, 64, 21);
  const std::vector<std::string> texts{"2", "1,3", "1,2,3"};
  const std::vector<double> bounds{.5, .8};
  const TokenSkips skips(texts, bounds, target->layers(), "test");
  const Decode decode{
      .target = target,
      .strategy = choose("self_speculation", {{"skip_sets", texts}, {"skip_bounds", bounds}, {"gamma", 4}}),
      .options = {{"max_tokens", 60}}};
  const GenerationRecord record = decode.run();
  std::vector<int> used(texts.size());
  int changes = 0;
  for_whole_steps(record, decode.prompt, 4, [&](const std::vector<Token>& text, const StepRecord& step) {
    std::vector<Token> fed{text.back()};
    int set = 0;
    ASSERT_EQ(step.drafted.size(), 4u);
    for (const DraftedToken& token : step.drafted) {
      const auto session = target->open(256);
      session->prefill(TokenSpan(text).first(text.size() - 1));
      std::vector<std::int32_t> parents(fed.size());
      std::iota(parents.begin(), parents.end(), -1);
      const auto last = static_cast<std::int32_t>(fed.size()) - 1;
      std::vector<float> row(static_cast<std::size_t>(target->config().vocab));
      Feed feed{session.get(), fed, parents, {&last, 1}, row.data()};
      feed.layers = LayerPart::only(skips.kept(set));
      target->forward({&feed, 1});
      const Token best = order_of(row).front();
      EXPECT_EQ(token.id, best);
      ++used[static_cast<std::size_t>(set)];
      fed.push_back(best);
      const int next = skips.after(probability_of(row, best));
      changes += next != set;
      set = next;
    }
  });
  for (const int count : used) EXPECT_GT(count, 3);
  EXPECT_GT(changes, 5);
  EXPECT_EQ(record.draft.calls, drafted(record));
  EXPECT_GT(record.draft.rows, drafted(record));  // drafts that were fed again
}

}  // namespace
}  // namespace speclab::token_choices_test
