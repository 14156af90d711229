#include "core/model/heads/block_form.h"

#include <fmt/format.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "core/base/error.h"
#include "core/model/files/huggingface_family.h"
#include "core/model/heads/head_card.h"
#include "core/model/heads/head_layer_shape.h"

namespace speclab {
namespace {

using nlohmann::json;

constexpr int kMostBlockLayers = 64;
constexpr std::size_t kMostTaps = 64;
constexpr const char* kWriteBlockCard = "Write the head's card again.";

/// Refuses layers with a sliding window.
void require_full_attention(const ConfigValues& keys) {
  const char* const advice = "Layers with a sliding window are not supported in a block draft.";
  if (keys.has("layer_types")) {
    for (const json& type : keys.at("layer_types")) {
      if (type != "full_attention") keys.refuse("layer_types", "\"full_attention\" for each layer", advice);
    }
  } else if (keys.flag_or("use_sliding_window", false)) {
    keys.refuse("use_sliding_window", "false", advice);
  }
}

ModelConfig read_layers(const ConfigValues& keys, const ModelConfig& target) {
  require_full_attention(keys);
  ModelConfig layers;
  layers.family = "qwen3";
  layers.name = target.name + " block draft";
  layers.hidden = layers.embedding_dim = target.hidden;
  layers.bare = true;
  layers.final_norm = false;
  layers.layers = keys.integer("num_hidden_layers", 1, kMostBlockLayers);
  read_head_layer_shape(keys, layers);
  layers.qk_norm = keys.flag_or("qk_norm", true);
  layers.qkv_bias = layers.attn_out_bias = keys.flag_or("attention_bias", false);
  layers.context = keys.integer_or("max_position_embeddings", target.context, 1, INT32_MAX);
  const Rope rope = read_huggingface_rope(keys, layers);
  layers.ropes.push_back(rope);
  layers.rope_theta = rope.theta;
  return layers;
}

int read_size(const ConfigValues& keys) { return keys.integer("block_size", 2, kMostHeads + 1); }
Token read_mask(const ConfigValues& keys, const Model& target) {
  return keys.integer("mask_token_id", 0, target.config().tokens() - 1);
}

}  // namespace

BlockForm read_block_form(const ConfigValues& card, const Model& target) {
  BlockForm form;
  const int layers = target.config().layers;
  const json& taps = card.at("taps");
  bool good = taps.is_array() && !taps.empty() && taps.size() <= kMostTaps;
  if (good) {
    for (const json& tap : taps) {
      const bool number = tap.is_number_unsigned() && tap <= layers;
      good = good && (number || tap == "final_norm");
      form.taps.push_back(number ? tap.get<int>() : kFinalNorm);
    }
  }
  if (!good) {
    throw Error(
        {card.name("taps"), taps.dump(),
         fmt::format("a list of states, each \"final_norm\" or a number of layers from 0 to {}", layers),
         kWriteBlockCard});
  }
  const ConfigValues shape = card.object("shape");
  form.size = read_size(shape);
  form.queries = shape.flag_or("mask_queries", false);
  if (!form.queries) form.mask = read_mask(shape, target);
  else if (shape.has("mask_token_id"))
    shape.refuse("mask_token_id", "none with \"mask_queries\", which stand in place of this token",
                 kWriteBlockCard);
  form.layers = read_layers(shape, target.config());
  return form;
}

BlockForm read_published_block(const ConfigValues& config, const Model& target) {
  BlockForm form;
  const ConfigValues block = config.object("dflash_config");
  form.size = read_size(block.has("block_size") ? block : config);
  form.mask = read_mask(block, target);
  form.layers = read_layers(config, target.config());
  const int layers = target.config().layers;
  const json& ids = block.at("target_layer_ids");
  bool good = ids.is_array() && !ids.empty() && ids.size() <= kMostTaps;
  if (good) {
    for (const json& id : ids) {
      good = good && id.is_number_unsigned() && id < layers;
      if (good) form.taps.push_back(id == layers - 1 ? kFinalNorm : id.get<int>() + 1);
    }
  }
  if (!good) {
    throw Error({block.name("target_layer_ids"), ids.dump(),
                 fmt::format("a list of numbers from 0 to {}, the layers of the target", layers - 1),
                 "Use the target that this draft was trained for."});
  }
  return form;
}

}  // namespace speclab
