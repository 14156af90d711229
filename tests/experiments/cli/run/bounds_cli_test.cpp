// Runs with "bounds": true, from config to verdict.
#include "tests/experiments/cli/speclab_fixture.h"

namespace speclab::bounds_cli_test {
namespace {

using namespace speclab::fixtures;

class BoundsRun : public Speclab {
 protected:
  /// Runs these cases with the generation options and returns the summary's cases by id.
  std::map<std::string, json> cases_of(const json& options, const json& cases) {
    json config = Speclab::config();
    config["bounds"] = true;
    config["options"].update(options);
    config["options"]["ignore_eos"] = true;
    config["cases"] = cases;
    write(config);
    measure();
    const json summary = read_json_file(dir() / "run" / "summary.json");
    std::map<std::string, json> out;
    for (const json& entry : summary["cases"]) out[entry["id"]] = entry;
    return out;
  }
  static json chains(const json& rules) {
    return json::array(
        {{{"strategy", "autoregressive"}},
         {{"strategy", "speculative_sampling"}, {"draft", "skip"}, {"gamma", 3}, {"rule", rules}}});
  }
};

// At temperature 0 every lossless verifier keeps the matching tokens, so each step reaches its bound. With a
// repetition penalty the rows depend on the text before the step.
TEST_F(BoundsRun, GreedyStepsReachTheirBound) {
  for (const double penalty : {1., 1.5}) {
    std::filesystem::remove_all(dir() / "run");
    const auto found =
        cases_of({{"temperature", 0}, {"repetition_penalty", penalty}}, chains({"rejection", "block"}));
    ASSERT_EQ(found.size(), 3u);
    for (const auto& [id, entry] : found) {
      const json& metrics = entry["metrics"];
      EXPECT_DOUBLE_EQ(metrics["tau_bound"].get<double>(), metrics["tau"].get<double>()) << id;
      EXPECT_EQ(metrics["tau_excess"].get<double>(), 0) << id;
      if (entry["draft"].is_null()) continue;
      EXPECT_EQ(metrics["path_gain"].get<double>(), 0) << id;
      EXPECT_GT(metrics["tau"].get<double>(), 1.05) << id << " says nothing";
    }
    std::map<std::string, std::size_t> steps;
    for (const json& line : read_json_lines(dir() / "run" / "bounds.jsonl"))
      steps[line["case"]] += line["steps"].size();
    for (const auto& [id, entry] : found)
      EXPECT_EQ(steps[id], entry["metrics"]["steps"].get<std::size_t>()) << id << ": one repeat of two";
  }
}

TEST_F(BoundsRun, SampledRulesStayBelowTheirBound) {
  const json trees = {{"strategy", "tree_speculation"},
                      {"draft", "skip"},
                      {"widths", {2, 2}},
                      {"children", {"independent", "without_replacement"}},
                      {"rule", {"rejection", "traversal"}}};
  json cases = chains({"rejection", "block"});
  cases.push_back(trees);
  cases.push_back({{"strategy", "merged_trees"}, {"draft", "skip"}, {"sources", {"draft", "text"}}});
  const auto found = cases_of({{"temperature", 1}, {"max_tokens", 60}}, cases);
  ASSERT_EQ(found.size(), 8u);
  for (const auto& [id, entry] : found) {
    EXPECT_TRUE(entry["above_bound"].is_null()) << id << entry["above_bound"];
    const json& metrics = entry["metrics"];
    if (entry["draft"].is_null()) continue;
    EXPECT_GT(metrics["position_bound"].get<double>(), .1) << id;
    EXPECT_LE(metrics["position_bound"].get<double>(), 1) << id;
    EXPECT_EQ(metrics["tau_bound"].is_null(), entry["rule"] == "traversal") << id;
    if (!metrics["path_gain_at"].is_null()) {
      EXPECT_GE(metrics["path_gain"].get<double>(), 0) << id << ": on a chain, no step loses";
    }
    EXPECT_NEAR(metrics["tau_" + std::string(entry["rule"] == "rejection" ? "token" : "path") + "_rule"]
                    .get<double>(),
                metrics["tau"].get<double>(), .45)
        << id;
  }
}

TEST_F(BoundsRun, AWrongVerifierEndsWithExitCodeOne) {
  cases_of({{"temperature", 1}, {"max_tokens", 60}}, chains("block"));
  EXPECT_EQ(run({"report", "run"}).code, 0);
  std::vector<json> lines = read_json_lines(dir() / "run" / "bounds.jsonl");
  std::filesystem::remove(dir() / "run" / "bounds.jsonl");
  JsonLinesWriter writer(dir() / "run" / "bounds.jsonl");
  for (json& line : lines) {
    for (json& step : line["steps"]) {
      for (json& kept : step["by_path"]) kept = .01 * kept.get<double>();
    }
    writer.append(line);
  }
  const Result again = run({"run", "--resume", "run"});
  EXPECT_EQ(again.code, 1) << again.err;
  EXPECT_THAT(again.err, HasSubstr("exit code 1: WRONG VERIFIER: speculative_sampling/draft=skip"));
  EXPECT_THAT(again.out, HasSubstr("WRONG"));
  const Result report = run({"report", "run"});
  EXPECT_EQ(report.code, 1);
  EXPECT_THAT(report.out, HasSubstr("WRONG VERIFIER: speculative_sampling/draft=skip"));
  const Result as_json = run({"report", "run", "--json"});
  EXPECT_EQ(as_json.code, 1);
  EXPECT_THAT(as_json.err, HasSubstr("exit code 1: WRONG VERIFIER"));
  EXPECT_EQ(run({"report", "run", "--export", "vllm"}).code, 1);
}

TEST_F(BoundsRun, NoBoundsUnlessTheConfigWantsThem) {
  measure();
  EXPECT_FALSE(std::filesystem::exists(dir() / "run" / "bounds.jsonl"));
}

}  // namespace
}  // namespace speclab::bounds_cli_test
