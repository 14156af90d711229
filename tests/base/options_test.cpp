#include "core/base/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/base/nearest.h"
#include "core/base/options_json.h"

namespace speclab::options_test {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct Inner {
  double threshold = .4;
  void fields(OptionVisitor& visit) {
    visit("threshold", threshold, Range<double>{0, 1, true}, "stop below");
  }
};

struct Sample {
  int gamma = 4;
  std::int64_t seed = 7;
  bool coupled = false;
  std::string match = "latest";
  std::string name = "x";
  std::vector<double> alphas;
  std::vector<int> layers{0, 2};
  std::vector<std::string> stops;
  Inner inner;
  void fields(OptionVisitor& visit) {
    visit("gamma", gamma, Range<int>{1, 64}, "tokens per step");
    visit("seed", seed, Range<std::int64_t>{0, 1LL << 53}, "seed");
    visit("coupled", coupled, "couple");
    visit("match", match, {"latest", "leftmost"}, "which");
    visit("name", name, "free");
    visit("alphas", alphas, Range<double>{0, 1}, "per position");
    visit("layers", layers, Range<int>{0, 99}, "layers");
    visit("stops", stops, "stop strings");
    inner.fields(visit);
  }
};

std::string parse_error(const json& object) {
  Sample sample;
  try {
    parse_options(option_fields(sample), object, "a.json: /cases/0");
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(Options, ParsesEveryType) {
  Sample sample;
  parse_options(
      option_fields(sample),
      json::parse(R"({"gamma": 8, "seed": 4503599627370497, "coupled": true, "match": "leftmost", "name": "y",
                  "alphas": [0.5, 1], "layers": [], "stops": ["a", "b"], "threshold": 1})"),
      "");
  EXPECT_EQ(sample.gamma, 8);
  EXPECT_EQ(sample.seed, 4503599627370497);
  EXPECT_TRUE(sample.coupled);
  EXPECT_EQ(sample.match, "leftmost");
  EXPECT_EQ(sample.name, "y");
  EXPECT_THAT(sample.alphas, ElementsAre(.5, 1));
  EXPECT_TRUE(sample.layers.empty());
  EXPECT_THAT(sample.stops, ElementsAre("a", "b"));
  EXPECT_EQ(sample.inner.threshold, 1);
}

TEST(Options, AbsentKeysKeepTheirDefaults) {
  Sample sample;
  parse_options(option_fields(sample), json::object(), "");
  EXPECT_EQ(sample.gamma, 4);
  EXPECT_THAT(sample.layers, ElementsAre(0, 2));
}

TEST(Options, ErrorsNamePointerGotAndExpected) {
  EXPECT_EQ(parse_error({{"gamma", 0}}), "a.json: /cases/0/gamma: got 0, expected an integer, 1 to 64");
  EXPECT_THAT(parse_error({{"gamma", "four"}}), HasSubstr("got \"four\", expected an integer"));
  EXPECT_THAT(parse_error({{"gamma", 4.5}}), HasSubstr("got 4.5, expected an integer"));
  EXPECT_THAT(parse_error({{"gamma", 18446744073709551615ULL}}), HasSubstr("expected an integer"));
  EXPECT_THAT(parse_error({{"gamma", 4294967297LL}}), HasSubstr("expected an integer"));
  EXPECT_THAT(parse_error({{"threshold", 0}}),
              HasSubstr("/threshold: got 0, expected a number, above 0, at most 1"));
  EXPECT_THAT(parse_error({{"coupled", 1}}), HasSubstr("expected true or false"));
  EXPECT_THAT(parse_error({{"alphas", {0.5, 2}}}), HasSubstr("/cases/0/alphas/1: got 2"));
  EXPECT_THAT(parse_error({{"stops", {"a", 1}}}), HasSubstr("/cases/0/stops/1: got 1"));
  EXPECT_THAT(parse_error(json::array()), HasSubstr("a.json: /cases/0: got []"));
  EXPECT_THAT(parse_error({{"alphas", 3}}), HasSubstr("got 3, expected a list of numbers, 0 to 1"));
  EXPECT_THAT(parse_error({{"stops", "a"}}), HasSubstr("got \"a\", expected a list of texts"));
  EXPECT_THAT(parse_error({{"match", 3}}), HasSubstr("got 3, expected one of \"latest\""));
  EXPECT_THAT(parse_error({{"name", 3}}), HasSubstr("got 3, expected a text"));
  EXPECT_THAT(parse_error({{"gamma", std::string(200, 'x')}}),
              HasSubstr("got \"" + std::string(76, 'x') + "..., expected"));
}

TEST(Options, RangesOfOneSide) {
  constexpr std::int64_t kLow = std::numeric_limits<std::int64_t>::lowest(),
                         kHigh = std::numeric_limits<std::int64_t>::max();
  std::int64_t any = 0, most = 0;
  int above = 5;
  const OptionFields fields = [&](OptionVisitor& visit) {
    visit("any", any, Range<std::int64_t>{kLow, kHigh}, "");
    visit("most", most, Range<std::int64_t>{kLow, 5}, "");
    visit("above", above, Range<int>{2, std::numeric_limits<int>::max(), true}, "");
  };
  const auto infos = describe_options(fields);
  EXPECT_EQ(infos[0].range, "");
  EXPECT_EQ(infos[1].range, "5 or less");
  EXPECT_EQ(infos[2].range, "above 2");
  parse_options(fields, {{"any", kLow}, {"most", 5}, {"above", 3}}, "");
  EXPECT_EQ(any, kLow);
  EXPECT_EQ(above, 3);
  EXPECT_THROW(parse_options(fields, {{"any", 18446744073709551615ULL}}, ""), Error);  // does not wrap to -1
  EXPECT_THROW(parse_options(fields, {{"most", 6}}, ""), Error);
  EXPECT_THROW(parse_options(fields, {{"above", 2}}, ""), Error);
}

TEST(Options, UnknownNamesGetTheNearestKnownOne) {
  EXPECT_THAT(parse_error({{"gama", 4}}), HasSubstr("Did you mean \"gamma\"?"));
  EXPECT_THAT(parse_error({{"zzzzzz", 4}}), HasSubstr("Known are: gamma, seed,"));
  EXPECT_THAT(parse_error({{"a/b", 4}}), HasSubstr("/cases/0/a~1b"));
  EXPECT_THAT(parse_error({{"match", "latst"}}),
              HasSubstr("expected one of \"latest\", \"leftmost\". Did you mean \"latest\"?"));
}

TEST(Options, KeysOfOthersAreLeftAlone) {
  Sample sample;
  const std::vector<std::string> others{"strategy"};
  parse_options(option_fields(sample), json{{"strategy", "x"}, {"gamma", 2}}, "", others);
  EXPECT_EQ(sample.gamma, 2);
  EXPECT_THROW(parse_options(option_fields(sample), json{{"strateg", "x"}}, "", others), Error);
}

TEST(Options, DescribesAndEchoes) {
  Sample sample;
  sample.alphas = {.25};
  const auto infos = describe_options(option_fields(sample));
  ASSERT_EQ(infos.size(), 9u);
  EXPECT_EQ(infos[0].name, "gamma");
  EXPECT_EQ(infos[0].type, "integer");
  EXPECT_EQ(infos[0].default_value, "4");
  EXPECT_EQ(infos[0].range, "1 to 64");
  EXPECT_THAT(infos[3].choices, ElementsAre("latest", "leftmost"));
  EXPECT_TRUE(infos[5].list);
  EXPECT_EQ(infos[8].range, "above 0, at most 1");
  const json echo = echo_options(option_fields(sample));
  EXPECT_EQ(echo.size(), 9u);
  EXPECT_EQ(echo["alphas"], json::array({.25}));
  Sample again;
  parse_options(option_fields(again), echo, "");
  EXPECT_EQ(echo_options(option_fields(again)), echo);
}

TEST(Options, SayWhatTheirAbsenceInOldRecordsMeans) {
  std::string rule = "new";
  int gamma = 2, limit = 1;
  const OptionFields fields = [&](OptionVisitor& visit) {
    visit("rule", rule, {"old", "new"}, "");
    visit.absent_means("old");
    visit("gamma", gamma, Range<int>{1, 4}, "");
    visit("limit", limit, Range<int>{0, 4}, "");
    visit.absent_means("0");
  };
  const auto infos = describe_options(fields);
  EXPECT_EQ(infos[0].absent_means, "\"old\"");
  EXPECT_EQ(infos[1].absent_means, "");
  EXPECT_EQ(infos[2].absent_means, "0") << "a number, not a text";
  parse_options(fields, json::object(), "");
  EXPECT_EQ(rule, "new") << "the default of a config is not changed";
  EXPECT_THROW(describe_options([](OptionVisitor& visit) { visit.absent_means("x"); }), Bug);
}

TEST(Options, ANameDeclaredTwiceIsABug) {
  int value = 1;
  const OptionFields fields = [&](OptionVisitor& visit) {
    visit("a", value, Range<int>{0, 1}, "");
    visit("a", value, Range<int>{0, 1}, "");
  };
  EXPECT_THROW(describe_options(fields), Bug);
}

enum class Colour { red, green, blue };

TEST(Choices, AWordIsOneOfTheNames) {
  constexpr std::pair<Colour, std::string_view> kColours[] = {
      {Colour::red, "red"}, {Colour::green, "green"}, {Colour::blue, "blue"}};
  EXPECT_EQ(parse_choice("--colour", "green", kColours), Colour::green);
  const auto refusal = [&](std::string_view word, const std::string& advice) -> std::string {
    try {
      parse_choice("--colour", word, kColours, advice);
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_EQ(refusal("gren", ""), "--colour: got \"gren\", expected red, green or blue");
  EXPECT_EQ(refusal("", "Look."), "--colour: got \"\", expected red, green or blue. Look.");
}

TEST(Nearest, EditDistance) {
  EXPECT_EQ(edit_distance("", "abc"), 3);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3);
  EXPECT_EQ(edit_distance("gmama", "gamma"), 1);
  EXPECT_EQ(edit_distance("same", "same"), 0);
}

}  // namespace
}  // namespace speclab::options_test
