// Compiles the linear layers whose bits may depend on the number of rows. They are for benchmarks only.
#include "core/backend/cuda/launch/run_on_device.h"

namespace speclab::cuda {

SPECLAB_LINEAR_FREE_KERNELS(SPECLAB_RUN_ON_DEVICE)

}  // namespace speclab::cuda
