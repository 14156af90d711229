// The program speclab_planted: its own options, and the run that it makes.
#include "tests/experiments/cli/speclab_fixture.h"

namespace speclab::planted_program_test {
namespace {

using namespace speclab::fixtures;

class PlantedProgram : public Speclab {};

TEST_F(PlantedProgram, ARunSaysWhatWasPlanted) {
  const Result result =
      run({"--plant", "verification=0.5", "--plant-seed", "7", "--plant-report", "planted.json", "run",
           "a.json", "--out", "slow", "-q", "--set", "calibration=false", "--set", "repeats=1"});
  ASSERT_EQ(result.code, 0) << result.err;
  const json report = read_json_file(dir() / "planted.json");
  EXPECT_EQ(report["fault"], "verification");
  EXPECT_EQ(report["amount"], .5);
  EXPECT_EQ(report["seed"], 7);
  EXPECT_GT(report["steps"], 0);
  EXPECT_GT(report["delay_ns"], 0);
  EXPECT_EQ(report["replaced"], 0);
  const json environment = read_json_file(dir() / "slow" / "environment.json");
  EXPECT_THAT(environment["command_line"].dump(), HasSubstr(R"("--plant","verification=0.5")"));
}

TEST_F(PlantedProgram, BadWordsAreErrors) {
  expect_error(run({"--plant", "speed=0.1", "run", "a.json"}), {"--plant: got \"speed=0.1\""});
  expect_error(run({"--plant-seed", "x", "run", "a.json"}), {"--plant-seed x"});
  expect_error(run({"--loud", "yes", "run", "a.json"}), {"option --loud"});
  expect_error(run({"--plant", "draft=0.1"}), {"no command"});
  expect_error(run({}), {"no command"});
  expect_error(run({"frobnicate"}), {"unknown command \"frobnicate\""});
  expect_error(run({"run", "nowhere.json"}), {"nowhere.json"});
}

}  // namespace
}  // namespace speclab::planted_program_test
