#pragma once

#include <cmath>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "core/backend/backend.h"
#include "core/model/heads/head_runner.h"
#include "tests/model/files/model_files.h"

/// Heads with random weights as safetensors files, and the double arithmetic that their modules are compared
/// with.
namespace speclab::fixtures {

using Tensors = std::map<std::string, TinyTensor>;  // by the name in the file

/// Numbers that are exact in bf16, uniform with this mean and standard deviation.
inline TinyTensor random_tensor(std::mt19937_64& random, std::vector<std::int64_t> shape, double mean,
                                double deviation) {
  std::int64_t count = 1;
  for (const auto extent : shape) count *= extent;
  TinyTensor tensor{std::move(shape), {}};
  for (std::int64_t i = 0; i < count; ++i) {
    const double uniform = static_cast<double>(random() >> 11) * 0x1p-53 * 2 - 1;
    const auto value = static_cast<float>(mean + deviation * std::sqrt(3.) * uniform);
    tensor.values.push_back(bf16_to_float(float_to_bf16(value)));
  }
  return tensor;
}

inline void write_head(const std::filesystem::path& file, const Tensors& tensors,
                       const std::string& dtype = "BF16") {
  std::vector<RawTensor> raw;
  for (const auto& [name, tensor] : tensors)
    raw.push_back({name, dtype, tensor.shape, encode(tensor.values, dtype)});
  write_file(file, safetensors_file(raw));
}

/// The tensors of the decoder layers of a tiny model, named "layers.N. ..." as in the files of EAGLE.
inline Tensors layer_tensors(const TinyModel& model) {
  Tensors out;
  const std::string prefix = "model.";
  for (const auto& [name, tensor] : model.tensors) {
    if (name.starts_with("layers.")) out[file_tensor_name(name, false).substr(prefix.size())] = tensor;
  }
  return out;
}

/// W x, and W x + b.
inline std::vector<double> times(const TinyTensor& w, const std::vector<double>& x) {
  std::vector<double> y(static_cast<std::size_t>(w.shape[0]));
  for (std::size_t j = 0; j < y.size(); ++j)
    for (std::size_t k = 0; k < x.size(); ++k) y[j] += w.values[j * x.size() + k] * x[k];
  return y;
}
inline std::vector<double> plus(std::vector<double> x, const TinyTensor& b) {
  for (std::size_t i = 0; i < x.size(); ++i) x[i] += b.values[i];
  return x;
}

inline double apply(Activation function, double x) {
  switch (function) {
    case Activation::kSilu: return x / (1 + std::exp(-x));
    case Activation::kGelu: return x * std::erfc(-x / std::sqrt(2.)) / 2;
    case Activation::kGeluTanh:
      return x / 2 * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    case Activation::kRelu: return std::max(x, 0.);
  }
  return 0;
}

inline std::vector<double> rms_normed(const std::vector<double>& x, const TinyTensor& weight, double eps) {
  double squares = 0;
  for (const double value : x) squares += value * value;
  std::vector<double> y(x.size());
  for (std::size_t i = 0; i < x.size(); ++i)
    y[i] = x[i] * weight.values[i] / std::sqrt(squares / static_cast<double>(x.size()) + eps);
  return y;
}

inline std::vector<double> layer_normed(const std::vector<double>& x, const TinyTensor& weight,
                                        const TinyTensor& bias, double eps) {
  const auto count = static_cast<double>(x.size());
  double mean = 0, variance = 0;
  for (const double value : x) mean += value / count;
  for (const double value : x) variance += (value - mean) * (value - mean) / count;
  std::vector<double> y(x.size());
  for (std::size_t i = 0; i < x.size(); ++i)
    y[i] = (x[i] - mean) / std::sqrt(variance + eps) * weight.values[i] + bias.values[i];
  return y;
}

/// Rows of numbers that are exact in bf16, [rows, width].
inline std::vector<float> random_rows(std::mt19937_64& random, int rows, int width) {
  return random_tensor(random, {rows, width}, 0, 1).values;
}
inline std::vector<double> row_of(const std::vector<float>& rows, int width, int row) {
  const auto at = rows.begin() + static_cast<std::ptrdiff_t>(row) * width;
  return {at, at + width};
}

}  // namespace speclab::fixtures
