// Replaces core/backend/cuda in a program that is built neither for NVIDIA GPUs nor with the simulated GPU
// (SPECLAB_CUDA=OFF or no nvcc, and SPECLAB_SIMULATOR=OFF).
#include "core/backend/cuda_kernels.h"
#include "core/base/error.h"

namespace speclab {

std::string gpu_absent() { return "no CUDA code, because this program was built without it"; }

std::shared_ptr<Backend> make_cuda_backend(const CudaBackendOptions& options, CudaKernels) {
  if (options.simulated) {
    throw Error({.what = "backend host-simt",
                 .got = "a program that was built without the simulated GPU",
                 .expected = "one that has it",
                 .advice = "Configure the build with -DSPECLAB_SIMULATOR=ON. --backend cpu needs no GPU."});
  }
  throw Error({.what = "backend cuda",
               .got = gpu_absent(),
               .expected = "a program with code for NVIDIA GPUs",
               .advice = "Configure the build with -DSPECLAB_CUDA=ON, which needs nvcc. --backend cpu needs "
                         "no GPU."});
}

std::shared_ptr<Backend> make_cuda_backend(const CudaBackendOptions& options) {
  return make_cuda_backend(options, CudaKernels::kLaunches);
}

}  // namespace speclab
