// Compiles the kernel that verifies a draft.
#include "core/backend/cuda/simulator/run_on_machine.h"

namespace speclab::cuda {

SPECLAB_ACCEPT_KERNELS(SPECLAB_RUN_ON_MACHINE)

}  // namespace speclab::cuda
