#pragma once

#include <vector>

#include "core/base/token.h"
#include "core/model/files/checkpoint_json.h"
#include "core/model/net/model.h"

namespace speclab {

/// What the card of a block draft says about its modules (BlockHead in block_head.h).
struct BlockForm {
  int size = 2;           ///< positions of a block: the pending token and the masked positions after it
  Token mask = 0;         ///< the token whose embedding stands at the masked positions
  bool queries = false;   ///< true: masked positions have trained vectors (mask queries) instead of `mask`
  std::vector<int> taps;  ///< the target's states that the layers read, numbered as Tap::layer
  ModelConfig layers;     ///< shape of the decoder layers; the first of `ropes` is used in all layers
};

/// Reads head.json: "taps" (a list of states, each "final_norm" or a number of layers) and "shape",
///
///     {"block_size": 16, "mask_token_id": 5, "num_hidden_layers": 2, "num_attention_heads": 9,
///      "num_key_value_heads": 3, "head_dim": 64, "intermediate_size": 1536, "rms_norm_eps": 1e-5,
///      "rope_theta": 10000, "qk_norm": true, "attention_bias": false}
///
/// With "mask_queries": true the head has a vector for each masked position, and no "mask_token_id".
/// "qk_norm" says whether queries and keys are normalised by head. The keys from "num_hidden_layers" to
/// "rope_theta" and "attention_bias" have the meaning of a config.json of transformers.
/// "num_key_value_heads", "head_dim", "mask_queries", "qk_norm" and "attention_bias" may be missing; the
/// values above are the defaults of the last two. Throws Error for missing or impossible values.
BlockForm read_block_form(const ConfigValues& card, const Model& target);

/// Reads the config.json of a published DFlash draft. Its "dflash_config" has "target_layer_ids", where id i
/// stands for the state after i + 1 layers (after the last layer: after the final norm), "mask_token_id", and
/// perhaps "block_size". Throws Error for layers with a sliding window, and if the draft does not fit.
BlockForm read_published_block(const ConfigValues& config, const Model& target);

}  // namespace speclab
