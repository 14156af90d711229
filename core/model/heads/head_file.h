#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "core/backend/backend.h"
#include "core/base/mapped_file.h"
#include "core/model/files/stored_tensor.h"
#include "core/model/net/model.h"

namespace speclab {

/// A linear layer of a head: y = W x + b, where x is one vector or several, one behind the other. The columns
/// of W that meet one of several inputs are a matrix of their own, so that the inputs need not be copied
/// together.
struct HeadLinear {
  std::vector<PackedMatrix> parts;  ///< one per input, [out, width of the input]
  Buffer<float> bias;               ///< [out]; empty: none
  int out() const { return parts.front().out; }
};

/// An RMS norm or, with a bias, a layer norm (see NormKind).
struct HeadNorm {
  NormKind kind = NormKind::kRms;
  float eps = 0;
  Buffer<float> weight, bias;  ///< [width]; no bias: empty
  int width() const { return static_cast<int>(weight.size()); }
};

enum class Bias : std::uint8_t { kNone, kPresent };

/// The weights of a trained head: a safetensors file whose tensors are read by name. Types are F32, F16 or
/// BF16, and all numbers are rounded to bf16, as those of models are.
///
/// Every function throws Error for a tensor that is missing, has another shape than asked for, or holds a
/// number that is not finite; the error names file, tensor, found and expected shape. Tensors that nobody
/// asks for are ignored.
class HeadFile {
 public:
  /// Throws Error when the file is missing or is no safetensors file.
  static HeadFile open(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return file_.path(); }
  bool has(const std::string& tensor) const;

  /// NAME.weight [out, sum of inputs] and, where wanted, NAME.bias [out].
  HeadLinear linear(Backend& backend, const std::string& name, const std::vector<int>& inputs, int out,
                    Bias bias) const;
  /// NAME.weight [width], and NAME.bias [width] of a layer norm.
  HeadNorm norm(Backend& backend, const std::string& name, NormKind kind, int width, float eps) const;
  /// Decoder layers as a model of their own, whose sessions have the KV caches: fed with Feed::embeddings,
  /// read with taps. `config` says their shape, see decoder_layers_of(). `layer_names` is what the names of a
  /// layer's tensors begin with, "{}" in it stands for the number of the layer: "layers.{}." (EAGLE),
  /// "midlayer." (EAGLE-3). The rest of the names is that of config.family in transformers.
  std::shared_ptr<const Model> decoder_layers(std::shared_ptr<Backend> backend, const ModelConfig& config,
                                              const std::string& layer_names) const;

 private:
  explicit HeadFile(MappedFile file);
  std::vector<float> vector(const std::string& tensor, int size) const;
  MappedFile file_;
  std::vector<StoredTensor> tensors_;
};

/// The shape of decoder layers like the first one of a target, for HeadFile::decoder_layers(): no embedding,
/// no output head, no final norm. Change what differs in the head. Throws Error for a target without layers.
ModelConfig decoder_layers_of(const ModelConfig& target, int layers = 1);

}  // namespace speclab
