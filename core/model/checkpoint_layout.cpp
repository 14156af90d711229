#include "core/model/checkpoint_layout.h"

#include <map>
#include <utility>

#include "core/base/error.h"

namespace speclab {
namespace {

std::string shape_text(const std::vector<std::int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

}  // namespace

std::vector<ExpectedTensor> expected_tensors(const ModelConfig& config, Naming naming) {
  const bool gguf = naming == Naming::kGguf;
  const std::int64_t hidden = config.hidden, ffn = config.ffn, q = config.query_width(),
                     kv = config.kv_width();
  std::vector<ExpectedTensor> out;
  if (!config.embedding_of_target) {
    out.push_back({"token_embedding",
                   gguf ? "token_embd.weight" : "model.embed_tokens.weight",
                   {config.vocab, config.embedding_dim}});
  } else {
    out.push_back({"embed_projection", "embed_projection.weight", {hidden, config.embedding_dim}});
  }
  for (int layer = 0; layer < config.layers; ++layer) {
    const auto add = [&](const char* name, const char* gguf_name, const char* hf_name,
                         std::vector<std::int64_t> shape, int rope_heads = 0) {
      out.push_back({fmt::format("layers.{}.{}", layer, name),
                     gguf ? fmt::format("blk.{}.{}.weight", layer, gguf_name)
                          : fmt::format("model.layers.{}.{}.weight", layer, hf_name),
                     std::move(shape), rope_heads});
    };
    add("attn_norm", "attn_norm", "input_layernorm", {hidden});
    add("attn_q", "attn_q", "self_attn.q_proj", {q, hidden}, config.heads);
    add("attn_k", "attn_k", "self_attn.k_proj", {kv, hidden}, config.kv_heads);
    add("attn_v", "attn_v", "self_attn.v_proj", {kv, hidden});
    add("attn_out", "attn_output", "self_attn.o_proj", {hidden, q});
    add("ffn_norm", "ffn_norm", "post_attention_layernorm", {hidden});
    add("ffn_gate", "ffn_gate", "mlp.gate_proj", {ffn, hidden});
    add("ffn_up", "ffn_up", "mlp.up_proj", {ffn, hidden});
    add("ffn_down", "ffn_down", "mlp.down_proj", {hidden, ffn});
  }
  if (config.final_norm)
    out.push_back({"final_norm", gguf ? "output_norm.weight" : "model.norm.weight", {hidden}});
  if (!config.tied_head)
    out.push_back({"head", gguf ? "output.weight" : "lm_head.weight", {config.head_rows(), hidden}});
  return out;
}

std::vector<CheckpointTensor> take_tensors(const std::vector<ExpectedTensor>& expected,
                                           std::vector<StoredTensor> stored, const std::string& model_name,
                                           const std::string& config_source, bool interleaved,
                                           const std::function<bool(const std::string&)>& ignorable) {
  std::map<std::string, StoredTensor> by_name;
  for (StoredTensor& tensor : stored) by_name.emplace(tensor.name, std::move(tensor));

  std::vector<CheckpointTensor> out;
  for (const ExpectedTensor& want : expected) {
    const std::string what = fmt::format("{}: tensor {}", model_name, want.file_name);
    const auto found = by_name.find(want.file_name);
    if (found == by_name.end()) {
      throw Error(
          {.what = what,
           .got = "no such tensor",
           .expected = fmt::format("shape {}, as {} asks for", shape_text(want.shape), config_source),
           .advice = "The model is incomplete or its configuration belongs to another; fetch it again."});
    }
    const StoredTensor& tensor = found->second;
    if (tensor.shape != want.shape) {
      throw Error(
          {.what = what,
           .got = "shape " + shape_text(tensor.shape),
           .expected = fmt::format("{}, as {} says", shape_text(want.shape), config_source),
           .advice = "The weights and the configuration belong to different models; fetch both again."});
    }
    if (!tensor.type || *tensor.type == TensorType::kI32) {
      throw Error({.what = what,
                   .got = "type " + tensor.type_name,
                   .expected = weight_type_names() + " (after BF16 in GGUF only)",
                   .advice = "Convert the model to one of these types."});
    }
    const bool vector = want.shape.size() == 1;
    out.push_back({{want.name, want.file_name, tensor.type_name, tensor.shape, tensor.data.size()},
                   *tensor.type,
                   vector ? 1 : want.shape[0],
                   want.shape.back(),
                   tensor.data.data(),
                   interleaved ? want.rope_heads : 0});
    by_name.erase(found);
  }
  for (const auto& [name, tensor] : by_name) {
    if (ignorable(name)) continue;
    throw Error({.what = fmt::format("{}: tensor {}", model_name, name),
                 .got = "a tensor that is not part of this model",
                 .expected = fmt::format("the tensors of a Llama decoder as {} describes it", config_source),
                 .advice = "The architecture has parts (biases, more layers, ...) that are not supported."});
  }
  return out;
}

}  // namespace speclab
