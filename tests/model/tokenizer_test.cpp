#include "core/model/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/error.h"
#include "core/model/tokenizer_spec.h"
#include "core/model/unicode.h"

namespace speclab {
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
  EXPECT_THAT(message_of(parts), HasSubstr("smollm, gpt-2, default, llama-bpe, qwen2"));
}

}  // namespace
}  // namespace speclab
