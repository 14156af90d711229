#pragma once

#include "core/model/net/model.h"

namespace speclab {

class ConfigValues;

/// What the card of modules for multi-token prediction says about them (MtpHead in mtp_head.h).
struct MtpForm {
  int modules = 1;             ///< D; with one, the module drafts any number of tokens, else one token each
  int tap = kFinalNorm;        ///< the state that the first module reads, as Tap::layer
  bool state_first = false;    ///< whether the first columns of eh_proj multiply the state or the embedding
  bool passes_normed = false;  ///< whether the next module reads an output after or before its final norm
  ModelConfig layer;           ///< the decoder layer of each module, see HeadFile::decoder_layers()
};

/// Reads head.json: "taps", a list of one state (default "final_norm"), and the members of "shape",
///
///     {"modules": 1, "first": "embedding", "passes_on": "stream", "layer": {"num_attention_heads": 32, ...}}
///
/// "first" is "embedding" (DeepSeek-V3, GLM; the default) or "state" (MiMo): which of the two inputs of
/// eh_proj comes first. "passes_on" is "stream" (DeepSeek-V3, GLM; the default) or "normed" (MiMo): whether
/// the next token is drafted from the layer's residual stream or from the state after the final norm.
///
/// "layer" has the keys of a config.json of transformers, see read_head_layers(). "attention_bias" means
/// biases of q, k, v and of the output of attention, "qkv_bias" those of q, k and v alone, and "qk_norm" that
/// queries and keys are normalised by head. Without "layer", the layer is like the first one of the target.
///
/// Throws Error for missing or impossible values, and for layers that are not dense (mixture of experts) or
/// whose attention is not that of Llama (latent attention, a sliding window).
MtpForm read_mtp_form(const ConfigValues& card, const Model& target);

}  // namespace speclab
