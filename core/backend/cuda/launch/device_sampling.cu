// Compiles the kernels that turn logits into distributions and sample tokens, and those of plan_kernel.h.
#include "core/backend/cuda/launch/run_on_device.h"

namespace speclab::cuda {

SPECLAB_SAMPLING_KERNELS(SPECLAB_RUN_ON_DEVICE)
SPECLAB_SAMPLING_TASKS(SPECLAB_START_ON_DEVICE)

}  // namespace speclab::cuda
