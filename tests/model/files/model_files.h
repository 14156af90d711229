#pragma once

#include <unistd.h>

#include <atomic>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/base/bf16.h"
#include "core/model/net/model_config.h"

/// Tiny models for tests, in memory and as files. Only for tests: no checks, small sizes.
///
///   TempDir dir;
///   write_tiny_llama(dir.path(), tiny_shape(), 1);           // a Hugging Face directory, random
///   Checkpoint model = Checkpoint::open(dir.path());
///
///   TinyModel model = random_llama(tiny_shape(), 1);         // or look at and change the weights first
///   write_huggingface(dir.path(), model, {.dtype = "F32", .shards = 3});
///   write_gguf(dir.path() / "model.gguf", model, "F16");     // tests/model/files/gguf_files.h
///   write_huggingface(dir.path(), markov_table(V, logits));  // zero layers: row t of logits follows token t
namespace speclab::fixtures {

using Json = nlohmann::json;
using Shape = ModelConfig;

/// A new directory under the system's temporary directory, removed at the end.
class TempDir {
 public:
  TempDir() {
    static std::atomic<int> count{0};
    path_ = std::filesystem::temp_directory_path() /
            ("speclab-" + std::to_string(::getpid()) + "-" + std::to_string(count++));
    std::filesystem::create_directories(path_);
  }
  ~TempDir() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

/// 2 layers, 4 query and 2 key/value heads of 8, hidden 32, 64 tokens, output head not tied to the embedding.
/// A test changes the fields that it needs.
inline Shape tiny_shape() {
  Shape shape;
  shape.family = "llama";
  shape.name = "tiny";
  shape.hidden = shape.embedding_dim = 32;
  shape.layers = 2;
  shape.heads = 4;
  shape.kv_heads = 2;
  shape.head_dim = 8;
  shape.ffn = 64;
  shape.vocab = 64;
  shape.context = 256;
  shape.rope_theta = 10'000;
  return shape;
}

/// A draft for a target of this shape. It projects the target's embedding to 16 dimensions and has one layer
/// and an output head over every second token.
inline Shape tiny_draft_shape(const Shape& target) {
  Shape shape = target;
  shape.name = "tiny-draft";
  shape.hidden = 16;
  shape.layers = 1;
  shape.heads = 2;
  shape.kv_heads = 1;
  shape.ffn = 32;
  shape.tied_head = false;
  shape.embedding_dim = target.hidden;
  shape.embedding_of_target = true;
  for (Token id = 0; id < target.vocab; id += 2) shape.head_ids.push_back(id);
  return shape;
}

struct TinyTensor {
  std::vector<std::int64_t> shape;  ///< outermost first
  std::vector<float>
      values;  ///< representable in bf16, so every float type stores them exactly (F16: nearly)
};

struct TinyModel {
  Shape config;
  std::map<std::string, TinyTensor> tensors;  ///< by canonical name, q and k in halves; see checkpoint.h
};

/// Random weights. Layers keep the variance. Logits have a standard deviation of about 4, so that the argmax
/// is clear.
inline TinyModel random_llama(const Shape& config, std::uint64_t seed) {
  TinyModel model{config, {}};
  std::mt19937_64 random(seed);
  const auto add = [&](const std::string& name, std::vector<std::int64_t> shape, double mean,
                       double deviation) {
    std::int64_t count = 1;
    for (const auto size : shape) count *= size;
    TinyTensor tensor{std::move(shape), {}};
    for (std::int64_t i = 0; i < count; ++i) {
      const double uniform = static_cast<double>(random() >> 11) * 0x1p-53 * 2 - 1;
      tensor.values.push_back(
          bf16_to_float(float_to_bf16(static_cast<float>(mean + deviation * std::sqrt(3.) * uniform))));
    }
    model.tensors[name] = std::move(tensor);
  };
  const std::int64_t d = config.hidden, q = config.query_width(), kv = config.kv_width(), ffn = config.ffn;
  const auto by = [](std::int64_t inputs) { return 1 / std::sqrt(static_cast<double>(inputs)); };
  if (config.embedding_of_target) {
    add("embed_projection", {d, config.embedding_dim}, 0, by(config.embedding_dim));
  } else {
    add("token_embedding", {config.vocab, config.embedding_dim}, 0, 1);
  }
  for (int layer = 0; layer < config.layers; ++layer) {
    const std::string at = "layers." + std::to_string(layer) + ".";
    add(at + "attn_norm", {d}, 1, .1);
    add(at + "attn_q", {q, d}, 0, by(d));
    add(at + "attn_k", {kv, d}, 0, by(d));
    add(at + "attn_v", {kv, d}, 0, by(d));
    add(at + "attn_out", {d, q}, 0, by(q));
    add(at + "ffn_norm", {d}, 1, .1);
    add(at + "ffn_gate", {ffn, d}, 0, by(d));
    add(at + "ffn_up", {ffn, d}, 0, by(d));
    add(at + "ffn_down", {d, ffn}, 0, by(ffn));
  }
  if (config.final_norm) add("final_norm", {d}, 1, .1);
  if (!config.tied_head) add("head", {config.head_rows(), d}, 0, 4 * by(d));
  return model;
}

/// A first-order Markov chain: the logits after token t are logits[t * vocab + .], rounded to bf16. Zero
/// layers, a one-hot embedding, no final norm.
inline TinyModel markov_table(int vocab, const std::vector<float>& logits) {
  TinyModel model;
  model.config.family = "llama";
  model.config.name = "markov";
  model.config.vocab = model.config.hidden = model.config.embedding_dim = vocab;
  model.config.context = 1 << 20;
  model.config.final_norm = false;
  TinyTensor embedding{{vocab, vocab}, std::vector<float>(logits.size())}, head = embedding;
  for (int t = 0; t < vocab; ++t) {
    embedding.values[static_cast<std::size_t>(t * vocab + t)] = 1;
    for (int x = 0; x < vocab; ++x) {
      head.values[static_cast<std::size_t>(x * vocab + t)] =
          bf16_to_float(float_to_bf16(logits[static_cast<std::size_t>(t * vocab + x)]));
    }
  }
  model.tensors = {{"token_embedding", std::move(embedding)}, {"head", std::move(head)}};
  return model;
}

inline void write_file(const std::filesystem::path& path, const std::string& bytes) {
  std::filesystem::remove(path);  // closing a truncated file is slow on ext4, which writes it to the disk
  std::ofstream file(path, std::ios::binary);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  if (!file.flush()) throw std::runtime_error("cannot write " + path.string());
}

template <typename T>
void append(std::string& bytes, const T& value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
}

/// A float as an IEEE half, to nearest even, for values inside its normal range; others become a signed zero.
inline std::uint16_t to_half(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value), sign = bits >> 16 & 0x8000u;
  const std::uint32_t rounded = (bits & 0x7fffffffu) + 0xfffu + (bits >> 13 & 1u);
  if (rounded < 113u << 23 || rounded >= 143u << 23) return static_cast<std::uint16_t>(sign);
  return static_cast<std::uint16_t>(sign | ((rounded >> 13) - (112u << 10)));
}

/// Values as the bytes of "F32", "F16" or "BF16".
inline std::string encode(const std::vector<float>& values, const std::string& dtype) {
  std::string bytes;
  for (const float value : values) {
    if (dtype == "F32") append(bytes, value);
    if (dtype == "F16") append(bytes, to_half(value));
    if (dtype == "BF16") append(bytes, float_to_bf16(value));
  }
  return bytes;
}

/// A tensor as it is stored in a safetensors file.
struct RawTensor {
  std::string name, dtype;
  std::vector<std::int64_t> shape;
  std::string bytes;
};

inline std::string safetensors_file(const Json& header, const std::string& data) {
  std::string text = header.dump(), bytes;
  text.resize((text.size() + 7) / 8 * 8, ' ');
  append(bytes, std::uint64_t{text.size()});
  return bytes + text + data;
}

inline std::string safetensors_file(const std::vector<RawTensor>& tensors) {
  Json header = {{"__metadata__", {{"format", "pt"}}}};
  std::string data;
  for (const RawTensor& tensor : tensors) {
    const std::size_t begin = data.size();
    data += tensor.bytes;
    header[tensor.name] = {
        {"dtype", tensor.dtype}, {"shape", tensor.shape}, {"data_offsets", {begin, data.size()}}};
  }
  return safetensors_file(header, data);
}

/// The name of a canonical tensor in a file; `gguf` chooses the format.
inline std::string file_tensor_name(const std::string& name, bool gguf) {
  static const std::map<std::string, std::pair<std::string, std::string>> names{
      {"token_embedding", {"model.embed_tokens.weight", "token_embd.weight"}},
      {"embed_projection", {"embed_projection.weight", ""}},
      {"final_norm", {"model.norm.weight", "output_norm.weight"}},
      {"head", {"lm_head.weight", "output.weight"}},
      {"attn_norm", {"input_layernorm", "attn_norm"}},
      {"attn_q", {"self_attn.q_proj", "attn_q"}},
      {"attn_k", {"self_attn.k_proj", "attn_k"}},
      {"attn_v", {"self_attn.v_proj", "attn_v"}},
      {"attn_out", {"self_attn.o_proj", "attn_output"}},
      {"ffn_norm", {"post_attention_layernorm", "ffn_norm"}},
      {"ffn_gate", {"mlp.gate_proj", "ffn_gate"}},
      {"ffn_up", {"mlp.up_proj", "ffn_up"}},
      {"ffn_down", {"mlp.down_proj", "ffn_down"}}};
  const auto pick = [&](const auto& pair) { return gguf ? pair.second : pair.first; };
  if (!name.starts_with("layers.")) return pick(names.at(name));
  const std::size_t dot = name.find('.', 7);
  return (gguf ? "blk." : "model.layers.") + name.substr(7, dot - 7) + "." +
         pick(names.at(name.substr(dot + 1))) + ".weight";
}

inline std::vector<RawTensor> huggingface_tensors(const TinyModel& model, const std::string& dtype = "BF16") {
  std::vector<RawTensor> out;
  for (const auto& [name, tensor] : model.tensors) {
    out.push_back({file_tensor_name(name, false), dtype, tensor.shape, encode(tensor.values, dtype)});
  }
  if (const auto& ids = model.config.head_ids; !ids.empty()) {
    std::string bytes;
    for (const std::int32_t id : ids) append(bytes, id);
    out.push_back({"draft_vocab", "I32", {static_cast<std::int64_t>(ids.size())}, bytes});
  }
  return out;
}

inline Json huggingface_config(const Shape& shape) {
  Json json = {{"architectures", {"LlamaForCausalLM"}},
               {"model_type", "llama"},
               {"_name_or_path", shape.name},
               {"hidden_size", shape.hidden},
               {"num_hidden_layers", shape.layers},
               {"vocab_size", shape.vocab},
               {"max_position_embeddings", shape.context},
               {"tie_word_embeddings", shape.tied_head}};
  if (shape.layers > 0) {
    json.update({{"num_attention_heads", shape.heads},
                 {"num_key_value_heads", shape.kv_heads},
                 {"head_dim", shape.head_dim},
                 {"intermediate_size", shape.ffn},
                 {"hidden_act", "silu"},
                 {"rope_theta", shape.rope_theta}});
  }
  if (shape.final_norm) json["rms_norm_eps"] = shape.norm_eps;
  if (!shape.final_norm) json["speclab_table"] = true;
  if (shape.embedding_of_target) {
    json["speclab_draft"] = {{"embedding", "target"}, {"embedding_dim", shape.embedding_dim}};
    if (!shape.target_embedding_sha256.empty()) {
      json["speclab_draft"]["target_embedding_sha256"] = shape.target_embedding_sha256;
    }
    if (!shape.target_tokenizer_sha256.empty()) {
      json["speclab_draft"]["target_tokenizer_sha256"] = shape.target_tokenizer_sha256;
    }
  }
  return json;
}

struct HuggingFaceOptions {
  std::string dtype = "BF16";
  int shards = 1;  ///< with more than one, an index file is written too
};

/// Writes config.json and the weights; no tokenizer.
inline void write_huggingface(const std::filesystem::path& directory, const TinyModel& model,
                              const HuggingFaceOptions& options = {}) {
  std::filesystem::create_directories(directory);
  write_file(directory / "config.json", huggingface_config(model.config).dump(2));
  const std::vector<RawTensor> tensors = huggingface_tensors(model, options.dtype);
  if (options.shards == 1) return write_file(directory / "model.safetensors", safetensors_file(tensors));
  Json map;
  std::vector<std::vector<RawTensor>> shards(static_cast<std::size_t>(options.shards));
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const std::size_t shard = i % shards.size();
    shards[shard].push_back(tensors[i]);
    map[tensors[i].name] = "model-" + std::to_string(shard) + ".safetensors";
  }
  for (std::size_t i = 0; i < shards.size(); ++i) {
    write_file(directory / ("model-" + std::to_string(i) + ".safetensors"), safetensors_file(shards[i]));
  }
  write_file(directory / "model.safetensors.index.json",
             Json{{"metadata", Json::object()}, {"weight_map", map}}.dump(2));
}

/// A tokenizer of single bytes: token b is byte b, followed by <|im_start|> and <|im_end|> (the end token).
constexpr int kByteVocab = 258;

/// Spellings of the byte tokenizer by id, in the alphabet of byte-level BPE (Radford et al. 2019): printable
/// Latin-1 stands for itself, the other bytes, in order, for U+0100 and up.
inline std::vector<std::string> byte_tokenizer_tokens() {
  std::vector<std::string> out;
  int next = 256;
  for (int byte = 0; byte < 256; ++byte) {
    const bool printable = (byte > 32 && byte < 127) || (byte > 160 && byte != 173);
    const int code = printable ? byte : next++;
    if (code < 128) {
      out.push_back(std::string(1, static_cast<char>(code)));
    } else {
      out.push_back({static_cast<char>(0xc0 | code >> 6), static_cast<char>(0x80 | (code & 63))});
    }
  }
  out.push_back("<|im_start|>");
  out.push_back("<|im_end|>");
  return out;
}

inline constexpr const char* kChatMl =
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + "
    "'<|im_end|>' + "
    "'\\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

/// tokenizer.json, tokenizer_config.json (ChatML) and generation_config.json of the byte tokenizer beside a
/// model with a vocabulary of at least kByteVocab.
inline void write_byte_tokenizer(const std::filesystem::path& directory) {
  Json vocab = Json::object(), added = Json::array();
  const std::vector<std::string> tokens = byte_tokenizer_tokens();
  for (std::size_t id = 0; id < tokens.size(); ++id) {
    if (id < 256) {
      vocab[tokens[id]] = id;
    } else {
      added.push_back({{"id", id},
                       {"content", tokens[id]},
                       {"special", true},
                       {"single_word", false},
                       {"lstrip", false},
                       {"rstrip", false},
                       {"normalized", false}});
    }
  }
  const Json byte_level = {
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", true}};
  write_file(directory / "tokenizer.json",
             Json{{"version", "1.0"},
                  {"truncation", nullptr},
                  {"padding", nullptr},
                  {"added_tokens", added},
                  {"normalizer", nullptr},
                  {"pre_tokenizer", byte_level},
                  {"post_processor", nullptr},
                  {"decoder", byte_level},
                  {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", Json::array()}}}}
                 .dump());
  write_file(directory / "tokenizer_config.json", Json{{"chat_template", kChatMl}}.dump());
  write_file(directory / "generation_config.json", Json{{"eos_token_id", 257}, {"bos_token_id", 256}}.dump());
}

/// Writes random weights as a Hugging Face directory and returns them.
inline TinyModel write_tiny_llama(const std::filesystem::path& directory, const Shape& shape,
                                  std::uint64_t seed) {
  TinyModel model = random_llama(shape, seed);
  write_huggingface(directory, model);
  return model;
}

}  // namespace speclab::fixtures
