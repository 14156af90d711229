// The acceptance of draft models on a text, compared with rows that are computed from scratch.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "core/decoding/drafting/selection/model_scores.h"
#include "core/decoding/rows/processors.h"
#include "tests/decoding/loop/loop_fixture.h"
#include "tests/strategies/draft_rows.h"

namespace speclab::model_scores_test {
namespace {

using namespace speclab::fixtures;

constexpr int kGamma = 3;

/// What ModelScores told, by model and slot: the drafts in order.
using Told = std::map<std::pair<std::size_t, int>, std::vector<std::vector<double>>>;
Told* told = nullptr;

/// Two draft models take turns, in runs of two steps, and every fifth step drafts nothing.
class TakesTurns final : public Strategy {
 public:
  explicit TakesTurns(const Resources& resources) : models_(resources.drafts) {
    for (std::size_t i = 0; i < models_.size(); ++i)
      chains_.push_back(std::make_unique<DraftChain>(
          DraftChainOptions{.gamma = kGamma, .draft = {}, .schedule = {}}, resources.with_draft(i)));
    scores_ = std::make_unique<ModelScores>(chains_, models_, kGamma, DraftSampling{}, resources.batch);
    steps_.assign(static_cast<std::size_t>(resources.batch), 0);
  }
  Reads reads() const override { return {.rows = true}; }
  void begin(const Sequence& sequence) override {
    for (const auto& chain : chains_) chain->begin(sequence);
    scores_->begin(sequence);
    steps_[static_cast<std::size_t>(sequence.slot)] = 0;
  }
  void draft(std::span<const Sequence* const> sequences, std::span<Draft* const> drafts) override {
    scores_->read(sequences,
                  [](const Sequence& sequence, std::size_t model, std::span<const double> acceptance) {
                    (*told)[{model, sequence.slot}].emplace_back(acceptance.begin(), acceptance.end());
                  });
    for (std::size_t i = 0; i < sequences.size(); ++i) {
      const int model = model_of(*sequences[i]);
      if (model < 0) continue;
      const Sequence* const one[] = {sequences[i]};
      Draft* const its[] = {drafts[i]};
      chains_[static_cast<std::size_t>(model)]->draft(one, its);
    }
  }
  void observe(std::span<const Sequence* const> sequences, std::span<const Outcome> outcomes) override {
    for (std::size_t i = 0; i < sequences.size(); ++i) {
      scores_->observe(*sequences[i], outcomes[i], model_of(*sequences[i]));
      ++steps_[static_cast<std::size_t>(sequences[i]->slot)];
    }
  }

 private:
  int model_of(const Sequence& sequence) const {
    const int step = steps_[static_cast<std::size_t>(sequence.slot)];
    return step % 5 == 4 ? -1 : step / 2 % 2;
  }
  std::vector<std::shared_ptr<const Model>> models_;
  std::vector<std::unique_ptr<DraftChain>> chains_;
  std::unique_ptr<ModelScores> scores_;
  std::vector<int> steps_;
};

StrategyChoice takes_turns() {
  static const StrategyEntry entry = [] {
    StrategyEntry made =
        local_entry([](const void*, const Resources& resources) -> std::unique_ptr<Strategy> {
          return std::make_unique<TakesTurns>(resources);
        });
    made.info.most_drafts = 3;
    return made;
  }();
  return StrategyChoice(entry);
}

struct Models {
  ModelPtr target;
  std::vector<ModelPtr> drafts;
  Models() {
    Shape shape = tiny_shape();
    shape.layers = 3;
    target = load_tiny(random_llama(shape, 3));
    drafts = {Model::with_layers(target, {0, 1}), Model::with_layers(target, {0, 1, 2})};
  }
};

/// Acceptance of a draft of one token at each token of `text` from index `first` on, from scratch.
std::vector<double> expected_acceptance(const Models& models, std::size_t model, const Request& request,
                                        const std::vector<Token>& text, std::size_t first) {
  const SamplingParams& sampling = request.options.sampling;
  const LogitsProcessors processors = request.options.processors({}, static_cast<int>(request.prompt.size()));
  const auto law = [&](const ModelPtr& of, std::size_t at) {
    std::vector<Token> before(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(at));
    std::vector<float> row = row_after(of, before), processed(row.size());
    processors.apply(row, {}, before, {}, processed);
    Distribution out;
    out.assign_logits(processed, sampling, {}, of->config().vocab);
    return out;
  };
  std::vector<double> out;
  for (std::size_t at = first; at < text.size(); ++at) {
    const Distribution q = law(models.drafts[model], at);
    if (request.options.coins == CoinUse::gumbel)
      out.push_back(q.sample_coupled(request.coins, static_cast<std::int64_t>(at)) == text[at] ? 1 : 0);
    else out.push_back(overlap(law(models.target, at), q));
  }
  return out;
}

void expect_exact_scores(const json& options) {
  SCOPED_TRACE(options.dump());
  const Models models;
  const std::vector<std::vector<Token>> prompts{{3, 1, 4, 1, 5, 9, 2, 6}, {2, 7, 1}};
  std::vector<Request> requests;
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    Request request = Decode{.target = models.target, .options = options}.request();
    request.prompt = prompts[i];
    request.coins = Coins(7, i);
    request.options.max_tokens = i == 0 ? 60 : 40;
    requests.push_back(request);
  }
  Told heard;
  told = &heard;
  const auto records =
      DecodeLoop(models.target, models.drafts, takes_turns(), {.batch = 2, .capacity = 128}).run(requests);
  told = nullptr;
  ASSERT_EQ(heard.size(), 4u) << "two models, two sequences";
  for (std::size_t i = 0; i < records.size(); ++i) {
    std::vector<Token> text = prompts[i];
    text.insert(text.end(), records[i].tokens.begin(), records[i].tokens.end());
    int accepted = 0, steps_without = 0;
    for (const StepRecord& step : records[i].steps) {
      accepted += step.accepted;
      steps_without += step.drafted.empty() ? 1 : 0;
    }
    EXPECT_GT(accepted, 5);
    EXPECT_GT(steps_without, 1);
    // The tokens of the last step are not read.
    const std::size_t read = text.size() - static_cast<std::size_t>(records[i].steps.back().emitted);
    for (std::size_t model = 0; model < 2; ++model) {
      const std::vector<double> at_token =
          expected_acceptance(models, model, requests[i], text, prompts[i].size() + 1);
      const std::vector<std::vector<double>>& drafts = heard.at({model, static_cast<int>(i)});
      ASSERT_EQ(drafts.size(), read - (prompts[i].size() + 1) - (kGamma - 1)) << model;
      for (std::size_t place = 0; place < drafts.size(); ++place) {
        ASSERT_EQ(drafts[place].size(), static_cast<std::size_t>(kGamma));
        for (std::size_t d = 0; d < kGamma; ++d)
          EXPECT_NEAR(drafts[place][d], at_token[place + d], 1e-9) << model << " at " << place << ", " << d;
      }
    }
  }
}

TEST(ModelScores, AreTheAcceptanceAtEveryTokenWhoeverDrafted) {
  expect_exact_scores({{"temperature", 0}});
  expect_exact_scores({{"temperature", 1}});
  expect_exact_scores({{"temperature", .7}, {"top_k", 20}, {"repetition_penalty", 1.3}});
  expect_exact_scores({{"temperature", 0}, {"repetition_penalty", 1.3}});
  expect_exact_scores({{"temperature", 1}, {"coins", "gumbel"}});
}

}  // namespace
}  // namespace speclab::model_scores_test
