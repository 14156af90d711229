// Compiles the linear layers whose bits may depend on the number of rows. They are for benchmarks only.
#include "core/backend/cuda/simulator/run_on_machine.h"

namespace speclab::cuda {

SPECLAB_LINEAR_FREE_KERNELS(SPECLAB_RUN_ON_MACHINE)

}  // namespace speclab::cuda
