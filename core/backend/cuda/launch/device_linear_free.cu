// Compiles the kernels of linear layers without row invariance. They are for benchmarks only.
#include "core/backend/cuda/launch/run_on_device.h"

namespace speclab::cuda {

SPECLAB_LINEAR_FREE_KERNELS(SPECLAB_RUN_ON_DEVICE)

}  // namespace speclab::cuda
