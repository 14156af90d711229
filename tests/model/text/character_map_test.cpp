#include "core/model/text/character_map.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/model/text/unicode/unicode_graphemes.h"
#include "tests/base/error_text.h"
#include "tests/model/text/character_maps.h"

namespace speclab::character_map_test {
namespace {

using fixtures::base64;
using fixtures::character_map;
using fixtures::message_of;
using testing::ElementsAre;
using testing::HasSubstr;

std::vector<std::string> clusters(std::string_view text) {
  std::vector<std::string> out;
  while (!text.empty()) {
    out.emplace_back(text.substr(0, unicode::first_grapheme(text)));
    text.remove_prefix(out.back().size());
  }
  return out;
}

/// One example of each rule of Unicode Standard Annex 29, and one counterexample.
TEST(Graphemes, EndWhereTheAnnexSays) {
  EXPECT_THAT(clusters("a\r\nb\n\r"), ElementsAre("a", "\r\n", "b", "\n", "\r"));                  // GB3
  EXPECT_THAT(clusters("\x01\u0301\u0302"), ElementsAre("\x01", "\u0301\u0302"));                  // GB4
  EXPECT_THAT(clusters("a\u200Bb"), ElementsAre("a", "\u200B", "b"));                              // GB5
  EXPECT_THAT(clusters("\u1100\u1161\u11A8\u1100"), ElementsAre("\u1100\u1161\u11A8", "\u1100"));  // GB6, 7
  EXPECT_THAT(clusters("\uAC00\u11A8\uAC01\u1161"),
              ElementsAre("\uAC00\u11A8", "\uAC01", "\u1161"));                                  // GB7, 8
  EXPECT_THAT(clusters("e\u0301\u0323x\u200Dx"), ElementsAre("e\u0301\u0323", "x\u200D", "x"));  // GB9
  EXPECT_THAT(clusters("\u0E01\u0E33\u0E01"), ElementsAre("\u0E01\u0E33", "\u0E01"));            // GB9a
  EXPECT_THAT(clusters("\u0600"
                       "1x"),
              ElementsAre("\u0600"
                          "1",
                          "x"));  // GB9b
  const std::string conjunct = "\u0915\u094D\u200D\u0937";
  EXPECT_THAT(clusters(conjunct + "\u0915\u200D\u0937"),
              ElementsAre(conjunct, "\u0915\u200D", "\u0937"));  // GB9c
  const std::string family = "\U0001F468\u200D\U0001F469\u200D\U0001F467";
  EXPECT_THAT(clusters(family + "\U0001F468"), ElementsAre(family, "\U0001F468"));  // GB11
  EXPECT_THAT(clusters("a\u200D\u2600"), ElementsAre("a\u200D", "\u2600"));
  const std::string flag = "\U0001F1E9\U0001F1EA";
  EXPECT_THAT(clusters(flag + flag + "\U0001F1E9x"), ElementsAre(flag, flag, "\U0001F1E9", "x"));  // GB12
}

std::string normalized(const fixtures::Replacements& rules, const std::string& text) {
  return CharacterMap::from_bytes(character_map(rules), "t").normalize(text);
}

TEST(CharacterMap, ReplacesByClusterAsTheReferenceDoes) {
  const fixtures::Replacements rules{{"\uFB01", "fi"}, {"\u2460", "1"}, {"\u00BD", "1/2"},
                                     {"\u200B", ""},   {"\u3000", " "}, {"e\u0301", "\u00E9"},
                                     {"xy", "wrong"}};
  EXPECT_EQ(normalized(rules, "\uFB01n \u2460\u00BD"), "fin 11/2");
  EXPECT_EQ(normalized(rules, "\u200Ba\u200Bb\u3000"), "ab ");
  EXPECT_EQ(normalized(rules, "e\u0301"), "\u00E9");
  EXPECT_EQ(normalized(rules, "xy"), "xy");                              // two clusters
  EXPECT_EQ(normalized(rules, "\uFB01\u0301n"), "fin");                  // 5 bytes: the mark is lost
  EXPECT_EQ(normalized(rules, "e\u0301\u0302"), "\u00E9");               // also 5
  EXPECT_EQ(normalized(rules, "\uFB01\u20D7"), "fi\u20D7");              // 6: character by character
  EXPECT_EQ(normalized(rules, "\uFB01\u0301\u0302"), "fi\u0301\u0302");  // 7
  EXPECT_EQ(normalized(rules, "e\u0301\u0302\u0303"), "e\u0301\u0302\u0303");
  EXPECT_EQ(normalized(rules, std::string("a\0b", 3)), std::string("a\0b", 3));
  EXPECT_EQ(normalized(rules, ""), "");
  EXPECT_EQ(normalized({{"x\u0301", "long"}, {"x", "short"}}, "x\u0301"), "short");
}

std::string error_with(const std::string& map) {
  return message_of([&] { CharacterMap::from_bytes(map, "t.json: /map"); });
}

TEST(CharacterMap, RefusesWhatPointsOutside) {
  const std::string good = character_map({{"a", "\u00E9"}, {"bc", "2"}});
  EXPECT_EQ(error_with(good), "no error");
  EXPECT_THAT(error_with(""), HasSubstr("t.json: /map: got 0 bytes with a trie of 0"));
  EXPECT_THAT(error_with(good.substr(0, 500)), HasSubstr("got 500 bytes with a trie of 1024"));
  EXPECT_THAT(error_with(good + "x"), HasSubstr("texts that do not end with a NUL byte"));
  EXPECT_THAT(error_with(good + "\xFF" + std::string(1, '\0')), HasSubstr("texts that are not UTF-8"));
  EXPECT_EQ(error_with(character_map({{"a", std::string(255, 'x')}})), "no error");
  EXPECT_THAT(error_with(character_map({{"a", std::string(256, 'x')}})),
              HasSubstr("a text of more than 255 bytes"));
  std::string map = good;
  map[4 + 3] = '\x80';  // marks the root as a value, whose link readers would follow
  EXPECT_THAT(error_with(map), HasSubstr("a value at the root"));
  map = good, map[4 + 2] = '\x7F';
  EXPECT_THAT(error_with(map), HasSubstr("a link from 0 beyond 256 units"));
  int broken_texts = 0;
  for (std::size_t at = 4; at < 4 + 1024; at += 4) {  // values point into the middle of a character
    map = good;
    if (static_cast<std::uint8_t>(map[at + 3]) != 0x80 || map[at] != 0) continue;
    map[at] = '\x01';
    EXPECT_THAT(error_with(map), HasSubstr("a text at byte 1 of 5"));
    ++broken_texts;
  }
  EXPECT_EQ(broken_texts, 1);
}

TEST(CharacterMap, ReadsBase64) {
  for (const char* text : {"1", "12", "123"}) {
    const std::string bytes = character_map({{"a", text}});
    EXPECT_EQ(CharacterMap::from_base64(base64(bytes), "t").normalize("a"), text);
  }
  const auto error_of = [](const std::string& text) {
    return message_of([&] { CharacterMap::from_base64(text, "t"); });
  };
  EXPECT_THAT(error_of("abc"), HasSubstr("t: got 3 characters, not a multiple of 4, expected base64"));
  EXPECT_THAT(error_of("ab\xC3\xA9"), HasSubstr("got \"\\xc3\" at character 2"));
  EXPECT_THAT(error_of("a=bc"), HasSubstr("got \"=\" at character 1"));
  EXPECT_THAT(error_of("AB=="), HasSubstr("bits after the last byte"));
  EXPECT_THAT(error_of("===="), HasSubstr("\"=\" at character 0"));
}

}  // namespace
}  // namespace speclab::character_map_test
