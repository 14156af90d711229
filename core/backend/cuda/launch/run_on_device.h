#pragma once

#include <cuda_runtime.h>

#include "core/backend/cuda/launch/launch.h"

// Compiles kernels for GPUs. Include it only in device_*.cu.

namespace speclab::cuda {

/// Runs a kernel as a launch of its own, which may overlap with the launches before and after it.
template <typename Kernel>
__device__ __forceinline__ void run_in_turn(const Kernel& kernel) {
  if constexpr (!requires { Kernel::kWaits; }) {
    simt::wait_for_previous();
    simt::launch_next();
  }
  kernel();
}

template <typename Kernel>
__global__ void __launch_bounds__(Kernel::kThreads) run(const __grid_constant__ Kernel kernel) {
  run_in_turn(kernel);
}

/// For a kernel of so few blocks that each has the registers of a multiprocessor to itself.
template <typename Kernel>
__global__ void __launch_bounds__(Kernel::kThreads, 1) run_alone(const __grid_constant__ Kernel kernel) {
  run_in_turn(kernel);
}

/// For a kernel that should run kResident blocks on a multiprocessor. Without this number, ptxas may prefer
/// more blocks and spill registers.
template <typename Kernel>
__global__ void __launch_bounds__(Kernel::kThreads, Kernel::kResident)
    run_resident(const __grid_constant__ Kernel kernel) {
  run_in_turn(kernel);
}

template <typename Kernel>
constexpr auto entry_of() {
  if constexpr (requires { Kernel::kAlone; }) return run_alone<Kernel>;
  else if constexpr (requires { Kernel::kResident; }) return run_resident<Kernel>;
  else return run<Kernel>;
}

/// Starts one kernel. Each family of kernels (families.h) instantiates this template in a .cu file of its
/// own. device_tasks.cu sees only this declaration and is linked with those instances.
template <typename Kernel>
void start_on_device(const Kernel& kernel, const LaunchShape& shape, const Stream& stream);

#if !defined(SPECLAB_TASKS_ONLY)

/// Adapts the launch to the current device of this thread, see fitted().
template <typename Kernel>
cudaError_t fit_device(LaunchShape& shape) {
  if constexpr (requires { Kernel::within(shape, 0); }) {
    int device = 0, most = 0;
    cudaError_t error = cudaGetDevice(&device);
    if (error == cudaSuccess)
      error = cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
    if (error == cudaSuccess) shape = fitted<Kernel>(shape, most);
    return error;
  }
  return cudaSuccess;
}

/// Throws Error if a CUDA call of this function returns an error. Does not ask cudaGetLastError() whether the
/// launch failed, because that may report an error of an earlier call.
template <typename Kernel>
void start_on_device(const Kernel& kernel, const LaunchShape& planned, const Stream& stream) {
  LaunchShape shape = planned;
  cudaError_t error = fit_device<Kernel>(shape);
  const auto entry = entry_of<Kernel>();
  if (error == cudaSuccess && shape.shared_bytes > (48 << 10)) {  // more than a block may use by default
    error = cudaFuncSetAttribute(entry, cudaFuncAttributeMaxDynamicSharedMemorySize, shape.shared_bytes);
  }
  if (error == cudaSuccess) {
    cudaLaunchAttribute overlap = {};
    overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    overlap.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(static_cast<unsigned>(shape.grid_x), static_cast<unsigned>(shape.grid_y),
                          static_cast<unsigned>(shape.grid_z));
    config.blockDim = dim3(static_cast<unsigned>(shape.threads));
    config.dynamicSmemBytes = static_cast<std::size_t>(shape.shared_bytes);
    config.stream = static_cast<cudaStream_t>(stream.device);
    config.attrs = &overlap;
    config.numAttrs = stream.overlap ? 1 : 0;
    error = cudaLaunchKernelEx(&config, entry, kernel);
  }
  if (error != cudaSuccess) {
    cudaGetLastError();  // clears the error, which is reported here
    fail_launch(Kernel::kName, shape, cudaGetErrorString(error));
  }
}

template <typename Arguments>
void run_on_device(const Arguments& arguments, const Stream& stream) {
  with_kernel(arguments,
              [&](const auto& kernel, const LaunchShape& shape) { start_on_device(kernel, shape, stream); });
}

#define SPECLAB_RUN_ON_DEVICE(Arguments) template void run_on_device(const Arguments&, const Stream&);
#define SPECLAB_START_ON_DEVICE(...) \
  template void start_on_device(const __VA_ARGS__&, const LaunchShape&, const Stream&);

#endif

}  // namespace speclab::cuda
