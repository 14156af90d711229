// Choices in hindsight, compared with a search over every way to cut the drafts.
#include "experiments/simulate/replay/oracles.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <random>

#include "experiments/simulate/replay.h"

namespace speclab::oracles_test {
namespace {

using nlohmann::json;

constexpr int kLongest = 4;

std::shared_ptr<const CaseData> oracle_case(const std::string& id) {
  auto data = std::make_shared<CaseData>();
  data->config = {{"id", id}, {"draft", "d"}, {"options", json::object()}};
  return data;
}

/// Two texts of each of three prompts, with random numbers of matching tokens.
Trace random_trace(const std::string& id, unsigned seed, const std::vector<int>& lengths) {
  std::mt19937 random(seed);
  Trace trace{.data = oracle_case(id), .texts = {}};
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    TracedText text{
        .prompt = std::string(1, static_cast<char>('a' + i / 2)), .seed = i % 2, .turn = 0, .drafts = {}};
    for (int left = lengths[i]; left > 0; --left) {
      const auto drafted = static_cast<std::size_t>(std::min(kLongest, left));
      TracedDraft draft{.confidence = std::vector<double>(drafted, .5)};
      draft.matching = static_cast<int>(random() % (drafted + 1));
      text.drafts.push_back(draft);
    }
    trace.texts.push_back(text);
  }
  return trace;
}

const std::vector<int> kLengths = {7, 5, 6, 1, 8, 4};

theory::Calibration oracle_costs(double token, double step) {
  theory::Calibration costs;
  costs.t_ar = 10e6;
  costs.target = theory::RowTimes({{1, 9e6}, {2, 10e6}, {5, 17e6}});
  costs.draft_token = token;
  costs.draft_step = step;
  costs.accept_step = .3e6;
  costs.accept_row = .1e6;
  costs.other = .2e6;
  return costs;
}

double price_of(const theory::Calibration& costs, int drafted, int emitted) {
  return costs.draft_step + costs.draft_token * drafted + costs.target.at(drafted + 1) + costs.accept_step +
         costs.accept_row * emitted + costs.other;
}

/// The least time of a text over every drafter and length of each step, also lengths that are not accepted.
double least_by_trying(const std::vector<const Trace*>& traces, const std::vector<theory::Calibration>& costs,
                       std::size_t text, int most) {
  const std::size_t count = traces.front()->texts[text].drafts.size();
  std::map<std::size_t, double> known;
  const std::function<double(std::size_t)> from = [&](std::size_t i) {
    if (i >= count) return 0.0;
    if (const auto found = known.find(i); found != known.end()) return found->second;
    double best = std::numeric_limits<double>::infinity();
    for (std::size_t d = 0; d < traces.size(); ++d) {
      const TracedDraft& draft = traces[d]->texts[text].drafts[i];
      for (int drafted = 0; drafted <= std::min(most, draft.drafted()); ++drafted) {
        const int left = static_cast<int>(count - i),
                  emitted = std::min(std::min(drafted, draft.matching) + 1, left);
        best = std::min(best,
                        price_of(costs[d], drafted, emitted) + from(i + static_cast<std::size_t>(emitted)));
      }
    }
    return known[i] = best;
  };
  return from(0);
}

const Oracle& oracle_named(const std::vector<Oracle>& oracles, const std::string& name) {
  const auto found = std::ranges::find(oracles, name, &Oracle::name);
  EXPECT_NE(found, oracles.end()) << name;
  return *found;
}

TEST(Oracles, TheBestStepsAreThoseOfAnExhaustiveSearch) {
  const Trace first = random_trace("first", 1, kLengths), second = random_trace("second", 2, kLengths);
  const std::vector<theory::Calibration> costs = {oracle_costs(1e6, 0), oracle_costs(.2e6, 1e6)};
  const std::vector<PricedTrace> all = {{&first, StepPrices(costs[0], kLongest)},
                                        {&second, StepPrices(costs[1], kLongest)}};
  for (const int most : {1, 3, 4}) {
    const std::vector<Oracle> oracles = oracles_of(all[0], all, {1, most});
    ASSERT_EQ(oracles.size(), 5u);
    const Oracle &own = oracle_named(oracles, "step"), &any = oracle_named(oracles, "drafter_by_step");
    EXPECT_EQ(any.choice["cases"], (json{"first", "second"}));
    for (std::size_t prompt = 0; prompt < 3; ++prompt) {
      double best_own = 0, best_any = 0;
      for (const std::size_t text : {2 * prompt, 2 * prompt + 1}) {
        best_own += least_by_trying({&first}, {costs[0]}, text, most);
        best_any += least_by_trying({&first, &second}, costs, text, most);
      }
      EXPECT_NEAR(own.ns[prompt], best_own, 1e-3);
      EXPECT_NEAR(any.ns[prompt], best_any, 1e-3);
      EXPECT_LE(any.ns[prompt], own.ns[prompt] + 1e-3);
    }
  }
}

TEST(Oracles, ConstantLengthsAreThoseOfTheirReplays) {
  // The second drafter proposes the same tokens for a tenth of the time.
  const Trace first = random_trace("first", 1, kLengths), second = random_trace("second", 1, kLengths);
  const std::vector<theory::Calibration> costs = {oracle_costs(1e6, 0), oracle_costs(.1e6, 0)};
  const std::vector<PricedTrace> all = {{&first, StepPrices(costs[0], kLongest)},
                                        {&second, StepPrices(costs[1], kLongest)}};
  std::map<std::string, double> best_of_case;
  std::vector<double> best_of_prompt(3, std::numeric_limits<double>::infinity());
  for (std::size_t d = 0; d < 2; ++d) {
    double& best = best_of_case[all[d].trace->data->id()] = std::numeric_limits<double>::infinity();
    for (int gamma = 1; gamma <= kLongest; ++gamma) {
      double sum = 0;
      for (std::size_t prompt = 0; prompt < 3; ++prompt) {
        const std::vector<std::size_t> texts = {2 * prompt, 2 * prompt + 1};
        const Replayed counts = replay(*all[d].trace, texts, {gamma, {}});
        const double ns = counts.steps * replayed_step(counts, costs[d]).total();
        sum += ns;
        if (d == 0) best_of_prompt[prompt] = std::min(best_of_prompt[prompt], ns);
      }
      best = std::min(best, sum);
    }
  }
  const std::vector<Oracle> oracles = oracles_of(all[0], all, {1, 2, 3, 4, 9});
  const auto sum = [](const Oracle& oracle) {
    double total = 0;
    for (const double ns : oracle.ns) total += ns;
    return total;
  };
  EXPECT_NEAR(sum(oracle_named(oracles, "length")), best_of_case["first"], 1e-3);
  const Oracle& drafter = oracle_named(oracles, "drafter");
  EXPECT_EQ(drafter.choice["case"], "second");
  EXPECT_LT(best_of_case["second"], best_of_case["first"]);
  EXPECT_NEAR(sum(drafter), best_of_case["second"], 1e-3);
  const Oracle& by_prompt = oracle_named(oracles, "length_by_prompt");
  for (std::size_t prompt = 0; prompt < 3; ++prompt)
    EXPECT_NEAR(by_prompt.ns[prompt], best_of_prompt[prompt], 1e-3);
  EXPECT_EQ(by_prompt.choice["gammas"].size(), 3u);
}

TEST(Oracles, TracesOfOtherTextsAreNoDrafters) {
  const Trace first = random_trace("first", 1, kLengths);
  Trace other = random_trace("other", 2, {7, 5, 6, 1, 8, 3});
  const StepPrices prices(oracle_costs(1e6, 0), kLongest);
  std::vector<PricedTrace> all = {{&first, prices}, {&other, prices}};
  EXPECT_EQ(oracles_of(all[0], all, {1, 2}).size(), 3u) << "the last text is shorter";
  other = random_trace("other", 2, kLengths);
  EXPECT_EQ(oracles_of(all[0], all, {1, 2}).size(), 5u);
  other.texts[0].seed = 9;
  EXPECT_EQ(oracles_of(all[0], all, {1, 2}).size(), 3u);
}

TEST(Oracles, RegretIsMillisecondsAToken) {
  const CaseData data = *oracle_case("first");
  json regret = json::object(), ci95 = json::object();
  add_regret(data, {4e6, 9e6}, {1, 4}, {"step", {3e6, 5e6}, {}}, regret, ci95);
  EXPECT_DOUBLE_EQ(regret["step"], 1);
  EXPECT_DOUBLE_EQ(ci95["step"][0], 1) << "each prompt loses 1 ms a token";
}

}  // namespace
}  // namespace speclab::oracles_test
