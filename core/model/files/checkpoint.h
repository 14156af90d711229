#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/bf16.h"
#include "core/model/files/inflate.h"
#include "core/model/net/model_config.h"
#include "core/model/text/tokenizer.h"

namespace speclab {

/// Reads a model on disk: a GGUF file, or a Hugging Face directory (config.json, model.safetensors or a
/// sharded index, tokenizer.json or tokenizer.model). Files are memory-mapped read-only. All sizes and
/// offsets are checked before any data is read.
///
/// Tensors have canonical names, which do not depend on the names in the file:
///   token_embedding [vocab, embedding_dim]      embed_projection [hidden, embedding_dim] (drafts)
///   layers.N.attn_norm [hidden]                 layers.N.attn_q [heads*head_dim, hidden]
///   layers.N.attn_k / attn_v [kv_heads*head_dim, hidden]   layers.N.attn_out [hidden, heads*head_dim]
///   layers.N.ffn_norm [hidden]                  layers.N.ffn_gate / ffn_up [ffn, hidden]
///   layers.N.ffn_down [hidden, ffn]             final_norm [hidden]        head [head_rows, hidden]
/// and, if the family has them (see ModelConfig),
///   position_embedding [position_rows, hidden]  layers.N.attn_q_norm / attn_k_norm [head_dim]
///   layers.N.attn_post_norm / ffn_post_norm [hidden]       NAME.bias of a matrix [out] or of a norm [hidden]
/// Matrices are [out, in] row-major. q and k are in the "halves" RoPE order (dimension i pairs with i +
/// head_dim/2); interleaved rows (GGUF of the architectures llama and smollm3) are reordered. Fused tensors
/// (q, k and v; gate and up) are split, and transposed ones are transposed back.
class Checkpoint {
 public:
  /// Throws Error when the file is missing, truncated, no model file, or contradicts its own configuration.
  static Checkpoint open(const std::filesystem::path& path);
  /// Reads decoder layers from one safetensors file, which may contain other tensors too. `config` describes
  /// the layers and must be without embedding and output head (ModelConfig::bare). The names of a layer's
  /// tensors begin with `layer_names`, in which "{}" stands for the number of the layer. The rest of each
  /// name is the one that transformers uses for the family config.family. With ModelConfig::beside, the norm
  /// before the attention of layer 0 is named "hidden_norm", as in EAGLE-3 files. Throws Error like open().
  static Checkpoint open_layers(const std::filesystem::path& file, const ModelConfig& config,
                                const std::string& layer_names);
  /// Turns this checkpoint into an inflated twin, the same model in a larger shape (inflate.h). The
  /// configuration, the tensors and their contents change. The files, their hash and the tokenizer stay the
  /// same. Throws Error when the model does not fit into the shape.
  void inflate(const InflateShape& shape);
  ~Checkpoint();
  Checkpoint(Checkpoint&&) noexcept;
  Checkpoint& operator=(Checkpoint&&) noexcept;

  const std::filesystem::path& path() const;
  const ModelConfig& config() const;
  bool has(std::string_view tensor) const;

  /// Reads rows [begin, end) of a canonical tensor as bf16, [end-begin, in]. Values are dequantised in float
  /// and rounded to nearest even. Thread-safe. Do not use it for norms of Gemma in GGUF, which are stored as
  /// 1 + weight; use read_f32.
  void read_bf16(std::string_view tensor, std::int64_t begin, std::int64_t end, Bf16* out) const;
  /// Reads the same rows in float, without rounding to bf16. A vector is one row.
  void read_f32(std::string_view tensor, std::int64_t begin, std::int64_t end, float* out) const;

  /// Throws Error naming file and tensor when one of `values`, which are values of this tensor, is NaN or
  /// infinite. Such a value would spread to every later sum.
  void require_finite(std::string_view tensor, std::span<const Bf16> values) const;

  /// The model's tokenizer. Absent if the model comes without one (for example a draft that uses its target's
  /// tokenizer), and for decoder layers without embedding and output head (ModelConfig::bare). Throws Error
  /// if the tokenizer has more tokens than the model.
  std::optional<Tokenizer> tokenizer() const;
  /// Assumptions about missing entries of the configuration, one sentence each. They follow llama.cpp. The
  /// tokenizer has its own list (Tokenizer::assumed).
  const std::vector<std::string>& assumed() const;
  /// The Jinja source of the chat template; empty when the model has none.
  const std::string& chat_template() const;

  struct TensorInfo {
    std::string name, file_name, type;  ///< canonical name, name in the file, type ("Q4_1")
    std::vector<std::int64_t> shape;    ///< outermost first
    std::uint64_t bytes;
  };
  const std::vector<TensorInfo>& tensors() const;
  std::uint64_t file_bytes() const;
  /// Throws Error when a file was written to since it was opened, because the data
  /// may then be half old and half new.
  void require_unchanged() const;
  /// Frees the memory that holds pages of the files. Call it between matrices while loading: packed weights
  /// and the whole file together would take twice the memory.
  void forget_pages() const;
  /// SHA-256 of the file (GGUF) or of all safetensors files in name order. Reads
  /// everything, so call it only once.
  std::string sha256() const;

 private:
  struct Impl;
  explicit Checkpoint(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace speclab
