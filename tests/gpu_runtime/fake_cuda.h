#pragma once

#include <cstddef>
#include <string>
#include <vector>

// Stands in for the CUDA runtime. It has GPUs without kernels, and remembers which GPU was current at each
// call. A test can let a call fail.

namespace speclab::fake_cuda {

struct Machine {
  int gpus = 2;
  int major = 9, minor = 0;
  std::size_t free = 80, total = 100;  ///< MiB of each GPU
  int driver = 13000;                  ///< CUDA version that the driver knows; 0: there is no driver
  std::string failing;                 ///< the call that fails with `status`
  int status = 1;                      ///< cudaErrorInvalidValue
  struct Call {
    std::string name;
    int current;  ///< the GPU that was current on the calling thread
  };
  std::vector<Call> calls;
  std::vector<const void*> instantiated, destroyed;  ///< graphs, in order
};

/// The machine of this process. reset() gives a new one and makes GPU 0 current on this thread.
Machine& machine();
void reset();
int current();
/// The GPUs that were current in the calls of this name.
std::vector<int> current_in(const std::string& name);

}  // namespace speclab::fake_cuda
