#pragma once

#include "core/model/files/checkpoint_json.h"
#include "core/model/net/model_config.h"

namespace speclab {

/// Reads the shape of the decoder layers of a head from the keys of a config.json of transformers, and sets
/// it in `layer`: the numbers of heads, the width of a head and of the feed-forward, and epsilon of the
/// norms. `layer.hidden` must be set. Throws Error for a missing or impossible value, for an activation other
/// than SiLU, and for biases in the feed-forward.
void read_head_layer_shape(const ConfigValues& config, ModelConfig& layer);

/// Reads `count` decoder layers of Llama's form for a head, from the keys of a config.json of Llama: what
/// read_head_layer_shape() reads, biases of q, k and v ("qkv_bias"), and the rotary embedding, whose base
/// must be stated. The layers are as wide as the target, and have neither an embedding nor a final norm.
/// Throws Error like read_head_layer_shape(). The caller reads "attention_bias" or refuses it.
ModelConfig read_head_layers(const ConfigValues& config, const ModelConfig& target, int count);

}  // namespace speclab
