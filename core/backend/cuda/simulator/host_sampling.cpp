// Compiles the kernels that turn logits into distributions and sample tokens, and those of plan_kernel.h.
#include "core/backend/cuda/simulator/run_on_machine.h"

namespace speclab::cuda {

SPECLAB_SAMPLING_KERNELS(SPECLAB_RUN_ON_MACHINE)
SPECLAB_SAMPLING_TASKS(SPECLAB_START_ON_MACHINE)

}  // namespace speclab::cuda
