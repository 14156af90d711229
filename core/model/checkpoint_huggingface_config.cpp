#include <algorithm>
#include <string>
#include <utility>

#include "core/base/error.h"
#include "core/model/checkpoint_json.h"

namespace speclab {
namespace {

using Json = nlohmann::json;
namespace fs = std::filesystem;

constexpr int kMaxWidth = 1 << 24;

/// What our forward pass does not compute must be absent or switched off.
void refuse_other_architectures(const Settings& config) {
  const std::string advice = "Only plain Llama decoders are supported.";
  if (config.has("architectures")) {
    const Json& names = config.at("architectures");
    if (!names.is_array() || std::find(names.begin(), names.end(), Json("LlamaForCausalLM")) == names.end()) {
      throw Error({.what = config.name("architectures"),
                   .got = names.is_array() && names.size() == 1 && names[0].is_string()
                              ? names[0].get<std::string>()
                              : "something else",
                   .expected = "LlamaForCausalLM",
                   .advice = advice});
    }
  } else if (!config.has("speclab_draft") && !config.has("speclab_table") &&
             config.text_or("model_type", "") != "llama") {
    throw Error({.what = config.name("architectures"),
                 .got = "nothing",
                 .expected = "LlamaForCausalLM",
                 .advice = advice});
  }
  if (config.text_or("model_type", "llama") != "llama") config.refuse("model_type", "\"llama\"", advice);
  if (config.text_or("hidden_act", "silu") != "silu") config.refuse("hidden_act", "\"silu\"", advice);
  for (const char* key : {"attention_bias", "mlp_bias"}) {
    if (config.flag_or(key, false)) config.refuse(key, "false", "Models with biases are not supported.");
  }
  if (config.has("quantization_config")) {
    config.refuse("quantization_config", "none",
                  "Use the model's unquantised weights, or a GGUF file of it.");
  }
  if (config.has("partial_rotary_factor") && config.positive("partial_rotary_factor") != 1.f) {
    config.refuse("partial_rotary_factor", "1", "Rotating a part of a head is not supported.");
  }
}

/// transformers before 5 writes rope_theta and rope_scaling, later ones rope_parameters with both inside. A
/// reader that knows only one of the two would fall back to a wrong base, so there is no default.
float rope_theta(const Settings& config) {
  const auto refuse_scaling = [](const Settings& rope) {
    for (const char* key : {"rope_type", "type"}) {
      if (rope.text_or(key, "default") != "default") {
        rope.refuse(key, "\"default\"", "RoPE scaling is not supported: use a model without it.");
      }
    }
  };
  if (config.has("rope_scaling")) refuse_scaling(config.object("rope_scaling"));
  float theta = 0;
  if (config.has("rope_parameters")) {
    const Settings rope = config.object("rope_parameters");
    refuse_scaling(rope);
    if (rope.has("partial_rotary_factor") && rope.positive("partial_rotary_factor") != 1.f) {
      rope.refuse("partial_rotary_factor", "1", "Rotating a part of a head is not supported.");
    }
    if (rope.has("rope_theta")) theta = rope.positive("rope_theta");
  }
  if (config.has("rope_theta")) {
    const float top = config.positive("rope_theta");
    if (theta != 0 && theta != top) {
      config.refuse("rope_theta", fmt::format("{}, as in rope_parameters", theta), "Correct one of the two.");
    }
    theta = top;
  }
  if (theta == 0) {
    throw Error(
        {.what = config.name("rope_theta"),
         .got = "nothing, neither here nor in rope_parameters",
         .expected = "the base of the rotary embedding",
         .advice = "Write the value that the model was trained with; a wrong one ruins its text silently."});
  }
  return theta;
}

void read_attention(const Settings& settings, ModelConfig& config) {
  config.heads = settings.integer("num_attention_heads", 1, kMaxWidth);
  config.kv_heads = settings.integer_or("num_key_value_heads", config.heads, 1, kMaxWidth);
  if (config.heads % config.kv_heads != 0) {
    settings.refuse("num_key_value_heads", fmt::format("a divisor of num_attention_heads = {}", config.heads),
                    "");
  }
  if (settings.has("head_dim")) {
    config.head_dim = settings.integer("head_dim", 2, kMaxWidth);
  } else if (config.hidden % config.heads == 0) {
    config.head_dim = config.hidden / config.heads;
  } else {
    settings.refuse("num_attention_heads",
                    fmt::format("a divisor of hidden_size = {}, or head_dim beside it", config.hidden), "");
  }
  if (config.head_dim % 2 != 0) {
    throw Error({.what = settings.name("head_dim"),
                 .got = fmt::format("{}", config.head_dim),
                 .expected = "an even number, because RoPE rotates pairs",
                 .advice = ""});
  }
  if (std::int64_t{config.heads} * config.head_dim > kMaxWidth) {
    settings.refuse("num_attention_heads", fmt::format("heads * head_dim of at most {}", kMaxWidth), "");
  }
  config.ffn = settings.integer("intermediate_size", 1, kMaxWidth);
  config.norm_eps = settings.positive("rms_norm_eps");
  config.rope_theta = rope_theta(settings);
}

void read_draft(const Settings& draft, ModelConfig& config) {
  if (draft.text_or("embedding", "") != "target") {
    throw Error(
        {.what = draft.name("embedding"),
         .got = draft.has("embedding") ? "something else" : "nothing",
         .expected = "\"target\"",
         .advice = "A draft with an embedding of its own is a plain Llama directory: remove speclab_draft."});
  }
  config.embedding_of_target = true;
  config.embedding_dim = draft.integer("embedding_dim", 1, kMaxWidth);
  const auto hash = [&](const char* key) {
    const std::string text = draft.text_or(key, "");
    const bool hex = text.find_first_not_of("0123456789abcdef") == std::string::npos;
    if (!text.empty() && (text.size() != 64 || !hex)) {
      draft.refuse(key, "64 lower-case hexadecimal digits", "Write the draft's config.json again.");
    }
    return text;
  };
  config.target_embedding_sha256 = hash("target_embedding_sha256");
  config.target_tokenizer_sha256 = hash("target_tokenizer_sha256");
}

}  // namespace

ModelConfig read_huggingface_config(const fs::path& directory) {
  const fs::path file = directory / "config.json";
  const Json json = read_checkpoint_json(file);
  const Settings settings(json, file.string());
  refuse_other_architectures(settings);

  ModelConfig config;
  config.family = "llama";
  config.name = settings.text_or("_name_or_path", "");
  if (config.name.empty())
    config.name = fs::absolute(directory / "config.json").parent_path().filename().string();
  config.hidden = settings.integer("hidden_size", 1, kMaxWidth);
  config.layers = settings.integer("num_hidden_layers", 0, 10'000);
  config.vocab = settings.integer("vocab_size", 1, kMaxWidth);
  config.context = settings.integer("max_position_embeddings", 1, INT32_MAX);
  config.tied_head = settings.flag_or("tie_word_embeddings", false);
  config.embedding_dim = config.hidden;
  config.final_norm = !settings.flag_or("speclab_table", false);
  if (!config.final_norm && config.layers != 0)
    settings.refuse("num_hidden_layers", "0 with speclab_table", "");
  if (settings.has("speclab_draft")) read_draft(settings.object("speclab_draft"), config);
  if (config.embedding_of_target && config.tied_head) {
    settings.refuse("tie_word_embeddings", "false with speclab_draft", "A draft has a head of its own.");
  }
  if (config.layers > 0) {
    read_attention(settings, config);
  } else if (config.final_norm) {
    config.norm_eps = settings.positive("rms_norm_eps");
  }
  return config;
}

}  // namespace speclab
