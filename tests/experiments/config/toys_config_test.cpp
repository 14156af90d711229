// Toys in a config: the forms of target and draft, their errors, and configs/toys.json.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/decoding/registry.h"
#include "core/measure/run_result.h"
#include "experiments/config/config_file.h"
#include "experiments/config/settings.h"
#include "experiments/config/toy_spec.h"

namespace speclab::toys_config_test {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

json toy_config() {
  return json::parse(
      R"({"name": "toy", "target": {"markov": {"vocab": 6, "order": 2, "seed": 4}},
    "drafts": {"near": {"markov": {"noise": 0.25}}, "bigram": {"markov": {"memory": 1, "sharpness": 1}}},
    "prompts": {"inline": ["1 2"]}, "options": {"budget": "fixed"},
    "cases": [{"strategy": "speculative_sampling", "draft": ["near", "bigram", {"markov": {"noise": 0.5}}], "gamma": 2}]})");
}

TEST(ToyConfig, ADraftTakesWhatItLacksFromTheTarget) {
  const Experiment experiment = parse_experiment(toy_config(), "a.json");
  ASSERT_TRUE(experiment.markov);
  EXPECT_EQ(*experiment.markov, (toy::MarkovSpec{.vocab = 6, .order = 2, .seed = 4}));
  EXPECT_EQ(experiment.target, "markov vocab=6 order=2 seed=4 sharpness=2");
  EXPECT_EQ(*experiment.drafts.at("near").markov,
            (toy::MarkovSpec{.vocab = 6, .order = 2, .seed = 4, .noise = .25}));
  EXPECT_EQ(*experiment.drafts.at("bigram").markov,
            (toy::MarkovSpec{.vocab = 6, .order = 2, .seed = 4, .sharpness = 1, .memory = 1}));
  EXPECT_TRUE(experiment.drafts.contains("markov-noise=0.5"));
  const json resolved = experiment.resolved();
  EXPECT_EQ(parse_markov(resolved["target"]["markov"], "x"), *experiment.markov);
  EXPECT_EQ(resolved["drafts"]["near"]["markov"]["seed"], 4);
  EXPECT_EQ(resolved["cases"][3]["draft"], "markov-noise=0.5");
}

TEST(ToyConfig, BadToysAreRefusedWithTheirPlace) {
  const std::pair<const char*, std::vector<const char*>> bad[] = {
      {"target.markov.vocab=1", {"/target/markov/vocab", "2 to 4096"}},
      {"target.markov.order=4", {"/target/markov/order", "1 to 3"}},
      {"target.markov.vocab=100", {"/target/markov", "100 symbols and order 2", "at most 4096 contexts"}},
      {"target.markov.sharpnes=3", {"/target/markov/sharpnes", "sharpness"}},
      {"target.markov.memory=3", {"/target/markov/memory", "at most 2"}},
      {"target.model=x", {"/target", "markov"}},
      {"drafts.near.markov.noise=2", {"/drafts/near/markov/noise", "0 to 1"}},
      {"drafts.near.markov.vocab=7", {"/drafts/near/markov/vocab", "6, as in the target"}},
      {"drafts.near.markov.order=1", {"/drafts/near/markov/order", "memory"}},
      {"drafts.near.model=x", {"/drafts/near"}},
      {"target=\"a-model\"", {"/drafts/bigram/markov", "a draft of another kind"}},
  };
  for (const auto& [setting, words] : bad) {
    json changed = toy_config();
    Settings(std::vector<std::string>{setting}).apply(changed, config_keys());
    try {
      parse_experiment(changed, "a.json");
      ADD_FAILURE() << setting << " was accepted";
    } catch (const Error& error) {
      for (const char* word : words) EXPECT_THAT(error.what(), HasSubstr(word)) << setting;
    }
  }
}

// Toys have no trained heads.
TEST(ToyConfig, TheConfigOfToysHasEveryStrategyWithoutAHead) {
  const std::filesystem::path root = SPECLAB_SOURCE_DIR;
  json config = read_json_file(root / "configs/toys.json");
  config["prompts"]["file"] = (root / "configs/prompts/toys.jsonl").string();
  const Experiment experiment = parse_experiment(config, "toys.json");
  std::set<std::string> used, all;
  for (const CaseSpec& spec : experiment.cases) used.emplace(spec.strategy.info().name);
  for (const StrategyEntry& entry : strategies()) {
    if (!entry.info.needs_program && entry.info.needs_file != "head") all.emplace(entry.info.name);
  }
  EXPECT_EQ(used, all);
}

}  // namespace
}  // namespace speclab::toys_config_test
