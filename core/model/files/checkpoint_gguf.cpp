#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <utility>

#include "core/base/error.h"
#include "core/model/files/checkpoint_layout.h"
#include "core/model/files/gguf_family.h"

namespace speclab {
namespace {

constexpr std::int64_t kMaxWidth = 1 << 24;

[[noreturn]] void refuse(const std::string& what, std::string got, std::string expected, std::string advice) {
  throw Error({what, std::move(got), std::move(expected), std::move(advice)});
}

/// Refuses a part of a split file. Only the first part has the metadata of the model, so this check comes
/// before all other metadata are used.
void refuse_parts(const GgufFile& file, const std::string& file_name) {
  if (!file.has("split.count") || file.integer("split.count", 0, 65535) <= 1) return;
  refuse(file_name + ": metadata split.count", fmt::format("{}", file.integer("split.count", 0, 65535)),
         "one file", "Merge the parts with llama-gguf-split --merge.");
}

void refuse_experts(const GgufSettings& settings) {
  if (settings.has("expert_count") && settings.integer("expert_count", 0, 65535) > 0) {
    settings.refuse("expert_count", "experts", "none", "Mixtures of experts are not supported.");
  }
}

void read_head_width(const GgufSettings& settings, ModelConfig& config) {
  if (settings.has("attention.key_length")) {
    config.head_dim = settings.integer("attention.key_length", 2, kMaxWidth);
  } else if (config.hidden % config.heads == 0) {
    config.head_dim = config.hidden / config.heads;
  } else {
    settings.refuse("attention.head_count", fmt::format("{}", config.heads),
                    fmt::format("a number that divides the embedding length {}, or a width of heads in {}",
                                config.hidden, settings.key("attention.key_length")),
                    "");
  }
  if (config.head_dim % 2 != 0 || std::int64_t{config.heads} * config.head_dim > kMaxWidth) {
    settings.refuse(
        "attention", fmt::format("{} heads of {} dimensions", config.heads, config.head_dim),
        fmt::format("an even number of dimensions in a head, and at most {} in all heads together",
                    kMaxWidth),
        "");
  }
  if (settings.has("attention.value_length") &&
      settings.integer("attention.value_length", 0, kMaxWidth) != config.head_dim) {
    settings.refuse(
        "attention.value_length", fmt::format("{}", settings.integer("attention.value_length", 0, kMaxWidth)),
        fmt::format("the width of a head, {}", config.head_dim), "Other widths are not supported.");
  }
}

ModelConfig read_config(const GgufSettings& settings, const GgufFamily& family, const MappedFile& mapped,
                        std::vector<std::string>& assumed) {
  const GgufFile& file = settings.file();
  const std::string& name = settings.file_name();
  ModelConfig config;
  config.family = settings.architecture();
  config.name = mapped.path().stem().string();  // general.name is often a path that the converter has changed
  config.hidden = config.embedding_dim = settings.integer("embedding_length", 1, kMaxWidth);
  config.layers = settings.integer("block_count", 1, 10'000);
  config.ffn = settings.integer("feed_forward_length", 1, kMaxWidth);
  config.context = settings.integer("context_length", 1, INT32_MAX);
  config.heads = settings.integer("attention.head_count", 1, kMaxWidth);
  config.kv_heads = settings.has("attention.head_count_kv")
                        ? settings.integer("attention.head_count_kv", 1, kMaxWidth)
                        : config.heads;
  if (config.heads % config.kv_heads != 0) {
    settings.refuse("attention.head_count_kv", fmt::format("{}", config.kv_heads),
                    fmt::format("a divisor of head_count = {}", config.heads), "");
  }
  read_head_width(settings, config);
  config.norm = family.rms ? NormKind::kRms : NormKind::kLayer;
  config.norm_eps =
      settings.positive(family.rms ? "attention.layer_norm_rms_epsilon" : "attention.layer_norm_epsilon");
  if (family.rotary) config.ropes = {read_gguf_rope(settings, family, config)};
  if (family.rotary && !settings.has("rope.freq_base")) {
    assumed.push_back(
        fmt::format("{} is missing: {} is used", settings.key("rope.freq_base"), config.ropes[0].theta));
  }
  config.rope_of.assign(static_cast<std::size_t>(config.layers), family.rotary ? 0 : -1);
  family.read(settings, config);
  if (family.rotary) config.rope_theta = config.ropes[0].theta;

  config.tied_head = true;
  for (const StoredTensor& tensor : file.tensors()) {
    if (tensor.name == "output.weight") config.tied_head = false;
    if (tensor.name == "token_embd.weight" && tensor.shape.size() == 2 && tensor.shape[0] <= kMaxWidth) {
      config.vocab = static_cast<int>(tensor.shape[0]);
    }
  }
  // Checked before expected_tensors() lists the tensors of all these layers.
  if (static_cast<std::size_t>(config.layers) > file.tensors().size()) {
    refuse(fmt::format("{}: metadata {}.block_count", name, config.family), fmt::format("{}", config.layers),
           fmt::format("no more layers than the {} tensors that are there", file.tensors().size()),
           "The file is incomplete; convert or fetch the model again.");
  }
  const auto same_vocab = [&](const std::string& what, std::uint64_t count) {
    if (config.vocab == 0) config.vocab = static_cast<int>(std::min<std::uint64_t>(count, kMaxWidth));
    if (count != static_cast<std::uint64_t>(config.vocab)) {
      refuse(fmt::format("{}: metadata {}", name, what), fmt::format("{} tokens", count),
             fmt::format("{}, the rows of token_embd.weight", config.vocab),
             "The parts belong to different models.");
    }
  };
  if (settings.has("vocab_size")) {
    same_vocab(settings.key("vocab_size"),
               static_cast<std::uint64_t>(settings.integer("vocab_size", 1, kMaxWidth)));
  }
  if (file.has("tokenizer.ggml.tokens"))
    same_vocab("tokenizer.ggml.tokens", file.array("tokenizer.ggml.tokens").count);
  return config;
}

void read_sentencepiece_keys(const GgufFile& file, const std::string& name, Tokenizer::Parts& parts) {
  if (file.has("tokenizer.ggml.scores")) {
    const GgufArray& scores = file.array("tokenizer.ggml.scores");
    if (!scores.holds_reals()) {
      refuse(name + ": metadata tokenizer.ggml.scores", "an array of another type", "an array of floats", "");
    }
    for (std::uint64_t i = 0; i < scores.count; ++i)
      parts.scores.push_back(static_cast<float>(scores.real(i)));
  }
  if (file.has("tokenizer.ggml.add_space_prefix"))
    parts.add_space_prefix = file.flag("tokenizer.ggml.add_space_prefix");
  if (file.has("tokenizer.ggml.remove_extra_whitespaces"))
    parts.remove_extra_whitespaces = file.flag("tokenizer.ggml.remove_extra_whitespaces");
  if (file.has("tokenizer.ggml.precompiled_charsmap")) {
    const GgufArray& map = file.array("tokenizer.ggml.precompiled_charsmap");
    if (map.element_type != kGgufU8 && map.element_type != kGgufI8) {
      refuse(name + ": metadata tokenizer.ggml.precompiled_charsmap", "an array of another type",
             "an array of bytes", "");
    }
    parts.character_map.assign(reinterpret_cast<const char*>(map.bytes.data()), map.bytes.size());
  }
}

/// Reads the types of the tokens. A number below 0 or above INT32_MAX becomes 0, which is no type.
std::vector<std::int32_t> read_token_types(const GgufFile& file, const std::string& name) {
  std::vector<std::int32_t> types;
  if (!file.has("tokenizer.ggml.token_type")) return types;
  const GgufArray& array = file.array("tokenizer.ggml.token_type");
  if (!array.holds_integers()) {
    refuse(name + ": metadata tokenizer.ggml.token_type", "an array of another type", "an array of integers",
           "");
  }
  for (std::uint64_t i = 0; i < array.count; ++i) {
    const std::int64_t type = array.integer(i);
    types.push_back(type < 0 || type > INT32_MAX ? 0 : static_cast<std::int32_t>(type));
  }
  return types;
}

void read_token_ids(const GgufFile& file, Tokenizer::Parts& parts) {
  const auto id = [&](const char* what) -> std::optional<Token> {
    const std::string key = fmt::format("tokenizer.ggml.{}_token_id", what);
    if (!file.has(key)) return std::nullopt;
    const std::int64_t number = file.integer(key, INT64_MIN, INT64_MAX);
    if (number >= 0 && number < static_cast<std::int64_t>(parts.tokens.size()))
      return static_cast<Token>(number);
    parts.assumed.push_back(
        fmt::format("{} is {}, which is no token: read as if it were missing", key, number));
    return std::nullopt;
  };
  parts.ids.bos = id("bos");
  parts.ids.eos = id("eos");
  parts.ids.unk = id("unknown");
  parts.ids.pad = id("padding");
  for (const char* what : {"eot", "eom"}) {
    if (const auto end = id(what)) parts.ids.end_of_generation.push_back(*end);
  }
  constexpr std::array<std::pair<const char*, const char*>, 9> kRoles{{{"fim_pre", "fim_pre"},
                                                                       {"fim_suf", "fim_suf"},
                                                                       {"fim_mid", "fim_mid"},
                                                                       {"fim_pad", "fim_pad"},
                                                                       {"fim_rep", "fim_rep"},
                                                                       {"fim_sep", "fim_sep"},
                                                                       {"prefix", "fim_pre"},    // old files
                                                                       {"suffix", "fim_suf"},    // old files
                                                                       {"middle", "fim_mid"}}};  // old files
  for (const auto& [key, role] : kRoles) {
    if (id(key)) parts.stated_roles.insert(role);
  }
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
  parts.model = file.text("tokenizer.ggml.model");
  if (file.has("tokenizer.ggml.pre")) parts.pre_tokenizer = file.text("tokenizer.ggml.pre");
  parts.tokens = strings("tokenizer.ggml.tokens");
  if (parts.model == "gpt2") parts.merges = strings("tokenizer.ggml.merges");
  parts.token_types = read_token_types(file, name);
  read_token_ids(file, parts);
  if (file.has("tokenizer.ggml.add_bos_token")) parts.add_bos = file.flag("tokenizer.ggml.add_bos_token");
  if (file.has("tokenizer.ggml.add_eos_token") && file.flag("tokenizer.ggml.add_eos_token")) {
    parts.assumed.push_back(
        "tokenizer.ggml.add_eos_token is true: ignored, because the model has to continue the prompt");
  }
  read_sentencepiece_keys(file, name, parts);
  return Tokenizer::from_parts(std::move(parts));
}

}  // namespace

CheckpointParts open_gguf_file(MappedFile mapped) {
  const std::string name = mapped.path().string();
  const auto shared = std::make_shared<const GgufFile>(GgufFile::parse(mapped.bytes(), name));
  const GgufFile& file = *shared;
  refuse_parts(file, name);
  const GgufSettings settings(file, name);
  const GgufFamily& family = gguf_family(settings);
  refuse_experts(settings);
  CheckpointParts parts;
  parts.config = read_config(settings, family, mapped, parts.assumed);
  std::vector<ExpectedTensor> expected = expected_tensors(parts.config, family.names);
  for (ExpectedTensor& tensor : expected) {
    if (tensor.rms_norm)
      tensor.shift = -parts.config.norm_offset;  // the converter has added the offset to the weights
  }
  parts.tensors =
      take_tensors(expected, file.tensors(), name, "its metadata", family.interleaved,
                   [&](const std::string& tensor) { return family.rotary && is_rope_tensor(tensor); });
  if (file.has("tokenizer.chat_template")) parts.chat_template = file.text("tokenizer.chat_template");
  parts.tokenizer = [shared, name] { return read_tokenizer(*shared, name); };
  parts.files.push_back(std::move(mapped));
  return parts;
}

}  // namespace speclab
