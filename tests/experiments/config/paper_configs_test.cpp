// configs/paper: experiments on weights that the user downloads, run here with tiny random weights of the
// family.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <random>

#include "core/base/error.h"
#include "core/base/json_text.h"
#include "experiments/config/config_file.h"
#include "tests/experiments/cli/cli.h"
#include "tests/model/files/model_files.h"

namespace speclab::paper_configs_test {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

/// A random GPT-2 (Radford et al. 2019) in the layout of its checkpoints: Conv1D weights [in, out], learned
/// positions.
void write_gpt2(const std::filesystem::path& folder, int hidden, int layers, std::uint64_t seed) {
  constexpr int kPositions = 512;
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal(0, 0.3f);
  std::vector<fixtures::RawTensor> tensors;
  const auto add = [&](const std::string& name, std::vector<std::int64_t> shape, float around = 0) {
    std::size_t size = 1;
    for (const std::int64_t extent : shape) size *= static_cast<std::size_t>(extent);
    std::vector<float> values(size);
    for (float& value : values) value = around + normal(random);
    tensors.push_back({name, "F32", shape, fixtures::encode(values, "F32")});
  };
  const std::int64_t h = hidden;
  add("wte.weight", {fixtures::kByteVocab, h});
  add("wpe.weight", {kPositions, h});
  for (int i = 0; i < layers; ++i) {
    const std::string layer = "h." + std::to_string(i) + ".";
    for (const char* norm : {"ln_1", "ln_2"}) {
      add(layer + norm + ".weight", {h}, 1);
      add(layer + norm + ".bias", {h});
    }
    add(layer + "attn.c_attn.weight", {h, 3 * h});
    add(layer + "attn.c_attn.bias", {3 * h});
    add(layer + "attn.c_proj.weight", {h, h});
    add(layer + "attn.c_proj.bias", {h});
    add(layer + "mlp.c_fc.weight", {h, 4 * h});
    add(layer + "mlp.c_fc.bias", {4 * h});
    add(layer + "mlp.c_proj.weight", {4 * h, h});
    add(layer + "mlp.c_proj.bias", {h});
  }
  add("ln_f.weight", {h}, 1);
  add("ln_f.bias", {h});
  std::filesystem::create_directories(folder);
  fixtures::write_file(folder / "model.safetensors", fixtures::safetensors_file(tensors));
  fixtures::write_file(folder / "config.json", json{{"model_type", "gpt2"},
                                                    {"architectures", {"GPT2LMHeadModel"}},
                                                    {"activation_function", "gelu_new"},
                                                    {"n_embd", hidden},
                                                    {"n_head", 4},
                                                    {"n_layer", layers},
                                                    {"n_positions", kPositions},
                                                    {"layer_norm_epsilon", 1e-5},
                                                    {"vocab_size", fixtures::kByteVocab}}
                                                   .dump());
  fixtures::write_byte_tokenizer(folder);
}

const std::filesystem::path kConfig =
    std::filesystem::path(SPECLAB_SOURCE_DIR) / "configs/paper/gpt2_report.json";

TEST(PaperConfigs, Gpt2ReportStandsBesideThePublishedRow) {
  fixtures::TempDir dir;
  write_gpt2(dir.path() / "xl", 64, 3, 1);
  write_gpt2(dir.path() / "small", 32, 1, 2);
  fixtures::Cli cli(dir.path(), {"run", kConfig.string(), "--out", (dir.path() / "run").string(), "--set",
                                 "target.model=" + (dir.path() / "xl").string(), "--set",
                                 "drafts.small.model=" + (dir.path() / "small").string(), "--threads", "1"});
  ASSERT_EQ(cli.wait(), 0) << cli.err();
  EXPECT_THAT(cli.out(), HasSubstr("speculative_sampling/draft=small/gamma=4, beside toyllm's report"));
  const json summary = parse_json(fixtures::Cli::read(dir.path() / "run/summary.json"), "summary.json");
  const json& speculative = summary["cases"][1];
  const json& metrics = speculative["metrics"];
  EXPECT_EQ(metrics["tokens"], 255);  // of 256; the first comes from prefill
  EXPECT_EQ(metrics["matches_reference"], true);
  ASSERT_EQ(speculative["published"].size(), 1u);
  const std::map<std::string, std::pair<double, json>> expected{
      {"t_target", {73.3, metrics["t_target"]}},
      {"t_draft", {11.9, metrics["t_draft"]}},
      {"r_prime", {0.8125, metrics["r_prime"]}},
      {"speedup", {2.129, metrics["speedup"]}},
      {"chen_ratio", {2.463, speculative["predictions"]["chen_ratio"]["value"]}}};
  std::size_t seen = 0;
  for (const json& value : speculative["published"][0]["values"]) {
    const auto& [published, here] = expected.at(value["name"]);
    EXPECT_EQ(value["published"], published) << value;
    EXPECT_EQ(value["here"], here) << value;
    EXPECT_TRUE(value["here"].is_number()) << value;
    EXPECT_THAT(cli.out(), HasSubstr(value["name"].get<std::string>()));
    ++seen;
  }
  EXPECT_EQ(seen, expected.size());
  // r' = tau / (K + 1) enters r'(K+1) t_t / (K t_d + t_t).
  EXPECT_NEAR(metrics["r_prime"].get<double>(), metrics["tau"].get<double>() / 5, 1e-12);
}

TEST(PaperConfigs, AMissingModelIsNamedWithWhereToGetIt) {
  fixtures::TempDir dir;
  for (const char* missing : {"target.model=", "drafts.small.model="}) {
    write_gpt2(dir.path() / "xl", 64, 1, 1);
    fixtures::Cli cli(dir.path(), {"run", kConfig.string(), "--out", (dir.path() / "run").string(), "--set",
                                   "target.model=" + (dir.path() / "xl").string(), "--set",
                                   missing + (dir.path() / "none").string()});
    EXPECT_EQ(cli.wait(), 2);
    const std::string model = std::string(missing).starts_with("target") ? "gpt2-xl" : "gpt2";
    EXPECT_THAT(cli.err(), HasSubstr("got no such file or directory"));
    EXPECT_THAT(cli.err(),
                HasSubstr("the model openai-community/" + model +
                          " of the Hugging Face Hub. Download it to " + (dir.path() / "none").string()));
    EXPECT_THAT(cli.err(), HasSubstr("(config.json, tokenizer.json and model.safetensors)"));
  }
}

TEST(PaperConfigs, PublishedNumbersMustNameSomething) {
  const auto error = [](const json& published) -> std::string {
    json config = parse_json(
        R"({"target": "t", "prompts": {"inline": ["1"]}, "cases": [{"strategy": "autoregressive"}]})", "c");
    config["published"] = published;
    try {
      parse_experiment(config, "c");
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  };
  const json good = {{"case", "autoregressive"}, {"source", "S"}, {"metrics", {{"tau", 1}}}};
  const auto with = [&](const char* pointer, const json& value) {
    json row = good;
    row[json::json_pointer(pointer)] = value;
    return error(json::array({row}));
  };
  EXPECT_EQ(error(json::array({good})), "no error");
  EXPECT_THAT(error(3), HasSubstr("c: /published"));
  EXPECT_THAT(with("/case", "autoregresive"), HasSubstr("/published/0/case: got \"autoregresive\""));
  EXPECT_THAT(with("/metrics/taux", 1), HasSubstr("/published/0/metrics/taux: got an unknown metric"));
  EXPECT_THAT(with("/metrics/tau", "1"), HasSubstr("/published/0/metrics/tau"));
  EXPECT_THAT(with("/extra", 1), HasSubstr("/published/0/extra: got an unknown key"));
}

}  // namespace
}  // namespace speclab::paper_configs_test
