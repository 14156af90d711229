// Prompts as tokens: template from the file or by name, and a single BOS.
#include "experiments/run/conversation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/base/json_text.h"
#include "core/backend/backend_choice.h"
#include "tests/experiments/cli/cli.h"
#include "tests/model/files/model_files.h"

namespace speclab::conversation_test {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// A tiny model whose tokenizer adds BOS (token 256) before a text.
std::filesystem::path model_with_bos(const std::string& name) {
  const std::filesystem::path folder = std::filesystem::path(::testing::TempDir()) / name;
  speclab::fixtures::Shape shape = speclab::fixtures::tiny_shape();
  shape.vocab = speclab::fixtures::kByteVocab;
  speclab::fixtures::write_tiny_llama(folder, shape, 1);
  speclab::fixtures::write_byte_tokenizer(folder);
  json tokenizer = parse_json(speclab::fixtures::Cli::read(folder / "tokenizer.json"), "tokenizer.json");
  tokenizer["post_processor"] = parse_json(
      R"({"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<|im_start|>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]})",
      "x");
  speclab::fixtures::write_file(folder / "tokenizer.json", tokenizer.dump());
  return folder;
}

std::vector<Token> tokens_of(const std::filesystem::path& model, const std::string& chat_template) {
  const ModelSet models(model.string(), make_backend({.backend = BackendKind::kCpu, .threads = 1}),
                        chat_template);
  PromptSpec prompt;
  prompt.turns = {"hi"};
  return Conversation(models, prompt, "").tokens();
}

TEST(Conversation, HasOneBosWhetherTheTokenizerOrTheTemplateAddsIt) {
  const std::filesystem::path folder = model_with_bos("conversation_bos");
  EXPECT_THAT(tokens_of(folder, "plain"), ElementsAre(256, 'h', 'i'));
  const std::vector<Token> gemma = tokens_of(folder, "gemma");
  EXPECT_EQ(gemma[0], 256);
  EXPECT_EQ(std::string(gemma.begin() + 1, gemma.end()),
            "<start_of_turn>user\nhi<end_of_turn>\n<start_of_turn>model\n");
  // The template of the file, ChatML, writes no BOS; the tokenizer adds one to plain texts only.
  const std::vector<Token> chatml = tokens_of(folder, "");
  EXPECT_EQ(chatml[0], 256);  // <|im_start|>
  EXPECT_EQ(chatml[1], 'u');
}

TEST(Conversation, AnUnknownTemplateNeedsAName) {
  const std::filesystem::path folder = model_with_bos("conversation_unknown");
  speclab::fixtures::write_file(folder / "tokenizer_config.json",
                                R"({"chat_template": "Q: {{ messages[0].content }} A:"})");
  EXPECT_EQ(tokens_of(folder, "plain").size(), 3u);
  EXPECT_GT(tokens_of(folder, "zephyr").size(), 3u);
  try {
    tokens_of(folder, "");
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(),
                HasSubstr("got \"Q: {{ messages[0].content }} A:\", expected one of the known families"));
  }
}

TEST(Conversation, ARenderedPromptIsEncodedAsItIs) {
  const ModelSet models(model_with_bos("conversation_rendered").string(),
                        make_backend({.backend = BackendKind::kCpu, .threads = 1}), "zephyr");
  PromptSpec prompt;
  prompt.renderer = "jinja2";
  prompt.turns = {"Q <|im_start|>hi"};
  // Neither the template nor BOS is added, and the special token is one token.
  EXPECT_THAT(Conversation(models, prompt, "").tokens(), ElementsAre('Q', ' ', 256, 'h', 'i'));
  try {
    Conversation(models, prompt, "Be brief.");
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("got a system message for a rendered prompt"));
  }
}

TEST(BackendChoice, AutoIsAUsableGpuUnlessANumericsClassIsAskedFor) {
  const std::string none = "no CUDA driver: libcuda.so.1 was not found";
  EXPECT_EQ(resolve_backend({}, none), BackendKind::kCpu);
  EXPECT_EQ(resolve_backend({}, ""), BackendKind::kCuda);
  EXPECT_EQ(resolve_backend({.numerics = "f32"}, ""), BackendKind::kCpu);
  EXPECT_EQ(resolve_backend({.threads = 2}, ""), BackendKind::kCuda);
  for (const BackendKind kind : {BackendKind::kCpu, BackendKind::kCuda, BackendKind::kSimulated}) {
    EXPECT_EQ(resolve_backend({.backend = kind}, none), kind);
    EXPECT_EQ(resolve_backend({.backend = kind}, ""), kind);
  }
}

TEST(BackendChoice, EveryFixedChoiceIsReadByItsName) {
  for (const char* name : {"auto", "cpu", "cuda", "host-simt"})
    EXPECT_EQ(name_of(parse_backend_kind(name)), name);
  for (const char* name : {"launches", "serial", "graphs", "persistent", "auto"})
    EXPECT_EQ(name_of(parse_cuda_kernels(name)), name);
  for (const char* name : {"own", "cublaslt"}) EXPECT_EQ(name_of(parse_prefill_kernels(name)), name);
  for (const char* name : {"auto", "on", "off"}) EXPECT_EQ(name_of(parse_self_test(name)), name);
  try {
    parse_backend_kind("gpu");
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("--backend: got \"gpu\", expected auto, cpu, cuda or host-simt"));
  }
  EXPECT_THROW(parse_cuda_kernels("tasks"), Error);
  EXPECT_THROW(parse_prefill_kernels(""), Error);
}

}  // namespace
}  // namespace speclab::conversation_test
