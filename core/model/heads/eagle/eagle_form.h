#pragma once

#include <vector>

#include "core/base/token.h"
#include "core/model/net/model.h"

namespace speclab {

class ConfigValues;

/// What the card of an EAGLE head says about its modules (EagleHead in eagle_head.h).
struct EagleForm {
  int version = 1;        ///< 1: EAGLE and EAGLE-2, which are the same head; 3: EAGLE-3
  std::vector<int> taps;  ///< the states that the head reads, as Tap::layer: one, or three for EAGLE-3
  bool fc_bias = true;    ///< whether the module "fc" has a bias; never in EAGLE-3
  ModelConfig layer;      ///< for HeadFile::decoder_layers(); one decoder layer, except in P-EAGLE
  int parallel = 0;       ///< P-EAGLE (ParallelEagleHead): most tokens of one forward; 0: not P-EAGLE
  Token mask = 0;         ///< P-EAGLE: the token that stands for drafted tokens, which are not known yet
};

/// Reads head.json: "taps" and the members of "shape",
///
///     {"version": 3, "layer": {"num_attention_heads": 32, "num_key_value_heads": 8, ...}}
///
/// "version" is 1 or 3. "fc_bias" is true by default with version 1, and must not be true with version 3.
/// "layer" has the keys of a config.json of Llama. Without it, the layer is like the first one of the target.
/// Throws Error for missing or impossible values.
EagleForm read_eagle_form(const ConfigValues& card, const Model& target);

/// Reads head.json of P-EAGLE: "taps", three states, and the members of "shape",
///
///     {"heads": 8, "mask_token_id": 5, "layers": 2, "layer": {...}}
///
/// "heads" is the largest number of tokens of one forward, and "layers" the number of decoder layers (default
/// 1), which all have the shape "layer". There, "attention_bias" means biases of q, k, v and of the output of
/// attention. Throws Error like read_eagle_form().
EagleForm read_parallel_eagle_form(const ConfigValues& card, const Model& target);

/// Reads the config.json of a published head. The key "ptd_token_id" marks P-EAGLE, and its value is the mask
/// token. Otherwise the key "draft_vocab_size" marks EAGLE-3. Heads of both kinds read the states after 2,
/// L / 2 and L - 3 of the target's L layers, as in the published code of EAGLE-3. The number of tokens of one
/// forward of P-EAGLE is "para_num", a key of the training code (vllm-project/speculators), or 8 without the
/// key, as in that code. Throws Error if the head has another form or does not fit the target.
EagleForm read_published_eagle(const ConfigValues& config, const Model& target);

}  // namespace speclab
