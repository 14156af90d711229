// What a run made by hand costs on devices whose times are known.
#include "experiments/simulate/repricing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "core/base/error.h"
#include "experiments/metrics/summary.h"
#include "tests/experiments/simulate/priced_run.h"

namespace speclab::repricing_test {
namespace {

using namespace speclab::fixtures;
using nlohmann::json;
using ::testing::HasSubstr;

class Repriced : public PricedRun {};

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

TEST_F(Repriced, DraftForwardsOfOneAndAHalfRowsCostTheMeanOfBoth) {
  const auto path = calibrated_run("run", 1'600'000, 1e6);
  rewrite(path / "cases" / "spec.jsonl", [](LineRecord& line) { line.turns[0].draft.rows = 9; });  // 6 calls
  const json row = only_case(repriced(load_run(path), device(table_device()), {1}));
  EXPECT_NEAR(row["step_ms"].get<double>(), (2 * 22.5 + 150 + 10) / 1e3, 1e-12);
}

TEST_F(Repriced, AnExportedRunPredictsTheSameAsItsFolder) {
  const auto here = calibrated_run("here", 2'000'000, 1e6);
  const auto there = calibrated_run("there", 700'000, .5e6);
  write_json_file(there / "summary.json", summarise_run(there));
  const json file = exported_device(there.string());
  EXPECT_EQ(file["kind"], "table");
  EXPECT_EQ(file["bytes_per_second"], 1e9);
  EXPECT_EQ(file["kv_bytes"], 4);  // numerics f32
  const json row = only_case(repriced(load_run(here), device(file), {1}));
  EXPECT_NEAR(row["speedup"].get<double>(), 2 * .5 / .8, 1e-9);
  EXPECT_TRUE(row["there"].is_null());  // a file knows no measured speedup
  // Without the costs of the cases, the forwards alone decide: drafting has the time of a draft forward.
  json forwards = file;
  forwards.erase("cases_us");
  forwards["drafts_us"]["d"]["1"] = 50;
  const json by_rows = only_case(repriced(load_run(here), device(forwards), {1}));
  EXPECT_NEAR(by_rows["speedup"].get<double>(), 2 * .5 / (.6 + .1), 1e-9);
}

TEST_F(Repriced, AnExportMayHoldSeveralContexts) {
  const auto first = calibrated_run("first", 700'000, .5e6),
             second = calibrated_run("second", 700'000, .7e6, 1.2, 30);
  for (const auto& path : {first, second}) write_json_file(path / "summary.json", summarise_run(path));
  const json file = exported_device(first.string(), {second.string()});
  ASSERT_EQ(file["contexts"].size(), 2u);
  EXPECT_FALSE(file.contains("target_us"));
  const SimulatedDevice both = device(file);
  EXPECT_EQ(both.contexts, 2u);
  EXPECT_NEAR(both.device->forward_ns({.model = "", .rows = 1, .context = 20}), .6e6, 1e-3);
  // The hand-made run has no context, so its forwards cost what they cost at the first one.
  EXPECT_NEAR(only_case(repriced(load_run(first), both, {1}))["speedup"].get<double>(), 2 * .5 / .8, 1e-9);
  EXPECT_THROW(exported_device(first.string(), {first.string()}), Error);  // the same context twice
  environment_["threads"] = 1;
  const auto slower = calibrated_run("slower", 700'000, .5e6);
  write_json_file(slower / "summary.json", summarise_run(slower));
  EXPECT_THROW(exported_device(first.string(), {slower.string()}), Error);  // another machine
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

TEST_F(Repriced, OneCategoryOfARunIsPricedAlone) {
  const auto path = calibrated_run("run", 1'600'000, 1e6);
  rewrite(path / "cases" / "spec.jsonl", [](LineRecord& line) {
    if (line.prompt == "2") line.turns[0].decode_ns *= 2;  // the only prompt of category b
  });
  const RunData run = load_run(path), b = run_of_category(run, "b");
  ASSERT_EQ(b.cases.size(), 2u);
  EXPECT_EQ(b.cases[1]->prompts, std::vector<std::string>{"2"});
  EXPECT_TRUE(b.cases[1]->intervals);
  const json row = only_case(repriced(b, device(table_device()), {1}));
  EXPECT_NEAR(row["here"].get<double>(), 1 / 1.6, 1e-9);
  EXPECT_NEAR(row["speedup"].get<double>(), 2 * 110 / 200., 1e-12);
  const json other = only_case(repriced(run_of_category(run, "a"), device(table_device()), {1}));
  EXPECT_NEAR(other["here"].get<double>(), 2 / 1.6, 1e-9);
  for (const char* unknown : {"c", ""}) {
    try {
      run_of_category(run, unknown);
      ADD_FAILURE() << "accepted";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("Known are: a, b."));
    }
  }
}

TEST_F(Repriced, EveryDeviceOfTheConfigsOpens) {
  const auto count = [](const char* folder) {
    int opened = 0;
    for (const auto& entry :
         std::filesystem::directory_iterator(std::filesystem::path(SPECLAB_SOURCE_DIR) / folder)) {
      if (entry.path().extension() != ".json") continue;
      const SimulatedDevice device = open_device(entry.path().string());
      EXPECT_FALSE(device.source.empty()) << entry.path();
      EXPECT_FALSE(device.error.empty()) << entry.path();
      ++opened;
    }
    return opened;
  };
  EXPECT_GE(count("configs/devices"), 15);
  EXPECT_GE(count("configs/paper/devices"), 4);
}

}  // namespace
}  // namespace speclab::repricing_test
