// Signals: after the first, a run stops between two steps, writes its summary and can be resumed. The second
// ends it at once.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <chrono>
#include <thread>

#include "tests/experiments/cli/speclab_fixture.h"

namespace speclab::interrupt_cli_test {
namespace {

using namespace speclab::fixtures;
using namespace std::chrono_literals;

class Interrupted : public Speclab {
 protected:
  /// Writes a config with a text or prompt that takes minutes, without calibration and warm-up.
  void write_long(const std::string& prompt, int tokens) {
    Shape shape = tiny_shape();
    shape.context = 120'000;
    write_tiny_llama(dir() / "long", shape, 1);
    json config = Speclab::config();
    config["target"] = "long";
    config["prompts"]["inline"] = {prompt};
    config["options"] = {{"max_tokens", tokens}, {"ignore_eos", true}};
    config["cases"] = {{{"strategy", "autoregressive"}}};
    config["calibration"] = false;
    config["warmup"] = 0;
    config["repeats"] = 1;
    write(config);
  }
  /// Waits until lines are measured. A run writes its config directly before the first line.
  void wait_for_lines(Cli& cli, const std::string& run) {
    while (cli.running() && !fs::exists(dir() / run / "config.json")) std::this_thread::sleep_for(2ms);
    std::this_thread::sleep_for(300ms);
    ASSERT_TRUE(cli.running()) << cli.err();
  }
  static bool ends_within(Cli& cli, std::chrono::seconds time) {
    const auto begun = std::chrono::steady_clock::now();
    while (cli.running()) {
      if (std::chrono::steady_clock::now() - begun > time) return false;
      std::this_thread::sleep_for(2ms);
    }
    return true;
  }
};

TEST_F(Interrupted, EverySignalStopsBetweenStepsAndLeavesASummary) {
  write_long("1 2 3", 100'000);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    SCOPED_TRACE(signal);
    const std::string run = "run" + std::to_string(signal);
    Cli cli(dir(), {"run", "a.json", "--out", run});
    wait_for_lines(cli, run);
    cli.kill(signal);
    ASSERT_TRUE(ends_within(cli, 20s)) << "the line takes minutes";
    EXPECT_EQ(cli.wait(), 130) << cli.err();
    EXPECT_THAT(cli.err(), AllOf(HasSubstr("interrupted"), HasSubstr("--resume")));
    EXPECT_FALSE(fs::exists(dir() / run / "cases" / "autoregressive.jsonl")) << "half a line";
    EXPECT_EQ(read_json_file(dir() / run / "summary.json")["complete"], false);
  }
}

TEST_F(Interrupted, TheSecondSignalEndsItAtOnce) {
  std::string prompt;
  for (int i = 0; i < 100'000; ++i) prompt += std::to_string(i % 60) + " ";
  write_long(prompt, 4);  // a prefill is not interrupted
  for (const int second : {SIGINT, SIGTERM}) {
    const std::string run = "run" + std::to_string(second);
    Cli cli(dir(), {"run", "a.json", "--out", run});
    wait_for_lines(cli, run);
    cli.kill(SIGINT);
    std::this_thread::sleep_for(300ms);
    ASSERT_TRUE(cli.running()) << "the prompt is too short for this test";
    cli.kill(second);
    ASSERT_TRUE(ends_within(cli, 20s));
    EXPECT_EQ(cli.wait(), -second);
  }
}

TEST_F(Interrupted, NohupOutlivesItsTerminal) {
  Cli cli(Cli::Shell{}, dir(),
          "trap '' HUP; exec $SPECLAB run a.json --out run --set repeats=40 --set calibration=false");
  const fs::path file = dir() / "run" / "cases" / "prompt_lookup.jsonl";
  while (cli.running() && !fs::exists(file)) std::this_thread::sleep_for(2ms);
  cli.kill(SIGHUP);
  EXPECT_EQ(cli.wait(), 0) << cli.err();
  EXPECT_EQ(read_json_file(dir() / "run" / "summary.json")["complete"], true);
}

}  // namespace
}  // namespace speclab::interrupt_cli_test
