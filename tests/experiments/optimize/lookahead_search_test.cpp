// The search of W, N and G on a grid that follows the law exactly.
#include "experiments/optimize/lookahead_search.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

namespace speclab::lookahead_search_test {
namespace {

using nlohmann::json;

constexpr theory::LookaheadLaw kExactLaw{.alpha = .4, .f = 2.5};
constexpr int kStepsOfText = 1000;

std::shared_ptr<CaseData> grid_case(const std::string& id, const json& options, double tau, int rows) {
  auto data = std::make_shared<CaseData>();
  data->config = {{"id", id},
                  {"strategy", id == "autoregressive" ? "autoregressive" : "lookahead"},
                  {"verify", "one_pass"},
                  {"options", options}};
  data->config["draft"] = nullptr;
  data->environment = json::object();
  for (int prompt = 0; prompt < 3; ++prompt) {
    GenerationRecord turn;
    const auto tokens = static_cast<int>(std::lround(kStepsOfText * tau));
    turn.tokens.assign(1 + static_cast<std::size_t>(tokens), 5);
    turn.steps.resize(kStepsOfText);
    for (int i = 0; i < kStepsOfText; ++i) {
      StepRecord& step = turn.steps[static_cast<std::size_t>(i)];
      step.rows = rows;
      step.emitted = tokens * (i + 1) / kStepsOfText - tokens * i / kStepsOfText;
    }
    LineRecord line;
    line.turns.push_back(std::move(turn));
    data->prompts.push_back(std::to_string(prompt));
    data->categories.emplace_back("a");
    data->lines.push_back(std::make_shared<const PromptLines>(PromptLines{{line}}));
  }
  return data;
}

json cost(double constant) { return {{"constant", constant}, {"slope", 0.0}}; }

/// A grid on a machine with this t(n), where a step of lookahead decoding takes a tenth of a millisecond
/// besides its forward.
RunData grid_with(const json& t_n_ns) {
  RunData run;
  const json plain = {{"W", 0}, {"N", 0}, {"G", 0}};
  run.cases = {grid_case("autoregressive", plain, 1, 1)};
  json costs = {{"autoregressive", {{"draft_ns", cost(0)}, {"accept_ns", cost(0)}, {"other_ns", 0.0}}}};
  for (const int w : {1, 2, 4, 8}) {
    for (const int n : {3, 5}) {
      const json options = {{"W", w}, {"N", n}, {"G", w}};
      const std::string id = "lookahead" + options.dump();
      run.cases.push_back(grid_case(id, options, kExactLaw.compression({w, n, w}), 2 * w * (n - 1)));
      run.cases.back()->reference = run.cases.front();
      costs[id] = {{"draft_ns", cost(6e4)}, {"accept_ns", cost(3e4)}, {"other_ns", 1e4}};
    }
  }
  run.calibration = {{"t_n_ns", t_n_ns}, {"cases", costs}, {"drafts", json::object()}};
  return run;
}

TEST(SearchLookahead, FreeRowsGoToTheWidestSetting) {
  const RunData grid = grid_with({{"1", 1e6}, {"64", 1e6}});
  const auto found = search_lookahead(grid, 32, 5);
  ASSERT_EQ(found.size(), 5u);
  EXPECT_TRUE(std::ranges::is_sorted(found, std::greater(), &LookaheadPrediction::speedup));
  double most = 0;
  for (int n = 2; n <= 8; ++n) {
    for (int w = 1; 2 * w * (n - 1) <= 32; ++w) most = std::max(most, kExactLaw.compression({w, n, w}));
  }
  EXPECT_NEAR(found[0].tau, most, .02);
  EXPECT_NEAR(found[0].speedup, most / 1.1, .02) << "a forward, and a tenth of it besides";
  for (const LookaheadPrediction& one : found) {
    EXPECT_EQ(one.shape.W, one.shape.G);
    EXPECT_LE(theory::lookahead_rows(one.shape), 32);
    ASSERT_TRUE(one.speedup_ci95.is_array());
    // All prompts are equal, so the fit of a resample is that of the grid.
    EXPECT_NEAR(one.tau_ci95[0].get<double>(), one.tau, 1e-6);
    EXPECT_NEAR(one.speedup_ci95[1].get<double>(), one.speedup, 1e-6);
  }
}

TEST(SearchLookahead, DearRowsGoToTheNarrowestSetting) {
  const auto found = search_lookahead(grid_with({{"1", 1e6}, {"2", 2e6}, {"64", 64e6}}), 32, 1);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].shape.W, 1);
  EXPECT_EQ(found[0].shape.N, 2);
  EXPECT_LT(found[0].speedup, 1);
}

TEST(SearchLookahead, ALimitOfRowsLimitsTheSearch) {
  const auto found = search_lookahead(grid_with({{"1", 1e6}, {"64", 1e6}}), 2, 8);
  ASSERT_EQ(found.size(), 1u) << "only W = 1, N = 2 has two rows";
}

TEST(SearchLookahead, WithoutCostsOrGridNothingIsPredicted) {
  RunData grid = grid_with({{"1", 1e6}, {"64", 1e6}});
  grid.calibration["cases"]["autoregressive"] = nullptr;  // it failed in the calibration
  EXPECT_TRUE(search_lookahead(grid, 32, 3).empty());
  grid.calibration = nullptr;
  EXPECT_TRUE(search_lookahead(grid, 32, 3).empty());
  grid = grid_with({{"1", 1e6}, {"64", 1e6}});
  grid.cases.resize(2);
  EXPECT_TRUE(search_lookahead(grid, 32, 3).empty()) << "one setting is no grid";
}

}  // namespace
}  // namespace speclab::lookahead_search_test
