#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/base/mapped_file.h"
#include "core/model/checkpoint.h"
#include "core/model/stored_tensor.h"

namespace speclab {

/// Inside of Checkpoint: what the reader of each format hands to it.

/// A tensor that a model of some configuration must have.
struct ExpectedTensor {
  std::string name;                 ///< canonical, see checkpoint.h
  std::string file_name;            ///< in the file
  std::vector<std::int64_t> shape;  ///< outermost first
  int rope_heads = 0;               ///< heads of a q or k matrix, whose rows may be interleaved; else 0
};

enum class Naming { kHuggingFace, kGguf };

/// Every tensor of a Llama decoder with this configuration, in the order of the forward pass. `embedding_dim`
/// must be set.
std::vector<ExpectedTensor> expected_tensors(const ModelConfig& config, Naming naming);

/// An expected tensor and its bytes.
struct CheckpointTensor {
  Checkpoint::TensorInfo info;
  TensorType type;
  std::int64_t rows, columns;  ///< a vector is one row
  const std::byte* data;
  int interleaved_heads;  ///< rows of this many heads are in the interleaved RoPE order; 0: rows are as they
                          ///< should be
};

/// Takes what the model needs from `stored` and refuses what it does not know: a tensor that is silently left
/// out would give other logits. Throws Error naming the tensor: missing, another shape or type than
/// `config_source` (a file or "its metadata") implies, or left over and not `ignorable`.
std::vector<CheckpointTensor> take_tensors(const std::vector<ExpectedTensor>& expected,
                                           std::vector<StoredTensor> stored, const std::string& model_name,
                                           const std::string& config_source, bool interleaved,
                                           const std::function<bool(const std::string&)>& ignorable);

struct CheckpointParts {
  std::vector<MappedFile> files;  ///< the weights
  ModelConfig config;
  std::vector<CheckpointTensor> tensors;
  std::string chat_template;
  /// Reads the tokenizer, from `files` or from beside them; called while `files` live.
  std::function<std::optional<Tokenizer>()> tokenizer;
};

CheckpointParts open_huggingface_directory(const std::filesystem::path& directory);
CheckpointParts open_gguf_file(MappedFile file);

}  // namespace speclab
