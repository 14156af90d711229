// Compiles the kernels of rows, norms, attention, the KV cache and weights, and the kernels that measure the
// speed of a GPU. The kernels of linear layers are in device_linear.cu.
#include "core/backend/cuda/launch/run_on_device.h"

namespace speclab::cuda {

SPECLAB_LAYER_KERNELS(SPECLAB_RUN_ON_DEVICE)
SPECLAB_LAYER_TASKS(SPECLAB_START_ON_DEVICE)

}  // namespace speclab::cuda
