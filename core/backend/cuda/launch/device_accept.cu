// Compiles AcceptKernel, the kernel that most acceptance rules share (acceptance_kernel.h).
#include "core/backend/cuda/launch/run_on_device.h"

namespace speclab::cuda {

SPECLAB_ACCEPT_KERNELS(SPECLAB_RUN_ON_DEVICE)

}  // namespace speclab::cuda
