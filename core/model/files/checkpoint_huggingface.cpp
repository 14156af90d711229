#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <utility>

#include "core/base/error.h"
#include "core/model/files/checkpoint_json.h"
#include "core/model/files/checkpoint_layout.h"
#include "core/model/files/huggingface_family.h"
#include "core/model/files/safetensors.h"

namespace speclab {
namespace {

using Json = nlohmann::json;
namespace fs = std::filesystem;

/// False only if the file certainly does not exist. If it cannot be checked, opening it gives the error.
bool file_exists(const fs::path& path) {
  std::error_code ignored;
  return fs::status(path, ignored).type() != fs::file_type::not_found;
}

/// Opens the safetensors files of a directory: model.safetensors, or the files that the index names, in name
/// order. Sets `index` to the index's weight_map if it reads the index.
std::vector<MappedFile> open_weights(const fs::path& directory, Json& index) {
  std::vector<MappedFile> files;
  const fs::path single = directory / "model.safetensors",
                 index_file = directory / "model.safetensors.index.json";
  if (file_exists(single) || !file_exists(index_file)) {
    if (!file_exists(single)) {
      throw Error(
          {.what = directory.string(),
           .got = "no weights",
           .expected = "model.safetensors or model.safetensors.index.json",
           .advice = "Fetch the model again, in the safetensors format (pytorch_model.bin is not read)."});
    }
    files.push_back(MappedFile::open(single));
    return files;
  }
  const Json json = read_checkpoint_json(index_file);
  index = ConfigValues(json, index_file.string()).at("weight_map");
  const ConfigValues checked(index, index_file.string() + ": weight_map");
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
                     .expected = "each tensor in only one file",
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
           .got = found == file_of.end() ? "no such tensor" : "the tensor in " + found->second,
           .expected = "the tensor here, as model.safetensors.index.json says",
           .advice = "The shards and the index belong to different models; fetch them again."});
    }
  }
  return tensors;
}

/// Removes the tensor `draft_vocab` from the list and returns its contents: the target's token id of each row
/// of the output head. Returns an empty list when there is no such tensor.
std::vector<Token> take_head_ids(std::vector<StoredTensor>& tensors, const ModelConfig& config,
                                 const fs::path& directory) {
  const auto found =
      std::find_if(tensors.begin(), tensors.end(), [](const auto& t) { return t.name == "draft_vocab"; });
  if (found == tensors.end()) return {};
  const std::string what = fmt::format("{}: tensor draft_vocab", directory.string());
  if (found->type != TensorType::kI32 || found->shape.size() != 1 || found->shape[0] < 1) {
    throw Error({.what = what,
                 .got = fmt::format("{} [{}]", found->type_name, fmt::join(found->shape, ", ")),
                 .expected = "I32 [rows of the output head]",
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

/// Reads the chat template; "" if there is none. transformers stores it in chat_template.jinja. Its older
/// versions store it in tokenizer_config.json, as a string or as a list of named templates.
std::string read_chat_template(const fs::path& directory) {
  if (const fs::path file = directory / "chat_template.jinja"; file_exists(file)) {
    return std::string(MappedFile::open(file).text());
  }
  const fs::path file = directory / "tokenizer_config.json";
  if (!file_exists(file)) return "";
  const Json json = read_checkpoint_json(file);
  const ConfigValues settings(json, file.string());
  if (!settings.has("chat_template")) return "";
  const Json& value = settings.at("chat_template");
  if (!value.is_array()) return settings.text_or("chat_template", "");
  for (const Json& item : value) {
    const ConfigValues named(item, settings.name("chat_template"));
    if (named.text_or("name", "") == "default") return named.text_or("template", "");
  }
  return "";
}

/// Reads a member like eos_token_id. It is one id, or a list that begins with the usual id.
std::vector<Token> read_ids(const ConfigValues& settings, const char* key, int vocab) {
  if (!settings.has(key)) return {};
  if (!settings.at(key).is_array()) return {settings.integer(key, 0, vocab - 1)};
  std::vector<Token> out;
  for (const Json& item : settings.at(key)) {
    const Json one = {{"element", item}};
    out.push_back(ConfigValues(one, settings.name(key)).integer("element", 0, vocab - 1));
  }
  return out;
}

/// Reads tokenizer.json or, without it, SentencePiece's tokenizer.model. The ids of
/// special tokens in generation_config.json take precedence over those in config.json. The end tokens of both
/// files end a text.
std::optional<Tokenizer> read_tokenizer(const fs::path& directory, int vocab) {
  const fs::path file = directory / "tokenizer.json";
  const fs::path sentencepiece = directory / "tokenizer.model";
  if (!file_exists(file) && !file_exists(sentencepiece)) return std::nullopt;
  Tokenizer::Ids ids;
  for (const char* name : {"config.json", "generation_config.json"}) {
    if (!file_exists(directory / name)) continue;
    const Json json = read_checkpoint_json(directory / name, kMostConfigBytes);
    const ConfigValues settings(json, (directory / name).string());
    const auto set = [&](const char* key, std::optional<Token>& id) {
      if (const auto found = read_ids(settings, key, vocab); !found.empty()) id = found[0];
    };
    set("bos_token_id", ids.bos);
    set("eos_token_id", ids.eos);
    // A number outside the vocabulary, such as -1 or 4294967295, means that there is no padding token. In
    // generation_config.json it also overrides a padding token that config.json names. transformers does not
    // use this token when it reads one text at a time.
    if (settings.has("pad_token_id") && settings.at("pad_token_id").is_number_integer()) {
      const Json& pad = settings.at("pad_token_id");
      ids.pad = pad >= 0 && pad < vocab ? std::optional<Token>(pad.get<Token>()) : std::nullopt;
    } else {
      set("pad_token_id", ids.pad);
    }
    for (const Token id : read_ids(settings, "eos_token_id", vocab)) ids.end_of_generation.push_back(id);
  }
  if (file_exists(file)) return Tokenizer::from_json(MappedFile::open(file).text(), file.string(), ids);
  bool add_bos = true;  // the default of transformers for these files
  if (const fs::path settings = directory / "tokenizer_config.json"; file_exists(settings)) {
    const Json json = read_checkpoint_json(settings);
    if (json.is_object() && json.contains("add_bos_token") && json["add_bos_token"].is_boolean())
      add_bos = json["add_bos_token"];
  }
  return Tokenizer::from_sentencepiece(MappedFile::open(sentencepiece).text(), sentencepiece.string(), ids,
                                       add_bos);
}

}  // namespace

CheckpointParts open_layers_file(MappedFile file, const ModelConfig& config, const std::string& layer_names) {
  const auto families = huggingface_families();
  const std::string_view model_type = huggingface_model_type(config.family);
  const auto family = std::find_if(families.begin(), families.end(),
                                   [&](const auto& f) { return model_type == f.model_type; });
  const std::string name = file.path().string();
  if (family == families.end()) {
    throw Error({.what = name + ": decoder layers",
                 .got = fmt::format("those of the family \"{}\"", config.family),
                 .expected = "a family that is read in the safetensors format",
                 .advice = "Use a head of another target."});
  }
  TensorNames names = family->names;
  names.layer = layer_names.c_str();
  // With a second input, which only layer 0 reads, files use the usual name for the norm of that input.
  if (config.beside > 0) names.first_attn_norm = "hidden_norm";
  CheckpointParts parts;
  parts.config = config;
  std::vector<StoredTensor> stored = read_safetensors(file.bytes(), name);
  parts.tensors =
      take_tensors(expected_tensors(config, names), std::move(stored), name, "the shape of the head's layers",
                   false, [](const std::string&) { return true; });
  parts.tokenizer = [] { return std::optional<Tokenizer>(); };
  parts.files.push_back(std::move(file));
  return parts;
}

CheckpointParts open_huggingface_directory(const fs::path& directory) {
  if (!file_exists(directory / "config.json")) {
    throw Error(
        {.what = directory.string(),
         .got = "a directory without config.json",
         .expected = "a Hugging Face model directory, or a GGUF file",
         .advice = "Give the path of the .gguf file itself, or of the directory that holds config.json."});
  }
  CheckpointParts parts;
  parts.config = read_huggingface_config(directory);
  Json index = Json::object();
  parts.files = open_weights(directory, index);
  std::vector<StoredTensor> tensors = read_weights(directory, parts.files, index);
  if (parts.config.embedding_of_target)
    parts.config.head_ids = take_head_ids(tensors, parts.config, directory);
  // Checked before expected_tensors() lists the tensors of all these layers.
  if (parts.config.layers > 0 && static_cast<std::size_t>(parts.config.layers) > tensors.size()) {
    throw Error(
        {.what = (directory / "config.json").string() + ": num_hidden_layers",
         .got = fmt::format("{}", parts.config.layers),
         .expected = fmt::format("no more layers than the {} tensors that are there", tensors.size()),
         .advice = "The weights and the configuration belong to different models; fetch both again."});
  }
  const auto families = huggingface_families();
  const auto family = std::find_if(families.begin(), families.end(),
                                   [&](const auto& f) { return parts.config.family == f.model_type; });
  std::vector<ExpectedTensor> expected = expected_tensors(parts.config, family->names);
  std::set<std::string_view> names;
  for (const StoredTensor& tensor : tensors) names.insert(tensor.name);
  // In files of a decoder without its output head, the names of tensors lack this prefix.
  const std::string_view prefix = family->decoder;
  const bool bare =
      std::none_of(names.begin(), names.end(), [&](const auto& name) { return name.starts_with(prefix); });
  const auto in_file = [&](std::string name) {
    return bare && name.starts_with(prefix) ? name.substr(prefix.size()) : name;
  };
  for (ExpectedTensor& tensor : expected) tensor.file_name = in_file(tensor.file_name);
  const bool tied = parts.config.tied_head;
  const std::string head = fmt::format("{}.weight", family->names.head);
  if (tied && !names.contains(expected[0].file_name) && names.contains(head)) {
    expected[0].file_name = head;  // safetensors stores one of two tied tensors, under either name
  }
  const bool masks = parts.config.family == "gpt2" || parts.config.family == "gpt_neox";
  parts.tensors = take_tensors(
      expected, std::move(tensors), directory.string(), "config.json", false, [&](const std::string& name) {
        // A tied output head may be stored beside the embedding, and old files contain RoPE's constants and
        // the causal mask.
        if ((tied && name == head) || name.ends_with(".rotary_emb.inv_freq")) return true;
        return masks && (name.ends_with(".attn.bias") || name.ends_with(".attention.bias") ||
                         name.ends_with(".masked_bias"));
      });
  parts.chat_template = read_chat_template(directory);
  parts.tokenizer = [directory, vocab = parts.config.vocab] { return read_tokenizer(directory, vocab); };
  return parts;
}

}  // namespace speclab
