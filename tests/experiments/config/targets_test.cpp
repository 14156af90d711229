// Inflated targets and configs with several targets, as config and with the real binary.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/measure/run_result.h"
#include "experiments/config/config_file.h"
#include "experiments/config/settings.h"
#include "tests/experiments/cli/cli.h"
#include "tests/model/files/model_files.h"
#include "tests/model/net/target_model.h"

namespace speclab::targets_test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::HasSubstr;

json config() {
  return json::parse(
      R"({"name": "ladder", "targets": {"small": "target", "wide": {"model": "target", "inflate": {"hidden": 128, "ffn": 100, "vocab": 70}}},
    "drafts": {"one": {"model": "draft"}, "skip": {"layers": [0]}, "fat": {"model": "whole", "inflate": {"ffn": 96}}},
    "prompts": {"inline": ["1 2 3", "5 6"]}, "repeats": 1, "options": {"max_tokens": 20, "budget": "fixed"}, "calibration": {"rows": 4, "rounds": 2},
    "cases": [{"strategy": "autoregressive"}, {"strategy": "speculative_sampling", "draft": ["one", "skip", "fat"], "gamma": 2}]})");
}

TEST(Targets, AreAnExperimentEach) {
  const std::vector<Experiment> all = parse_experiments(config(), "a.json");
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].target_name, "small");
  EXPECT_FALSE(all[0].inflate.any());
  EXPECT_EQ(all[0].resolved()["target"], "target");
  EXPECT_EQ(all[1].target_name, "wide");
  EXPECT_EQ(all[1].target, "target");
  EXPECT_EQ(all[1].inflate.hidden, 128);
  EXPECT_EQ(all[1].drafts.at("fat").inflate.ffn, 96);
  EXPECT_EQ(all[1].resolved()["target"],
            (json{{"model", "target"}, {"inflate", {{"hidden", 128}, {"ffn", 100}, {"vocab", 70}}}}));
  EXPECT_EQ(all[1].resolved()["drafts"]["fat"], (json{{"model", "whole"}, {"inflate", {{"ffn", 96}}}}));
  EXPECT_EQ(all[0].cases.size(), all[1].cases.size());
}

TEST(Targets, BadOnesAreRefusedWithTheirPlace) {
  const std::pair<const char*, std::vector<const char*>> bad[] = {
      {"target=target", {"/targets", "not both"}},
      {"targets={}", {"/targets", "an object of targets by name"}},
      {"targets=[1]", {"/targets", "an object of targets by name"}},
      {"targets={\"a/b\":\"target\"}", {"/targets", "without a slash"}},
      {"targets.wide.inflate={}", {"/targets/wide/inflate", "at least one of hidden"}},
      {"targets.wide.inflate.hiden=3", {"/targets/wide/inflate/hiden", "hidden"}},
      {"targets.wide.inflate.ffn=-4", {"/targets/wide/inflate/ffn", "-4"}},
      {"targets.wide.inflate.ffn=\"big\"", {"/targets/wide/inflate/ffn", "big"}},
      {"targets.wide.more=1", {"/targets/wide", "inflate"}},
      {"drafts.skip={\"layers\":[0],\"inflate\":{\"ffn\":9}}", {"/drafts/skip"}},
      {"cases.1.draft={\"model\":\"x\",\"inflate\":{\"ffn\":9}}",
       {"/cases/1/draft/inflate", "so that it has a name"}},
  };
  for (const auto& [setting, words] : bad) {
    json changed = config();
    Settings(std::vector<std::string>{setting}).apply(changed, config_keys());
    try {
      parse_experiments(changed, "a.json");
      ADD_FAILURE() << setting << " was accepted";
    } catch (const Error& error) {
      for (const char* word : words) EXPECT_THAT(error.what(), HasSubstr(word)) << setting;
    }
  }
}

class Twins : public ::testing::Test {
 protected:
  Twins() {
    fixtures::write_tiny_llama(dir() / "target", fixtures::tiny_shape(), 1);
    fixtures::write_tiny_llama(dir() / "whole", fixtures::tiny_shape(), 2);
    fixtures::write_huggingface(
        dir() / "draft", fixtures::random_llama(fixtures::tiny_draft_shape(fixtures::tiny_shape()), 3));
    std::ofstream(dir() / "a.json") << config().dump(1);
  }
  const fs::path& dir() const { return dir_.path(); }
  int run(std::vector<std::string> arguments) {
    fixtures::Cli cli(dir(), std::move(arguments));
    const int code = cli.wait();
    out_ = cli.out();
    err_ = cli.err();
    return code;
  }
  /// Emitted tokens and the fate of every drafted token, without times.
  static json decided(const json& line) {
    json steps = json::array();
    for (const json& step : line.at("steps")) {
      json ids = json::array();
      for (const json& token : step.at("tokens"))
        ids.push_back({token.at("id"), token.at("tested"), token.at("accepted")});
      steps.push_back({step.at("drafted"), step.at("accepted"), step.at("emitted"), ids});
    }
    return {line.at("tokens"), steps};
  }
  fixtures::TempDir dir_;
  std::string out_, err_;
};

TEST_F(Twins, ARunOfEachTargetWithTheSameAcceptances) {
  ASSERT_EQ(run({"run", "a.json", "--out", "r", "-q"}), 0) << err_;
  EXPECT_THAT(out_, HasSubstr("case on 119k inflated from tiny"));
  EXPECT_EQ(read_json_file(dir() / "r/targets.json")["targets"], (json{"small", "wide"}));
  const json models = read_json_file(dir() / "r/wide/environment.json")["models"];
  EXPECT_EQ(models["target"]["name"], "119k inflated from tiny");
  EXPECT_EQ(models["target"]["inflated"]["from"]["hidden"], 32);
  EXPECT_EQ(models["target"]["inflated"]["to"]["hidden"], 128);
  EXPECT_EQ(models["target"]["inflated"]["from"]["name"], "tiny");
  EXPECT_EQ(models["one"]["embedding_bytes"], 2 * 64 * 32)
      << "the draft has the original embedding, not the inflated one";
  EXPECT_EQ(read_json_file(dir() / "r/small/environment.json")["models"]["one"]["embedding_bytes"], 0);
  EXPECT_THAT(models["fat"]["name"].get<std::string>(), HasSubstr("inflated from tiny"));
  EXPECT_FALSE(models["one"].contains("inflated"));
  const json summary = read_json_file(dir() / "r/wide/summary.json");
  for (const json& entry : summary["cases"]) EXPECT_EQ(entry["target"], "119k inflated from tiny");
  int lines = 0;
  for (const auto& file : fs::directory_iterator(dir() / "r/small/cases")) {
    const auto small = read_json_lines(file.path()),
               wide = read_json_lines(dir() / "r/wide/cases" / file.path().filename());
    ASSERT_EQ(small.size(), wide.size()) << file.path();
    for (const json& line : small) {
      const auto same = std::find_if(wide.begin(), wide.end(),
                                     [&](const json& other) { return other["prompt"] == line["prompt"]; });
      ASSERT_NE(same, wide.end());
      EXPECT_EQ(decided(line), decided(*same)) << file.path();
      EXPECT_LT(line["work"]["target"]["weight_bytes"].get<double>(),
                (*same)["work"]["target"]["weight_bytes"].get<double>());
      ++lines;
    }
  }
  EXPECT_EQ(lines, 8);
  EXPECT_EQ(run({"report", "r"}), 2);
  EXPECT_THAT(err_, HasSubstr("runs of several targets"));
  EXPECT_EQ(run({"report", "r/wide"}), 0);
  EXPECT_THAT(out_, HasSubstr("inflated from tiny"));
  EXPECT_EQ(run({"run", "a.json", "--out", "r", "-q"}), 2);
  EXPECT_THAT(err_, HasSubstr("targets.json"));
  fs::remove_all(dir() / "r/wide");  // as after an interruption between the two targets
  EXPECT_EQ(run({"run", "a.json", "--out", "r", "-q", "--resume"}), 0) << err_;
  EXPECT_TRUE(fs::exists(dir() / "r/wide/summary.json"));
  EXPECT_EQ(run({"run", "a.json", "--out", "r", "-q", "--resume", "--set", "targets.third=target"}), 2);
  EXPECT_EQ(run({"run", "a.json", "--dry-run"}), 0);
  EXPECT_THAT(out_, HasSubstr("wide: target {"));
}

TEST_F(Twins, OnTheCommandLine) {
  ASSERT_EQ(run({"model", "target", "--inflate", "hidden=64,layers=4", "--json"}), 0) << err_;
  const json model = json::parse(out_);
  EXPECT_EQ(model["hidden"], 64);
  EXPECT_THAT(model["name"].get<std::string>(), HasSubstr("inflated from tiny"));
  const double per_layer = 64 * (2 * 32 + 2 * 16) + 3 * 64 * 64;
  EXPECT_EQ(model["weight_bytes_per_forward"], 2 * (4 * per_layer + 64 * 64));
  ASSERT_EQ(run({"generate", "--model", "target", "--prompt", "1 2 3", "--set", "max_tokens=16", "--json"}),
            0)
      << err_;
  const json plain = json::parse(out_);
  ASSERT_EQ(run({"generate", "--model", "target", "--inflate", "hidden=128", "--prompt", "1 2 3", "--set",
                 "max_tokens=16", "--json"}),
            0)
      << err_;
  EXPECT_EQ(plain["tokens"], json::parse(out_)["tokens"]);
  const std::pair<const char*, const char*> bad[] = {{"hidden", "SIZE=NUMBER"},
                                                     {"hidden=x", "SIZE=NUMBER"},
                                                     {"hidden=8", "at least 32"},
                                                     {"width=8", "width"}};
  for (const auto& [text, word] : bad) {
    EXPECT_EQ(run({"model", "target", "--inflate", text}), 2) << text;
    EXPECT_THAT(err_, HasSubstr(word));
  }
}

TEST_F(Twins, TheShippedDraftIsAcceptedAsByTheOriginal) {
  SPECLAB_NEEDS_TARGET();
  const fs::path root = SPECLAB_SOURCE_DIR;
  std::vector<json> found;
  for (const char* inflate : {"", "hidden=640,heads=12,kv_heads=4,ffn=1792"}) {
    ASSERT_EQ(run({"generate",
                   "--model",
                   fixtures::target_file(),
                   "--inflate",
                   inflate,
                   "--draft",
                   root / "models/draft/smollm2-135m-instruct",
                   "--strategy",
                   "speculative_sampling",
                   "--set",
                   "gamma=3",
                   "--set",
                   "budget=fixed",
                   "--set",
                   "temperature=0",
                   "--set",
                   "max_tokens=48",
                   "--prompt",
                   "Write a short poem about rivers.",
                   "--json"}),
              0)
        << err_;
    found.push_back(decided(json::parse(out_)));
  }
  EXPECT_EQ(found[0], found[1]);
}

}  // namespace
}  // namespace speclab::targets_test
