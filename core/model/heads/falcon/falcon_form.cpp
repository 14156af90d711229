#include "core/model/heads/falcon/falcon_form.h"

#include <cstdint>
#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/model/files/checkpoint_json.h"
#include "core/model/heads/head_layer_shape.h"
#include "core/model/heads/index_paths.h"

namespace speclab {
namespace {

constexpr int kMostLstmLayers = 8;

}  // namespace

FalconForm read_falcon_form(const ConfigValues& card, const Model& target) {
  if (card.has("taps") && card.at("taps") != nlohmann::json::array({"final_norm"}))
    card.refuse("taps", "[\"final_norm\"]", "A head of Falcon reads the state after the final norm.");
  const ConfigValues shape = card.object("shape");
  FalconForm form;
  form.block = shape.integer("block", 1, kLongestIndexPath);
  form.lstm_layers = shape.integer_or("lstm_layers", 2, 1, kMostLstmLayers);
  const ConfigValues layer = shape.object("layer");
  if (layer.integer_or("num_hidden_layers", 1, 0, INT32_MAX) != 1) {
    layer.refuse("num_hidden_layers", "1",
                 "With several layers, K/V would depend on which positions were read together.");
  }
  if (layer.flag_or("attention_bias", false))
    layer.refuse("attention_bias", "false; a bias of q, k and v alone is \"qkv_bias\"",
                 "Biases of other matrices are not supported in this head.");
  form.layer = read_head_layers(layer, target.config(), 1);
  return form;
}

}  // namespace speclab
