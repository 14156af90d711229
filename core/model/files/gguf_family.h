#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "core/model/files/checkpoint_layout.h"
#include "core/model/files/gguf.h"
#include "core/model/net/model_config.h"

// Describes how metadata and tensors of GGUF architectures differ from those of the architecture "llama".
// Internal to Checkpoint.

namespace speclab {

/// Reads the metadata whose keys begin with the name of the architecture and a dot. An error message contains
/// the file and the key.
class GgufSettings {
 public:
  GgufSettings(const GgufFile& file, std::string file_name);

  const GgufFile& file() const { return file_; }
  const std::string& architecture() const { return architecture_; }
  std::string key(const std::string& name) const { return architecture_ + "." + name; }
  bool has(const std::string& name) const { return file_.has(key(name)); }
  int integer(const std::string& name, std::int64_t least, std::int64_t most) const {
    return static_cast<int>(file_.integer(key(name), least, most));
  }
  /// A positive number within the range of a float.
  float positive(const std::string& name) const;
  float positive_or(const std::string& name, float absent) const {
    return has(name) ? positive(name) : absent;
  }
  [[noreturn]] void refuse(const std::string& name, std::string got, std::string expected,
                           std::string advice) const;
  const StoredTensor* tensor(const char* name) const;
  const std::string& file_name() const { return file_name_; }

 private:
  const GgufFile& file_;
  std::string file_name_, architecture_;
};

/// One architecture of GGUF.
struct GgufFamily {
  const char* architecture;
  TensorNames names;
  bool interleaved;  ///< llama.cpp's converter has interleaved the rows of q and k
  bool rms;          ///< RMS norms; false: layer norms
  bool rotary;
  bool partial_rope;    ///< rope.dimension_count may be less than head_dim
  float default_theta;  ///< used when rope.freq_base is missing; 0: it must not be missing
  /// Reads the settings that only this family has. Called after sizes, norms and the rotary embedding are
  /// read.
  void (*read)(const GgufSettings& settings, ModelConfig& config);
};

/// Whether a tensor belongs to the rotary embedding and not to a layer.
bool is_rope_tensor(const std::string& name);

/// Throws Error for an unknown architecture.
const GgufFamily& gguf_family(const GgufSettings& settings);

/// Reads the rotary embedding: rope.freq_base, and the scaling from rope.scaling, from the tensor
/// rope_freqs.weight or from the tensors of LongRoPE (rope_factors_short and _long). head_dim and context
/// must be set in `config`. Increases the context if YaRN is meant for a longer one.
Rope read_gguf_rope(const GgufSettings& settings, const GgufFamily& family, ModelConfig& config);

}  // namespace speclab
