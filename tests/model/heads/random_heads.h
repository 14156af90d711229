#pragma once

#include <cmath>
#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include "tests/model/heads/head_fixture.h"

/// Heads of the published layouts with random weights, as folders that read_head_card() reads.
namespace speclab::fixtures {

struct RandomHead {
  int heads = 3;   // look-ahead embeddings of PaSS; masked positions of a block draft; tokens of P-EAGLE;
                   // block of Falcon
  int blocks = 1;  // layers of a block draft and of P-EAGLE; modules for multi-token prediction
  int inner = 16;  // of an MLP speculator and of blockwise heads
  bool prefix = false;  // prefix attention of Hydra
  bool tied = false, scale_input = false;
  int version = 1;           // of EAGLE
  bool queries = false;      // a block draft with mask queries in place of a mask token
  std::vector<Token> ids{};  // vocabulary map; empty: all tokens of the target
  Json tree{};               // null: none
  std::uint64_t seed = 5;
};

/// The keys of config.json for the decoder layer of a head of EAGLE whose target has no layers.
inline Json layer_of_eagle() {
  return {{"num_attention_heads", 1},
          {"head_dim", 8},
          {"intermediate_size", 8},
          {"rms_norm_eps", 1e-5},
          {"rope_theta", 10'000}};
}

/// The tensors of a head of EAGLE, without the vocabulary map.
inline Tensors random_eagle_tensors(const ModelConfig& target, const RandomHead& of) {
  std::mt19937_64 random(of.seed);
  ModelConfig layer = target;
  layer.layers = layer.vocab = 1;  // its embedding is not used
  layer.head_ids.clear();
  if (target.layers == 0) layer.heads = layer.kv_heads = 1, layer.head_dim = layer.ffn = 8;
  const std::int64_t d = target.hidden,
                     rows = of.ids.empty() ? target.vocab : static_cast<std::int64_t>(of.ids.size());
  const double gain = 1 / std::sqrt(static_cast<double>(2 * d));
  const bool third = of.version == 3;
  Tensors tensors;
  const std::string old = "layers.0.", name = third ? "midlayer." : old;
  for (auto& [tensor_name, tensor] : layer_tensors(random_llama(layer, of.seed + 1)))
    tensors[name + tensor_name.substr(old.size())] = tensor;
  if (!third) {
    tensors.erase("layers.0.input_layernorm.weight");
    tensors["fc.weight"] = random_tensor(random, {d, 2 * d}, 0, gain);
    tensors["fc.bias"] = random_tensor(random, {d}, 0, .1);
    return tensors;
  }
  tensors["fc.weight"] = random_tensor(random, {d, 3 * d}, 0, gain);
  for (const char* matrix : {"q", "k", "v"}) {
    TinyTensor& wide = tensors.at(name + "self_attn." + matrix + "_proj.weight");
    wide = random_tensor(random, {wide.shape[0], 2 * d}, 0, gain);
  }
  tensors["midlayer.hidden_norm.weight"] = random_tensor(random, {d}, 1, .1);
  tensors["norm.weight"] = random_tensor(random, {d}, 1, .1);
  tensors["lm_head.weight"] = random_tensor(random, {rows, d}, 0, 4 / std::sqrt(static_cast<double>(d)));
  return tensors;
}

/// The tensors of a head of P-EAGLE: those of EAGLE-3, further layers, the mask's states, and an embedding of
/// its own.
inline Tensors random_parallel_eagle_tensors(const ModelConfig& target, const RandomHead& of) {
  RandomHead third = of;
  third.version = 3;
  Tensors tensors;
  for (auto& [name, tensor] : random_eagle_tensors(target, third)) {
    const std::string old = "midlayer.";
    tensors[name.starts_with(old) ? "layers.0." + name.substr(old.size()) : name] = tensor;
  }
  ModelConfig layers = target;
  layers.layers = of.blocks;
  layers.vocab = 1;  // its embedding is not used
  layers.head_ids.clear();
  if (target.layers == 0) layers.heads = layers.kv_heads = 1, layers.head_dim = layers.ffn = 8;
  for (auto& [name, tensor] : layer_tensors(random_llama(layers, of.seed + 2)))
    if (!name.starts_with("layers.0.")) tensors[name] = tensor;
  std::mt19937_64 random(of.seed + 3);
  tensors["mask_hidden"] = random_tensor(random, {1, 3 * target.hidden}, 0, 1);
  tensors["embed_tokens.weight"] = random_tensor(random, {target.vocab, target.hidden}, 0, 1);
  return tensors;
}

/// The tensors of modules for multi-token prediction.
inline Tensors random_mtp_tensors(const ModelConfig& target, const RandomHead& of) {
  std::mt19937_64 random(of.seed);
  ModelConfig layers = target;
  layers.layers = of.blocks;
  layers.vocab = 1;  // its embedding is not used
  layers.head_ids.clear();
  if (target.layers == 0) layers.heads = layers.kv_heads = 1, layers.head_dim = layers.ffn = 8;
  Tensors tensors = layer_tensors(random_llama(layers, of.seed + 1));
  const std::int64_t d = target.hidden;
  for (int module = 0; module < of.blocks; ++module) {
    const std::string at = "layers." + std::to_string(module) + ".";
    for (const char* norm : {"enorm", "hnorm", "shared_head.norm"})
      tensors[at + norm + ".weight"] = random_tensor(random, {d}, 1, .1);
    tensors[at + "eh_proj.weight"] =
        random_tensor(random, {d, 2 * d}, 0, 1 / std::sqrt(static_cast<double>(2 * d)));
  }
  if (!of.ids.empty())
    tensors["lm_head.weight"] = random_tensor(random, {static_cast<std::int64_t>(of.ids.size()), d}, 0,
                                              4 / std::sqrt(static_cast<double>(d)));
  return tensors;
}

/// The tensors of a head of Falcon with two layers of LSTM. Its decoder layer is that of layer_of_eagle().
inline Tensors random_falcon_tensors(const ModelConfig& target, const RandomHead& of) {
  std::mt19937_64 random(of.seed);
  ModelConfig layer = target;
  layer.layers = layer.vocab = layer.heads = layer.kv_heads = 1;  // its embedding is not used
  layer.head_dim = layer.ffn = 8;
  layer.head_ids.clear();
  Tensors tensors = layer_tensors(random_llama(layer, of.seed + 1));
  tensors.erase("layers.0.input_layernorm.weight");
  const std::int64_t d = target.hidden;
  for (int i = 0; i < 2; ++i) {
    const std::int64_t inputs = i == 0 ? 3 * d : 2 * d;
    for (const char* gate : {"i", "f", "g", "o"}) {
      const std::string name = "lstm." + std::to_string(i) + "." + gate;
      tensors[name + ".weight"] =
          random_tensor(random, {d, inputs}, 0, 2 / std::sqrt(static_cast<double>(inputs)));
      tensors[name + ".bias"] = random_tensor(random, {d}, 0, .1);
    }
  }
  if (!of.ids.empty())
    tensors["lm_head.weight"] = random_tensor(random, {static_cast<std::int64_t>(of.ids.size()), d}, 0,
                                              4 / std::sqrt(static_cast<double>(d)));
  return tensors;
}

/// The attention of a random block draft: 2 query heads and 1 key/value head of 8, all with norms.
inline constexpr int kBlockHeads = 2, kBlockHeadDim = 8;

/// The tensors of a block draft.
inline Tensors random_block_tensors(const ModelConfig& target, const RandomHead& of) {
  std::mt19937_64 random(of.seed);
  Tensors tensors;
  const std::int64_t d = target.hidden, q = kBlockHeads * kBlockHeadDim, kv = kBlockHeadDim, ffn = of.inner;
  const auto linear = [&](const std::string& name, std::int64_t out, std::int64_t in, double gain = 1) {
    tensors[name + ".weight"] =
        random_tensor(random, {out, in}, 0, gain / std::sqrt(static_cast<double>(in)));
  };
  const auto norm = [&](const std::string& name, std::int64_t width) {
    tensors[name + ".weight"] = random_tensor(random, {width}, 1, .1);
  };
  linear("fc", d, d * (target.layers > 0 ? 2 : 1));
  norm("hidden_norm", d);
  for (int i = 0; i < of.blocks; ++i) {
    const std::string at = "layers." + std::to_string(i) + ".";
    norm(at + "input_layernorm", d);
    linear(at + "self_attn.q_proj", q, d);
    linear(at + "self_attn.k_proj", kv, d);
    linear(at + "self_attn.v_proj", kv, d);
    norm(at + "self_attn.q_norm", kBlockHeadDim);
    norm(at + "self_attn.k_norm", kBlockHeadDim);
    linear(at + "self_attn.o_proj", d, q);
    norm(at + "post_attention_layernorm", d);
    linear(at + "mlp.gate_proj", ffn, d);
    linear(at + "mlp.up_proj", ffn, d);
    linear(at + "mlp.down_proj", d, ffn);
  }
  norm("norm", d);
  if (!of.ids.empty()) linear("lm_head", static_cast<std::int64_t>(of.ids.size()), d, 4);
  if (of.queries) tensors["mask_queries.weight"] = random_tensor(random, {of.heads, d}, 0, 1);
  return tensors;
}

/// The tensors of a head of this kind (to_string(HeadKind)) for a target of this shape, without the
/// vocabulary map.
inline Tensors random_head_tensors(const std::string& kind, const ModelConfig& target, const RandomHead& of) {
  if (kind == "eagle") return random_eagle_tensors(target, of);
  if (kind == "parallel_eagle") return random_parallel_eagle_tensors(target, of);
  if (kind == "mtp") return random_mtp_tensors(target, of);
  if (kind == "falcon") return random_falcon_tensors(target, of);
  if (kind == "block_draft") return random_block_tensors(target, of);
  std::mt19937_64 random(of.seed);
  Tensors tensors;
  if (kind == "pass") {
    tensors["look_ahead.weight"] = random_tensor(random, {of.heads, target.hidden}, 0, 1);
    return tensors;
  }
  const auto add = [&](const std::string& name, std::vector<std::int64_t> shape, double mean,
                       double deviation) {
    tensors[name] = random_tensor(random, std::move(shape), mean, deviation);
  };
  const auto by = [](std::int64_t inputs) { return 1 / std::sqrt(static_cast<double>(inputs)); };
  const std::int64_t d = target.hidden, vocab = target.vocab, inner = of.inner,
                     rows = of.ids.empty() ? vocab : static_cast<std::int64_t>(of.ids.size());
  const auto linear = [&](const std::string& name, std::int64_t out, std::int64_t in, double gain,
                          bool bias) {
    add(name + ".weight", {out, in}, 0, gain * by(in));
    if (bias) add(name + ".bias", {out}, 0, .1);
  };
  if (kind == "blockwise") linear("ffn_in", inner, d, 1, true);
  for (int i = 0; i < of.heads; ++i) {
    const std::string at = std::to_string(i);
    if (kind == "blockwise") {
      linear("ffn_out." + at, d, inner, 3, true);
    } else if (kind == "medusa") {
      for (int block = 0; block < of.blocks; ++block)
        linear(at + "." + std::to_string(block) + ".linear", d, d, 1, true);
      linear(at + "." + std::to_string(of.blocks), rows, d, 4, false);
    } else if (kind == "hydra") {
      for (int block = 0; block < of.blocks; ++block) {
        const std::int64_t in = block == 0 ? (i + 2) * d : d;
        const std::string name =
            "hydra_mlp." + at + "." + std::to_string(of.prefix ? 2 * block + 1 : block) + ".";
        linear(name + "linear", d, in, 1, true);
        if (block == 0) linear(name + "res_connection", d, in, 1, true);
      }
      linear("hydra_lm_head." + at + (of.prefix ? ".1" : ""), rows, d, 4, true);
    } else {
      const bool first = i == 0 || !of.tied;
      if (first) add("emb." + at + ".weight", {vocab, inner}, 0, 1);
      if (first || i == 1) linear("proj." + at, inner, i == 0 ? d : inner, 1, false);
      if (first) add("ln." + at + ".weight", {inner}, 1, .1);
      if (first) add("ln." + at + ".bias", {inner}, 0, .1);
      if (first) linear("head." + at, rows, inner, 4, false);
    }
  }
  if (of.prefix) {
    ModelConfig layer = target;
    layer.layers = layer.vocab = 1;  // its embedding is not used
    layer.head_ids.clear();
    for (auto& [name, tensor] : layer_tensors(random_llama(layer, of.seed + 1)))
      tensors["prefix_embeding_layer." + name] = tensor;
    add("prefix_embeding_layer.norm.weight", {d}, 1, .1);
  }
  return tensors;
}

inline Json head_card(const std::string& kind, const ModelConfig& target, const RandomHead& of) {
  Json card = {{"format", "speclab head 1"},
               {"kind", kind},
               {"target",
                {{"name", target.name},
                 {"hidden", target.hidden},
                 {"layers", target.layers},
                 {"vocab", target.vocab}}},
               {"taps", {"final_norm"}},
               {"tree", of.tree},
               {"shape", {{"heads", of.heads}, {"blocks", of.blocks}, {"prefix_attention", of.prefix}}}};
  if (kind == "mlp_speculator")
    card["shape"] = {
        {"heads", of.heads}, {"inner", of.inner}, {"tied", of.tied}, {"scale_input", of.scale_input}};
  if (kind == "blockwise") card["shape"] = {{"heads", of.heads}, {"inner", of.inner}};
  if (kind == "eagle") {
    card["shape"] = {{"version", of.version}};
    if (target.layers == 0) card["shape"]["layer"] = layer_of_eagle();
    const int below = target.layers >= 7 ? 2 : 0, above = target.layers >= 7 ? 3 : 0;
    if (of.version == 3) card["taps"] = {below, target.layers / 2, target.layers - above};
  }
  if (kind == "parallel_eagle") {
    card["shape"] = {{"heads", of.heads}, {"mask_token_id", 0}, {"layers", of.blocks}};
    if (target.layers == 0) card["shape"]["layer"] = layer_of_eagle();
    card["taps"] = {0, target.layers / 2, target.layers};
  }
  if (kind == "falcon") card["shape"] = {{"block", of.heads}, {"layer", layer_of_eagle()}};
  if (kind == "mtp") {
    card["shape"] = {{"modules", of.blocks}};
    if (target.layers == 0) card["shape"]["layer"] = layer_of_eagle();
  }
  if (kind == "block_draft") {
    card["taps"] = target.layers > 0 ? Json::array({1, "final_norm"}) : Json::array({"final_norm"});
    card["shape"] = {
        {"block_size", of.heads + 1},         {"mask_token_id", 0},       {"num_hidden_layers", of.blocks},
        {"num_attention_heads", kBlockHeads}, {"num_key_value_heads", 1}, {"head_dim", kBlockHeadDim},
        {"intermediate_size", of.inner},      {"rms_norm_eps", 1e-5},     {"rope_theta", 10000}};
    if (of.queries) card["shape"].merge_patch({{"mask_token_id", nullptr}, {"mask_queries", true}});
  }
  if (!of.ids.empty()) card["vocabulary_map"] = "draft_vocab";
  return card;
}

inline void write_head_folder(const std::filesystem::path& folder, const Json& card, const Tensors& tensors,
                              const std::vector<Token>& ids = {}) {
  std::vector<RawTensor> raw;
  for (const auto& [name, tensor] : tensors)
    raw.push_back({name, "BF16", tensor.shape, encode(tensor.values, "BF16")});
  if (!ids.empty()) {
    std::string bytes;
    for (const Token id : ids) append(bytes, id);
    raw.push_back({"draft_vocab", "I32", {static_cast<std::int64_t>(ids.size())}, bytes});
  }
  std::filesystem::create_directories(folder);
  write_file(folder / "head.safetensors", safetensors_file(raw));
  write_file(folder / "head.json", card.dump(1));
}

/// Writes card and weights, and returns the folder for the option "head".
inline std::string write_random_head(const std::filesystem::path& folder, const std::string& kind,
                                     const ModelConfig& target, const RandomHead& of = {}) {
  write_head_folder(folder, head_card(kind, target, of), random_head_tensors(kind, target, of), of.ids);
  return folder.string();
}

}  // namespace speclab::fixtures
