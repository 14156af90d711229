// Tasks of persistent kernels that are launched alone. Their kernels are compiled in the other files.
#define SPECLAB_TASKS_ONLY
#include "core/backend/cuda/launch/run_on_device.h"
#include "core/backend/cuda/program/persistent_tasks.h"

namespace speclab::cuda {

void run_on_device(const Task& task, void* stream) {
  with_task(task,
            [&](const auto& kernel, const LaunchShape& shape) { start_on_device(kernel, shape, stream); });
}

}  // namespace speclab::cuda
