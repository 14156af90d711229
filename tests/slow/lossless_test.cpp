// Every case that promises the target's own text keeps the promise on the real model. Ids and hashes of
// logits rows are compared here from the record, independently of the runner.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdio>
#include <map>

#include "tests/model/net/target_model.h"
#include "tests/slow/random_options.h"
#include "tests/slow/slow_run.h"

namespace speclab::lossless_test {
namespace {

using fixtures::DraftCounts;
using fixtures::SlowRun;
using nlohmann::json;

class Lossless : public ::testing::Test {
 protected:
  /// Does this line equal the autoregressive one? `rows`: compare logits rows too.
  static bool equal(const SlowRun& run, const json& spec, const std::string& prompt, bool rows) {
    const auto id = spec["id"].get<std::string>();
    const LineRecord* line = run.line(id, prompt);
    const LineRecord* reference = run.line(spec["reference"].get<std::string>(), prompt);
    if (line == nullptr || reference == nullptr) {
      ADD_FAILURE() << id << " prompt " << prompt << ": no line";
      return false;
    }
    EXPECT_EQ(line->error, "") << id << " prompt " << prompt;
    EXPECT_EQ(line->tokens(), reference->tokens()) << id << " prompt " << prompt;
    EXPECT_EQ(line->row_hashes().size(), line->tokens().size()) << "nothing to compare";
    if (rows) {
      EXPECT_EQ(line->row_hashes(), reference->row_hashes()) << id << " prompt " << prompt;
    }
    EXPECT_EQ(line->promise, rows ? Promise::rows : Promise::ids) << id << " prompt " << prompt;
    return line->error.empty() && !line->tokens().empty() && line->tokens() == reference->tokens() &&
           line->row_hashes().size() == line->tokens().size() &&
           (!rows || line->row_hashes() == reference->row_hashes());
  }

  /// Compares every case with its reference and reports the number of equal lines. Tokens must have been
  /// accepted and rejected in every case (`each_drafts`) or at least for every strategy, because equality
  /// without drafts proves nothing. A case whose budget follows the machine's times may draft nothing.
  static void compare(const SlowRun& run, bool each_drafts = true) {
    EXPECT_EQ(run.exit_code, 0) << "speclab run";
    ASSERT_FALSE(run.config.is_null()) << "nothing was run";
    std::size_t cases = 0, whole = 0, lines = 0, same = 0;
    std::map<std::string, DraftCounts> of_strategy;
    for (const json& spec : run.config["cases"]) {
      if (spec["reference"].is_null()) continue;
      const bool coupled = spec["options"]["coins"] == "gumbel", greedy = spec["options"]["temperature"] == 0;
      EXPECT_EQ(spec["loss_class"], greedy ? "L2" : "L1") << spec["id"];
      EXPECT_TRUE(greedy || coupled) << spec["id"] << " promises no text";
      std::size_t good = 0;
      DraftCounts counts;
      for (const json& prompt : run.prompts()) {
        const auto name = prompt["id"].get<std::string>();
        good += equal(run, spec, name, greedy);
        if (const LineRecord* line = run.line(spec["id"].get<std::string>(), name)) counts.add(*line);
      }
      of_strategy[spec["strategy"].get<std::string>()] += counts;
      fmt::print(
          "{:3} of {:3} prompts equal, {:6} tokens in {:6} steps, {:6} drafted tokens accepted, {:6} "
          "rejected: {}\n",
          good, run.prompts().size(), counts.emitted, counts.steps, counts.accepted, counts.rejected,
          spec["id"].get<std::string>());
      const bool may_draft_nothing = spec["options"].value("budget", "") == "auto";
      if (!run.trial && each_drafts && !may_draft_nothing) {
        EXPECT_GT(counts.accepted, 0) << spec["id"];
        EXPECT_GT(counts.rejected, 0) << spec["id"];
      }
      ++cases, whole += good == run.prompts().size();
      lines += run.prompts().size(), same += good;
    }
    for (const auto& [strategy, counts] : of_strategy) {
      if (run.trial) continue;
      EXPECT_GT(counts.accepted, 0) << strategy;
      EXPECT_GT(counts.rejected, 0) << strategy;
    }
    fmt::print("{}{} of {} cases equal, {} of {} texts equal to autoregressive decoding\n",
               run.trial ? "trial: " : "", whole, cases, same, lines);
    std::fflush(stdout);
  }
};

TEST_F(Lossless, EveryStrategyOnSixtyPrompts) {
  SPECLAB_NEEDS_TARGET();
  ASSERT_TRUE(std::filesystem::exists(fixtures::target_file())) << "run scripts/get_model.sh";
  fixtures::make_files_of_prompts();
  const SlowRun run("lossless");
  compare(run);
  if (run.trial || HasFatalFailure()) return;
  EXPECT_EQ(run.prompts().size(), 60u);
  for (const json& spec : run.config["cases"]) {
    if (spec["options"]["temperature"] != 0) continue;  // sampled texts end at the end token
    for (const LineRecord& line : run.lines.at(spec["id"].get<std::string>())) {
      for (const GenerationRecord& turn : line.turns)
        EXPECT_EQ(turn.tokens.size(), 64u) << spec["id"] << " " << line.prompt;
    }
  }
}

TEST_F(Lossless, EveryRuleScheduleAndProcessor) {
  SPECLAB_NEEDS_TARGET();
  ASSERT_TRUE(std::filesystem::exists(fixtures::target_file())) << "run scripts/get_model.sh";
  const SlowRun run("lossless_variants");
  compare(run);
}

TEST_F(Lossless, RandomOptionsOnSixPrompts) {
  SPECLAB_NEEDS_TARGET();
  ASSERT_TRUE(std::filesystem::exists(fixtures::target_file())) << "run scripts/get_model.sh";
  fixtures::make_files_of_prompts();
  const SlowRun run("lossless_random_options", fixtures::random_options_config(SPECLAB_SOURCE_DIR));
  compare(run, false);
  if (run.trial || HasFatalFailure()) return;
  EXPECT_EQ(run.prompts().size(), 6u);
}

TEST(DraftIsTarget, IsAcceptedAtEveryPosition) {
  SPECLAB_NEEDS_TARGET();
  ASSERT_TRUE(std::filesystem::exists(fixtures::target_file())) << "run scripts/get_model.sh";
  const SlowRun run("draft_is_target");
  EXPECT_EQ(run.exit_code, 0) << "speclab run";
  ASSERT_FALSE(run.config.is_null()) << "nothing was run";
  int cases = 0;
  for (const json& spec : run.config["cases"]) {
    if (spec["reference"].is_null()) continue;
    ++cases;
    const auto id = spec["id"].get<std::string>();
    DraftCounts counts;
    for (const LineRecord& line : run.lines.at(id)) {
      EXPECT_EQ(line.error, "") << id << " prompt " << line.prompt;
      counts.add(line);
      for (const GenerationRecord& turn : line.turns) {
        for (const StepRecord& step : turn.steps) {
          for (const DraftedToken& token : step.drafted) {
            if (token.tested) {
              EXPECT_EQ(token.p, token.q) << id << " prompt " << line.prompt << ": the two laws differ";
            }
          }
        }
      }
    }
    fmt::print("{} of {} tested tokens accepted, {} tokens in {} steps: {}\n", counts.accepted, counts.tested,
               counts.emitted, counts.steps, id);
    EXPECT_EQ(run.lines.at(id).size(), run.prompts().size()) << id;
    EXPECT_GT(counts.accepted, 3 * counts.steps / 2) << id << ": hardly anything was drafted";
    EXPECT_EQ(counts.rejected, 0) << id;
  }
  EXPECT_EQ(cases, 2) << "greedy and sampled";
  std::fflush(stdout);
}

}  // namespace
}  // namespace speclab::lossless_test
