#pragma once

#include "core/backend/cuda/kernels/linear/fragments.h"
#include "core/backend/cuda/kernels/rows.h"

// The kernel that normalises rows, or the heads within rows: RMS norm and layer norm.

namespace speclab::cuda {

enum class NormOf { kRms, kLayer };

/// Arguments of the norm kernel. It normalises each of the `heads` vectors of d numbers in each row. kRms:
/// out = x / sqrt(mean(x^2) + eps) * weight (Zhang and Sennrich 2019, eq. 4). kLayer: out = (x - mean) /
/// sqrt(variance + eps) * weight + bias (Ba et al. 2016, eq. 4). The kernel writes the result as floats
/// (`out`), as bf16 input of a linear layer (`activations`), or as both. `out` may be `x`.
struct Norm {
  NormOf kind = NormOf::kRms;
  const float* x = nullptr;  ///< vector h of row i begins at x + i * x_stride + h * d
  int x_stride = 0;
  const float* weight = nullptr;  ///< [d]
  const float* bias = nullptr;    ///< [d]; kLayer only
  float eps = 0;
  int rows = 0, heads = 1, d = 0;
  float* out = nullptr;  ///< null: not written; vector h of row i begins at out + i * out_stride + h * d
  int out_stride = 0;
  simt::u16* activations = nullptr;  ///< null: not written; [rows, d] as in fragments.h; one head only
};

inline namespace SPECLAB_SIDE {

/// The mean of a vector (0 for an RMS norm), and the factor by which the norm scales it.
struct Moments {
  float mean = 0, scale = 1;
};
/// Computes the scale of one vector of d numbers and, for a layer norm, its mean. The first `threads` threads
/// of the block read x. sum(value, i) returns the sum of the values of these threads. i is 0 or 1 and tells
/// the two sums apart, so that they can use different shared memory.
template <NormOf kKind, typename Sum>
SPECLAB_DEVICE Moments moments_of(const float* x, int d, float eps, int threads, const Sum& sum) {
  const bool aligned = on_16_bytes(x, 0);
  const int first = simt::thread_index() < threads ? 8 * simt::thread_index() : d, step = 8 * threads;
  Moments moments;
  if constexpr (kKind == NormOf::kLayer) {
    float total = 0;
    for (int begin = first; begin < d; begin += step) {
      const Piece piece = Piece::read(x, begin, d, aligned);
      SPECLAB_UNROLL
      for (int i = 0; i < 8; ++i) total += piece.v[i];
    }
    moments.mean = sum(total, 1) / static_cast<float>(d);
  }
  float squares = 0;
  for (int begin = first; begin < d; begin += step) {
    const Piece piece = Piece::read(x, begin, d, aligned);
    SPECLAB_UNROLL
    for (int i = 0; i < 8; ++i) {
      const float from_mean = begin + i < d ? piece.v[i] - moments.mean : 0.0f;
      squares = simt::fma(from_mean, from_mean, squares);
    }
  }
  moments.scale = 1.0f / simt::sqrt(sum(squares, 0) / static_cast<float>(d) + eps);
  return moments;
}
/// Returns the eight numbers of the vector from `begin` on, normalised.
template <NormOf kKind>
SPECLAB_DEVICE Piece normed_piece(const float* x, const float* weights, const float* biases, int begin, int d,
                                  const Moments& moments) {
  Piece piece = Piece::read(x, begin, d, on_16_bytes(x, 0));
  const Piece weight = Piece::read(weights, begin, d, on_16_bytes(weights, 0));
  if constexpr (kKind == NormOf::kLayer) {
    const Piece bias = Piece::read(biases, begin, d, on_16_bytes(biases, 0));
    SPECLAB_UNROLL
    for (int i = 0; i < 8; ++i)
      piece.v[i] = simt::fma((piece.v[i] - moments.mean) * moments.scale, weight.v[i], bias.v[i]);
  } else {
    SPECLAB_UNROLL
    for (int i = 0; i < 8; ++i) piece.v[i] = piece.v[i] * moments.scale * weight.v[i];
  }
  return piece;
}

template <NormOf kKind>
struct NormKernel {
  static constexpr const char* kName = kKind == NormOf::kRms ? "rms_norm" : "layer_norm";
  static constexpr int kThreads = kRowThreads;
  Norm a;

  SPECLAB_DEVICE void operator()() const {
    const int row = simt::block_x(), head = simt::block_y(), d = a.d, step = 8 * simt::block_threads();
    const float* x = a.x + static_cast<std::size_t>(row) * static_cast<std::size_t>(a.x_stride) +
                     static_cast<std::size_t>(head) * static_cast<std::size_t>(d);
    const Moments moments = moments_of<kKind>(x, d, a.eps, simt::block_threads(), [](float value, int i) {
      return block_sum(value, i * kSumBytes);
    });
    float* out = a.out == nullptr
                     ? nullptr
                     : a.out + static_cast<std::size_t>(row) * static_cast<std::size_t>(a.out_stride) +
                           static_cast<std::size_t>(head) * static_cast<std::size_t>(d);
    const int end = a.activations != nullptr ? tiles_of(d, kTileIn) * kTileIn : d;
    for (int begin = 8 * simt::thread_index(); begin < end; begin += step) {
      const Piece piece = normed_piece<kKind>(x, a.weight, a.bias, begin, d, moments);
      if (out != nullptr) piece.write(out, begin, d, on_16_bytes(out, 0));
      if (a.activations != nullptr)
        simt::store16(a.activations + activation_at(a.rows, row, begin), piece.rounded());
    }
  }
};

}  // namespace SPECLAB_SIDE

template <typename Visit>
void with_kernel(const Norm& a, const Visit& visit) {
  const LaunchShape shape{
      .grid_x = a.rows, .grid_y = a.heads, .threads = row_threads(a.d), .shared_bytes = 2 * kSumBytes};
  if (a.kind == NormOf::kRms) visit(NormKernel<NormOf::kRms>{a}, shape);
  else visit(NormKernel<NormOf::kLayer>{a}, shape);
}

}  // namespace speclab::cuda
