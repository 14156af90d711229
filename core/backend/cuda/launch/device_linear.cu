// Compiles the kernels of linear layers.
#include "core/backend/cuda/launch/run_on_device.h"

namespace speclab::cuda {

SPECLAB_LINEAR_KERNELS(SPECLAB_RUN_ON_DEVICE)
SPECLAB_LINEAR_TASKS(SPECLAB_START_ON_DEVICE)

}  // namespace speclab::cuda
