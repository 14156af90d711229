// A draft that learns between steps leaves the law of the text as it is, as long as the rule gets the q that
// each token was drawn from. All branches of all coins of several steps, with an update after every
// rejection.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/decoding/drafting/draft_chain.h"
#include "core/decoding/drafting/online/online_learner.h"
#include "core/decoding/loop/prefill_cache.h"
#include "tests/decoding/rules/markov_cases.h"

namespace speclab::online_law_test {
namespace {

using namespace speclab::fixtures;

constexpr int kSymbols = 2;  // few, so that texts of many steps can be enumerated
constexpr int kLongText = 6;
constexpr SamplingParams kAsTrained{.temperature = 1, .top_k = 0, .top_p = 1};

/// Draws each token with the correction before the last update. If `late`, it hands over the q of the
/// correction after that update, as a drafter would that computes q again when the target verifies.
class DelayedDrafter : public Strategy {
 public:
  DelayedDrafter(const Resources& resources, bool late)
      : late_(late),
        newest_(kOften, resources.draft->config()),
        before_(newest_),
        chain_({.gamma = 1, .schedule = {}}, resources) {
    chain_.correct_rows(
        [this](const Sequence&, int depth, std::span<const float> state, std::span<float> logits) {
          after_update_.assign(logits.begin(), logits.end());
          newest_.correct(depth, state, after_update_);
          before_.correct(depth, state, logits);
        });
  }
  Reads reads() const override { return {.rows = true}; }
  void begin(const Sequence& sequence) override {
    newest_.forget();
    before_.forget();
    chain_.begin(sequence);
  }
  void draft(std::span<const Sequence* const> sequences, std::span<Draft* const> drafts) override {
    chain_.draft(sequences, drafts);
    if (late_ && drafts[0]->tree.drafted() > 0)
      drafts[0]->q[0].assign_logits(after_update_, kAsTrained, {}, kSymbols);
  }
  void observe(std::span<const Sequence* const>, std::span<const Outcome> outcomes) override {
    const int drafted = outcomes[0].draft->tree.drafted();
    if (drafted == 0) return;
    before_ = newest_;
    const auto accepted = static_cast<int>(outcomes[0].acceptance->path.size());
    newest_.observe(drafted, accepted, outcomes[0].rows.row(accepted));
  }

 private:
  static constexpr OnlineOptions kOften{.learning_rate = 1, .update_every = 1};
  bool late_;
  OnlineLearner newest_, before_;
  DraftChain chain_;
  std::vector<float> after_update_;
};

template <bool late>
StrategyChoice delayed() {
  static const StrategyEntry entry =
      local_entry([](const void*, const Resources& resources) -> std::unique_ptr<Strategy> {
        return std::make_unique<DelayedDrafter>(resources, late);
      });
  return StrategyChoice(entry);
}

class OnlineLaw : public ::testing::Test {
 protected:
  ModelPtr target = random_markov(kSymbols, 11, 1.5), draft = random_markov(kSymbols, 12, 1.5);

  /// Decodes the text once for every sequence of results of the coins. Calls `take` with the record of each
  /// run, and then `weigh` with its probability.
  void run_all(const StrategyChoice& strategy, const std::string& rule,
               const std::function<void(const GenerationRecord&)>& take,
               const std::function<void(double)>& weigh) const {
    LoopOptions options;
    options.capacity = 32;
    options.hash_rows = options.details = false;
    options.prefills = std::make_shared<PrefillCache>();
    DecodeLoop loop(target, draft, strategy, options);
    const Decode decode{.target = target,
                        .options = {{"max_tokens", kLongText}, {"temperature", 1}, {"rule", rule}},
                        .prompt = {0, 1}};
    Request request = decode.request();
    enumerate::walk(
        [&](const Coins& coins) {
          request.coins = coins;
          take(loop.run(request));
        },
        weigh);
  }
  /// The total variation distance of the law of the text from the target's.
  double distance(const StrategyChoice& strategy, const std::string& rule = "rejection",
                  int* accepted = nullptr) const {
    std::map<enumerate::Outcome, double> law;
    enumerate::Outcome text;
    run_all(
        strategy, rule,
        [&](const GenerationRecord& record) {
          text = record.tokens;
          if (accepted != nullptr) *accepted += total(record, &StepRecord::accepted);
        },
        [&](double probability) { law[text] += probability; });
    return enumerate::total_variation(law, markov::chain_law(target, kAsTrained, 1, kLongText));
  }
};

TEST_F(OnlineLaw, UpdatesBetweenStepsLeaveTheLawAsItIs) {
  for (const char* objective : {"forward_kl", "reverse_kl", "jsd", "total_variation"}) {
    const json options = {{"gamma", 1}, {"objective", objective}, {"learning_rate", 1}, {"update_every", 1}};
    EXPECT_LT(distance(choose("online_speculation", options)), 1e-12) << objective;
  }
  const json of_two = {{"gamma", 2}, {"learning_rate", 1}, {"update_every", 2}, {"buffer", 1}};
  for (const char* rule : {"rejection", "block", "sample_match"}) {
    int accepted = 0;
    EXPECT_LT(distance(choose("online_speculation", of_two), rule, &accepted), 1e-12) << rule;
    EXPECT_GT(accepted, 0) << rule;
  }
}

// The updates do change the drafts: a text has another expected number of steps. At a rate of 0 it is that of
// the same draft without a correction.
TEST_F(OnlineLaw, UpdatesChangeTheDrafts) {
  const auto expected_steps = [&](const StrategyChoice& strategy) {
    double steps = 0;
    int of_run = 0;
    run_all(
        strategy, "rejection",
        [&](const GenerationRecord& record) { of_run = static_cast<int>(record.steps.size()); },
        [&](double probability) { steps += probability * of_run; });
    return steps;
  };
  const auto at_rate = [&](double rate) {
    return expected_steps(
        choose("online_speculation", {{"gamma", 1}, {"learning_rate", rate}, {"update_every", 1}}));
  };
  const double plain = expected_steps(choose("speculative_sampling", {{"gamma", 1}}));
  EXPECT_NEAR(at_rate(0), plain, 1e-12);
  EXPECT_GT(std::abs(at_rate(1) - plain), 1e-3);
}

TEST_F(OnlineLaw, QOfALaterUpdateIsSeen) {
  EXPECT_LT(distance(delayed<false>()), 1e-12) << "a correction may lag behind";
  EXPECT_GT(distance(delayed<true>()), 1e-3) << "q is not what the token was drawn from";
}

}  // namespace
}  // namespace speclab::online_law_test
