#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <utility>

#include "core/base/error.h"
#include "core/model/checkpoint_layout.h"
#include "core/model/gguf.h"

namespace speclab {
namespace {

constexpr std::int64_t kMaxWidth = 1 << 24;

[[noreturn]] void refuse(const std::string& what, std::string got, std::string expected, std::string advice) {
  throw Error({what, std::move(got), std::move(expected), std::move(advice)});
}

int integer(const GgufFile& file, const char* key, std::int64_t least, std::int64_t most) {
  return static_cast<int>(file.integer(key, least, most));
}

constexpr TensorNames kLlamaNames{.layer = "blk.{}.",
                                  .token_embedding = "token_embd",
                                  .position_embedding = nullptr,
                                  .final_norm = "output_norm",
                                  .head = "output",
                                  .attn_norm = "attn_norm",
                                  .attn_post_norm = nullptr,
                                  .ffn_norm = "ffn_norm",
                                  .ffn_post_norm = nullptr,
                                  .q_norm = "attn_q_norm",
                                  .k_norm = "attn_k_norm",
                                  .q = "attn_q",
                                  .k = "attn_k",
                                  .v = "attn_v",
                                  .attn_out = "attn_output",
                                  .gate = "ffn_gate",
                                  .up = "ffn_up",
                                  .down = "ffn_down"};

/// Per-layer lists and experts, scaled or partial RoPE: what our forward pass does not compute.
void refuse_other_architectures(const GgufFile& file, const std::string& name) {
  const std::string advice = "Only plain Llama decoders are supported.";
  if (const auto architecture = file.text("general.architecture"); architecture != "llama") {
    refuse(name + ": metadata general.architecture", fmt::format("\"{}\"", architecture), "\"llama\"",
           advice);
  }
  if (file.has("split.count") && file.integer("split.count", 0, 65535) > 1) {
    refuse(name + ": metadata split.count", fmt::format("{}", file.integer("split.count", 0, 65535)),
           "one file", "Merge the parts with llama-gguf-split --merge.");
  }
  if (file.has("llama.expert_count") && file.integer("llama.expert_count", 0, 65535) > 0) {
    refuse(name + ": metadata llama.expert_count", "experts", "none", advice);
  }
  if (file.has("llama.rope.scaling.type") && file.text("llama.rope.scaling.type") != "none") {
    refuse(name + ": metadata llama.rope.scaling.type",
           fmt::format("\"{}\"", file.text("llama.rope.scaling.type")), "\"none\"",
           "RoPE scaling is not supported: use a model without it.");
  }
  for (const char* key : {"llama.rope.scale_linear", "llama.rope.scaling.factor"}) {
    if (file.has(key) && file.real(key) != 1. && file.real(key) != 0.) {
      refuse(fmt::format("{}: metadata {}", name, key), fmt::format("{}", file.real(key)), "1",
             "RoPE scaling is not supported: use a model without it.");
    }
  }
  for (const StoredTensor& tensor : file.tensors()) {
    if (tensor.name == "rope_freqs.weight") {
      refuse(name + ": tensor rope_freqs.weight", "the factors of a scaled RoPE", "none",
             "RoPE scaling is not supported: use a model without it.");
    }
  }
}

/// A positive number that a float can hold.
float positive(const GgufFile& file, const std::string& name, const char* key) {
  const float value = static_cast<float>(file.real(key));
  if (!(value > 0) || !std::isfinite(value)) {
    refuse(fmt::format("{}: metadata {}", name, key), fmt::format("{}", file.real(key)), "a positive number",
           "");
  }
  return value;
}

void read_head_width(const GgufFile& file, const std::string& name, ModelConfig& config) {
  if (file.has("llama.attention.key_length")) {
    config.head_dim = integer(file, "llama.attention.key_length", 2, kMaxWidth);
  } else if (config.hidden % config.heads == 0) {
    config.head_dim = config.hidden / config.heads;
  } else {
    refuse(name + ": metadata llama.attention.head_count", fmt::format("{}", config.heads),
           fmt::format("a divisor of the embedding length {}, or llama.attention.key_length beside it",
                       config.hidden),
           "");
  }
  if (config.head_dim % 2 != 0 || std::int64_t{config.heads} * config.head_dim > kMaxWidth) {
    refuse(name + ": metadata llama.attention", fmt::format("{} heads of {}", config.heads, config.head_dim),
           fmt::format("an even width, at most {} in all", kMaxWidth), "");
  }
  for (const char* key : {"llama.attention.value_length", "llama.rope.dimension_count"}) {
    if (file.has(key) && file.integer(key, 0, kMaxWidth) != config.head_dim) {
      refuse(fmt::format("{}: metadata {}", name, key), fmt::format("{}", file.integer(key, 0, kMaxWidth)),
             fmt::format("the width of a head, {}", config.head_dim), "Other widths are not supported.");
    }
  }
}

ModelConfig read_config(const GgufFile& file, const MappedFile& mapped) {
  const std::string name = mapped.path().string();
  ModelConfig config;
  config.family = "llama";
  config.name = mapped.path().stem().string();  // general.name is often what a converter made of a checkpoint's path
  config.hidden = config.embedding_dim = integer(file, "llama.embedding_length", 1, kMaxWidth);
  config.layers = integer(file, "llama.block_count", 1, 10'000);
  config.ffn = integer(file, "llama.feed_forward_length", 1, kMaxWidth);
  config.context = integer(file, "llama.context_length", 1, INT32_MAX);
  config.heads = integer(file, "llama.attention.head_count", 1, kMaxWidth);
  config.kv_heads = file.has("llama.attention.head_count_kv")
                        ? integer(file, "llama.attention.head_count_kv", 1, kMaxWidth)
                        : config.heads;
  if (config.heads % config.kv_heads != 0) {
    refuse(name + ": metadata llama.attention.head_count_kv", fmt::format("{}", config.kv_heads),
           fmt::format("a divisor of head_count = {}", config.heads), "");
  }
  read_head_width(file, name, config);
  config.norm_eps = positive(file, name, "llama.attention.layer_norm_rms_epsilon");
  // No default: converters are known to drop a base that they do not find under the name they expect.
  config.rope_theta = positive(file, name, "llama.rope.freq_base");
  config.ropes.resize(1);
  config.ropes[0].theta = config.rope_theta;
  config.ropes[0].dims = config.head_dim;
  config.rope_of.assign(static_cast<std::size_t>(config.layers), 0);

  config.tied_head = true;
  for (const StoredTensor& tensor : file.tensors()) {
    if (tensor.name == "output.weight") config.tied_head = false;
    if (tensor.name == "token_embd.weight" && tensor.shape.size() == 2 && tensor.shape[0] <= kMaxWidth) {
      config.vocab = static_cast<int>(tensor.shape[0]);
    }
  }
  const auto same_vocab = [&](const std::string& what, std::uint64_t count) {
    if (config.vocab == 0) config.vocab = static_cast<int>(std::min<std::uint64_t>(count, kMaxWidth));
    if (count != static_cast<std::uint64_t>(config.vocab)) {
      refuse(fmt::format("{}: metadata {}", name, what), fmt::format("{} tokens", count),
             fmt::format("{}, the rows of token_embd.weight", config.vocab),
             "The parts belong to different models.");
    }
  };
  if (file.has("llama.vocab_size")) {
    same_vocab("llama.vocab_size",
               static_cast<std::uint64_t>(file.integer("llama.vocab_size", 1, kMaxWidth)));
  }
  if (file.has("tokenizer.ggml.tokens"))
    same_vocab("tokenizer.ggml.tokens", file.array("tokenizer.ggml.tokens").count);
  return config;
}

std::optional<Tokenizer> read_tokenizer(const GgufFile& file, const std::string& name) {
  if (!file.has("tokenizer.ggml.tokens")) return std::nullopt;
  Tokenizer::Parts parts;
  parts.file = name;
  const auto strings = [&](const char* key) {
    const GgufArray& array = file.array(key);
    if (array.strings.size() != array.count) {
      refuse(fmt::format("{}: metadata {}", name, key), "an array of another type", "an array of strings",
             "");
    }
    return std::vector<std::string>(array.strings.begin(), array.strings.end());
  };
  if (file.has("tokenizer.ggml.model")) parts.model = file.text("tokenizer.ggml.model");
  if (file.has("tokenizer.ggml.pre")) parts.pre_tokenizer = file.text("tokenizer.ggml.pre");
  parts.tokens = strings("tokenizer.ggml.tokens");
  if (file.has("tokenizer.ggml.merges")) parts.merges = strings("tokenizer.ggml.merges");
  if (file.has("tokenizer.ggml.token_type")) {
    const GgufArray& types = file.array("tokenizer.ggml.token_type");
    if (!types.holds_integers()) {
      refuse(name + ": metadata tokenizer.ggml.token_type", "an array of another type",
             "an array of integers", "");
    }
    for (std::uint64_t i = 0; i < types.count; ++i) {
      // Types are 1 to 6: what a 32-bit number cannot hold becomes 0, which the tokenizer refuses.
      const std::int64_t type = types.integer(i);
      parts.token_types.push_back(type < 0 || type > INT32_MAX ? 0 : static_cast<std::int32_t>(type));
    }
  }
  const auto id = [&](const char* what) -> std::optional<Token> {
    const std::string key = fmt::format("tokenizer.ggml.{}_token_id", what);
    if (!file.has(key)) return std::nullopt;
    return static_cast<Token>(file.integer(key, 0, static_cast<std::int64_t>(parts.tokens.size()) - 1));
  };
  parts.ids.bos = id("bos");
  parts.ids.eos = id("eos");
  parts.ids.unk = id("unknown");
  parts.ids.pad = id("padding");
  for (const char* what : {"eot", "eom"}) {
    if (const auto end = id(what)) parts.ids.end_of_generation.push_back(*end);
  }
  if (file.has("tokenizer.ggml.add_bos_token")) parts.add_bos = file.flag("tokenizer.ggml.add_bos_token");
  return Tokenizer::from_parts(std::move(parts));
}

}  // namespace

CheckpointParts open_gguf_file(MappedFile mapped) {
  const std::string name = mapped.path().string();
  const auto shared = std::make_shared<const GgufFile>(GgufFile::parse(mapped.bytes(), name));
  const GgufFile& file = *shared;
  refuse_other_architectures(file, name);
  CheckpointParts parts;
  parts.config = read_config(file, mapped);
  parts.tensors = take_tensors(expected_tensors(parts.config, kLlamaNames), file.tensors(), name,
                               "its metadata", true, [](const std::string&) { return false; });
  if (file.has("tokenizer.chat_template")) parts.chat_template = file.text("tokenizer.chat_template");
  parts.tokenizer = [shared, name] { return read_tokenizer(*shared, name); };
  parts.files.push_back(std::move(mapped));
  return parts;
}

}  // namespace speclab
