// Compiles the kernels of those acceptance rules that do not share AcceptKernel (host_accept.cpp).
#include "core/backend/cuda/simulator/run_on_machine.h"

namespace speclab::cuda {

SPECLAB_ACCEPT_RULE_KERNELS(SPECLAB_RUN_ON_MACHINE)

}  // namespace speclab::cuda
