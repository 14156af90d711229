// Whole runs of the real binary, from config to table.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>

#include "experiments/metrics/run_data.h"
#include "tests/experiments/cli/speclab_fixture.h"

namespace speclab::run_cli_test {
namespace {

using namespace speclab::fixtures;

TEST_F(Speclab, ARunFromConfigToTable) {
  const Result result = run({"run", "a.json", "--out", "run"});
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("speculative_sampling/draft=small/gamma=3"), HasSubstr("speedup"),
                                HasSubstr("Record: run")));
  const json summary = read_json_file(dir() / "run" / "summary.json");
  EXPECT_TRUE(summary["complete"].get<bool>());
  ASSERT_EQ(summary["cases"].size(), 6u);
  for (const json& entry : summary["cases"]) {
    const json& m = entry["metrics"];
    EXPECT_EQ(m["matches_reference"], true) << entry["id"];
    EXPECT_EQ(m["tokens"], 3 * 23 + 23) << entry["id"];
    EXPECT_EQ(entry["lines"], 6);
    if (entry["draft"].is_null()) continue;
    EXPECT_TRUE(m["speedup"].is_number()) << entry["id"];
    EXPECT_TRUE(m["alpha"].is_number());
    EXPECT_TRUE(m["alpha_teacher_forced"].is_number());
    EXPECT_TRUE(m["c"].is_number());
    EXPECT_EQ(m["t_n"].size(), 4u);
    EXPECT_TRUE(entry["predictions"].contains("leviathan_3_8"));
    EXPECT_EQ(entry["waterfall"].size(), 8u);
    EXPECT_EQ(entry["waterfall"][5]["step"], "machine_drift");
    const json& interval = entry["waterfall"].back()["residual_share_ci95"];
    EXPECT_LT(interval[0].get<double>(), interval[1].get<double>());
    EXPECT_EQ(entry["categories"]["b"]["prompts"], 1);
  }
  const std::vector<json> rounds = read_json_lines(dir() / "run" / "calibration.jsonl");
  ASSERT_EQ(rounds.size(), 3u);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(rounds[i]["round"], i);
    EXPECT_EQ(rounds[i]["t_n_ns"].size(), 4u);
    ASSERT_EQ(rounds[i]["cases"].size(), 6u);
    const json& steps = rounds[i]["cases"]["autoregressive"];
    ASSERT_EQ(steps.size() % 23, 0u) << "a step for each token after the first, for each turn";
    EXPECT_EQ(steps[0]["drafted"], 0);
    EXPECT_GT(steps[0]["ns"]["step"].get<double>(), 0);
    for (const json& step : rounds[i]["cases"]["speculative_sampling/draft=small/gamma=3"])
      EXPECT_EQ(step["drafted"], 3) << "drafts that the end of the text cut say nothing";
  }
  EXPECT_EQ(summary["calibration"]["rounds"], 3);
  const json environment = read_json_file(dir() / "run" / "environment.json");
  EXPECT_GT(environment["read_bandwidth_bytes_per_second"].get<double>(), 0);
  EXPECT_EQ(environment["models"]["target"]["sha256"].get<std::string>().size(), 64u);
  EXPECT_EQ(environment["models"]["skip"]["layers"], json::array({0}));

  EXPECT_THAT(run({"report", "run", "--csv", "-"}).out, HasSubstr("case,strategy,draft"));
  EXPECT_THAT(run({"report", "run", "--latex", "-"}).out, HasSubstr("\\begin{tabular}"));
  EXPECT_EQ(json::parse(run({"report", "run", "--json"}).out)["name"], "tiny");
  const Result exported = run({"report", "run", "--export", "vllm", "--case", "prompt_lookup"});
  EXPECT_EQ(exported.code, 0);
  EXPECT_EQ(json::parse(exported.out)["case"], "prompt_lookup");
  EXPECT_EQ(exported.err, "");
  expect_error(run({"report", "run", "--export", "tgi"}), {"tgi", "vllm, sglang, spec-bench, llama.cpp"});
  expect_error(run({"report", "run", "--export", "vllm", "--json"}), {"--export and --json"});
  expect_error(run({"report", "run", "--case", "prompt_lookup"}), {"--case", "--export"});
  EXPECT_THAT(run({"explain", "run", "speculative_sampling/draft=small/gamma=3"}).out,
              HasSubstr("draft cost"));
  EXPECT_EQ(run({"compare", "run", "run"}).code, 0);
  expect_error(run({"explain", "run", "speculative_sampling/draft=small/gamma=2"}),
               {"no case", "Did you mean", "gamma="});
  expect_error(run({"run", "a.json", "--out", "run"}), {"a run already", "--resume"});
  EXPECT_EQ(run({"run", "a.json", "--out", "run", "--resume"}).code, 0);
  expect_error(run({"run", "a.json", "--out", "run", "--resume", "--set", "repeats=3"}),
               {"another config", "/repeats"});
  json longer = config();
  longer["cases"].push_back({{"strategy", "jacobi"}});
  write(longer);
  expect_error(run({"run", "a.json", "--out", "run", "--resume"}),
               {"another config, /cases/6: it was nothing, now it is {"});
  write(config());
  expect_error(run({"run", "a.json", "--out", "run", "--resume", "--threads", "1"}), {"threads"});
  json changed = environment;
  changed["binary_sha256"] = "0";
  write_json_file(dir() / "run" / "environment.json", changed);
  expect_error(run({"run", "a.json", "--out", "run", "--resume"}), {"binary_sha256"});
  changed = environment;
  changed["models"]["target"]["sha256"] = "0";
  write_json_file(dir() / "run" / "environment.json", changed);
  expect_error(run({"run", "a.json", "--out", "run", "--resume"}), {"model target"});
}

TEST_F(Speclab, ADraftedTokenOfThreeLevelsCostsMoreThanItsSmallModel) {
  json experiment = config();
  experiment["repeats"] = 1;
  experiment["cases"] = json::parse(
      R"([{"strategy": "autoregressive"}, {"strategy": "hierarchical_speculation", "draft": "small", "first": 1, "last": 4, "gamma": 3, "inner_gamma": [1, 2]}])");
  write(experiment);
  ASSERT_EQ(run({"run", "a.json", "--out", "run", "-q"}).code, 0);
  const json summary = read_json_file(dir() / "run" / "summary.json");
  const json& costs = summary["calibration"];
  std::vector<double> rows;  // t(gamma + 1) of each case: its break-even without the time of its drafts
  for (const int number : {1, 2}) {
    const json& entry = summary["cases"][number];
    const double c =
        costs["cases"][entry["id"]]["draft_ns"]["slope"].get<double>() / costs["t_n_ns"]["1"].get<double>();
    EXPECT_NEAR(entry["metrics"]["c"].get<double>(), c, 1e-6 * c);
    rows.push_back(entry["predictions"]["break_even"]["value"].get<double>() - 3 * c);
  }
  EXPECT_NEAR(rows[0], rows[1], 1e-6) << "gamma c + t(gamma + 1), with the same t";
}

TEST_F(Speclab, TeacherForcedAcceptanceIsThatOfTheProcessedRows) {
  const auto alpha = [&](const json& options, const std::string& draft) {
    json experiment = config();
    json all = {{"temperature", 1}, {"ignore_eos", true}};
    all.update(options);
    experiment["options"].update(all);
    experiment["drafts"]["self"] = {{"model", "target"}};
    experiment["cases"] =
        json::array({{{"strategy", "autoregressive"}},
                     {{"strategy", "speculative_sampling"}, {"draft", draft}, {"gamma", 2}}});
    write(experiment);
    fs::remove_all(dir() / "run");
    measure();
    const json summary = read_json_file(dir() / "run" / "summary.json");
    return summary["cases"][1]["metrics"]["alpha_teacher_forced"].get<double>();
  };
  EXPECT_LT(alpha(json::object(), "small"), .999) << "the two models differ";
  // Both models must draw token 7, because every other token is banned.
  json banned = json::array();
  for (int token = 0; token < tiny_shape().vocab; ++token)
    if (token != 7) banned.push_back(token);
  EXPECT_DOUBLE_EQ(alpha({{"banned_tokens", banned}}, "small"), 1);
  // A draft that is the target has the target's law only if both rows are processed after the same text.
  EXPECT_NEAR(alpha({{"repetition_penalty", 4}}, "self"), 1, 1e-12);
}

TEST_F(Speclab, ProbesBetweenStepsAndLinesMeasureTheSpeedOfTheMachine) {
  const Result result = run({"run", "a.json", "--out", "run", "-q", "--set", "calibration.probe_every=4"});
  ASSERT_EQ(result.code, 0) << result.err;
  const json summary = read_json_file(dir() / "run" / "summary.json");
  for (const json& entry : summary["cases"]) {
    EXPECT_EQ(entry["metrics"]["matches_reference"], true) << entry["id"];
    for (const LineRecord& line :
         read_case_file(dir() / "run" / "cases" / case_file_name(entry["id"].get<std::string>()))) {
      std::size_t steps = 0;
      for (const GenerationRecord& turn : line.turns) steps += turn.steps.size();
      ASSERT_EQ(line.probes.size(), 2 + steps / 4) << entry["id"] << ": before, after every 4th step, after";
      for (const ProbeTimes& probe : line.probes) {
        EXPECT_GT(probe.memory_ns, 0);
        EXPECT_GT(probe.arithmetic_ns, 0);
      }
    }
  }
  for (const json& round : read_json_lines(dir() / "run" / "calibration.jsonl"))
    EXPECT_EQ(round["probes"].size(), 2u);
  for (const json& entry : summary["cases"]) {
    for (const json& term : entry["waterfall"]) {
      if (term["step"] != "machine_drift") continue;
      EXPECT_EQ(term["measured_by"], "probes") << entry["id"];
    }
  }
  ASSERT_EQ(run({"run", "a.json", "--out", "none", "-q", "--set", "calibration.probe_every=0"}).code, 0);
  EXPECT_TRUE(read_case_file(dir() / "none" / "cases" / "autoregressive.jsonl").front().probes.empty());
}

TEST_F(Speclab, EachCaseDecodesAsManyShortTextsAsTheCalibrationSays) {
  const Result result = run({"run", "a.json", "--out", "run", "-q", "--set", "calibration.texts=2", "--set",
                             "calibration.rounds=5"});
  ASSERT_EQ(result.code, 0) << result.err;
  const std::vector<json> rounds = read_json_lines(dir() / "run" / "calibration.jsonl");
  ASSERT_EQ(rounds.size(), 5u);
  const json summary = read_json_file(dir() / "run" / "summary.json");
  EXPECT_EQ(summary["cases"].size(), 6u);
  for (const json& entry : summary["cases"]) {
    int texts = 0;
    for (const json& round : rounds) texts += round["cases"].contains(entry["id"].get<std::string>());
    EXPECT_EQ(texts, 2) << entry["id"];
  }
}

TEST_F(Speclab, TakesAsManyThreadsAsItsAffinityAllows) {
  const Result result = shell(
      "cpu=$(taskset -cp $$ | sed 's/.*: //; s/[,-].*//'); exec taskset -c $cpu $SPECLAB run a.json --out "
      "run -q --set repeats=1 --set calibration=false");
  ASSERT_EQ(result.code, 0) << result.err;
  const json environment = read_json_file(dir() / "run" / "environment.json");
  EXPECT_EQ(environment["threads"], 1);
  EXPECT_EQ(environment["cpu"]["cores_allowed"], 1);
}

TEST_F(Speclab, SampledRunsRecordTheirPromise) {
  json sampled = config();
  sampled["options"]["temperature"] = 1;
  sampled["seeds"] = {1, 2};
  sampled["cases"] = json::parse(
      R"([{"strategy": "speculative_sampling", "draft": "small", "gamma": 2}, {"strategy": "speculative_sampling", "draft": "small", "gamma": 2, "coins": "gumbel"},
    {"strategy": "speculative_sampling", "draft": "small", "gamma": 2, "rule": "typical"}])");
  write(sampled);
  const Result result = run({"run", "a.json", "--out", "run", "--json", "-q"});
  ASSERT_EQ(result.code, 0) << result.err;
  const json summary = json::parse(result.out);
  ASSERT_EQ(summary["cases"].size(), 5u) << "two references were added";
  const json &exact = summary["cases"][2], &coupled = summary["cases"][3], &lossy = summary["cases"][4];
  EXPECT_TRUE(exact["metrics"]["matches_reference"].is_null());
  EXPECT_EQ(exact["loss_class"], "L1");
  EXPECT_EQ(coupled["metrics"]["matches_reference"], true);
  EXPECT_NE(coupled["reference"], exact["reference"]);
  EXPECT_TRUE(lossy["lossy"].get<bool>());
  EXPECT_TRUE(lossy["metrics"]["distance"].is_number());
  EXPECT_TRUE(lossy["metrics"]["kl_infinite"].is_number());
  EXPECT_TRUE(lossy["metrics"]["target_nll"].is_number());
}

TEST_F(Speclab, GreedyVerificationAtATemperatureIsGreedyDecoding) {
  json greedy = config();
  greedy["options"]["temperature"] = 1;
  greedy["cases"][1]["rule"] = "exact";
  write(greedy);
  measure();
  int compared = 0;
  const json summary = read_json_file(dir() / "run" / "summary.json");
  for (const json& entry : summary["cases"]) {
    if (entry["rule"] != "exact") continue;
    EXPECT_EQ(entry["metrics"]["matches_reference"], true) << entry["id"];
    ++compared;
  }
  EXPECT_EQ(compared, 4);
}

TEST_F(Speclab, SharedPrefillsChangeNothingButTheirTime) {
  for (const std::string share : {"true", "false"}) {
    measure(share, {"--set", "share_prefills=" + share});
    EXPECT_EQ(read_json_file(dir() / share / "config.json")["share_prefills"], share == "true");
  }
  EXPECT_EQ(record_of(dir() / "true"), record_of(dir() / "false"));
}

// A line may be measured before its reference.
TEST_F(Speclab, ALineIsComparedWithAReferenceThatIsMeasuredLater) {
  measure("run", {"--set", "repeats=1"});
  const RunData whole = load_run(dir() / "run");
  std::map<std::string, int> reference;
  for (const auto& line : read_json_lines(dir() / "run/cases/autoregressive.jsonl"))
    reference[line["prompt"]] = line["order"];
  int earlier = 0, last_early = -1, lines = 0;
  for (const auto& data : whole.cases) {
    if (data->id() == "autoregressive") continue;
    for (const json& line : read_json_lines(dir() / "run/cases" / case_file_name(data->id()))) {
      ++lines;
      EXPECT_EQ(line["promise"], "rows");
      EXPECT_FALSE(line.contains("matches_reference"));
      if (line["order"] > reference[line["prompt"]]) continue;
      ++earlier;
      last_early = std::max(last_early, line["order"].get<int>());
    }
    for (const auto& prompt : data->lines)
      EXPECT_EQ(prompt->front().front().matches_reference, true) << data->id();
  }
  EXPECT_GT(earlier, 0);
  EXPECT_LT(earlier, lines);
  // After a kill between such a line and its reference, the line is kept, and it has no numbers yet.
  std::string cut_case, cut_prompt;
  for (const auto& entry : fs::directory_iterator(dir() / "run/cases")) {
    const std::vector<json> all = read_json_lines(entry.path());
    std::ofstream out(entry.path());
    for (const json& line : all) {
      if (line["order"] > last_early) continue;
      out << line.dump() << '\n';
      if (line["order"] == last_early) cut_case = line["case"], cut_prompt = line["prompt"];
    }
  }
  for (const auto& data : load_run(dir() / "run").cases) {
    if (data->id() != cut_case) continue;
    EXPECT_THAT(data->prompts, ::testing::Not(::testing::Contains(cut_prompt)));
  }
  measure("run", {"--set", "repeats=1", "--resume"});
  for (const auto& data : load_run(dir() / "run").cases) EXPECT_EQ(data->prompts.size(), 3u) << data->id();
}

TEST_F(Speclab, HasMoreCasesThanFileDescriptors) {
  json many = config();
  many["prompts"]["inline"] = {"1 2 3", "4"};
  many["options"]["max_tokens"] = 3;
  many["calibration"] = false;
  many["cases"] = {{{"strategy", "prompt_lookup"}, {"length", json::array()}}};
  for (int length = 1; length <= 60; ++length) many["cases"][0]["length"].push_back(length);
  write(many);
  const Result result = shell("ulimit -n 30 && $SPECLAB run a.json --out run -q --set repeats=1");
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(read_json_file(dir() / "run" / "summary.json")["complete"], true);
}

TEST_F(Speclab, CalibrationStaysWithinTheContext) {
  Shape small = tiny_shape();
  small.context = 48;
  write_tiny_llama(dir() / "target", small, 1);
  const Result result =
      run({"run", "a.json", "--out", "run", "--filter", "prompt_lookup", "--set", "calibration.rows=64"});
  ASSERT_EQ(result.code, 0) << result.err;
  const json summary = read_json_file(dir() / "run" / "summary.json");
  EXPECT_EQ(summary["calibration"]["t_n"].size(), 47u);
  EXPECT_EQ(summary["calibration"]["context_length"], 1);
}

TEST_F(Speclab, GammaPastTheContextEndIsCut) {
  json near_end = config();
  near_end["options"]["max_tokens"] = 400;
  near_end["cases"][1]["gamma"] = 60;
  write(near_end);
  const Result result =
      run({"run", "a.json", "--out", "run", "--set", "prompts.limit=1", "--set", "repeats=1"});
  ASSERT_EQ(result.code, 0) << result.err;
  const json summary = read_json_file(dir() / "run" / "summary.json");
  ASSERT_EQ(summary["cases"].size(), 4u);
  for (const json& entry : summary["cases"]) {
    const bool is_reference =
        entry["reference"].is_null();  // a reference with one repeat is compared with nothing
    EXPECT_EQ(entry["metrics"]["matches_reference"], is_reference ? json() : json(true)) << entry["id"];
    EXPECT_GE(entry["metrics"]["tokens"].get<double>(), 256 - 5) << entry["id"];
  }
}

TEST_F(Speclab, ARunSaysWhichNumericsClassAutoTookAndWhy) {
  const auto made = [&](const std::string& numerics) {
    const Result result = run({"run", "a.json", "--backend", "cpu", "--numerics", numerics, "--filter",
                               "autoregressive", "--set", "calibration=false", "--out", numerics});
    EXPECT_EQ(result.code, 0) << result.err;
    return result.err;
  };
  const std::string automatic = made("auto"), named = made("f32");
  const json environment = read_json_file(dir() / "auto" / "environment.json");
  EXPECT_THAT(automatic, HasSubstr("--numerics auto takes " + environment["numerics"].get<std::string>() +
                                   " (" + environment["numerics_reason"].get<std::string>() + ")\n"));
  EXPECT_THAT(automatic, HasSubstr("(amx-bf16: "));
  EXPECT_THAT(named, Not(HasSubstr("--numerics auto")));
  EXPECT_FALSE(read_json_file(dir() / "f32" / "environment.json").contains("numerics_reason"));
}

TEST_F(Speclab, TheSpeedOfTheDeviceIsMeasuredOrGiven) {
  const std::string words =
      "exec $SPECLAB run a.json -q --set calibration=false --filter autoregressive --out ";
  const auto recorded = [&](const std::string& prepare, const std::string& folder) {
    const Result result = shell(prepare + "; " + words + folder);
    EXPECT_EQ(result.code, 0) << result.err;
    return result.code == 0 ? read_json_file(dir() / folder / "environment.json") : json::object();
  };
  const json given = recorded("export SPECLAB_DEVICE_SPEED=3e10,5e11", "given");
  EXPECT_EQ(given.value("read_bandwidth_bytes_per_second", 0.0), 3e10);
  EXPECT_EQ(given.value("peak_flops", 0.0), 5e11);
  EXPECT_TRUE(given.value("speed_given", false));
  const json measured = recorded("unset SPECLAB_DEVICE_SPEED", "measured");
  EXPECT_GT(measured.value("read_bandwidth_bytes_per_second", 0.0), 1e7);
  EXPECT_GT(measured.value("peak_flops", 0.0), 1e8);
  EXPECT_NE(measured.value("read_bandwidth_bytes_per_second", 0.0), 3e10);
  EXPECT_FALSE(measured.contains("speed_given"));
  for (const char* bad : {"3e10", "3e10,x", "3e10,5e11,1", "-1,5e11", "3e10,inf"})
    expect_error(shell(std::string("export SPECLAB_DEVICE_SPEED=") + bad + "; " + words + "bad"),
                 {"SPECLAB_DEVICE_SPEED", bad, "2e10,4e11"});
}

}  // namespace
}  // namespace speclab::run_cli_test
