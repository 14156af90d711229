#pragma once

#include <span>

#include "core/model/files/checkpoint_json.h"
#include "core/model/files/checkpoint_layout.h"
#include "core/model/net/model_config.h"

namespace speclab {

/// Describes how config.json and tensors of model families differ from Llama's. Internal to Checkpoint.

/// Names in config.json of the values that every family has.
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
  const char* decoder;  ///< prefix of the names of all tensors except the head; some files omit it
  TensorNames names;
  HuggingFaceKeys keys;
  bool tied;           ///< tie_word_embeddings when config.json does not state it
  bool grouped_heads;  ///< config.json must state num_key_value_heads; the default of transformers is not the
                       ///< number of heads
  /// Reads the family's own settings, after everything in `keys` and head_dim.
  void (*read)(const ConfigValues& settings, ModelConfig& config);
};

std::span<const HuggingFaceFamily> huggingface_families();
/// The family that both model_type and architectures name. Throws Error for an unknown one.
const HuggingFaceFamily& huggingface_family(const ConfigValues& config);

/// Names in config.json of the values of a rotary embedding.
struct RopeKeys {
  const char* theta = "rope_theta";
  const char* partial = "partial_rotary_factor";
  float default_partial = 1;
  bool longrope = false;  ///< the family's only scaling is LongRoPE, under the names "longrope", "su" or
                          ///< "yarn"; false: LongRoPE is refused
};
/// Reads rope_theta and rope_scaling, the form of transformers before 5, or rope_parameters, which contains
/// both. There is no default base: a wrong one would ruin the text silently. Increases config.context if the
/// scaling is meant for a longer context.
Rope read_huggingface_rope(const ConfigValues& settings, ModelConfig& config, const RopeKeys& keys = {});
/// Reads one object, which must contain rope_theta.
Rope read_rope_object(const ConfigValues& rope, const ConfigValues& settings, ModelConfig& config);

}  // namespace speclab
