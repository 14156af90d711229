#pragma once

#include <cstddef>

#include "core/backend/cuda/kernels/simt.h"

// Kernels that copy rows and fill columns of floats.

namespace speclab::cuda {

inline constexpr int kColumnThreads = 256;

/// out[i] = x[rows[i]]
struct CopyRows {
  const float* x = nullptr;            ///< [any, width]
  const std::int32_t* rows = nullptr;  ///< [count]
  int count = 0, width = 0;
  float* out = nullptr;  ///< [count, width]
};

/// x[i][begin .. width - 1] = value
struct FillColumns {
  float* x = nullptr;  ///< [rows, width]
  int rows = 0, width = 0, begin = 0;
  float value = 0;
};

inline namespace SPECLAB_SIDE {

struct CopyRowsKernel {
  static constexpr const char* kName = "copy_rows";
  static constexpr int kThreads = kColumnThreads;
  CopyRows a;

  SPECLAB_DEVICE void operator()() const {
    const int k = simt::block_x() * kThreads + simt::thread_index(), row = simt::block_y();
    if (k >= a.width) return;
    const auto from = static_cast<std::size_t>(simt::load(a.rows + row)),
               width = static_cast<std::size_t>(a.width);
    simt::store(a.out + static_cast<std::size_t>(row) * width + k, simt::load(a.x + from * width + k));
  }
};

struct FillColumnsKernel {
  static constexpr const char* kName = "fill_columns";
  static constexpr int kThreads = kColumnThreads;
  FillColumns a;

  SPECLAB_DEVICE void operator()() const {
    const int k = a.begin + simt::block_x() * kThreads + simt::thread_index();
    if (k < a.width)
      simt::store(a.x + static_cast<std::size_t>(simt::block_y()) * static_cast<std::size_t>(a.width) + k,
                  a.value);
  }
};

}  // namespace SPECLAB_SIDE

template <typename Visit>
void with_kernel(const CopyRows& a, const Visit& visit) {
  visit(CopyRowsKernel{a}, LaunchShape{.grid_x = (a.width + kColumnThreads - 1) / kColumnThreads,
                                       .grid_y = a.count,
                                       .threads = kColumnThreads});
}
template <typename Visit>
void with_kernel(const FillColumns& a, const Visit& visit) {
  visit(FillColumnsKernel{a}, LaunchShape{.grid_x = (a.width - a.begin + kColumnThreads - 1) / kColumnThreads,
                                          .grid_y = a.rows,
                                          .threads = kColumnThreads});
}

}  // namespace speclab::cuda
