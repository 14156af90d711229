#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "core/backend/backend.h"

namespace speclab {

/// How operations of a GPU become kernels. The bits are the same. What waits to be one launch with others
/// begins with Backend::submit(), and with everything that needs what it does or could not be one with it:
/// downloads, uploads, graphs, operations that have a launch of their own, and whoever asks for memory.
enum class CudaKernels : std::uint8_t {
  kLaunches,    ///< each its own launch
  kPersistent,  ///< those of a forward, or of the forwards of a drafted chain, are one launch wherever they
                ///< can
  kAuto,        ///< the same for forwards that read at most 1 GiB of weights, on devices that can
};
/// "launches", "persistent", "auto". Throws Error for another name.
CudaKernels parse_cuda_kernels(const std::string& name);

/// make_cuda_backend(options) is that of kLaunches. Throws Error for kPersistent on a device that cannot.
std::shared_ptr<Backend> make_cuda_backend(const CudaBackendOptions& options, CudaKernels kernels);

}  // namespace speclab
