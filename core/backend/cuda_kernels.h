#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "core/backend/backend.h"

namespace speclab {

/// How operations of a GPU become kernel launches. The bits are the same. Operations that are held back to
/// become one launch with others start with Backend::submit() and with every download, upload, graph,
/// allocation, and operation that needs a launch of its own.
enum class CudaKernels : std::uint8_t {
  kLaunches,    ///< one launch per operation
  kPersistent,  ///< one launch for the operations of a forward, or of all forwards of a drafted chain,
                ///< where possible
  kAuto,        ///< kPersistent for forwards that read at most 1 GiB of weights, on devices that can
};
/// "launches", "persistent", "auto". Throws Error for another name.
CudaKernels parse_cuda_kernels(const std::string& name);

/// make_cuda_backend(options) uses kLaunches. Throws Error for kPersistent on a device that cannot do it.
std::shared_ptr<Backend> make_cuda_backend(const CudaBackendOptions& options, CudaKernels kernels);

}  // namespace speclab
