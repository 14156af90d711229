#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/backend/backend.h"

namespace speclab {

/// One kernel of a device (or a short chain of kernels) set up to be timed alone, for benchmarks.
struct KernelTrial {
  struct Ready {
    std::function<double()> time;  ///< seconds of one launch, from one batch of launches
    std::string label;             ///< a remark, such as which variant was fastest; "": none
  };
  std::string name;              ///< "linear/rows:8/out:4096/in:4096"
  double bytes = 0, flops = 0;   ///< bytes to move and operations to compute in one launch
  bool optional = false;         ///< ready() or time() may throw Error because a library is missing
  std::function<Ready()> ready;  ///< allocates and fills the memory of the kernel
};

/// Returns trials of the kernels of the CUDA backend on GPU options.device. On a GPU the layers have shapes
/// from Llama-3.1-8B and SmolLM2-135M, and the times come from the device's own clock. On the simulated GPU
/// the shapes are tiny. Throws Error when there is no such device.
std::vector<KernelTrial> cuda_kernel_trials(const CudaBackendOptions& options);

}  // namespace speclab
