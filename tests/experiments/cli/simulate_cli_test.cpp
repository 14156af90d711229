// `speclab simulate` with tiny models: every form of the command, and what it refuses.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/experiments/cli/speclab_fixture.h"

namespace speclab::simulate_cli_test {
namespace {

using namespace speclab::fixtures;

class SimulateCommand : public Speclab {
 protected:
  void SetUp() override { measure_run("run", {}); }
  /// A run with a calibration, in which no text ends early.
  void measure_run(const std::string& out, const std::vector<std::string>& more) {
    std::vector<std::string> words = {
        "run", "a.json", "--out", out, "-q", "--set", "options.ignore_eos=true"};
    words.insert(words.end(), more.begin(), more.end());
    const Result result = run(words);
    ASSERT_EQ(result.code, 0) << result.err;
  }
  static std::string listed(const std::string& name) {
    return (fs::path(SPECLAB_SOURCE_DIR) / "configs/devices" / (name + ".json")).string();
  }
  json simulated(std::vector<std::string> words) {
    words.insert(words.begin(), {"simulate", "run"});
    words.emplace_back("--json");
    const Result result = run(words);
    EXPECT_EQ(result.code, 0) << result.err;
    return result.code == 0 ? json::parse(result.out) : json();
  }
};

TEST_F(SimulateCommand, EveryListedDevicePricesARunOfTwoModels) {
  std::vector<std::string> words;
  for (const auto& entry : fs::directory_iterator(fs::path(SPECLAB_SOURCE_DIR) / "configs/devices")) {
    if (entry.path().extension() == ".json") words.insert(words.end(), {"--device", entry.path().string()});
  }
  const json all = simulated(words);
  ASSERT_GT(all.size(), 3u);
  ASSERT_EQ(all.size(), words.size() / 2);
  for (const json& device : all) {
    EXPECT_EQ(device["cases"].size(), 5u) << device["device"];
    for (const json& row : device["cases"]) EXPECT_TRUE(row["problem"].is_null()) << row.dump();
  }
}

TEST_F(SimulateCommand, SweepsSayWhereEachCasePays) {
  for (const char* axis : {"ridge", "rows"}) {
    const json sweep = simulated({"--sweep", axis})[0];
    EXPECT_EQ(sweep["sweep"], axis);
    ASSERT_EQ(sweep["cases"].size(), 5u);
    for (const json& row : sweep["cases"]) {
      EXPECT_TRUE(row["problem"].is_null()) << row.dump();
      EXPECT_EQ(row["speedup"].size(), sweep["points"].size());
    }
  }
  const json batch = simulated({"--sweep", "batch", "--device", listed("h100"), "--device", listed("a100")});
  ASSERT_EQ(batch.size(), 2u);
  EXPECT_EQ(batch[0]["device"], "H100 SXM 80 GB");
  const Result text = run({"simulate", "run", "--sweep", "ridge", "--device", listed("h100")});
  EXPECT_THAT(text.out,
              AllOf(HasSubstr("Simulated on H100"), HasSubstr("operations per byte"), HasSubstr("pays")));
}

TEST_F(SimulateCommand, TimelinesAreShownForEachDraft) {
  const json overlap = simulated({"--timeline", "overlap", "--device", listed("h100")})[0]["timelines"];
  EXPECT_EQ(overlap.size(), 6u);  // two drafts; serial, pearl, amusd
  const json dsi =
      simulated({"--timeline", "dsi", "--servers", "2", "--device", listed("h100")})[0]["timelines"];
  EXPECT_EQ(dsi.size(), 4u);
  EXPECT_EQ(simulated({"--timeline", "serial", "--device", listed("h100")})[0]["timelines"].size(), 2u);
}

TEST_F(SimulateCommand, AnExportedMachineIsADevice) {
  ASSERT_EQ(shell("\"$SPECLAB\" simulate run --export > machine.json").code, 0);
  const json file = simulated({"--device", "machine.json"})[0], folder = simulated({"--device", "run"})[0];
  ASSERT_EQ(file["cases"].size(), folder["cases"].size());
  for (std::size_t i = 0; i < file["cases"].size(); ++i) {
    EXPECT_NEAR(file["cases"][i]["speedup"].get<double>(), folder["cases"][i]["speedup"].get<double>(), 1e-6);
    EXPECT_TRUE(folder["cases"][i]["there"].is_number());
  }
  measure_run("long", {"--set", "calibration.context=64"});
  ASSERT_EQ(shell("\"$SPECLAB\" simulate run --export --context long > both.json").code, 0);
  EXPECT_EQ(read_json_file(dir() / "both.json")["contexts"].size(), 2u);
  EXPECT_EQ(simulated({"--device", "both.json"})[0]["kind"], "table");
}

TEST_F(SimulateCommand, OneCategoryOfPromptsIsSimulatedAlone) {
  const json all = simulated({"--device", listed("h100"), "--category", "b"});
  ASSERT_EQ(all[0]["cases"].size(), 5u);
  for (const json& row : all[0]["cases"]) EXPECT_TRUE(row["problem"].is_null()) << row.dump();
  // A run that stands for a device has measured its speedups on all prompts.
  const json there = simulated({"--device", "run", "--category", "b"});
  for (const json& row : there[0]["cases"]) EXPECT_TRUE(row["there"].is_null()) << row.dump();
  EXPECT_EQ(simulated({"--sweep", "rows", "--category", "b"})[0]["cases"].size(), 5u);
  expect_error(run({"simulate", "run", "--device", listed("h100"), "--category", "zz"}), {"\"zz\"", "b"});
  expect_error(run({"simulate", "run", "--export", "--category", "b"}), {"--category"});
  expect_error(run({"simulate", "run", "--wng", "--device", listed("h100"), "--category", "b"}),
               {"--category"});
}

TEST_F(SimulateCommand, OptionsThatDoNotFitAreRefused) {
  expect_error(run({"simulate", "run"}), {"no --device"});
  expect_error(run({"simulate", "run", "--sweep", "nowhere"}),
               {"--sweep", "nowhere", "ridge, rows or batch"});
  expect_error(run({"simulate", "run", "--timeline", "pearl", "--device", listed("h100")}),
               {"--timeline", "pearl", "serial, overlap or dsi"});
  expect_error(run({"simulate", "run", "--sweep", "rows", "--device", listed("h100")}), {"--device"});
  expect_error(run({"simulate", "run", "--sweep", "batch"}), {"no --device"});
  expect_error(run({"simulate", "run", "--export", "--wng"}), {"at most one"});
  expect_error(run({"simulate", "run", "--servers", "2", "--device", listed("h100")}), {"--servers"});
  expect_error(run({"simulate", "run", "--timeline", "dsi", "--servers", "0", "--device", listed("h100")}),
               {"--servers", "1 to"});
  expect_error(run({"simulate", "run", "--context", "run", "--device", listed("h100")}), {"--context"});
  expect_error(run({"simulate", "run", "--batch", "", "--device", listed("h100")}), {"--batch"});
  expect_error(run({"simulate", "run", "--sweep", "ridge", "--batch", "8"}), {"--batch"});
  expect_error(run({"simulate", "run", "--wng", "--device", listed("h100")}), {"lookahead"});
  expect_error(run({"simulate", "run", "--export", "--context", "run"}), {"different contexts"});
}

}  // namespace
}  // namespace speclab::simulate_cli_test
