// Compiles the persistent kernel, with all kernels that it can run as tasks.
#define SPECLAB_INNER_BLOCKS  // only this file compiles simt.h with inner blocks

#include <cuda_runtime.h>

#include "core/backend/cuda/runtime/gpu.h"
#include "core/backend/cuda/runtime/gpu_error.h"
#include "core/backend/cuda/launch/launch.h"
#include "core/backend/cuda/program/persistent_kernel.h"
#include "core/backend/cuda/program/program.h"

namespace speclab::cuda {

__global__ void __launch_bounds__(kPersistentThreads, kMostResident)
    run_persistent(const __grid_constant__ PersistentKernel kernel) {
  kernel();
}

PersistentLimits Gpu::persistent_limits() const {
  PersistentLimits limits;
  int cooperative = 0;
  const auto check = [&](cudaError_t status, const char* call) {
    if (status == cudaSuccess) return;
    cudaGetLastError();  // clears the error, which is reported here
    fail_gpu(call, 0, ordinal_, name_, PersistentKernel::kName, cudaGetErrorString(status));
  };
  check(cudaSetDevice(ordinal_), "cudaSetDevice");
  check(cudaDeviceGetAttribute(&cooperative, cudaDevAttrCooperativeLaunch, ordinal_),
        "cudaDeviceGetAttribute");
  check(cudaDeviceGetAttribute(&limits.multiprocessors, cudaDevAttrMultiProcessorCount, ordinal_),
        "cudaDeviceGetAttribute");
  limits.cooperative = cooperative != 0;
  check(cudaFuncSetAttribute(run_persistent, cudaFuncAttributeMaxDynamicSharedMemorySize, kPersistentShared),
        "cudaFuncSetAttribute");
  check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&limits.resident, run_persistent, kPersistentThreads,
                                                      kPersistentShared),
        "cudaOccupancyMaxActiveBlocksPerMultiprocessor");
  return limits;
}

int Gpu::most_shared_bytes() const {
  int most = 0;
  const cudaError_t status = cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, ordinal_);
  if (status != cudaSuccess)
    fail_gpu("cudaDeviceGetAttribute", 0, ordinal_, name_, PersistentKernel::kName,
             cudaGetErrorString(status));
  return most;
}

bool Gpu::overlaps() const {
  const auto check = [&](cudaError_t status, const char* call) {
    if (status != cudaSuccess)
      fail_gpu(call, 0, ordinal_, name_, PersistentKernel::kName, cudaGetErrorString(status));
  };
  int driver = 0;
  cudaFuncAttributes code = {};
  check(cudaDriverGetVersion(&driver), "cudaDriverGetVersion");
  check(cudaSetDevice(ordinal_), "cudaSetDevice");
  check(cudaFuncGetAttributes(&code, run_persistent), "cudaFuncGetAttributes");
  return architecture_ >= 90 && code.ptxVersion >= 90 && driver >= 12030;
}

// This launch never overlaps with the one before it, whatever stream.overlap says. A kernel that overlaps
// must call simt::wait_for_previous(), and this one does not.
void run_on_device(const TableLaunch& table, const LaunchShape& shape, const Stream& stream) {
  cudaLaunchAttribute cooperative = {};
  cooperative.id = cudaLaunchAttributeCooperative;
  cooperative.val.cooperative = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(shape.grid_x));
  config.blockDim = dim3(static_cast<unsigned>(shape.threads));
  config.dynamicSmemBytes = static_cast<std::size_t>(shape.shared_bytes);
  config.stream = static_cast<cudaStream_t>(stream.device);
  config.attrs = &cooperative;
  config.numAttrs = 1;
  const cudaError_t error = cudaLaunchKernelEx(&config, run_persistent, PersistentKernel{table.table});
  if (error != cudaSuccess) {
    cudaGetLastError();  // clears the error, which is reported here
    fail_launch(PersistentKernel::kName, shape, cudaGetErrorString(error));
  }
}

}  // namespace speclab::cuda
