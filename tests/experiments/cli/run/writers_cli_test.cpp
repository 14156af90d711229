// Only one process at a time writes into a run folder, and never into the lines of another run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <chrono>
#include <thread>

#include "tests/experiments/cli/speclab_fixture.h"

namespace speclab::writers_cli_test {
namespace {

using namespace speclab::fixtures;

class Writers : public Speclab {
 protected:
  /// The command line of a long run into the folder "run".
  static std::vector<std::string> long_run(const std::vector<std::string>& more = {}) {
    std::vector<std::string> words = {
        "run", "a.json", "--out", "run", "-q", "--set", "repeats=900", "--set", "calibration=false"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  void wait_for(Cli& cli, const fs::path& path) {
    while (cli.running() && !fs::exists(path)) std::this_thread::sleep_for(std::chrono::milliseconds(2));
    ASSERT_TRUE(fs::exists(path)) << cli.err();
  }
  /// Expects that every line of the run is complete and occurs once.
  void expect_sound_record() {
    for (const auto& entry : fs::directory_iterator(dir() / "run" / "cases")) {
      std::set<std::string> keys;
      for (const LineRecord& line : read_case_file(entry.path()))
        EXPECT_TRUE(keys.insert(line.prompt + " " + std::to_string(line.repeat)).second) << entry.path();
      EXPECT_GT(keys.size(), 0u);
    }
  }
};

TEST_F(Writers, ASecondWriterIsToldWhoHoldsTheFolder) {
  Cli first(dir(), long_run());
  wait_for(first, dir() / "run" / "cases" / "prompt_lookup.jsonl");
  const std::string pid = "process " + std::to_string(first.process());
  for (const std::vector<std::string>& more :
       {std::vector<std::string>{"--resume"}, {}, {"--resume", "--shard", "1/2"}})
    expect_error(run(long_run(more)),
                 {"run: got a folder into which another process writes", pid, "since", "a.json", "--out"});
  EXPECT_TRUE(first.running());
  EXPECT_NE(run({"report", "run"}).code, 3) << "readers need no lock";
  first.kill(SIGINT);
  EXPECT_EQ(first.wait(), 130);
  EXPECT_FALSE(fs::exists(dir() / "run" / "run.lock"));
  expect_sound_record();
}

TEST_F(Writers, TwoFreshRunsAtOnceLeaveOneRecord) {
  const std::string command = "$SPECLAB run a.json --out run -q --set repeats=3 --set calibration=false";
  const Result result = shell(command + " > x.out 2> x.err & a=$!; " + command +
                              " > y.out 2> y.err & b=$!; wait $a; x=$?; wait $b; echo $x $?");
  EXPECT_THAT(result.out, ::testing::AnyOf("0 2\n", "2 0\n"))
      << Cli::read(dir() / "x.err") << Cli::read(dir() / "y.err");
  expect_sound_record();
  EXPECT_TRUE(read_json_file(dir() / "run" / "summary.json")["complete"].get<bool>());
}

TEST_F(Writers, ALockOfAKilledProcessDoesNoHarm) {
  Cli first(dir(), long_run());
  wait_for(first, dir() / "run" / "cases" / "prompt_lookup.jsonl");
  first.kill(SIGKILL);
  EXPECT_EQ(first.wait(), -SIGKILL);
  EXPECT_TRUE(fs::exists(dir() / "run" / "run.lock"));
  Cli second(dir(), long_run({"--resume"}));
  const auto size = fs::file_size(dir() / "run" / "cases" / "prompt_lookup.jsonl");
  while (second.running() && fs::file_size(dir() / "run" / "cases" / "prompt_lookup.jsonl") <= size)
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  EXPECT_TRUE(second.running()) << second.err();
  second.kill(SIGINT);
  EXPECT_EQ(second.wait(), 130) << second.err();
  expect_sound_record();
}

TEST_F(Writers, AFolderOfSeveralTargetsIsHeldAsAWhole) {
  json several = config();
  several.erase("target");
  several["targets"] = {{"one", "target"}, {"two", "target"}};
  write(several);
  Cli first(dir(), long_run());
  wait_for(first, dir() / "run" / "one" / "cases" / "prompt_lookup.jsonl");
  expect_error(run(long_run({"--resume"})),
               {"run: got a folder into which another process writes", std::to_string(first.process())});
  std::ofstream(dir() / "b.json") << config().dump();
  expect_error(run({"run", "b.json", "--out", "run/one", "-q"}), {"run/one", "another process writes"});
}

TEST_F(Writers, LinesOfAnotherRunAreNotTakenForNewOnes) {
  measure();
  fs::remove(dir() / "run" / "config.json");
  const auto before = contents_of(dir() / "run");
  expect_error(run({"run", "a.json", "--out", "run", "-q", "--set", "calibration=false"}),
               {"run: got no config.json", "cases/autoregressive.jsonl", "--out"});
  EXPECT_EQ(contents_of(dir() / "run"), before);
  fs::remove_all(dir() / "run" / "cases");
  fs::create_directories(dir() / "run" / "cases");  // as after a kill before the first line
  fs::remove(dir() / "run" / "teacher.jsonl");
  measure();
}

TEST_F(Writers, AConfigIsTheSameFromEveryPlace) {
  const std::vector<std::string> words = {
      "run", "a.json", "--out", "run", "-q", "--set", "calibration=false", "--filter", "lookup"};
  ASSERT_EQ(run(words).code, 0);
  for (const std::string& name : {std::string("./a.json"), (dir() / "a.json").string()}) {
    std::vector<std::string> same = words;
    same[1] = name;
    same.emplace_back("--resume");
    const Result result = run(same);
    EXPECT_EQ(result.code, 0) << name << ": " << result.err;
  }
}

}  // namespace
}  // namespace speclab::writers_cli_test
