// speclab trace and what speclab replay makes of it, with the real binary: replayed taus are those of real
// runs at temperature 0 and under coupled coins, for chains, schedules, copies and trees.
#include <algorithm>
#include <cmath>
#include <set>

#include "tests/decoding/drafting/small_controller.h"
#include "tests/experiments/cli/speclab_fixture.h"

namespace speclab::trace_cli_test {
namespace {

using namespace speclab::fixtures;

class TraceCli : public Speclab {
 protected:
  TraceCli() {
    json config = Speclab::config();
    config["calibration"] = {{"rows", 8}, {"rounds", 3}, {"draft_rows", 4}};
    config["cases"] = json::parse(R"([
      {"strategy": "autoregressive"},
      {"strategy": "speculative_sampling", "draft": ["small", "skip"], "gamma": [1, 3]},
      {"strategy": "speculative_sampling", "draft": "skip", "gamma": 4, "schedule": "confidence", "confidence_threshold": 0.5},
      {"strategy": "speculative_sampling", "draft": "skip", "gamma": 2, "schedule": "heuristic", "gamma_max": 4},
      {"strategy": "prompt_lookup", "length": [2, 5]},
      {"strategy": "tree_speculation", "draft": "skip", "children": "best", "widths": [[2, 1], [3, 2, 1]]}])");
    write(config);
  }
  void record(const std::string& command, const std::string& out, const std::vector<std::string>& more = {}) {
    std::vector<std::string> words = {command, "a.json", "--out", out, "-q"};
    words.insert(words.end(), more.begin(), more.end());
    const Result result = run(words);
    ASSERT_EQ(result.code, 0) << result.err;
  }
  json print(std::vector<std::string> words) {
    words.push_back("--json");
    const Result result = run(words);
    EXPECT_EQ(result.code, 0) << result.err;
    return json::parse(result.out, nullptr, false);
  }
  void expect_exact_taus() {
    const json out = print({"replay", "trace", "--check", "run"});
    ASSERT_EQ(out["cases"].size(), 10u) << "all cases that draft";
    double above_one = 0;
    for (const json& row : out["cases"]) {
      EXPECT_EQ(row["tau"], row["replayed_tau"]) << row["case"];
      above_one += row["tau"].get<double>() > 1 ? 1 : 0;
    }
    EXPECT_GE(above_one, 5);
  }
};

TEST_F(TraceCli, ReplaysTheRunsOfItsConfig) {
  record("run", "run");
  record("trace", "trace");
  expect_exact_taus();
  const json config = read_json_file(dir() / "trace" / "config.json");
  EXPECT_EQ(config["row_details"], 1);
  std::set<std::string> ids;
  for (const json& one : config["cases"]) ids.insert(one["id"]);
  const std::string chain = "speculative_sampling/draft=";
  EXPECT_EQ(ids, (std::set<std::string>{
                     "autoregressive", chain + "small/gamma=3/schedule=confidence/confidence_threshold=0",
                     chain + "skip/gamma=4/schedule=confidence/confidence_threshold=0",
                     "prompt_lookup/length=5", "tree_speculation/draft=skip/widths=[8]/children=best"}));
  const json out = print({"replay", "trace", "--check", "run"});
  EXPECT_EQ(out["speedup_errors"]["count"], 10);
  EXPECT_EQ(out["prompt_errors"]["count"], 30) << "three prompts of each case";
  std::vector<double> errors;
  for (const json& row : out["cases"]) {
    for (const json& prompt : row["prompts"]) {
      EXPECT_NEAR(prompt["error"].get<double>(),
                  prompt["replayed_ms"].get<double>() / prompt["ms"].get<double>() - 1, 1e-9);
      errors.push_back(std::abs(prompt["error"].get<double>()));
    }
  }
  std::sort(errors.begin(), errors.end());
  EXPECT_NEAR(out["prompt_errors"]["median"].get<double>(), (errors[14] + errors[15]) / 2, 1e-9);
  EXPECT_NEAR(out["prompt_errors"]["largest"].get<double>(), errors.back(), 1e-9);
  EXPECT_EQ(run({"replay", "trace", "--check", "run", "--limit", "1e9"}).code, 0);
  EXPECT_EQ(run({"replay", "trace", "--check", "run", "--limit", "1e-9"}).code, 1);
  EXPECT_EQ(run({"replay", "trace", "--check", "run", "--limit", "1e9", "--prompt-limit", "1e-9"}).code, 1);
  EXPECT_THAT(
      run({"replay", "trace", "--check", "run"}).out,
      AllOf(HasSubstr("time of a prompt: median error"), HasSubstr("speedup of a case: median error")));
}

TEST_F(TraceCli, ACheckLeavesOutATreeThatTheTraceCannotReplay) {
  record("run", "run", {"--set", "calibration=false"});
  record("trace", "trace", {"--set", "calibration=false", "--width", "2"});
  const json out = print({"replay", "trace", "--check", "run"});
  EXPECT_EQ(out["cases"].size(), 9u);
  ASSERT_EQ(out["left_out"].size(), 1u);
  EXPECT_EQ(out["left_out"][0]["case"], "tree_speculation/draft=skip/widths=[3,2,1]/children=best");
  EXPECT_THAT(out["left_out"][0]["reason"], HasSubstr("--width N"));
  EXPECT_THAT(run({"replay", "trace", "--check", "run"}).out, HasSubstr("left out: tree_speculation"));
}

TEST_F(TraceCli, ReplaysTheRunsOfItsConfigUnderCoupledCoins) {
  const std::vector<std::string> sampled = {"--set",        "temperature=0.7", "--set",
                                            "coins=gumbel", "--set",           "calibration=false"};
  record("run", "run", sampled);
  record("trace", "trace", sampled);
  expect_exact_taus();
}

TEST_F(TraceCli, SampledTextsGiveExpectations) {
  const std::vector<std::string> sampled = {"--set", "temperature=0.7", "--set", "calibration=false"};
  record("run", "run", sampled);
  record("trace", "trace", sampled);
  const json out = print({"replay", "trace", "--check", "run"});
  ASSERT_GE(out["cases"].size(), 8u);
  for (const json& row : out["cases"]) {
    EXPECT_EQ(row["certainty"], "expectation") << row["case"];
    EXPECT_TRUE(row["prompts"].empty());
    EXPECT_GE(row["replayed_tau"].get<double>(), 1);
  }
  EXPECT_EQ(run({"replay", "trace", "--check", "run", "--limit", "1e9"}).code, 0) << "taus may differ";
  EXPECT_THAT(run({"replay", "trace", "--gamma", "1,2"}).out,
              AllOf(HasSubstr("tau: expectation"), HasSubstr("independent coins")));
  EXPECT_EQ(print({"replay", "trace", "--gamma", "1"})["traces"][0]["certainty"], "expectation");
}

TEST_F(TraceCli, AMixOfDraftersTakesTheStepsOfALookupWithAFallback) {
  record("trace", "trace", {"--set", "calibration=false"});
  const json mixes = print({"replay", "trace", "--mix", "prompt_lookup+draft=skip:3"});
  ASSERT_EQ(mixes.size(), 1u);
  json config = read_json_file(dir() / "a.json");
  config["cases"] = json::parse(R"([{"strategy": "autoregressive"},
    {"strategy": "prompt_lookup", "draft": "skip", "fallback": "draft", "length": 5, "gamma": 3}])");
  write(config);
  measure("mixed");
  const json summary = read_json_file(dir() / "mixed" / "summary.json");
  int found = 0;
  for (const json& one : summary["cases"]) {
    if (one["strategy"] != "prompt_lookup") continue;
    EXPECT_NEAR(one["metrics"]["tau"].get<double>(), mixes[0]["tau"].get<double>(), 1e-9);
    ++found;
  }
  EXPECT_EQ(found, 1);
  EXPECT_GT(mixes[0]["parts"][1]["steps"].get<double>(), 0) << "the model must draft, too";
  EXPECT_TRUE(mixes[0]["speedup"].is_null()) << "no calibration";
  expect_error(run({"replay", "trace", "--mix", "prompt_lookup"}), {"--mix", "two or more drafters"});
  expect_error(run({"replay", "trace", "--mix", "a+b", "--search"}), {"several of --search"});
}

TEST_F(TraceCli, DraftersThatFollowTheStepsArePredictedByFittedLaws) {
  json config = read_json_file(dir() / "a.json");
  config["cases"].push_back({{"strategy", "jacobi"}, {"block", {3, 6}}});
  config["cases"].push_back({{"strategy", "token_recycling"}, {"tree", {3, 1}}});
  write(config);
  record("run", "run");
  const Result noted = run({"trace", "a.json", "--out", "trace", "-q"});
  EXPECT_EQ(noted.code, 0) << noted.err;
  EXPECT_THAT(noted.err, AllOf(HasSubstr("left out: jacobi/block=3: its drafts depend on earlier steps"),
                               HasSubstr("left out: token_recycling")));
  const json laws = print({"replay", "run", "--fitted", "--block", "4", "--recycled", "2,1"});
  ASSERT_EQ(laws.size(), 2u);
  for (const json& law : laws) {
    EXPECT_EQ(law["certainty"], "fitted");
    const json& asked = law["settings"].back();
    EXPECT_TRUE(asked["case"].is_null());
    EXPECT_GT(asked["tau"].get<double>(), .99);
    EXPECT_GT(asked["speedup"].get<double>(), 0);
    EXPECT_GT(law["settings"][0]["measured_tau"].get<double>(), .99);
  }
  EXPECT_THAT(run({"replay", "run", "--fitted"}).out, HasSubstr("block=3"));
  const json out = print({"replay", "trace", "--check", "run", "--laws", "run", "--costs", "trace"});
  int fitted = 0, uncalibrated = 0;
  for (const json& row : out["cases"]) {
    fitted += row["certainty"] == "fitted" ? 1 : 0;
    uncalibrated += row["calibrated"].get<bool>() ? 0 : 1;
  }
  EXPECT_EQ(out["cases"].size(), 13u);
  EXPECT_EQ(fitted, 3);
  EXPECT_GE(uncalibrated, 5) << "the trace has other lengths";
  EXPECT_EQ(out["uncalibrated_speedup_errors"]["count"], uncalibrated);
  expect_error(run({"replay", "run", "--fitted", "--wng", "3,3,3"}), {"the setting", "no law"});
  expect_error(run({"replay", "run", "--fitted", "--wng", "3,3"}), {"--wng", "three numbers"});
  expect_error(run({"replay", "run", "--wng", "3,3,3"}), {"without --fitted", "--wng"});
  expect_error(run({"replay", "trace", "--fitted"}), {"--fitted", "no law can be fitted"});
  expect_error(run({"replay", "trace", "--laws", "run"}), {"without --check", "--laws"});
}

TEST_F(TraceCli, RecordsEveryDraftedTokenAndTheEntropyOfTheTarget) {
  record("trace", "trace", {"--set", "calibration=false"});
  int untested = 0;
  for (const auto& entry : fs::directory_iterator(dir() / "trace" / "cases")) {
    for (const json& line : read_json_lines(entry.path())) {
      ASSERT_EQ(line["target_entropy"].size(), line["tokens"].size());
      for (const json& step : line["steps"]) {
        EXPECT_EQ(step["emitted"], 1);
        for (const json& token : step["tokens"]) {
          EXPECT_GE(token["p"].get<double>(), 0);
          EXPECT_GE(token["q"].get<double>(), 0);
          EXPECT_GE(token["rank"].get<int>(), 0);
          untested += token["tested"].get<bool>() ? 0 : 1;
        }
      }
    }
  }
  EXPECT_GT(untested, 50);
  const json report = print({"report", "trace", "--entropy"});
  EXPECT_EQ(report.size(), 3u) << "the traces of chains";
  double tokens = 0;
  for (const json& bin : report[0]["bins"]) tokens += bin["tokens"].get<double>();
  EXPECT_EQ(tokens, report[0]["tokens"].get<double>());
  EXPECT_THAT(run({"replay", "trace", "--gamma", "1,2"}).out,
              AllOf(HasSubstr("Acceptance by the entropy"), HasSubstr("no category")));
  measure("plain");
  expect_error(run({"report", "plain", "--entropy"}), {"--entropy", "row_details"});
  expect_error(run({"report", "trace", "--entropy", "--prompts"}), {"--entropy and --prompts"});
}

TEST_F(TraceCli, GoesOnWhereItWasInterrupted) {
  record("trace", "whole", {"--set", "calibration=false"});
  fs::copy(dir() / "whole", dir() / "cut", fs::copy_options::recursive);
  const fs::path file = find_case_file(dir() / "cut", "tree_speculation/draft=skip/widths=[8]/children=best");
  std::string text = Cli::read(file);
  ASSERT_EQ(std::count(text.begin(), text.end(), '\n'), 3);
  text.resize(text.find('\n') + 20);  // one line, and a part of the next
  std::ofstream(file) << text;
  const Result resumed = run({"trace", "--resume", "cut", "-q"});
  EXPECT_EQ(resumed.code, 0) << resumed.err;
  EXPECT_EQ(record_of(dir() / "cut"), record_of(dir() / "whole"));
  measure("plain");
  expect_error(run({"trace", "--resume", "plain"}),
               {"plain", "a run that is no trace", "speclab run --resume"});
  expect_error(run({"trace", "--resume", "cut", "--longest", "3"}), {"trace --resume", "--longest"});
  json config = read_json_file(dir() / "cut" / "config.json");
  config["row_details"] = 2;
  write_json_file(dir() / "cut" / "config.json", config);
  expect_error(run({"trace", "--resume", "cut"}), {"version 2", "a trace of version 1"});
  expect_error(run({"replay", "cut"}), {"version 2", "at most 1"});
}

TEST_F(TraceCli, WhatIsNoTraceIsRefusedOrLeftOut) {
  expect_error(
      run({"trace", "a.json", "--set", "temperature=0.7", "--set", "rule=block", "--filter", "gamma=3"}),
      {"temperature 0.7 with independent coins", "\"block\" does not judge", "--set coins=gumbel"});
  expect_error(run({"trace", "a.json", "--set", "rule=typical", "--filter", "gamma=3"}),
               {"lossy rule \"typical\"", "lossless"});
  expect_error(run({"trace", "a.json", "--filter", "^autoregressive$"}), {"no case that can be traced"});
  expect_error(run({"trace", "a.json", "--evidence", "doubt"}),
               {"--evidence", "confidence, entropy, top or none"});
  const Result noted =
      run({"trace", "a.json", "--dry-run", "--set", "children=independent", "--set", "calibration=false"});
  EXPECT_EQ(noted.code, 0) << noted.err;
  EXPECT_THAT(noted.err, HasSubstr("left out: tree_speculation"));
  EXPECT_THAT(noted.out, Not(HasSubstr("tree_speculation")));
  expect_error(run({"replay", "run", "--search", "--tree", "2"}), {"several of --search"});
  record("run", "run", {"--set", "calibration=false"});
  expect_error(run({"replay", "run", "--tree", "2"}), {"--tree", "without a trace of trees"});
}

TEST_F(TraceCli, TheLengthAndTheEvidenceCanBeChosen) {
  record("trace", "trace",
         {"--longest", "6", "--evidence", "entropy", "--filter", "draft=skip/gamma", "--set",
          "calibration=false"});
  const json out = print({"replay", "trace", "--gamma", "6", "--entropy", "1", "--schedule", "bandit"});
  ASSERT_EQ(out["traces"].size(), 1u);
  EXPECT_EQ(out["traces"][0]["settings"][1]["schedule"], "entropy");
  EXPECT_EQ(out["traces"][0]["settings"][1]["gamma"], 6);
  EXPECT_EQ(out["traces"][0]["left_out"][0]["schedule"], "bandit") << "no calibration";
}

TEST_F(TraceCli, AControllerIsReplayedAsItRuns) {
  for (const char* schedule : {"disco", "specdec_pp"}) {
    json file = small_controller(schedule, .5, .1, .1);
    file["features"] = {"confidence", "top_2"};
    file["mean"].push_back(.05);
    file["scale"].push_back(.05);
    file["layers"] = json::parse(R"([{"weights": [[1, -0.5]], "bias": [0.5]}])");
    write_json_file(dir() / (std::string(schedule) + ".json"), file);
  }
  json config = Speclab::config();
  config["calibration"] = false;
  config["cases"] = json::parse(R"([
    {"strategy": "autoregressive"},
    {"strategy": "speculative_sampling", "draft": "skip", "gamma": 5, "schedule": "disco", "controller": "disco.json"},
    {"strategy": "speculative_sampling", "draft": "skip", "gamma": 5, "schedule": "specdec_pp", "controller": "specdec_pp.json"}])");
  write(config);
  record("run", "run");
  record("trace", "trace", {"--evidence", "top"});
  const json out = print({"replay", "trace", "--check", "run"});
  ASSERT_EQ(out["cases"].size(), 2u);
  for (const json& row : out["cases"]) EXPECT_EQ(row["tau"], row["replayed_tau"]) << row["case"];
  const json settings = print(
      {"replay", "trace", "--gamma", "5", "--controller", "disco.json", "--controller", "specdec_pp.json"});
  ASSERT_EQ(settings["traces"].size(), 1u) << "the two cases are one trace";
  ASSERT_EQ(settings["traces"][0]["settings"].size(), 3u);
  EXPECT_EQ(settings["traces"][0]["settings"][1]["threshold"], "of disco.json");
  EXPECT_THAT(run({"replay", "trace", "--schedule", "disco"}).out, HasSubstr("--controller FILE"));
  expect_error(run({"replay", "trace", "--controller", "none.json"}), {"none.json"});
  expect_error(run({"replay", "trace", "--check", "run", "--controller", "disco.json"}),
               {"with --check", "--controller"});
  // The record of a run has the predictions and their calibration; the trace has the rows.
  const json line = read_json_lines(find_case_file(
      dir() / "run", "speculative_sampling/draft=skip/gamma=5/schedule=disco/controller=disco.json"))[0];
  EXPECT_TRUE(line["steps"][0]["tokens"][0].contains("predicted"));
  EXPECT_FALSE(line["steps"][0].contains("top"));
  const json summary = read_json_file(dir() / "run" / "summary.json");
  for (const json& one : summary["cases"]) {
    const bool controlled = one["options"].value("controller", "") != "";
    EXPECT_EQ(one["metrics"]["predicted_ece"].is_number(), controlled) << one["id"];
  }
  // Bad files are refused before anything is decoded.
  expect_error(run({"run", "a.json", "--out", "bad", "--set", "cases.1.controller=none.json"}),
               {"none.json"});
  json other = read_json_file(dir() / "disco.json");
  other["draft"] = {{"name", "another"}, {"sha256", "12"}};
  write_json_file(dir() / "other.json", other);
  expect_error(run({"run", "a.json", "--out", "bad", "--set", "cases.1.controller=other.json"}),
               {"other.json", "of the draft another"});
  // The name is right, but the controller was trained for other weights.
  const json draft = read_json_file(dir() / "run" / "environment.json")["models"]["skip"];
  other["draft"] = {{"name", draft["name"]}, {"sha256", std::string(64, '0')}};
  write_json_file(dir() / "older.json", other);
  expect_error(run({"run", "a.json", "--out", "bad", "--set", "cases.1.controller=older.json"}),
               {"older.json", "a controller of another file of the draft", "SHA-256 000000000000..."});
  const auto generate = [&](const std::string& file) {
    return run({"generate", "--model", "target", "--draft", "layers:0", "--strategy", "speculative_sampling",
                "--prompt", "1 2 3", "--set", "max_tokens=4", "--set", "budget=fixed", "--set",
                "schedule=disco", "--set", "controller=" + file});
  };
  expect_error(generate("older.json"), {"older.json", "a controller of another file of the draft"});
  other["draft"]["sha256"] = draft["sha256"];
  write_json_file(dir() / "right.json", other);
  const Result right = generate("right.json");
  EXPECT_EQ(right.code, 0) << right.err;
}

TEST_F(TraceCli, SearchesAllConfigurations) {
  record("trace", "trace");
  const std::vector<std::string> search = {"replay", "trace",   "--search", "--thresholds", "4",
                                           "--csv",  "all.csv", "--device", "trace"};
  const json out = print(search);
  const std::string csv = Cli::read(dir() / "all.csv");
  EXPECT_EQ(static_cast<std::size_t>(std::count(csv.begin(), csv.end(), '\n')),
            out["configurations"].get<std::size_t>() + 1);
  ASSERT_EQ(out["devices"].size(), 2u);
  EXPECT_EQ(out["devices"][0]["simulated"], false);
  EXPECT_EQ(out["devices"][1]["simulated"], true);
  ASSERT_EQ(out["devices"][0]["best"].size(), 10u);
  // The device is the machine of the run itself.
  for (std::size_t i = 0; i < 10; ++i)
    EXPECT_NEAR(out["devices"][0]["best"][i]["speedup"].get<double>(),
                out["devices"][1]["best"][i]["speedup"].get<double>(), 1e-6);
  const json& best = out["devices"][0]["best"][0];
  EXPECT_GE(best["speedup"].get<double>(), out["devices"][0]["best"][9]["speedup"].get<double>());
  std::vector<std::string> words(search);
  words.push_back("--limit");
  words.push_back("1");
  expect_error(run(words), {"without --check", "--limit"});
  expect_error(run({"replay", "trace", "--csv", "x"}), {"without --search", "--csv"});
  expect_error(run({"replay", "trace", "--search", "--thresholds", "0"}), {"--thresholds", "1 to 1000"});
}

TEST_F(TraceCli, ReplaysTreesFromRanks) {
  record("run", "run");
  record("trace", "trace");
  std::ofstream(dir() / "tree.json")
      << R"({"format": "speclab tree 1", "parents": [0, 0, 1], "ranks": [1, 2, 1]})";
  const json out = print({"replay", "trace", "--tree", "3,2,1", "--tree", "tree.json", "--tree", "9"});
  ASSERT_EQ(out.size(), 3u);
  const json summary = read_json_file(dir() / "run" / "summary.json");
  int found = 0;
  for (const json& one : summary["cases"]) {
    if (one["id"] != "tree_speculation/draft=skip/widths=[3,2,1]/children=best") continue;
    EXPECT_EQ(out[0]["tau"], one["metrics"]["tau"]);
    ++found;
  }
  EXPECT_EQ(found, 1);
  EXPECT_GT(out[0]["speedup"].get<double>(), 0);
  EXPECT_EQ(out[1]["nodes"], 4);
  EXPECT_GT(out[1]["tau"].get<double>(), 1);
  EXPECT_THAT(out[2]["problem"].get<std::string>(), HasSubstr("at most 8"));
  EXPECT_TRUE(out[2]["tau"].is_null());
}

}  // namespace
}  // namespace speclab::trace_cli_test
