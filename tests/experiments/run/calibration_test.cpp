#include "experiments/run/calibration.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <map>
#include <vector>

#include "core/base/error.h"
#include "experiments/metrics/calibration_costs.h"
#include "experiments/metrics/noise/machine_drift.h"

namespace speclab::calibration_test {
namespace {

using nlohmann::json;

TEST(FitCost, LinesNeverBelowZero) {
  const LinearCost line = fit_cost({{1, 11}, {1, 13}, {3, 16}, {5, 20}});
  EXPECT_NEAR(line.constant, 10, 1e-9);
  EXPECT_NEAR(line.slope, 2, 1e-9);
  EXPECT_EQ(fit_cost({{4, 8}, {4, 8}}).slope, 2);
  EXPECT_EQ(fit_cost({{0, 8}}).constant, 8);
  const LinearCost falling = fit_cost({{1, 10}, {2, 4}});
  EXPECT_EQ(falling.slope, 0);
  EXPECT_EQ(falling.constant, 7);
  EXPECT_EQ(fit_cost({}).constant, 0);
}

TEST(MeasuredIn, AsOftenAsWantedAndEvenly) {
  for (const int rounds : {1, 2, 7, 120}) {
    for (const int wanted : {1, 3, 4, 60, 120}) {
      for (const int phase : {0, 1, 5, 130}) {
        std::vector<int> at;
        for (int round = 0; round < rounds; ++round) {
          if (measured_in(round, rounds, wanted, phase)) at.push_back(round);
        }
        ASSERT_EQ(at.size(), static_cast<std::size_t>(std::min(wanted, rounds))) << rounds << " " << wanted;
        for (std::size_t i = 1; i < at.size(); ++i)
          EXPECT_LE(at[i] - at[i - 1], rounds / std::min(wanted, rounds) + 1);
      }
    }
  }
  EXPECT_NE(measured_in(0, 120, 60, 6), measured_in(0, 120, 60, 7)) << "neighbours take turns";
}

TEST(PlannedForwards, BeginUntimedAndMeasureEachSizeAsOftenAsItMatters) {
  constexpr int kRounds = 40, kTurns = 3;
  std::map<int, int> timed;  // by number of rows, over all rounds
  for (int round = 0; round < kRounds; ++round) {
    const std::vector<PlannedForward> plan = planned_forwards(round, kRounds, 200, kTurns);
    const auto first = std::find_if(plan.begin(), plan.end(), [](const auto& f) { return f.timed; });
    EXPECT_GE(first - plan.begin(), 6) << "a timed forward before the machine is warm";
    EXPECT_TRUE(std::all_of(first, plan.end(), [](const auto& f) { return f.timed; }));
    for (auto forward = first; forward != plan.end(); ++forward) ++timed[forward->rows];
  }
  EXPECT_EQ(timed[1], kRounds * kTurns);
  EXPECT_EQ(timed[5], kRounds * kTurns);
  EXPECT_EQ(timed[8], kRounds / 2);
  EXPECT_EQ(timed[17], 12);
  EXPECT_EQ(timed[33], 4);
  EXPECT_EQ(timed[200], 4);
  EXPECT_FALSE(timed.contains(190)) << "no measured size";
  for (const PlannedForward& forward : planned_forwards(0, 1, 3, kTurns)) EXPECT_LE(forward.rows, 3);
}

TEST(IsMeasuredSize, FewSizesAbove128) {
  const auto sizes = [](int most) {
    std::vector<int> out;
    for (int n = 1; n <= 2000; ++n) {
      if (is_measured_size(n, most)) out.push_back(n);
    }
    return out;
  };
  EXPECT_EQ(sizes(128).size(), 128u);
  const std::vector<int> large = sizes(300);
  EXPECT_EQ(std::vector<int>(large.begin() + 127, large.end()), (std::vector<int>{128, 192, 256, 300}));
  EXPECT_EQ(sizes(1024).size(), 128u + 14);
}

json step(int drafted, int accepted, double draft, double accept, double other) {
  return {{"drafted", drafted},
          {"accepted", accepted},
          {"ns", {{"draft", draft}, {"accept", accept}, {"other", other}, {"step", 100 + draft}}}};
}

json round_of(double one, double two) {
  return {{"context_length", 64},
          {"shard", {1, 1}},
          {"t_n_ns", {{"1", one}, {"2", two}}},
          {"drafts", json::object()},
          {"cases", json::object()}};
}

TEST(MachineDrift, OfALine) {
  std::vector<json> rounds = {round_of(10, 30), round_of(20, 40), round_of(30, 50)};
  rounds[1]["t_n_ns"]["9"] = 1e9;  // not in every round
  const MachineDrift drift(rounds);
  const double slow[] = {(10 / 20. + 30 / 40.) / 2, 1, (30 / 20. + 50 / 40.) / 2};
  const theory::RowTimes target(std::map<int, double>{{1, 20}, {2, 40}});
  const auto during_by = [&](const MachineDrift& by, int rounds_before, std::vector<TimedForward> forwards) {
    LineRecord line;
    line.calibration_rounds = rounds_before;
    line.drift = std::move(forwards);
    return by.during(line, target);
  };
  const auto during = [&](int rounds_before, std::vector<TimedForward> forwards = {}) {
    return during_by(drift, rounds_before, std::move(forwards));
  };
  EXPECT_DOUBLE_EQ(during(0).value(), slow[0]);
  EXPECT_DOUBLE_EQ(during(1).value(), (slow[0] + slow[1]) / 2);
  EXPECT_DOUBLE_EQ(during(2).value(), (slow[1] + slow[2]) / 2);
  EXPECT_DOUBLE_EQ(during(3).value(), slow[2]) << "there is no round after it";
  EXPECT_DOUBLE_EQ(during(9).value(), slow[2]);
  EXPECT_FALSE(during(-1)) << "an older record";
  EXPECT_DOUBLE_EQ(during(1, {{1, 25}, {2, 30}}).value(), (25 / 20. + 30 / 40.) / 2)
      << "its own forwards win over the rounds next to it";
  rounds[2]["shard"] = {2, 2};
  for (const MachineDrift& unknown : {MachineDrift(rounds), MachineDrift({})}) {
    EXPECT_FALSE(during_by(unknown, 1, {}));
    EXPECT_DOUBLE_EQ(during_by(unknown, 1, {{1, 25}, {2, 30}}).value_or(0), (25 / 20. + 30 / 40.) / 2)
        << "its own forwards need no rounds";
  }
}

TEST(MachineDrift, OfALineWithProbes) {
  const theory::RowTimes target(std::map<int, double>{{1, 20}, {2, 40}});
  const auto drift_of = [](double first_memory, double first_arithmetic) {
    std::vector<json> rounds = {round_of(16, 32), round_of(24, 48)};  // .8 and 1.2 times the mean
    rounds[0]["probes"] = {{first_memory, first_arithmetic}};
    rounds[1]["probes"] = {{2000 - first_memory, 1000 - first_arithmetic}};  // the means are 1000 and 500
    return MachineDrift(rounds);
  };
  LineRecord line;
  line.calibration_rounds = 1;
  line.drift = {{1, 99}};                    // probes win over it
  line.probes = {{1200, 500}, {1400, 600}};  // 1.3 times and 1.1 times the mean
  EXPECT_DOUBLE_EQ(drift_of(800, 500).memory_share().value(), 1) << "forwards follow the memory";
  EXPECT_DOUBLE_EQ(drift_of(800, 500).during(line, target).value(), 1.3);
  EXPECT_DOUBLE_EQ(drift_of(1000, 400).memory_share().value(), 0) << "forwards follow the arithmetic";
  EXPECT_DOUBLE_EQ(drift_of(1000, 400).during(line, target).value(), 1.1);
  // a = .9, m = .7, forwards .8: half of each
  EXPECT_NEAR(drift_of(700, 450).memory_share().value(), .5, 1e-12);
  EXPECT_NEAR(drift_of(700, 450).during(line, target).value(), 1.2, 1e-12);
  EXPECT_EQ(drift_of(700, 450).source(line), theory::DriftSource::probes);
  const MachineDrift without(std::vector<json>{round_of(16, 32), round_of(24, 48)});
  EXPECT_FALSE(without.memory_share());
  EXPECT_EQ(without.source(line), theory::DriftSource::lines) << "an older record";
  line.drift.clear();
  EXPECT_EQ(without.source(line), theory::DriftSource::rounds);
}

TEST(CalibrationCosts, StepsAreCorrectedForTheSpeedOfTheMachine) {
  std::vector<json> rounds = {round_of(10, 20),
                              round_of(30, 60)};  // half of the mean time, and 1.5 times of it
  rounds[0]["cases"] = {
      {"a", {step(1, 0, 4, 2, 1), step(1, 0, 4, 2, 1)}}};  // this case has more steps in the fast round
  rounds[1]["cases"] = {{"a", {step(1, 0, 12, 6, 3)}}};
  const json a = calibration_costs(rounds)["cases"]["a"];
  EXPECT_DOUBLE_EQ(a["draft_ns"]["slope"].get<double>(), 8);
  EXPECT_DOUBLE_EQ(a["accept_ns"]["slope"].get<double>(), 4);
  EXPECT_DOUBLE_EQ(a["other_ns"].get<double>(), 2);
  rounds.pop_back();
  EXPECT_DOUBLE_EQ(calibration_costs(rounds)["cases"]["a"]["draft_ns"]["slope"].get<double>(), 4);
}

TEST(CalibrationCosts, MeansOfForwardsAndFitsThroughTheStepsOfAllRounds) {
  const json first = {{"round", 0},
                      {"context_length", 64},
                      {"t_n_ns", {{"1", 10}, {"2", 12}, {"9", 30}}},
                      {"drafts", {{"small", {{"1", 1}, {"2", 2}}}}},
                      {"cases",
                       {{"a", {step(1, 0, 2.5, 1, .5), step(3, 1, 4.5, 1.5, .5)}},
                        {"b", nullptr},
                        {"c", json::array()},
                        {"d", {step(0, 0, 0, 1, 1)}}}}};
  const json second = {
      {"round", 1},
      {"context_length", 64},
      {"t_n_ns", {{"1", 30}, {"2", 36}}},
      {"drafts", {{"small", {{"1", 3}, {"2", 6}}}}},
      {"cases",
       {{"a", {step(1, 0, 7.5, 3, 1.5), step(3, 1, 40.5, 4.5, 1.5)}}, {"b", {step(1, 1, 1, 1, 1)}}}}};
  const json costs = calibration_costs(std::vector<json>{first, second});
  EXPECT_EQ(costs["context_length"], 64);
  EXPECT_EQ(costs["rounds"], 2);
  EXPECT_EQ(costs["t_n_ns"]["1"], 20);
  EXPECT_EQ(costs["t_n_ns"]["9"], 60) << "not in every round, and that one was twice as fast as the mean";
  EXPECT_DOUBLE_EQ(costs["t_n"]["2"].get<double>(), 1.2);
  EXPECT_EQ(costs["drafts"]["small"]["n_ns"]["2"], 4);
  EXPECT_DOUBLE_EQ(costs["drafts"]["small"]["c"].get<double>(), .1);
  const json& a = costs["cases"]["a"];
  // 5 for one token, (9 + 27) / 2 for three, two steps each: a line through the origin, as no constant is
  // below 0
  EXPECT_DOUBLE_EQ(a["draft_ns"]["slope"].get<double>(), (2 * 5 + 2 * 3 * 18) / 20.0);
  EXPECT_EQ(a["draft_ns"]["constant"], 0);
  EXPECT_DOUBLE_EQ(a["accept_ns"]["slope"].get<double>(), 1);
  EXPECT_DOUBLE_EQ(a["accept_ns"]["constant"].get<double>(), 1);
  EXPECT_EQ(a["other_ns"], 1);
  EXPECT_EQ(a["steps"], 4);
  EXPECT_DOUBLE_EQ(a["step_ns"].get<double>(), (102.5 / .5 + 104.5 / .5 + 107.5 / 1.5 + 140.5 / 1.5) / 4.0);
  EXPECT_TRUE(costs["cases"]["b"].is_null()) << "it failed in one round";
  EXPECT_TRUE(costs["cases"]["c"].is_null()) << "no step, no cost";
  EXPECT_EQ(costs["cases"]["d"]["steps"], 1);
  EXPECT_TRUE(calibration_costs({}).is_null());
}

// A case that drafts ahead pays for forwards that run beside those of the other model.
TEST(CalibrationCosts, TimesOfTwoModelsThatWorkAtTheSameTime) {
  // The first round takes half of the mean time, the second one 1.5 times of it.
  std::vector<json> rounds = {round_of(10, 12), round_of(30, 36)};
  for (json& round : rounds) round["drafts"] = {{"small", {{"1", 1}, {"2", 2}}}};
  rounds[0]["ahead"] = {{"a", {{"t_n_ns", {{"1", 15}, {"3", 20}}}, {"draft_ns", 2}, {"draft_alone_ns", 1}}}};
  rounds[1]["ahead"] = {{"a", {{"t_n_ns", {{"1", 45}, {"3", 60}}}, {"draft_ns", 6}, {"draft_alone_ns", 3}}}};
  const json costs = calibration_costs(rounds);
  EXPECT_DOUBLE_EQ(costs["ahead"]["a"]["t_n_ns"]["3"].get<double>(), 40);
  EXPECT_DOUBLE_EQ(costs["ahead"]["a"]["draft_ns"].get<double>(), 4);
  EXPECT_DOUBLE_EQ(costs["ahead"]["a"]["draft_alone_ns"].get<double>(), 2);
  const json paid = costs_beside_drafting(costs, "a", "small");
  EXPECT_DOUBLE_EQ(paid["t_n_ns"]["1"].get<double>(), 30);
  EXPECT_DOUBLE_EQ(paid["t_n"]["3"].get<double>(), 40 / 30.);
  EXPECT_DOUBLE_EQ(paid["drafts"]["small"]["c"].get<double>(), 4 / 30.);
  EXPECT_DOUBLE_EQ(paid["reference_ns"].get<double>(), 20) << "the reference works alone";
  EXPECT_DOUBLE_EQ(calibrated_row_times(paid).at(2), 35);
  EXPECT_EQ(costs_beside_drafting(costs, "b", "small"), costs) << "another case";
  EXPECT_TRUE(costs_beside_drafting(nullptr, "a", "small").is_null());
  // The draw of the token is no part of the forward, as for other cases.
  rounds[0]["ahead"]["a"]["draft_draw_ns"] = .5;
  EXPECT_FALSE(calibration_costs(rounds)["ahead"]["a"].contains("draft_draw_ns")) << "not in every round";
  rounds[1]["ahead"]["a"]["draft_draw_ns"] = 1.5;
  const json without_draw = costs_beside_drafting(calibration_costs(rounds), "a", "small");
  EXPECT_DOUBLE_EQ(without_draw["ahead"]["a"]["draft_draw_ns"].get<double>(), 1);
  EXPECT_DOUBLE_EQ(without_draw["ahead"]["a"]["draft_ns"].get<double>(), 4);
  EXPECT_DOUBLE_EQ(without_draw["drafts"]["small"]["n_ns"]["1"].get<double>(), 3);
  EXPECT_DOUBLE_EQ(without_draw["drafts"]["small"]["c"].get<double>(), 3 / 30.);
  rounds.front().erase("ahead");
  EXPECT_TRUE(calibration_costs(rounds).contains("ahead")) << "a case that some rounds measured";
  rounds.back()["ahead"]["a"]["t_n_ns"].erase("1");
  EXPECT_THROW(calibration_costs(rounds), Error);
}

json round_on_device(double host, double device) {
  return {{"context_length", 64},
          {"shard", {1, 1}},
          {"t_n_ns", {{"1", host}, {"2", 2 * host}}},
          {"drafts", {{"small", {{"1", host / 2}}}}},
          {"device",
           {{"t_n_ns", {{"1", device}, {"2", 1.5 * device}}}, {"drafts", {{"small", {{"1", device / 5}}}}}}},
          {"cases", json::object()}};
}

TEST(CalibrationCosts, TheDevicesClockHasATableOfItsOwn) {
  // By its own clock the device was slow in the first round, by the host's clock in the second.
  std::vector<json> rounds = {round_on_device(10, 6), round_on_device(30, 2)};
  const json costs = calibration_costs(rounds);
  EXPECT_DOUBLE_EQ(costs["t_n_ns"]["2"].get<double>(), 40);
  EXPECT_DOUBLE_EQ(costs["device"]["t_n_ns"]["2"].get<double>(), 6);
  EXPECT_DOUBLE_EQ(costs["device"]["t_n"]["2"].get<double>(), 1.5);
  EXPECT_DOUBLE_EQ(costs["device"]["drafts"]["small"]["c"].get<double>(), .2);
  rounds[1].erase("device");
  EXPECT_FALSE(calibration_costs(rounds).contains("device")) << "not measured in every round";
}

TEST(CostsAsPaid, RowsThatStayOnTheDeviceCostNoDownload) {
  const json table = calibration_costs(std::vector<json>{round_on_device(20, 4)});
  const auto paid = [&](RowsStay own, RowsStay reference) { return costs_as_paid(table, own, reference); };
  const json host = paid({}, {});
  EXPECT_EQ(host["t_n_ns"], table["t_n_ns"]);
  EXPECT_DOUBLE_EQ(host["reference_ns"].get<double>(), 20);
  const json verified = paid({.target = true}, {});
  EXPECT_EQ(verified["t_n_ns"], table["device"]["t_n_ns"]);
  EXPECT_EQ(verified["t_n"], table["device"]["t_n"]);
  EXPECT_DOUBLE_EQ(verified["drafts"]["small"]["n_ns"]["1"].get<double>(), 10) << "the host reads its rows";
  EXPECT_DOUBLE_EQ(verified["drafts"]["small"]["c"].get<double>(), 10 / 4.);
  EXPECT_DOUBLE_EQ(verified["reference_ns"].get<double>(), 20) << "the reference ran on the host";
  const json planned = paid({.target = true, .draft = true}, {.target = true, .draft = true});
  EXPECT_DOUBLE_EQ(planned["drafts"]["small"]["c"].get<double>(), .2);
  EXPECT_DOUBLE_EQ(planned["reference_ns"].get<double>(), 4);
  json of_cpu = table;
  of_cpu.erase("device");
  EXPECT_EQ(costs_as_paid(of_cpu, {.target = true}, {}), of_cpu);
  EXPECT_TRUE(costs_as_paid(nullptr, {}, {}).is_null());
}

TEST(ResampledCosts, RoundsAreDrawnWithRepetition) {
  const auto round = [](double ns) {
    return json{{"context_length", 64},
                {"t_n_ns", {{"1", ns}}},
                {"drafts", json::object()},
                {"cases", json::object()}};
  };
  const std::vector<json> rounds = {round(10), round(30)};
  const std::vector<json> tables = resampled_costs(rounds, 400);
  ASSERT_EQ(tables.size(), 400u);
  std::map<double, int> times;
  for (const json& table : tables) {
    EXPECT_EQ(table["rounds"], 2);
    ++times[table["t_n_ns"]["1"].get<double>()];
  }
  ASSERT_EQ(times.size(), 3u);
  for (const auto& [ns, expected] : {std::pair{10.0, 100}, {20.0, 200}, {30.0, 100}})
    EXPECT_NEAR(times[ns], expected, 45) << ns;  // 4.5 standard deviations of the middle one
  EXPECT_EQ(resampled_costs(rounds, 400), tables);
  EXPECT_TRUE(resampled_costs(std::span(rounds).first(1), 400).empty())
      << "one round says nothing about noise";
}

}  // namespace
}  // namespace speclab::calibration_test
