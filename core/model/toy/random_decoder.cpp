#include "core/model/toy/random_decoder.h"

#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "core/base/bf16.h"
#include "core/measure/run_result.h"
#include "core/model/toy/temporary_folder.h"

namespace speclab::toy {
namespace {

/// A tensor of random numbers: its name and shape in Hugging Face's layout, mean and deviation.
struct RandomTensor {
  std::string name;
  std::vector<int> shape;
  double mean, deviation;
};

std::vector<RandomTensor> tensors_of(const DecoderSizes& sizes) {
  std::vector<RandomTensor> tensors;
  const auto norm = [&](const std::string& name) { tensors.push_back({name, {sizes.hidden}, 1, .1}); };
  const auto matrix = [&](const std::string& name, int out, int in, double gain = 1) {
    tensors.push_back({name, {out, in}, 0, gain / std::sqrt(static_cast<double>(in))});
  };
  tensors.push_back({"model.embed_tokens.weight", {sizes.vocab, sizes.hidden}, 0, 1});
  const int queries = sizes.heads * sizes.head_dim, keys = sizes.kv_heads * sizes.head_dim;
  for (int layer = 0; layer < sizes.layers; ++layer) {
    const std::string at = fmt::format("model.layers.{}.", layer);
    norm(at + "input_layernorm.weight");
    matrix(at + "self_attn.q_proj.weight", queries, sizes.hidden);
    matrix(at + "self_attn.k_proj.weight", keys, sizes.hidden);
    matrix(at + "self_attn.v_proj.weight", keys, sizes.hidden);
    matrix(at + "self_attn.o_proj.weight", sizes.hidden, queries);
    norm(at + "post_attention_layernorm.weight");
    matrix(at + "mlp.gate_proj.weight", sizes.ffn, sizes.hidden);
    matrix(at + "mlp.up_proj.weight", sizes.ffn, sizes.hidden);
    matrix(at + "mlp.down_proj.weight", sizes.hidden, sizes.ffn);
  }
  norm("model.norm.weight");
  matrix("lm_head.weight", sizes.vocab, sizes.hidden, 4);
  return tensors;
}

/// A safetensors file: the length of the header, the header, the tensors.
std::string file_of(const std::vector<RandomTensor>& tensors, std::uint64_t seed) {
  static_assert(std::endian::native == std::endian::little);
  std::mt19937_64 random(seed);
  nlohmann::json header = nlohmann::json::object();
  std::string data;
  for (const RandomTensor& tensor : tensors) {
    std::size_t count = 1;
    for (const int size : tensor.shape) count *= static_cast<std::size_t>(size);
    const std::size_t begin = data.size();
    for (std::size_t i = 0; i < count; ++i) {
      const double uniform = static_cast<double>(random() >> 11) * 0x1p-53 * 2 - 1;  // deviation 1 / sqrt(3)
      const Bf16 number =
          float_to_bf16(static_cast<float>(tensor.mean + tensor.deviation * std::sqrt(3.0) * uniform));
      data.append(reinterpret_cast<const char*>(&number), sizeof number);
    }
    header[tensor.name] = {
        {"dtype", "BF16"}, {"shape", tensor.shape}, {"data_offsets", {begin, data.size()}}};
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const std::uint64_t length = text.size();
  return std::string(reinterpret_cast<const char*>(&length), sizeof length) + text + data;
}

}  // namespace

Checkpoint open_random_decoder(const DecoderSizes& sizes, std::uint64_t seed) {
  const TemporaryFolder folder;
  write_json_file(folder.path() / "config.json", {{"architectures", {"LlamaForCausalLM"}},
                                                  {"model_type", "llama"},
                                                  {"_name_or_path", "random decoder"},
                                                  {"hidden_size", sizes.hidden},
                                                  {"num_hidden_layers", sizes.layers},
                                                  {"num_attention_heads", sizes.heads},
                                                  {"num_key_value_heads", sizes.kv_heads},
                                                  {"head_dim", sizes.head_dim},
                                                  {"intermediate_size", sizes.ffn},
                                                  {"hidden_act", "silu"},
                                                  {"vocab_size", sizes.vocab},
                                                  {"max_position_embeddings", sizes.context},
                                                  {"rms_norm_eps", 1e-5},
                                                  {"rope_theta", 10000.0},
                                                  {"tie_word_embeddings", false}});
  write_file(folder.path() / "model.safetensors", file_of(tensors_of(sizes), seed));
  return Checkpoint::open(folder.path());
}

}  // namespace speclab::toy
