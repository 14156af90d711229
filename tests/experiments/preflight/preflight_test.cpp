// The command with tiny models: what it runs, what it concludes, and what it refuses.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <string>

#include "experiments/preflight/verdict.h"
#include "tests/base/error_text.h"
#include "tests/experiments/cli/speclab_fixture.h"
#include "tests/experiments/metrics/hand_made_run.h"

namespace speclab::preflight_test {
namespace {

using fixtures::Cli;
using fixtures::message_of;
namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

class Preflight : public fixtures::Speclab {
 protected:
  Preflight() { write_config(trace_config()); }
  void write_config(const json& config) { std::ofstream(dir() / "preflight.json") << config.dump(1); }
  static json trace_config() {
    return json::parse(
        R"({"name": "preflight", "target": "elsewhere", "drafts": {"draft": {"model": "elsewhere"}}, "repeats": 1, "warmup": 0,
      "prompts": {"inline": [{"id": "one", "category": "a", "turns": ["1 2 3"]}, {"id": "two", "category": "b", "turns": ["5 6"]},
                             {"id": "three", "category": "a", "turns": ["11 4"]}, {"id": "four", "category": "b", "turns": ["7 8 9"]},
                             {"id": "five", "category": "b", "turns": ["10 9 8"]}]},
      "options": {"max_tokens": 40, "emit_at_most": 1, "budget": "fixed", "temperature": 0, "ignore_eos": true},
      "calibration": {"rows": 8, "rounds": 3, "texts": 2},
      "cases": [{"strategy": "autoregressive"}, {"strategy": "speculative_sampling", "draft": "draft", "gamma": 4}, {"strategy": "prompt_lookup", "length": 4}]})");
  }
  Result preflight(std::vector<std::string> words) {
    words.insert(words.begin(), "preflight");
    for (const char* more : {"--config", "preflight.json", "--threads", "1", "-q"}) words.push_back(more);
    return run(words);
  }
  static std::vector<std::string> prompt_ids(const fs::path& folder) {
    std::vector<std::string> ids;
    const json config = read_json_file(folder / "config.json");
    for (const json& prompt : config["prompts"]) ids.push_back(prompt["id"]);
    return ids;
  }
};

TEST_F(Preflight, JudgesADraftAndChecksTheBestLengthOnOtherPrompts) {
  const Result result = preflight({"target", "draft", "--out", "out", "--gamma", "3", "--json"});
  ASSERT_THAT(result.code, ::testing::AnyOf(0, 1)) << result.err;  // 1: the check contradicts
  EXPECT_THAT(result.err, Not(HasSubstr("error:")));
  const json verdict = json::parse(result.out);
  EXPECT_EQ(verdict, read_json_file(dir() / "out" / "preflight.json"));
  EXPECT_EQ(verdict["target"], "target");
  EXPECT_EQ(verdict["draft"], "draft");
  EXPECT_EQ(verdict["prompts"], 3);
  EXPECT_EQ(verdict["positions"], 3 * 39) << "all tokens but the first of each text";
  EXPECT_THAT(prompt_ids(dir() / "out" / "trace"), ElementsAre("one", "two", "five"));
  EXPECT_THAT(prompt_ids(dir() / "out" / "check"), ElementsAre("three", "four"));
  ASSERT_EQ(verdict["lengths"].size(), 3u);
  const json best = verdict["lengths"][verdict["best"].get<std::size_t>()];
  const json check = read_json_file(dir() / "out" / "check" / "config.json");
  const bool other = !verdict["strategies"][0]["own"].get<bool>();  // copies are faster than the draft
  ASSERT_EQ(check["cases"].size(), other ? 3u : 2u);
  EXPECT_EQ(verdict["best_check"].is_null(), !other);
  EXPECT_EQ(check["cases"][1]["options"]["gamma"], best["gamma"]);
  EXPECT_EQ(verdict["setting"]["gamma"], best["gamma"]);
  EXPECT_EQ(check["cases"][1]["options"]["emit_at_most"], 0);
  EXPECT_EQ(verdict["check"]["prompts"], 2);
  for (const json& row : verdict["lengths"]) EXPECT_LE(row["speedup"], best["speedup"]);
  const double low = verdict["interval"][0], high = verdict["interval"][1];
  EXPECT_EQ(verdict["verdict"], low > 1 ? "worth it" : high < 1 ? "not worth it" : "unclear");
  const json recommended = verdict["strategies"][verdict["recommended"].get<std::size_t>()];
  EXPECT_EQ(recommended["what"], "draft chain");
  EXPECT_EQ(recommended["speedup"], best["speedup"]);
  EXPECT_EQ(verdict["alpha_by_category"].size(), 2u);
  EXPECT_EQ(verdict["acceptance_by_category"].size(), 2u);
  EXPECT_LE(verdict["acceptance_at"].size(), 3u);
  EXPECT_GT(verdict["row_costs"]["floor_ms"].get<double>(), 0);
  EXPECT_EQ(verdict["row_costs"]["stretches"].back()["to"], 11) << "three tokens and eight more rows";
  EXPECT_EQ(verdict["t"]["1"], 1);
  EXPECT_EQ(verdict["t"].size(), 4u);
}

TEST_F(Preflight, ADraftThatIsTheTargetIsAlwaysAccepted) {
  const Result result =
      preflight({"target", "target", "--out", "out", "--no-check", "--tokens", "21", "--json"});
  ASSERT_EQ(result.code, 0) << result.err;
  const json verdict = json::parse(result.out);
  EXPECT_EQ(verdict["alpha"], 1);
  EXPECT_TRUE(verdict["check"].is_null());
  EXPECT_EQ(verdict["positions"], 3 * 20);
  // Twenty positions take 20 / (gamma + 1) steps.
  EXPECT_EQ(verdict["lengths"][0]["tau"], 2);
  EXPECT_EQ(verdict["lengths"][3]["tau"], 5);
  EXPECT_FALSE(fs::exists(dir() / "out" / "check"));
}

TEST_F(Preflight, TakesSomeLayersOfTheTargetAsDraft) {
  const Result result = preflight({"target", "--keep-layers", "1", "--out", "out", "--no-check"});
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("draft length"), HasSubstr("alpha"), HasSubstr("Record: out")));
  EXPECT_THAT(result.out, ::testing::ContainsRegex("^(Worth it|Not worth it|Unclear): with drafts of"));
}

TEST_F(Preflight, ComparesChainsTreesAndCopies) {
  json config = trace_config();
  config["calibration"]["draft_rows"] = 4;
  config["cases"].push_back(
      {{"strategy", "tree_speculation"}, {"draft", "draft"}, {"widths", {3}}, {"children", "best"}});
  write_config(config);
  const Result result = preflight({"target", "draft", "--out", "out", "--json"});
  ASSERT_THAT(result.code, ::testing::AnyOf(0, 1)) << result.err;
  EXPECT_THAT(result.err, Not(HasSubstr("error:")));
  const json verdict = json::parse(result.out);
  const json& strategies = verdict["strategies"];
  ASSERT_EQ(strategies.size(), 3u);
  std::set<std::string> names;
  double before = strategies[0]["speedup"];
  for (const json& one : strategies) {
    names.insert(one["what"].get<std::string>());
    EXPECT_LE(one["speedup"].get<double>(), before) << "the fastest comes first";
    before = one["speedup"];
    EXPECT_EQ(one["own"], one["what"] != "prompt copies");
  }
  EXPECT_EQ(names, (std::set<std::string>{"draft chain", "draft tree", "prompt copies"}));
  const json& recommended = strategies[verdict["recommended"].get<std::size_t>()];
  EXPECT_EQ(verdict["setting"].contains("tree"), recommended["what"] == "draft tree");
  if (verdict["setting"].contains("tree")) {
    EXPECT_TRUE(fs::exists(dir() / verdict["setting"]["tree"].get<std::string>()));
  }
  EXPECT_EQ(verdict["check"]["prompts"], 2);
  const Result text = preflight({"target", "draft", "--out", "text", "--no-check"});
  ASSERT_EQ(text.code, 0) << text.err;
  EXPECT_THAT(text.out, AllOf(HasSubstr("Best strategy: "), HasSubstr("draft tree"), HasSubstr("its floor"),
                              HasSubstr("t(n) from 1 to"), HasSubstr("all prompts"), HasSubstr("token 1")));
}

TEST_F(Preflight, JudgesNgramsWithoutAModel) {
  const Result result =
      preflight({"target", "--ngrams", "text", "--order", "2", "--out", "out", "--no-check", "--json"});
  ASSERT_EQ(result.code, 0) << result.err;
  const json verdict = json::parse(result.out);
  EXPECT_EQ(verdict["draft"], json::parse(R"({"ngrams": {"order": 2, "counts": "online"}})"));
  EXPECT_EQ(verdict["c"], 0);
  EXPECT_GE(verdict["alpha"], 0);
  EXPECT_LE(verdict["alpha"], 1);
  const json& recommended = verdict["strategies"][verdict["recommended"].get<std::size_t>()];
  EXPECT_EQ(recommended["what"], "n-gram chain");
  EXPECT_EQ(verdict["setting"]["strategy"], "ngram_model");
  expect_error(preflight({"target", "--ngrams", "nowhere.ngrams"}), {"nowhere.ngrams"});
}

TEST_F(Preflight, TakesInflatedModels) {
  const Result result = preflight({"target", "draft", "--inflate", "ffn=96", "--inflate-draft", "layers=3",
                                   "--out", "out", "--no-check", "--json"});
  ASSERT_EQ(result.code, 0) << result.err;
  const json verdict = json::parse(result.out);
  EXPECT_EQ(verdict["target"], json::parse(R"({"model": "target", "inflate": {"ffn": 96}})"));
  EXPECT_EQ(verdict["draft"], json::parse(R"({"model": "draft", "inflate": {"layers": 3}})"));
}

TEST_F(Preflight, ResumesWithTheLinesThatAreThere) {
  ASSERT_EQ(preflight({"target", "draft", "--out", "out", "--no-check"}).code, 0);
  const auto lines = [&] {
    std::string all;
    for (const auto& file : fs::directory_iterator(dir() / "out" / "trace" / "cases"))
      all += Cli::read(file.path());
    return all;
  };
  const std::string before = lines();
  const Result result = preflight({"target", "draft", "--out", "out", "--resume"});
  EXPECT_THAT(result.code, ::testing::AnyOf(0, 1)) << result.err;
  EXPECT_EQ(lines(), before);
  EXPECT_TRUE(fs::exists(dir() / "out" / "check" / "summary.json"));
}

TEST_F(Preflight, SimulatesDevices) {
  const Result result =
      preflight({"target", "draft", "--out", "out", "--no-check", "--simulate", "device.json"});
  expect_error(result, {"device.json"});
  std::ofstream(dir() / "device.json") << R"({"name": "toy", "kind": "table", "step_us": 1,
    "target_us": {"1": 100, "2": 101, "8": 107}, "drafts_us": {"draft": {"1": 1, "2": 1}}})";
  const Result good =
      preflight({"target", "draft", "--out", "out", "--no-check", "--simulate", "device.json", "--json"});
  ASSERT_EQ(good.code, 0) << good.err;
  const json devices = json::parse(good.out)["devices"];
  ASSERT_EQ(devices.size(), 1u);
  EXPECT_EQ(devices[0]["device"], "toy");
  EXPECT_GT(devices[0]["speedup"], 0);
}

TEST_F(Preflight, SaysWhatIsWrong) {
  expect_error(preflight({"target"}), {"neither DRAFT nor --keep-layers"});
  expect_error(preflight({"target", "draft", "--keep-layers", "1"}), {"DRAFT and --keep-layers"});
  expect_error(preflight({"target", "draft", "--ngrams", "text"}), {"DRAFT and --ngrams"});
  expect_error(preflight({"target", "draft", "--order", "2"}), {"--order"});
  expect_error(preflight({"target", "--keep-layers", "1", "--inflate-draft", "ffn=96"}), {"--inflate-draft"});
  expect_error(preflight({"target", "draft", "--inflate", "size=3"}), {"size"});
  expect_error(preflight({"target", "draft", "--gamma", "0"}), {"--gamma: got 0", "1 to 32"});
  expect_error(preflight({"target", "draft", "--resume"}), {"--resume", "no --out"});
  expect_error(preflight({"target", "nowhere"}), {"nowhere"});
  json config = trace_config();
  config["options"].erase("emit_at_most");
  write_config(config);
  expect_error(preflight({"target", "draft"}), {"emit_at_most"});
  config = trace_config();
  config["drafts"]["another"] = {{"model", "draft"}};
  write_config(config);
  expect_error(preflight({"target", "draft"}), {"one draft, called \"draft\""});
  config = trace_config();
  config["cases"][1]["gamma"] = {1, 2};
  write_config(config);
  expect_error(preflight({"target", "draft"}), {"a list in \"gamma\""});
  config = trace_config();
  config["cases"].erase(0);
  write_config(config);
  expect_error(preflight({"target", "draft"}), {"cases from"});
  config = trace_config();
  config["prompts"]["inline"] = {"1 2 3"};
  write_config(config);
  const Result one = preflight({"target", "draft", "--out", "one"});
  EXPECT_EQ(one.code, 2);
  EXPECT_THAT(one.err, HasSubstr("no category with two prompts"));
}

class PreflightCheck : public fixtures::Record {
 protected:
  /// A verdict that predicted this interval.
  static json predicted(double low, double high, const char* verdict) {
    return {{"interval", {low, high}}, {"verdict", verdict}, {"check", nullptr}};
  }
};

// The hand-made run has a speedup of 2 / 1.6.
TEST_F(PreflightCheck, ComparesTheMeasuredIntervalWithThePredictedOne) {
  const RunData run = load_run(write_run("run", 1'600'000));
  json inside = predicted(1.2, 1.3, "worth it");
  add_check(inside, run, {.own = "spec"});
  EXPECT_NEAR(inside["check"]["speedup"], 1.25, 1e-9);
  EXPECT_EQ(inside["check"]["agrees"], true);
  EXPECT_EQ(inside["check"]["contradicts"], false);
  json outside = predicted(1.4, 1.5, "worth it");
  add_check(outside, run, {.own = "spec"});
  EXPECT_EQ(outside["check"]["agrees"], false);
  EXPECT_EQ(outside["check"]["contradicts"], false) << "both are above 1";
  json below = predicted(.8, .9, "not worth it");
  add_check(below, run, {.own = "spec"});
  EXPECT_EQ(below["check"]["contradicts"], true);
  json unclear = predicted(.9, 1.1, "unclear");
  add_check(unclear, run, {.own = "spec"});
  EXPECT_EQ(unclear["check"]["contradicts"], false);
}

// The places of the cases in the run do not matter.
TEST_F(PreflightCheck, FindsTheCasesById) {
  const fs::path path = write_run("run", 1'600'000);
  json config = read_json_file(path / "config.json");
  json other = config["cases"][1];
  other["id"] = "other";
  config["cases"].insert(config["cases"].begin() + 1, other);  // before the case of the verdict
  write_json_file(path / "config.json", config);
  {
    JsonLinesWriter lines(path / "cases/other.jsonl");
    for (json& line : read_json_lines(path / "cases/spec.jsonl")) {
      line["case"] = "other";
      lines.append(line);
    }
  }
  const RunData run = load_run(path);
  json verdict = predicted(1.2, 1.3, "worth it");
  verdict["best_check"] = nullptr;
  add_check(verdict, run, {.own = "spec"});
  EXPECT_EQ(verdict["check"]["case"], "spec");
  EXPECT_TRUE(verdict["best_check"].is_null()) << "only one setting was checked";
  add_check(verdict, run, {.own = "spec", .best = "other"});
  EXPECT_EQ(verdict["check"]["case"], "spec");
  EXPECT_EQ(verdict["best_check"]["case"], "other");
  EXPECT_THAT(message_of([&] { add_check(verdict, run, {.own = "missing"}); }),
              HasSubstr("a run without the case missing"));
}

}  // namespace
}  // namespace speclab::preflight_test
