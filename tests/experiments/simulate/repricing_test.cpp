// What a run made by hand costs on devices whose times are known.
#include "experiments/simulate/repricing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "core/base/error.h"
#include "experiments/metrics/summary.h"
#include "tests/experiments/metrics/hand_made_run.h"

namespace speclab {
namespace {

using namespace speclab::fixtures;
using nlohmann::json;
using ::testing::HasSubstr;

/// The speculative case has steps of 3 rows that emit 3, 2 and 1 tokens, with two draft calls of one row
/// each.
class Repriced : public Record {
 protected:
  std::filesystem::path calibrated_run(const std::string& name, std::int64_t step_ns, double target_ns,
                                       double wide = 1.2) {
    const auto path = write_run(name, step_ns);
    for (int i = 0; i < 3; ++i)
      JsonLinesWriter(path / "calibration.jsonl").append(calibration_round(target_ns, wide));
    return path;
  }
  SimulatedDevice device(const json& file) {
    const auto path = dir_.path() / "device.json";
    write_json_file(path, file);
    return open_device(path.string());
  }
  static json table_device() {
    return {{"name", "toy"},
            {"kind", "table"},
            {"step_us", 10},
            {"target_us", {{"1", 100}, {"3", 150}, {"6", 240}}},
            {"drafts_us", {{"d", {{"1", 20}, {"2", 25}}}}}};
  }
  static json only_case(const json& simulation) {
    EXPECT_EQ(simulation["cases"].size(), 1u);
    return simulation["cases"].at(0);
  }
};

TEST_F(Repriced, ATableOfTimesGivesTheSpeedupThatAPersonComputes) {
  const RunData run = load_run(calibrated_run("run", 1'600'000, 1e6));
  const json row = only_case(repriced(run, device(table_device()), {1}));
  EXPECT_TRUE(row["problem"].is_null()) << row.dump(1);
  EXPECT_DOUBLE_EQ(row["tau"].get<double>(), 2);
  // A step: two draft forwards, one target forward over three rows, 10 microseconds of the rest.
  EXPECT_NEAR(row["step_ms"].get<double>(), .2, 1e-12);
  EXPECT_NEAR(row["speedup"].get<double>(), 2 * 110 / 200., 1e-12);
  EXPECT_NEAR(row["ms_per_token"].get<double>(), .1, 1e-12);
  EXPECT_NEAR(row["here"].get<double>(), 2 * 1 / 1.6, 1e-9);  // measured in the run, and not used
}

TEST_F(Repriced, ABatchPaysForTheRowsOfAllSequences) {
  const RunData run = load_run(calibrated_run("run", 1'600'000, 1e6));
  const json row = only_case(repriced(run, device(table_device()), {2}));
  // Autoregressive: 2 rows. Speculative: 6 rows, draft forwards of 2 rows.
  EXPECT_NEAR(row["step_ms"].get<double>(), (2 * 25 + 240 + 10) / 1e3, 1e-12);
  EXPECT_NEAR(row["speedup"].get<double>(), 2 * (125 + 10) / 300., 1e-12);
  EXPECT_THROW(repriced(run, device(table_device()), {0}), Error);
}

TEST_F(Repriced, TheBestGammaAndTheBreakEvenFollowFromTheDevice) {
  const RunData run = load_run(calibrated_run("run", 1'600'000, 1e6));
  const json simulation = repriced(run, device(table_device()), {1});
  ASSERT_EQ(simulation["drafts"].size(), 1u);
  const json& draft = simulation["drafts"][0];
  EXPECT_EQ(draft["case"], "spec");
  EXPECT_NEAR(draft["c"].get<double>(), .2, 1e-12);
  // gamma = 1 gains from alpha = t(2) + c - 1 = 1.25 + .2 - 1 on; longer drafts gain later.
  EXPECT_NEAR(draft["break_even_alpha"].get<double>(), .45, 1e-6);
}

TEST_F(Repriced, ARunAsDevicePredictsItsOwnSpeedupFromItsCalibration) {
  const auto here = calibrated_run("here", 2'000'000, 1e6);
  const auto there = calibrated_run("there", 700'000, .5e6);
  write_json_file(there / "summary.json", summarise_run(there));
  const json row = only_case(repriced(load_run(here), open_device(there.string()), {1}));
  // Calibrated there: 2 draft tokens of .1 ms, three rows of .6 ms; an autoregressive step of .5 ms.
  EXPECT_NEAR(row["speedup"].get<double>(), 2 * .5 / .8, 1e-9);
  EXPECT_NEAR(row["there"].get<double>(), 2 * 1. / .7, 1e-9);
  EXPECT_NEAR(row["error"].get<double>(), (2 * .5 / .8) / (2 / .7) - 1, 1e-9);
}

TEST_F(Repriced, AnExportedRunIsADeviceFile) {
  const auto path = calibrated_run("run", 1'600'000, 1e6);
  write_json_file(path / "summary.json", summarise_run(path));
  const json file = exported_device(path.string());
  EXPECT_EQ(file["kind"], "table");
  const json row = only_case(repriced(load_run(path), device(file), {1}));
  EXPECT_NEAR(row["speedup"].get<double>(), 2 / (1.2 + .2), 1e-9);
}

TEST_F(Repriced, ADeviceWithoutTimesOfTheDraftSaysSoAndPricesTheRest) {
  json file = table_device();
  file["drafts_us"] = {{"other", {{"1", 20}}}};
  const RunData run = load_run(calibrated_run("run", 1'600'000, 1e6));
  const json simulation = repriced(run, device(file), {1});
  EXPECT_TRUE(only_case(simulation)["speedup"].is_null());
  EXPECT_THAT(only_case(simulation)["problem"].get<std::string>(), HasSubstr("no times of the draft d"));
  EXPECT_THAT(repriced_text(simulation), HasSubstr("Not simulated"));
}

TEST_F(Repriced, ARooflineNeedsTheFilesOfTheModels) {
  const json file = {{"name", "g"},
                     {"kind", "roofline"},
                     {"roofline", {{"bytes_per_second", 1e12}, {"flops_per_second", 1e14}}}};
  const RunData run = load_run(calibrated_run("run", 1'600'000, 1e6));
  EXPECT_THAT(only_case(repriced(run, device(file), {1}))["problem"].get<std::string>(),
              HasSubstr("no shape of the target"));
}

TEST_F(Repriced, BadDeviceFilesAreRefusedWithThePlace) {
  const auto refused = [&](const json& change) -> std::string {
    json file = table_device();
    file.merge_patch(change);
    try {
      device(file);
    } catch (const Error& error) {
      return error.what();
    }
    return "accepted";
  };
  EXPECT_THAT(refused({{"kind", "magic"}}), HasSubstr("/kind"));
  EXPECT_THAT(refused({{"stepp_us", 1}}), HasSubstr("step_us"));
  EXPECT_THAT(refused({{"step_us", -1}}), HasSubstr("/step_us"));
  EXPECT_THAT(refused({{"target_us", nullptr}}), HasSubstr("no \"target_us\""));
  EXPECT_THAT(refused({{"target_us", {{"1", nullptr}}}}),
              HasSubstr("smallest n"));  // a table with a hole at 1
  EXPECT_THAT(refused({{"target_us", {{"many", 3}}}}), HasSubstr("a number of rows"));
  EXPECT_THAT(refused({{"target_us", {{"1", "fast"}}}}), HasSubstr("/target_us/1"));
  EXPECT_THAT(refused({{"roofline", json::object()}}), HasSubstr("only fields of this kind"));
  EXPECT_THROW(open_device("no-such-device"), Error);
}

TEST_F(Repriced, EveryDeviceOfTheConfigsOpens) {
  int count = 0;
  const std::filesystem::path folder = std::filesystem::path(SPECLAB_SOURCE_DIR) / "configs/devices";
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".json") continue;
    const SimulatedDevice device = open_device(entry.path().string());
    EXPECT_FALSE(device.source.empty()) << entry.path();
    EXPECT_FALSE(device.error.empty()) << entry.path();
    ++count;
  }
  EXPECT_GE(count, 7);
}

}  // namespace
}  // namespace speclab
