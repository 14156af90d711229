// Compiles the kernels of layers except linear layers (rows, norms, attention, the KV cache, weights), and
// the kernels that measure the speed of a GPU.
#include "core/backend/cuda/simulator/run_on_machine.h"

namespace speclab::cuda {

SPECLAB_LAYER_KERNELS(SPECLAB_RUN_ON_MACHINE)
SPECLAB_LAYER_TASKS(SPECLAB_START_ON_MACHINE)

}  // namespace speclab::cuda
