#pragma once

#include "core/backend/cuda/launch/launch.h"
#include "core/backend/cuda/simulator/machine.h"

// Compiles kernels for the simulated GPU. Include this header only in host_*.cpp.

namespace speclab::cuda {

/// Runs one kernel. Each family of kernels (core/backend/cuda/launch/families.h) instantiates this template
/// in a host_*.cpp of its own. host_tasks.cpp sees only this declaration and is linked with those instances.
template <typename Kernel>
void start_on_machine(const Kernel& kernel, const LaunchShape& shape, const Stream& stream);

#if !defined(SPECLAB_TASKS_ONLY)

template <typename Kernel>
void start_on_machine(const Kernel& kernel, const LaunchShape& shape, const Stream& stream) {
  stream.machine->run(kernel, shape, stream.overlap);
}

template <typename Arguments>
void run_on_machine(const Arguments& arguments, const Stream& stream) {
  with_kernel(arguments,
              [&](const auto& kernel, const LaunchShape& shape) { start_on_machine(kernel, shape, stream); });
}

#define SPECLAB_RUN_ON_MACHINE(Arguments) template void run_on_machine(const Arguments&, const Stream&);
#define SPECLAB_START_ON_MACHINE(...) \
  template void start_on_machine(const __VA_ARGS__&, const LaunchShape&, const Stream&);

#endif

}  // namespace speclab::cuda
