#include "core/model/heads/mtp/mtp_form.h"

#include <fmt/format.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "core/base/error.h"
#include "core/model/files/checkpoint_json.h"
#include "core/model/heads/head_file.h"
#include "core/model/heads/head_layer_shape.h"
#include "core/model/heads/index_paths.h"

namespace speclab {
namespace {

using nlohmann::json;

constexpr const char* kWriteMtpCard = "Write the head's card again.";

/// Refuses layers that the engine does not compute.
void require_dense_layer(const ConfigValues& layer) {
  for (const char* key : {"n_routed_experts", "num_experts", "num_local_experts"}) {
    if (layer.integer_or(key, 0, 0, INT32_MAX) > 0)
      layer.refuse(key, "0", "Layers with a mixture of experts are not supported in a head.");
  }
  if (layer.has("kv_lora_rank"))
    layer.refuse("kv_lora_rank", "no such key", "Latent attention (MLA) is not supported in a head.");
  if (layer.flag_or("use_sliding_window", false))
    layer.refuse("use_sliding_window", "false", "A sliding window is not supported in a head.");
}

ModelConfig read_mtp_layer(const ConfigValues& keys, const ModelConfig& target) {
  require_dense_layer(keys);
  ModelConfig layer = read_head_layers(keys, target, 1);
  layer.attn_out_bias = keys.flag_or("attention_bias", false);
  layer.qkv_bias = layer.qkv_bias || layer.attn_out_bias;
  layer.qk_norm = keys.flag_or("qk_norm", false);
  return layer;
}

int read_mtp_tap(const ConfigValues& card, int layers) {
  if (!card.has("taps")) return kFinalNorm;
  const json& taps = card.at("taps");
  if (taps.is_array() && taps.size() == 1) {
    if (taps[0] == "final_norm") return kFinalNorm;
    if (taps[0].is_number_unsigned() && taps[0] <= layers) return taps[0].get<int>();
  }
  throw Error({card.name("taps"), taps.dump(),
               fmt::format("[\"final_norm\"] or one number of layers from 0 to {}", layers), kWriteMtpCard});
}

/// Whether a member says `other` instead of `usual`, which it says if it is missing.
bool says_other(const ConfigValues& shape, const char* key, const char* usual, const char* other) {
  const std::string said = shape.text_or(key, usual);
  if (said != usual && said != other)
    shape.refuse(key, fmt::format("\"{}\" or \"{}\"", usual, other), kWriteMtpCard);
  return said == other;
}

}  // namespace

MtpForm read_mtp_form(const ConfigValues& card, const Model& target) {
  const ConfigValues shape = card.object("shape");
  MtpForm form;
  form.modules = shape.integer_or("modules", 1, 1, kLongestIndexPath);
  form.tap = read_mtp_tap(card, target.config().layers);
  form.state_first = says_other(shape, "first", "embedding", "state");
  form.passes_normed = says_other(shape, "passes_on", "stream", "normed");
  if (shape.has("layer")) form.layer = read_mtp_layer(shape.object("layer"), target.config());
  else form.layer = decoder_layers_of(target.config());
  // Norms outside the layer have no offset, so those inside have none either.
  form.layer.norm_offset = 0;
  return form;
}

}  // namespace speclab
