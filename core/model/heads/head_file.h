#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/backend/backend.h"
#include "core/base/mapped_file.h"
#include "core/base/token.h"
#include "core/model/files/stored_tensor.h"
#include "core/model/net/model.h"

namespace speclab {

/// A linear layer of a head: y = W x + b, where x is one input vector or several concatenated ones. W is
/// stored as one matrix per input, made of the columns that multiply this input. So the inputs need not be
/// concatenated in memory.
struct HeadLinear {
  std::vector<PackedMatrix> parts;  ///< one for each input, [out, width of the input]
  Buffer<float> bias;               ///< [out]; empty without a bias
  int out() const { return parts.front().out; }
};

/// A norm (see NormKind). A layer norm has a bias. If an RMS norm has one, it is added after the scaling, as
/// in MLP speculators.
struct HeadNorm {
  NormKind kind = NormKind::kRms;
  float eps = 0;
  Buffer<float> weight, bias;  ///< [width]; `bias` may be empty for RMS norms
  int width() const { return static_cast<int>(weight.size()); }
};

/// Whether a linear layer has a bias.
enum class Bias : std::uint8_t { kNone, kPresent };

/// Reads the weights of a trained head from a safetensors file, by name. Weights are F32, F16 or BF16, and
/// they are rounded to bf16, like the weights of models.
///
/// linear(), stacked(), norm(), row(), token_ids(), token_offsets() and decoder_layers() throw Error for a
/// tensor that is missing, has a wrong shape or type, or contains a number that is not finite. The error
/// names the file and the tensor. Other tensors in the file are ignored.
class HeadFile {
 public:
  /// Throws Error when the file is missing or not a safetensors file.
  static HeadFile open(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return file_.path(); }
  bool has(const std::string& tensor) const;

  /// Reads NAME.weight [out, sum of inputs] and, with Bias::kPresent, NAME.bias [out].
  HeadLinear linear(Backend& backend, const std::string& name, const std::vector<int>& inputs, int out,
                    Bias bias) const;
  /// Reads several layers with the same input as one layer. It gives their outputs, one after the other.
  /// Layer i is names[i].weight [outs[i], input] and, with Bias::kPresent, names[i].bias [outs[i]].
  HeadLinear stacked(Backend& backend, const std::vector<std::string>& names, int input,
                     const std::vector<int>& outs, Bias bias) const;
  /// Reads NAME.weight [width], and for a layer norm or with Bias::kPresent NAME.bias [width].
  HeadNorm norm(Backend& backend, const std::string& name, NormKind kind, int width, float eps,
                Bias bias = Bias::kNone) const;
  /// Reads the numbers of a tensor [1, width], whose whole name is `tensor`.
  std::vector<float> row(const std::string& tensor, int width) const;
  /// Reads the vocabulary map of a reduced output head, I32 [rows]: the target's token of each row. Throws
  /// Error unless the tokens ascend and are below `vocab`.
  std::vector<Token> token_ids(const std::string& tensor, int vocab) const;
  /// Reads the vocabulary map of EAGLE-3. `offsets` is I64 [rows]: the target's token of each row, minus the
  /// number of the row. If the file has `used`, BOOL [vocab], it must mark these tokens and no others. Throws
  /// Error like token_ids().
  std::vector<Token> token_offsets(const std::string& offsets, const std::string& used, int vocab) const;
  /// Reads decoder layers as a separate model, whose sessions have the KV caches. Its input is
  /// Feed::embeddings, and taps read its output. `config` is the shape of the layers, see
  /// decoder_layers_of(). The names of a layer's tensors begin with `layer_names`, in which "{}" stands for
  /// the number of the layer: "layers.{}." (EAGLE), "midlayer." (EAGLE-3). The rest of each name is the one
  /// that transformers uses for the family config.family.
  std::shared_ptr<const Model> decoder_layers(std::shared_ptr<Backend> backend, const ModelConfig& config,
                                              const std::string& layer_names) const;

 private:
  explicit HeadFile(MappedFile file);
  const StoredTensor& map_of(const std::string& tensor, std::string_view type,
                             const std::string& expected) const;
  void require_tokens(const std::string& tensor, std::span<const std::int64_t> ids, int vocab) const;
  std::vector<float> numbers(const std::string& tensor, std::vector<std::int64_t> shape) const;
  std::vector<float> vector(const std::string& tensor, int size) const { return numbers(tensor, {size}); }
  MappedFile file_;
  std::vector<StoredTensor> tensors_;
};

/// Returns the shape of decoder layers like the first one of `target`, for HeadFile::decoder_layers(). It has
/// no embedding, no output head and no final norm. Change the fields in which the head differs. Throws Error
/// for a target without layers.
ModelConfig decoder_layers_of(const ModelConfig& target, int layers = 1);

}  // namespace speclab
