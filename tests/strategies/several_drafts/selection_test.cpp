#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/decoding/budget/step_costs.h"
#include "tests/base/error_text.h"
#include "tests/decoding/loop/loop_fixture.h"

namespace speclab::selection_test {
namespace {

using namespace speclab::fixtures;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int kVocab = 16;

/// A target, a draft that is never far from it (the same table) and one that has nothing to do with it.
struct Models {
  ModelPtr target = random_markov(kVocab, 11), good = random_markov(kVocab, 11),
           bad = random_markov(kVocab, 77);
};

Decode decode(const Models& models, std::vector<ModelPtr> drafts, const json& strategy,
              json options = {{"temperature", 0}}) {
  if (!options.contains("max_tokens")) options["max_tokens"] = 200;
  return {.target = models.target,
          .strategy = choose("selection", strategy),
          .options = options,
          .prompt = {3, 1, 4, 1, 5, 9, 2, 6, 3, 1},
          .drafts = std::move(drafts)};
}

/// Steps by drafter, from step `first` on.
std::map<std::string, int> steps_by_source(const GenerationRecord& record, std::size_t first = 0) {
  std::map<std::string, int> out;
  for (std::size_t i = first; i < record.steps.size(); ++i) ++out[record.steps[i].source];
  return out;
}

const std::vector<json>& ways() {
  static const std::vector<json> all = {
      json{{"choose", "bandit"}, {"exploration", .1}},
      json{{"choose", "full_information"}, {"learner", "leader"}},
      json{{"choose", "full_information"}, {"learner", "exponential"}, {"rate", 3}}};
  return all;
}

json with(json options, const json& more) {
  options.update(more);
  return options;
}

TEST(Selection, UsesTheBetterOfTwoFreeDrafters) {
  const Models models;
  for (const json& way : ways()) {
    for (const json& options : {json{{"temperature", 0}}, json{{"temperature", 1}}}) {
      SCOPED_TRACE(way.dump() + options.dump());
      const json chains = with(way, {{"sources", {"draft"}}, {"gamma", 3}});
      auto used = steps_by_source(decode(models, {models.bad, models.good}, chains, options).run(), 8);
      EXPECT_GT(used["draft 2"], 4 * used["draft 1"]);
    }
  }
}

// A step with the good draft emits 4 tokens in 1 + 3 * 10 target forwards. One with the bad draft emits about
// 2 tokens in little more than 1. With full information the other model also reads the tokens: 10 more.
TEST(Selection, LeavesOutADrafterThatIsNotWorthItsTime) {
  const Models models;
  for (const json& way : ways()) {
    SCOPED_TRACE(way.dump());
    const json dear = with(way, {{"sources", {"draft"}}, {"gamma", 3}, {"c", {.01, 10}}});
    auto used =
        steps_by_source(decode(models, {models.bad, models.good}, dear, {{"temperature", 1}}).run(), 30);
    EXPECT_GT(used["draft 1"], 2 * used["draft 2"]);
  }
}

std::map<std::string, int> second_half(const GenerationRecord& record) {
  return steps_by_source(record, record.steps.size() / 2);
}

TEST(Selection, LearnsWhetherCopiesAreBetter) {
  const Models models;
  for (const json& way : ways()) {
    SCOPED_TRACE(way.dump());
    // The greedy text of a Markov chain soon repeats itself, and then copies are always right.
    const json strategy = with(way, {{"gamma", 2}, {"copies", 8}, {"c", {.5}}});
    auto used = second_half(decode(models, {models.bad}, strategy).run());
    EXPECT_GT(used["copies"], 3 * used["draft 1"]);
    // A sampled text of random rows hardly repeats itself, and the good draft costs nothing.
    const json free = with(strategy, {{"c", {0}}, {"gamma", 4}});
    used = second_half(decode(models, {models.good}, free, {{"temperature", 1.5}}).run());
    EXPECT_GT(used["draft 1"], 3 * used["copies"]);
  }
}

/// The tokens of all drafts, and how many of each were accepted.
std::vector<std::pair<std::vector<Token>, int>> drafts_of(const GenerationRecord& record) {
  std::vector<std::pair<std::vector<Token>, int>> out;
  for (const StepRecord& step : record.steps) {
    out.emplace_back(std::vector<Token>(), step.accepted);
    for (const DraftedToken& token : step.drafted) out.back().first.push_back(token.id);
  }
  return out;
}

struct Layers {
  ModelPtr target, whole, two, one, other, brief;
  Layers() {
    Shape shape = tiny_shape();
    shape.layers = 3;
    target = load_tiny(random_llama(shape, 3));
    whole = Model::with_layers(target, {0, 1, 2});
    two = Model::with_layers(target, {0, 1});
    one = Model::with_layers(target, {0});
    other = load_tiny(random_llama(shape, 5));
    shape.context = 40;
    brief = load_tiny(random_llama(shape, 5));
  }
  Decode decode(std::vector<ModelPtr> drafts, const StrategyChoice& strategy, json options) const {
    options["max_tokens"] = 60;
    return {.target = target,
            .strategy = strategy,
            .options = options,
            .prompt = {3, 1, 4, 1, 5, 9, 2, 6, 3, 1, 4, 1, 5},
            .drafts = std::move(drafts)};
  }
};

// With one drafter there is nothing to choose. What full information reads for its scores must not change
// what the draft model drafts.
TEST(Selection, OneDraftModelDraftsAsItDoesAlone) {
  const Layers models;
  for (const json& options : {json{{"temperature", 0}}, json{{"temperature", 1}},
                              json{{"temperature", .8}, {"top_k", 12}, {"repetition_penalty", 1.2}}}) {
    const GenerationRecord alone =
        models.decode({models.two}, choose("speculative_sampling", {{"gamma", 3}}), options).run();
    for (const json& way : ways()) {
      SCOPED_TRACE(way.dump() + options.dump());
      const GenerationRecord record =
          models
              .decode({models.two}, choose("selection", with(way, {{"sources", {"draft"}}, {"gamma", 3}})),
                      options)
              .run();
      EXPECT_EQ(record.tokens, alone.tokens);
      EXPECT_EQ(drafts_of(record), drafts_of(alone));
      // A token is read once. After full acceptance the last step may read one more, although it drafts
      // nothing.
      EXPECT_GE(record.draft.rows, alone.draft.rows);
      EXPECT_LE(record.draft.rows, alone.draft.rows + 1);
      if (way["choose"] == "bandit") {
        EXPECT_EQ(record.draft.calls, alone.draft.calls);
      }
    }
  }
}

TEST(Selection, FullInformationReadsEveryTokenWithEveryModel) {
  const Layers models;
  const json strategy = {
      {"sources", {"draft"}}, {"gamma", 3}, {"choose", "full_information"}, {"learner", "leader"}};
  const GenerationRecord record =
      models.decode({models.two, models.one}, choose("selection", strategy), {{"temperature", 1}}).run();
  ASSERT_EQ(record.drafts.size(), 2u);
  for (const Work& work : record.drafts)
    EXPECT_GE(work.calls, static_cast<std::int64_t>(record.steps.size()) - 1)
        << "a forward in each step but the first";
  json lazy = strategy;
  lazy.update({{"choose", "bandit"}, {"exploration", 0}});
  const GenerationRecord bandit =
      models.decode({models.whole, models.other}, choose("selection", lazy), {{"temperature", 1}}).run();
  EXPECT_LE(bandit.drafts[1].calls, 3) << "a draft model that is not chosen does not run";
  EXPECT_GT(bandit.drafts[0].calls, 20);
}

TEST(Selection, TextIsTheTargetsOwn) {
  const Layers models;
  const std::vector<std::vector<ModelPtr>> lists = {{}, {models.one}, {models.two, models.one, models.brief}};
  for (const json& options : {json{{"temperature", 0}}, json{{"temperature", 0}, {"repetition_penalty", 1.3}},
                              json{{"temperature", 1}, {"coins", "gumbel"}}}) {
    const GenerationRecord plain = models.decode({}, choose("autoregressive"), options).run();
    for (const json& way : ways()) {
      for (const json& more :
           {json{{"memory", .9}}, json{{"draft_temperature", 1}, {"copies", 2}, {"least_match", 1}},
            json{{"budget", "auto"}}}) {
        for (const auto& drafts : lists) {
          SCOPED_TRACE(way.dump() + more.dump() + options.dump());
          Decode run = models.decode(drafts, choose("selection", with(way, more)), options);
          run.loop.costs = std::make_shared<const StepCosts>(
              StepCosts{.target_ns = {10, 10.5, 11}, .draft_ns = {.5}, .further_draft_ns = {{.4}, {.3}}});
          const GenerationRecord record = run.run();
          EXPECT_EQ(record.tokens, plain.tokens);
          if (drafts.size() == 3) {
            EXPECT_GT(total(record, &StepRecord::accepted), 0);
          }
        }
      }
    }
  }
}

TEST(Selection, ABudgetLeavesOutADrafterThatIsTooDear) {
  const Models models;
  for (const json& way : ways()) {
    SCOPED_TRACE(way.dump());
    Decode run = decode(models, {models.bad, models.good},
                        with(way, {{"sources", {"draft"}}, {"gamma", 4}, {"budget", "auto"}}));
    const auto used = [&](double bad_ns, double good_ns) {
      run.loop.costs = std::make_shared<const StepCosts>(
          StepCosts{.target_ns = {10, 10.1, 10.2}, .draft_ns = {bad_ns}, .further_draft_ns = {{good_ns}}});
      return steps_by_source(run.run(), 20);
    };
    auto cheap = used(.1, .1);
    EXPECT_GT(cheap["draft 2"], 2 * (cheap["draft 1"] + cheap[""]));
    auto dear = used(1000, 1000);
    EXPECT_EQ(dear["draft 1"] + dear["draft 2"], 0);
    EXPECT_GT(dear[""], 80);
  }
}

TEST(Selection, RefusesWhatItCannotDraft) {
  const Models models;
  const auto message = [&](const json& options, std::vector<ModelPtr> drafts) {
    return message_of([&] { decode(models, std::move(drafts), options).run(); });
  };
  EXPECT_THAT(message({{"sources", {"draft"}}}, {}), HasSubstr("no draft model, and no other source"));
  EXPECT_EQ(message(json::object(), {}), "no error") << "copies alone";
  EXPECT_THAT(message({{"sources", {"draft", "texts"}}}, {models.bad}),
              AllOf(HasSubstr("sources: got \"texts\""), HasSubstr("Did you mean \"text\"?")));
  EXPECT_THAT(message({{"sources", {"text", "text"}}}, {models.bad}), HasSubstr("\"text\" twice"));
  EXPECT_THAT(message({{"sources", json::array()}}, {models.bad}), HasSubstr("an empty list"));
  EXPECT_THAT(message({{"c", {1, 2, 3}}}, {models.bad}), HasSubstr("one for each of the 1 draft models"));
  EXPECT_THAT(message({{"memory", 0}}, {models.bad}), HasSubstr("memory: got 0"));
  EXPECT_THAT(message(json::object(), {models.bad, models.bad, models.bad, models.bad}),
              HasSubstr("at most 3"));
  EXPECT_THAT(message_of([&] {
                Decode run = decode(models, {models.bad}, {{"budget", "auto"}});
                run.loop.costs = std::make_shared<const StepCosts>(StepCosts{.target_ns = {1}});
                run.run();
              }),
              AllOf(HasSubstr("selection: costs"), HasSubstr("times of forwards of the draft model")));
}

}  // namespace
}  // namespace speclab::selection_test
