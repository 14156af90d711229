#pragma once

#include <vector>

#include "core/model/net/model.h"

namespace speclab {

class ConfigValues;

/// What the card of an EAGLE head says about its modules (EagleHead in eagle_head.h).
struct EagleForm {
  int version = 1;        ///< 1: EAGLE and EAGLE-2, which are the same head; 3: EAGLE-3
  std::vector<int> taps;  ///< the states that it reads, as Tap::layer: one, or three for EAGLE-3
  bool fc_bias = true;    ///< whether the module "fc" has a bias; never in EAGLE-3
  ModelConfig layer;      ///< its decoder layer, see HeadFile::decoder_layers()
};

/// Reads head.json: "taps" and the members of "shape",
///
///     {"version": 3, "layer": {"num_attention_heads": 32, "num_key_value_heads": 8, ...}}
///
/// "version" is 1 or 3, "fc_bias" true by default with version 1. "layer" has the keys of a config.json of
/// Llama. Without it, the layer is like the first one of the target. Throws Error for missing or impossible
/// values.
EagleForm read_eagle_form(const ConfigValues& card, const Model& target);

/// Reads the config.json of a published head. The key "draft_vocab_size" marks EAGLE-3. Then the head reads
/// the states after 2, L / 2 and L - 3 of the target's L layers, as the published code does. Throws Error if
/// the head has another form or does not fit the target.
EagleForm read_published_eagle(const ConfigValues& config, const Model& target);

}  // namespace speclab
