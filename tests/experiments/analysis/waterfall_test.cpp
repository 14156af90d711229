// Predictions of a record, and the terms that explain its speedup.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "experiments/metrics/summary.h"
#include "tests/experiments/metrics/hand_made_run.h"

namespace speclab::waterfall_test {
namespace {

using namespace speclab::fixtures;
using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class Explained : public Record {
 protected:
  /// `wide`: the calibrated t(3); the true one is 1.2.
  json spec(const std::string& name, double wide = 1.2, bool drift_in_lines = false,
            bool rounds_known = false) {
    const auto path = write_run(name, 1'600'000);
    for (int i = 0; i < 3; ++i)
      JsonLinesWriter(path / "calibration.jsonl").append(calibration_round(1e6, wide));
    for (const char* file : {"autoregressive.jsonl", "spec.jsonl"}) {
      rewrite(path / "cases" / file, [&](LineRecord& line) {
        const bool one_row = line.case_id == "autoregressive";
        if (drift_in_lines) line.drift = {{one_row ? 1 : 3, one_row ? 1'000'000 : 1'200'000}};
        if (rounds_known) line.calibration_rounds = 1;
      });
    }
    return json(summarise_run(path)["cases"][1]);
  }
  static json term(const json& entry, const std::string& step) {
    for (const json& one : entry["waterfall"]) {
      if (one["step"] == step) return one;
    }
    return nullptr;
  }
};

TEST_F(Explained, AWrongCalibrationShowsInTheUnexplainedShare) {
  const json honest = spec("honest", 1.2, true), lie = spec("lie", .7 * 1.2, true);
  const auto share = [](const json& entry, const std::string& name) {
    return entry["waterfall"].back()[name];
  };
  const double missing = 1 - (.7 * 1.2 + .2) / 1.6;  // 30 % of a forward
  EXPECT_NEAR(share(honest, "unexplained_share").get<double>(), 1 - 1.4 / 1.6, 1e-12);
  EXPECT_NEAR(share(lie, "unexplained_share").get<double>(), missing, 1e-12);
  for (const int end : {0, 1})
    EXPECT_NEAR(share(lie, "unexplained_share_ci95")[end].get<double>(), missing, 1e-12);
  // The forwards timed in the lines have the case's own row counts. They make up for the wrong calibration,
  // so the residual after them is the same for both calibrations.
  EXPECT_NEAR(share(lie, "residual_share").get<double>(), share(honest, "residual_share").get<double>(), .06);
  EXPECT_EQ(term(lie, "machine_drift")["measured_by"], "lines");
}

TEST_F(Explained, TheDriftTermNamesItsMeasurement) {
  const auto explanation = [&](const char* name, bool lines, bool rounds) {
    const json found = term(spec(name, 1.2, lines, rounds), "machine_drift");
    return found.is_null() ? std::string("none") : found["explanation"].get<std::string>();
  };
  EXPECT_THAT(explanation("lines", true, true),
              AllOf(HasSubstr("forwards timed inside the lines"), Not(HasSubstr("rounds"))));
  EXPECT_THAT(explanation("rounds", false, true),
              AllOf(HasSubstr("calibration rounds next to the lines"), Not(HasSubstr("inside the lines"))));
  EXPECT_EQ(explanation("none", false, false), "none") << "there is no term";
  const json without = spec("without")["waterfall"].back();
  EXPECT_EQ(without["residual_share"], without["unexplained_share"]);
}

TEST_F(Explained, AFalseCostShowsInTheResidualBesideProbes) {
  struct Factors {
    double target = 1, draft = 1, accept = 1;
  };
  const auto explained = [&](const std::string& name, const Factors& factors) {
    const auto path = write_run(name, 1'600'000);
    json round = calibration_round(1e6, factors.target * 1.2);
    round["probes"] = {{1'000'000, 500'000}};
    json& ns = round["cases"]["spec"][0]["ns"];
    ns["draft"] = factors.draft * 2e5;
    ns["accept"] = factors.accept * 1e5;
    for (int i = 0; i < 3; ++i) JsonLinesWriter(path / "calibration.jsonl").append(round);
    for (const char* file : {"autoregressive.jsonl", "spec.jsonl"}) {
      rewrite(path / "cases" / file, [](LineRecord& line) { line.probes = {{1'000'000, 500'000}}; });
    }
    return json(summarise_run(path)["cases"][1]);
  };
  const auto residual = [](const json& entry) {
    return entry["waterfall"].back()["residual_share"].get<double>();
  };
  const json honest = explained("true", {});
  EXPECT_EQ(term(honest, "machine_drift")["measured_by"], "probes");
  EXPECT_NEAR(residual(honest), 1 - (1.2 + .2 + .1) / 1.6, 1e-12);
  EXPECT_NEAR(residual(honest) - residual(explained("target", {.target = 1.1})), .1 * 1.2 / 1.6, 1e-12);
  EXPECT_NEAR(residual(honest) - residual(explained("draft", {.draft = 1.1})), .1 * .2 / 1.6, 1e-12);
  EXPECT_NEAR(residual(honest) - residual(explained("accept", {.accept = 1.1})), .1 * .1 / 1.6, 1e-12);
}

TEST_F(Explained, Theorem38HasOneValueInARecord) {
  const auto path = write_run("cut", 1'600'000);
  for (int i = 0; i < 3; ++i) JsonLinesWriter(path / "calibration.jsonl").append(calibration_round(1e6));
  rewrite(path / "cases" / "spec.jsonl", [](LineRecord& line) {
    line.turns[0].steps.back().drafted.resize(1);  // the end of the text cut this draft
  });
  const json entry = summarise_run(path)["cases"][1];
  const double c = .1;  // one draft forward per drafted token; the cut token has none
  const json& prediction = entry["predictions"]["leviathan_3_8"];
  ASSERT_TRUE(prediction["value"].is_number());
  EXPECT_EQ(entry["waterfall"][0]["step"], "leviathan_3_8");
  EXPECT_EQ(entry["waterfall"][0]["speedup"], prediction["value"]);
  EXPECT_NEAR(prediction["value"].get<double>(), (1 + .6 + .36) / (1 + 2 * c * 6 / 5), 1e-12);
  double gap = 0;
  for (const json& one : entry["waterfall"]) gap += one["log_ratio"].get<double>();
  EXPECT_NEAR(
      gap, std::log(entry["waterfall"].back()["speedup"].get<double>() / prediction["value"].get<double>()),
      1e-12);
}

// Three steps of two drafted tokens, and a reference of 100 operations per row. Drafting did 40 of the 100
// operations of a row before the verification, which therefore has 9 x 100 - 6 x 40 = 660.
TEST_F(Explained, AVerificationThatGoesOnFromDraftedRowsCostsWhatIsLeft) {
  const auto predicted = [&](const char* name, std::int64_t target_calls) {
    const auto path = write_run(name, 1'600'000);
    for (int i = 0; i < 3; ++i) JsonLinesWriter(path / "calibration.jsonl").append(calibration_round(1e6));
    json config = read_json_file(path / "config.json");
    config["cases"][1]["draft"] = nullptr;
    write_json_file(path / "config.json", config);
    rewrite(path / "cases" / "spec.jsonl",
            [&](LineRecord& line) { line.turns[0].target = passes(target_calls, 12, 660, 300); });
    return json(summarise_run(path)["cases"][1]);
  };
  const json exit = predicted("exit", 6), other = predicted("other", 3);
  const double tokens = 1 + .6 + .36, c = .1, verification = .4 + .6 * 1.2;
  const auto value = [](const json& entry, const char* name) {
    return entry["predictions"].at(name).at("value").get<double>();
  };
  EXPECT_NEAR(value(exit, "measured_t_speedup"), tokens / (2 * c + verification), 1e-12);
  EXPECT_NEAR(value(exit, "measured_costs"), 2 / (2 * c + verification), 1e-12);
  EXPECT_NEAR(value(exit, "leviathan_3_8"), tokens / (2 * c + 1), 1e-12) << "rows are free there";
  const std::string assumed = exit["predictions"]["measured_costs"]["assumptions"];
  EXPECT_THAT(assumed, HasSubstr("for all rows except one, drafting had already done 40.0 % of"));
  EXPECT_NEAR(exit["waterfall"].back()["unexplained_share"].get<double>(), 1 - (.2 + verification) / 1.6,
              1e-12);
  // With one forward in each step, the verification runs all layers.
  EXPECT_NEAR(value(other, "measured_t_speedup"), tokens / (2 * c + 1.2), 1e-12);
  EXPECT_THAT(other["predictions"]["measured_costs"]["assumptions"].get<std::string>(),
              Not(HasSubstr("drafting had")));
}

TEST_F(Explained, EveryTermHasTheIntervalOfItsCause) {
  const auto explained = [&](const char* name, const std::vector<double>& rounds, bool uneven) {
    const auto path = write_run(name, 1'600'000);
    for (const double ns : rounds) JsonLinesWriter(path / "calibration.jsonl").append(calibration_round(ns));
    if (uneven) {  // prompt 0 accepts all its drafts
      rewrite(path / "cases" / "spec.jsonl", [](LineRecord& line) {
        if (line.prompt != "0") return;
        GenerationRecord& turn = line.turns[0];
        turn.steps = {turn.steps[0], turn.steps[0]};
        turn.decode_ns = 2 * 1'600'000;
      });
    }
    return json(summarise_run(path)["cases"][1]["waterfall"]);
  };
  const auto width = [](const json& waterfall, const std::string& step, const char* name = "log_ratio_ci95") {
    for (const json& one : waterfall) {
      if (one["step"] != step) continue;
      const json& ci = one.at(name);
      const char* value = std::string(name) == "speedup_ci95" ? "speedup" : "log_ratio";
      EXPECT_LE(ci[0].get<double>(), one[value].get<double>() + 1e-12) << step;
      EXPECT_GE(ci[1].get<double>(), one[value].get<double>() - 1e-12) << step;
      return ci[1].get<double>() - ci[0].get<double>();
    }
    ADD_FAILURE() << "no " << step;
    return 0.;
  };
  // Prompts that differ make the terms of acceptance uncertain, and the speedups.
  const json prompts = explained("prompts", {1e6, 1e6, 1e6}, true);
  EXPECT_GT(width(prompts, "iid"), .01);
  EXPECT_GT(width(prompts, "leviathan_3_8", "speedup_ci95"), .05);
  EXPECT_GT(width(prompts, "measured", "speedup_ci95"), .05);
  EXPECT_NEAR(width(prompts, "draft_cost"), 0, 1e-9);
  EXPECT_NEAR(width(prompts, "verification_width"), 0, 1e-9);
  // Rounds that differ make the terms of costs uncertain.
  const json rounds = explained("rounds", {.5e6, 1e6, 1.5e6}, false);
  EXPECT_NEAR(width(rounds, "iid"), 0, 1e-9);
  EXPECT_NEAR(width(rounds, "measured", "speedup_ci95"), 0, 1e-9);
  EXPECT_GT(width(rounds, "leviathan_3_8", "speedup_ci95"), .01) << "c is uncertain";
  EXPECT_GT(width(rounds, "residual"), .01);
  // One round gives no interval.
  for (const json& term : explained("single", {1e6}, true)) {
    const bool end = term["step"] == "leviathan_3_8" || term["step"] == "measured";
    EXPECT_TRUE(term.at(end ? "speedup_ci95" : "log_ratio_ci95").is_null()) << term["step"];
  }
}

TEST_F(Explained, ShortDraftsWithinATextMeanNoConstantGamma) {
  const auto path = write_run("short", 1'600'000);
  EXPECT_TRUE(summarise_run(path)["cases"][1]["predictions"].contains("leviathan_eq_1"));
  rewrite(path / "cases" / "spec.jsonl", [](LineRecord& line) {
    StepRecord& step =
        line.turns[0].steps[1];  // three tokens before the end, where a draft of two is not cut
    step.drafted.resize(1);
    step.ended_by = EndedBy::schedule;
  });
  const json varied = summarise_run(path)["cases"][1]["predictions"];
  EXPECT_FALSE(varied.contains("leviathan_eq_1"));
  EXPECT_TRUE(varied.contains("mixture_eq_1"));
}

TEST_F(Explained, OnlyPredictionsHaveErrors) {
  const json predictions = spec("run")["predictions"];
  std::map<std::string, int> kinds;
  for (const auto& [name, entry] : predictions.items()) {
    const std::string kind = entry["kind"];
    ++kinds[kind];
    EXPECT_EQ(entry["error"].is_number(), kind == "prediction" && entry["measured"].is_number()) << name;
    if (kind == "optimum" || kind == "what_if") {
      EXPECT_TRUE(entry["measured"].is_null()) << name;
    }
  }
  EXPECT_EQ(kinds.size(), 5u) << predictions.dump(1);
  EXPECT_EQ(kinds["what_if"], 4);
  EXPECT_EQ(predictions["positional"]["kind"], "identity");
  EXPECT_TRUE(predictions["positional"]["measured"].is_number());
  EXPECT_TRUE(predictions["measured_costs"]["error"].is_number());
  for (const char* name : {"optimal_gamma_measured_t", "optimal_speedup_measured_t"}) {
    const json& interval = predictions[name]["value_ci95"];
    ASSERT_TRUE(interval.is_array()) << name;
    EXPECT_LE(interval[0], predictions[name]["value"]) << name;
    EXPECT_GE(interval[1], predictions[name]["value"]) << name;
  }
}

}  // namespace
}  // namespace speclab::waterfall_test
