#pragma once

#include <cstdint>
#include <memory>

#include "core/backend/backend.h"

namespace speclab {

/// How operations of a GPU become kernel launches. Every choice gives the same bits. The backend may hold
/// operations back, so that several become one launch. Backend::submit() launches them. So does every
/// download, upload and allocation, every recording or replay of a graph, and every operation that needs a
/// launch of its own. With kLaunches, the next operation of any kind launches them.
enum class CudaKernels : std::uint8_t {
  kLaunches,  ///< one launch per operation, or per pair of operations that can be fused
  kSerial,  ///< to compare with kLaunches: the same, but a launch starts only when the one before it is done
  kGraphs,  ///< kLaunches, but a forward of one sequence and at most 16 rows is recorded when a forward of
            ///< the same size comes for the second time; later ones replay the recording
  kPersistent,  ///< one launch for the operations of a forward, or of all forwards of a drafted chain,
                ///< where possible
  kAuto,        ///< kPersistent for forwards that read at most 1 GiB of weights, if the device can run
                ///< persistent kernels; otherwise kLaunches
};

/// Like make_cuda_backend(options), but with a choice of `kernels`; make_cuda_backend(options) uses
/// kLaunches. Throws Error for kPersistent on a device that cannot run persistent kernels.
std::shared_ptr<Backend> make_cuda_backend(const CudaBackendOptions& options, CudaKernels kernels);

}  // namespace speclab
