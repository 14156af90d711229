// Runs in parts: resume after kill -9, Ctrl-C, shards.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>
#include <random>
#include <thread>

#include "tests/experiments/cli/speclab_fixture.h"

namespace speclab::resume_cli_test {
namespace {

using namespace speclab::fixtures;

TEST_F(Speclab, ResumeAfterKillEqualsTheUninterruptedRun) {
  const std::vector<std::string> settings = {"--set", "repeats=12", "-q"};
  const auto command = [&](const std::string& out, bool resume) {
    std::vector<std::string> words = {"run", "a.json", "--out", out};
    words.insert(words.end(), settings.begin(), settings.end());
    if (resume) words.emplace_back("--resume");
    return words;
  };
  const auto begun = std::chrono::steady_clock::now();
  ASSERT_EQ(run(command("whole", false)).code, 0);
  const std::chrono::duration<double, std::milli> life = std::chrono::steady_clock::now() - begun;
  std::mt19937 random(std::random_device{}());
  bool resume = false;
  int kills = 0;
  for (int attempt = 0; attempt < 60; ++attempt) {
    Cli cli(dir(), command("killed", resume));
    // Half of the runs are killed at a random moment after the first lines, the others at any moment.
    const fs::path cases = dir() / "killed" / "cases";
    if (random() % 2 == 0) {
      while (cli.running() && !fs::exists(cases / "autoregressive.jsonl"))
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
      std::this_thread::sleep_for(std::chrono::milliseconds(random() % 60));
    } else {
      std::this_thread::sleep_for(life * (static_cast<double>(random() % 1000) / 1000));
    }
    cli.kill(SIGKILL);
    const int code = cli.wait();
    if (code == 0 && kills > 0) break;
    if (code == 0) {  // it finished before it was killed
      fs::remove_all(dir() / "killed");
      continue;
    }
    ASSERT_EQ(code, -SIGKILL) << cli.err();
    ++kills;
    resume = fs::exists(dir() / "killed" / "config.json");
    if (kills >= 8) break;
  }
  EXPECT_GT(kills, 0);
  const Result last = run(command("killed", resume));
  ASSERT_EQ(last.code, 0) << last.err;
  const auto whole = record_of(dir() / "whole"), killed = record_of(dir() / "killed");
  ASSERT_EQ(whole.size(), killed.size());
  for (const auto& [file, lines] : whole) {
    ASSERT_TRUE(killed.contains(file)) << file;
    EXPECT_EQ(lines.size(), killed.at(file).size()) << file;
    EXPECT_TRUE(lines == killed.at(file)) << file;
  }
  const std::vector<json> rounds = read_json_lines(dir() / "killed" / "calibration.jsonl");
  ASSERT_EQ(rounds.size(), 3u) << "no round is lost or measured twice";
  for (int i = 0; i < 3; ++i) EXPECT_EQ(rounds[static_cast<std::size_t>(i)]["round"], i);
}

TEST_F(Speclab, CtrlCKeepsFinishedLines) {
  Cli cli(dir(), {"run", "a.json", "--out", "run", "--set", "repeats=400", "--set", "calibration=false"});
  const fs::path file = dir() / "run" / "cases" / "prompt_lookup.jsonl";
  while (cli.running() && !fs::exists(file)) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  cli.kill(SIGINT);
  EXPECT_EQ(cli.wait(), 130) << cli.err();
  EXPECT_THAT(cli.err(), AllOf(HasSubstr("interrupted"), HasSubstr("--resume")));
  for (const auto& entry : fs::directory_iterator(dir() / "run" / "cases")) {
    const std::string text = Cli::read(entry.path());
    EXPECT_TRUE(!text.empty() && text.back() == '\n') << entry.path();
  }
  const json summary = read_json_file(dir() / "run" / "summary.json");
  EXPECT_FALSE(summary["complete"].get<bool>());
}

TEST_F(Speclab, ShardsTogetherAreTheWholeRun) {
  const auto shard = [&](const std::string& out, std::vector<std::string> words) {
    words.insert(words.begin(), {"run", "a.json", "--out", out, "--set", "calibration=false"});
    const Result result = run(words);
    EXPECT_EQ(result.code, 0) << result.err;
    return result;
  };
  const auto sorted_record =
      [](const fs::path& folder) {  // files hold their lines in the order of measurement
        auto record = record_of(folder);
        for (auto& [file, lines] : record) {
          const bool raw = file != "teacher.jsonl";
          std::sort(lines.begin(), lines.end(), [&](const json& a, const json& b) {
            return raw ? a["order"] < b["order"] : a.dump() < b.dump();
          });
        }
        return record;
      };
  shard("whole", {});
  EXPECT_THAT(shard("parts", {"--shard", "1/2"}).err, HasSubstr("speclab run --shard i/2 --resume parts"));
  EXPECT_FALSE(read_json_file(dir() / "parts" / "summary.json")["complete"].get<bool>());
  shard("other", {"--shard", "2/2"});
  for (const char* folder :
       {"cases", "."}) {  // combines the parts as a user would with parts from two machines
    fs::create_directories(dir() / "joined" / folder);
    for (const char* part : {"parts", "other"}) {
      for (const auto& entry : fs::directory_iterator(dir() / part / folder)) {
        if (entry.path().extension() == ".jsonl")
          std::ofstream(dir() / "joined" / folder / entry.path().filename(), std::ios::app)
              << Cli::read(entry.path());
      }
    }
  }
  shard("parts", {"--shard", "2/2", "--resume"});
  const auto whole = sorted_record(dir() / "whole");
  EXPECT_GT(whole.at("teacher.jsonl").size(), 0u);
  EXPECT_TRUE(whole == sorted_record(dir() / "parts"));
  EXPECT_TRUE(whole == sorted_record(dir() / "joined"));
  EXPECT_EQ(Cli::read(dir() / "whole" / "config.json"), Cli::read(dir() / "other" / "config.json"));
  const json a = read_json_file(dir() / "whole" / "summary.json"),
             b = read_json_file(dir() / "parts" / "summary.json");
  EXPECT_TRUE(b["complete"].get<bool>());
  for (std::size_t i = 0; i < a["cases"].size(); ++i) {
    for (const char* metric : {"tokens", "steps", "tau", "alpha", "alpha_teacher_forced", "flops"})
      EXPECT_EQ(a["cases"][i]["metrics"][metric], b["cases"][i]["metrics"][metric]) << metric;
  }
  EXPECT_THAT(run({"run", "a.json", "--shard", "2/2", "--dry-run"}).out, HasSubstr("1 prompts"));
}

TEST_F(Speclab, EveryShardHasCalibrationRoundsOfItsOwn) {
  const Result first = run({"run", "a.json", "--out", "parts", "--shard", "1/2", "-q"});
  ASSERT_EQ(first.code, 0) << first.err;
  const Result second = run({"run", "a.json", "--out", "parts", "--shard", "2/2", "--resume", "-q"});
  ASSERT_EQ(second.code, 0) << second.err;
  std::map<std::string, int> rounds;
  for (const json& round : read_json_lines(dir() / "parts" / "calibration.jsonl"))
    EXPECT_EQ(round["round"], rounds[round["shard"].dump()]++);
  EXPECT_THAT(rounds, ::testing::ElementsAre(std::pair("[1,2]", 3), std::pair("[2,2]", 3)));
  EXPECT_EQ(read_json_file(dir() / "parts" / "summary.json")["calibration"]["rounds"], 6);
}

}  // namespace
}  // namespace speclab::resume_cli_test
