#pragma once

#include "core/backend/backend.h"
#include "core/backend/cuda/kernels/simt.h"

// The activation functions (Activation in core/backend/backend.h), for the kernel that applies them and for
// the linear layers that apply them to their own output.

namespace speclab::cuda {
inline namespace SPECLAB_SIDE {

template <Activation kFunction>
SPECLAB_DEVICE float activation(float x) {
  if constexpr (kFunction == Activation::kSilu) return x / (1.0f + simt::exp(-x));
  if constexpr (kFunction == Activation::kGelu) return 0.5f * x * (1.0f + simt::erf(x * 0.70710678f));
  if constexpr (kFunction ==
                Activation::kGeluTanh) {  // (1 + tanh(u)) / 2 is 1 / (1 + exp(-2u)); 2 sqrt(2/pi) = 1.5957...
    return x / (1.0f + simt::exp(x * simt::fma(x * x, -1.5957691216f * 0.044715f, -1.5957691216f)));
  }
  return simt::max(x, 0.0f);
}
SPECLAB_DEVICE float activation(Activation function, float x) {
  switch (function) {
    case Activation::kSilu: return activation<Activation::kSilu>(x);
    case Activation::kGelu: return activation<Activation::kGelu>(x);
    case Activation::kGeluTanh: return activation<Activation::kGeluTanh>(x);
    default: return activation<Activation::kRelu>(x);
  }
}

}  // namespace SPECLAB_SIDE
}  // namespace speclab::cuda
