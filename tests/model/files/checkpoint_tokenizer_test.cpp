#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <functional>

#include "core/base/error.h"
#include "core/model/files/checkpoint.h"
#include "core/model/text/sentencepiece_model.h"
#include "tests/model/files/gguf_files.h"
#include "tests/model/files/model_files.h"

namespace speclab::checkpoint_tokenizer_test {
namespace {

using namespace speclab::fixtures;
using ::testing::HasSubstr;
using W = GgufWriter;

const std::filesystem::path kGolden = SPECLAB_SOURCE_DIR "/tests/golden/tokenizer";
const std::string kText = "Hello world, it's 42!";

std::string model_bytes(const std::string& name) {
  std::ifstream in(kGolden / name, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(in), {});
}

Shape shape_for(const SentencePieceSpec& spec) {
  Shape shape = tiny_shape();
  shape.vocab = static_cast<int>(spec.pieces.size());
  return shape;
}

W gguf_with(const SentencePieceSpec& spec) {
  W writer = gguf_writer(random_llama(shape_for(spec), 1));
  std::vector<std::string> tokens;
  std::string scores, types;
  for (const SentencePieceSpec::Piece& piece : spec.pieces) {
    tokens.push_back(piece.text);
    append(scores, piece.score);
    append(types, std::int32_t{piece.type});
  }
  const std::uint64_t count = tokens.size();
  writer.add("tokenizer.ggml.model", spec.kind == SentencePieceSpec::Kind::kBpe ? "llama" : "t5");
  writer.add("tokenizer.ggml.tokens", W::kArray, W::strings(tokens));
  writer.add("tokenizer.ggml.scores", W::kArray, W::array(W::kF32, count, scores));
  writer.add("tokenizer.ggml.token_type", W::kArray, W::array(W::kI32, count, types));
  writer.add("tokenizer.ggml.bos_token_id", 1u);
  writer.add("tokenizer.ggml.eos_token_id", 2u);
  writer.add("tokenizer.ggml.add_space_prefix", W::kBool,
             spec.add_dummy_prefix ? std::string("\1") : std::string(1, '\0'));
  writer.add("tokenizer.ggml.remove_extra_whitespaces", W::kBool,
             spec.remove_extra_whitespaces ? std::string("\1") : std::string(1, '\0'));
  if (!spec.character_map.empty()) {
    writer.add("tokenizer.ggml.precompiled_charsmap", W::kArray,
               W::array(W::kU8, spec.character_map.size(), spec.character_map));
  }
  return writer;
}

TEST(CheckpointTokenizer, GgufWithSentencePiece) {
  for (const std::string file : {"sp_bpe.model", "sp_bpe_plain.model", "sp_unigram.model"}) {
    const SentencePieceSpec spec = parse_sentencepiece_file(model_bytes(file), file);
    TempDir dir;
    write_file(dir.path() / "m.gguf", gguf_with(spec).file());
    const auto tokenizer = Checkpoint::open(dir.path() / "m.gguf").tokenizer();
    ASSERT_TRUE(tokenizer);
    const Tokenizer expected = Tokenizer::from_sentencepiece(model_bytes(file), file);
    for (const std::string& text : {kText, std::string("  two  ﬁne ①  ")})
      EXPECT_EQ(tokenizer->encode(text), expected.encode(text)) << file;
    EXPECT_EQ(tokenizer->sha256(), expected.sha256());
    EXPECT_EQ(tokenizer->eos(), 2);
    EXPECT_EQ(tokenizer->add_bos(), spec.kind == SentencePieceSpec::Kind::kBpe);
  }
}

TEST(CheckpointTokenizer, GgufWithSentencePieceKeysOfAnotherType) {
  const SentencePieceSpec spec = parse_sentencepiece_file(model_bytes("sp_bpe.model"), "t");
  const auto error_with = [&](const std::function<void(W&)>& change) -> std::string {
    W writer = gguf_with(spec);
    change(writer);
    TempDir dir;
    write_file(dir.path() / "m.gguf", writer.file());
    try {
      Checkpoint::open(dir.path() / "m.gguf").tokenizer();
      return "no error";
    } catch (const Error& error) {
      return error.what();
    }
  };
  const std::uint64_t count = spec.pieces.size();
  EXPECT_EQ(error_with([](W&) {}), "no error");
  EXPECT_THAT(error_with([](W& w) { w.erase("tokenizer.ggml.scores"); }),
              HasSubstr("tokenizer.ggml.scores: got 0"));
  EXPECT_THAT(error_with([&](W& w) {
                w.erase("tokenizer.ggml.scores");
                w.add("tokenizer.ggml.scores", W::kArray,
                      W::array(W::kI32, count, std::string(4 * count, 'a')));
              }),
              HasSubstr("scores: got an array of another type, expected an array of floats"));
  EXPECT_THAT(error_with([](W& w) {
                w.add("tokenizer.ggml.precompiled_charsmap", W::kArray, W::array(W::kI32, 1, "abcd"));
              }),
              HasSubstr("precompiled_charsmap: got an array of another type, expected an array of bytes"));
  EXPECT_THAT(error_with([](W& w) {
                w.add("tokenizer.ggml.precompiled_charsmap", W::kArray, W::array(W::kU8, 4, "abcd"));
              }),
              HasSubstr("character map: got 4 bytes"));
  EXPECT_THAT(error_with([](W& w) { w.set("tokenizer.ggml.add_space_prefix", 1u); }),
              HasSubstr("expected a bool"));
}

TEST(CheckpointTokenizer, DirectoryWithTokenizerModel) {
  const std::string bytes = model_bytes("sp_bpe.model");
  const SentencePieceSpec spec = parse_sentencepiece_file(bytes, "t");
  TempDir dir;
  write_huggingface(dir.path(), random_llama(shape_for(spec), 1));
  EXPECT_FALSE(Checkpoint::open(dir.path()).tokenizer());
  write_file(dir.path() / "tokenizer.model", bytes);
  const auto tokenizer = Checkpoint::open(dir.path()).tokenizer();
  ASSERT_TRUE(tokenizer);
  EXPECT_EQ(tokenizer->encode(kText), Tokenizer::from_sentencepiece(bytes, "t").encode(kText));
  EXPECT_TRUE(tokenizer->add_bos());
  write_file(dir.path() / "tokenizer_config.json", R"({"add_bos_token": false})");
  EXPECT_FALSE(Checkpoint::open(dir.path()).tokenizer()->add_bos());
}

}  // namespace
}  // namespace speclab::checkpoint_tokenizer_test
