// `speclab optimize config` with tiny models: what it runs, what it writes, and what it refuses.
#include <map>
#include <set>
#include <string>

#include "tests/experiments/cli/speclab_fixture.h"

namespace speclab::optimize_config_test {
namespace {

using namespace speclab::fixtures;

class OptimizeConfig : public Speclab {
 protected:
  OptimizeConfig() {
    json config = Speclab::config();
    config["prompts"]["inline"] = {"1 2 3", "5 6", "11 4", "7 8 9"};
    config["calibration"] = {{"rounds", 3}, {"texts", 2}};
    write(config);
  }
  Result optimize(std::vector<std::string> words) {
    words.insert(words.begin(), {"optimize", "config", "a.json"});
    words.insert(words.end(), {"-q", "--threads", "1"});
    return run(words);
  }
  static std::vector<std::string> small(const std::vector<std::string>& more = {}) {
    std::vector<std::string> words = {"--out", "best.json", "--longest", "3",         "--nodes",
                                      "6",     "--depth",   "3",         "--repeats", "1"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  std::set<std::string> prompts_of(const std::string& folder) {
    std::set<std::string> ids;
    const json config = read_json_file(dir() / folder / "config.json");
    for (const json& prompt : config["prompts"]) ids.insert(prompt["id"].get<std::string>());
    return ids;
  }
};

TEST_F(OptimizeConfig, SearchesMeasuresAndWritesTheBestSetting) {
  const Result result = optimize(small({"--lookahead-rows", "8", "--json"}));
  ASSERT_THAT(result.code, ::testing::AnyOf(0, 1)) << result.err;  // 1: nothing is faster with tiny models
  EXPECT_THAT(result.err, Not(HasSubstr("error:")));
  const json choice = json::parse(result.out);
  EXPECT_EQ(choice, read_json_file(dir() / "best.json.run" / "optimize.json"));
  EXPECT_GT(choice["searched"].get<int>(), 3 * 3)
      << "three lengths of three chains, trees, lookahead decoding";
  ASSERT_EQ(choice["settings"].size(), 3u);
  for (const json& row : choice["settings"]) {
    EXPECT_GT(row["speedup"].get<double>(), 0) << row["what"];
    EXPECT_TRUE(row["speedup_ci95"].is_array()) << row["what"];
    ASSERT_TRUE(row["measured"].is_object()) << row["what"];
    EXPECT_GT(row["measured"]["speedup"].get<double>(), 0);
    EXPECT_TRUE(row["measured"]["speedup_ci95"].is_array());
    EXPECT_NEAR(row["error"].get<double>(),
                row["speedup"].get<double>() / row["measured"]["speedup"].get<double>() - 1, 1e-9);
  }
  const std::set<std::string> searched = prompts_of("best.json.run/trace"),
                              measured = prompts_of("best.json.run/measured");
  EXPECT_EQ(searched.size(), 2u);
  EXPECT_EQ(measured.size(), 2u);
  for (const std::string& id : measured) EXPECT_FALSE(searched.contains(id));
  EXPECT_EQ(prompts_of("best.json.run/lookahead"), searched);
  EXPECT_EQ(result.code == 0, !choice["best"].is_null());
  EXPECT_EQ(fs::exists(dir() / "best.json"), !choice["best"].is_null());
  if (!choice["best"].is_null()) {
    const Result again = run({"run", "best.json", "--out", "again", "-q"});
    EXPECT_EQ(again.code, 0) << again.err;
  }

  // With --resume every part keeps its lines.
  std::map<std::string, std::string> before;
  for (const char* part : {"trace", "lookahead", "measured"})
    before.merge(contents_of(dir() / "best.json.run" / part / "cases"));
  const Result resumed = optimize(small({"--lookahead-rows", "8", "--json", "--resume"}));
  EXPECT_EQ(resumed.code, result.code) << resumed.err;
  std::map<std::string, std::string> after;
  for (const char* part : {"trace", "lookahead", "measured"})
    after.merge(contents_of(dir() / "best.json.run" / part / "cases"));
  EXPECT_EQ(before, after);
  EXPECT_EQ(json::parse(resumed.out)["settings"], choice["settings"]);
}

TEST_F(OptimizeConfig, PrintsATable) {
  const Result result = optimize(small({"--lookahead-rows", "0", "--run", "runs"}));
  ASSERT_THAT(result.code, ::testing::AnyOf(0, 1)) << result.err;
  EXPECT_THAT(result.out,
              AllOf(HasSubstr("settings were compared by prediction"), HasSubstr("predicted speedup"),
                    HasSubstr("measured speedup"), HasSubstr("replay")));
  EXPECT_FALSE(fs::exists(dir() / "runs" / "lookahead")) << "--lookahead-rows 0 leaves it out";
  EXPECT_TRUE(fs::exists(dir() / "runs" / "measured" / "summary.json"));
}

TEST_F(OptimizeConfig, SaysWhatIsWrong) {
  expect_error(optimize({}), {"optimize config", "no --out"});
  expect_error(optimize({"--out", "b.json", "--draft", "small"}), {"optimize config", "--draft"});
  expect_error(optimize({"--out", "b.json", "--gamma", "3"}), {"optimize config", "--gamma"});
  expect_error(optimize({"--out", "b.json", "--longest", "0"}), {"--longest", "1 to 31"});
  expect_error(optimize({"--out", "b.json", "--set", "prompts.limit=1"}), {"no category with two prompts"});
  expect_error(run({"optimize", "tree", "a.json", "--out", "t.json", "--repeats", "2"}), {"--repeats"});
  expect_error(run({"optimize", "everything", "--out", "t.json"}), {"tree, layers or config"});
  json config = Speclab::config();
  config["drafts"]["small"]["model"] = "nowhere";
  config["prompts"]["inline"] = {"1 2", "3 4"};
  write(config);
  expect_error(optimize({"--out", "b.json"}), {"nowhere"});
}

}  // namespace
}  // namespace speclab::optimize_config_test
