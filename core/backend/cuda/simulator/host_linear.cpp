// Compiles the kernels of linear layers.
#include "core/backend/cuda/simulator/run_on_machine.h"

namespace speclab::cuda {

SPECLAB_LINEAR_KERNELS(SPECLAB_RUN_ON_MACHINE)
SPECLAB_LINEAR_TASKS(SPECLAB_START_ON_MACHINE)

}  // namespace speclab::cuda
