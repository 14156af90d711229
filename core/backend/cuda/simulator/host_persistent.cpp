// Compiles the persistent kernel, with all kernels that it can run as tasks.
#include "core/backend/cuda/program/persistent_kernel.h"
#include "core/backend/cuda/program/program.h"
#include "core/backend/cuda/simulator/run_on_machine.h"

namespace speclab::cuda {

void run_on_machine(const TableLaunch& table, const LaunchShape& shape, const Stream& stream) {
  try {
    stream.machine->run_together(PersistentKernel{table.table}, shape);
  } catch (const simt::Trap&) {
    if (table.table.late != nullptr) check_late(*table.table.late, shape.grid_x);
    throw;
  }
}

}  // namespace speclab::cuda
