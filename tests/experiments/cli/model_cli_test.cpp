// `speclab model` reports what it assumes where a file says nothing.
#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "tests/experiments/cli/speclab_fixture.h"
#include "tests/model/files/gguf_files.h"

namespace speclab::model_cli_test {
namespace {

using namespace speclab::fixtures;

TEST_F(Speclab, ModelSaysWhatWasAssumed) {
  Shape shape = tiny_shape();
  shape.vocab = kByteVocab;
  GgufWriter writer = gguf_writer(random_llama(shape, 1));
  add_byte_tokenizer(writer);
  writer.add("tokenizer.ggml.add_bos_token", GgufWriter::kBool, std::string(1, '\0'));
  write_file(dir() / "whole.gguf", writer.file());
  EXPECT_THAT(run({"model", "whole.gguf"}).out,
              AllOf(HasSubstr("<|im_end|> (257)"), Not(HasSubstr("assumed"))));
  EXPECT_EQ(json::parse(run({"model", "whole.gguf", "--json"}).out)["assumed"], json::array());

  for (const char* key : {"llama.rope.freq_base", "tokenizer.ggml.pre", "tokenizer.ggml.token_type"})
    writer.erase(key);
  write_file(dir() / "bare.gguf", writer.file());
  EXPECT_THAT(
      run({"model", "bare.gguf"}).out,
      AllOf(
          HasSubstr("\n  assumed       llama.rope.freq_base is missing: 10000 is used\n"),
          HasSubstr(
              "\n  assumed       tokenizer.ggml.pre is missing: text is split by llama.cpp's default rule"),
          HasSubstr(
              "\n  assumed       tokenizer.ggml.token_type is missing: control tokens are <|im_end|> (257), "
              "recognised by their names; all other tokens are text, also where a chat template writes "
              "them\n")));
  EXPECT_EQ(json::parse(run({"model", "bare.gguf", "--json"}).out)["assumed"].size(), 3U);
  EXPECT_EQ(run({"generate", "--model", "bare.gguf", "--prompt", "hi", "--set", "max_tokens=2"}).code, 0);
}

}  // namespace
}  // namespace speclab::model_cli_test
