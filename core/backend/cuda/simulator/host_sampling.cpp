// Compiles the kernels that make distributions of logits and sample tokens, and the kernels of plan_kernel.h.
#include "core/backend/cuda/simulator/run_on_machine.h"

namespace speclab::cuda {

SPECLAB_SAMPLING_KERNELS(SPECLAB_RUN_ON_MACHINE)
SPECLAB_SAMPLING_TASKS(SPECLAB_START_ON_MACHINE)

}  // namespace speclab::cuda
