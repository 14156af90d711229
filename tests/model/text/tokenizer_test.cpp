#include "core/model/text/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "core/base/error.h"
#include "core/base/sha256.h"
#include "core/model/text/tokenizer_spec.h"
#include "core/model/text/tokenizer_split.h"
#include "core/model/text/unicode/unicode.h"
#include "core/model/text/unicode/unicode_normal_form.h"

namespace speclab::tokenizer_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string byte_spelling(int byte) {
  std::string text;
  unicode::append_utf8(text, byte_character(static_cast<std::uint8_t>(byte)));
  return text;
}

/// Token b < 256 is byte b; 256 "he", 257 "ll", 258 "hell", 259 "Ġhe", 260 <|end|> (control), 261 <mark>
/// (user-defined).
Tokenizer::Parts tiny_parts() {
  Tokenizer::Parts parts;
  parts.file = "tiny.gguf";
  parts.pre_tokenizer = "gpt-2";
  for (int b = 0; b < 256; ++b) parts.tokens.push_back(byte_spelling(b));
  for (const char* token : {"he", "ll", "hell", "Ġhe", "<|end|>", "<mark>"}) parts.tokens.push_back(token);
  parts.merges = {"h e", "l l", "he ll", "Ġ he"};
  parts.token_types.assign(parts.tokens.size(), 1);
  parts.token_types[260] = 3;
  parts.token_types[261] = 4;
  return parts;
}

std::string message_of(const Tokenizer::Parts& parts) {
  try {
    Tokenizer::from_parts(parts);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(Tokenizer, MergesByRankInsideWords) {
  const Tokenizer tokenizer = Tokenizer::from_parts(tiny_parts());
  EXPECT_THAT(tokenizer.encode("hello hell he"), ElementsAre(258, 'o', ' ', 258, 259));
  EXPECT_EQ(tokenizer.decode(tokenizer.encode("hello hell he")), "hello hell he");
  EXPECT_EQ(tokenizer.encode(""), std::vector<Token>{});
}

TEST(Tokenizer, MatchesSpecialTokensOnlyWhenAsked) {
  const Tokenizer tokenizer = Tokenizer::from_parts(tiny_parts());
  EXPECT_THAT(tokenizer.encode("he<|end|><mark>he", true), ElementsAre(256, 260, 261, 256));
  EXPECT_THAT(tokenizer.encode("<mark>", false), ElementsAre(261));
  EXPECT_EQ(tokenizer.encode("<|end|>", false).size(), 7u);
  EXPECT_TRUE(tokenizer.is_special(260));
  EXPECT_FALSE(tokenizer.is_special(261));
  EXPECT_THAT(tokenizer.end_of_generation(), ElementsAre(260));
  EXPECT_EQ(tokenizer.decode(std::vector<Token>{256, 260}, true), "he");
  EXPECT_EQ(tokenizer.decode(std::vector<Token>{256, 260}), "he<|end|>");
}

TEST(Tokenizer, RefusesBrokenParts) {
  Tokenizer::Parts parts = tiny_parts();
  parts.tokens[7] = "he";
  EXPECT_THAT(message_of(parts),
              HasSubstr("tiny.gguf: tokenizer.ggml.tokens: got \"he\" both as token 7 and as token 256"));
  parts = tiny_parts(), parts.merges[1] = "l x y";
  EXPECT_THAT(message_of(parts), HasSubstr("tokenizer.ggml.merges/1: got \"l x y\""));
  parts = tiny_parts(), parts.merges.push_back("o o");
  EXPECT_THAT(message_of(parts), HasSubstr("merges/4: got \"oo\" in \"o o\", expected a token"));
  parts = tiny_parts(), parts.ids.eos = 262;
  EXPECT_THAT(message_of(parts), HasSubstr("id of the eos token: got 262, expected 0..261"));
  parts = tiny_parts(), parts.pre_tokenizer = "falcon";
  EXPECT_THAT(message_of(parts),
              HasSubstr("tokenizer.ggml.pre: got \"falcon\", expected one of default, gpt-2, phi-2, "));
}

TEST(Tokenizer, ReadsIllFormedUtf8AsPythonReplaces) {
  // Python 3: bytes.decode("utf-8", "replace"), the maximal subparts of Unicode 16, table 3-8.
  const std::pair<std::string, std::string> cases[] = {
      {"\xE2\x82", "\uFFFD"},
      {"\xE2\x28\xA1", "\uFFFD(\uFFFD"},
      {"\xF0\x9F\x98", "\uFFFD"},
      {"\xED\xA0\x80", "\uFFFD\uFFFD\uFFFD"},
      {"\xC0\xAF", "\uFFFD\uFFFD"},
      {"\xF4\x90\x80\x80", "\uFFFD\uFFFD\uFFFD\uFFFD"},
      {"\xF0\x80\x80", "\uFFFD\uFFFD\uFFFD"},
      {"\xC3\xA9\xFF", "é\uFFFD"},
  };
  const Tokenizer tokenizer = Tokenizer::from_parts(tiny_parts());
  for (const auto& [bytes, text] : cases) {
    EXPECT_EQ(unicode::replace_invalid(bytes), text);
    EXPECT_EQ(tokenizer.decode(tokenizer.encode(bytes)), text);
  }
}

TEST(Tokenizer, SplitsAsThePatternsDo) {
  using Words = std::vector<std::string_view>;
  const auto smollm = std::vector{SplitStep::kDigits, SplitStep::kGpt2};
  EXPECT_EQ(split_words(smollm, "a  1"), (Words{"a", "  ", "1"}));
  EXPECT_EQ(split_words({SplitStep::kGpt2}, "a  1"), (Words{"a", " ", " 1"}));
  EXPECT_EQ(split_words({SplitStep::kGpt2}, "we'll DON'T\n\n x"),
            (Words{"we", "'ll", " DON", "'", "T", "\n\n", " x"}));
  EXPECT_EQ(split_words({SplitStep::kLlama3}, "DON'T 12345 \n\n  x;\n"),
            (Words{"DON", "'T", " ", "123", "45", " \n\n", " ", " x", ";\n"}));
  EXPECT_EQ(split_words({SplitStep::kQwen2}, "123"), (Words{"1", "2", "3"}));
  // Ignoring case, U+017F is an s. U+180E is no space, U+31350 is a letter, U+11DE0 a digit but no \p{N}.
  EXPECT_EQ(split_words({SplitStep::kLlama3}, "it'\u017Fo"), (Words{"it", "'\u017F", "o"}));
  EXPECT_EQ(split_words({SplitStep::kGpt2}, "a\u180E\U00031350!"), (Words{"a", "\u180E", "\U00031350", "!"}));
  EXPECT_EQ(split_words(smollm, "!\U00011DE0!"), (Words{"!", "\U00011DE0", "!"}));
  EXPECT_EQ(split_words({SplitStep::kGpt2}, "!\U00011DE0!"), (Words{"!\U00011DE0!"}));
  EXPECT_EQ(split_words({}, "any thing"), (Words{"any thing"}));
  EXPECT_EQ(split_words(smollm, ""), Words{});
}

TEST(Tokenizer, HashesSpellingsAndMerges) {
  Tokenizer::Parts parts = tiny_parts();
  std::string text;
  for (const std::string& token : parts.tokens) text += token + '\0';
  for (const std::string& merge : parts.merges) text += merge + '\0';
  EXPECT_EQ(Tokenizer::from_parts(parts).sha256(), sha256_hex(text));
  std::swap(parts.merges[0], parts.merges[1]);
  EXPECT_NE(Tokenizer::from_parts(parts).sha256(), sha256_hex(text));
}

TEST(Tokenizer, TakesLongWordsInLinearithmicTime) {
  const Tokenizer tokenizer = Tokenizer::from_parts(tiny_parts());
  std::string text;
  while (text.size() < 1'000'000) text += "hehellhxll";
  const std::vector<Token> ids = tokenizer.encode(text);  // quadratic merging would take minutes
  EXPECT_EQ(tokenizer.decode(ids), text);
  EXPECT_THAT(std::vector(ids.begin(), ids.begin() + 5), ElementsAre(256, 258, 'h', 'x', 257));
  EXPECT_EQ(tokenizer.decode(tokenizer.encode(std::string(1'000'000, ' '))).size(), 1'000'000u);
}

TEST(Tokenizer, IdsPastTheVocabularyHaveNoText) {
  const Tokenizer tokenizer = Tokenizer::from_parts(tiny_parts());
  EXPECT_EQ(tokenizer.vocab_size(), 262);
  EXPECT_EQ(tokenizer.decode(std::vector<Token>{'a', 262, 100000, 'b'}), "ab");
  EXPECT_FALSE(tokenizer.is_special(262));
  EXPECT_THROW(tokenizer.token_bytes(-1), Bug);
  EXPECT_EQ(tokenizer.find("Ġhe"), std::optional<Token>(259));
  EXPECT_EQ(tokenizer.token_bytes(259), " he");
  EXPECT_EQ(tokenizer.spelling(259), "Ġhe");
  EXPECT_EQ(tokenizer.find(" he"), std::nullopt);
}

TEST(Tokenizer, BytesWithoutTokenVanishButAsciiMustBeThere) {
  Tokenizer::Parts parts = tiny_parts();
  parts.tokens[0xF1] = "unused-1";
  const Tokenizer tokenizer = Tokenizer::from_parts(parts);
  EXPECT_EQ(tokenizer.decode(tokenizer.encode("a\U00040000b")),
            "a\x80\x80\x80"
            "b");
  parts.tokens['q'] = "unused-2";
  EXPECT_THAT(message_of(parts), HasSubstr("no token for byte 0x71, written \"q\""));
}

TEST(Tokenizer, RefusesMoreBrokenParts) {
  Tokenizer::Parts parts = tiny_parts();
  parts.model = "bert";
  EXPECT_THAT(message_of(parts), HasSubstr("tokenizer.ggml.model: got \"bert\", expected \"gpt2\""));
  parts = tiny_parts(), parts.token_types.pop_back();
  EXPECT_THAT(message_of(parts), HasSubstr("got 261 types, expected one for each of 262 tokens"));
  parts = tiny_parts(), parts.merges.push_back("h e");
  EXPECT_THAT(message_of(parts), HasSubstr("merges/4: got \"h e\" a second time"));
  parts = tiny_parts(), parts.tokens[260] = std::string(1025, 'x');
  EXPECT_THAT(message_of(parts), HasSubstr("token 260 of 1025 bytes"));
  parts = tiny_parts(), parts.ids.bos = -1;
  EXPECT_THAT(message_of(parts), HasSubstr("bos token: got -1"));
  parts = tiny_parts(), parts.tokens.clear(), parts.token_types.clear();
  EXPECT_THAT(message_of(parts), HasSubstr("no tokens"));
}

TEST(Tokenizer, TokensWithoutTextHaveTheNamesThatLlamaCppGivesThem) {
  Tokenizer::Parts parts = tiny_parts();
  parts.tokens[256] = parts.tokens[260] = "";
  parts.merges = {"l l", "\u0120 h"};
  parts.tokens[259] = "\u0120h";
  const Tokenizer tokenizer = Tokenizer::from_parts(parts);
  EXPECT_EQ(tokenizer.spelling(256), "[EMPTY_256]");
  EXPECT_THAT(tokenizer.encode("he hell[EMPTY_260]", true), ElementsAre('h', 'e', 259, 'e', 257, 260));
}

TEST(StreamDecoder, HoldsUnfinishedCharactersBack) {
  StreamDecoder stream(Tokenizer::from_parts(tiny_parts()));
  EXPECT_EQ(stream.push(0xE2), "");
  EXPECT_EQ(stream.push(0x82), "");
  EXPECT_EQ(stream.push(260), "");  // a special token, left out
  EXPECT_EQ(stream.push(0xAC), "€");
  EXPECT_EQ(stream.push(0xE2), "");
  EXPECT_EQ(stream.push(256), "\uFFFDhe");
  EXPECT_EQ(stream.push(0xF0), "");
  EXPECT_EQ(stream.push(0x9F), "");
  EXPECT_EQ(stream.finish(), "\uFFFD");
  EXPECT_EQ(stream.finish(), "");
}

/// A valid tokenizer.json. Each test below breaks one thing.
nlohmann::json tiny_json() {
  const Tokenizer::Parts parts = tiny_parts();
  nlohmann::json json = {{"added_tokens", nlohmann::json::array()},
                         {"normalizer", nullptr},
                         {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}}},
                         {"post_processor", nullptr},
                         {"decoder", {{"type", "ByteLevel"}}},
                         {"model", {{"type", "BPE"}, {"merges", parts.merges}}}};
  for (Token id = 0; id < 260; ++id) json["model"]["vocab"][parts.tokens[id]] = id;
  json["added_tokens"].push_back(
      {{"id", 260}, {"content", "<|end|>"}, {"special", true}, {"normalized", false}});
  json["added_tokens"].push_back(
      {{"id", 261}, {"content", "<mark>"}, {"special", false}, {"normalized", false}});
  return json;
}

std::string message_of_json(const std::string& text) {
  try {
    Tokenizer::from_json(text, "t.json");
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(TokenizerJson, EqualsTheSameTokenizerFromGguf) {
  const Tokenizer of_parts = Tokenizer::from_parts(tiny_parts());
  nlohmann::json json = tiny_json();
  const Tokenizer of_json = Tokenizer::from_json(json.dump(), "t.json", {.eos = 260});
  EXPECT_EQ(of_json.sha256(), of_parts.sha256());
  EXPECT_EQ(of_json.encode("hello <mark><|end|>hell", true),
            of_parts.encode("hello <mark><|end|>hell", true));
  EXPECT_EQ(of_json.eos(), std::optional<Token>(260));
  json["model"]["merges"] = nlohmann::json::array({{"h", "e"}, {"l", "l"}, {"he", "ll"}, {"Ġ", "he"}});
  EXPECT_EQ(Tokenizer::from_json(json.dump(), "t.json").sha256(), of_parts.sha256());
}

TEST(TokenizerJson, TemplateProcessorGivesBos) {
  nlohmann::json json = tiny_json();
  json["post_processor"] = nlohmann::json::parse(
      R"({"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<|end|>","type_id":0}},{"Sequence":{"id":"A","type_id":0}}]})");
  const Tokenizer tokenizer = Tokenizer::from_json(json.dump(), "t.json");
  EXPECT_TRUE(tokenizer.add_bos());
  EXPECT_EQ(tokenizer.bos(), std::optional<Token>(260));
}

TEST(TokenizerJson, FindsSingleWordsWhereNoWordIsBesideThem) {
  nlohmann::json json = tiny_json();
  json["added_tokens"][1]["single_word"] = true;
  const Tokenizer tokenizer = Tokenizer::from_json(json.dump(), "t.json");
  const auto found = [&](const std::string& text) { return std::ranges::count(tokenizer.encode(text), 261); };
  EXPECT_EQ(found("<mark>"), 1);
  EXPECT_EQ(found("x <mark>, <mark>"), 2);
  EXPECT_EQ(found("<mark><mark>"), 2);
  for (const char* word : {"x", "_", "1", "\u0661", "\u00E9", "\u0301", "\u200D", "\U00013000"}) {
    EXPECT_EQ(found(std::string("<mark>") + word), 0) << word;
    EXPECT_EQ(found(std::string(word) + "<mark>"), 0) << word;
  }
  for (const std::string other : {" ", "-", "\u00BD", "\u2581", "\U0001F600", "\u3000"})
    EXPECT_EQ(found(other + "<mark>" + other), 1) << other;
}

TEST(TokenizerJson, RefusesEverythingElseWithItsPlace) {
  EXPECT_THAT(message_of_json("{\n  \"model\": }"), HasSubstr("t.json: line 2, column 12"));
  EXPECT_THAT(message_of_json("[]"), HasSubstr("t.json: /: got [], expected an object"));
  EXPECT_THAT(message_of_json("{}"), HasSubstr("no \"model\""));
  const auto broken = [](const std::string& pointer, const nlohmann::json& value) {
    nlohmann::json json = tiny_json();
    json[nlohmann::json::json_pointer(pointer)] = value;
    return message_of_json(json.dump());
  };
  EXPECT_THAT(broken("/model/type", "WordPiece"),
              HasSubstr("/model/type: got \"WordPiece\", expected \"BPE\""));
  EXPECT_THAT(broken("/model/vocab/he", 4358),
              HasSubstr("/model/vocab/he: got 4358, expected 0..4357 (only few ids may be unused)"));
  EXPECT_THAT(broken("/model/vocab/he", -1), HasSubstr("/model/vocab/he: got -1, expected 0..4357"));
  EXPECT_THAT(broken("/model/vocab/he", 256.5), HasSubstr("expected a token id"));
  EXPECT_THAT(broken("/model/vocab/he", 257), HasSubstr("id 257"));
  EXPECT_THAT(broken("/model/vocab", 3), HasSubstr("expected an object of token to id"));
  EXPECT_THAT(broken("/model/merges/0", "h"), HasSubstr("/model/merges/0: got \"h\", expected two tokens"));
  EXPECT_THAT(broken("/model/merges/0", {1, 2}), HasSubstr("/model/merges/0/0: got 1, expected a string"));
  EXPECT_THAT(broken("/model/merges", nullptr), HasSubstr("expected an array"));
  EXPECT_THAT(broken("/model/unk_token", "<unk>"), HasSubstr("expected a token of /model/vocab"));
  EXPECT_THAT(broken("/model/dropout", 0.1), HasSubstr("/model/dropout"));
  EXPECT_THAT(broken("/model/continuing_subword_prefix", "##"), HasSubstr("Word affixes"));
  EXPECT_THAT(broken("/model/ignore_merges", 1), HasSubstr("expected true or false"));
  EXPECT_THAT(broken("/added_tokens/0/single_word", 1), HasSubstr("expected true or false"));
  EXPECT_THAT(broken("/added_tokens/0/id", 9000), HasSubstr("/added_tokens/0/id: got 9000"));
  EXPECT_THAT(
      broken("/model/vocab/he", 260),
      HasSubstr("/added_tokens/0/id: got id 260 for \"<|end|>\", expected another id: \"he\" has this one"));
  EXPECT_THAT(broken("/normalizer", {{"type", "Lowercase"}}), HasSubstr("/normalizer"));
  EXPECT_THAT(broken("/pre_tokenizer", nullptr), HasSubstr("expected ByteLevel"));
  EXPECT_THAT(broken("/pre_tokenizer/add_prefix_space", true), HasSubstr("add_prefix_space false"));
  EXPECT_THAT(broken("/decoder/type", "WordPiece"), HasSubstr("/decoder"));
  EXPECT_THAT(broken("/post_processor", {{"type", "BertProcessing"}}), HasSubstr("/post_processor"));
  nlohmann::json split = {{"type", "Split"}, {"pattern", {{"Regex", "\\w+"}}}, {"behavior", "Isolated"}};
  EXPECT_THAT(broken("/pre_tokenizer",
                     {{"type", "Sequence"}, {"pretokenizers", {split, tiny_json()["pre_tokenizer"]}}}),
              HasSubstr("/pre_tokenizer/pretokenizers/0/pattern: got {\"Regex\":\"\\\\w+\"}, expected the "
                        "pattern of GPT-2"));
}

// Cases of Unicode Standard Annex 15 and of its conformance test, as Unicode 9 has them.
TEST(NormalForm, ComposesCanonically) {
  const std::pair<std::string, std::string> cases[] = {
      {"cafe\u0301", "caf\u00E9"},
      {"s\u0307\u0323", "\u1E69"},       // marks are put in order first
      {"\u0958", "\u0915\u093C"},        // excluded from composition
      {"\u212B", "\u00C5"},              // a singleton
      {"\u1112\u1161\u11AB", "\uD55C"},  // Hangul
      {"a\u0315\u0300\u05AE\u0300b", "\u00E0\u05AE\u0300\u0315b"},
      {"\u0344", "\u0308\u0301"},
      {"e\u0334\u0301", "\u00E9\u0334"},  // a mark of another class does not block
      {"a\u0301\u0301", "\u00E1\u0301"},  // one of the same class does
      {"plain", "plain"},
  };
  for (const auto& [text, composed] : cases) EXPECT_EQ(unicode::to_nfc(text), composed);
}

}  // namespace
}  // namespace speclab::tokenizer_test
