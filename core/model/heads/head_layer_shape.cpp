#include "core/model/heads/head_layer_shape.h"

#include <fmt/format.h>

#include <cstdint>

#include "core/base/error.h"
#include "core/model/files/huggingface_family.h"

namespace speclab {
namespace {

constexpr int kMostHeadLayerWidth = 1 << 24;

}  // namespace

void read_head_layer_shape(const ConfigValues& config, ModelConfig& layer) {
  if (config.text_or("hidden_act", "silu") != "silu")
    config.refuse("hidden_act", "\"silu\"", "Other activations are not supported in a head.");
  if (config.flag_or("mlp_bias", false))
    config.refuse("mlp_bias", "false", "Biases of the feed-forward are not supported in a head.");
  layer.heads = config.integer("num_attention_heads", 1, kMostHeadLayerWidth);
  layer.kv_heads = config.integer_or("num_key_value_heads", layer.heads, 1, kMostHeadLayerWidth);
  if (layer.heads % layer.kv_heads != 0)
    config.refuse("num_key_value_heads", fmt::format("a divisor of {} query heads", layer.heads), "");
  if (!config.has("head_dim") && layer.hidden % layer.heads != 0) {
    config.refuse("num_attention_heads", fmt::format("a divisor of the width {}", layer.hidden),
                  "Or state head_dim.");
  }
  layer.head_dim = config.integer_or("head_dim", layer.hidden / layer.heads, 1, kMostHeadLayerWidth);
  if (layer.head_dim < 2 || layer.head_dim % 2 != 0) {
    throw Error({config.name("head_dim"), fmt::format("{}", layer.head_dim),
                 "an even number, because RoPE rotates pairs", ""});
  }
  if (std::int64_t{layer.heads} * layer.head_dim > kMostHeadLayerWidth)
    config.refuse("num_attention_heads", fmt::format("heads * head_dim of at most {}", kMostHeadLayerWidth),
                  "");
  layer.ffn = config.integer("intermediate_size", 1, kMostHeadLayerWidth);
  layer.norm_eps = config.positive("rms_norm_eps");
}

ModelConfig read_head_layers(const ConfigValues& config, const ModelConfig& target, int count) {
  ModelConfig layers;
  layers.family = "llama";
  layers.name = target.name + " head";
  layers.hidden = layers.embedding_dim = target.hidden;
  layers.layers = count;
  layers.bare = true;
  layers.final_norm = false;
  read_head_layer_shape(config, layers);
  layers.qkv_bias = config.flag_or("qkv_bias", false);
  layers.context = config.integer_or("max_position_embeddings", target.context, 1, INT32_MAX);
  layers.ropes.push_back(read_huggingface_rope(config, layers));
  layers.rope_of.assign(static_cast<std::size_t>(count), 0);
  layers.rope_theta = layers.ropes.front().theta;
  // The stated context is the length of training texts. The published code goes on beyond it.
  layers.context = target.context;
  return layers;
}

}  // namespace speclab
