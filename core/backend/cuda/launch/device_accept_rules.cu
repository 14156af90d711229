// Compiles the kernels of acceptance rules that have a kernel of their own.
#include "core/backend/cuda/launch/run_on_device.h"

namespace speclab::cuda {

SPECLAB_ACCEPT_RULE_KERNELS(SPECLAB_RUN_ON_DEVICE)

}  // namespace speclab::cuda
