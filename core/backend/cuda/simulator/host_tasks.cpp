// Launches single tasks of persistent kernels. The kernels of the tasks are compiled in the other host_*.cpp.
#define SPECLAB_TASKS_ONLY
#include "core/backend/cuda/program/persistent_tasks.h"
#include "core/backend/cuda/simulator/run_on_machine.h"

namespace speclab::cuda {

void run_on_machine(const Task& task, const Stream& stream) {
  with_task(task,
            [&](const auto& kernel, const LaunchShape& shape) { start_on_machine(kernel, shape, stream); });
}

}  // namespace speclab::cuda
