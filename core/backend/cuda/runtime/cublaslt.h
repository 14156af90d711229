#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "core/backend/cuda/runtime/gpu.h"
#include "core/backend/cuda/kernels/simt.h"

// Products of many rows by the library of the toolkit on this machine. It is loaded when it is asked for: no
// program needs it to run, and only its header is needed to build (where that is missing too, asking for it
// says so).

namespace speclab::cuda {

/// y (+)= x W^T in row-major memory, each beginning at a multiple of 16 bytes.
struct PlainProduct {
  const simt::u16* weights = nullptr;  ///< [out, in], bf16
  const simt::u16* x = nullptr;        ///< [rows, in], bf16
  float* y = nullptr;                  ///< [rows, out]
  int out = 0, in = 0, rows = 0;
  bool accumulate = false;
};

/// The same on the host, what stands for the library on a simulated GPU: sums in float, k descending, because
/// a library has bits that are not ours.
void plain_product(const PlainProduct& a);

/// Handle of the first of these libraries that the loader finds. Throws Error that names them when it finds
/// none.
void* load_library(const std::vector<std::string>& files);
/// libcublasLt of the toolkit that this program was built with. Throws Error where that was none.
void* load_cublaslt();

/// cuBLASLt on one GPU. bf16 in, sums in float, in an order of the library's own that may depend on the
/// number of rows; equal shapes take the same algorithm, so that equal products have equal bits.
class CublasLt {
 public:
  static constexpr std::size_t kWorkspace = std::size_t{32} << 20;
  /// Throws Error where the library is not found or does not start, or there is no memory for its workspace.
  explicit CublasLt(Gpu& gpu);
  ~CublasLt();
  CublasLt(const CublasLt&) = delete;
  CublasLt& operator=(const CublasLt&) = delete;

  /// Queues the product, in the order of the GPU's stream. Throws Error with the shape when the library
  /// refuses it.
  void product(const PlainProduct& a);
  /// How many algorithms it proposes for a shape, the one that it expects to be the fastest first ...
  int proposals(int out, int in, int rows);
  /// ... and which of them product() takes from now on; 0 unless told.
  void choose(int out, int in, int rows, int which);

 private:
  struct Library;
  struct Shape;
  Shape& shape_of(int out, int in, int rows);
  Gpu& gpu_;
  std::unique_ptr<Library> library_;
  std::shared_ptr<void> workspace_;
  std::map<std::tuple<int, int, int>, std::unique_ptr<Shape>> shapes_;  // by out, in, rows
};

}  // namespace speclab::cuda
