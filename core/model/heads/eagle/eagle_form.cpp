#include "core/model/heads/eagle/eagle_form.h"

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <vector>

#include "core/base/error.h"
#include "core/model/files/checkpoint_json.h"
#include "core/model/heads/head_file.h"
#include "core/model/heads/head_layer_shape.h"
#include "core/model/heads/index_paths.h"

namespace speclab {
namespace {

using nlohmann::json;

constexpr const char* kFinalNormTap = "final_norm";
constexpr float kUsualTheta = 10'000;  // in the published code, if config.json has no rope_theta
constexpr int kMostParallelLayers = 64, kUsualParallel = 8;

/// Decoder layers of Llama's form, without the norm and the second input that depend on the version.
ModelConfig read_eagle_layers(const ConfigValues& config, const ModelConfig& target, int count) {
  json keys = config.json();
  const bool stated = config.has("rope_theta") ||
                      (config.has("rope_parameters") && config.object("rope_parameters").has("rope_theta"));
  if (!stated) keys["rope_theta"] = kUsualTheta;
  return read_head_layers(ConfigValues(keys, config.where()), target, count);
}

/// The layer of a head that drafts token by token.
ModelConfig read_layer(const ConfigValues& config, const ModelConfig& target) {
  if (config.flag_or("attention_bias", false))
    config.refuse("attention_bias", "false; a bias of q, k and v alone is \"qkv_bias\"",
                  "Biases of other matrices are not supported in a head.");
  return read_eagle_layers(config, target, 1);
}

/// The layers of P-EAGLE.
ModelConfig read_parallel_layers(const ConfigValues& config, const ModelConfig& target, int count) {
  ModelConfig layers = read_eagle_layers(config, target, count);
  layers.attn_out_bias = config.flag_or("attention_bias", false);
  layers.qkv_bias = layers.qkv_bias || layers.attn_out_bias;
  return layers;
}

/// Sets what the version says about the layers.
void apply_version(EagleForm& form) {
  form.layer.first_attn_norm = form.version == 3;
  form.layer.beside = form.version == 3 ? form.layer.hidden : 0;
  // Norms outside the layer have no offset, so the norms inside have none either.
  if (form.version == 3) form.layer.norm_offset = 0;
}

int read_eagle_tap(const json& tap, int layers) {
  if (tap == kFinalNormTap) return kFinalNorm;
  return tap.is_number_unsigned() && tap <= layers ? tap.get<int>() : kFinalNorm - 1;
}

/// The states that a head of this version reads.
std::vector<int> read_eagle_taps(const ConfigValues& card, const Model& target, int version) {
  const std::size_t count = version == 3 ? 3 : 1;
  const int layers = target.config().layers;
  const json taps = card.has("taps") ? card.at("taps") : version == 3 ? json() : json::array({kFinalNormTap});
  std::vector<int> out;
  bool good = taps.is_array() && taps.size() == count;
  if (good) {
    for (const json& tap : taps) out.push_back(read_eagle_tap(tap, layers));
    for (const int tap : out) good = good && tap >= kFinalNorm;
  }
  if (!good) {
    throw Error(
        {card.name("taps"), taps.is_null() ? "nothing" : taps.dump(),
         fmt::format("{}, each \"{}\" or a number of layers from 0 to {}",
                     count == 1 ? "a list of one state" : "a list of three states", kFinalNormTap, layers),
         "Write the head's card again."});
  }
  return out;
}

/// The states that the published code of EAGLE-3 reads.
std::vector<int> published_taps(const ConfigValues& config, int layers) {
  for (const char* key : {"eagle_config", "eagle_aux_hidden_state_layer_ids"}) {
    if (!config.has(key)) continue;
    config.refuse(
        key, "no such key",
        "Programs count the layers of this key in different ways: write a head.json with \"taps\", the "
        "numbers of layers below each state.");
  }
  if (layers < 7) {
    throw Error({config.name("draft_vocab_size"), fmt::format("a head of EAGLE-3 for {} layers", layers),
                 "a target of at least 7 layers, in which 2, L / 2 and L - 3 are different",
                 "Write a head.json with \"taps\"."});
  }
  return {2, layers / 2, layers - 3};
}

}  // namespace

EagleForm read_eagle_form(const ConfigValues& card, const Model& target) {
  const ConfigValues shape = card.object("shape");
  EagleForm form;
  form.version = shape.integer("version", 1, 3);
  if (form.version == 2) shape.refuse("version", "1 or 3", "EAGLE-2 drafts with a head of version 1.");
  form.fc_bias = shape.flag_or("fc_bias", form.version == 1);
  if (form.fc_bias && form.version == 3) shape.refuse("fc_bias", "false with version 3", "");
  form.taps = read_eagle_taps(card, target, form.version);
  if (shape.has("layer")) form.layer = read_layer(shape.object("layer"), target.config());
  else form.layer = decoder_layers_of(target.config());
  apply_version(form);
  return form;
}

EagleForm read_parallel_eagle_form(const ConfigValues& card, const Model& target) {
  const ConfigValues shape = card.object("shape");
  EagleForm form;
  form.version = 3;
  form.fc_bias = false;
  form.taps = read_eagle_taps(card, target, form.version);
  form.parallel = shape.integer("heads", 1, kLongestIndexPath);
  form.mask = shape.integer("mask_token_id", 0, target.config().tokens() - 1);
  const int count = shape.integer_or("layers", 1, 1, kMostParallelLayers);
  if (shape.has("layer")) form.layer = read_parallel_layers(shape.object("layer"), target.config(), count);
  else form.layer = decoder_layers_of(target.config(), count);
  apply_version(form);
  return form;
}

EagleForm read_published_eagle(const ConfigValues& config, const Model& target) {
  EagleForm form;
  const bool parallel = config.has("ptd_token_id");
  form.version = config.has("draft_vocab_size") || parallel ? 3 : 1;
  for (const char* key : {"hidden_size", "target_hidden_size"}) {
    const int have = target.config().hidden, said = config.integer_or(key, have, 0, INT32_MAX);
    if (said == have) continue;
    config.refuse(key, fmt::format("{}, as in the target {}", have, target.name()),
                  "Use the target that this head was trained for.");
  }
  if (form.version == 3 && config.flag_or("norm_before_residual", false))
    config.refuse("norm_before_residual", "false", "A norm before the residual stream is not supported.");
  if (parallel) {
    form.parallel = config.integer_or("para_num", kUsualParallel, 1, kLongestIndexPath);
    form.mask = config.integer("ptd_token_id", 0, target.config().tokens() - 1);
    form.layer = read_parallel_layers(config, target.config(),
                                      config.integer_or("num_hidden_layers", 1, 1, kMostParallelLayers));
  } else {
    if (config.integer_or("num_hidden_layers", 1, 0, INT32_MAX) != 1)
      config.refuse("num_hidden_layers", "1", "Heads with several layers are not supported.");
    form.layer = read_layer(config, target.config());
  }
  form.fc_bias = form.version == 1 && config.flag_or("bias", true);
  form.taps =
      form.version == 1 ? std::vector<int>{kFinalNorm} : published_taps(config, target.config().layers);
  apply_version(form);
  return form;
}

}  // namespace speclab
