#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/model/files/checkpoint.h"
#include "core/model/net/session.h"
#include "core/model/text/chat_template.h"
#include "tests/model/heads/golden_logits.h"

// Tests tiny models whose files vary in the ways in which real files vary. scripts/oracle/variations.py wrote
// the files, and golden.json with what transformers reads from them. For the variations in kRead, the logits
// must be those of transformers, with errors of at most 1e-4 of the largest logit. Token ids, texts, end
// tokens and the prompt must be equal. For those in kRefused, the error must name the reason.

namespace speclab::variation_oracle_test {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using fixtures::expect_golden_logits;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAreArray;

const std::vector<std::string> kRead{"plain",
                                     "shards",
                                     "tied_head_absent",
                                     "tied_head_stored",
                                     "tied_head_alone",
                                     "names_without_prefix",
                                     "float32",
                                     "mixed_types",
                                     "inv_freq_stored",
                                     "rope_old",
                                     "rope_old_linear",
                                     "rope_old_dynamic",
                                     "rope_old_llama3",
                                     "rope_old_yarn",
                                     "gemma2_old",
                                     "gemma3_old",
                                     "end_tokens",
                                     "template_in_settings",
                                     "template_named",
                                     "template_file",
                                     "template_twice",
                                     "metaspace_first",
                                     "metaspace_never",
                                     "metaspace_unsplit",
                                     "metaspace_old",
                                     "metaspace_after_space",
                                     "space_marks_by_normalizer",
                                     "gguf_plain",
                                     "gguf_alignment_8",
                                     "gguf_alignment_256",
                                     "gguf_tied",
                                     "gguf_f16",
                                     "gguf_mixed_types",
                                     "gguf_version_2",
                                     "gguf_one_part",
                                     "gguf_rope_factors",
                                     "gguf_yarn",
                                     "gguf_gemma2"};
const std::vector<std::string> kRefused{
    "head_absent",   "extra_bias",        "extra_layer",      "shard_missing",        "quantised",
    "rope_longrope", "rope_sections",     "template_unknown", "metaspace_other_mark", "word_pieces",
    "gguf_split",    "gguf_alignment_48", "gguf_big_endian",  "gguf_mxfp4",           "gguf_extra_bias"};

fs::path folder() { return fs::path(SPECLAB_SOURCE_DIR) / "tests/golden/variations"; }

const Json& golden() {
  static const Json all = [] {
    std::ifstream file(folder() / "golden.json");
    if (!file) throw std::runtime_error("golden.json is missing: scripts/oracle/variations.py writes it");
    return Json::parse(file);
  }();
  return all;
}

/// The GGUF files of a variation in the order of their names; otherwise its folder.
std::vector<fs::path> models(const std::string& name) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(folder() / name))
    if (entry.path().extension() == ".gguf") files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  if (files.empty()) files.push_back(folder() / name);
  return files;
}

ChatTemplate chat_template(const Checkpoint& checkpoint) {
  return ChatTemplate::from_source(checkpoint.chat_template(), checkpoint.path().string());
}

TEST(VariationOracle, EveryVariationIsTested) {
  std::vector<std::string> folders, listed = kRead, read_names, refused_names;
  listed.insert(listed.end(), kRefused.begin(), kRefused.end());
  for (const auto& entry : fs::directory_iterator(folder()))
    if (entry.is_directory()) folders.push_back(entry.path().filename());
  for (const auto& item : golden()["read"].items()) read_names.push_back(item.key());
  for (const auto& item : golden()["refused"].items()) refused_names.push_back(item.key());
  EXPECT_THAT(folders, UnorderedElementsAreArray(listed));
  EXPECT_THAT(read_names, UnorderedElementsAreArray(kRead));
  EXPECT_THAT(refused_names, UnorderedElementsAreArray(kRefused));
}

class VariationRead : public testing::TestWithParam<std::string> {
 protected:
  const Json& expected() const { return golden()["read"].at(GetParam()); }
  Checkpoint open() const { return Checkpoint::open(models(GetParam()).at(0)); }
};

TEST_P(VariationRead, LogitsEqualTransformers) {
  const auto model = Model::load(open(), make_cpu_backend({1, "f32"}), {});
  const auto tokens = expected()["tokens"].get<std::vector<Token>>();
  const auto rows = expected()["rows"].get<std::vector<std::int32_t>>();
  std::vector<std::int32_t> parents(tokens.size());
  std::iota(parents.begin(), parents.end(), -1);
  std::vector<float> logits(rows.size() * static_cast<std::size_t>(model->config().vocab));
  model->open(static_cast<int>(tokens.size()))->forward(tokens, parents, rows, logits.data());
  expect_golden_logits(expected()["logits"], logits, 1e-4);
}

TEST_P(VariationRead, TextsEqualTransformers) {
  const Checkpoint checkpoint = open();
  const std::optional<Tokenizer> tokenizer = checkpoint.tokenizer();
  ASSERT_EQ(tokenizer.has_value(), expected().contains("texts"));
  EXPECT_EQ(checkpoint.chat_template().empty(), !expected().contains("chat"));
  if (!tokenizer) return;
  for (const Json& text : expected()["texts"]) {
    SCOPED_TRACE(text["text"]);
    std::vector<Token> ids = tokenizer->encode(text["text"].get<std::string>(), true);
    if (tokenizer->add_bos()) ids.insert(ids.begin(), tokenizer->bos().value());
    EXPECT_EQ(ids, text["ids"].get<std::vector<Token>>());
    EXPECT_EQ(tokenizer->decode(ids, true), text["decoded"].get<std::string>());
  }
  if (expected().contains("ends")) {
    EXPECT_EQ(tokenizer->end_of_generation(), expected()["ends"].get<std::vector<Token>>());
  }
  if (expected().contains("chat")) {
    std::vector<Message> messages;
    for (const Json& message : expected()["messages"])
      messages.push_back({message["role"], message["content"]});
    EXPECT_EQ(chat_template(checkpoint).render(messages, true), expected()["chat"].get<std::string>());
  }
}

INSTANTIATE_TEST_SUITE_P(Files, VariationRead, testing::ValuesIn(kRead),
                         [](const auto& info) { return info.param; });

class VariationRefused : public testing::TestWithParam<std::string> {};

TEST_P(VariationRefused, TheErrorNamesTheReason) {
  for (const fs::path& path : models(GetParam())) {
    SCOPED_TRACE(path);
    std::string error = "no error";
    try {
      const Checkpoint checkpoint = Checkpoint::open(path);
      checkpoint.tokenizer();
      chat_template(checkpoint);
    } catch (const Error& refusal) {
      error = refusal.what();
    }
    for (const Json& words : golden()["refused"].at(GetParam())["words"])
      EXPECT_THAT(error, HasSubstr(words.get<std::string>()));
  }
}

INSTANTIATE_TEST_SUITE_P(Files, VariationRefused, testing::ValuesIn(kRefused),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace speclab::variation_oracle_test
