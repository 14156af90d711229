// Compiles the kernels of rows, norms, attention, the KV cache and weights, and the kernels that measure the
// speed of a GPU. The kernels of linear layers are in host_linear.cpp.
#include "core/backend/cuda/simulator/run_on_machine.h"

namespace speclab::cuda {

SPECLAB_LAYER_KERNELS(SPECLAB_RUN_ON_MACHINE)
SPECLAB_LAYER_TASKS(SPECLAB_START_ON_MACHINE)

}  // namespace speclab::cuda
