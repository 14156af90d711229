#include "core/base/json_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <functional>

#include "core/base/error.h"
#include "tests/base/error_text.h"

namespace speclab::json_text_test {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;
using namespace std::string_literals;

std::string parse_error(const std::string& text) {
  return fixtures::message_of([&] { parse_json(text, "a.json"); });
}

TEST(JsonText, ParsesStrictJson) {
  EXPECT_EQ(parse_json(" {\"a\": [1, 2.5, null]}\n", "a.json").dump(), R"({"a":[1,2.5,null]})");
}

TEST(JsonText, SaysWhereTheErrorIs) {
  EXPECT_THAT(parse_error("{\n  \"a\": 1,\n  \"b\" 2\n}"),
              StartsWith("a.json: line 3, column 7: got syntax error"));
  EXPECT_THAT(parse_error("{\"a\": tru}"), StartsWith("a.json: line 1, column 10: got syntax error"));
  EXPECT_THAT(parse_error(""), StartsWith("a.json: line 1, column 1: got"));
  EXPECT_THAT(parse_error("{}\n{}"), StartsWith("a.json: line 2, column 1: got"));
  EXPECT_THAT(parse_error("{} // no comments"), StartsWith("a.json: line 1, column 4: got"));
  EXPECT_THAT(parse_error("{}\n \0x"s),
              StartsWith("a.json: line 2, column 2: got a zero byte, expected valid JSON"));
  EXPECT_THAT(parse_error("[1e999]"),
              StartsWith("a.json: line 1, column 2: got 1e999, expected a number of at most 1.8e308"));
  EXPECT_THAT(parse_error("{\"1e999\": \"\\\"1e999\",\n \"a\": [1e99, -1E+400]}"),
              StartsWith("a.json: line 2, column 14: got -1E+400"));
}

TEST(JsonText, RefusesAKeyTwice) {
  EXPECT_THAT(parse_error(R"({"a": {"x": 1}, "b": {"x": 1, "y": 2, "x": 3}})"),
              HasSubstr("got the key \"x\" twice"));
  EXPECT_EQ(parse_error(R"({"a": {"x": 1}, "b": {"x": 1}, "x": 3})"), "no error");
}

TEST(JsonText, RefusesWhatIsNestedTooDeeply) {
  const auto nested = [](std::size_t depth) { return std::string(depth, '[') + std::string(depth, ']'); };
  EXPECT_EQ(parse_error(nested(200)), "no error");
  EXPECT_EQ(parse_error(std::string(200, '[') + "1" + std::string(200, ']')), "no error");
  EXPECT_THAT(parse_error(nested(201)), StartsWith("a.json: got arrays and objects more than 200 deep"));
  EXPECT_THAT(parse_error(nested(5'000'000)),
              StartsWith("a.json: got arrays and objects more than 200 deep"));
  std::string objects = "1";
  for (int i = 0; i < 200; ++i) objects = "{\"a\":" + objects + "}";
  EXPECT_EQ(parse_error(objects), "no error");
  objects = "{\"a\":" + objects + "}";
  EXPECT_THAT(parse_error(objects), StartsWith("a.json: got arrays and objects more than 200 deep"));
}

constexpr JsonLimits kLimits{.depth = 4, .members = 3, .inner_members = 2, .items = 2, .token_bytes = 40};

/// The members as text, or the error message.
std::string members(const std::string& text) {
  std::string out;
  const std::string error = fixtures::message_of([&] {
    parse_json_members(text, "a.json", kLimits, [&](const std::string& key, const nlohmann::json& value) {
      out += key + "=" + value.dump() + ";";
    });
  });
  return error == "no error" ? out : error;
}

TEST(JsonText, GivesMembersAwayInTheOrderOfTheText) {
  EXPECT_EQ(members("{}"), "");
  EXPECT_EQ(members(R"({"b": {"x": [1, {}], "a": null}, "a": [{"y": 2}, "t"], "c": 1.5})"),
            R"(b={"a":null,"x":[1,{}]};a=[{"y":2},"t"];c=1.5;)");
  EXPECT_EQ(members(R"({"b": {}, "a": {"b": {}}})"), R"(b={};a={"b":{}};)");
  EXPECT_THAT(members("[1]"), StartsWith("a.json: got a JSON array, expected a JSON object"));
  EXPECT_THAT(members("1"), StartsWith("a.json: got a JSON number, expected a JSON object"));
  EXPECT_THAT(members(R"({"a": {}, "b": 1, "a": 2})"), HasSubstr("got the key \"a\" twice"));
  EXPECT_THAT(members(R"({"a": {}, "b" 1})"), StartsWith("a.json: line 1, column 15: got syntax error"));
}

TEST(JsonText, RefusesWhatIsBeyondALimit) {
  EXPECT_EQ(members(R"({"a": 1, "b": 2, "c": 3})"), "a=1;b=2;c=3;");
  EXPECT_THAT(members(R"({"a": 1, "b": 2, "c": 3, "d": 4})"),
              StartsWith("a.json: got more than 3 members of an object, expected at most 3"));
  EXPECT_THAT(
      members(R"({"a": {"x": 1, "y": 2, "z": 3}})"),
      StartsWith("a.json: got more than 2 members of an object in the member \"a\", expected at most 2"));
  EXPECT_THAT(members(R"({"a": 1, "b": {"x": [1, 2, 3]}})"),
              StartsWith("a.json: got more than 2 values in a list in the member \"b\", expected at most 2"));
  EXPECT_THAT(members(R"({"a": [[], {}, 1]})"), HasSubstr("more than 2 values in a list"));
  EXPECT_EQ(members(R"({"a": [[[1]], []]})"), "a=[[[1]],[]];") << "four levels";
  EXPECT_EQ(
      members(R"({"a": [[[[]]]]})"),
      "a.json: got arrays and objects more than 4 deep, expected at most 4 levels. The file is damaged; "
      "fetch or write it again.");
  const std::string most(40, 'x'), too_many(41, 'x');
  EXPECT_EQ(members("{\"" + most + "\": \"" + most + "\"}"), most + "=\"" + most + "\";");
  EXPECT_THAT(members("{\"a\":\"" + too_many + "\"}"),
              StartsWith("a.json: line 1, column 6: got a text, number or white space of more than 40 bytes, "
                         "expected at most 40"));
  EXPECT_THAT(members("{\"" + too_many + "\":1}"),
              StartsWith("a.json: line 1, column 2: got a text, number or white space"));
  EXPECT_THAT(members("{\"a\":" + std::string(41, '1') + "}"),
              StartsWith("a.json: line 1, column 5: got a text, number or white space"));
  EXPECT_THAT(members("{\"a\":1" + std::string(41, ' ') + "}"),
              HasSubstr("a text, number or white space of more than 40 bytes"));
  EXPECT_EQ(members(R"({"a": "\"\\,:[]{}\"\\"})"), R"(a="\"\\,:[]{}\"\\";)");  // none of these ends the text
  EXPECT_THAT(members(R"({"a": "\"\\" xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx)"),
              HasSubstr("line 1, column 12: got a text, number or white space"));
}

}  // namespace
}  // namespace speclab::json_text_test
