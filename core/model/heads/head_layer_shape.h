#pragma once

#include "core/model/files/checkpoint_json.h"
#include "core/model/net/model_config.h"

namespace speclab {

/// Reads the shape of the decoder layers of a head from the keys of a config.json of transformers, and sets
/// it in `layer`: the numbers of heads, the width of a head and of the feed-forward, and epsilon of the
/// norms. `layer.hidden` must be set. Throws Error for a missing or impossible value, for an activation other
/// than SiLU, and for biases in the feed-forward.
void read_head_layer_shape(const ConfigValues& config, ModelConfig& layer);

}  // namespace speclab
