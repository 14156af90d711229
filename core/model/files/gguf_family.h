#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "core/model/files/checkpoint_layout.h"
#include "core/model/files/gguf.h"
#include "core/model/net/model_config.h"

namespace speclab {

/// Inside of Checkpoint: how the metadata and the tensors of an architecture differ from those of "llama".

/// The metadata under "ARCHITECTURE." with errors that name file and key.
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
  /// A positive number that a float can hold.
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

struct GgufFamily {
  const char* architecture;
  TensorNames names;
  bool interleaved;  ///< llama.cpp's converter interleaves the rows of q and k
  bool rms;          ///< RMS norms, else layer norms
  bool rotary;
  bool partial_rope;    ///< rope.dimension_count may be less than a head
  float default_theta;  ///< where rope.freq_base is missing; 0: it must be there
  /// Reads what is special; sizes, norms and the rotary embedding have been read.
  void (*read)(const GgufSettings& settings, ModelConfig& config);
};

/// Whether a tensor belongs to the rotary embedding and to no layer.
bool is_rope_tensor(const std::string& name);

/// Throws Error for an architecture that is not known.
const GgufFamily& gguf_family(const GgufSettings& settings);

/// rope.freq_base with rope.scaling, the tensor rope_freqs.weight, or those of LongRoPE (rope_factors_short
/// and _long), for head_dim and context as they are.
Rope read_gguf_rope(const GgufSettings& settings, const GgufFamily& family, ModelConfig& config);

}  // namespace speclab
