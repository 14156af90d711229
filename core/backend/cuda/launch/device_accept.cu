// Compiles the kernel that verifies a draft.
#include "core/backend/cuda/launch/run_on_device.h"

namespace speclab::cuda {

SPECLAB_ACCEPT_KERNELS(SPECLAB_RUN_ON_DEVICE)

}  // namespace speclab::cuda
