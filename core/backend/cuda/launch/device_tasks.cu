// Launches a task of the persistent kernel by itself: its kernel runs as an ordinary launch. The kernels of
// the tasks are compiled in the other device_*.cu.
#define SPECLAB_TASKS_ONLY
#include "core/backend/cuda/launch/run_on_device.h"
#include "core/backend/cuda/program/persistent_tasks.h"

namespace speclab::cuda {

void run_on_device(const Task& task, const Stream& stream) {
  with_task(task,
            [&](const auto& kernel, const LaunchShape& shape) { start_on_device(kernel, shape, stream); });
}

}  // namespace speclab::cuda
