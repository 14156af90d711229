// Compiles the kernels of linear layers without row invariance. They are for benchmarks only.
#include "core/backend/cuda/simulator/run_on_machine.h"

namespace speclab::cuda {

SPECLAB_LINEAR_FREE_KERNELS(SPECLAB_RUN_ON_MACHINE)

}  // namespace speclab::cuda
