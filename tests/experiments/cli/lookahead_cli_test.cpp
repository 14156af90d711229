// `speclab lookahead`: law and verdict of a grid, and steps divided over devices.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <cmath>

#include "tests/experiments/cli/speclab_fixture.h"

namespace speclab::lookahead_cli_test {
namespace {

using namespace speclab::fixtures;

TEST_F(Speclab, TheLaboratoryOfLookaheadDecodingEndToEnd) {
  json grid = config();
  grid["cases"] = {{{"strategy", "autoregressive"}},
                   {{"strategy", "lookahead"}, {"W", {1, 2, 4}}, {"N", {3, 4}}, {"G", "=W"}}};
  grid["repeats"] = 1;
  write(grid);
  ASSERT_EQ(run({"run", "a.json", "--out", "run", "-q"}).code, 0);
  const Result before = run({"lookahead", "run", "--t", "1:1,128:1,256:2"});
  EXPECT_EQ(before.code, 0) << before.err;
  EXPECT_THAT(before.out, AllOf(HasSubstr("Law of lookahead decoding over 6 cases"),
                                HasSubstr("t(n) = 1:1,128:1,256:2"), HasSubstr("free rows")));
  EXPECT_THAT(before.err, HasSubstr("--measure"));
  const Result after = run({"lookahead", "run", "--measure", "--json", "-q"});
  ASSERT_TRUE(after.code == 0 || after.code == 1) << after.err;  // with tiny models either may be faster
  const json verdict = json::parse(after.out)["verdict"];
  EXPECT_EQ(after.code == 1, verdict["never_slower"] == false);
  ASSERT_GE(verdict["measured"].size(), 1u);
  EXPECT_GT(verdict["measured"][0]["speedup"], 0);
  EXPECT_EQ(read_json_file(dir() / "run" / "verdict" / "verdict.json"), verdict);
  // Cases with a window have a waterfall that adds up.
  const Result explained = run({"explain", "run", "lookahead/W=4/N=4", "--json"});
  ASSERT_EQ(explained.code, 0) << explained.err;
  const json explanation = json::parse(explained.out)["lookahead/W=4/N=4"];
  const json& terms = explanation["waterfall"];
  EXPECT_EQ(terms[0]["step"], "free_rows");
  double sum = 0;
  for (const json& term : terms) {
    sum += term["log_ratio"].get<double>();
    const bool end = term["step"] == "free_rows" || term["step"] == "measured";
    EXPECT_TRUE(term.at(end ? "speedup_ci95" : "log_ratio_ci95").is_array()) << term["step"];
  }
  EXPECT_GT(explanation["sensitivity"]["what_if_flat_t"]["change"].get<double>(), -1);
  EXPECT_NEAR(sum, std::log(terms.back()["speedup"].get<double>() / terms[0]["speedup"].get<double>()), 1e-9);
  expect_error(run({"lookahead", "run", "--t", "5:"}), {"--t", "ROWS:TIME"});
  write(config());
  ASSERT_EQ(run({"run", "a.json", "--out", "other", "-q", "--filter", "lookup"}).code, 0);
  expect_error(run({"lookahead", "other"}), {"no two usable cases", "lookahead_wng"});
}

TEST_F(Speclab, ABaselineWithoutLinesIsReadFromItsSummary) {
  int baselines = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(
           std::filesystem::path(SPECLAB_SOURCE_DIR) / "results/baselines")) {
    const std::string folder = entry.path().parent_path().string();
    if (entry.path().filename() != "summary.json" ||
        !entry.path().parent_path().filename().string().starts_with("lookahead-wng"))
      continue;
    ++baselines;
    const Result text = run({"lookahead", folder, "--t", "1:1,128:1,256:2"});
    EXPECT_EQ(text.code, 0) << text.err;
    EXPECT_THAT(text.out, AllOf(HasSubstr("Law of lookahead decoding over"),
                                HasSubstr("t(n) = 1:1,128:1,256:2"), HasSubstr("free rows")));
    EXPECT_THAT(text.err, AllOf(HasSubstr("no raw lines"), HasSubstr("verdict.json")));
    const json out = json::parse(run({"lookahead", folder, "--json"}).out);
    EXPECT_EQ(out["fit"]["alpha"], read_json_file(entry.path())["lookahead"][0]["alpha"]);
  }
  EXPECT_GT(baselines, 0);
  std::filesystem::create_directory(dir() / "old");
  std::ofstream(dir() / "old/summary.json") << R"({"lookahead": [{"cells": 3}], "calibration": {}})";
  expect_error(run({"lookahead", "old"}), {"old/summary.json", "got no \"name\""});
  std::ofstream(dir() / "old/summary.json") << "[]";
  expect_error(run({"lookahead", "old"}), {"old/summary.json"});
}

TEST_F(Speclab, StepsDividedOverDevices) {
  json divided = config();
  divided["cases"] = {{{"strategy", "autoregressive"}},
                      {{"strategy", "lookahead"}, {"W", 6}, {"N", 4}, {"G", 6}, {"devices", {1, 2, 5}}}};
  write(divided);
  const Result ran = run({"run", "a.json", "--out", "run", "-q"});
  ASSERT_EQ(ran.code, 0) << ran.err;
  EXPECT_THAT(ran.out, HasSubstr("Lookahead parallelism"));
  const json free = json::parse(run({"lookahead", "run", "--json"}).out)["devices"];
  const json far = json::parse(
      run({"lookahead", "run", "--json", "--link-us", "1e6", "--link-gbytes", "1e-9"}).out)["devices"];
  ASSERT_EQ(free.size(), 2u) << "one device is no division";
  for (std::size_t i = 0; i < free.size(); ++i) {
    const json& row = free[i];
    const int devices = row["devices"];
    EXPECT_TRUE(row["equal"]);
    ASSERT_EQ(row["rows"].size(), static_cast<std::size_t>(devices));
    const double tau = row["tau"];
    for (std::size_t d = 0; d < row["rows"].size(); ++d)
      EXPECT_LE(row["rows"][d].get<double>(), row["most_rows"][d].get<double>() + tau - 1 + 3)
          << "accepted tokens again; warming up takes longer rows";
    EXPECT_GT(row["slowest_ms"], 0);
    for (const json& ms : row["device_ms"])  // the same means, summed in another order
      EXPECT_LE(ms.get<double>(), row["slowest_ms"].get<double>() * (1 + 1e-12));
    EXPECT_NEAR(row["exchange_bytes"], 4 * (devices * tau + 6), 1e-9);
    EXPECT_EQ(row["exchange_ms"], 0.);
    EXPECT_GT(row["predicted_speedup"], 0);
    EXPECT_GT(row["undivided_speedup"], 0);
    // An all-gather takes 1 message for two devices and 3 for five; 1 byte takes a second.
    const double ms =
        1e3 * ((devices == 2 ? 1 : 3) + row["exchange_bytes"].get<double>() * (devices - 1) / devices);
    EXPECT_NEAR(far[i]["exchange_ms"], ms, 1e-6 * ms);
    const double step = row["slowest_ms"].get<double>() + row["other_ms"].get<double>();
    EXPECT_NEAR(far[i]["speedup"], row["speedup"].get<double>() * step / (step + ms), 1e-9);
  }
  const json summary = read_json_file(dir() / "run" / "summary.json");
  for (const json& each : summary["cases"]) {
    const std::string id = each["id"];
    EXPECT_EQ(each["metrics"]["speedup"].is_null(), !id.ends_with("devices=1")) << id;
  }
  expect_error(run({"lookahead", "run", "--link-us", "-1"}), {"--link-us", "negative"});
}

}  // namespace
}  // namespace speclab::lookahead_cli_test
