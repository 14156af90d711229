#pragma once

#include "core/model/net/model.h"

namespace speclab {

class ConfigValues;

/// What the card of a Falcon head says about its modules (FalconHead in falcon_head.h).
struct FalconForm {
  int block = 2;  ///< k: number of tokens in a block
  int lstm_layers = 2;
  ModelConfig layer;  ///< shape of the decoder layer; the first entry of `ropes` is its rotation
};

/// Reads the members of "shape" of a head.json,
///
///     {"block": 2, "lstm_layers": 2, "layer": {"num_attention_heads": 32, "intermediate_size": 11008, ...}}
///
/// "lstm_layers" is 2 by default. "layer" has the keys of a config.json of Llama, see read_head_layers().
/// Throws Error for missing or impossible values.
FalconForm read_falcon_form(const ConfigValues& card, const Model& target);

}  // namespace speclab
