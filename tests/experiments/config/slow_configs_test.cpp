// The experiments of tests/slow cover everything. A new strategy, schedule or lossless rule without an entry
// there fails in this fast test.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <set>

#include "core/decoding/drafting/draft_chain.h"
#include "core/decoding/drafting/schedule.h"
#include "experiments/config/config_file.h"
#include "tests/slow/random_options.h"
#include "tests/decoding/loop/loop_fixture.h"

namespace speclab::slow_configs_test {
namespace {

using nlohmann::json;

Experiment load(const std::string& name) {
  const std::filesystem::path root = SPECLAB_SOURCE_DIR;
  return load_experiments(root / "tests/slow" / (name + ".json"),
                          {"prompts.file=" + (root / "configs/prompts/speclab.jsonl").string()})
      .front();
}

bool greedy(const CaseSpec& spec) { return spec.generation.sampling.temperature == 0; }
bool coupled(const CaseSpec& spec) { return spec.generation.coins == CoinUse::gumbel; }

bool any(const Experiment& experiment, const std::function<bool(const CaseSpec&)>& holds) {
  return std::any_of(experiment.cases.begin(), experiment.cases.end(), holds);
}

TEST(SlowConfigs, SixtyPromptsOf64TokensUnderEveryStrategy) {
  const Experiment experiment = load("lossless");
  EXPECT_EQ(experiment.prompts.size(), 60u);
  std::set<std::string> categories;
  for (const PromptSpec& prompt : experiment.prompts) categories.insert(prompt.category);
  EXPECT_EQ(categories.size(), 7u);
  for (const CaseSpec& spec : experiment.cases) {
    EXPECT_EQ(spec.generation.max_tokens, 64) << spec.id;
    EXPECT_EQ(spec.generation.ignore_eos, greedy(spec)) << spec.id;
    EXPECT_NE(spec.loss_class(), LossClass::l3) << spec.id;
    EXPECT_TRUE(greedy(spec) || coupled(spec)) << spec.id;
  }
  for (const StrategyEntry& entry : strategies()) {
    if (entry.info.needs_program) continue;  // tests/python/package/test_proposers.py runs it
    EXPECT_TRUE(any(experiment,
                    [&](const CaseSpec& spec) {
                      return spec.strategy.info().name == entry.info.name && greedy(spec) &&
                             spec.loss_class() == LossClass::l2;
                    }))
        << "strategy " << entry.info.name << " has no greedy case in tests/slow/lossless.json: add one";
  }
  EXPECT_TRUE(
      any(experiment, [](const CaseSpec& spec) { return spec.verify == VerifyWith::batch_of_prefixes; }));
  EXPECT_TRUE(any(experiment, [](const CaseSpec& spec) { return coupled(spec) && !spec.reference.empty(); }));
  for (const auto& [name, draft] : experiment.drafts) {
    EXPECT_TRUE(any(experiment, [&](const CaseSpec& spec) { return spec.draft == name; })) << name;
  }
}

TEST(SlowConfigs, EveryScheduleAndEveryRuleThatIsLosslessWhenGreedy) {
  const Experiment experiment = load("lossless_variants");
  int rules = 0;
  for (const AcceptanceRule& rule : acceptance_rules()) {
    if (rule.loss({}, {.temperature = 0}) != LossClass::l2) continue;
    ++rules;
    EXPECT_TRUE(any(experiment,
                    [&](const CaseSpec& spec) {
                      return spec.generation.acceptance_rule().name == rule.name && greedy(spec) &&
                             !spec.reference.empty();
                    }))
        << "rule " << rule.name << " has no greedy case in tests/slow/lossless_variants.json: add one";
  }
  EXPECT_GE(rules, 8);
  for (const ScheduleInfo& schedule : schedules()) {
    EXPECT_TRUE(any(experiment,
                    [&](const CaseSpec& spec) {
                      return spec.options().value("schedule", "") == schedule.name && !spec.draft.empty();
                    }))
        << "schedule " << schedule.name << " has no case in tests/slow/lossless_variants.json: add one";
  }
  for (const CaseSpec& spec : experiment.cases) EXPECT_NE(spec.loss_class(), LossClass::l3) << spec.id;
}

// Every option of the listed strategies is drawn, and every drawn set of options is valid.
TEST(SlowConfigs, RandomOptionsLeaveNoOptionOut) {
  const std::filesystem::path root = SPECLAB_SOURCE_DIR;
  const json spaces_of = fixtures::random_option_spaces(root);
  for (const char* name :
       {"jacobi", "lookahead", "prompt_lookup", "suffix_decoding", "retrieval", "composition", "ngram_model",
        "self_speculation", "hierarchical_speculation", "token_recycling"})
    EXPECT_TRUE(spaces_of.contains(name)) << name;
  for (const auto& [name, spaces] : spaces_of.items()) {
    StrategyChoice choice(find_strategy(name));
    int draws = 0;
    // Options of a draft model's chain are covered by tests/slow/lossless_variants.json.
    std::set<std::string> drawn;
    DraftChainOptions chain;
    for (const OptionInfo& info : describe_options(option_fields(chain))) drawn.insert(info.name);
    for (const json& space : spaces) {
      draws += space["draws"].get<int>();
      for (const auto& [option, values] : space["options"].items()) drawn.insert(option);
    }
    for (const OptionInfo& info : describe_options(choice.fields()))
      EXPECT_TRUE(drawn.contains(info.name)) << name << ": " << info.name << " is never drawn";
    EXPECT_EQ(draws, 20) << name;
  }
  json config = fixtures::random_options_config(root);
  config["prompts"]["file"] = (root / "configs/prompts/speclab.jsonl").string();
  const Experiment experiment = parse_experiment(config, "random");
  EXPECT_EQ(experiment.prompts.size(), 6u);
  EXPECT_EQ(experiment.cases.size(), 1 + 20 * spaces_of.size());
  fixtures::Shape shape = fixtures::tiny_shape();
  shape.layers = 6;
  const auto target = fixtures::load_tiny(fixtures::random_llama(shape, 1));
  for (const CaseSpec& spec : experiment.cases) {
    EXPECT_EQ(spec.generation.max_tokens, 40) << spec.id;
    EXPECT_TRUE(greedy(spec) && spec.loss_class() == LossClass::l2) << spec.id;
    const StrategyInfo& info = spec.strategy.info();
    const bool names_file = !info.may_name_file.empty() &&
                            spec.id.find(fmt::format("/{}=", info.may_name_file)) != std::string::npos;
    if (info.needs_draft || !spec.draft.empty() || !info.needs_file.empty() || names_file) continue;
    LoopOptions options;
    options.capacity = 100;
    options.costs = std::make_shared<const StepCosts>(StepCosts{.target_ns = {1}, .layer_ns = .1});
    EXPECT_NO_THROW(DecodeLoop(target, nullptr, spec.strategy, options)) << spec.id;
  }
}

// `speclab run` accepts every config of the project.
TEST(ShippedConfigs, CanBeRead) {
  const std::filesystem::path root = SPECLAB_SOURCE_DIR;
  const auto read = [&](const char* folder) {
    int count = 0;
    for (const auto& entry : std::filesystem::directory_iterator(root / folder)) {
      if (entry.path().extension() != ".json") continue;
      json config = read_json_file(entry.path());
      json& prompts = config["prompts"];
      if (prompts.contains("file")) prompts["file"] = (root / prompts["file"].get<std::string>()).string();
      EXPECT_NO_THROW(parse_experiments(config, entry.path().string())) << entry.path();
      ++count;
    }
    return count;
  };
  EXPECT_GE(read("configs"), 17);
  EXPECT_GE(read("configs/paper"), 14);
}

TEST(SlowConfigs, TheTargetAsItsOwnDraft) {
  const Experiment experiment = load("draft_is_target");
  std::set<double> temperatures;
  for (const CaseSpec& spec : experiment.cases) {
    if (spec.reference.empty()) continue;
    EXPECT_EQ(experiment.drafts.at(spec.draft).keep, 30);
    EXPECT_EQ(spec.generation.acceptance_rule().name, "rejection");
    temperatures.insert(spec.generation.sampling.temperature);
  }
  EXPECT_EQ(temperatures, (std::set<double>{0, 1}));
}

}  // namespace
}  // namespace speclab::slow_configs_test
