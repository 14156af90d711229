// --set: names, values, and errors in words of the command line. No model is opened.
#include "experiments/config/settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/base/json_text.h"
#include "experiments/config/config_file.h"

namespace speclab::settings_test {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

json three_cases() {
  return parse_json(
      R"({"name": "t", "target": "target", "drafts": {"small": {"model": "d"}}, "prompts": {"inline": ["1 2"]},
    "options": {"max_tokens": 8},
    "cases": [{"strategy": "autoregressive", "temperature": 1}, {"strategy": "speculative_sampling", "draft": "small", "gamma": 4},
              {"strategy": ["prompt_lookup", "speculative_sampling"], "draft": "small"}]})",
      "base");
}

json with(const std::vector<std::string>& texts) {
  json config = three_cases();
  Settings(texts).apply(config, config_keys());
  return config;
}

std::string refusal(const std::vector<std::string>& texts) {
  try {
    configure_experiments(three_cases(), "a.json", texts);
  } catch (const Error& error) {
    return error.what();
  }
  ADD_FAILURE() << texts.back() << " was accepted";
  return "";
}

TEST(SettingValue, NumbersAsPeopleWriteThem) {
  const std::pair<const char*, json> all[] = {
      {".3", .3},
      {"3.", 3},
      {"+3", 3},
      {"-.5", -.5},
      {"1e-2", .01},
      {"+.5e1", 5.},
      {"4", 4},
      {"0.25", .25},
      {"[.3, 3.,+1]", {.3, 3, 1}},
      {"true", true},
      {"null", nullptr},
      {R"({"a": .5, "b": [".5", "+1"]})", {{"a", .5}, {"b", {".5", "+1"}}}},
      {R"("x")", "x"},
  };
  for (const auto& [text, value] : all) {
    const json parsed = parse_setting_value(text, "--set x");
    EXPECT_EQ(parsed, value) << text;
    EXPECT_EQ(parsed.type_name(), std::string(value.type_name())) << text;
  }
  EXPECT_TRUE(parse_setting_value("3.", "--set x").is_number_integer()) << "an option of integers accepts it";
  for (const char* text : {"a b", ".", "+", "-", "1e", "e5", "1.2.3", "007", "3x", "models/x.gguf", "=W", ""})
    EXPECT_EQ(parse_setting_value(text, "--set x"), text) << "a text";
  const std::pair<const char*, const char*> bad[] = {
      {"[1,", "--set x: line 1"},   {"{a}", "double quotes"},       {"\"x", "--set x"},
      {"1e999", "at most 1.8e308"}, {"\xff\xfe", "expected UTF-8"}, {"[1e999]", "line 1, column 2"}};
  for (const auto& [text, word] : bad) {
    try {
      parse_setting_value(text, "--set x");
      ADD_FAILURE() << text;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr(word));
    }
  }
}

TEST(SettingName, AnOptionAloneHoldsForAllCases) {
  const json hot = with({"temperature=.5"});
  EXPECT_EQ(hot["options"], (json{{"max_tokens", 8}, {"temperature", .5}}));
  EXPECT_FALSE(hot["cases"][0].contains("temperature")) << "the value of a case would override it";
  const json longer = with({"gamma=[1,2]"});
  EXPECT_FALSE(longer["cases"][0].contains("gamma"));
  EXPECT_EQ(longer["cases"][1]["gamma"], (json{1, 2}));
  EXPECT_EQ(longer["cases"][2]["gamma"], (json{1, 2}));
  EXPECT_FALSE(longer["options"].contains("gamma"));
  json shares = three_cases();
  shares["options"]["gamma"] = 7;
  Settings({"gamma=2"}).apply(shares, config_keys());
  EXPECT_EQ(shares["options"]["gamma"], 2) << "an option of strategies that the config shares";
  EXPECT_FALSE(shares["cases"][1].contains("gamma"));
  EXPECT_EQ(with({"cases.1.gamma=+3", "repeats=2."})["cases"][1]["gamma"], 3);
}

TEST(SettingName, AWrongOneIsRefusedInWordsOfTheCommandLine) {
  EXPECT_THAT(refusal({"repeat=5"}), AllOf(StartsWith("--set repeat=5: got an unknown name"),
                                           HasSubstr("Did you mean --set repeats=5?")));
  EXPECT_THAT(refusal({"gama=5"}), HasSubstr("Did you mean --set gamma=5?"));
  EXPECT_THAT(refusal({"prompt.limit=5"}), HasSubstr("Did you mean --set prompts.limit=5?"));
  EXPECT_THAT(refusal({"zzzzzzzz=5"}), HasSubstr("Known are target"));
  EXPECT_THAT(refusal({"prompts.limt=3"}), AllOf(StartsWith("--set prompts.limt=3"), HasSubstr("limit")));
  EXPECT_THAT(refusal({"prompts.foo.bar=3"}), StartsWith("--set prompts.foo.bar=3"));
  EXPECT_THAT(refusal({"cases.gamma=3"}),
              AllOf(StartsWith("--set cases.gamma=3"), HasSubstr("For all cases: --set gamma=3")));
  EXPECT_THAT(refusal({"W=3"}), AllOf(StartsWith("--set W=3"), HasSubstr("lookahead, which no case uses")));
  EXPECT_THAT(refusal({"gamma"}), HasSubstr("NAME=VALUE"));
  EXPECT_THAT(refusal({"repeats.x=1"}), AllOf(StartsWith("--set repeats.x=1"), HasSubstr("an integer")));
  EXPECT_THAT(refusal({"name.x=1"}), AllOf(StartsWith("--set name.x=1"), HasSubstr("name is a string")));
}

TEST(SettingValue, AWrongOneIsRefusedInWordsOfTheCommandLine) {
  EXPECT_THAT(
      refusal({"repeats=3", "gamma=high"}),
      AllOf(StartsWith("--set gamma=high (a.json: /cases/1/gamma): got \"high\""), HasSubstr("an integer")));
  EXPECT_THAT(refusal({"temperature=-1"}), StartsWith("--set temperature=-1 "));
  EXPECT_THAT(refusal({"repeats=0"}), StartsWith("--set repeats=0 "));
  EXPECT_THAT(refusal({"lenience=.3"}),
              AllOf(StartsWith("--set lenience=.3 "), HasSubstr("choose another rule")));
  EXPECT_THAT(refusal({"cases.1.draft=none"}), StartsWith("--set cases.1.draft=none "));
  try {  // errors in the file are not blamed on the command line
    json config = three_cases();
    config["cases"][1]["gamma"] = "high";
    configure_experiments(config, "a.json", {"cases.0.temperature=0", "repeats=2"});
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), StartsWith("a.json: /cases/1/gamma"));
  }
}

TEST(SettingName, EveryKeyOfAConfigIsKnown) {
  for (const char* key :
       {"name", "target", "targets", "drafts", "prompts", "seed", "seeds", "options", "cases", "calibration",
        "published", "description", "repeats", "warmup", "teacher_forced", "share_prefills", "bounds"})
    EXPECT_THAT(config_keys(), ::testing::Contains(key));
}

}  // namespace
}  // namespace speclab::settings_test
