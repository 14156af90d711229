// Speeds of cases whose texts differ from the reference's: measured per emitted token, marked in tables, and
// with intervals that the number of prompts allows.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "experiments/analysis/compare/compare.h"
#include "experiments/metrics/run_data.h"
#include "experiments/metrics/summary.h"
#include "experiments/analysis/table.h"
#include "tests/experiments/metrics/hand_made_run.h"

namespace speclab::speed_test {
namespace {

using namespace speclab::fixtures;
using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

/// Makes a sampled text stop after `steps` of its three steps.
void cut(LineRecord& line, std::size_t steps) {
  GenerationRecord& turn = line.turns[0];
  turn.decode_ns = 0;
  std::size_t tokens = 1;
  turn.steps.resize(steps);
  for (const StepRecord& step : turn.steps)
    tokens += static_cast<std::size_t>(step.emitted), turn.decode_ns += step.times.total();
  turn.tokens.resize(tokens);
  turn.row_hashes.resize(tokens);
  line.matches_reference.reset();
}

class Speed : public Record {
 protected:
  /// The texts of prompts 1 and 2 stop half way: 3 of 6 tokens in 1.6 of 4.8 ms.
  std::filesystem::path write_half_texts(const std::string& name, std::size_t steps = 1) {
    const auto path = write_run(name, 1'600'000);
    rewrite(path / "cases" / "spec.jsonl", [&](LineRecord& line) {
      if (line.prompt != "0") cut(line, steps);
    });
    json config = read_json_file(path / "config.json");
    config["cases"][1]["loss_class"] = "L1";
    write_json_file(path / "config.json", config);
    return path;
  }
};

TEST_F(Speed, IsTimePerTokenWhenTextsEndElsewhere) {
  const json summary = summarise_run(write_half_texts("half"));
  const json &base = summary["cases"][0]["metrics"], &m = summary["cases"][1]["metrics"];
  EXPECT_EQ(m["tokens"], 12);
  EXPECT_DOUBLE_EQ(m["speedup"], 1.5) << "1 ms a token against 8 ms / 12; the ratio of times is 18 / 8";
  EXPECT_DOUBLE_EQ(m["speedup"],
                   m["tokens_per_second"].get<double>() / base["tokens_per_second"].get<double>());
  EXPECT_DOUBLE_EQ(m["speedup_end_to_end"], (18.003 / 18) / (8.003 / 12))
      << "prefills take time and give no token";
  EXPECT_DOUBLE_EQ(m["speedup_ci95"][0], 1.25) << "three times prompt 0";
  EXPECT_DOUBLE_EQ(m["speedup_ci95"][1], 1.875);
  EXPECT_DOUBLE_EQ(summary["cases"][1]["by_prompt"]["1"]["speedup"], 1.875);
  EXPECT_DOUBLE_EQ(summary["cases"][1]["categories"]["a"]["metrics"]["speedup"], 9 / 6.4);
  EXPECT_EQ(m["texts_equal"], false);
  EXPECT_TRUE(base["texts_equal"].is_null());
}

TEST_F(Speed, IsTheRatioOfTimesWhereTextsAreEqual) {
  const json m = summarise_run(write_run("equal", 1'600'000))["cases"][1]["metrics"];
  EXPECT_EQ(m["texts_equal"], true);
  double base = 0, test = 0;
  for (int prompt = 0; prompt < 3; ++prompt) base += 6'000'000 * 1e-9, test += 4'800'000 * 1e-9;
  EXPECT_EQ(m["speedup"].get<double>(), base / test) << "bit for bit";
}

// On prompt 0 the case failed on seed 1 and its reference on seed 2. So this prompt has no pair of lines,
// although both have one line.
TEST_F(Speed, PairsLinesOfTheSameSeed) {
  const auto path = write_run("seeds", 1'600'000);
  json config = read_json_file(path / "config.json");
  config["seeds"] = {1, 2};
  write_json_file(path / "config.json", config);
  for (const char* id : {"autoregressive", "spec"}) {
    const auto file = path / "cases" / (std::string(id) + ".jsonl");
    const std::vector<LineRecord> lines = read_case_file(file);
    std::filesystem::remove(file);
    JsonLinesWriter writer(file);
    for (LineRecord line : lines) {
      const std::uint64_t failed = line.prompt == "0" ? (line.case_id == "spec" ? 1 : 2) : 0;
      for (line.seed = 1; line.seed <= 2; ++line.seed) {
        LineRecord of_seed = line;
        for (Token& token : of_seed.turns[0].tokens) token += static_cast<Token>(line.seed);
        if (failed != 0) of_seed.turns[0].decode_ns *= 10;
        if (failed == line.seed) of_seed.turns.clear(), of_seed.error = "no memory";
        writer.append(to_json(of_seed));
      }
    }
  }
  const RunData run = load_run(path);
  const CaseData &base = *run.cases[0], &spec = *run.cases[1];
  EXPECT_EQ(spec.lines[0]->size(), 1u);
  EXPECT_EQ(base.lines[0]->size(), 1u);
  EXPECT_EQ(paired_times(base, spec, false).test.size(), 2u) << "prompts 1 and 2";
  const json m = summarise_run(path)["cases"][1]["metrics"];
  EXPECT_EQ(m["texts_equal"], true);
  EXPECT_DOUBLE_EQ(m["speedup"], 1.25);
}

TEST_F(Speed, TheFirstTokenWaitsForObservePrompt) {
  const auto path = write_run("first", 1'600'000);
  const auto milliseconds = [&] {
    return summarise_run(path)["cases"][1]["metrics"]["time_to_first_token"].get<double>();
  };
  EXPECT_DOUBLE_EQ(milliseconds(), .001);
  rewrite(path / "cases" / "spec.jsonl", [](LineRecord& line) {
    line.turns[0].observe_prompt_ns = 500;
    line.turns[0].draft_prefill_ns = 9000;
  });
  EXPECT_DOUBLE_EQ(milliseconds(), .0015);
}

TEST_F(Speed, LeavesOutATextThatEndsWithItsFirstToken) {
  const json summary = summarise_run(write_half_texts("none", 0));
  EXPECT_DOUBLE_EQ(summary["cases"][1]["metrics"]["speedup"], 1.25) << "prompt 0 alone has tokens";
  EXPECT_TRUE(summary["cases"][1]["by_prompt"]["1"]["speedup"].is_null());
  EXPECT_TRUE(summary["noise_floor"].is_number());
}

TEST_F(Speed, PredictionsAndWaterfallUseTheSameSpeedup) {
  const auto path = write_half_texts("half");
  for (int i = 0; i < 3; ++i) JsonLinesWriter(path / "calibration.jsonl").append(calibration_round(1e6));
  const json entry = summarise_run(path)["cases"][1];
  const json& waterfall = entry["waterfall"];
  EXPECT_DOUBLE_EQ(waterfall.back()["speedup"], 1.5);
  EXPECT_DOUBLE_EQ(waterfall[waterfall.size() - 2]["speedup"], 1.5);
  // tau = 12 / 5. The calibrated step takes 1.2 + .2 ms, the measured one 1.6 ms.
  EXPECT_NEAR(waterfall.back()["unexplained_share"].get<double>(), .2 / 1.6, 1e-12);
  EXPECT_NEAR(waterfall.back()["unexplained_share_ci95"][0].get<double>(), .2 / 1.6, 1e-12)
      << "for all drawn prompts";
  EXPECT_NEAR(waterfall.back()["unexplained_share_ci95"][1].get<double>(), .2 / 1.6, 1e-12);
  EXPECT_DOUBLE_EQ(entry["predictions"]["measured_costs"]["measured"], 1.5);
}

TEST_F(Speed, ComparesRunsPerToken) {
  const auto whole = load_compared_run(write_run("whole", 1'600'000)),
             half = load_compared_run(write_half_texts("half"));
  const CaseComparison result = compare_runs(whole, half, {.allow_changed_text = true}).cases[1];
  EXPECT_NEAR(result.ratio, .8 / (8. / 12), 1e-12) << "the same steps; the ratio of times is 14.4 / 8";
  EXPECT_EQ(result.prompts, 3u);
}

TEST_F(Speed, OfDifferentTextsIsMarked) {
  const json half = summarise_run(write_half_texts("half")),
             equal = summarise_run(write_run("equal", 1'600'000));
  EXPECT_THAT(to_text(summary_table(half)), HasSubstr("1.50 [1.25, 1.88] (n = 3) *"));
  EXPECT_THAT(notes_text(half), HasSubstr("* The texts of this case differ from those of its reference"));
  EXPECT_THAT(to_text(summary_table(equal)), Not(HasSubstr("*")));
  EXPECT_THAT(notes_text(equal), Not(HasSubstr("*")));
  json old = half;
  for (json& entry : old["cases"]) entry["metrics"].erase("texts_equal");
  EXPECT_THAT(to_text(summary_table(old)), Not(HasSubstr("*"))) << "an older record does not say";
}

TEST_F(Speed, AFewPromptsAreNamedBesideTheirIntervals) {
  const json metrics = {{"x", 2.0}, {"x_ci95", {1.5, 2.5}}};
  EXPECT_EQ(interval_text(metrics, "x", 3, 9), "2.00 [1.50, 2.50] (n = 9)");
  EXPECT_EQ(interval_text(metrics, "x", 3, 10), "2.00 [1.50, 2.50]");
  EXPECT_EQ(interval_text({{"x", 2.0}}, "x", 3, 9), "2.00");
}

TEST_F(Speed, TooFewPromptsGiveNoNoiseFloor) {
  json summary = summarise_run(write_run("run", 1'600'000));
  summary["noise_floor"] = .0312;
  EXPECT_EQ(notes_text(summary), "Differences of time below 3.1 % are noise.\n");
  const auto too_few = [&] {
    EXPECT_THAT(notes_text(summary),
                AllOf(HasSubstr("Too few "), HasSubstr("prompts: "), Not(HasSubstr("%"))));
  };
  summary["noise_floor"] = 12.979;
  too_few();
  summary["noise_floor"] = .0312;
  for (json& entry : summary["cases"]) entry["prompts"] = 2;
  too_few();
  for (json& entry : summary["cases"]) entry["prompts"] = 9, entry["repeats"] = 1;
  summary["noise_floor"] = nullptr;
  EXPECT_EQ(notes_text(summary),
            "Too few repeats to say which differences of time are noise (prompts: 9, repeats: 1).\n");
  for (json& entry : summary["cases"]) entry["prompts"] = 0;
  EXPECT_EQ(notes_text(summary), "") << "nothing was measured";
}

}  // namespace
}  // namespace speclab::speed_test
