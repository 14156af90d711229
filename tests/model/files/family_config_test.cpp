#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "core/base/error.h"
#include "core/model/net/model.h"
#include "tests/model/files/model_files.h"

// Configurations of the families. Settings that change the arithmetic and are not supported are refused, and
// defaults are those of transformers. The models are those of tests/golden/families.

namespace speclab::family_config_test {
namespace {

using namespace speclab::fixtures;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
namespace fs = std::filesystem;

/// A golden model with another config.json.
class Changed {
 public:
  Changed(const std::string& family, const std::function<void(Json&)>& change) {
    const fs::path from = fs::path(SPECLAB_SOURCE_DIR) / "tests/golden/families" / family;
    fs::create_symlink(from / "model.safetensors", dir_.path() / "model.safetensors");
    std::ifstream file(from / "config.json");
    Json config = Json::parse(file);
    change(config);
    write_file(dir_.path() / "config.json", config.dump());
  }
  Checkpoint open() const { return Checkpoint::open(dir_.path()); }

 private:
  TempDir dir_;
};

std::string error(const std::string& family, const std::function<void(Json&)>& change) {
  try {
    Changed(family, change).open();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}
std::string set(const std::string& family, const char* key, Json value) {
  return error(family, [&](Json& c) { c[key] = value; });
}
ModelConfig config(const std::string& family, const std::function<void(Json&)>& change) {
  return Changed(family, change).open().config();
}

TEST(FamilyConfig, ModelTypeAndArchitectureMustAgree) {
  EXPECT_THAT(
      set("qwen2", "architectures", {"LlamaForCausalLM"}),
      HasSubstr("architectures: got LlamaForCausalLM, expected Qwen2ForCausalLM, as model_type says"));
  EXPECT_THAT(set("qwen2", "model_type", "qwen2_moe"), AllOf(HasSubstr("model_type: got \"qwen2_moe\""),
                                                             HasSubstr("\"llama\", \"mistral\", \"qwen2\"")));
  EXPECT_THAT(set("gemma3", "architectures", {"Gemma3ForConditionalGeneration"}),
              HasSubstr("expected Gemma3ForCausalLM"));
  EXPECT_EQ(config("qwen2", [](Json& c) { c.erase("model_type"); }).family, "qwen2");
}

// A member may be absent and still be what is wrong. The error then says what was expected, and not that the
// file is incomplete.
TEST(FamilyConfig, AnAbsentMemberThatMeansTheWrongValueIsNamed) {
  EXPECT_THAT(
      error("llama",
            [](Json& c) {
              c["rope_scaling"] = {{"rope_type", "linear"}, {"factor", 2}};
              c["rope_parameters"] = {{"rope_theta", 10000.0}};
            }),
      HasSubstr("rope_parameters: type: got nothing, expected the same as in rope_scaling. Correct one "
                "of the two."));
  EXPECT_THAT(
      error("gemma2",
            [](Json& c) {
              c.erase("tie_word_embeddings");  // Gemma ties them by default
              c["speclab_draft"] = {{"embedding", "target"}, {"embedding_dim", 32}};
            }),
      HasSubstr("tie_word_embeddings: got nothing, expected false with speclab_draft. A draft has its "
                "own output head."));
}

TEST(FamilyConfig, RopeScalingIsReadFromEitherPlace) {
  const auto old_style = [](Json scaling) {
    return [scaling](Json& c) {
      c.erase("rope_parameters");
      c["rope_theta"] = 10000.0;
      c["rope_scaling"] = scaling;
    };
  };
  const Rope linear = config("llama", old_style({{"type", "linear"}, {"factor", 4}})).ropes[0];
  EXPECT_EQ(linear.scaling, Rope::Scaling::kLinear);
  EXPECT_EQ(linear.factor, 4);
  const ModelConfig dynamic = config("llama", old_style({{"rope_type", "dynamic"}, {"factor", 2}}));
  EXPECT_EQ(dynamic.ropes[0].original_context, 64);
  EXPECT_EQ(dynamic.context, 128);  // the context that the scaling allows
  const ModelConfig yarn = config(
      "llama", old_style({{"rope_type", "yarn"}, {"factor", 4}, {"original_max_position_embeddings", 32}}));
  EXPECT_EQ(yarn.context, 128);
  EXPECT_FLOAT_EQ(yarn.ropes[0].attention_factor, 0.1f * std::log(4.0f) + 1);
  const Rope llama3 = config("llama", old_style({{"rope_type", "llama3"},
                                                 {"factor", 8},
                                                 {"low_freq_factor", 1},
                                                 {"high_freq_factor", 4},
                                                 {"original_max_position_embeddings", 48}}))
                          .ropes[0];
  EXPECT_EQ(llama3.scaling, Rope::Scaling::kLlama3);
  EXPECT_EQ(llama3.original_context, 48);

  EXPECT_THAT(error("llama", old_style({{"rope_type", "longrope"}, {"factor", 4}})),
              AllOf(HasSubstr("rope_scaling: rope_type: got \"longrope\""), HasSubstr("not supported")));
  EXPECT_THAT(error("llama", old_style({{"rope_type", "default"}, {"mrope_section", {1, 1}}})),
              HasSubstr("rope_scaling: mrope_section"));
  EXPECT_THAT(error("llama", old_style({{"rope_type", "linear"}})),
              HasSubstr("rope_scaling: factor: got nothing"));
  EXPECT_THAT(error("llama", old_style({{"rope_type", "linear"}, {"type", "yarn"}, {"factor", 2}})),
              HasSubstr("type: got \"yarn\", expected \"linear\", as rope_type says"));
  EXPECT_THAT(
      error("llama",
            old_style(
                {{"rope_type", "llama3"}, {"factor", 8}, {"low_freq_factor", 4}, {"high_freq_factor", 4}})),
      HasSubstr("high_freq_factor"));
  EXPECT_THAT(error("llama",
                    [](Json& c) {
                      c["rope_scaling"] = {{"type", "linear"}, {"factor", 2}},
                      c["rope_parameters"] = {{"rope_type", "yarn"}, {"rope_theta", 1e4}, {"factor", 2}};
                    }),
              HasSubstr("rope_parameters: rope_type: got \"yarn\""));
  EXPECT_THAT(error("pythia", [](Json& c) { c["rope_parameters"].erase("partial_rotary_factor"); }),
              HasSubstr("rotary_pct: got nothing"));
  EXPECT_THAT(error("pythia", [](Json& c) { c["rope_parameters"]["partial_rotary_factor"] = .2; }),
              HasSubstr("here head_dim = 16, must be even"));
}

TEST(FamilyConfig, LongRopeInTheWordsOfItsFirstFiles) {
  const auto scaling = [](const char* type, Json changes = Json::object()) {
    return [=](Json& c) {
      c.erase("rope_parameters");
      c["rope_theta"] = 10000.0, c["partial_rotary_factor"] = .5, c["original_max_position_embeddings"] = 16;
      c["rope_scaling"] = {
          {"type", type}, {"short_factor", {1, 1.25, 1.5, 2}}, {"long_factor", {1, 2, 3, 4.5}}};
      c["rope_scaling"].merge_patch(changes);
    };
  };
  for (const char* type : {"longrope", "su", "yarn"}) {
    const ModelConfig c = config("phi3", scaling(type));
    EXPECT_EQ(c.context, 64);
    EXPECT_EQ(c.ropes[0].scaling, Rope::Scaling::kListed);
    EXPECT_THAT(c.ropes[0].divisors, ElementsAre(1, 1.25, 1.5, 2));
    EXPECT_THAT(c.ropes[0].long_divisors, ElementsAre(1, 2, 3, 4.5));
    EXPECT_FLOAT_EQ(c.ropes[0].attention_factor, std::sqrt(1.5f));  // 1 + ln(64 / 16) / ln(16)
    EXPECT_FALSE(c.takes_long_divisors(16));
    EXPECT_TRUE(c.takes_long_divisors(17));
  }
  EXPECT_FLOAT_EQ(config("phi3", scaling("longrope", {{"factor", 16}})).ropes[0].attention_factor,
                  std::sqrt(2.f));
  EXPECT_EQ(config("phi3", scaling("longrope", {{"attention_factor", 1.25}})).ropes[0].attention_factor,
            1.25f);
  EXPECT_EQ(config("phi3", scaling("longrope", {{"factor", 1}})).ropes[0].attention_factor, 1);
  EXPECT_THAT(error("phi3", scaling("linear")), HasSubstr("type: got \"linear\""));
  EXPECT_THAT(error("phi3", scaling("longrope", {{"long_factor", {1}}})),
              HasSubstr("long_factor: got a JSON array, expected a list of 4 positive numbers"));
  EXPECT_THAT(error("phi3", scaling("longrope", {{"short_factor", nullptr}})),
              HasSubstr("short_factor: got nothing"));
  EXPECT_THAT(error("phi3", scaling("longrope", {{"short_factor", {1, 1, 0, 1}}})),
              HasSubstr("short_factor: got 0, expected a list of 4 positive"));
  EXPECT_THAT(error("phi3", [&](Json& c) { scaling("su")(c), c.erase("original_max_position_embeddings"); }),
              HasSubstr("original_max_position_embeddings: got nothing"));
}

TEST(FamilyConfig, GptNeoxInTheWordsOfItsFirstFiles) {
  const ModelConfig c = config("pythia", [](Json& j) {
    j.erase("rope_parameters");
    j["rotary_pct"] = .25, j["rotary_emb_base"] = 10000;
  });
  EXPECT_EQ(c.ropes[0].dims, 4);
  EXPECT_EQ(c.rope_theta, 10000);
  EXPECT_TRUE(c.parallel);
}

TEST(FamilyConfig, Windows) {
  EXPECT_THAT(config("mistral", [](Json&) {}).windows, ElementsAre(7, 7));
  EXPECT_THAT(config("mistral", [](Json& c) { c["sliding_window"] = nullptr; }).windows, ElementsAre());
  EXPECT_THAT(config("mistral", [](Json& c) { c.erase("sliding_window"); }).windows,
              ElementsAre(4096, 4096));  // as transformers
  EXPECT_THAT(config("qwen2_windows", [](Json& c) { c.erase("layer_types"); }).windows, ElementsAre(0, 9));
  EXPECT_THAT(
      config("qwen2_windows", [](Json& c) { c["use_sliding_window"] = false, c.erase("layer_types"); })
          .windows,
      ElementsAre());
  EXPECT_THAT(config("gemma2", [](Json& c) { c.erase("layer_types"); }).windows, ElementsAre(6, 0));
  EXPECT_THAT(
      config("gemma3", [](Json& c) { c.erase("layer_types"), c["sliding_window_pattern"] = 2; }).windows,
      ElementsAre(6, 0, 6));
  EXPECT_THAT(set("qwen2_windows", "use_sliding_window", false),
              HasSubstr("layer_types: got \"sliding_attention\" without"));
  EXPECT_THAT(set("gemma2", "layer_types", {"full_attention", "linear_attention"}),
              HasSubstr("layer_types: got \"linear_attention\""));
  EXPECT_THAT(set("gemma2", "layer_types", {"full_attention"}), HasSubstr("a list of 2 strings"));
  EXPECT_THAT(set("mistral", "layer_types", {"full_attention", "full_attention"}), HasSubstr("layer_types"));
  EXPECT_THAT(set("mistral", "sliding_window", 0), HasSubstr("sliding_window: got 0"));
}

TEST(FamilyConfig, Gemma3InTheWordsOfItsFirstFiles) {
  const ModelConfig c = config("gemma3", [](Json& j) {
    j.erase("rope_parameters");
    j["rope_theta"] = 1e6, j["rope_local_base_freq"] = 1e4,
    j["rope_scaling"] = {{"rope_type", "linear"}, {"factor", 8}};
  });
  ASSERT_EQ(c.ropes.size(), 2u);
  EXPECT_EQ(c.ropes[0].theta, 1e6f);
  EXPECT_EQ(c.ropes[0].factor, 8);
  EXPECT_EQ(c.ropes[1].theta, 1e4f);
  EXPECT_EQ(c.ropes[1].scaling, Rope::Scaling::kNone);
  EXPECT_THAT(c.rope_of, ElementsAre(1, 1, 0));
}

TEST(FamilyConfig, SmolLM3SkipsTheRotationOfEveryFourthLayer) {
  EXPECT_THAT(
      config("smollm3", [](Json& c) { c.erase("no_rope_layers"), c["no_rope_layer_interval"] = 2; }).rope_of,
      ElementsAre(0, -1, 0));
  EXPECT_THAT(set("smollm3", "no_rope_layers", {1, 2, 1}),
              HasSubstr("no_rope_layers: got 2, expected 0 or 1"));
  EXPECT_THAT(set("smollm3", "no_rope_layers", Json::array({1})), HasSubstr("a list of at least 3"));
}

TEST(FamilyConfig, SoftCaps) {
  const ModelConfig absent = config(
      "gemma2", [](Json& c) { c.erase("attn_logit_softcapping"), c.erase("final_logit_softcapping"); });
  EXPECT_EQ(absent.attention_soft_cap, 50);  // as transformers
  EXPECT_EQ(absent.logit_soft_cap, 30);
  EXPECT_EQ(config("gemma2", [](Json& c) { c["attn_logit_softcapping"] = nullptr; }).attention_soft_cap, 0);
  EXPECT_THAT(set("gemma3", "final_logit_softcapping", 30), HasSubstr("final_logit_softcapping: got 30"));
}

TEST(FamilyConfig, RefusesWhatIsNotComputed) {
  EXPECT_THAT(set("gpt2", "scale_attn_by_inverse_layer_idx", true),
              HasSubstr("scale_attn_by_inverse_layer_idx: got true"));
  EXPECT_THAT(set("gpt2", "scale_attn_weights", false), HasSubstr("scale_attn_weights: got false"));
  EXPECT_THAT(set("gpt2", "add_cross_attention", true), HasSubstr("add_cross_attention: got true"));
  EXPECT_THAT(set("gpt2", "activation_function", "mish"), HasSubstr("activation_function: got \"mish\""));
  EXPECT_THAT(set("opt", "word_embed_proj_dim", 16),
              HasSubstr("word_embed_proj_dim: got 16, expected hidden_size = 32"));
  EXPECT_THAT(set("opt", "do_layer_norm_before", false), HasSubstr("do_layer_norm_before: got false"));
  EXPECT_THAT(set("opt", "_remove_final_layer_norm", true), HasSubstr("_remove_final_layer_norm: got true"));
  EXPECT_THAT(set("opt", "layer_norm_elementwise_affine", false),
              HasSubstr("layer_norm_elementwise_affine: got false"));
  EXPECT_THAT(set("opt", "enable_bias", false),
              HasSubstr("bias: got a tensor that is not part of this model"));
  EXPECT_THAT(set("gemma2", "use_bidirectional_attention", true),
              HasSubstr("use_bidirectional_attention: got true"));
  EXPECT_THAT(set("gemma2", "attention_bias", true), HasSubstr("attention_bias: got true"));
  EXPECT_THAT(set("qwen3", "attention_bias", true), HasSubstr("attention_bias: got true"));
  EXPECT_THAT(set("mistral", "hidden_act", "gelu"), HasSubstr("hidden_act: got \"gelu\""));
  EXPECT_THAT(set("qwen2", "quantization_config", {{"bits", 4}}), HasSubstr("quantization_config"));
  EXPECT_THAT(error("qwen2", [](Json& c) { c.erase("num_key_value_heads"); }),
              HasSubstr("num_key_value_heads: got nothing"));
  EXPECT_THAT(error("gemma2", [](Json& c) { c.erase("query_pre_attn_scalar"); }),
              HasSubstr("query_pre_attn_scalar: got nothing"));
  EXPECT_THAT(set("gpt2", "n_inner", 64), HasSubstr("mlp.c_fc.weight: got shape [32, 128]"));
}

// Files of the decoder without a head and with causal masks, as the first GPT-2 files.
TEST(FamilyConfig, ReadsFilesWithoutPrefixAndIgnoresMasks) {
  const fs::path from = fs::path(SPECLAB_SOURCE_DIR) / "tests/golden/families/gpt2";
  std::ifstream file(from / "model.safetensors", std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(file)), {});
  std::uint64_t size = 0;
  std::memcpy(&size, bytes.data(), sizeof size);
  const Json header = Json::parse(bytes.substr(8, size));
  const auto written = [&](const std::string& extra) {
    std::vector<RawTensor> tensors;
    for (const auto& [name, value] : header.items()) {
      if (name == "__metadata__") continue;
      const std::size_t begin = value["data_offsets"][0], end = value["data_offsets"][1];
      tensors.push_back({name.substr(std::string("transformer.").size()), value["dtype"], value["shape"],
                         bytes.substr(8 + size + begin, end - begin)});
    }
    tensors.push_back({extra, "F32", {1}, "1234"});
    TempDir dir;
    fs::copy_file(from / "config.json", dir.path() / "config.json");
    write_file(dir.path() / "model.safetensors", safetensors_file(tensors));
    try {
      const Checkpoint open = Checkpoint::open(dir.path()), whole = Checkpoint::open(from);
      std::vector<float> a(32 * 32), b(a.size());
      open.read_f32("layers.1.attn_k", 0, 32, a.data());
      whole.read_f32("layers.1.attn_k", 0, 32, b.data());
      return a == b ? std::string("no error") : "other weights";
    } catch (const Error& error) {
      return std::string(error.what());
    }
  };
  EXPECT_EQ(written("h.0.attn.bias"), "no error");
  EXPECT_THAT(written("h.0.attn.extra"),
              HasSubstr("tensor h.0.attn.extra: got a tensor that is not part of this model"));
}

}  // namespace
}  // namespace speclab::family_config_test
