// Judging whether a run was measured on a busy machine.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "core/measure/run_result.h"
#include "experiments/metrics/noise/machine_drift.h"
#include "experiments/metrics/noise/machine_load.h"

namespace speclab::machine_load_test {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

json timed_case(const std::string& id, double share, double target_ms, double one_thread_ms) {
  return {{"id", id},
          {"draft", nullptr},
          {"metrics",
           {{"cpu_share", share},
            {"time_draft", one_thread_ms},
            {"time_target", target_ms},
            {"time_accept", 0},
            {"time_other", 0}}}};
}
const json kTwoThreads = {{"threads", 2}, {"backend", "cpu"}};

TEST(MachineLoad, CpuShareBelowWhatTheThreadsShouldGive) {
  EXPECT_EQ(judge_machine(json::array({timed_case("a", .87, 10, 0)}), kTwoThreads, {})["busy"], false);
  const json busy = judge_machine(
      json::array({timed_case("a", .87, 10, 0), timed_case("b", .3, 10, 0), timed_case("c", .5, 10, 0)}),
      kTwoThreads, {});
  EXPECT_EQ(busy["busy"], true);
  ASSERT_EQ(busy["reasons"].size(), 1u);
  EXPECT_EQ(busy["reasons"][0]["kind"], "cpu_share");
  EXPECT_EQ(busy["reasons"][0]["case"], "b");
  EXPECT_EQ(busy["reasons"][0]["value"], .3);
  EXPECT_THAT(machine_text(busy),
              HasSubstr("cpu_share 0.30 of b, where 2 threads give 1.00 (2 of 3 cases are low)"));
  EXPECT_EQ(machine_text(judge_machine(json::array({timed_case("a", .87, 10, 0)}), kTwoThreads, {})), "");
}

TEST(MachineLoad, CasesThatDraftAheadAreNotJudged) {
  json one = timed_case("overlapped", .55, 5, 5);
  one["draft"] = "d";
  EXPECT_EQ(judge_machine(json::array({one}), kTwoThreads, {})["busy"], true);
  one["strategy"] = "overlapped_speculation";  // while its draft model redrafts, the target's threads wait
  EXPECT_EQ(judge_machine(json::array({one}), kTwoThreads, {})["busy"], false);
}

TEST(MachineLoad, WorkOfOneThreadIsNoSignOfABusyMachine) {
  const json sixteen = {{"threads", 16}, {"backend", "cpu"}};
  EXPECT_EQ(judge_machine(json::array({timed_case("copies", .65, 6, 4)}), sixteen, {})["busy"], false);
  EXPECT_EQ(judge_machine(json::array({timed_case("copies", .4, 6, 4)}), sixteen, {})["busy"], true);
  json model = timed_case("model", .65, 6, 4);
  model["draft"] = "small";  // forwards of a draft model use all threads
  EXPECT_EQ(judge_machine(json::array({model}), sixteen, {})["busy"], true);
  EXPECT_EQ(judge_machine(json::array({model}), {{"threads", 16}, {"backend", "cuda"}}, {})["busy"], false)
      << "the processor waits for the device";
}

TEST(MachineLoad, ACaseThatWaitsForAnotherProgramIsNotJudged) {
  json outside = timed_case("outside", .3, 10, 0);
  EXPECT_EQ(judge_machine(json::array({outside}), kTwoThreads, {})["busy"], true);
  outside["times_note"] = "another program proposed the tokens";
  EXPECT_EQ(judge_machine(json::array({outside}), kTwoThreads, {})["busy"], false);
}

TEST(MachineLoad, ShardsFromSeveralKindsOfCpuMakeTimesDoubtful) {
  json merged = kTwoThreads;
  merged["other_machines"] = {"cpu/model: \"A\" in a; \"B\" in b", "device: \"A\" in a; \"B\" in b"};
  const json quiet = judge_machine(json::array({timed_case("a", .87, 10, 0)}), merged, {});
  EXPECT_EQ(quiet["busy"], true);
  ASSERT_EQ(quiet["reasons"].size(), 1u);
  EXPECT_EQ(quiet["reasons"][0]["kind"], "machines");
  EXPECT_EQ(quiet["reasons"][0]["value"], 2);
  EXPECT_EQ(
      machine_text(quiet),
      "Several machines: the shards were measured on several kinds of CPU (cpu/model: \"A\" in a; \"B\" in "
      "b). Times and speedups of this run are doubtful.\n");
  const json both = judge_machine(json::array({timed_case("b", .3, 10, 0)}), merged, {});
  EXPECT_EQ(both["reasons"].size(), 2u);
  EXPECT_THAT(machine_text(both), HasSubstr("give 1.00. Several machines: the shards"));
  merged["other_machines"] = json::array();
  EXPECT_EQ(judge_machine(json::array({timed_case("a", .87, 10, 0)}), merged, {})["busy"], false);
}

TEST(MachineLoad, NoSpeedupIsAboveTau) {
  const auto of = [](double speedup, const json& interval, const char* loop) {
    json entry = {{"id", "a"}, {"draft", nullptr}, {"reference", "r"}, {"options", {{"device_loop", loop}}}};
    entry["metrics"] = {{"tau", 1.5}, {"speedup", speedup}, {"speedup_ci95", interval}};
    return judge_machine(
        {{{"id", "r"}, {"metrics", json::object()}, {"options", {{"device_loop", "off"}}}}, entry},
        kTwoThreads, {});
  };
  EXPECT_EQ(of(1.6, {1.4, 1.8}, "off")["busy"], false) << "the interval permits it";
  EXPECT_EQ(of(1.6, nullptr, "off")["busy"], false);
  EXPECT_EQ(of(1.6, {1.55, 1.8}, "on")["busy"], false) << "the device loop saves more than forwards";
  const json busy = of(1.6, {1.55, 1.8}, "off");
  EXPECT_EQ(busy["busy"], true);
  EXPECT_THAT(machine_text(busy), HasSubstr("speedup 1.60 [1.55, 1.80] of a is above its tau 1.50"));
}

std::vector<json> rounds_of(const std::vector<double>& ms) {
  std::vector<json> rounds;
  for (const double one : ms) rounds.push_back({{"t_n_ns", {{"1", 1e6 * one}, {"2", 1.1e6 * one}}}});
  return rounds;
}

TEST(MachineLoad, DriftAcrossTheRun) {
  EXPECT_NEAR(*MachineDrift(rounds_of({1, 1, 1.2, 1.2, 1.1, 1.3})).across_run(), .2, 1e-9);
  EXPECT_NEAR(*MachineDrift(rounds_of({1, 1.1, 1.1, 1, 1.05, 1.05, 1})).across_run(), .0333, .02);
  EXPECT_FALSE(MachineDrift(rounds_of({1, 2, 3, 4, 5})).across_run().has_value()) << "too few rounds";
  EXPECT_FALSE(MachineDrift({}).across_run().has_value());
  EXPECT_EQ(judge_machine(json::array(), kTwoThreads, .19)["busy"], false);
  const json busy = judge_machine(json::array(), kTwoThreads, .32);
  EXPECT_EQ(busy["busy"], true);
  EXPECT_EQ(busy["drift"], .32);
  EXPECT_THAT(machine_text(busy), HasSubstr("32 % more time"));
}

TEST(MachineLoad, ASummaryOfAnOlderVersionIsJudgedFromItsCases) {
  json summary = {{"cases", json::array({timed_case("a", .3, 10, 0)})}};
  EXPECT_EQ(machine_of(summary, kTwoThreads)["busy"], true);
  summary["machine"] = judge_machine(json::array(), kTwoThreads, {});
  EXPECT_EQ(machine_of(summary, kTwoThreads)["busy"], false) << "the judgement in the summary wins";
}

}  // namespace
}  // namespace speclab::machine_load_test
