#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>

#include "core/base/error.h"
#include "core/base/json_text.h"
#include "core/model/checkpoint_layout.h"
#include "core/model/safetensors.h"

namespace speclab {
namespace {

using Json = nlohmann::json;
namespace fs = std::filesystem;

/// Reads typed members of a JSON object; null counts as absent, as in transformers.
class Settings {
 public:
  Settings(const Json& json, std::string where) : json_(json), where_(std::move(where)) {
    if (!json.is_object()) fail(where_, fmt::format("a JSON {}", json_type_name(json)), "a JSON object");
  }

  bool has(const char* key) const { return json_.contains(key) && !json_[key].is_null(); }
  std::string name(const char* key) const { return where_ + ": " + key; }
  const Json& at(const char* key) const {
    if (!has(key)) fail(name(key), "nothing", "a value", "The file is incomplete; fetch it again.");
    return json_[key];
  }

  int integer(const char* key, std::int64_t least, std::int64_t most) const {
    const Json& value = at(key);
    const std::string range = fmt::format("a whole number from {} to {}", least, most);
    if (!value.is_number_integer()) fail(name(key), value_text(value), range);
    const bool huge = value.is_number_unsigned() && value.get<std::uint64_t>() > INT64_MAX;
    if (huge || value.get<std::int64_t>() < least || value.get<std::int64_t>() > most)
      fail(name(key), value.dump(), range);
    return static_cast<int>(value.get<std::int64_t>());
  }
  int integer_or(const char* key, int absent, std::int64_t least, std::int64_t most) const {
    return has(key) ? integer(key, least, most) : absent;
  }
  /// A positive number that a float can hold.
  float positive(const char* key) const {
    const Json& value = at(key);
    if (!value.is_number()) fail(name(key), value_text(value), "a positive number");
    const float number = value.get<float>();
    if (!(number > 0) || !std::isfinite(number)) fail(name(key), value.dump(), "a positive number");
    return number;
  }
  bool flag_or(const char* key, bool absent) const {
    if (!has(key)) return absent;
    if (!json_[key].is_boolean()) fail(name(key), value_text(json_[key]), "true or false");
    return json_[key].get<bool>();
  }
  std::string text_or(const char* key, std::string absent) const {
    if (!has(key)) return absent;
    if (!json_[key].is_string()) fail(name(key), value_text(json_[key]), "a string");
    return json_[key].get<std::string>();
  }
  Settings object(const char* key) const { return {at(key), name(key)}; }

  [[noreturn]] void refuse(const char* key, std::string expected, std::string advice) const {
    fail(name(key), value_text(json_[key]), std::move(expected), std::move(advice));
  }

 private:
  static std::string value_text(const Json& value) {
    if (value.is_string() || value.is_number() || value.is_boolean()) return value.dump();
    return fmt::format("a JSON {}", json_type_name(value));
  }
  [[noreturn]] static void fail(std::string what, std::string got, std::string expected,
                                std::string advice = "") {
    throw Error({std::move(what), std::move(got), std::move(expected), std::move(advice)});
  }

  const Json& json_;
  std::string where_;
};

Json read_json(const fs::path& path) {
  return parse_json(MappedFile::open(path).text(), path.string());
}

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

ModelConfig read_config(const fs::path& directory) {
  const fs::path file = directory / "config.json";
  const Json json = read_json(file);
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

/// The safetensors files of a directory: model.safetensors, or those that the index names, in name order.
std::vector<MappedFile> open_weights(const fs::path& directory, Json& index) {
  std::vector<MappedFile> files;
  const fs::path single = directory / "model.safetensors",
                 index_file = directory / "model.safetensors.index.json";
  if (fs::exists(single) || !fs::exists(index_file)) {
    if (!fs::exists(single)) {
      throw Error(
          {.what = directory.string(),
           .got = "no weights",
           .expected = "model.safetensors or model.safetensors.index.json",
           .advice = "Fetch the model again, in the safetensors format (pytorch_model.bin is not read)."});
    }
    files.push_back(MappedFile::open(single));
    return files;
  }
  const Json json = read_json(index_file);
  index = Settings(json, index_file.string()).at("weight_map");
  const Settings checked(index, index_file.string() + ": weight_map");
  std::set<std::string> names;
  for (const auto& [tensor, file] : index.items()) {
    const std::string name = file.is_string() ? file.get<std::string>() : "";
    if (name.empty() || fs::path(name).filename() != name || name == "." || name == "..") {
      throw Error({.what = checked.name(tensor.c_str()),
                   .got = file.dump(),
                   .expected = "the name of a file in the same directory",
                   .advice = "Fetch the index again."});
    }
    names.insert(name);
  }
  for (const std::string& name : names) files.push_back(MappedFile::open(directory / name));
  return files;
}

std::vector<StoredTensor> read_weights(const fs::path& directory, const std::vector<MappedFile>& files,
                                       const Json& index) {
  std::vector<StoredTensor> tensors;
  std::map<std::string, std::string> file_of;
  for (const MappedFile& file : files) {
    const std::string file_name = file.path().filename().string();
    for (StoredTensor& tensor : read_safetensors(file.bytes(), file.path().string())) {
      if (const auto [at, fresh] = file_of.emplace(tensor.name, file_name); !fresh) {
        throw Error({.what = fmt::format("{}: tensor {}", file.path().string(), tensor.name),
                     .got = "a tensor that is also in " + at->second,
                     .expected = "every tensor in one file",
                     .advice = "The shards belong to different models; fetch them again."});
      }
      tensors.push_back(std::move(tensor));
    }
  }
  for (const auto& [tensor, file] : index.items()) {
    const auto found = file_of.find(tensor);
    if (found == file_of.end() || found->second != file.get<std::string>()) {
      throw Error(
          {.what = fmt::format("{}: tensor {}", (directory / file.get<std::string>()).string(), tensor),
           .got = found == file_of.end() ? "no such tensor" : "it in " + found->second,
           .expected = "it here, as model.safetensors.index.json says",
           .advice = "The shards and the index belong to different models; fetch them again."});
    }
  }
  return tensors;
}

/// Takes `draft_vocab` out of the tensors: the target ids of the head's rows.
std::vector<Token> take_head_ids(std::vector<StoredTensor>& tensors, const ModelConfig& config,
                                 const fs::path& directory) {
  const auto found =
      std::find_if(tensors.begin(), tensors.end(), [](const auto& t) { return t.name == "draft_vocab"; });
  if (found == tensors.end()) return {};
  const std::string what = fmt::format("{}: tensor draft_vocab", directory.string());
  if (found->type != TensorType::kI32 || found->shape.size() != 1 || found->shape[0] < 1) {
    throw Error({.what = what,
                 .got = fmt::format("{} [{}]", found->type_name, fmt::join(found->shape, ", ")),
                 .expected = "I32 [rows of the head]",
                 .advice = "Write the draft again."});
  }
  std::vector<Token> ids(static_cast<std::size_t>(found->shape[0]));
  std::memcpy(ids.data(), found->data.data(), ids.size() * sizeof(Token));
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0 || ids[i] >= config.vocab || (i > 0 && ids[i] <= ids[i - 1])) {
      throw Error({.what = fmt::format("{}, element {}", what, i),
                   .got = fmt::format("{}", ids[i]),
                   .expected = fmt::format("ascending token ids below vocab_size = {}", config.vocab),
                   .advice = "Write the draft again."});
    }
  }
  tensors.erase(found);
  return ids;
}

/// transformers keeps it in a file of its own, older versions in tokenizer_config.json, as a string or as a
/// list of named ones.
std::string read_chat_template(const fs::path& directory) {
  if (const fs::path file = directory / "chat_template.jinja"; fs::exists(file)) {
    return std::string(MappedFile::open(file).text());
  }
  const fs::path file = directory / "tokenizer_config.json";
  if (!fs::exists(file)) return "";
  const Json json = read_json(file);
  const Settings settings(json, file.string());
  if (!settings.has("chat_template")) return "";
  const Json& value = settings.at("chat_template");
  if (!value.is_array()) return settings.text_or("chat_template", "");
  for (const Json& item : value) {
    const Settings named(item, settings.name("chat_template"));
    if (named.text_or("name", "") == "default") return named.text_or("template", "");
  }
  return "";
}

/// eos_token_id is one id or a list of ids, of which the first is the usual end.
std::vector<Token> read_ids(const Settings& settings, const char* key, int vocab) {
  if (!settings.has(key)) return {};
  if (!settings.at(key).is_array()) return {settings.integer(key, 0, vocab - 1)};
  std::vector<Token> out;
  for (const Json& item : settings.at(key)) {
    const Json one = {{"element", item}};
    out.push_back(Settings(one, settings.name(key)).integer("element", 0, vocab - 1));
  }
  return out;
}

/// tokenizer.json, with the ids that stand in config.json and, with priority, in generation_config.json.
std::optional<Tokenizer> read_tokenizer(const fs::path& directory, int vocab) {
  const fs::path file = directory / "tokenizer.json";
  if (!fs::exists(file)) return std::nullopt;
  Tokenizer::Ids ids;
  for (const char* name : {"config.json", "generation_config.json"}) {
    if (!fs::exists(directory / name)) continue;
    const Json json = read_json(directory / name);
    const Settings settings(json, (directory / name).string());
    const auto set = [&](const char* key, std::optional<Token>& id) {
      if (const auto found = read_ids(settings, key, vocab); !found.empty()) id = found[0];
    };
    set("bos_token_id", ids.bos);
    set("eos_token_id", ids.eos);
    set("pad_token_id", ids.pad);
    for (const Token id : read_ids(settings, "eos_token_id", vocab)) ids.end_of_generation.push_back(id);
  }
  return Tokenizer::from_json(MappedFile::open(file).text(), file.string(), ids);
}

}  // namespace

CheckpointParts open_huggingface_directory(const fs::path& directory) {
  if (!fs::exists(directory / "config.json")) {
    throw Error(
        {.what = directory.string(),
         .got = "a directory without config.json",
         .expected = "a Hugging Face model directory, or a GGUF file",
         .advice = "Give the path of the .gguf file itself, or of the directory that holds config.json."});
  }
  CheckpointParts parts;
  parts.config = read_config(directory);
  Json index = Json::object();
  parts.files = open_weights(directory, index);
  std::vector<StoredTensor> tensors = read_weights(directory, parts.files, index);
  if (parts.config.embedding_of_target)
    parts.config.head_ids = take_head_ids(tensors, parts.config, directory);
  const bool tied = parts.config.tied_head;
  std::vector<ExpectedTensor> expected = expected_tensors(parts.config, Naming::kHuggingFace);
  const auto stored = [&](const char* name) {
    return std::any_of(tensors.begin(), tensors.end(), [&](const auto& tensor) { return tensor.name == name; });
  };
  if (tied && !stored("model.embed_tokens.weight") && stored("lm_head.weight")) {
    expected[0].file_name = "lm_head.weight";  // of two tied tensors safetensors keeps one, under either name
  }
  parts.tensors = take_tensors(expected, std::move(tensors), directory.string(), "config.json", false,
                               [tied](const std::string& name) {
                                 // A tied head may be stored once more, and old files keep RoPE's constants.
                                 return (tied && name == "lm_head.weight") || name.ends_with(".rotary_emb.inv_freq");
                               });
  parts.chat_template = read_chat_template(directory);
  parts.tokenizer = [directory, vocab = parts.config.vocab] { return read_tokenizer(directory, vocab); };
  return parts;
}

}  // namespace speclab
