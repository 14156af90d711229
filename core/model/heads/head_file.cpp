#include "core/model/heads/head_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "core/base/error.h"
#include "core/model/files/checkpoint_layout.h"
#include "core/model/files/safetensors.h"

namespace speclab {
namespace {

constexpr const char* kWriteMap = "Write the vocabulary map again.";

/// Takes the tensor with this name and shape.
CheckpointTensor take(const std::vector<StoredTensor>& tensors, const std::string& file,
                      const std::string& name, std::vector<std::int64_t> shape) {
  const std::vector<ExpectedTensor> expected{{name, name, std::move(shape)}};
  return take_tensors(expected, tensors, file, "the head", false, [](const std::string&) { return true; })
      .front();
}

}  // namespace

HeadFile::HeadFile(MappedFile file)
    : file_(std::move(file)), tensors_(read_safetensors(file_.bytes(), file_.path().string())) {}

HeadFile HeadFile::open(const std::filesystem::path& path) { return HeadFile(MappedFile::open(path)); }

bool HeadFile::has(const std::string& tensor) const {
  return std::any_of(tensors_.begin(), tensors_.end(),
                     [&](const StoredTensor& stored) { return stored.name == tensor; });
}

// The numbers of a tensor, in its order.
std::vector<float> HeadFile::numbers(const std::string& tensor, std::vector<std::int64_t> shape) const {
  std::int64_t size = 1;
  for (const std::int64_t extent : shape) size *= extent;
  const CheckpointTensor stored = take(tensors_, path().string(), tensor, std::move(shape));
  std::vector<Bf16> rounded(static_cast<std::size_t>(size));
  dequantize_to_bf16(stored.type, stored.data, size, rounded.data());
  require_finite_weights(path().string(), tensor, rounded);
  std::vector<float> values(rounded.size());
  std::transform(rounded.begin(), rounded.end(), values.begin(), bf16_to_float);
  return values;
}

HeadLinear HeadFile::linear(Backend& backend, const std::string& name, const std::vector<int>& inputs,
                            int out, Bias bias) const {
  SPECLAB_CHECK(!inputs.empty(), "linear layer {} without an input", name);
  const std::string tensor = name + ".weight";
  const int in = std::accumulate(inputs.begin(), inputs.end(), 0);
  const CheckpointTensor stored = take(tensors_, path().string(), tensor, {out, in});
  const auto number = static_cast<std::int64_t>(tensor_type_info(stored.type).block_bytes);
  HeadLinear layer;
  std::int64_t first = 0;  // column
  for (const int width : inputs) {
    layer.parts.push_back(backend.pack(out, width, [&](int begin, int end, Bf16* rows) {
      for (std::int64_t row = begin; row < end; ++row, rows += width) {
        dequantize_to_bf16(stored.type, stored.data + (row * in + first) * number, width, rows);
        require_finite_weights(path().string(), tensor, {rows, static_cast<std::size_t>(width)});
      }
    }));
    first += width;
  }
  if (bias == Bias::kPresent) layer.bias = backend.keep(vector(name + ".bias", out));
  file_.require_unchanged();
  return layer;
}

HeadLinear HeadFile::stacked(Backend& backend, const std::vector<std::string>& names, int input,
                             const std::vector<int>& outs, Bias bias) const {
  SPECLAB_CHECK(!names.empty() && names.size() == outs.size(), "{} layers of {} heights", names.size(),
                outs.size());
  std::vector<CheckpointTensor> parts;
  for (std::size_t i = 0; i < names.size(); ++i)
    parts.push_back(take(tensors_, path().string(), names[i] + ".weight", {outs[i], input}));
  HeadLinear layer;
  const int out = std::accumulate(outs.begin(), outs.end(), 0);
  layer.parts.push_back(backend.pack(out, input, [&](int begin, int end, Bf16* rows) {
    int base = 0;  // the first row of the part
    for (std::size_t i = 0; i < parts.size(); base += outs[i], ++i) {
      const int from = std::max(begin, base), to = std::min(end, base + outs[i]);
      if (from >= to) continue;
      const std::int64_t count = std::int64_t{to - from} * input, before = std::int64_t{from - base} * input;
      Bf16* const at = rows + std::int64_t{from - begin} * input;
      const auto number = static_cast<std::int64_t>(tensor_type_info(parts[i].type).block_bytes);
      dequantize_to_bf16(parts[i].type, parts[i].data + before * number, count, at);
      require_finite_weights(path().string(), names[i] + ".weight", {at, static_cast<std::size_t>(count)});
    }
  }));
  if (bias == Bias::kPresent) {
    std::vector<float> all;
    for (std::size_t i = 0; i < names.size(); ++i) {
      const std::vector<float> of = vector(names[i] + ".bias", outs[i]);
      all.insert(all.end(), of.begin(), of.end());
    }
    layer.bias = backend.keep(std::move(all));
  }
  file_.require_unchanged();
  return layer;
}

HeadNorm HeadFile::norm(Backend& backend, const std::string& name, NormKind kind, int width, float eps,
                        Bias bias) const {
  HeadNorm norm{kind, eps, backend.keep(vector(name + ".weight", width)), {}};
  if (kind == NormKind::kLayer || bias == Bias::kPresent)
    norm.bias = backend.keep(vector(name + ".bias", width));
  file_.require_unchanged();
  return norm;
}

std::vector<float> HeadFile::row(const std::string& tensor, int width) const {
  std::vector<float> out = numbers(tensor, {1, width});
  file_.require_unchanged();
  return out;
}

// A tensor that belongs to a vocabulary map: a list of entries of this type.
const StoredTensor& HeadFile::map_of(const std::string& tensor, std::string_view type,
                                     const std::string& expected) const {
  const std::string what = fmt::format("{}: tensor {}", path().string(), tensor);
  const auto found = std::find_if(tensors_.begin(), tensors_.end(),
                                  [&](const StoredTensor& stored) { return stored.name == tensor; });
  if (found == tensors_.end()) throw Error({what, "no such tensor", expected, kWriteMap});
  if (found->type_name != type || found->shape.size() != 1 || found->shape[0] < 1) {
    throw Error(
        {what, fmt::format("{} [{}]", found->type_name, fmt::join(found->shape, ", ")), expected, kWriteMap});
  }
  return *found;
}

void HeadFile::require_tokens(const std::string& tensor, std::span<const std::int64_t> ids, int vocab) const {
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] >= 0 && ids[i] < vocab && (i == 0 || ids[i] > ids[i - 1])) continue;
    throw Error({fmt::format("{}: tensor {}, element {}", path().string(), tensor, i),
                 fmt::format("{}", ids[i]), fmt::format("ascending token ids from 0 to {}", vocab - 1),
                 kWriteMap});
  }
}

std::vector<Token> HeadFile::token_ids(const std::string& tensor, int vocab) const {
  const StoredTensor& stored =
      map_of(tensor, "I32", "I32 [rows of the output head], the target's token of each row");
  std::vector<Token> ids(static_cast<std::size_t>(stored.shape[0]));
  std::memcpy(ids.data(), stored.data.data(), ids.size() * sizeof(Token));
  require_tokens(tensor, std::vector<std::int64_t>(ids.begin(), ids.end()), vocab);
  file_.require_unchanged();
  return ids;
}

std::vector<Token> HeadFile::token_offsets(const std::string& offsets, const std::string& used,
                                           int vocab) const {
  const StoredTensor& stored = map_of(
      offsets, "I64", "I64 [rows of the output head], the target's token of each row minus the row's number");
  const auto rows = static_cast<std::int64_t>(stored.shape[0]);
  std::vector<std::int64_t> wide(static_cast<std::size_t>(rows));
  std::memcpy(wide.data(), stored.data.data(), wide.size() * sizeof(std::int64_t));
  for (std::int64_t row = 0; row < rows; ++row) {
    std::int64_t& id = wide[static_cast<std::size_t>(row)];
    if (__builtin_add_overflow(id, row, &id)) id = -1;
  }
  require_tokens(offsets, wide, vocab);
  if (has(used)) {
    const std::string expected =
        fmt::format("BOOL [{}], true for the tokens of {} and for no others", vocab, offsets);
    const StoredTensor& marks = map_of(used, "BOOL", expected);
    const std::string what = fmt::format("{}: tensor {}", path().string(), used);
    if (marks.shape[0] != vocab)
      throw Error({what, fmt::format("BOOL [{}]", marks.shape[0]), expected, kWriteMap});
    std::size_t next = 0;
    for (std::int64_t token = 0; token < vocab; ++token) {
      const bool is_row = next < wide.size() && wide[next] == token;
      if (is_row) ++next;
      if ((marks.data[static_cast<std::size_t>(token)] != std::byte{0}) == is_row) continue;
      throw Error(
          {fmt::format("{}, element {}", what, token), is_row ? "false" : "true", expected, kWriteMap});
    }
  }
  file_.require_unchanged();
  return {wide.begin(), wide.end()};
}

std::shared_ptr<const Model> HeadFile::decoder_layers(std::shared_ptr<Backend> backend,
                                                      const ModelConfig& config,
                                                      const std::string& layer_names) const {
  return Model::load(Checkpoint::open_layers(path(), config, layer_names), std::move(backend), {});
}

ModelConfig decoder_layers_of(const ModelConfig& target, int layers) {
  if (target.layers == 0) {
    throw Error({fmt::format("decoder layers like those of {}", target.name), "a model without layers",
                 "a target with at least one decoder layer", ""});
  }
  const auto count = static_cast<std::size_t>(layers);
  ModelConfig config = target;
  config.name = target.name + " head";
  config.layers = layers;
  config.bare = true;
  config.vocab = 0;
  config.head_ids.clear();
  config.embedding_dim = config.hidden;
  config.embedding_of_target = config.tied_head = config.final_norm = false;
  config.embedding_scale = 1;
  config.position_rows = config.position_offset = 0;
  config.logit_soft_cap = 0;
  config.inflated.reset();
  config.rope_of.assign(count, target.rope_of.front());
  config.windows.clear();
  if (target.window(0) > 0) config.windows.assign(count, target.window(0));
  return config;
}

}  // namespace speclab
