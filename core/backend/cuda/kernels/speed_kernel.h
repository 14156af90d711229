#pragma once

#include <cstddef>

#include "core/backend/cuda/kernels/simt.h"

// Measures two limits of a GPU: how fast it reads memory, and how fast its matrix unit computes. Records
// compare measured times with these limits.

namespace speclab::cuda {

inline constexpr int kSpeedThreads = 256;

/// Reads all of `data` in pieces of 16 bytes, and combines the pieces that it has read by exclusive or.
struct ReadAll {
  const simt::u32* data = nullptr;
  std::size_t pieces = 0;  ///< pieces of 16 bytes
  int blocks = 1;
  simt::u32* out = nullptr;  ///< [blocks * kSpeedThreads], written so that the compiler keeps every read
};

/// Computes 8 * rounds matrix products of shape m16n8k16 in each warp. All operands are in registers.
struct MultiplyAll {
  int rounds = 0, blocks = 1;
  float* out = nullptr;  ///< [blocks * kSpeedThreads]
};
/// The number of floating-point operations of MultiplyAll. A multiply-add counts as 2.
inline double operations_of(const MultiplyAll& a) {
  return 2.0 * 16 * 8 * 16 * 8 * a.rounds * a.blocks * (kSpeedThreads / simt::kWarp);
}

inline namespace SPECLAB_SIDE {

struct ReadAllKernel {
  static constexpr const char* kName = "read_all";
  static constexpr int kThreads = kSpeedThreads;
  static constexpr int kTogether = 8;
  ReadAll a;

  SPECLAB_DEVICE void operator()() const {
    const std::size_t thread = static_cast<std::size_t>(simt::block_x()) * kThreads + simt::thread_index();
    const std::size_t threads = static_cast<std::size_t>(a.blocks) * kThreads;
    simt::u32 all = 0;
    for (std::size_t piece = thread; piece < a.pieces; piece += kTogether * threads) {
      simt::Bytes16 got[kTogether];
      SPECLAB_UNROLL
      for (int i = 0; i < kTogether; ++i) {
        const std::size_t at = piece + i * threads;
        got[i] = simt::load16_streamed(a.data + 4 * (at < a.pieces ? at : piece));
      }
      SPECLAB_UNROLL
      for (int i = 0; i < kTogether; ++i)
        all ^= got[i].word[0] ^ got[i].word[1] ^ got[i].word[2] ^ got[i].word[3];
    }
    simt::store(a.out + thread, all);
  }
};

struct MultiplyAllKernel {
  static constexpr const char* kName = "multiply_all";
  static constexpr int kThreads = kSpeedThreads;
  MultiplyAll a;

  SPECLAB_DEVICE void operator()() const {
    constexpr simt::u32 kOnes = 0x3f803f80u;  // two ones as bf16
    const simt::u32 x[4] = {kOnes, kOnes, kOnes, kOnes}, y[2] = {kOnes, kOnes};
    simt::Accumulator sums[8];
    SPECLAB_UNROLL
    for (int i = 0; i < 8; ++i) sums[i].clear();
    for (int round = 0; round < a.rounds; ++round) {
      SPECLAB_UNROLL
      for (int i = 0; i < 8; ++i) simt::mma(sums[i], x, y);
    }
    simt::mma_wait();
    float all = 0;
    SPECLAB_UNROLL
    for (int i = 0; i < 8; ++i) all += sums[i][0];
    simt::store(a.out + simt::block_x() * kThreads + simt::thread_index(), all);
  }
};

}  // namespace SPECLAB_SIDE

template <typename Visit>
void with_kernel(const ReadAll& a, const Visit& visit) {
  visit(ReadAllKernel{a}, LaunchShape{.grid_x = a.blocks, .threads = kSpeedThreads});
}
template <typename Visit>
void with_kernel(const MultiplyAll& a, const Visit& visit) {
  visit(MultiplyAllKernel{a}, LaunchShape{.grid_x = a.blocks, .threads = kSpeedThreads});
}

}  // namespace speclab::cuda
