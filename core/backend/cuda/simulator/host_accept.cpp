// Compiles AcceptKernel, the kernel that most acceptance rules share (acceptance_kernel.h).
#include "core/backend/cuda/simulator/run_on_machine.h"

namespace speclab::cuda {

SPECLAB_ACCEPT_KERNELS(SPECLAB_RUN_ON_MACHINE)

}  // namespace speclab::cuda
