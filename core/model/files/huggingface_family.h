#pragma once

#include <span>
#include <string_view>

#include "core/model/files/checkpoint_json.h"
#include "core/model/files/checkpoint_layout.h"
#include "core/model/net/model_config.h"

// Describes how the config.json and the tensors of each model family differ from those of Llama. Internal to
// Checkpoint.

namespace speclab {

/// The keys of config.json for the values that every family has.
struct HuggingFaceKeys {
  const char* hidden = "hidden_size";
  const char* layers = "num_hidden_layers";
  const char* heads = "num_attention_heads";
  const char* context = "max_position_embeddings";
  const char* ffn = "intermediate_size";
  const char* norm_eps = "rms_norm_eps";
};

/// One model family.
struct HuggingFaceFamily {
  const char* model_type;
  const char* architecture;
  const char* decoder;  ///< prefix of all tensor names except the output head's; some files omit it
  TensorNames names;
  HuggingFaceKeys keys;
  bool tied;           ///< value of tie_word_embeddings if config.json does not state it
  bool grouped_heads;  ///< config.json must state num_key_value_heads, because the default of transformers
                       ///< for this family is not the number of heads
  /// Reads the settings that only this family has. Called when head_dim and the values of `keys` are known.
  void (*read)(const ConfigValues& settings, ModelConfig& config);
};

std::span<const HuggingFaceFamily> huggingface_families();
/// Returns the model_type of the family with this name (ModelConfig::family). Two families have other names
/// in GGUF files than in transformers.
std::string_view huggingface_model_type(std::string_view family);
/// Returns the family that model_type and architectures name. A draft or a table of SpecLab without these
/// keys belongs to the family "llama". Throws Error if the family is unknown or the two keys do not agree.
const HuggingFaceFamily& huggingface_family(const ConfigValues& config);

/// The keys of config.json for the values of a rotary embedding.
struct RopeKeys {
  const char* theta = "rope_theta";
  const char* partial = "partial_rotary_factor";  ///< null: a share other than 1 is refused
  float default_partial = 1;  ///< share of a head that transformers rotates if the key is missing; if this
                              ///< share is not 1, a missing key is an error here
  bool longrope = false;      ///< true: the only scaling of the family is LongRoPE, which files call
                              ///< "longrope", "su" or "yarn"; false: LongRoPE is refused
};
/// Reads the rotary embedding. Files of transformers before version 5 have rope_theta and rope_scaling; newer
/// files have rope_parameters, which contains both. The base (rope_theta) has no default, because a wrong
/// base would ruin the text without an error. With dynamic scaling or YaRN, config.context becomes at least
/// factor * original context.
Rope read_huggingface_rope(const ConfigValues& settings, ModelConfig& config, const RopeKeys& keys = {});
/// Reads the rotary embedding of one kind of layer from its own object, which must contain rope_theta.
Rope read_rope_object(const ConfigValues& rope, const ConfigValues& settings, ModelConfig& config);

}  // namespace speclab
