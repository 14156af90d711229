// `speclab optimize tree --by-confidence`: measuring, choosing, and drafting the trees that were written.
#include "experiments/analysis/trees/mixture_choice.h"

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "core/decoding/drafting/trees_by_confidence.h"
#include "core/theory/tree_search.h"
#include "tests/experiments/cli/speclab_fixture.h"

namespace speclab::mixture_choice_test {
namespace {

using namespace speclab::fixtures;

class ByConfidence : public Speclab {
 protected:
  Result optimize(const std::string& source, const std::vector<std::string>& more) {
    std::vector<std::string> words = {"optimize", "tree", source, "-q", "--draft", "skip"};
    words.insert(words.end(), more.begin(), more.end());
    return run(words);
  }
  /// Runs the command for a machine on which drafting pays. The measured texts are long enough for 50 steps
  /// in each range.
  Result optimize_for_free_rows(const std::string& source, std::vector<std::string> more) {
    for (const char* word : {"--t", "1:1,64:1.2", "--c", ".02", "--nodes", "12"}) more.emplace_back(word);
    if (source == "a.json") {
      for (const char* word : {"--width", "3", "--measured-depth", "2", "--set", "options.max_tokens=90"})
        more.emplace_back(word);
    }
    return optimize(source, more);
  }
  json file(const std::string& name) { return read_json_file(dir() / name); }
};

TEST_F(ByConfidence, MeasuresChoosesAndWritesTreesThatCanBeDrafted) {
  const Result first =
      optimize_for_free_rows("a.json", {"--by-confidence", "3", "--out", "trees.json", "--json"});
  ASSERT_EQ(first.code, 0) << first.err;
  EXPECT_THAT(first.err, HasSubstr("\"budget\": \"fixed\""));
  const json found = file("trees.json");
  EXPECT_EQ(json::parse(first.out), found);
  EXPECT_EQ(found["format"], kTreesFormat);
  ASSERT_EQ(found["trees"].size(), 3u);
  EXPECT_EQ(TreesByConfidence::read(dir() / "trees.json").count(), 3);
  EXPECT_EQ(found["prompts"].size(), 3u);

  // The prediction is that of the written trees.
  const auto pooled = found["acceptance"].get<std::vector<std::vector<double>>>();
  ASSERT_EQ(pooled.size(), 2u);
  double share = 0, tokens = 0, time = 0, reached = 0;
  for (const json& tree : found["trees"]) {
    const theory::RankedTree shape{.parents = tree["parents"], .ranks = tree["ranks"]};
    EXPECT_EQ(tree["nodes"], shape.nodes());
    EXPECT_EQ(tree["depth"], shape.depth());
    EXPECT_LE(shape.nodes(), 12);
    const double of_tree = theory::tree_expected_tokens(
        shape, theory::RankAcceptance({tree["acceptance"].get<std::vector<double>>(), pooled[1]}));
    EXPECT_NEAR(tree["tau"].get<double>(), of_tree, 1e-12);
    const double of_steps = tree["share"];
    share += of_steps;
    tokens += of_steps * of_tree;
    time += of_steps * (1 + .2 * (shape.nodes() - 1) / 63 + .02 * std::max(1, shape.depth()));
    reached += tree["reached"][0].get<double>();
    EXPECT_NEAR(of_steps, 1. / 3, .1);
  }
  EXPECT_NEAR(share, 1, 1e-12);
  const json& predicted = found["predicted"];
  EXPECT_NEAR(predicted["tau"].get<double>(), tokens, 1e-9);
  EXPECT_NEAR(predicted["speedup"].get<double>(), tokens / time, 1e-9);
  EXPECT_EQ(predicted["chosen_by"], "speedup");
  EXPECT_TRUE(predicted["step_speedup"].is_null());
  EXPECT_GT(predicted["tree"]["speedup"], 1);
  EXPECT_GT(predicted["tree"]["nodes"], 1);
  EXPECT_LE(reached, found["reached"][0][0].get<double>());
  // The acceptance really differs between the ranges.
  EXPECT_NE(found["trees"][0]["acceptance"], found["trees"][2]["acceptance"]);

  // The same choice from the run, as text.
  const Result second =
      optimize_for_free_rows("trees.json.run", {"--by-confidence", "3", "--out", "again.json"});
  ASSERT_EQ(second.code, 0) << second.err;
  EXPECT_EQ(file("again.json"), found);
  EXPECT_THAT(second.out,
              AllOf(HasSubstr("The best tree has"), HasSubstr("confidence"),
                    HasSubstr("Trees by confidence: tau"), HasSubstr("The best single tree: tau")));
  // A draft that costs too much.
  const Result none = optimize("trees.json.run", {"--by-confidence", "2", "--c", "50", "--out", "none.json"});
  EXPECT_EQ(none.code, 1) << none.err;
  EXPECT_THAT(none.out, HasSubstr("No choice of trees by confidence is faster"));
  EXPECT_FALSE(fs::exists(dir() / "none.json"));
  // With the costs of this machine, the mixture is chosen by them.
  const json timed =
      json::parse(optimize("trees.json.run", {"--by-confidence", "2", "--out", "timed.json", "--json"}).out);
  EXPECT_EQ(timed["predicted"]["chosen_by"], "step_speedup");
  EXPECT_GT(timed["predicted"]["step_speedup"], 0);

  json drafted = config();
  drafted["cases"] = {{{"strategy", "autoregressive"}},
                      {{"strategy", "tree_speculation"}, {"draft", "skip"}, {"tree", "trees.json"}}};
  write(drafted);
  measure("drafted");
  const json cases = file("drafted/summary.json")["cases"];
  ASSERT_EQ(cases.size(), 2u);
  EXPECT_EQ(cases[1]["metrics"]["matches_reference"], true);
  EXPECT_GT(cases[1]["predictions"]["tree_by_confidence"]["value"], 1);
  EXPECT_GT(cases[1]["predictions"]["tree_by_confidence"]["measured"], 1);
  // Such a case says nothing about single trees: its trees follow the confidence.
  expect_error(optimize("drafted", {"--out", "t.json"}), {"a run without trees of a draft model"});
}

TEST_F(ByConfidence, SaysWhatIsWrong) {
  expect_error(optimize("a.json", {"--by-confidence", "1", "--out", "t.json"}),
               {"--by-confidence", "got 1", "2 to 16"});
  expect_error(run({"optimize", "layers", "--by-confidence", "2", "--out", "t.json"}), {"--by-confidence"});
  json plain = config();
  plain["cases"] = {{{"strategy", "autoregressive"}},
                    {{"strategy", "tree_speculation"}, {"draft", "skip"}, {"widths", {2}}}};
  write(plain);
  measure("plain");
  expect_error(optimize_for_free_rows("plain", {"--by-confidence", "2", "--out", "t.json"}),
               {"a run whose steps have no root_confidence", "\"root_confidence\": true"});
  // A bad file, and a budget that cannot follow the confidence, are found before anything is measured.
  const auto tree = [](double from, double to) {
    return json{{"from", from}, {"to", to}, {"parents", {0}}, {"ranks", {1}}};
  };
  json trees = {{"format", kTreesFormat}};
  trees["trees"] = {tree(0, .5), tree(.6, 1)};
  write_json_file(dir() / "trees.json", trees);
  plain["cases"][1] = {{"strategy", "tree_speculation"}, {"draft", "skip"}, {"tree", "trees.json"}};
  write(plain);
  expect_error(run({"run", "a.json", "--out", "never", "-q"}),
               {"trees.json: /trees/1/from", "got 0.6, expected 0.5", "no gap"});
  trees["trees"] = {tree(0, .5), tree(.5, 1)};
  write_json_file(dir() / "trees.json", trees);
  plain["cases"][1]["budget"] = "auto";
  write(plain);
  expect_error(run({"run", "a.json", "--out", "never", "-q"}), {"budget", "2 trees", "expected fixed"});
}

}  // namespace
}  // namespace speclab::mixture_choice_test
