// Strategies that carry memory from one prompt to the next. Their texts and drafts depend on the prompts
// before them in the file and on nothing else, also in repeats and resumed runs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <filesystem>
#include <fstream>
#include <map>
#include <tuple>

#include "tests/experiments/cli/speclab_fixture.h"

namespace speclab::memory_cli_test {
namespace {

using namespace speclab::fixtures;

class CasesWithMemory : public Speclab {
 protected:
  /// Case, prompt, seed, repeat.
  using Key = std::tuple<std::string, std::string, std::uint64_t, int>;
  using Texts = std::map<Key, json>;

  static json with_memory() {
    return json::parse(R"([{"strategy": "lookahead", "W": 4, "N": 3, "G": 4, "keep_pool": true},
      {"strategy": "token_recycling", "k": 2, "tree": [2, 2, 1, 1], "keep": true},
      {"strategy": "suffix_decoding", "remember": "texts"},
      {"strategy": "composition", "sources": ["text", "earlier"], "worth": 0},
      {"strategy": "online_speculation", "draft": "small", "gamma": 2, "learning_rate": 1, "update_every": 1, "keep": true}])");
  }
  static json experiment(const json& cases, int repeats) {
    json config = Speclab::config();
    config["prompts"]["inline"] = json::parse(
        R"(["1 2 3", {"id": "two", "turns": ["5 6", "7 8 9"]}, "1 2 3 4", "11", {"id": "short", "turns": ["1 2"], "options": {"max_tokens": 9}}])");
    config["cases"] = cases;
    config["repeats"] = repeats;
    config["seeds"] = {1, 2};
    config["calibration"] = false;
    config["warmup"] = 0;
    config["teacher_forced"] = false;
    config["options"] = {{"max_tokens", 40}, {"temperature", 1}, {"coins", "gumbel"}, {"budget", "fixed"}};
    return config;
  }
  /// Emitted and drafted tokens of each line of the cases with memory.
  Texts texts_of(const std::string& run) const {
    Texts texts;
    for (const auto& entry : fs::directory_iterator(dir() / run / "cases")) {
      for (json line : read_json_lines(entry.path())) {
        if (line["case"] == "autoregressive") continue;
        EXPECT_FALSE(line.contains("error")) << line["error"];
        line = without_times(line);
        const Key key(line["case"], line["prompt"], line["seed"], line["repeat"]);
        texts[key] = {line["tokens"], line["row_hashes"], line["steps"]};
      }
    }
    return texts;
  }
  Texts run_of(const std::string& name, const json& config, std::vector<std::string> more = {}) {
    write(config);
    more.insert(more.begin(), {"run", "a.json", "--out", name, "-q"});
    const Result result = run(more);
    EXPECT_EQ(result.code, 0) << result.err;
    return texts_of(name);
  }
  /// The texts of each case when it is decoded alone.
  const Texts& expected() {
    int run = 0;
    for (const json& spec : with_memory()) {
      if (expected_.size() == 5u * 5u * 2u) break;
      expected_.merge(run_of("alone" + std::to_string(run++), experiment(json::array({spec}), 1)));
    }
    return expected_;
  }
  void expect_the_same(const Texts& texts, int repeats) {
    for (const auto& [key, text] : expected()) {
      for (int repeat = 0; repeat < repeats; ++repeat) {
        Key of_repeat = key;
        std::get<3>(of_repeat) = repeat;
        ASSERT_TRUE(texts.contains(of_repeat)) << std::get<0>(key);
        EXPECT_TRUE(texts.at(of_repeat) == text) << std::get<0>(key) << " prompt " << std::get<1>(key)
                                                 << " seed " << std::get<2>(key) << " repeat " << repeat;
      }
    }
  }

 private:
  Texts expected_;
};

TEST_F(CasesWithMemory, FindSomethingInTheirMemory) {
  const json without = json::parse(R"([{"strategy": "lookahead", "W": 4, "N": 3, "G": 4},
      {"strategy": "token_recycling", "k": 2, "tree": [2, 2, 1, 1]}, {"strategy": "suffix_decoding"},
      {"strategy": "composition", "sources": ["text"], "worth": 0},
      {"strategy": "online_speculation", "draft": "small", "gamma": 2, "learning_rate": 1, "update_every": 1}])");
  const Texts forgetful = run_of("without", experiment(without, 1));
  std::map<std::string, int> differing;
  for (const auto& [key, text] : expected()) {
    const std::string strategy = std::get<0>(key).substr(0, std::get<0>(key).find('/'));
    for (const auto& [other, of_other] : forgetful) {
      const bool same_line = std::get<0>(other).starts_with(strategy) &&
                             std::get<1>(other) == std::get<1>(key) && std::get<2>(other) == std::get<2>(key);
      if (same_line) differing[strategy] += text[2] != of_other[2];
    }
  }
  ASSERT_EQ(differing.size(), 5u);
  for (const auto& [strategy, lines] : differing)
    EXPECT_GT(lines, 0) << strategy << ": nothing else here means anything";
}

TEST_F(CasesWithMemory, RepeatsFindNothingOfTheRepeatBefore) {
  expect_the_same(run_of("repeats", experiment(with_memory(), 3)), 3);
}

TEST_F(CasesWithMemory, CalibrationAndWarmUpLeaveNothing) {
  json config = experiment(with_memory(), 2);
  config["calibration"] = {{"rows", 4}, {"rounds", 30}, {"probe_every", 3}};
  config["warmup"] = 3;
  expect_the_same(run_of("calibrated", config), 2);
}

TEST_F(CasesWithMemory, SurviveManyOtherCases) {
  json cases = with_memory();
  cases.push_back(json::parse(
      R"({"strategy": "prompt_lookup", "max_tokens": 40, "ngram_max": [1, 2, 3, 4, 5, 6, 7, 8]})"));
  cases.push_back(
      json::parse(R"({"strategy": "lookahead", "W": [3, 5, 6, 7, 8, 9, 10], "N": 3, "keep_pool": true})"));
  json config = experiment(cases, 1);
  config["calibration"] = {{"rows", 4}, {"rounds", 10}};
  expect_the_same(run_of("many", config), 1);
}

TEST_F(CasesWithMemory, AResumedRunRebuildsTheirMemory) {
  const json config = experiment(with_memory(), 2);
  run_of("whole", config);
  const auto whole = record_of(dir() / "whole");
  constexpr int kLines = 2 * 2 * 5 * 6;
  for (const int cut : {1, 9, 17, 33, 48, 66, 87, kLines - 1}) {  // number of lines before the interruption
    const std::string name = "cut" + std::to_string(cut);
    fs::copy(dir() / "whole", dir() / name, fs::copy_options::recursive);
    for (const auto& entry : fs::directory_iterator(dir() / name / "cases")) {
      const std::vector<json> lines = read_json_lines(entry.path());
      std::ofstream out(entry.path());
      for (const json& line : lines) {
        if (line["order"].get<int>() < cut) out << line.dump() << '\n';
      }
    }
    expect_the_same(run_of(name, config, {"--resume"}), 2);
    EXPECT_TRUE(record_of(dir() / name) == whole) << cut;
  }
}

TEST_F(CasesWithMemory, AFailedLineLeavesNothing) {
  // The second prompt fits into the context, but its answer does not. Nothing of the answer is remembered,
  // neither in this run nor in a resumed one.
  json config = experiment(with_memory(), 1);
  std::string full;
  for (int i = 0; i < 300; ++i) full += std::to_string(i % 60) + " ";
  config["prompts"]["inline"][1]["turns"] = {"5 6", full};
  write(config);
  EXPECT_EQ(run({"run", "a.json", "--out", "failing", "-q"}).code, 1);
  json shorter = config;
  shorter["prompts"]["inline"].erase(1);
  for (auto& prompt : shorter["prompts"]["inline"]) {  // keeps the ids, because coins depend on them
    if (prompt.is_string())
      prompt = {{"id", prompt == "1 2 3" ? "1" : prompt == "1 2 3 4" ? "3" : "4"}, {"turns", {prompt}}};
  }
  const Texts clean = run_of("clean", shorter);
  Texts with_failures;
  for (const auto& entry : fs::directory_iterator(dir() / "failing" / "cases")) {
    for (json line : read_json_lines(entry.path())) {
      EXPECT_EQ(line.contains("error"), line["prompt"] == "two") << line["case"] << line["prompt"];
      if (line.contains("error") || line["case"] == "autoregressive") continue;
      line = without_times(line);
      with_failures[{line["case"], line["prompt"], line["seed"], line["repeat"]}] = {
          line["tokens"], line["row_hashes"], line["steps"]};
    }
  }
  EXPECT_TRUE(clean == with_failures);
}

TEST_F(CasesWithMemory, ARecordThatDiffersFromTheirTextsIsNoticed) {
  const json config = experiment(json::array({with_memory()[0]}), 1);
  run_of("run", config);
  const fs::path file = dir() / "run/cases/lookahead__W=4__N=3__G=4__keep_pool=true.jsonl";
  std::vector<json> lines = read_json_lines(file);
  ASSERT_EQ(lines.size(), 10u);
  ASSERT_FALSE(lines[0]["steps"][0]["tokens"].empty() && lines[0]["steps"].size() < 2);
  lines[0]["steps"].back()["rows"] = 1;
  json& drafted = lines[0]["steps"].back()["tokens"];
  drafted.push_back({{"id", 5}, {"p", -1}, {"q", -1}, {"rank", -1}, {"tested", false}, {"accepted", false}});
  {
    std::ofstream out(file);
    for (std::size_t i = 0; i < 2; ++i) out << lines[i].dump() << '\n';
  }
  const Result result = run({"run", "a.json", "--out", "run", "--resume"});
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.err, HasSubstr("the memory of lookahead/W=4/N=3/G=4/keep_pool=true"));
}

TEST_F(CasesWithMemory, AreNotMeasuredInShards) {
  write(experiment(with_memory(), 1));
  expect_error(run({"run", "a.json", "--out", "run", "--shard", "1/2"}), {"--shard", "memory", "--filter"});
  expect_error(run({"run", "a.json", "--shard", "1/2", "--dry-run"}), {"--shard"});
  EXPECT_FALSE(fs::exists(dir() / "run"));
}

}  // namespace
}  // namespace speclab::memory_cli_test
