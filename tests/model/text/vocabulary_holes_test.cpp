// Compares tokenizer.json with ids that have no token with Hugging Face's `tokenizers`, through the golden
// file of scripts/oracle/vocabulary_holes.py.
#include <gmock/gmock.h>

#include "core/base/error.h"
#include "tests/model/text/tokenizer_golden.h"

namespace speclab::vocabulary_holes_test {
namespace {

using namespace golden;
using testing::ElementsAre;
using testing::HasSubstr;

/// The same tokenizer.json as `tokenizer_json` of the oracle makes.
std::string tokenizer_with_holes(const Json& settings) {
  Json state = Json::parse(read_file(kGolden / "tiny_bytes_tokenizer.json"));
  if (settings.contains("move")) {
    for (const auto& item : settings["move"].items()) {
      state["model"]["vocab"][item.key()] = item.value();
      for (Json& token : state["added_tokens"]) {
        if (token["content"] == item.key()) token["id"] = item.value();
      }
    }
  }
  if (settings.contains("added")) {
    for (const auto& item : settings["added"].items()) {
      Json token = state["added_tokens"][0];
      token["id"] = item.value(), token["content"] = item.key();
      state["added_tokens"].push_back(token);
    }
  }
  return state.dump();
}

TEST(VocabularyHoles, GiveTheIdsOfTheReference) {
  const Json golden = Json::parse(read_file(kGolden / "holes.json"));
  ASSERT_EQ(golden["cases"].size(), 5U);
  const Generator generator;
  for (const Json& one : golden["cases"]) {
    SCOPED_TRACE(one["name"]);
    const Tokenizer tokenizer = Tokenizer::from_json(tokenizer_with_holes(one["case"]), "t.json");
    for (const auto& item : one["added"].items())
      EXPECT_EQ(tokenizer.find(item.key()), item.value().get<Token>());
    const std::vector<std::string> hashes = unpack(one["strings"]);
    Tally tally;
    for (std::size_t i = 0; i < hashes.size(); ++i) {
      const std::string text = "the " + unicode::replace_invalid(generator.text(i)) + "<|a|> a<|b|><mark>";
      const std::vector<Token> ids = tokenizer.encode(text, true);
      tally.compare(digest(ids), hashes[i], [&] { return escaped(text) + " gave " + joined(ids); });
    }
    const std::vector<Token> some = one["some"];
    EXPECT_EQ(unicode::replace_invalid(tokenizer.decode(some)), one["decoded"].get<std::string>());
    EXPECT_EQ(streamed(tokenizer, some, false), one["decoded"].get<std::string>());
  }
}

TEST(VocabularyHoles, HaveNoTextAndCannotBeFound) {
  const Tokenizer tokenizer =
      Tokenizer::from_json(tokenizer_with_holes({{"move", {{"\u0120the", 609}}}}), "t.json");
  EXPECT_EQ(tokenizer.vocab_size(), 610);
  EXPECT_EQ(tokenizer.spelling(605), "");
  EXPECT_EQ(tokenizer.token_bytes(605), "");
  EXPECT_EQ(tokenizer.find(""), std::nullopt);
  EXPECT_FALSE(tokenizer.is_special(605));
  EXPECT_THAT(tokenizer.assumed(), ElementsAre());
}

TEST(VocabularyHoles, AreSaidWhereTheyMoveAddedTokens) {
  const Tokenizer tokenizer =
      Tokenizer::from_json(tokenizer_with_holes({{"added", {{"<|a|>", 608}}}}), "t.json");
  EXPECT_THAT(tokenizer.assumed(),
              ElementsAre("t.json: /added_tokens/6/id gives the added token <|a|> the id 608: read as 604, "
                          "the number that the library tokenizers gives it"));
}

/// The reference gives both tokens the same id.
TEST(VocabularyHoles, AreRefusedWhereTwoTokensWouldHaveOneId) {
  try {
    Tokenizer::from_json(tokenizer_with_holes({{"move", {{"\u0120the", 601}}}}), "t.json");
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(),
                HasSubstr("t.json: /added_tokens/3/id: got id 601 for \"<marker>\", expected another id"));
  }
}

}  // namespace
}  // namespace speclab::vocabulary_holes_test
