#pragma once

#include <span>

#include "core/model/files/checkpoint_json.h"
#include "core/model/files/checkpoint_layout.h"
#include "core/model/net/model_config.h"

namespace speclab {

/// Inside of Checkpoint: how the config.json and the tensors of a family of models differ from Llama's.

/// Names of the values that every family has.
struct HuggingFaceKeys {
  const char* hidden = "hidden_size";
  const char* layers = "num_hidden_layers";
  const char* heads = "num_attention_heads";
  const char* context = "max_position_embeddings";
  const char* ffn = "intermediate_size";
  const char* norm_eps = "rms_norm_eps";
};

struct HuggingFaceFamily {
  const char* model_type;
  const char* architecture;
  const char* decoder;  ///< what the names of all tensors but the head begin with; some files leave it out
  TensorNames names;
  HuggingFaceKeys keys;
  bool tied;           ///< tie_word_embeddings when the file does not say
  bool grouped_heads;  ///< the file must say num_key_value_heads, for which transformers has another default
  /// Reads what is special. Everything in `keys` has been read, and head_dim too.
  void (*read)(const ConfigValues& settings, ModelConfig& config);
};

std::span<const HuggingFaceFamily> huggingface_families();
/// The family that model_type and architectures agree on. Throws Error for unknown ones.
const HuggingFaceFamily& huggingface_family(const ConfigValues& config);

/// Where the values of a rotary embedding stand.
struct RopeKeys {
  const char* theta = "rope_theta";
  const char* partial = "partial_rotary_factor";
  float default_partial = 1;
  bool longrope =
      false;  ///< the only scaling, which these files call "longrope", "su" or "yarn"; else it is refused
};
/// rope_theta and rope_scaling as transformers before 5 writes them, or rope_parameters with both inside. A
/// reader that knew only one of the two would fall back to a wrong base, so there is no default. Lengthens
/// config.context when the scaling is made for that.
Rope read_huggingface_rope(const ConfigValues& settings, ModelConfig& config, const RopeKeys& keys = {});
/// The same from one object, whose rope_theta is there.
Rope read_rope_object(const ConfigValues& rope, const ConfigValues& settings, ModelConfig& config);

}  // namespace speclab
