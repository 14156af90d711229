#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "core/backend/cuda/runtime/gpu.h"
#include "core/backend/cuda/kernels/simt.h"

// Products of many rows by cuBLASLt, a library of the CUDA toolkit. It is loaded on first use, so programs
// run without it. This code is compiled only where the library's header is found; elsewhere the first use
// throws Error.

namespace speclab::cuda {

/// y (+)= x W^T in row-major order; each array starts at a multiple of 16 bytes.
struct PlainProduct {
  const simt::u16* weights = nullptr;  ///< [out, in], bf16
  const simt::u16* x = nullptr;        ///< [rows, in], bf16
  float* y = nullptr;                  ///< [rows, out]
  int out = 0, in = 0, rows = 0;
  bool accumulate = false;
};

/// Computes the product on the host. A simulated GPU calls this function instead of the library. It sums in
/// float with descending k, so its bits can differ from the bits of linear(). The same is true of cuBLASLt.
void plain_product(const PlainProduct& a);

/// Loads the first of these libraries that is found. Throws Error that names them if there is none.
void* load_library(const std::vector<std::string>& files);
/// Loads libcublasLt, if possible the version of the toolkit that this program was built with. Throws Error
/// if the program was built without the header cublasLt.h, or if no libcublasLt is found.
void* load_cublaslt();

/// cuBLASLt on one GPU: bf16 input, float sums in the library's own order, which may depend on the number of
/// rows. Until choose() is called, products of equal shape use the same algorithm, so equal products have
/// equal bits.
class CublasLt {
 public:
  static constexpr std::size_t kWorkspace = std::size_t{32} << 20;
  /// Throws Error if the library is missing or does not start, or if there is no memory for its workspace.
  explicit CublasLt(Gpu& gpu);
  ~CublasLt();
  CublasLt(const CublasLt&) = delete;
  CublasLt& operator=(const CublasLt&) = delete;

  /// Queues the product in the GPU's stream. Throws Error if the library refuses it.
  void product(const PlainProduct& a);
  /// Number of algorithms that the library proposes for a shape: 1 to 8. The library expects proposal 0 to be
  /// the fastest. Throws Error if it proposes none.
  int proposals(int out, int in, int rows);
  /// Makes product() use proposal `which` for this shape; 0 is the default.
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
