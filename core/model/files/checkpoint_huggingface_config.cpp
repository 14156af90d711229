#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "core/base/error.h"
#include "core/model/files/huggingface_family.h"

namespace speclab {
namespace {

using Json = nlohmann::json;
namespace fs = std::filesystem;

constexpr int kMostWidth = 1 << 24;

void read_attention(const ConfigValues& settings, const HuggingFaceFamily& family, ModelConfig& config) {
  const HuggingFaceKeys& keys = family.keys;
  config.heads = settings.integer(keys.heads, 1, kMostWidth);
  const bool assumed = family.grouped_heads && !settings.states("num_key_value_heads");
  config.kv_heads = assumed ? settings.integer("num_key_value_heads", 1, kMostWidth)
                            : settings.integer_or("num_key_value_heads", config.heads, 1, kMostWidth);
  if (config.heads % config.kv_heads != 0) {
    settings.refuse("num_key_value_heads", fmt::format("a divisor of {} = {}", keys.heads, config.heads), "");
  }
  if (settings.has("head_dim")) {
    config.head_dim = settings.integer("head_dim", 2, kMostWidth);
  } else if (config.hidden % config.heads == 0) {
    config.head_dim = config.hidden / config.heads;
  } else {
    settings.refuse(keys.heads,
                    fmt::format("a divisor of {} = {}, unless head_dim is set", keys.hidden, config.hidden),
                    "");
  }
  if (config.head_dim % 2 != 0) {
    throw Error({.what = settings.name("head_dim"),
                 .got = fmt::format("{}", config.head_dim),
                 .expected = "an even number, because RoPE rotates pairs",
                 .advice = ""});
  }
  if (std::int64_t{config.heads} * config.head_dim > kMostWidth) {
    settings.refuse(keys.heads, fmt::format("heads * head_dim of at most {}", kMostWidth), "");
  }
  // In config.json of GPT-2, a missing or null n_inner means four times the hidden width.
  const bool four = family.model_type == std::string_view("gpt2") && !settings.has(keys.ffn) &&
                    config.hidden <= kMostWidth / 4;
  config.ffn = four ? 4 * config.hidden : settings.integer(keys.ffn, 1, kMostWidth);
  if (keys.norm_eps != nullptr) config.norm_eps = settings.positive(keys.norm_eps);
  family.read(settings, config);
  if (!config.ropes.empty()) config.rope_theta = config.ropes.front().theta;
}

void read_draft(const ConfigValues& draft, ModelConfig& config) {
  if (draft.text_or("embedding", "") != "target") {
    throw Error(
        {.what = draft.name("embedding"),
         .got = draft.has("embedding") ? "something else" : "nothing",
         .expected = "\"target\"",
         .advice = "A draft with its own embedding is a plain Llama directory: remove speclab_draft."});
  }
  config.embedding_of_target = true;
  config.embedding_dim = draft.integer("embedding_dim", 1, kMostWidth);
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
  const Json json = read_checkpoint_json(file, kMostConfigBytes);
  const ConfigValues settings(json, file.string());
  const HuggingFaceFamily& family = huggingface_family(settings);
  if (settings.has("quantization_config")) {
    settings.refuse("quantization_config", "none",
                    "Use the model's unquantised weights, or a GGUF file of it.");
  }

  ModelConfig config;
  config.family = family.model_type;
  config.name = settings.text_or("_name_or_path", "");
  if (config.name.empty()) {
    std::error_code gone;  // absolute() fails if the current directory has been deleted
    config.name = fs::absolute(directory / "config.json", gone).parent_path().filename().string();
  }
  config.hidden = settings.integer(family.keys.hidden, 1, kMostWidth);
  config.layers = settings.integer(family.keys.layers, 0, 10'000);
  config.vocab = settings.integer("vocab_size", 1, kMostWidth);
  config.context = settings.integer(family.keys.context, 1, INT32_MAX);
  config.tied_head = settings.flag_or("tie_word_embeddings", family.tied);
  config.embedding_dim = config.hidden;
  config.final_norm = !settings.flag_or("speclab_table", false);
  if (!config.final_norm && config.layers != 0)
    settings.refuse(family.keys.layers, "0 with speclab_table", "");
  if (settings.has("speclab_draft")) read_draft(settings.object("speclab_draft"), config);
  if (config.embedding_of_target && config.tied_head) {
    settings.refuse("tie_word_embeddings", "false with speclab_draft", "A draft has its own output head.");
  }
  if (config.embedding_of_target && config.family != "llama") {
    settings.refuse("model_type", "\"llama\" with speclab_draft",
                    "A draft that reads its target's embedding is a Llama decoder.");
  }
  if (config.layers > 0) {
    read_attention(settings, family, config);
  } else if (config.final_norm) {
    if (config.family != "llama") settings.refuse(family.keys.layers, "at least 1", "");
    config.norm_eps = settings.positive("rms_norm_eps");
  }
  return config;
}

}  // namespace speclab
