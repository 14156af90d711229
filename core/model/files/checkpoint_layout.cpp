#include "core/model/files/checkpoint_layout.h"

#include <fmt/format.h>
#include <map>
#include <set>
#include <utility>

#include "core/base/error.h"

namespace speclab {
namespace {

std::string shape_text(const std::vector<std::int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

}  // namespace

std::vector<ExpectedTensor> expected_tensors(const ModelConfig& config, const TensorNames& names) {
  const std::int64_t hidden = config.hidden, ffn = config.ffn, hd = config.head_dim, q = config.query_width(),
                     kv = config.kv_width();
  std::vector<ExpectedTensor> out;
  if (config.bare) {
    // neither embedding nor output head
  } else if (!config.embedding_of_target) {
    out.push_back({"token_embedding",
                   fmt::format("{}.weight", names.token_embedding),
                   {config.vocab, config.embedding_dim}});
  } else {
    out.push_back({"embed_projection", "embed_projection.weight", {hidden, config.embedding_dim}});
  }
  if (config.position_rows > 0) {
    out.push_back({"position_embedding",
                   fmt::format("{}.weight", names.position_embedding),
                   {config.position_rows, hidden}});
  }
  const auto add_norm = [&](const std::string& name, const std::string& file_name) {
    out.push_back({.name = name,
                   .file_name = file_name + ".weight",
                   .shape = {hidden},
                   .rms_norm = config.norm == NormKind::kRms});
    if (config.norm == NormKind::kLayer) out.push_back({name + ".bias", file_name + ".bias", {hidden}});
  };
  for (int layer = 0; layer < config.layers; ++layer) {
    const std::string own = fmt::format("layers.{}.", layer),
                      prefix = fmt::format(fmt::runtime(names.layer), layer);
    const auto norm = [&](const char* name, const char* file_name) {
      add_norm(own + name, prefix + file_name);
    };
    struct Slice {            // a part of a fused tensor
      std::int64_t rows = 0;  // rows of the whole tensor; 0: not fused
      Selection selection = {};
    };
    const auto add = [&](const char* name, const char* file_name, std::int64_t rows, std::int64_t columns,
                         bool bias, int rope_heads = 0, const Slice& slice = {}) {
      const std::int64_t stored_rows = slice.rows > 0 ? slice.rows : rows;
      ExpectedTensor matrix{own + name, prefix + file_name + ".weight", {rows, columns},
                            rope_heads, {stored_rows, columns},         slice.selection};
      if (names.transposed) {
        matrix.stored_shape = {columns, stored_rows};
        matrix.selection.transposed = true;
      }
      out.push_back(std::move(matrix));
      if (bias)
        out.push_back(
            {own + name + ".bias", prefix + file_name + ".bias", {rows}, 0, {stored_rows}, slice.selection});
    };
    const auto add_qkv = [&](const char* name, const char* file_name, std::int64_t rows, int rope_heads,
                             std::int64_t first, int third) {
      Slice slice;
      if (names.qkv == TensorNames::Fused::kStacked) slice = {q + 2 * kv, {first, rows, rows}};
      if (names.qkv == TensorNames::Fused::kByHead) slice = {q + 2 * kv, {third * hd, hd, 3 * hd}};
      add(name, names.qkv == TensorNames::Fused::kNo ? file_name : names.q, rows,
          hidden + (layer == 0 ? config.beside : 0), config.qkv_bias, rope_heads, slice);
    };
    const bool own_name = layer == 0 && names.first_attn_norm != nullptr;
    if (config.has_attn_norm(layer)) norm("attn_norm", own_name ? names.first_attn_norm : names.attn_norm);
    add_qkv("attn_q", names.q, q, config.heads, 0, 0);
    add_qkv("attn_k", names.k, kv, config.kv_heads, q, 1);
    add_qkv("attn_v", names.v, kv, 0, q + kv, 2);
    if (config.qk_norm) {
      out.push_back({.name = own + "attn_q_norm",
                     .file_name = prefix + names.q_norm + ".weight",
                     .shape = {hd},
                     .rms_norm = true});
      out.push_back({.name = own + "attn_k_norm",
                     .file_name = prefix + names.k_norm + ".weight",
                     .shape = {hd},
                     .rms_norm = true});
    }
    add("attn_out", names.attn_out, hidden, q, config.attn_out_bias);
    if (config.post_norms) norm("attn_post_norm", names.attn_post_norm);
    norm("ffn_norm", names.ffn_norm);
    const auto half = [&](std::int64_t first) {
      return names.fused_gate_up ? Slice{2 * ffn, {first, ffn, ffn}} : Slice{};
    };
    if (config.gated)
      add("ffn_gate", names.fused_gate_up ? names.up : names.gate, ffn, hidden, config.ffn_bias, 0, half(0));
    add("ffn_up", names.up, ffn, hidden, config.ffn_bias, 0, half(ffn));
    add("ffn_down", names.down, hidden, ffn, config.ffn_bias);
    if (config.post_norms) norm("ffn_post_norm", names.ffn_post_norm);
  }
  if (config.final_norm) add_norm("final_norm", names.final_norm);
  if (!config.tied_head && !config.bare)
    out.push_back({"head", fmt::format("{}.weight", names.head), {config.head_rows(), hidden}});
  return out;
}

void require_finite_weights(const std::string& file, const std::string& tensor,
                            std::span<const Bf16> values) {
  constexpr unsigned kExponent = 0x7f80;  // all ones: NaN or infinity
  unsigned bad = 0;
  for (const Bf16 value : values) bad |= (value & kExponent) == kExponent ? 1u : 0u;
  if (bad == 0) return;
  const auto found =
      std::find_if(values.begin(), values.end(), [](Bf16 value) { return (value & kExponent) == kExponent; });
  throw Error(
      {.what = fmt::format("{}: tensor {}", file, tensor),
       .got = fmt::format("the weight {}", bf16_to_float(*found)),
       .expected = "finite numbers, also after rounding to bf16",
       .advice = "The model is broken, or its training diverged; fetch it again or take another one."});
}

std::vector<CheckpointTensor> take_tensors(const std::vector<ExpectedTensor>& expected,
                                           std::vector<StoredTensor> stored, const std::string& model_name,
                                           const std::string& config_source, bool interleaved,
                                           const std::function<bool(const std::string&)>& ignorable) {
  std::map<std::string, StoredTensor> by_name;
  for (StoredTensor& tensor : stored) by_name.emplace(tensor.name, std::move(tensor));

  std::vector<CheckpointTensor> out;
  std::set<std::string> used;
  for (const ExpectedTensor& want : expected) {
    const std::vector<std::int64_t>& shape = want.stored_shape.empty() ? want.shape : want.stored_shape;
    const std::string what = fmt::format("{}: tensor {}", model_name, want.file_name);
    const auto found = by_name.find(want.file_name);
    if (found == by_name.end()) {
      throw Error(
          {.what = what,
           .got = "no such tensor",
           .expected = fmt::format("shape {}, as {} asks for", shape_text(shape), config_source),
           .advice =
               "The model is incomplete or its configuration belongs to another model; fetch it again."});
    }
    const StoredTensor& tensor = found->second;
    if (tensor.shape != shape) {
      throw Error(
          {.what = what,
           .got = "shape " + shape_text(tensor.shape),
           .expected = fmt::format("{}, as {} says", shape_text(shape), config_source),
           .advice = "The weights and the configuration belong to different models; fetch both again."});
    }
    if (!tensor.type || *tensor.type == TensorType::kI32) {
      throw Error(
          {.what = what,
           .got = "type " + tensor.type_name,
           .expected = weight_type_names() + " (the types after BF16 in this list only in GGUF files)",
           .advice = "Convert the model to one of these types."});
    }
    const bool vector = want.shape.size() == 1;
    const TensorTypeInfo& type = tensor_type_info(*tensor.type);
    if (type.block > 1 && (want.selection.transposed || (vector && want.selection.block > 0))) {
      throw Error({.what = what,
                   .got = "type " + tensor.type_name,
                   .expected = "F32, F16 or BF16, because single elements of the tensor are read, and other "
                               "types have blocks",
                   .advice = "Convert the model to one of these types."});
    }
    std::int64_t count = 1, all = 1;
    for (const std::int64_t extent : want.shape) count *= extent;
    for (const std::int64_t extent : shape) all *= extent;
    out.push_back({{want.name, want.file_name, tensor.type_name, want.shape,
                    static_cast<std::uint64_t>(static_cast<double>(tensor.data.size()) *
                                               static_cast<double>(count) / static_cast<double>(all))},
                   *tensor.type,
                   vector ? 1 : want.shape[0],
                   want.shape.back(),
                   tensor.data.data(),
                   interleaved ? want.rope_heads : 0,
                   want.selection,
                   shape.back(),
                   want.shift});
    used.insert(want.file_name);
  }
  for (const auto& [name, tensor] : by_name) {
    if (used.contains(name) || ignorable(name)) continue;
    throw Error({.what = fmt::format("{}: tensor {}", model_name, name),
                 .got = "a tensor that is not part of this model",
                 .expected = fmt::format("the tensors of a decoder as {} describes it", config_source),
                 .advice = "The architecture has parts (biases, more layers, ...) that are not supported."});
  }
  return out;
}

}  // namespace speclab
