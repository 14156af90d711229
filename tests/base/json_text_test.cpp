#include "core/base/json_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "core/base/error.h"
#include "tests/base/error_text.h"

namespace speclab {
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
  EXPECT_THAT(parse_error("[1e999]"), HasSubstr("number overflow"));
}

TEST(JsonText, RefusesAKeyTwice) {
  EXPECT_THAT(parse_error(R"({"a": {"x": 1}, "b": {"x": 1, "y": 2, "x": 3}})"),
              HasSubstr("got the key \"x\" twice"));
  EXPECT_EQ(parse_error(R"({"a": {"x": 1}, "b": {"x": 1}, "x": 3})"), "no error");
}

TEST(JsonText, RefusesWhatIsNestedTooDeeply) {
  const auto nested = [](std::size_t depth) { return std::string(depth, '[') + std::string(depth, ']'); };
  EXPECT_EQ(parse_error(nested(200)), "no error");
  EXPECT_THAT(parse_error(nested(201)), StartsWith("a.json: got arrays and objects more than 200 deep"));
  EXPECT_THAT(parse_error(nested(5'000'000)), StartsWith("a.json: got arrays and objects more than 200 deep"));
  std::string objects = "1";
  for (int i = 0; i < 201; ++i) objects = "{\"a\":" + objects + "}";
  EXPECT_THAT(parse_error(objects), StartsWith("a.json: got arrays and objects more than 200 deep"));
}

}  // namespace
}  // namespace speclab
