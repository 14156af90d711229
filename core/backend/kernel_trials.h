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
    std::string label;             ///< what there is to say about it
  };
  std::string name;              ///< "linear/rows:8/out:4096/in:4096"
  double bytes = 0, flops = 0;   ///< that one launch must read and compute
  bool optional = false;         ///< ready() or time() may throw Error: a library is not there
  std::function<Ready()> ready;  ///< allocates and fills its memory
};

/// The kernels of the CUDA backend on GPU options.device, at shapes of Llama-3.1-8B and SmolLM2-135M; at tiny
/// shapes on the simulated GPU. On a GPU the times are the device's own. Throws Error when there is no such
/// device.
std::vector<KernelTrial> cuda_kernel_trials(const CudaBackendOptions& options);

}  // namespace speclab
