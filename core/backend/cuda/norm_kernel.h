#pragma once

#include "core/backend/cuda/fragments.h"
#include "core/backend/cuda/rows.h"

// Norms of rows, or of the heads in them.

namespace speclab::cuda {

enum class NormOf { kRms, kLayer };

/// out = x / rms(x) * weight (Zhang and Sennrich 2019, eq. 4), or (x - mean) / sqrt(variance + eps) * weight + bias (Ba et
/// al. 2016, eq. 4), for each of `heads` vectors of d in each row. As floats, or rounded as the input of a linear layer, or
/// both.
struct Norm {
  NormOf kind = NormOf::kRms;
  const float* x = nullptr;       ///< vector h of row i begins at x + i * x_stride + h * d
  int x_stride = 0;
  const float* weight = nullptr;  ///< [d]
  const float* bias = nullptr;    ///< [d]; kLayer only
  float eps = 0;
  int rows = 0, heads = 1, d = 0;
  float* out = nullptr;           ///< null: not wanted; laid out by out_stride as x is; may be x
  int out_stride = 0;
  simt::u16* activations = nullptr;  ///< null: not wanted; [rows, d] as in fragments.h; only for one head
};

inline namespace SPECLAB_SIDE {

template <NormOf kKind>
struct NormKernel {
  static constexpr const char* kName = kKind == NormOf::kRms ? "rms_norm" : "layer_norm";
  static constexpr int kThreads = kRowThreads;
  Norm a;

  SPECLAB_DEVICE void operator()() const {
    const int row = simt::block_x(), head = simt::block_y(), d = a.d, step = 8 * simt::block_threads();
    const float* x = a.x + static_cast<std::size_t>(row) * static_cast<std::size_t>(a.x_stride) + static_cast<std::size_t>(head) * static_cast<std::size_t>(d);
    const bool aligned = on_16_bytes(x, 0);
    float mean = 0;
    if constexpr (kKind == NormOf::kLayer) {
      float sum = 0;
      for (int begin = 8 * simt::thread_index(); begin < d; begin += step) {
        const Piece piece = Piece::read(x, begin, d, aligned);
        SPECLAB_UNROLL
        for (int i = 0; i < 8; ++i) sum += piece.v[i];
      }
      mean = block_sum(sum, kSumBytes) / static_cast<float>(d);
    }
    float squares = 0;
    for (int begin = 8 * simt::thread_index(); begin < d; begin += step) {
      const Piece piece = Piece::read(x, begin, d, aligned);
      SPECLAB_UNROLL
      for (int i = 0; i < 8; ++i) {
        const float from_mean = begin + i < d ? piece.v[i] - mean : 0.0f;
        squares = simt::fma(from_mean, from_mean, squares);
      }
    }
    const float scale = 1.0f / simt::sqrt(block_sum(squares, 0) / static_cast<float>(d) + a.eps);
    float* out = a.out == nullptr ? nullptr : a.out + static_cast<std::size_t>(row) * static_cast<std::size_t>(a.out_stride) + static_cast<std::size_t>(head) * static_cast<std::size_t>(d);
    const int end = a.activations != nullptr ? tiles_of(d, kTileIn) * kTileIn : d;
    for (int begin = 8 * simt::thread_index(); begin < end; begin += step) {
      Piece piece = Piece::read(x, begin, d, aligned);
      const Piece weight = Piece::read(a.weight, begin, d, on_16_bytes(a.weight, 0));
      if constexpr (kKind == NormOf::kLayer) {
        const Piece bias = Piece::read(a.bias, begin, d, on_16_bytes(a.bias, 0));
        SPECLAB_UNROLL
        for (int i = 0; i < 8; ++i) piece.v[i] = simt::fma((piece.v[i] - mean) * scale, weight.v[i], bias.v[i]);
      } else {
        SPECLAB_UNROLL
        for (int i = 0; i < 8; ++i) piece.v[i] = piece.v[i] * scale * weight.v[i];
      }
      if (out != nullptr) piece.write(out, begin, d, on_16_bytes(out, 0));
      if (a.activations != nullptr) simt::store16(a.activations + activation_at(a.rows, row, begin), piece.rounded());
    }
  }
};

}  // namespace SPECLAB_SIDE

template <typename Visit>
void with_kernel(const Norm& a, const Visit& visit) {
  const LaunchShape shape{.grid_x = a.rows, .grid_y = a.heads, .threads = row_threads(a.d), .shared_bytes = 2 * kSumBytes};
  if (a.kind == NormOf::kRms) visit(NormKernel<NormOf::kRms>{a}, shape);
  else visit(NormKernel<NormOf::kLayer>{a}, shape);
}

}  // namespace speclab::cuda
