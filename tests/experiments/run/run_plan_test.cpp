// The order in which the lines of a run are measured.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "core/base/error.h"
#include "experiments/config/config_file.h"
#include "experiments/run/run_plan.h"

namespace speclab::run_plan_test {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

/// An experiment with `prompts` prompts. A case is the name of a strategy or an object.
Experiment planned(int prompts, const json& cases, const json& more = json::object()) {
  json config = {{"name", "plan"}, {"target", "m"}, {"repeats", 1}, {"cases", json::array()}};
  for (int i = 0; i < prompts; ++i) config["prompts"]["inline"].push_back(std::to_string(i));
  for (const json& spec : cases)
    config["cases"].push_back(spec.is_string() ? json{{"strategy", spec}} : spec);
  config.update(more);
  return parse_experiment(config, "plan.json");
}

const json kWithMemory = {{"strategy", "lookahead"}, {"keep_pool", true}};

/// How often the case has each place among the cases of a text, in the first repeat.
std::map<int, int> places_of(const Experiment& experiment, const std::string& id) {
  const int cases = static_cast<int>(experiment.cases.size());
  std::map<int, int> places;
  for (const PlannedLine& line : plan_lines(experiment)) {
    if (line.repeat == 0 && experiment.cases[static_cast<std::size_t>(line.case_index)].id == id)
      ++places[line.order % cases];
  }
  return places;
}

TEST(Plan, AllCasesOfATextStandTogether) {
  const Experiment experiment =
      planned(2, {"autoregressive", "prompt_lookup"}, {{"repeats", 3}, {"seeds", {5, 6}}});
  const auto plan = plan_lines(experiment);
  ASSERT_EQ(plan.size(), 2u * 2u * 2u * 3u);
  std::set<std::tuple<int, int, std::uint64_t, int>> distinct;
  for (std::size_t i = 0; i < plan.size(); ++i) {
    EXPECT_EQ(plan[i].order, static_cast<int>(i));
    EXPECT_EQ(plan[i].repeat, static_cast<int>(i / 8)) << "repeats are outermost";
    EXPECT_EQ(plan[i].prompt_index, plan[i / 2 * 2].prompt_index);
    EXPECT_EQ(plan[i].seed, plan[i / 2 * 2].seed);
    distinct.emplace(plan[i].case_index, plan[i].prompt_index, plan[i].seed, plan[i].repeat);
  }
  EXPECT_EQ(distinct.size(), plan.size());
  const auto again = plan_lines(experiment);
  for (std::size_t i = 0; i < plan.size(); ++i) EXPECT_EQ(plan[i].case_index, again[i].case_index);
}

TEST(Plan, AReferenceTakesEachPlaceEquallyOften) {
  const json five = {"autoregressive", "prompt_lookup", "jacobi", "suffix_decoding", "token_recycling"};
  for (const auto& [place, times] : places_of(planned(40, five), "autoregressive"))
    EXPECT_EQ(times, 8) << "place " << place;
  EXPECT_EQ(places_of(planned(40, five), "autoregressive").size(), 5u);
  // With one repeat of few prompts, it is not always first or always last.
  EXPECT_EQ(places_of(planned(5, five), "autoregressive").size(), 5u);
  // Each of two references takes each place about equally often.
  const Experiment two =
      planned(300, {"autoregressive", "prompt_lookup", "jacobi"}, {{"options", {{"temperature", {0, 1}}}}});
  for (const char* id : {"autoregressive/temperature=0", "autoregressive/temperature=1"}) {
    const std::map<int, int> places = places_of(two, id);
    EXPECT_EQ(places.size(), 6u);
    for (const auto& [place, times] : places) EXPECT_NEAR(times, 50, 25) << id << " place " << place;
  }
}

TEST(Plan, ACaseThatDraftsFromTheReferenceComesAfterItInTheFirstRepeat) {
  const Experiment experiment =
      planned(60, {"autoregressive", "simulated", "prompt_lookup", "jacobi"}, {{"repeats", 2}});
  std::map<std::pair<int, int>, std::map<std::string, int>> order;  // by repeat and prompt
  for (const PlannedLine& line : plan_lines(experiment))
    order[{line.repeat, line.prompt_index}][experiment.cases[static_cast<std::size_t>(line.case_index)].id] =
        line.order;
  int before = 0;
  for (const auto& [text, of] : order) {
    const bool is_before = of.at("simulated") < of.at("autoregressive");
    EXPECT_FALSE(text.first == 0 && is_before) << "prompt " << text.second;
    before += is_before;
  }
  EXPECT_GT(before, 10) << "in later repeats the reference text exists";
  for (const auto& [place, times] : places_of(experiment, "autoregressive"))
    EXPECT_EQ(times, 20) << "the reference takes each place among the other cases, place " << place;
}

TEST(Plan, WithMemoryPromptsStandInTheOrderOfTheFile) {
  const Experiment experiment =
      planned(7, {"autoregressive", "prompt_lookup", kWithMemory}, {{"repeats", 3}, {"seeds", {9, 4}}});
  std::size_t i = 0;
  const auto plan = plan_lines(experiment);
  ASSERT_EQ(plan.size(), 3u * 2u * 7u * 3u);
  for (int repeat = 0; repeat < 3; ++repeat) {
    for (const std::uint64_t seed : {9u, 4u}) {
      for (int prompt = 0; prompt < 7; ++prompt) {
        for (int each = 0; each < 3; ++each, ++i) {
          EXPECT_EQ(plan[i].repeat, repeat);
          EXPECT_EQ(plan[i].seed, seed);
          EXPECT_EQ(plan[i].prompt_index, prompt);
        }
      }
    }
  }
}

TEST(Plan, RefusesShardsOfCasesWithMemory) {
  const Experiment experiment = planned(4, {"autoregressive", kWithMemory});
  EXPECT_NO_THROW(plan_lines(experiment, {1, 1}));
  try {
    plan_lines(experiment, {1, 2});
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("--shard: got 1/2 of an experiment with lookahead/keep_pool=true"));
    EXPECT_THAT(error.what(), HasSubstr("without --shard"));
  }
}

TEST(Config, RefusesPromptsThatChangeAStrategyWithMemory) {
  const auto error_of = [](const json& options) -> std::string {
    json config = {
        {"name", "plan"}, {"target", "m"}, {"cases", {kWithMemory, {{"strategy", "token_recycling"}}}}};
    config["prompts"]["inline"] = {"1", {{"id", "own"}, {"turns", {"2"}}, {"options", options}}};
    try {
      parse_experiment(config, "plan.json");
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(error_of({{"N", 4}}),
              HasSubstr("prompt own: /options: got {\"N\":4} for lookahead/keep_pool=true"));
  EXPECT_THAT(error_of({{"keep", true}}), HasSubstr("for token_recycling"))
      << "one prompt switches memory on";
  EXPECT_EQ(error_of({{"max_tokens", 4}}), "") << "options of generation do not change the memory";
  EXPECT_EQ(error_of({{"N", 5}}), "") << "the value that it has anyway";
  EXPECT_EQ(error_of({{"k", 4}}), "") << "of a case without memory";
}

TEST(Shard, PartsTogetherAreTheWholePlan) {
  const Experiment experiment = planned(3, {"autoregressive", "prompt_lookup"}, {{"repeats", 2}});
  const std::vector<PlannedLine> whole = plan_lines(experiment);
  std::vector<int> orders;
  for (int i = 1; i <= 2; ++i) {
    int last = -1;
    for (const PlannedLine& line : plan_lines(experiment, {i, 2})) {
      EXPECT_EQ(line.prompt_index % 2, i - 1) << "every second prompt";
      EXPECT_GT(line.order, last) << "in the order of the whole run";
      last = line.order;
      EXPECT_EQ(line.case_index, whole[static_cast<std::size_t>(line.order)].case_index);
      EXPECT_EQ(line.prompt_index, whole[static_cast<std::size_t>(line.order)].prompt_index);
      orders.push_back(line.order);
    }
  }
  std::sort(orders.begin(), orders.end());
  ASSERT_EQ(orders.size(), whole.size());
  for (std::size_t i = 0; i < orders.size(); ++i) EXPECT_EQ(orders[i], static_cast<int>(i));
  EXPECT_THROW(plan_lines(experiment, {4, 4}), Error);
}

}  // namespace
}  // namespace speclab::run_plan_test
