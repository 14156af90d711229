// `speclab optimize tree`: measuring, choosing, and drafting the tree that was written.
#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "core/theory/tree_search.h"
#include "tests/experiments/cli/speclab_fixture.h"

namespace speclab {
namespace {

using namespace speclab::fixtures;

class Optimize : public Speclab {
 protected:
  Result optimize(const std::string& source, std::vector<std::string> more) {
    std::vector<std::string> words = {"optimize", "tree", source, "-q"};
    words.insert(words.end(), more.begin(), more.end());
    return run(words);
  }
  json tree(const std::string& name) { return read_json_file(dir() / name); }
};

TEST_F(Optimize, MeasuresChoosesAndWritesATreeThatCanBeDrafted) {
  const std::vector<std::string> choice = {"--draft", "skip", "--t",     "1:1,64:1.2",
                                           "--c",     ".02",  "--nodes", "12"};
  std::vector<std::string> words = choice;
  for (const char* word : {"--out", "tree.json", "--width", "4", "--measured-depth", "2", "--json"})
    words.push_back(word);
  const Result first = optimize("a.json", words);
  ASSERT_EQ(first.code, 0) << first.err;
  const json found = tree("tree.json");
  EXPECT_EQ(json::parse(first.out), found);
  const theory::RankAcceptance acceptance(found["acceptance"].get<std::vector<std::vector<double>>>());
  const theory::RankedTree shape{.parents = found["parents"], .ranks = found["ranks"]};
  EXPECT_GT(shape.nodes(), 1);
  EXPECT_LE(shape.nodes(), 12);
  const double tau = theory::tree_expected_tokens(shape, acceptance);
  EXPECT_NEAR(found["predicted"]["tau"].get<double>(), tau, 1e-12);
  EXPECT_NEAR(found["predicted"]["speedup"].get<double>(),
              tau / (1 + .2 * (shape.nodes() - 1) / 63 + .02 * shape.depth()), 1e-12);
  EXPECT_GE(found["predicted"]["speedup"], found["predicted"]["chain"]["speedup"]);
  EXPECT_EQ(found["acceptance"].size(), 2u);
  EXPECT_EQ(found["acceptance"][0].size(), 4u);
  EXPECT_GT(found["reached"][1][3], 0);
  EXPECT_EQ(found["draft"]["layers"], json({0}));
  // Every tree case of that run has its prediction of tau, and with the calibration also of the speedup.
  for (const json& one : tree("tree.json.run/summary.json")["cases"]) {
    if (one["strategy"] != "tree_speculation") continue;
    for (const char* name : {"tree_by_rank", "tree_by_rank_and_depth", "tree_speedup"})
      EXPECT_GT(one["predictions"][name]["value"], 0) << one["id"];
  }

  // The same choice from the run.
  words = choice;
  for (const char* word : {"--out", "again.json"}) words.push_back(word);
  const Result second = optimize("tree.json.run", words);
  ASSERT_EQ(second.code, 0) << second.err;
  EXPECT_THAT(second.out,
              AllOf(HasSubstr("rank 4"), HasSubstr("The best tree has"), HasSubstr("(predicted)")));
  EXPECT_EQ(tree("again.json"), found);
  // That run measured t(n) up to 12 rows. Times of more rows are guesses, so a larger tree is not considered.
  const Result large = optimize("tree.json.run", {"--draft", "skip", "--c", ".0001", "--nodes", "100",
                                                  "--out", "large.json", "--json"});
  const json chosen = json::parse(large.out);
  EXPECT_LE(chosen["nodes"], 12);
  EXPECT_FALSE(chosen["t"].contains("16")) << large.out;
  // A draft that costs too much.
  const Result none = optimize("tree.json.run", {"--draft", "skip", "--c", "50", "--out", "none.json"});
  EXPECT_EQ(none.code, 1) << none.err;
  EXPECT_THAT(none.out, HasSubstr("No tree is faster"));
  EXPECT_FALSE(fs::exists(dir() / "none.json"));

  json drafted = config();
  drafted["cases"] = {{{"strategy", "tree_speculation"}, {"draft", "skip"}, {"tree", "tree.json"}}};
  write(drafted);
  measure("drafted");
  for (const json& one : tree("drafted/summary.json")["cases"])
    EXPECT_EQ(one["metrics"]["matches_reference"].get<double>(), 1) << one["id"];
}

TEST_F(Optimize, SaysWhatIsWrong) {
  expect_error(optimize("a.json", {}), {"no --out"});
  expect_error(optimize("a.json", {"--out", "t.json"}), {"2 drafts", "--draft NAME"});
  expect_error(optimize("a.json", {"--out", "t.json", "--draft", "big"}), {"no draft \"big\""});
  expect_error(optimize("a.json", {"--out", "t.json", "--width", "1"}), {"--width", "got 1", "2 to 64"});
  expect_error(optimize("b.json", {"--out", "t.json"}), {"b.json"});
  expect_error(run({"optimize", "forest", "a.json", "--out", "t.json"}), {"\"forest\"", "expected tree"});
  measure();
  expect_error(optimize("run", {"--out", "t.json"}), {"a run without trees of a draft model"});
  // A bad tree file is found before anything is measured.
  write_json_file(dir() / "bad.json", {{"format", "speclab tree 1"}, {"parents", {0, 5}}, {"ranks", {1, 1}}});
  json bad = config();
  bad["cases"] = {{{"strategy", "tree_speculation"}, {"draft", "skip"}, {"tree", "bad.json"}}};
  write(bad);
  expect_error(run({"run", "a.json", "--out", "never", "-q"}),
               {"bad.json: /parents/1", "node 2 is a child of node 5", "from 0 to 1"});
}

}  // namespace
}  // namespace speclab
