#pragma once

#include "core/backend/cuda/kernels/activation.h"
#include "core/backend/cuda/kernels/linear/fragments.h"
#include "core/backend/cuda/kernels/rows.h"

// Applies an operation to each element of a matrix separately: activation functions, sums, scaling and soft
// caps. The bits of a result do not depend on where its element is.

namespace speclab::cuda {

/// Computes f(x), or f(gate) * up if `gated`. The result is written as floats, as the rounded input of a
/// linear layer, or both.
struct Activate {
  Activation function = Activation::kSilu;
  bool gated = false;
  const float* x = nullptr;  ///< [rows, width]; if gated [rows, 2 * width], in each row first gate, then up
  int rows = 0, width = 0;
  float* out = nullptr;              ///< [rows, width]; null: not written
  simt::u16* activations = nullptr;  ///< [rows, width] in the layout of fragments.h; null: not written
};

enum class ElementwiseOf {
  kAdd,      ///< y += x
  kAddBias,  ///< adds x [width] to every row of y
  kScale,    ///< y *= factor
  kSoftCap,  ///< y = factor * tanh(y / factor)
};
/// Applies the operation to y [rows, width] in place.
struct Elementwise {
  ElementwiseOf operation = ElementwiseOf::kAdd;
  float* y = nullptr;
  const float* x = nullptr;
  float factor = 1;
  int rows = 0, width = 0;
};

inline namespace SPECLAB_SIDE {

template <Activation kFunction>
struct ActivateKernel {
  static constexpr const char* kName = "activate";
  static constexpr int kThreads = kRowThreads;
  Activate a;

  SPECLAB_DEVICE void operator()() const {
    const int k = 8 * (simt::block_x() * kThreads + simt::thread_index()), row = simt::block_y();
    if (k >= (a.activations != nullptr ? tiles_of(a.width, kTileIn) * kTileIn : a.width)) return;
    const float* x =
        a.x + static_cast<std::size_t>(row) * static_cast<std::size_t>(a.gated ? 2 * a.width : a.width);
    Piece piece = Piece::read(x, k, a.width, on_16_bytes(x, 0));
    SPECLAB_UNROLL
    for (int i = 0; i < 8; ++i) piece.v[i] = activation<kFunction>(piece.v[i]);
    if (a.gated) {
      const Piece up = Piece::read(x + a.width, k, a.width, on_16_bytes(x + a.width, 0));
      SPECLAB_UNROLL
      for (int i = 0; i < 8; ++i) piece.v[i] *= up.v[i];
    }
    float* out = a.out + static_cast<std::size_t>(row) * static_cast<std::size_t>(a.width);
    if (a.out != nullptr) piece.write(out, k, a.width, on_16_bytes(out, 0));
    if (a.activations != nullptr)
      simt::store16(a.activations + activation_at(a.rows, row, k), piece.rounded());
  }
};

template <ElementwiseOf kOperation>
struct ElementwiseKernel {
  static constexpr const char* kName = "elementwise";
  static constexpr int kThreads = kRowThreads;
  Elementwise a;

  SPECLAB_DEVICE void operator()() const {
    const int k = 8 * (simt::block_x() * kThreads + simt::thread_index()), row = simt::block_y();
    if (k >= a.width) return;
    const std::size_t begin = static_cast<std::size_t>(row) * static_cast<std::size_t>(a.width);
    float* y = a.y + begin;
    Piece piece = Piece::read(y, k, a.width, on_16_bytes(y, 0));
    if constexpr (kOperation == ElementwiseOf::kAdd || kOperation == ElementwiseOf::kAddBias) {
      const float* x = a.x + (kOperation == ElementwiseOf::kAdd ? begin : 0);
      const Piece other = Piece::read(x, k, a.width, on_16_bytes(x, 0));
      SPECLAB_UNROLL
      for (int i = 0; i < 8; ++i) piece.v[i] += other.v[i];
    } else {
      SPECLAB_UNROLL
      for (int i = 0; i < 8; ++i) {
        piece.v[i] = kOperation == ElementwiseOf::kScale ? piece.v[i] * a.factor
                                                         : a.factor * simt::tanh(piece.v[i] / a.factor);
      }
    }
    piece.write(y, k, a.width, on_16_bytes(y, 0));
  }
};

}  // namespace SPECLAB_SIDE

template <typename Visit>
void with_kernel(const Activate& a, const Visit& visit) {
  const LaunchShape shape{
      .grid_x = tiles_of(a.width, 8 * kRowThreads), .grid_y = a.rows, .threads = kRowThreads};
  switch (a.function) {
    case Activation::kSilu: return visit(ActivateKernel<Activation::kSilu>{a}, shape);
    case Activation::kGelu: return visit(ActivateKernel<Activation::kGelu>{a}, shape);
    case Activation::kGeluTanh: return visit(ActivateKernel<Activation::kGeluTanh>{a}, shape);
    case Activation::kRelu: return visit(ActivateKernel<Activation::kRelu>{a}, shape);
  }
}
template <typename Visit>
void with_kernel(const Elementwise& a, const Visit& visit) {
  const LaunchShape shape{
      .grid_x = tiles_of(a.width, 8 * kRowThreads), .grid_y = a.rows, .threads = kRowThreads};
  switch (a.operation) {
    case ElementwiseOf::kAdd: return visit(ElementwiseKernel<ElementwiseOf::kAdd>{a}, shape);
    case ElementwiseOf::kAddBias: return visit(ElementwiseKernel<ElementwiseOf::kAddBias>{a}, shape);
    case ElementwiseOf::kScale: return visit(ElementwiseKernel<ElementwiseOf::kScale>{a}, shape);
    case ElementwiseOf::kSoftCap: return visit(ElementwiseKernel<ElementwiseOf::kSoftCap>{a}, shape);
  }
}

}  // namespace speclab::cuda
