#include "core/model/heads/eagle_form.h"

#include <fmt/format.h>

#include <cstdint>
#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/model/files/checkpoint_json.h"
#include "core/model/files/huggingface_family.h"
#include "core/model/heads/head_file.h"
#include "core/model/heads/head_layer_shape.h"

namespace speclab {
namespace {

using nlohmann::json;

constexpr const char* kFinalNormTap = "final_norm";
constexpr float kUsualTheta = 10'000;  // in the published code, if config.json has no rope_theta

/// A decoder layer of Llama's form from the keys of a config.json, without the norm and the second input that
/// depend on the version.
ModelConfig read_layer(const ConfigValues& config, const ModelConfig& target) {
  if (config.flag_or("attention_bias", false))
    config.refuse("attention_bias", "false; a bias of q, k and v alone is \"qkv_bias\"",
                  "Biases of other matrices are not supported in a head.");
  ModelConfig layer;
  layer.family = "llama";
  layer.name = target.name + " head";
  layer.hidden = layer.embedding_dim = target.hidden;
  layer.layers = 1;
  layer.bare = true;
  layer.final_norm = false;
  read_head_layer_shape(config, layer);
  layer.qkv_bias = config.flag_or("qkv_bias", false);
  json rope = config.json();
  const bool stated = config.has("rope_theta") ||
                      (config.has("rope_parameters") && config.object("rope_parameters").has("rope_theta"));
  if (!stated) rope["rope_theta"] = kUsualTheta;
  const ConfigValues with_theta(rope, config.where());
  layer.context = config.integer_or("max_position_embeddings", target.context, 1, INT32_MAX);
  layer.ropes.push_back(read_huggingface_rope(with_theta, layer));
  layer.rope_of.push_back(0);
  layer.rope_theta = layer.ropes.front().theta;
  // The stated context is that of the training texts. The published code goes on beyond it.
  layer.context = target.context;
  return layer;
}

/// Sets what the version says about the layer.
void apply_version(EagleForm& form) {
  form.layer.first_attn_norm = form.version == 3;
  form.layer.beside = form.version == 3 ? form.layer.hidden : 0;
  // Norms outside the layer have no offset, so those inside have none either.
  if (form.version == 3) form.layer.norm_offset = 0;
}

int read_eagle_tap(const json& tap, int layers) {
  if (tap == kFinalNormTap) return kFinalNorm;
  return tap.is_number_unsigned() && tap <= layers ? tap.get<int>() : kFinalNorm - 1;
}

}  // namespace

EagleForm read_eagle_form(const ConfigValues& card, const Model& target) {
  const ConfigValues shape = card.object("shape");
  EagleForm form;
  form.version = shape.integer("version", 1, 3);
  if (form.version == 2) shape.refuse("version", "1 or 3", "EAGLE-2 drafts with a head of version 1.");
  form.fc_bias = shape.flag_or("fc_bias", form.version == 1);
  if (form.fc_bias && form.version == 3) shape.refuse("fc_bias", "false with version 3", "");

  const std::size_t count = form.version == 3 ? 3 : 1;
  const int layers = target.config().layers;
  const json taps = card.has("taps")    ? card.at("taps")
                    : form.version == 3 ? json()
                                        : json::array({kFinalNormTap});
  bool good = taps.is_array() && taps.size() == count;
  if (good) {
    for (const json& tap : taps) form.taps.push_back(read_eagle_tap(tap, layers));
    for (const int tap : form.taps) good = good && tap >= kFinalNorm;
  }
  if (!good) {
    throw Error(
        {card.name("taps"), taps.is_null() ? "nothing" : taps.dump(),
         fmt::format("{}, each \"{}\" or a number of layers from 0 to {}",
                     count == 1 ? "a list of one state" : "a list of three states", kFinalNormTap, layers),
         "Write the head's card again."});
  }
  if (shape.has("layer")) form.layer = read_layer(shape.object("layer"), target.config());
  else form.layer = decoder_layers_of(target.config());
  apply_version(form);
  return form;
}

EagleForm read_published_eagle(const ConfigValues& config, const Model& target) {
  EagleForm form;
  form.version = config.has("draft_vocab_size") ? 3 : 1;
  if (config.integer_or("num_hidden_layers", 1, 0, INT32_MAX) != 1)
    config.refuse("num_hidden_layers", "1", "Heads with several layers are not supported.");
  for (const char* key : {"hidden_size", "target_hidden_size"}) {
    const int have = target.config().hidden, said = config.integer_or(key, have, 0, INT32_MAX);
    if (said == have) continue;
    config.refuse(key, fmt::format("{}, as in the target {}", have, target.name()),
                  "Use the target that this head was trained for.");
  }
  form.layer = read_layer(config, target.config());
  if (form.version == 1) {
    form.taps = {kFinalNorm};
    form.fc_bias = config.flag_or("bias", true);
  } else {
    form.fc_bias = false;
    const int layers = target.config().layers;
    if (config.has("eagle_config")) {
      config.refuse(
          "eagle_config", "no such key",
          "Programs count the layers of this key in different ways: write a head.json with \"taps\", the "
          "numbers of layers below each state.");
    }
    if (layers < 7) {
      throw Error({config.name("draft_vocab_size"), fmt::format("a head of EAGLE-3 for {} layers", layers),
                   "a target of at least 7 layers, in which 2, L / 2 and L - 3 are different",
                   "Write a head.json with \"taps\"."});
    }
    form.taps = {2, layers / 2, layers - 3};
  }
  apply_version(form);
  return form;
}

}  // namespace speclab
