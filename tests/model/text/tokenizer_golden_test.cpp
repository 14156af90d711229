// Compares with Hugging Face's `tokenizers` through the golden files that scripts/oracle/tokenizer.py writes.
#include "tests/model/text/tokenizer_golden.h"

#include <cstdlib>

#include "core/base/mapped_file.h"
#include "core/model/files/checkpoint.h"
#include "core/model/files/gguf.h"

namespace speclab::tokenizer_golden_test {
namespace {

using namespace golden;

void expect_golden(const fs::path& file) {
  const Json golden = Json::parse(read_file(file));
  const fs::path tokenizer_file = file.parent_path() / golden["tokenizer_json"].get<std::string>();
  const Tokenizer tokenizer = Tokenizer::from_json(read_file(tokenizer_file), tokenizer_file.string());
  for (const Json& section : golden["encode"]) expect_same_ids(tokenizer, section);
  expect_same_text(tokenizer, golden["decode"]);
}

TEST(TokenizerGolden, ByteLevelJson) { expect_golden(kGolden / "tiny_bytes.json"); }

/// For any other tokenizer.json, run `scripts/oracle/tokenizer.py --tokenizer-json FILE --write GOLDEN`, then
/// this test with SPECLAB_TOKENIZER_GOLDEN=GOLDEN.
TEST(TokenizerGolden, SpaceMarkJson) {
  expect_golden(kGolden / "tiny_spaces.json");
  if (const char* file = std::getenv("SPECLAB_TOKENIZER_GOLDEN")) expect_golden(file);
}

/// The tokenizer keys of the file, so that other pre-tokenisers can be tried on the same vocabulary.
Tokenizer::Parts parts_of(const fs::path& model) {
  const MappedFile bytes = MappedFile::open(model);
  const GgufFile file = GgufFile::parse(bytes.bytes(), model.string());
  Tokenizer::Parts parts;
  parts.file = model.string();
  const auto strings = [&](std::string_view key) {
    const std::vector<std::string_view>& values = file.array(key).strings;
    return std::vector<std::string>(values.begin(), values.end());
  };
  parts.tokens = strings("tokenizer.ggml.tokens");
  parts.merges = strings("tokenizer.ggml.merges");
  for (std::size_t i = 0; i < parts.tokens.size(); ++i) {
    parts.token_types.push_back(
        static_cast<std::int32_t>(file.array("tokenizer.ggml.token_type").integer(i)));
  }
  return parts;
}

TEST(TokenizerGolden, TargetModel) {
  const fs::path model = kSource / "models/SmolLM2-135M-Instruct.Q4_1.gguf";
  if (!fs::exists(model) && std::getenv("SPECLAB_OFFLINE") != nullptr)
    GTEST_SKIP() << "needs the target model";
  ASSERT_TRUE(fs::exists(model)) << model << " is missing; scripts/get_model.sh fetches it";
  const Json golden = Json::parse(read_file(kGolden / "smollm2.json"));
  Tokenizer::Parts parts = parts_of(model);
  for (const Json& section : golden["encode"]) {
    if (section["pre_tokenizer"] == "smollm") continue;  // tested below with the checkpoint's tokenizer
    parts.pre_tokenizer = section["pre_tokenizer"];
    expect_same_ids(Tokenizer::from_parts(parts), section);
  }
  const Tokenizer tokenizer = Checkpoint::open(model).tokenizer().value();
  expect_same_ids(tokenizer, golden["encode"][0]);
  expect_same_text(tokenizer, golden["decode"]);
  for (const Json& example : golden["examples"]) {
    const std::string text = example["text"];
    EXPECT_EQ(tokenizer.encode(text, example["parse_special"]), example["ids"].get<std::vector<Token>>())
        << text;
  }
}

}  // namespace
}  // namespace speclab::tokenizer_golden_test
