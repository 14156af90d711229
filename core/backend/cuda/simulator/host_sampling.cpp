// Laws of rows, sampling, and what surrounds a verdict in a round.
#include "core/backend/cuda/simulator/run_on_machine.h"

namespace speclab::cuda {

SPECLAB_SAMPLING_KERNELS(SPECLAB_RUN_ON_MACHINE)
SPECLAB_SAMPLING_TASKS(SPECLAB_START_ON_MACHINE)

}  // namespace speclab::cuda
