// Compiles the kernels of acceptance rules that have a kernel of their own.
#include "core/backend/cuda/simulator/run_on_machine.h"

namespace speclab::cuda {

SPECLAB_ACCEPT_RULE_KERNELS(SPECLAB_RUN_ON_MACHINE)

}  // namespace speclab::cuda
