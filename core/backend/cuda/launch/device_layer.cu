// Compiles the kernels of layers except linear layers (rows, norms, attention, the KV cache, weights), and
// the kernels that measure the speed of a GPU.
#include "core/backend/cuda/launch/run_on_device.h"

namespace speclab::cuda {

SPECLAB_LAYER_KERNELS(SPECLAB_RUN_ON_DEVICE)
SPECLAB_LAYER_TASKS(SPECLAB_START_ON_DEVICE)

}  // namespace speclab::cuda
