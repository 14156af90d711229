// Toys with the real binary: every strategy of configs/toys.json runs on Markov chains, and the record shows
// exact predictions beside the measurement.
#include <cmath>

#include "tests/experiments/cli/speclab_fixture.h"

namespace speclab::toys_cli_test {
namespace {

using namespace fixtures;

class Toys : public Speclab {
 protected:
  /// configs/toys.json with few prompts and short texts, and the datastore that it needs.
  json toys_config() {
    const Result made = run({"toy", "--out", "build/toy", "--texts", "5", "--tokens", "60"});
    EXPECT_EQ(made.code, 0) << made.err;
    const Result built = run({"datastore", "build", "--model", "build/toy", "--out", "build/toy.datastore",
                              "build/toy/texts.jsonl"});
    EXPECT_EQ(built.code, 0) << built.err;
    const fs::path root = SPECLAB_SOURCE_DIR;
    json config = read_json_file(root / "configs/toys.json");
    config["prompts"]["file"] = (root / "configs/prompts/toys.jsonl").string();
    return config;
  }
};

TEST_F(Toys, EveryStrategyRunsOnThem) {
  json config = toys_config();
  config["prompts"]["limit"] = 2;
  config["seeds"] = {1};
  config["options"]["max_tokens"] = 25;
  write(config);
  // One strategy needs two threads.
  const Result result = run({"run", "a.json", "--out", "run", "-q", "--threads", "2"});
  ASSERT_EQ(result.code, 0) << result.err;
  const json summary = read_json_file(dir() / "run/summary.json");
  EXPECT_EQ(summary["complete"], true);
  EXPECT_TRUE(summary["errors"].empty()) << summary["errors"].dump();
  const json environment = read_json_file(dir() / "run/environment.json");
  EXPECT_EQ(environment["models"]["target"]["markov"]["vocab"], 16);
  EXPECT_EQ(environment["models"]["target"]["layers"], json::array());
  EXPECT_EQ(environment["models"]["near"]["markov"]["noise"], .3);
  EXPECT_NE(environment["models"]["near"]["sha256"], environment["models"]["target"]["sha256"]);
  const std::vector<json> lines = read_json_lines(dir() / "run/cases/autoregressive.jsonl");
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0]["tokens"].size(), 25u);
  // The text of a model without a tokenizer consists of the ids.
  EXPECT_TRUE(
      lines[0]["text"].get<std::string>().starts_with(std::to_string(lines[0]["tokens"][0].get<int>()) + " "))
      << lines[0]["text"];
  const Result report = run({"report", "run", "--prompts"});
  EXPECT_EQ(report.code, 0) << report.err;
  const Result resumed = run({"run", "--resume", "run", "-q"});
  EXPECT_EQ(resumed.code, 0) << resumed.err;
  const Result plan = run({"run", "a.json", "--dry-run"});
  EXPECT_EQ(plan.code, 0) << plan.err;
  EXPECT_THAT(plan.out, HasSubstr("the target is a toy"));
}

TEST_F(Toys, TheRecordShowsTheExactTauBesideTheMeasuredOne) {
  json config = toys_config();
  config["seeds"] = {1, 2, 3, 4};
  config["options"]["max_tokens"] = 81;
  config["teacher_forced"] = false;
  write(config);
  const Result result =
      run({"run", "a.json", "--out", "run", "-q", "--filter", "speculative_sampling|tree_spec|simulated"});
  ASSERT_EQ(result.code, 0) << result.err;
  int found = 0, alphas = 0;
  const json summary = read_json_file(dir() / "run/summary.json");
  for (const json& entry : summary["cases"]) {
    const json& predictions = entry["predictions"];
    const std::string id = entry["id"];
    EXPECT_EQ(predictions.contains("toy_exact"), entry["strategy"] == "speculative_sampling") << id;
    if (!predictions.contains("toy_exact")) continue;
    ++found;
    const json& exact = predictions["toy_exact"];
    EXPECT_EQ(exact["kind"], "prediction");
    EXPECT_EQ(exact["measured"], entry["metrics"]["tau"]) << id;
    // 80 texts of 80 tokens: the interval of tau is a bootstrap over 20 prompts, four standard errors wide.
    const json& ci = entry["metrics"]["tau_ci95"];
    const double width = ci[1].get<double>() - ci[0].get<double>();
    EXPECT_NEAR(exact["value"].get<double>(), entry["metrics"]["tau"].get<double>(), 1.5 * width) << id;
    EXPECT_LT(width, .35) << id;
    EXPECT_EQ(predictions.contains("toy_exact_alpha"), entry["rule"] != "block") << id;
    if (!predictions.contains("toy_exact_alpha")) continue;
    ++alphas;
    EXPECT_NEAR(predictions["toy_exact_alpha"]["value"].get<double>(),
                entry["metrics"]["alpha"].get<double>(), .05)
        << id;
  }
  EXPECT_EQ(found, 24);
  EXPECT_EQ(alphas, 18);
}

TEST_F(Toys, WhatChangesTheStepsHasNoExactPrediction) {
  json config = toys_config();
  config["prompts"]["limit"] = 2;
  config["seeds"] = {1};
  config["options"]["max_tokens"] = 25;
  config["cases"] = json::parse(
      R"([{"strategy": "speculative_sampling", "draft": "near", "gamma": 3},
          {"strategy": "speculative_sampling", "draft": "near", "gamma": 3, "schedule": "confidence"},
          {"strategy": "speculative_sampling", "draft": "near", "gamma": 3, "repetition_penalty": 1.2},
          {"strategy": "speculative_sampling", "draft": "near", "gamma": 3, "rule": "lenience", "lenience": 0.5},
          {"strategy": "speculative_sampling", "draft": "near", "gamma": 20, "rule": "block"}])");
  write(config);
  const Result result = run({"run", "a.json", "--out", "run", "-q"});
  ASSERT_EQ(result.code, 0) << result.err;
  const json summary = read_json_file(dir() / "run/summary.json");
  EXPECT_EQ(summary["cases"].size(), 7u) << "five and two references, one of them with the penalty";
  for (const json& entry : summary["cases"]) {
    EXPECT_EQ(entry["predictions"].contains("toy_exact"),
              entry["id"] == "speculative_sampling/draft=near/gamma=3")
        << entry["id"];
  }
}

TEST_F(Toys, OfHigherOrderAndWithAnotherMemory) {
  write(json::parse(
      R"({"name": "ngrams", "target": {"markov": {"vocab": 5, "order": 2, "seed": 8, "sharpness": 3}},
    "drafts": {"bigram": {"markov": {"memory": 1}}}, "prompts": {"inline": ["7 3", "24 0 1", "11"]}, "seeds": [1, 2, 3, 4, 5, 6],
    "repeats": 1, "warmup": 0, "calibration": false, "teacher_forced": false,
    "options": {"temperature": 1, "max_tokens": 101, "budget": "fixed"},
    "cases": [{"strategy": "speculative_sampling", "draft": "bigram", "gamma": [2, 3], "rule": ["rejection", "block"]}]})"));
  const Result result = run({"run", "a.json", "--out", "run", "-q"});
  ASSERT_EQ(result.code, 0) << result.err;
  int found = 0;
  const json summary = read_json_file(dir() / "run/summary.json");
  for (const json& entry : summary["cases"]) {
    if (entry["strategy"] == "autoregressive") continue;
    ++found;
    const double exact = entry["predictions"]["toy_exact"]["value"].get<double>(),
                 measured = entry["metrics"]["tau"].get<double>();
    EXPECT_NEAR(exact, measured, .08 * measured) << entry["id"];  // about 900 steps
    EXPECT_GT(exact, 1.2) << entry["id"];
  }
  EXPECT_EQ(found, 4);
  for (const json& line : read_json_lines(dir() / "run/cases/autoregressive.jsonl")) {
    for (std::size_t i = 1; i < line["tokens"].size(); ++i)
      EXPECT_EQ(line["tokens"][i].get<int>() / 5, line["tokens"][i - 1].get<int>() % 5);
  }
}

TEST_F(Toys, TheCommandShowsExactNumbersAndWritesModels) {
  const Result shown = run({"toy", "--noise", "0.3", "--gamma", "1,4", "--json"});
  ASSERT_EQ(shown.code, 0) << shown.err;
  const json numbers = json::parse(shown.out);
  EXPECT_EQ(numbers["tokens"], 16);
  const double alpha = numbers["alpha"]["rejection"].get<double>();
  EXPECT_GT(alpha, .7);
  EXPECT_LT(alpha, .95);
  ASSERT_EQ(numbers["tau"].size(), 2u);
  const json& one = numbers["tau"][0];
  EXPECT_NEAR(one["block"].get<double>(), one["rejection"].get<double>(), 1e-9)
      << "with one token, block verification is rejection sampling";
  EXPECT_GT(numbers["tau"][1]["block"], numbers["tau"][1]["rejection"]);
  EXPECT_EQ(json::parse(run({"toy", "--vocab", "40", "--gamma", "6", "--json"}).out)["tau"][0]["block"],
            json());
  EXPECT_THAT(run({"toy"}).out, HasSubstr("tau at gamma 4"));

  const Result made = run({"toy", "--vocab", "6", "--order", "2", "--noise", ".5", "--out", "toys/pair",
                           "--texts", "3", "--tokens", "10"});
  ASSERT_EQ(made.code, 0) << made.err;
  EXPECT_EQ(read_json_lines(dir() / "toys/pair/texts.jsonl").size(), 3u);
  const Result model = run({"model", "toys/pair", "--json"});
  ASSERT_EQ(model.code, 0) << model.err;
  EXPECT_EQ(json::parse(model.out)["vocab"], 36);
  const Result text = run({"generate", "--model", "toys/pair", "--draft", "toys/pair-draft", "--strategy",
                           "speculative_sampling", "--set", "budget=fixed", "--set", "max_tokens=20", "--set",
                           "temperature=1", "--prompt", "3 20", "--json"});
  ASSERT_EQ(text.code, 0) << text.err;
  EXPECT_EQ(json::parse(text.out)["tokens"].size(), 20u);

  expect_error(run({"toy", "--vocab", "x"}), {"--vocab"});
  expect_error(run({"toy", "--order", "4"}), {"order", "1 to 3"});
  expect_error(run({"toy", "--memory", "2"}), {"memory", "at most 1"});
  expect_error(run({"toy", "--temperature", "0"}), {"--temperature", "above 0"});
  expect_error(run({"toy", "--texts", "3"}), {"without --out", "--texts"});
  expect_error(run({"toy", "--gamma", "0"}), {"--gamma", "1 to 64"});
}

}  // namespace
}  // namespace speclab::toys_cli_test
