// Compares the pre-tokenisers of byte-level BPE with Hugging Face's `tokenizers`, through the golden file of
// scripts/oracle/pre_tokenizers.py. Its merges were learnt without a pre-tokeniser, so that a missing
// cut merges tokens across words.
#include <gmock/gmock.h>

#include <cstdlib>

#include "core/base/error.h"
#include "core/model/text/tokenizer_split.h"
#include "tests/model/text/tokenizer_golden.h"

namespace speclab::pre_tokenizer_test {
namespace {

using namespace golden;
using testing::HasSubstr;

using Words = std::vector<std::string_view>;

/// The tokenizer.json of a case: the shared vocabulary with the pre-tokeniser of the case.
std::string tokenizer_json(const Json& golden, const Json& one) {
  Json json = {
      {"model", golden["model"]}, {"added_tokens", Json::array()}, {"decoder", {{"type", "ByteLevel"}}}};
  json["model"]["ignore_merges"] = one["ignore_merges"];
  json["normalizer"] = one["normalizer"];
  json["pre_tokenizer"] = one["pre_tokenizer"];
  return json.dump();
}

Tokenizer::Parts gguf_parts(const Json& golden, const std::string& name) {
  Tokenizer::Parts parts;
  parts.file = "golden.gguf";
  parts.pre_tokenizer = name;
  parts.tokens.resize(golden["model"]["vocab"].size());
  for (const auto& item : golden["model"]["vocab"].items()) parts.tokens.at(item.value()) = item.key();
  for (const Json& merge : golden["model"]["merges"])
    parts.merges.push_back(merge[0].get<std::string>() + " " + merge[1].get<std::string>());
  return parts;
}

/// With SPECLAB_PRE_TOKENIZER_GOLDEN=FILE as `scripts/oracle/pre_tokenizers.py --strings N --write FILE`
/// writes it.
TEST(PreTokenizer, GivesTheIdsOfTheReference) {
  const char* other = std::getenv("SPECLAB_PRE_TOKENIZER_GOLDEN");
  const Json golden =
      Json::parse(read_file(other != nullptr ? fs::path(other) : kGolden / "pre_tokenizers.json"));
  ASSERT_EQ(golden["encode"].size(), 8u);
  for (const Json& one : golden["encode"]) {
    const std::string name = one["pre_tokenizer_name"];
    SCOPED_TRACE(name);
    Json section = one;
    section["pre_tokenizer"] = name;
    expect_same_ids(Tokenizer::from_json(tokenizer_json(golden, one), name + "/tokenizer.json"), section);
    expect_same_ids(Tokenizer::from_parts(gguf_parts(golden, name)), section,
                    false);  // it has control tokens
  }
}

TEST(PreTokenizer, KnowsTheSpellingsOfItsPatterns) {
  for (const SplitPattern& pattern : split_patterns()) EXPECT_EQ(split_step_of(pattern.text), pattern.step);
  EXPECT_EQ(split_step_of("[\r\n]"),
            SplitStep::kLineEnds);  // literal line ends, from \r and \n in JSON
  EXPECT_EQ(split_step_of("[\\r\\n]+"), std::nullopt);
  EXPECT_EQ(split_step_of(""), std::nullopt);
}

TEST(PreTokenizer, CutsAsDeepSeekDoes) {
  using enum SplitStep;
  EXPECT_EQ(split_words({kLineEnds}, "a\r\n\nb"), (Words{"a", "\r", "\n", "\n", "b"}));
  EXPECT_EQ(split_words({kDeepSeekLetters}, "ab  cd\u05D0\u00B5\u2126"),
            (Words{"ab", " ", " cd", "\u05D0", "\u00B5\u2126"}));
  EXPECT_EQ(split_words({kDeepSeekSymbols}, "1 +=\u30001"), (Words{"1", " +=\u3000", "1"}));
  EXPECT_EQ(split_words({kDeepSeekSymbols}, "\u3000\u3000"), (Words{"\u3000\u3000"}));
  EXPECT_EQ(split_words({kEastAsian}, "a\u4E00\uD55C\u0915b"), (Words{"a", "\u4E00\uD55C\u0915", "b"}));
  EXPECT_EQ(split_words({kTrailingSpaces}, "a  b \t "), (Words{"a  b", " \t "}));
  EXPECT_EQ(split_words({kTrailingSpaces}, "a \n\n b"), (Words{"a", " \n", "\n b"}));
  EXPECT_EQ(split_words({kSpaceLetters, kSpacePunctuation}, "ab, cd +!"),
            (Words{"ab", ",", " cd", " +", "!"}));
  EXPECT_EQ(split_words({kThreeNumbers}, "x12345 6"), (Words{"x", "123", "45", " ", "6"}));
  EXPECT_EQ(split_words({kHanAndKana}, "a\u3042\u4E00\uD55C"), (Words{"a", "\u3042\u4E00", "\uD55C"}));
  EXPECT_EQ(split_words({kDeepSeek3}, "_Ab'x  y\u0301 +=\r\n \n z\u0001\u0002"),
            (Words{"_Ab", "'x", " ", " y\u0301", " +=\r\n", " \n", " z", "\u0001\u0002"}));
}

TEST(PreTokenizer, CutsAsLlamaCppDoesByDefault) {
  using enum SplitStep;
  EXPECT_EQ(split_words({kSigns}, "a`b+-c \u3001$\u20AC"), (Words{"a`b", "+-", "c ", "\u3001$", "\u20AC"}));
  EXPECT_EQ(split_words({kNumbers}, " 12\u00BD a3"), (Words{" ", "12\u00BD", " a", "3"}));
  EXPECT_EQ(split_words({kThreeDigits}, "1234567"), (Words{"123", "456", "7"}));
  EXPECT_EQ(split_words({kThreeDigits}, "12\u00BD3456"), (Words{"12\u00BD", "345", "6"}));
  EXPECT_EQ(split_words({kThreeDigits}, "12"), (Words{"12"}));
  EXPECT_EQ(split_words({kSigns, kGpt2, kNumbers, kThreeDigits}, "it's  12345."),
            (Words{"it", "'", "s", " ", " ", "123", "45", "."}));
}

TEST(PreTokenizer, CutsLongTextsInLinearTime) {
  using enum SplitStep;
  for (const SplitStep step : {kDigits, kGpt2, kLlama3, kQwen2, kLineEnds, kDeepSeekLetters, kDeepSeekSymbols,
                               kTrailingSpaces, kEastAsian, kSpaceLetters, kSpacePunctuation, kThreeNumbers,
                               kHanAndKana, kDeepSeek3, kSigns, kNumbers, kThreeDigits}) {
    for (const std::string_view unit : {" ", "a", "1", "\n", " a", "!", "\u0001", "\u4E00", " \n\t"}) {
      std::string text;
      while (text.size() < 300'000) text += unit;
      std::size_t size = 0;
      for (const std::string_view word : split_words({step}, text + "x")) size += word.size();
      EXPECT_EQ(size, text.size() + 1);  // quadratic scanning would take minutes
    }
  }
}

}  // namespace
}  // namespace speclab::pre_tokenizer_test
