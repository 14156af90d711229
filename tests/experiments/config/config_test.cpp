// Reading of configs: sweeps, ids, references, bad input. No model is opened.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/base/json_text.h"
#include "core/decoding/rules/accept.h"
#include "experiments/config/config_file.h"
#include "experiments/run/run_plan.h"
#include "experiments/config/settings.h"
#include "experiments/config/sweep.h"

namespace speclab::config_test {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

bool no_lists(std::string_view) { return false; }

TEST(Sweep, ArraysAreAxesLastOneFastest) {
  const auto points = expand_sweep({{"a", {1, 2}}, {"b", {"x", "y"}}, {"c", 3}}, no_lists, "f: ");
  ASSERT_EQ(points.size(), 4u);
  EXPECT_EQ(points[1].object, (json{{"a", 1}, {"b", "y"}, {"c", 3}}));
  EXPECT_EQ(points[2].object, (json{{"a", 2}, {"b", "x"}, {"c", 3}}));
  EXPECT_THAT(points[0].axes, ElementsAre("a", "b"));
}

TEST(Sweep, ForAListOptionOnlyAListOfListsIsAnAxis) {
  const auto is_list = [](std::string_view key) { return key == "stop"; };
  EXPECT_EQ(expand_sweep({{"stop", {"a", "b"}}}, is_list, "f").size(), 1u);
  EXPECT_EQ(expand_sweep({{"stop", json::array()}}, is_list, "f").size(), 1u);
  const auto points = expand_sweep(parse_json(R"({"stop": [["a"], ["b", "c"]]})", "x"), is_list, "f");
  ASSERT_EQ(points.size(), 2u);
  EXPECT_EQ(points[1].object["stop"], (json{"b", "c"}));
}

TEST(Sweep, TiesFollowTheirAxis) {
  const auto points = expand_sweep({{"W", {5, 10}}, {"G", "=W"}}, no_lists, "f: ");
  ASSERT_EQ(points.size(), 2u);
  EXPECT_EQ(points[1].object, (json{{"W", 10}, {"G", 10}}));
  EXPECT_THROW(expand_sweep({{"G", "=V"}, {"W", 1}}, no_lists, "f"), Error);
  EXPECT_THROW(expand_sweep({{"G", "=W"}, {"W", "=G"}}, no_lists, "f"), Error);
  const auto message = [&](const json& object) -> std::string {
    try {
      expand_sweep(object, no_lists, "f: ");
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(message({{"G", "=G"}}), HasSubstr("a tie to itself"));
  EXPECT_THAT(message({{"G", "=strategy"}}), HasSubstr("a tie to the strategy of the case"));
  EXPECT_THAT(message({{"G", "=W"}, {"W", "=G"}}), HasSubstr("\"W\" is tied itself"));
}

TEST(Sweep, RefusesTooLargeProducts) {
  const std::vector<int> hundred(100, 1), more(101, 1);
  EXPECT_EQ(expand_sweep({{"a", hundred}, {"b", hundred}}, no_lists, "f").size(), kMostCases);
  try {
    expand_sweep({{"a", hundred}, {"b", more}, {"c", more}, {"d", more}}, no_lists, "f");
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(
        error.what(),
        HasSubstr(
            "f/b: got 101 values, 10100 combinations with the axes before it, expected at most 10000 cases"));
  }
}

json base_config() {
  return parse_json(R"({"name": "t", "target": "target",
    "drafts": {"small": {"model": "d"}, "skip": {"layers": {"keep": 2}}},
    "prompts": {"inline": ["1 2", "3"]},
    "cases": [{"strategy": "autoregressive"}, {"strategy": "speculative_sampling", "draft": "small", "gamma": 4}]})",
                    "base");
}

void set_one(json& config, const std::string& text) {
  Settings(std::vector<std::string>{text}).apply(config, config_keys());
}

TEST(Setting, SetsMakesAndChecksPaths) {
  json config = base_config();
  set_one(config, "cases.1.gamma=[1,2]");
  set_one(config, "options.temperature=0.5");
  set_one(config, "name=a b");
  set_one(config, "repeats=3");
  EXPECT_EQ(config["cases"][1]["gamma"], (json{1, 2}));
  EXPECT_EQ(config["options"]["temperature"], .5);
  EXPECT_EQ(config["name"], "a b");
  for (const char* bad : {"gamma", "=3", "cases.2.gamma=2", "cases.x=2", "repeats.x=1"}) {
    EXPECT_THROW(set_one(config, bad), Error) << bad;
  }
}

std::string message_of_config(const json& config) {
  try {
    parse_experiment(config, "a.json");
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

std::vector<std::string> ids_of(const json& config) {
  std::vector<std::string> ids;
  for (const CaseSpec& spec : parse_experiment(config, "a.json").cases) ids.push_back(spec.id);
  return ids;
}

TEST(Experiment, IdsNameTheOptionsOfTheCaseAndTheAxes) {
  json config = base_config();
  config["options"] = {{"temperature", {0, 1}}, {"max_tokens", 16}};
  config["cases"][1]["gamma"] = {1, 2};
  config["cases"][1]["draft"] = {"small", "skip"};
  const std::string spec = "speculative_sampling/draft=";
  EXPECT_THAT(ids_of(config),
              ElementsAre("autoregressive/temperature=0", "autoregressive/temperature=1",
                          spec + "small/gamma=1/temperature=0", spec + "small/gamma=2/temperature=0",
                          spec + "skip/gamma=1/temperature=0", spec + "skip/gamma=2/temperature=0",
                          spec + "small/gamma=1/temperature=1", spec + "small/gamma=2/temperature=1",
                          spec + "skip/gamma=1/temperature=1", spec + "skip/gamma=2/temperature=1"));
  const Experiment experiment = parse_experiment(config, "a.json");
  EXPECT_EQ(experiment.cases.back().reference, "autoregressive/temperature=1");
  EXPECT_EQ(experiment.cases.back().axes, (json{{"temperature", 1}, {"draft", "skip"}, {"gamma", 2}}));
  EXPECT_EQ(experiment.cases.back().generation.max_tokens, 16);
}

// Ids do not change when a config shares an option of strategies.
TEST(Experiment, AnOptionOfStrategiesCanBeShared) {
  json config = base_config();
  config["options"] = {{"max_tokens", 16}, {"budget", "fixed"}};
  config["cases"] = {{{"strategy", "autoregressive"}},
                     {{"strategy", "speculative_sampling"}, {"draft", "small"}},
                     {{"strategy", "prompt_lookup"}, {"budget", "auto"}},
                     {{"strategy", "simulated"}}};
  const Experiment experiment = parse_experiment(config, "a.json");
  EXPECT_THAT(ids_of(config), ElementsAre("autoregressive", "speculative_sampling/draft=small",
                                          "prompt_lookup/budget=auto", "simulated"));
  EXPECT_EQ(experiment.cases[1].options()["budget"], "fixed");
  EXPECT_EQ(experiment.cases[2].options()["budget"], "auto");
  EXPECT_FALSE(experiment.cases[0].options().contains("budget"));
  EXPECT_FALSE(experiment.cases[3].options().contains("budget")) << "it has no such option";
  config["options"]["budget"] = {"fixed", "auto"};
  EXPECT_THAT(ids_of(config), ElementsAre("autoregressive", "speculative_sampling/draft=small/budget=fixed",
                                          "speculative_sampling/draft=small/budget=auto",
                                          "prompt_lookup/budget=auto", "simulated"));
  config["options"] = {{"budgett", "fixed"}};
  EXPECT_THAT(message_of_config(config), HasSubstr("/options/budgett"));
  config["options"] = {{"budget", "no"}};
  EXPECT_THAT(message_of_config(config), HasSubstr("/options/budget"));
  config["options"] = {{"strategy", "jacobi"}};
  EXPECT_THAT(message_of_config(config), HasSubstr("/options/strategy"));
}

TEST(Experiment, AMissingReferenceIsAdded) {
  json config = base_config();
  config["cases"].erase(0);
  config["cases"][0]["temperature"] = {0, 1};
  const Experiment experiment = parse_experiment(config, "a.json");
  ASSERT_EQ(experiment.cases.size(), 4u);
  EXPECT_EQ(experiment.cases[0].id, "autoregressive/temperature=0");
  EXPECT_TRUE(experiment.cases[0].added);
  EXPECT_EQ(experiment.cases[1].generation.sampling.temperature, 1);
  EXPECT_EQ(experiment.cases[3].reference, "autoregressive/temperature=1");
}

/// Every case has its own reference here. Finding it must not take a search through all cases.
TEST(Experiment, ExpandingManyCasesTakesLinearTime) {
  json config = base_config();
  json temperatures = json::array();
  for (int i = 1; i <= 2500; ++i) temperatures.push_back(i * 1e-3);
  config["cases"] = {
      {{"strategy", "speculative_sampling"}, {"draft", "small"}, {"temperature", temperatures}}};
  const Experiment experiment = parse_experiment(config, "a.json");
  EXPECT_EQ(experiment.cases.size(), 5000u);
  EXPECT_EQ(experiment.cases.back().reference, "autoregressive/temperature=2.5");
  config["cases"][0]["gamma"] = {1, 2, 3, 4, 5};
  EXPECT_THROW(parse_experiment(config, "a.json"), Error);  // more than 10,000
}

TEST(Experiment, ARuleDoesNotChangeTheReference) {
  json config = base_config();
  config["options"] = {{"rule", "typical"}, {"epsilon", {.05, .09}}};
  const Experiment experiment = parse_experiment(config, "a.json");
  ASSERT_EQ(experiment.cases.size(), 3u);
  EXPECT_EQ(experiment.cases[0].id, "autoregressive");
  EXPECT_EQ(experiment.cases[0].generation.rule, "auto");
  EXPECT_EQ(experiment.cases[2].reference, "autoregressive");
  EXPECT_EQ(experiment.cases[2].loss_class(), LossClass::l3);
}

// Two values of a parameter that all cases share give one reference, because the reference does not read it.
TEST(Experiment, NoParameterOfARuleChangesTheReference) {
  for (const AcceptanceRule& rule : acceptance_rules()) {
    for (const RuleOption* option : rule.options) {
      if (option->changes_reference) continue;
      json config = base_config();
      config["options"] = {{"rule", rule.name}};
      config["options"][std::string(option->name)] =
          option->number != nullptr ? json::array({.2, .4}) : json::array({2, 3});
      SCOPED_TRACE(config["options"].dump());
      const Experiment experiment = parse_experiment(config, "a.json");
      ASSERT_EQ(experiment.cases.size(), 3u);
      EXPECT_EQ(experiment.cases[0].id, "autoregressive");
      EXPECT_EQ(experiment.cases[1].reference, "autoregressive");
      EXPECT_EQ(experiment.cases[2].reference, "autoregressive");
    }
  }
}

TEST(Experiment, TheNumberOfNoiseStreamsChangesTheReference) {
  json config = base_config();
  config["options"] = {{"temperature", 1}, {"coins", "gumbel"}, {"streams", {1, 2}}};
  for (const bool added : {false, true}) {
    if (added) config["cases"].erase(0);
    const Experiment experiment = parse_experiment(config, "a.json");
    ASSERT_EQ(experiment.cases.size(), 4u);
    EXPECT_EQ(experiment.cases[0].id, "autoregressive/streams=1");
    EXPECT_EQ(experiment.cases[1].id, "autoregressive/streams=2");
    EXPECT_EQ(experiment.cases[1].generation.rule_options.streams, 2);
    EXPECT_EQ(experiment.cases[2].reference, "autoregressive/streams=1");
    EXPECT_EQ(experiment.cases[3].reference, "autoregressive/streams=2");
  }
}

TEST(Experiment, ARuleThatIsAlwaysGreedyHasAGreedyReference) {
  json config = base_config();
  config["options"] = {{"temperature", {0, 1}}, {"rule", {"rejection", "exact"}}};
  Experiment experiment = parse_experiment(config, "a.json");
  ASSERT_EQ(experiment.cases.size(), 6u);
  for (const CaseSpec& spec : experiment.cases) {
    if (spec.reference.empty()) continue;
    const bool sampled = spec.generation.rule == "rejection" && spec.generation.sampling.temperature == 1;
    EXPECT_EQ(spec.reference, sampled ? "autoregressive/temperature=1" : "autoregressive/temperature=0");
  }
  config["options"] = {{"temperature", {1}}, {"rule", "exact"}};  // the greedy one is not in the config
  config["cases"].erase(0);
  experiment = parse_experiment(config, "a.json");
  ASSERT_EQ(experiment.cases.size(), 2u);
  EXPECT_EQ(experiment.cases[0].id, "autoregressive/temperature=0");
  EXPECT_EQ(experiment.cases[0].generation.sampling.temperature, 0);
  EXPECT_EQ(experiment.cases[1].reference, "autoregressive/temperature=0");
}

TEST(Experiment, DraftsMayStandInline) {
  json config = base_config();
  config["cases"][1]["draft"] = parse_json(
      R"([{"layers": {"keep": [1, 3]}}, {"layers": [0, 1, 2, 5]}, {"model": "models/tiny/"}])", "x");
  const std::string spec = "speculative_sampling/draft=";
  EXPECT_THAT(ids_of(config), ElementsAre("autoregressive", spec + "keep1/gamma=4", spec + "keep3/gamma=4",
                                          spec + "layers0-2,5/gamma=4", spec + "tiny/gamma=4"));
  EXPECT_THAT(spread_layers(4, 30), ElementsAre(0, 10, 19, 29));
  EXPECT_THAT(spread_layers(1, 3), ElementsAre(0));
  EXPECT_THROW(spread_layers(4, 3), Error);
}

TEST(Experiment, ChatTemplateIsASwitchOrAName) {
  const auto with = [](const json& value) {
    json config = base_config();
    config["prompts"]["chat_template"] = value;
    return parse_experiment(config, "f");
  };
  EXPECT_EQ(with("llama-3").resolved()["chat_template"], "llama-3");
  EXPECT_EQ(with("llama-3").chat_family, "llama-3");
  EXPECT_EQ(with(false).resolved()["chat_template"], false);
  EXPECT_FALSE(with(false).chat_template);
  try {
    with("llama");
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(),
                HasSubstr("f: /prompts/chat_template: got \"llama\", expected true, false, plain, "));
  }
}

TEST(Experiment, PromptsOverrideOptions) {
  json config = base_config();
  config["prompts"]["inline"] =
      parse_json(R"([{"id": "a", "turns": ["1"], "options": {"temperature": 1, "gamma": 2}}, "2"])", "x");
  const Experiment experiment = parse_experiment(config, "a.json");
  StrategyChoice strategy = experiment.cases[1].strategy;
  GenerationOptions generation = experiment.cases[1].generation;
  apply_prompt_options(experiment.prompts[0], strategy, generation);
  EXPECT_EQ(generation.sampling.temperature, 1);
  config["prompts"]["inline"][0]["options"] = {{"temprature", 1}};
  try {
    parse_experiment(config, "a.json");
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("Did you mean \"temperature\""));
  }
}

TEST(Experiment, BadInputIsNamedWithItsPlace) {
  struct Bad {
    const char* setting;  ///< applied to the good config
    std::vector<const char*> words;
  };
  const std::vector<Bad> all = {
      {"cases.1.gama=4", {"a.json: /cases/1/gama", "unknown", "gamma"}},
      {"cases.1.gamma=\"four\"", {"/cases/1/gamma", "\"four\"", "integer"}},
      {"cases.1.gamma=[]", {"/cases/1/gamma", "empty sweep"}},
      {"cases.1.strategy=[]", {"/cases/1/strategy", "empty sweep"}},
      {"cases.1.gamma=0", {"/cases/1/gamma"}},
      {"cases.1.draft=smal", {"/cases/1/draft", "unknown draft \"smal\"", "small"}},
      {"cases.1.draft=7", {"/cases/1/draft"}},
      {"cases.1.strategy=speculative_samplin", {"/cases/1/strategy", "speculative_sampling"}},
      {"cases.1.rule=tipical", {"/cases/1/rule", "typical"}},
      {"cases.1.epsilon=0.5", {"/cases/1", "epsilon", "rejection"}},
      {"cases.1.verify=two_pass", {"/cases/1/verify", "batch_of_prefixes"}},
      {"cases.1.devices=0", {"/cases/1/devices", "1 to 64"}},
      {"cases.1.devices=1.5", {"/cases/1/devices", "1.5"}},
      {"cases.1.devices=2", {"/cases/1/devices", "2 devices for speculative_sampling", "lookahead"}},
      {"cases=[{\"strategy\":\"lookahead\",\"devices\":2,\"verify\":\"batch_of_prefixes\"}]",
       {"/cases/0/devices", "one_pass"}},
      {"cases=[]", {"/cases", "empty list"}},
      {"cases=[7]", {"/cases/0", "number"}},
      {"cases=[{\"gamma\":4}]", {"/cases/0", "no \"strategy\""}},
      {"cases=[{\"strategy\":\"speculative_sampling\"}]", {"/cases/0", "no \"draft\""}},
      {"cases=[{\"strategy\":\"retrieval\"}]", {"/cases/0", "no \"datastore\""}},
      {"cases.1.schedule=disco", {"/cases/1", "no \"controller\"", "disco"}},
      {"cases.1.controller_threshold=2", {"/cases/1/controller_threshold", "-1 to 1"}},
      {"cases.1.top_probabilities=17", {"/cases/1/top_probabilities", "0 to 16"}},
      {"cases=[{\"strategy\":\"autoregressive\"},{\"strategy\":\"autoregressive\"}]",
       {"/cases/1", "second time"}},
      {"cases.1.drafts=[\"small\",\"skip\"]", {"/cases/1", "both \"draft\" and \"drafts\""}},
      {"cases=[{\"strategy\":\"cascade\",\"drafts\":[]}]", {"/cases/0/drafts"}},
      {"cases=[{\"strategy\":\"cascade\",\"drafts\":\"small\"}]", {"/cases/0/drafts", "a list"}},
      {"cases=[{\"strategy\":\"cascade\",\"drafts\":[\"small\",\"none\"]}]", {"/cases/0/drafts/1", "none"}},
      {"cases=[{\"strategy\":\"speculative_sampling\",\"drafts\":[\"small\",\"skip\"]}]",
       {"/cases/0/drafts", "2 drafts for speculative_sampling", "at most 1"}},
      {"cases=[{\"strategy\":\"cascade\"}]", {"/cases/0", "no \"draft\""}},
      {"options.drafts=[\"small\"]", {"/options/drafts"}},
      {"repeets=3", {"--set repeets=3", "repeats"}},
      {"repeats=0", {"/repeats", "0"}},
      {"target=7", {"/target", "7"}},
      {"options=3", {"/options", "number"}},
      {"options.gama=3", {"/options/gama"}},
      {"seeds=[]", {"/seeds"}},
      {"seeds=[1,1]", {"/seeds", "distinct"}},
      {"seed=-1", {"/seed", "-1"}},
      {"prompts=nowhere.jsonl", {"nowhere.jsonl", "no such"}},
      {"prompts.inline=[]", {"prompts", "at least one"}},
      {"prompts.inline=[{\"turn\":[]}]", {"/prompts/inline/0", "turns"}},
      {"prompts.limt=3", {"/prompts/limt", "limit"}},
      {"drafts.small=5", {"/drafts/small"}},
      {"drafts.small={\"layers\":[3,2]}", {"/drafts/small/layers", "ascending"}},
      {"drafts.small={\"layers\":[0,4294967297]}", {"/drafts/small/layers", "ascending"}},
      {"drafts.small={\"layers\":{\"keep\":4294967296}}", {"/drafts/small/layers", "4294967296"}},
      {"calibration.rows=0", {"/calibration/rows"}},
      {"calibration.row=4", {"/calibration/row", "rows"}},
  };
  for (const Bad& bad : all) {
    try {
      json config = base_config();
      set_one(config, bad.setting);
      parse_experiment(config, "a.json");
      ADD_FAILURE() << bad.setting << " was accepted";
    } catch (const Error& error) {
      for (const char* word : bad.words) EXPECT_THAT(error.what(), HasSubstr(word)) << bad.setting;
    }
  }
  for (const char* key : {"target", "prompts", "cases"}) {
    json config = base_config();
    config.erase(key);
    EXPECT_THROW(parse_experiment(config, "a.json"), Error) << key;
  }
}

// A case with several drafts names them all; a list of lists is a sweep; one draft in a list is a plain
// draft.
TEST(Experiment, CasesWithSeveralDrafts) {
  json config = base_config();
  config["cases"] = {{{"strategy", "autoregressive"}},
                     {{"strategy", "cascade"}, {"drafts", {"small", {{"layers", {{"keep", 1}}}}}}},
                     {{"strategy", "staged"}, {"drafts", {{"small"}, {"skip", "small"}}}}};
  EXPECT_THAT(ids_of(config), ElementsAre("autoregressive", "cascade/drafts=small+keep1",
                                          "staged/draft=small", "staged/drafts=skip+small"));
  const Experiment experiment = parse_experiment(config, "a.json");
  EXPECT_THAT(experiment.cases[1].drafts, ElementsAre("small", "keep1"));
  EXPECT_EQ(experiment.drafts.at("keep1").keep, 1);
  const json cases = experiment.resolved()["cases"];
  EXPECT_EQ(cases[1]["draft"], "small+keep1");
  EXPECT_EQ(cases[1]["drafts"], (json{"small", "keep1"}));
  EXPECT_EQ(cases[2]["draft"], "small");
  EXPECT_FALSE(cases[2].contains("drafts"));
}

TEST(Filter, KeepsMatchesAndTheirReferences) {
  json config = base_config();
  config["options"] = {{"temperature", {0, 1}}};
  Experiment experiment = parse_experiment(config, "a.json");
  filter_cases(experiment, "speculative.*temperature=1");
  ASSERT_EQ(experiment.cases.size(), 2u);
  EXPECT_EQ(experiment.cases[0].id, "autoregressive/temperature=1");
  EXPECT_THROW(filter_cases(experiment, "nothing"), Error);
  EXPECT_THROW(filter_cases(experiment, "("), Error);
}

TEST(Prompts, SpecBenchLinesAndSelection) {
  const PromptSpec prompt = parse_prompt(
      parse_json(R"({"question_id": 81, "category": "writing", "turns": ["a", "b"], "reference": []})", "x"),
      1, "x");
  EXPECT_EQ(prompt.id, "81");
  EXPECT_THAT(prompt.turns, ElementsAre("a", "b"));
  PromptSource source;
  for (const char* id : {"1", "2", "3"}) {
    PromptSpec one;
    one.id = id;
    one.category = one.id == "2" ? "b" : "a";
    one.turns = {"x"};
    source.inline_prompts.push_back(one);
  }
  source.per_category = 1;
  EXPECT_EQ(load_prompts(source).size(), 2u);
  source.per_category = 0;
  source.categories = {"a"};
  EXPECT_EQ(load_prompts(source)[1].id, "3");
  source.categories = {"c"};
  EXPECT_THROW(load_prompts(source), Error);
  source.categories.clear();
  source.inline_prompts[2].id = "1";
  EXPECT_THROW(load_prompts(source), Error);
}

TEST(Prompts, ARendererIsKeptInTheRecord) {
  json config = base_config();
  config["prompts"]["inline"] = {{{"id", "a"}, {"turns", {"1"}}, {"renderer", "jinja2 3.1.6"}},
                                 {{"id", "b"}, {"turns", {"2"}}}};
  const json prompts = parse_experiment(config, "x").resolved()["prompts"];
  EXPECT_EQ(prompts[0]["renderer"], "jinja2 3.1.6");
  EXPECT_FALSE(prompts[1].contains("renderer"));
  try {
    parse_prompt({{"turns", {"1", "2"}}, {"renderer", "jinja2"}}, 1, "x");
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("got \"renderer\" and 2 turns, expected one turn"));
  }
  EXPECT_THROW(parse_prompt({{"turns", {"1"}}, {"renderer", 3}}, 1, "x"), Error);
}

TEST(Prompts, ASplitIsChosenBeforeCounting) {
  json config = base_config();
  config["prompts"]["inline"] = {{{"id", "a"}, {"split", "fit"}, {"turns", {"1"}}},
                                 {{"id", "b"}, {"split", "measure"}, {"turns", {"2"}}},
                                 {{"id", "c"}, {"turns", {"3"}}},
                                 {{"id", "d"}, {"split", "measure"}, {"turns", {"4"}}}};
  const auto ids = [&](const std::string& split, int per_category) {
    config["prompts"]["split"] = split;
    config["prompts"]["per_category"] = per_category;
    std::vector<std::string> out;
    for (const PromptSpec& prompt : parse_experiment(config, "f").prompts) out.push_back(prompt.id);
    return out;
  };
  EXPECT_THAT(ids("fit", 0), ElementsAre("a"));
  EXPECT_THAT(ids("measure", 0), ElementsAre("b", "d"));
  EXPECT_THAT(ids("measure", 1), ElementsAre("b"));
  EXPECT_EQ(ids("any", 0).size(), 4u);
  const json resolved = parse_experiment(config, "f").resolved();
  EXPECT_EQ(resolved["prompts"][1]["split"], "measure");
  EXPECT_EQ(resolved["prompts"][2]["split"], "");
  EXPECT_THROW(ids("measured", 0), Error);
  config["prompts"]["inline"] = json::array({{{"id", "a"}, {"split", "fit"}, {"turns", {"1"}}}});
  try {
    ids("measure", 0);
    ADD_FAILURE() << "a prompt of the other split was accepted";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("at least one of split \"measure\""));
  }
  EXPECT_THROW(parse_prompt({{"turns", {"1"}}, {"split", "test"}}, 1, "x"), Error);
}

}  // namespace
}  // namespace speclab::config_test
