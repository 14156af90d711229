#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/model/files/model_files.h"

/// Writes the tiny models of tests/model/files/model_files.h as GGUF files.
namespace speclab::fixtures {

/// Writes a GGUF file piece by piece, valid or not.
class GgufWriter {
 public:
  enum Type : std::uint32_t {
    kU8,
    kI8,
    kU16,
    kI16,
    kU32,
    kI32,
    kF32,
    kBool,
    kString,
    kArray,
    kU64,
    kI64,
    kF64
  };

  std::uint32_t version = 3;
  std::uint64_t alignment = 32;  ///< of the data; if it is not 32, add it as "general.alignment" too
  std::uint64_t extra_tensors = 0, extra_keys = 0;  ///< counted in the header, but not in the file

  static std::string string(std::string_view text) {
    std::string bytes;
    append(bytes, std::uint64_t{text.size()});
    return bytes.append(text);
  }
  template <typename T>
  static std::string number(T value) {
    std::string bytes;
    append(bytes, value);
    return bytes;
  }
  static std::string array(Type element, std::uint64_t count, const std::string& bytes) {
    return number(static_cast<std::uint32_t>(element)) + number(count) + bytes;
  }
  static std::string strings(const std::vector<std::string>& texts) {
    std::string bytes;
    for (const std::string& text : texts) bytes += string(text);
    return array(kString, texts.size(), bytes);
  }

  void add(std::string_view key, std::uint32_t type, const std::string& value) {
    keys_.emplace_back(key, number(type) + value);
  }
  void add(std::string_view key, std::uint32_t value) { add(key, kU32, number(value)); }
  void add(std::string_view key, float value) { add(key, kF32, number(value)); }
  void add(std::string_view key, const char* text) { add(key, kString, string(text)); }
  void erase(std::string_view key) {
    std::erase_if(keys_, [&](const auto& entry) { return entry.first == key; });
  }
  template <typename T>
  void set(std::string_view key, T value) {
    erase(key);
    add(key, value);
  }

  struct Tensor {
    std::string name;
    std::vector<std::uint64_t> shape;  ///< innermost first, as in the file
    std::uint32_t type;                ///< number in ggml's enum
    std::string bytes;
    std::uint64_t offset = UINT64_MAX;  ///< default: the next aligned one
  };
  std::vector<Tensor> tensors;

  std::string file() const {
    std::string out = "GGUF", data;
    append(out, version);
    append(out, std::uint64_t{tensors.size() + extra_tensors});
    append(out, std::uint64_t{keys_.size() + extra_keys});
    for (const auto& [key, value] : keys_) out += string(key) + value;
    for (const Tensor& tensor : tensors) {
      out += string(tensor.name);
      append(out, static_cast<std::uint32_t>(tensor.shape.size()));
      for (const std::uint64_t size : tensor.shape) append(out, size);
      append(out, tensor.type);
      append(out, tensor.offset == UINT64_MAX ? std::uint64_t{data.size()} : tensor.offset);
      data += tensor.bytes;
      data.resize((data.size() + alignment - 1) / alignment * alignment);
    }
    out.resize((out.size() + alignment - 1) / alignment * alignment);
    return out + data;
  }

 private:
  std::vector<std::pair<std::string, std::string>> keys_;
};

inline std::uint32_t ggml_type(const std::string& dtype) {
  return dtype == "F32" ? 0 : dtype == "F16" ? 1 : 30;
}

/// A writer that contains the model, for tests that change the file further. q and k rows are interleaved as
/// llama.cpp's converter does: reshape(heads, 2, head_dim / 2, in).swapaxes(1, 2). Vectors
/// stay F32, as in converted files.
inline GgufWriter gguf_writer(const TinyModel& model, const std::string& dtype = "BF16") {
  const Shape& shape = model.config;
  GgufWriter out;
  out.add("general.architecture", "llama");
  out.add("general.name", shape.name.c_str());
  const auto number = [&](const char* key, int value) { out.add(key, static_cast<std::uint32_t>(value)); };
  number("llama.embedding_length", shape.hidden);
  number("llama.block_count", shape.layers);
  number("llama.feed_forward_length", shape.ffn);
  number("llama.context_length", shape.context);
  number("llama.attention.head_count", shape.heads);
  number("llama.attention.head_count_kv", shape.kv_heads);
  number("llama.attention.key_length", shape.head_dim);
  number("llama.rope.dimension_count", shape.head_dim);
  out.add("llama.attention.layer_norm_rms_epsilon", shape.norm_eps);
  out.add("llama.rope.freq_base", shape.rope_theta);
  for (const auto& [name, tensor] : model.tensors) {
    std::vector<float> values = tensor.values;
    if (name.ends_with(".attn_q") || name.ends_with(".attn_k")) {
      const std::size_t columns = static_cast<std::size_t>(tensor.shape[1]),
                        head_dim = static_cast<std::size_t>(shape.head_dim);
      for (std::size_t row = 0; row < values.size() / columns; ++row) {
        const std::size_t i = row % head_dim, to = row - i + 2 * (i % (head_dim / 2)) + i / (head_dim / 2);
        for (std::size_t k = 0; k < columns; ++k) values[to * columns + k] = tensor.values[row * columns + k];
      }
    }
    const std::string type = tensor.shape.size() == 1 ? "F32" : dtype;
    out.tensors.push_back({file_tensor_name(name, true),
                           {tensor.shape.rbegin(), tensor.shape.rend()},
                           ggml_type(type),
                           encode(values, type)});
  }
  return out;
}

/// Adds the keys of the byte tokenizer.
inline void add_byte_tokenizer(GgufWriter& writer) {
  const std::vector<std::string> tokens = byte_tokenizer_tokens();
  std::string types;
  for (std::size_t id = 0; id < tokens.size(); ++id) append(types, std::int32_t{id < 256 ? 1 : 3});
  writer.add("tokenizer.ggml.model", "gpt2");
  writer.add("tokenizer.ggml.pre", "gpt-2");
  writer.add("tokenizer.ggml.tokens", GgufWriter::kArray, GgufWriter::strings(tokens));
  writer.add("tokenizer.ggml.merges", GgufWriter::kArray, GgufWriter::strings({}));
  writer.add("tokenizer.ggml.token_type", GgufWriter::kArray,
             GgufWriter::array(GgufWriter::kI32, tokens.size(), types));
  writer.add("tokenizer.ggml.bos_token_id", 256u);
  writer.add("tokenizer.ggml.eos_token_id", 257u);
  writer.add("tokenizer.chat_template", kChatMl);
}

inline void write_gguf(const std::filesystem::path& file, const TinyModel& model,
                       const std::string& dtype = "BF16") {
  write_file(file, gguf_writer(model, dtype).file());
}

}  // namespace speclab::fixtures
