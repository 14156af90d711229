// `speclab optimize tree`: measuring, choosing, and drafting the tree that was written.
#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include <map>
#include <utility>

#include "core/base/sha256.h"
#include "core/decoding/drafting/tree_shape.h"
#include "core/theory/tree_search.h"
#include "tests/experiments/cli/speclab_fixture.h"

namespace speclab::tree_choice_test {
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
  const json measured = tree("tree.json.run/summary.json");
  for (const json& one : measured["cases"]) {
    if (one["strategy"] != "tree_speculation") continue;
    for (const char* name : {"tree_by_rank", "tree_by_rank_and_depth", "tree_speedup", "tree_measured_costs"})
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
  // A machine whose rows are free: a large tree.
  const std::vector<std::string> free = {"--draft", "skip",  "--t",       "1:1",    "--c",
                                         ".0001",   "--out", "free.json", "--nodes"};
  words = free;
  for (const char* word : {"1024", "--depth", "14"}) words.push_back(word);
  const Result huge = optimize("tree.json.run", words);
  ASSERT_EQ(huge.code, 0) << huge.err;
  EXPECT_GT(tree("free.json")["nodes"], 128);
  EXPECT_EQ(TreeShape::read(dir() / "free.json").nodes(), tree("free.json")["nodes"].get<int>());
  words = free;
  words.emplace_back("1025");
  EXPECT_THAT(optimize("tree.json.run", words).err, HasSubstr("--nodes: got 1025, expected 2 to 1024"));
  // A draft that costs too much.
  const Result none = optimize("tree.json.run", {"--draft", "skip", "--c", "50", "--out", "none.json"});
  EXPECT_EQ(none.code, 1) << none.err;
  EXPECT_THAT(none.out, HasSubstr("No tree is faster"));
  EXPECT_FALSE(fs::exists(dir() / "none.json"));

  json drafted = config();
  drafted["cases"] = {{{"strategy", "tree_speculation"}, {"draft", "skip"}, {"tree", "tree.json"}}};
  write(drafted);
  measure("drafted");
  const json of_drafted = tree("drafted/summary.json");
  for (const json& one : of_drafted["cases"])
    EXPECT_EQ(one["metrics"]["matches_reference"], true) << one["id"];
}

TEST_F(Optimize, WritesThePredictionsOfTheWholeGrid) {
  const Result result =
      optimize("a.json", {"--draft", "skip", "--out", "tree.json", "--grid", "grid.json", "--width", "3",
                          "--measured-depth", "2", "--nodes", "12", "--depth", "4"});
  ASSERT_THAT(result.code, ::testing::AnyOf(0, 1)) << result.err;  // 1: no tree pays with this tiny model
  const json grid = tree("grid.json");
  EXPECT_EQ(grid["format"], "speclab tree grid 1");
  EXPECT_EQ(grid["chosen_by"], "step_speedup");
  const theory::RankAcceptance acceptance(grid["acceptance"].get<std::vector<std::vector<double>>>());
  const json& costs = grid["costs"];
  EXPECT_GT(costs["draft"]["8"], 0) << "forwards of the draft over the rows of a level";
  std::map<std::pair<int, int>, int> seen;
  double most = 1;
  for (const json& cell : grid["cells"]) {
    theory::RankedTree shape{.parents = cell["parents"], .ranks = {}};
    std::map<int, int> children;
    for (const int parent : shape.parents) shape.ranks.push_back(++children[parent]);
    ++seen[{shape.nodes(), shape.depth()}];
    EXPECT_EQ(cell["nodes"], shape.nodes());
    EXPECT_EQ(cell["depth"], shape.depth());
    const double tau = theory::tree_expected_tokens(shape, acceptance);
    EXPECT_NEAR(cell["tau"].get<double>(), tau, 1e-12);
    if (shape.nodes() <= 8) {
      EXPECT_NEAR(cell["speedup"].get<double>(),
                  tau / (grid["t"][std::to_string(shape.nodes())].get<double>() +
                         grid["c"].get<double>() * shape.depth()),
                  1e-12);
    }
    EXPECT_GT(cell["step_speedup"], 0);
    most = std::max(most, cell["step_speedup"].get<double>());
  }
  for (const auto& [size, count] : seen) EXPECT_EQ(count, 1) << size.first << " " << size.second;
  EXPECT_GT(seen.size(), 8u);
  ASSERT_EQ(grid["chains"].size(), 4u);
  for (int gamma = 1; gamma <= 4; ++gamma)
    EXPECT_EQ(grid["chains"][static_cast<std::size_t>(gamma) - 1]["gamma"], gamma);
  // The prompts of the measurement.
  ASSERT_EQ(grid["prompts"].size(), 3u);
  EXPECT_EQ(grid["prompts"][1]["id"], "two");
  EXPECT_EQ(grid["prompts"][0]["sha256"], sha256_hex("1 2 3"));
  EXPECT_EQ(grid["prompts"][1]["sha256"], sha256_hex("5 6\x1e"
                                                     "7 8 9"));
  // The tree file has the best cell.
  if (result.code == 0) {
    const json best = tree("tree.json");
    EXPECT_EQ(best["predicted"]["chosen_by"], "step_speedup");
    EXPECT_EQ(best["predicted"]["step_speedup"].get<double>(), most);
    EXPECT_EQ(best["ranks"].size(), best["parents"].size());
    EXPECT_FALSE(best.contains("cells"));
  } else {
    EXPECT_EQ(most, 1);
  }

  // With times of another machine, only the forwards are known.
  ASSERT_THAT(optimize("tree.json.run", {"--draft", "skip", "--out", "t.json", "--grid", "other.json", "--t",
                                         "1:1,64:1.2", "--c", ".02"})
                  .code,
              ::testing::AnyOf(0, 1));
  const json other = tree("other.json");
  EXPECT_EQ(other["chosen_by"], "speedup");
  EXPECT_TRUE(other["costs"].is_null());
  EXPECT_TRUE(other["cells"][0]["step_speedup"].is_null());
}

// The times of a device file are those that --t and --c would give by hand.
TEST_F(Optimize, TakesTheTimesOfADevice) {
  const json table = {{"name", "a table"},
                      {"kind", "table"},
                      {"source", "made up"},
                      {"error", "made up"},
                      {"context", 8},
                      {"target_us", {{"1", 1000}, {"9", 1016}}},
                      {"drafts_us", {{"skip", {{"1", 20}}}}}};
  write_json_file(dir() / "table.json", table);
  const std::vector<std::string> measured = {"--draft", "skip", "--width", "3", "--measured-depth", "2"};
  std::vector<std::string> words = measured;
  for (const char* word : {"--nodes", "12", "--for-device", "table.json", "--out", "tree.json", "--json"})
    words.emplace_back(word);
  const Result first = optimize("a.json", words);
  ASSERT_EQ(first.code, 0) << first.err;
  const json found = json::parse(first.out);
  EXPECT_EQ(found["device"], "a table (simulated)");
  EXPECT_NEAR(found["c"].get<double>(), .02, 1e-12);
  EXPECT_NEAR(found["t"]["5"].get<double>(), 1.008, 1e-12);
  EXPECT_LE(found["nodes"], 9) << "the table has no times of more rows";
  EXPECT_FALSE(found["t"].contains("16"));
  EXPECT_EQ(found["predicted"]["chosen_by"], "speedup");
  EXPECT_THAT(first.err, HasSubstr("table.json: "));  // no times between 1 and 9 rows
  const Result by_hand = optimize("tree.json.run", {"--draft", "skip", "--nodes", "9", "--t", "1:1000,9:1016",
                                                    "--c", ".02", "--out", "hand.json", "--json"});
  ASSERT_EQ(by_hand.code, 0) << by_hand.err;
  EXPECT_EQ(json::parse(by_hand.out)["parents"], found["parents"]);

  const std::string h100 = (fs::path(SPECLAB_SOURCE_DIR) / "configs/devices/h100.json").string();
  const Result listed =
      optimize("tree.json.run", {"--draft", "skip", "--for-device", h100, "--out", "h100.json"});
  ASSERT_THAT(listed.code, ::testing::AnyOf(0, 1)) << listed.err;
  EXPECT_THAT(listed.out, ::testing::StartsWith("H100 SXM 80 GB (simulated): acceptance as measured"));

  const auto with_device = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"--draft", "skip", "--out", "t.json", "--for-device"});
    return optimize("tree.json.run", more);
  };
  expect_error(with_device({"table.json", "--c", ".1"}), {"optimize tree with --for-device", "--c"});
  expect_error(with_device({"no_such_device"}), {"no_such_device"});
  json one_row = table;
  one_row["target_us"] = {{"1", 100}};
  write_json_file(dir() / "one_row.json", one_row);
  expect_error(with_device({"one_row.json"}), {"--for-device", "one_row.json", "one row only"});
  json other_draft = table;
  other_draft["drafts_us"] = {{"other", {{"1", 2}}}};
  write_json_file(dir() / "other.json", other_draft);
  expect_error(with_device({"other.json"}), {"no times of the draft skip"});
}

// Each strategy whose drafts are trees gets its predictions from acceptance by rank and depth.
TEST_F(Optimize, EveryStrategyThatDraftsTreesHasItsPredictions) {
  json drafted = config();
  drafted["options"]["temperature"] = 1;
  drafted["options"]["max_tokens"] = 32;
  drafted["cases"] = json::parse(R"([
    {"strategy": "tree_speculation", "draft": "small", "widths": [3, 2]},
    {"strategy": "dynamic_tree", "draft": "small"},
    {"strategy": "staged", "draft": "small", "widths": [3, 2]},
    {"strategy": "merged_trees", "drafts": ["small", "skip"], "sequences": [2, 2]}])");
  write(drafted);
  const Result result = run({"run", "a.json", "--out", "all", "-q"});
  ASSERT_EQ(result.code, 0) << result.err;
  int trees = 0;
  const json summary = tree("all/summary.json");
  for (const json& one : summary["cases"]) {
    if (one["strategy"] == "autoregressive") continue;
    ++trees;
    for (const char* name :
         {"tree_by_rank", "tree_by_rank_and_depth", "tree_speedup", "tree_measured_costs"}) {
      ASSERT_TRUE(one["predictions"].contains(name)) << one["id"] << " " << name;
      EXPECT_GT(one["predictions"][name]["value"], 0) << one["id"];
      EXPECT_GT(one["predictions"][name]["measured"], 0) << one["id"];
    }
    ASSERT_TRUE(one.contains("best_chain")) << one["id"];
    EXPECT_TRUE(one["best_chain"].is_null()) << "this run has no chains";
  }
  EXPECT_EQ(trees, 4);
}

TEST_F(Optimize, SaysWhatIsWrong) {
  expect_error(optimize("a.json", {}), {"no --out"});
  expect_error(optimize("a.json", {"--out", "t.json"}), {"2 drafts", "--draft NAME"});
  expect_error(optimize("a.json", {"--out", "t.json", "--draft", "big"}), {"no draft \"big\""});
  expect_error(optimize("a.json", {"--out", "t.json", "--width", "1"}), {"--width", "got 1", "2 to 64"});
  expect_error(optimize("b.json", {"--out", "t.json"}), {"b.json"});
  expect_error(run({"optimize", "forest", "a.json", "--out", "t.json"}),
               {"\"forest\"", "tree, layers or config", "For example"});
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
}  // namespace speclab::tree_choice_test
