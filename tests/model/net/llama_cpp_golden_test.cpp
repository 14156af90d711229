// Compares how GGUF tokenizers are read with llama.cpp, through the golden file of
// scripts/oracle/llama_cpp.py.
#include <gmock/gmock.h>

#include <fstream>
#include <sstream>

#include "core/base/error.h"
#include "core/model/files/checkpoint.h"
#include "core/model/text/gguf_tokenizer_rules.h"
#include "core/model/text/sentencepiece_model.h"
#include "tests/model/files/gguf_files.h"
#include "tests/model/files/model_files.h"
#include "tests/model/text/tokenizer_golden.h"

namespace speclab::llama_cpp_golden_test {
namespace {

using namespace golden;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsSupersetOf;
using W = fixtures::GgufWriter;

Tokenizer::Parts parts_with(const std::string& pre_tokenizer) {
  Tokenizer::Parts parts;
  parts.file = "v.gguf";
  parts.pre_tokenizer = pre_tokenizer;
  return parts;
}

struct SharedVocabulary {
  std::vector<std::string> tokens, merges;
};

SharedVocabulary shared_vocabulary() {
  const Json model = Json::parse(read_file(kGolden / "pre_tokenizers.json"))["model"];
  SharedVocabulary out;
  out.tokens.resize(model["vocab"].size());
  for (const auto& item : model["vocab"].items()) out.tokens.at(item.value()) = item.key();
  for (const Json& merge : model["merges"])
    out.merges.push_back(merge[0].get<std::string>() + " " + merge[1].get<std::string>());
  return out;
}

Json llama_cpp_golden() { return Json::parse(read_file(kGolden / "llama_cpp.json")); }

TEST(LlamaCppGolden, PreTokenizersGiveItsIds) {
  const Json golden = llama_cpp_golden()["pre_tokenizers"];
  const SharedVocabulary vocabulary = shared_vocabulary();
  const Generator generator;
  std::vector<std::string> texts;
  std::istringstream indices(golden["indices"].get<std::string>());
  for (std::uint64_t index; indices >> index;) texts.push_back(generator.text(index));
  ASSERT_GT(texts.size(), 100U);
  std::set<std::string> compared = {"deepseek-llm", "deepseek-coder"};  // read as `tokenizers` reads them
  for (const Json& group : golden["groups"]) {
    const std::vector<std::string> hashes = unpack(group["strings"]);
    ASSERT_EQ(hashes.size(), texts.size());
    for (const std::string name : group["names"]) {
      SCOPED_TRACE(name);
      compared.insert(name);
      Tokenizer::Parts parts = parts_with(name);
      parts.tokens = vocabulary.tokens, parts.merges = vocabulary.merges;
      parts.token_types.assign(parts.tokens.size(), 1);
      parts.ids.bos = 7;
      const Tokenizer tokenizer = Tokenizer::from_parts(std::move(parts));
      EXPECT_EQ(tokenizer.add_bos(), group["add_bos"].get<bool>());
      Tally tally;
      for (std::size_t i = 0; i < texts.size(); ++i) {
        const std::vector<Token> ids = tokenizer.encode(texts[i]);
        tally.compare(digest(ids), hashes[i], [&] { return escaped(texts[i]) + " gave " + joined(ids); });
      }
    }
  }
  for (const GgufPreTokenizer& known : gguf_pre_tokenizers())
    EXPECT_TRUE(compared.contains(std::string(known.name))) << known.name;
  EXPECT_EQ(compared.size(), gguf_pre_tokenizers().size());
}

TEST(LlamaCppGolden, OtherPreTokenizersAreRefusedByName) {
  const Json refused = llama_cpp_golden()["pre_tokenizers"]["refused"];
  ASSERT_GT(refused.size(), 30U);
  for (const std::string name : refused) {
    try {
      Tokenizer::from_parts(parts_with(name));
      ADD_FAILURE() << name;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("v.gguf: tokenizer.ggml.pre: got \"" + name +
                                          "\", expected one of default, gpt-2"));
    }
  }
}

/// The same file as `contents` of the oracle makes.
W gguf_as_the_oracle(const Json& settings) {
  const bool pieces = settings["model"] == "llama";
  std::vector<std::string> tokens, merges;
  std::vector<float> scores;
  if (pieces) {
    const SentencePieceSpec spec =
        parse_sentencepiece_file(read_file(kGolden / "sp_bpe.model"), "sp_bpe.model");
    for (const SentencePieceSpec::Piece& piece : spec.pieces) tokens.push_back(piece.text);
    if (settings.contains("first")) {
      tokens.erase(tokens.begin(), tokens.begin() + 3);
      tokens.insert(tokens.begin(), settings["first"].begin(), settings["first"].end());
      std::ranges::replace(tokens, std::string("\u2581\u2581"), std::string("  "));
    }
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      const std::size_t more = tokens.size() - spec.pieces.size();
      scores.push_back(spec.pieces[i < more ? 0 : i - more].score);
    }
  } else {
    SharedVocabulary shared = shared_vocabulary();
    tokens = std::move(shared.tokens), merges = std::move(shared.merges);
    tokens.insert(tokens.end(), settings["extra"].begin(), settings["extra"].end());
  }
  const auto id = [&](const std::string& token) {
    return static_cast<std::uint32_t>(std::ranges::find(tokens, token) - tokens.begin());
  };
  fixtures::Shape shape = fixtures::tiny_shape();
  shape.vocab = static_cast<int>(tokens.size());
  W out = fixtures::gguf_writer(fixtures::random_llama(shape, 1));
  out.add("tokenizer.ggml.model", settings["model"].get<std::string>().c_str());
  if (settings.contains("pre")) out.add("tokenizer.ggml.pre", settings["pre"].get<std::string>().c_str());
  out.add("tokenizer.ggml.tokens", W::kArray, W::strings(tokens));
  if (!pieces) out.add("tokenizer.ggml.merges", W::kArray, W::strings(merges));
  if (pieces) {
    std::string bytes;
    for (const float score : scores) fixtures::append(bytes, score);
    out.add("tokenizer.ggml.scores", W::kArray, W::array(W::kF32, scores.size(), bytes));
  }
  if (settings.contains("types")) {
    std::vector<std::int32_t> types;
    for (const std::string& token : tokens)
      types.push_back(pieces && token.size() == 6 && token.starts_with("<0x") ? 6 : 1);
    for (const auto& item : settings["types"].items()) types.at(id(item.key())) = item.value();
    std::string bytes;
    for (const std::int32_t type : types) fixtures::append(bytes, type);
    out.add("tokenizer.ggml.token_type", W::kArray, W::array(W::kI32, types.size(), bytes));
  }
  if (!settings.contains("keys")) return out;
  for (const auto& item : settings["keys"].items()) {
    const std::string key = "tokenizer.ggml." + item.key();
    if (item.value().is_boolean()) {
      out.add(key, W::kBool, std::string(1, item.value().get<bool>() ? '\1' : '\0'));
    } else {
      out.add(key, item.value().is_string() ? id(item.value()) : item.value().get<std::uint32_t>());
    }
  }
  return out;
}

TEST(LlamaCppGolden, FilesAreReadAsItReadsThem) {
  const Json golden = llama_cpp_golden();
  ASSERT_EQ(golden["files"].size(), 9U);
  for (const Json& file : golden["files"]) {
    SCOPED_TRACE(file["name"]);
    const Json& expected = file["expected"];
    fixtures::TempDir dir;
    fixtures::write_file(dir.path() / "m.gguf", gguf_as_the_oracle(file).file());
    const Tokenizer tokenizer = Checkpoint::open(dir.path() / "m.gguf").tokenizer().value();
    EXPECT_EQ(tokenizer.bos().value_or(-1), expected["bos"].get<Token>());
    EXPECT_EQ(tokenizer.eos().value_or(-1), expected["eos"].get<Token>());
    EXPECT_EQ(tokenizer.add_bos(), expected["add_bos"].get<bool>());
    std::vector<Token> special;
    for (Token token = 0; token < tokenizer.vocab_size(); ++token) {
      if (tokenizer.is_special(token)) special.push_back(token);
    }
    std::vector<Token> controls = expected["special"];
    const Token unk = tokenizer.unk().value_or(-1);  // has no type if the file has no types
    std::erase(special, unk), std::erase(controls, unk);
    EXPECT_EQ(special, controls);
    const std::vector<Token> ends = expected["ends"];
    EXPECT_THAT(ends, IsSupersetOf(tokenizer.end_of_generation()));
    if (!file.contains("types")) {
      EXPECT_EQ(tokenizer.end_of_generation(), ends);
    }
    const std::string text = file["text"];
    EXPECT_EQ(tokenizer.encode(text), expected["ids"].get<std::vector<Token>>());
    EXPECT_EQ(tokenizer.encode(text, true), expected["ids_of_prompt"].get<std::vector<Token>>());
    EXPECT_EQ(tokenizer.decode(tokenizer.encode(text)), text);
  }
}

TEST(LlamaCppGolden, ItIsSaidWhatWasAssumed) {
  const Json golden = llama_cpp_golden();
  const auto assumed = [&](std::size_t i) {
    fixtures::TempDir dir;
    fixtures::write_file(dir.path() / "m.gguf", gguf_as_the_oracle(golden["files"][i]).file());
    return Checkpoint::open(dir.path() / "m.gguf").tokenizer().value().assumed();
  };
  EXPECT_THAT(
      assumed(0),
      ElementsAre(
          HasSubstr("tokenizer.ggml.pre is missing: text is split by llama.cpp's default rule"),
          HasSubstr("token_type is missing: control tokens are "
                    "<|im_end|> (360), <|endoftext|> (466), <|fim_pad|> (1001), <|fim_suffix|> (1002)")));
  EXPECT_THAT(assumed(1),
              ElementsAre("tokenizer.ggml.token_type is not 1..6 for 3 of 1008 tokens: they are text"));
  EXPECT_THAT(
      assumed(2),
      ElementsAre(
          "tokenizer.ggml.add_bos_token is missing: prompts without a chat template begin with <s> (1005)"));
  EXPECT_THAT(assumed(3), ElementsAre());
  EXPECT_THAT(assumed(4), ElementsAre());
  EXPECT_THAT(
      assumed(5),
      ElementsAre(
          "tokenizer.ggml.eos_token_id is 99999, which is no token: read as if it were missing",
          "tokenizer.ggml.padding_token_id is 4294967295, which is no token: read as if it were missing"));
  EXPECT_THAT(
      assumed(7),
      ElementsAre(HasSubstr("token_type is missing"), "tokenizer.ggml.bos_token_id is missing: <s> (1)",
                  "tokenizer.ggml.eos_token_id is missing: </s> (2)",
                  "tokenizer.ggml.unknown_token_id is missing: <unk> (0)",
                  HasSubstr("add_bos_token is missing: prompts without a chat template begin with <s> (1)")));
  EXPECT_THAT(assumed(8), ElementsAre());
}

}  // namespace
}  // namespace speclab::llama_cpp_golden_test
