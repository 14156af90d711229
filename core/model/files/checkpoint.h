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

/// A model on disk: a GGUF file, or a Hugging Face directory (config.json, model.safetensors or a sharded
/// index, tokenizer.json). Memory-mapped and read-only; all sizes and offsets are checked before anything is
/// touched.
///
/// Tensors have one set of canonical names, whatever the file calls them:
///   token_embedding [vocab, embedding_dim]      embed_projection [hidden, embedding_dim] (drafts)
///   layers.N.attn_norm [hidden]                 layers.N.attn_q [heads*head_dim, hidden]
///   layers.N.attn_k / attn_v [kv_heads*head_dim, hidden]   layers.N.attn_out [hidden, heads*head_dim]
///   layers.N.ffn_norm [hidden]                  layers.N.ffn_gate / ffn_up [ffn, hidden]
///   layers.N.ffn_down [hidden, ffn]             final_norm [hidden]        head [head_rows, hidden]
/// and where the family has them (see ModelConfig)
///   position_embedding [position_rows, hidden]  layers.N.attn_q_norm / attn_k_norm [head_dim]
///   layers.N.attn_post_norm / ffn_post_norm [hidden]       NAME.bias of a matrix [out] or of a norm [hidden]
/// Matrices are [out, in] row-major; q and k are in the "halves" RoPE order (dimension i pairs with i +
/// head_dim/2), un-permuted where the file has them interleaved (GGUF of the llama architecture). Tensors
/// that a file stores as one (fused q, k and v; gate and up) or transposed are parts of it here.
class Checkpoint {
 public:
  /// Throws Error when the file is missing, truncated, foreign, or disagrees with its own configuration.
  static Checkpoint open(const std::filesystem::path& path);
  /// Decoder layers alone (ModelConfig::bare) of this shape, from one safetensors file that may hold other
  /// tensors too. The name of a tensor of a layer begins with `layer_names`, where "{}" stands for the number
  /// of the layer, and goes on as config.family has it in transformers. Throws Error as open() does.
  static Checkpoint open_layers(const std::filesystem::path& file, const ModelConfig& config,
                                const std::string& layer_names);
  /// From here on this is the twin of that shape (inflate.h): configuration, tensors and what is read from
  /// them. The files, their hash and the tokenizer stay what they are. Throws Error when the model does not
  /// fit into the shape.
  void inflate(const InflateShape& shape);
  ~Checkpoint();
  Checkpoint(Checkpoint&&) noexcept;
  Checkpoint& operator=(Checkpoint&&) noexcept;

  const std::filesystem::path& path() const;
  const ModelConfig& config() const;
  bool has(std::string_view tensor) const;

  /// Rows [begin, end) of a canonical tensor as bf16 (dequantised in float, rounded to nearest even),
  /// [end-begin, in]. Thread-safe. Not for norms of Gemma in GGUF, which are stored as 1 + weight.
  void read_bf16(std::string_view tensor, std::int64_t begin, std::int64_t end, Bf16* out) const;
  /// The same in float, without rounding to bf16. A vector is one row.
  void read_f32(std::string_view tensor, std::int64_t begin, std::int64_t end, float* out) const;

  /// Throws Error naming file and tensor when one of these values of it is NaN or infinite: every later sum
  /// would be.
  void require_finite(std::string_view tensor, std::span<const Bf16> values) const;

  /// Absent for a draft that uses its target's tokenizer, and for bare weights.
  std::optional<Tokenizer> tokenizer() const;
  /// What the configuration does not say and was decided as llama.cpp decides it, a sentence each. The
  /// tokenizer has its own.
  const std::vector<std::string>& assumed() const;
  /// Jinja source of the chat template; empty when the file has none.
  const std::string& chat_template() const;

  struct TensorInfo {
    std::string name, file_name, type;  ///< canonical name, name in the file, "Q4_1"
    std::vector<std::int64_t> shape;    ///< outermost first
    std::uint64_t bytes;
  };
  const std::vector<TensorInfo>& tensors() const;
  std::uint64_t file_bytes() const;
  /// Throws Error when a file was written to since it was opened: what was read from it may be half old, half
  /// new.
  void require_unchanged() const;
  /// Gives back the memory that reading has filled with pages of the files. Meant for between two matrices:
  /// packed weights and the whole file together would double what loading takes.
  void forget_pages() const;
  /// SHA-256 of the file (GGUF) or of its safetensors files in name order; reads everything, so ask once.
  std::string sha256() const;

 private:
  struct Impl;
  explicit Checkpoint(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace speclab
