#pragma once

#include <algorithm>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/base/mapped_file.h"
#include "core/model/files/checkpoint.h"
#include "core/model/files/stored_tensor.h"

// Types and functions that the readers of all file formats share. Readers describe tensors with these types
// and return CheckpointParts. Internal to Checkpoint.

namespace speclab {

/// A canonical tensor can be a part of a stored tensor. This selects the part: from row `first` on, `block`
/// rows of every `stride` rows. For a vector it selects elements, for a transposed matrix ([in, out] in the
/// file) it selects columns.
struct Selection {
  std::int64_t first = 0;
  std::int64_t block = 0, stride = 0;  ///< block 0: all
  bool transposed = false;

  bool whole() const { return block == 0 && !transposed; }
  std::int64_t stored(std::int64_t row) const {
    return block == 0 ? row : first + row / block * stride + row % block;
  }
  /// Number of rows from `row` on that are contiguous in the file, at most `most`.
  std::int64_t run(std::int64_t row, std::int64_t most) const {
    return block == 0 ? most : std::min(most, block - row % block);
  }
};

/// A tensor that a model with a given configuration must have.
struct ExpectedTensor {
  std::string name;                 ///< canonical name, see checkpoint.h
  std::string file_name;            ///< name in the file
  std::vector<std::int64_t> shape;  ///< outermost first
  int rope_heads = 0;  ///< q and k matrices: number of heads; their rows may be in the interleaved RoPE
                       ///< order, see checkpoint.h. 0 for other tensors
  std::vector<std::int64_t> stored_shape = {};  ///< shape in the file, if it differs from `shape`
  Selection selection = {};
  bool rms_norm = false;  ///< the weight of an RMS norm
  float shift = 0;        ///< added to the weights of a norm after they are read as float; -1 where the file
                          ///< stores 1 + weight
};

/// The names of a family's tensors in a file format, and which tensors are fused. Names are without ".weight"
/// and ".bias". Names of a layer's tensors come after `layer` ("model.layers.{}.").
struct TensorNames {
  enum class Fused : std::uint8_t {
    kNo,
    kStacked,  ///< q, k and v below each other in one matrix
    kByHead,   ///< q, k, v of head 0, then of head 1, ... (GPT-NeoX)
  };
  const char* layer;
  const char *token_embedding, *position_embedding, *final_norm, *head;
  const char *attn_norm, *attn_post_norm, *ffn_norm, *ffn_post_norm, *q_norm, *k_norm;
  const char *q, *k, *v;  ///< if fused, all three fields are the name of the one stored tensor
  const char* attn_out;
  const char *gate, *up;  ///< if fused, only `up` is read: the name of the one stored tensor
  const char* down;
  Fused qkv = Fused::kNo;
  bool fused_gate_up = false;             ///< gate and up below each other in one matrix
  bool transposed = false;                ///< matrices of the layers are [in, out] in the file (GPT-2)
  const char* first_attn_norm = nullptr;  ///< attn_norm of layer 0, if it has a name of its own
};

/// All tensors of a decoder with this configuration, in the order of the forward
/// pass. `embedding_dim` must be set.
std::vector<ExpectedTensor> expected_tensors(const ModelConfig& config, const TensorNames& names);

/// An expected tensor and its bytes in the file.
struct CheckpointTensor {
  Checkpoint::TensorInfo info;
  TensorType type;
  std::int64_t rows, columns;  ///< a vector is one row
  const std::byte* data;
  int interleaved_heads;  ///< number of heads whose rows are in the interleaved RoPE order; 0: the rows are
                          ///< in the canonical order
  Selection selection;
  std::int64_t stored_columns;  ///< columns of the tensor in the file
  float shift;                  ///< see ExpectedTensor::shift
};

/// Takes the expected tensors out of `stored` and refuses unknown ones, because silently leaving out a tensor
/// would change the logits. Throws Error naming a tensor that is missing, has another shape than
/// `config_source` (a name for messages, such as "config.json") implies, has a type that cannot be read, or
/// is left over and not `ignorable`. `interleaved` says that the file has the rows of q and k in the
/// interleaved RoPE order.
std::vector<CheckpointTensor> take_tensors(const std::vector<ExpectedTensor>& expected,
                                           std::vector<StoredTensor> stored, const std::string& model_name,
                                           const std::string& config_source, bool interleaved,
                                           const std::function<bool(const std::string&)>& ignorable);

/// Throws Error naming file and tensor when one of these weights of the tensor is NaN or infinite.
void require_finite_weights(const std::string& file, const std::string& tensor, std::span<const Bf16> values);

/// What the reader of a file format returns.
struct CheckpointParts {
  std::vector<MappedFile> files;  ///< the files of the weights
  ModelConfig config;
  std::vector<CheckpointTensor> tensors;
  std::string chat_template;
  std::vector<std::string> assumed;  ///< see Checkpoint::assumed
  /// Reads the tokenizer, from `files` or from a file beside them. Call it only while `files` exist.
  std::function<std::optional<Tokenizer>()> tokenizer;
};

CheckpointParts open_huggingface_directory(const std::filesystem::path& directory);
CheckpointParts open_gguf_file(MappedFile file);
/// Implements Checkpoint::open_layers().
CheckpointParts open_layers_file(MappedFile file, const ModelConfig& config, const std::string& layer_names);

}  // namespace speclab
