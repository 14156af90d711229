#include "core/model/files/huggingface_family.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "core/base/error.h"

namespace speclab {
namespace {

using Json = nlohmann::json;

constexpr TensorNames kLlamaTensors{.layer = "model.layers.{}.",
                                    .token_embedding = "model.embed_tokens",
                                    .position_embedding = nullptr,
                                    .final_norm = "model.norm",
                                    .head = "lm_head",
                                    .attn_norm = "input_layernorm",
                                    .attn_post_norm = nullptr,
                                    .ffn_norm = "post_attention_layernorm",
                                    .ffn_post_norm = nullptr,
                                    .q_norm = "self_attn.q_norm",
                                    .k_norm = "self_attn.k_norm",
                                    .q = "self_attn.q_proj",
                                    .k = "self_attn.k_proj",
                                    .v = "self_attn.v_proj",
                                    .attn_out = "self_attn.o_proj",
                                    .gate = "mlp.gate_proj",
                                    .up = "mlp.up_proj",
                                    .down = "mlp.down_proj"};

constexpr TensorNames gemma_names() {
  TensorNames names = kLlamaTensors;
  names.attn_post_norm = "post_attention_layernorm";
  names.ffn_norm = "pre_feedforward_layernorm";
  names.ffn_post_norm = "post_feedforward_layernorm";
  return names;
}

constexpr TensorNames phi3_names() {
  TensorNames names = kLlamaTensors;
  names.q = names.k = names.v = "self_attn.qkv_proj";
  names.gate = names.up = "mlp.gate_up_proj";
  names.qkv = TensorNames::Fused::kStacked;
  names.fused_gate_up = true;
  return names;
}

constexpr TensorNames kGpt2Names{.layer = "transformer.h.{}.",
                                 .token_embedding = "transformer.wte",
                                 .position_embedding = "transformer.wpe",
                                 .final_norm = "transformer.ln_f",
                                 .head = "lm_head",
                                 .attn_norm = "ln_1",
                                 .attn_post_norm = nullptr,
                                 .ffn_norm = "ln_2",
                                 .ffn_post_norm = nullptr,
                                 .q_norm = nullptr,
                                 .k_norm = nullptr,
                                 .q = "attn.c_attn",
                                 .k = "attn.c_attn",
                                 .v = "attn.c_attn",
                                 .attn_out = "attn.c_proj",
                                 .gate = nullptr,
                                 .up = "mlp.c_fc",
                                 .down = "mlp.c_proj",
                                 .qkv = TensorNames::Fused::kStacked,
                                 .fused_gate_up = false,
                                 .transposed = true};

constexpr TensorNames kOptNames{.layer = "model.decoder.layers.{}.",
                                .token_embedding = "model.decoder.embed_tokens",
                                .position_embedding = "model.decoder.embed_positions",
                                .final_norm = "model.decoder.final_layer_norm",
                                .head = "lm_head",
                                .attn_norm = "self_attn_layer_norm",
                                .attn_post_norm = nullptr,
                                .ffn_norm = "final_layer_norm",
                                .ffn_post_norm = nullptr,
                                .q_norm = nullptr,
                                .k_norm = nullptr,
                                .q = "self_attn.q_proj",
                                .k = "self_attn.k_proj",
                                .v = "self_attn.v_proj",
                                .attn_out = "self_attn.out_proj",
                                .gate = nullptr,
                                .up = "fc1",
                                .down = "fc2"};

constexpr TensorNames kGptNeoxNames{.layer = "gpt_neox.layers.{}.",
                                    .token_embedding = "gpt_neox.embed_in",
                                    .position_embedding = nullptr,
                                    .final_norm = "gpt_neox.final_layer_norm",
                                    .head = "embed_out",
                                    .attn_norm = "input_layernorm",
                                    .attn_post_norm = nullptr,
                                    .ffn_norm = "post_attention_layernorm",
                                    .ffn_post_norm = nullptr,
                                    .q_norm = nullptr,
                                    .k_norm = nullptr,
                                    .q = "attention.query_key_value",
                                    .k = "attention.query_key_value",
                                    .v = "attention.query_key_value",
                                    .attn_out = "attention.dense",
                                    .gate = nullptr,
                                    .up = "mlp.dense_h_to_4h",
                                    .down = "mlp.dense_4h_to_h",
                                    .qkv = TensorNames::Fused::kByHead};

// --- values that several families have --------------------------------------------------------------------

void refuse_biases(const ConfigValues& settings) {
  for (const char* key : {"attention_bias", "mlp_bias"}) {
    if (settings.flag_or(key, false))
      settings.refuse(key, "false", "Models of this family with biases are not supported.");
  }
}

void require_silu(const ConfigValues& settings) {
  if (settings.text_or("hidden_act", "silu") != "silu")
    settings.refuse("hidden_act", "\"silu\"", "Another activation is not supported in this family.");
}

Activation read_activation(const ConfigValues& settings, const char* key, const char* absent) {
  const std::string name = settings.text_or(key, absent);
  if (name == "silu" || name == "swish") return Activation::kSilu;
  if (name == "gelu") return Activation::kGelu;
  if (name == "gelu_new" || name == "gelu_pytorch_tanh" || name == "gelu_fast") return Activation::kGeluTanh;
  if (name == "relu") return Activation::kRelu;
  settings.refuse(key, "\"relu\", \"gelu\", \"gelu_new\", \"gelu_pytorch_tanh\", \"gelu_fast\" or \"silu\"",
                  "Another activation is not supported.");
}

void rotate_all_layers(const ConfigValues& settings, ModelConfig& config, const RopeKeys& keys = {}) {
  config.ropes = {read_huggingface_rope(settings, config, keys)};
  config.rope_of.assign(static_cast<std::size_t>(config.layers), 0);
}

/// Returns one number per layer: 1 with a window, 0 without. layer_types of config.json decides this; if it
/// is missing, slides(layer) decides.
template <typename Slides>
std::vector<int> sliding_layers(const ConfigValues& settings, const ModelConfig& config,
                                const Slides& slides) {
  std::vector<int> out;
  if (!settings.has("layer_types")) {
    for (int i = 0; i < config.layers; ++i) out.push_back(slides(i) ? 1 : 0);
    return out;
  }
  const Json& types = settings.at("layer_types");
  if (!types.is_array() || types.size() != static_cast<std::size_t>(config.layers)) {
    settings.refuse("layer_types", fmt::format("a list of {} strings, one for each layer", config.layers),
                    "");
  }
  for (const Json& type : types) {
    const bool sliding = type == "sliding_attention";
    if (!sliding && type != "full_attention") {
      throw Error({settings.name("layer_types"), type.dump(), "\"full_attention\" or \"sliding_attention\"",
                   "Other kinds of layers are not supported."});
    }
    out.push_back(sliding ? 1 : 0);
  }
  return out;
}

void set_windows(const std::vector<int>& sliding, int window, ModelConfig& config) {
  if (std::find(sliding.begin(), sliding.end(), 1) == sliding.end()) return;
  config.windows.clear();
  for (const int slides : sliding) config.windows.push_back(slides * window);
}

/// If use_sliding_window is true and sliding_window is given, the layers with a window get that width.
/// Otherwise throws Error if layer_types lists a layer with a window.
template <typename Slides>
void read_optional_windows(const ConfigValues& settings, ModelConfig& config, const Slides& slides) {
  if (settings.flag_or("use_sliding_window", false) && settings.has("sliding_window")) {
    set_windows(sliding_layers(settings, config, slides), settings.integer("sliding_window", 1, INT32_MAX),
                config);
    return;
  }
  const std::vector<int> sliding = sliding_layers(settings, config, [](int) { return false; });
  if (std::find(sliding.begin(), sliding.end(), 1) != sliding.end()) {
    throw Error({settings.name("layer_types"),
                 "\"sliding_attention\" without use_sliding_window and sliding_window", "\"full_attention\"",
                 "Correct one of them."});
  }
}

// --- families ---------------------------------------------------------------------------------------------

void read_llama(const ConfigValues& settings, ModelConfig& config) {
  refuse_biases(settings);
  require_silu(settings);
  rotate_all_layers(settings, config, {.partial = nullptr});
}

void read_mistral(const ConfigValues& settings, ModelConfig& config) {
  read_llama(settings, config);
  // transformers assumes 4096 for a missing value; null means no window.
  const int window = settings.has("sliding_window")      ? settings.integer("sliding_window", 1, INT32_MAX)
                     : settings.states("sliding_window") ? 0
                                                         : 4096;
  if (window == 0) return;
  if (settings.has("layer_types"))
    settings.refuse("layer_types", "nothing, because all layers have the same window",
                    "Models with alternating windows are not of this family.");
  set_windows(std::vector<int>(static_cast<std::size_t>(config.layers), 1), window, config);
}

void read_qwen2(const ConfigValues& settings, ModelConfig& config) {
  read_llama(settings, config);
  config.qkv_bias = true;
  const int full = settings.integer_or("max_window_layers", 28, 0, INT32_MAX);
  read_optional_windows(settings, config, [&](int layer) { return layer >= full; });
}

void read_qwen3(const ConfigValues& settings, ModelConfig& config) {
  read_qwen2(settings, config);
  config.qkv_bias = false;
  config.qk_norm = true;
}

void read_smollm3(const ConfigValues& settings, ModelConfig& config) {
  read_llama(settings, config);
  const int interval = settings.integer_or("no_rope_layer_interval", 4, 1, INT32_MAX);
  for (int i = 0; i < config.layers; ++i) {
    if ((i + 1) % interval == 0) config.rope_of[static_cast<std::size_t>(i)] = -1;
  }
  if (settings.has("no_rope_layers")) {  // despite its name: 1 for layers with RoPE
    const Json& rotates = settings.at("no_rope_layers");
    if (!rotates.is_array() || rotates.size() < static_cast<std::size_t>(config.layers)) {
      settings.refuse("no_rope_layers", fmt::format("a list of at least {} numbers, 0 or 1", config.layers),
                      "");
    }
    for (std::size_t i = 0; i < config.rope_of.size(); ++i) {
      if (rotates[i] != 0 && rotates[i] != 1)
        throw Error({settings.name("no_rope_layers"), rotates[i].dump(), "0 or 1", ""});
      config.rope_of[i] = rotates[i] == 1 ? 0 : -1;
    }
  }
  read_optional_windows(settings, config,
                        [&](int layer) { return config.rope_of[static_cast<std::size_t>(layer)] < 0; });
}

void read_phi3(const ConfigValues& settings, ModelConfig& config) {
  refuse_biases(settings);
  require_silu(settings);
  rotate_all_layers(settings, config, {.longrope = true});
  if (!settings.has("sliding_window")) return;
  set_windows(std::vector<int>(static_cast<std::size_t>(config.layers), 1),
              settings.integer("sliding_window", 1, INT32_MAX), config);
}

void read_gemma(const ConfigValues& settings, ModelConfig& config) {
  refuse_biases(settings);
  if (settings.flag_or("use_bidirectional_attention", false)) {
    settings.refuse("use_bidirectional_attention", "false", "Only causal attention is supported.");
  }
  config.activation = read_activation(settings, "hidden_activation", "gelu_pytorch_tanh");
  config.norm_offset = 1;
  config.post_norms = true;
  config.embedding_scale = std::sqrt(static_cast<float>(config.hidden));
  config.attention_scale = 1 / std::sqrt(settings.positive("query_pre_attn_scalar"));
}

/// Reads a soft cap. Returns `absent` when the key is missing, and 0 (no cap) when it is null.
float read_cap(const ConfigValues& settings, const char* key, float absent) {
  if (settings.has(key)) return settings.positive(key);
  return settings.states(key) ? 0 : absent;
}

void read_gemma2(const ConfigValues& settings, ModelConfig& config) {
  read_gemma(settings, config);
  config.attention_soft_cap = read_cap(settings, "attn_logit_softcapping", 50);
  config.logit_soft_cap = read_cap(settings, "final_logit_softcapping", 30);
  rotate_all_layers(settings, config);
  const auto sliding = sliding_layers(settings, config, [](int layer) { return layer % 2 == 0; });
  set_windows(sliding, settings.integer("sliding_window", 1, INT32_MAX), config);
}

void read_gemma3(const ConfigValues& settings, ModelConfig& config) {
  read_gemma(settings, config);
  config.qk_norm = true;
  for (const char* key : {"attn_logit_softcapping", "final_logit_softcapping"}) {
    if (settings.has(key)) settings.refuse(key, "null", "Gemma 3 has no soft caps.");
  }
  const int pattern = settings.integer_or("sliding_window_pattern", 6, 1, INT32_MAX);
  const auto sliding =
      sliding_layers(settings, config, [&](int layer) { return (layer + 1) % pattern != 0; });
  set_windows(sliding, settings.integer("sliding_window", 1, INT32_MAX), config);
  const bool nested =
      settings.has("rope_parameters") && settings.object("rope_parameters").has("full_attention");
  if (nested) {
    const ConfigValues ropes = settings.object("rope_parameters");
    config.ropes = {read_rope_object(ropes.object("full_attention"), settings, config)};
    config.ropes.push_back(read_rope_object(ropes.object("sliding_attention"), settings, config));
  } else {
    config.ropes = {read_huggingface_rope(settings, config)};
    Rope local;
    local.dims = config.head_dim;
    local.theta = settings.positive("rope_local_base_freq");
    config.ropes.push_back(local);
  }
  config.rope_of = sliding;
}

void read_gpt2(const ConfigValues& settings, ModelConfig& config) {
  for (const auto& [key, wanted] : {std::pair{"scale_attn_weights", true},
                                    {"scale_attn_by_inverse_layer_idx", false},
                                    {"add_cross_attention", false}}) {
    if (settings.flag_or(key, wanted) != wanted)
      settings.refuse(key, wanted ? "true" : "false", "Other attention is not supported in this family.");
  }
  config.norm = NormKind::kLayer;
  config.activation = read_activation(settings, "activation_function", "gelu_new");
  config.gated = false;
  config.qkv_bias = config.attn_out_bias = config.ffn_bias = true;
  config.position_rows = config.context;
  config.rope_of.assign(static_cast<std::size_t>(config.layers), -1);
}

void read_opt(const ConfigValues& settings, ModelConfig& config) {
  if (settings.integer_or("word_embed_proj_dim", config.hidden, 1, INT32_MAX) != config.hidden) {
    settings.refuse("word_embed_proj_dim", fmt::format("hidden_size = {}", config.hidden),
                    "Models with a projected embedding (OPT 350M) are not supported.");
  }
  for (const auto& [key, wanted] : {std::pair{"do_layer_norm_before", true},
                                    {"_remove_final_layer_norm", false},
                                    {"layer_norm_elementwise_affine", true}}) {
    if (settings.flag_or(key, wanted) != wanted)
      settings.refuse(key, wanted ? "true" : "false", "This variant of OPT is not supported.");
  }
  config.norm = NormKind::kLayer;
  config.activation = read_activation(settings, "activation_function", "relu");
  config.gated = false;
  config.qkv_bias = config.attn_out_bias = config.ffn_bias = settings.flag_or("enable_bias", true);
  config.position_offset = 2;  // the first two rows of the position embedding are for padding
  config.context = settings.integer("max_position_embeddings", 1, 1 << 24);
  config.position_rows = config.context + config.position_offset;
  config.rope_of.assign(static_cast<std::size_t>(config.layers), -1);
}

void read_gpt_neox(const ConfigValues& settings, ModelConfig& config) {
  config.norm = NormKind::kLayer;
  config.activation = read_activation(settings, "hidden_act", "gelu");
  config.gated = false;
  config.parallel = settings.flag_or("use_parallel_residual", true);
  config.qkv_bias = config.attn_out_bias = settings.flag_or("attention_bias", true);
  config.ffn_bias = true;
  rotate_all_layers(settings, config,
                    {.theta = "rotary_emb_base", .partial = "rotary_pct", .default_partial = .25f});
}

constexpr HuggingFaceKeys kGpt2Keys{.hidden = "n_embd",
                                    .layers = "n_layer",
                                    .heads = "n_head",
                                    .context = "n_positions",
                                    .ffn = "n_inner",
                                    .norm_eps = "layer_norm_epsilon"};

constexpr std::array kHuggingFaceFamilies{
    HuggingFaceFamily{"llama", "LlamaForCausalLM", "model.", kLlamaTensors, {}, false, false, read_llama},
    HuggingFaceFamily{
        "mistral", "MistralForCausalLM", "model.", kLlamaTensors, {}, false, true, read_mistral},
    HuggingFaceFamily{"qwen2", "Qwen2ForCausalLM", "model.", kLlamaTensors, {}, false, true, read_qwen2},
    HuggingFaceFamily{"qwen3", "Qwen3ForCausalLM", "model.", kLlamaTensors, {}, false, true, read_qwen3},
    HuggingFaceFamily{"gpt2", "GPT2LMHeadModel", "transformer.", kGpt2Names, kGpt2Keys, true, false,
                      read_gpt2},
    HuggingFaceFamily{"opt",
                      "OPTForCausalLM",
                      "model.",
                      kOptNames,
                      {.ffn = "ffn_dim", .norm_eps = nullptr},
                      true,
                      false,
                      read_opt},
    HuggingFaceFamily{"gpt_neox",
                      "GPTNeoXForCausalLM",
                      "gpt_neox.",
                      kGptNeoxNames,
                      {.norm_eps = "layer_norm_eps"},
                      false,
                      false,
                      read_gpt_neox},
    HuggingFaceFamily{"gemma2", "Gemma2ForCausalLM", "model.", gemma_names(), {}, true, true, read_gemma2},
    HuggingFaceFamily{
        "gemma3_text", "Gemma3ForCausalLM", "model.", gemma_names(), {}, true, true, read_gemma3},
    HuggingFaceFamily{"smollm3", "SmolLM3ForCausalLM", "model.", kLlamaTensors, {}, true, true, read_smollm3},
    HuggingFaceFamily{"phi3", "Phi3ForCausalLM", "model.", phi3_names(), {}, false, true, read_phi3},
};

bool lists(const Json& architectures, const char* name) {
  return architectures.is_array() &&
         std::find(architectures.begin(), architectures.end(), Json(name)) != architectures.end();
}

}  // namespace

std::span<const HuggingFaceFamily> huggingface_families() { return kHuggingFaceFamilies; }

std::string_view huggingface_model_type(std::string_view family) {
  if (family == "gptneox") return "gpt_neox";
  if (family == "gemma3") return "gemma3_text";
  return family;
}

const HuggingFaceFamily& huggingface_family(const ConfigValues& config) {
  std::string types, architectures;
  for (const HuggingFaceFamily& family : kHuggingFaceFamilies) {
    types += fmt::format("{}\"{}\"", types.empty() ? "" : ", ", family.model_type);
    architectures += fmt::format("{}{}", architectures.empty() ? "" : ", ", family.architecture);
  }
  const std::string advice = "Other architectures are not supported.";
  const HuggingFaceFamily* found = nullptr;
  if (config.has("model_type")) {
    const std::string type = config.text_or("model_type", "");
    for (const HuggingFaceFamily& family : kHuggingFaceFamilies) {
      if (type == family.model_type) found = &family;
    }
    if (found == nullptr) config.refuse("model_type", "one of " + types, advice);
  }
  if (config.has("architectures")) {
    const Json& names = config.at("architectures");
    for (const HuggingFaceFamily& family : kHuggingFaceFamilies) {
      if (found == nullptr && lists(names, family.architecture)) found = &family;
    }
    if (found == nullptr || !lists(names, found->architecture)) {
      throw Error({.what = config.name("architectures"),
                   .got = names.is_array() && names.size() == 1 && names[0].is_string()
                              ? names[0].get<std::string>()
                              : "something else",
                   .expected = found == nullptr ? architectures
                                                : fmt::format("{}, as model_type says", found->architecture),
                   .advice = advice});
    }
  }
  if (found == nullptr && (config.has("speclab_draft") || config.has("speclab_table")))
    found = &kHuggingFaceFamilies[0];
  if (found == nullptr) throw Error({config.name("architectures"), "nothing", architectures, advice});
  return *found;
}

}  // namespace speclab
