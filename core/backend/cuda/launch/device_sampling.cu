// Compiles the kernels that turn logits into laws and sample tokens, and the kernels of plan_kernel.h.
#include "core/backend/cuda/launch/run_on_device.h"

namespace speclab::cuda {

SPECLAB_SAMPLING_KERNELS(SPECLAB_RUN_ON_DEVICE)
SPECLAB_SAMPLING_TASKS(SPECLAB_START_ON_DEVICE)

}  // namespace speclab::cuda
