// Replaces core/backend/cuda/simulator in a program that is built without the simulator
// (SPECLAB_SIMULATOR=OFF).
#include "core/backend/cuda/launch/launch.h"
#include "core/backend/cuda/runtime/device.h"
#include "core/base/error.h"

namespace speclab::cuda {
namespace {

[[noreturn]] void fail() {
  throw Error({.what = "backend host-simt",
               .got = "a program that was built without the simulated GPU",
               .expected = "one that has it",
               .advice = "Configure the build with -DSPECLAB_SIMULATOR=ON. --backend cpu needs no GPU."});
}

}  // namespace

std::unique_ptr<Device> make_simulated_device() { fail(); }

// No call reaches these functions, because there is no simulated device.
template <typename Arguments>
void run_on_machine(const Arguments&, const Stream&) {
  fail();
}
#define SPECLAB_NO_MACHINE(Arguments) template void run_on_machine(const Arguments&, const Stream&);
SPECLAB_KERNELS(SPECLAB_NO_MACHINE)
void run_on_machine(const Task&, const Stream&) { fail(); }
void run_on_machine(const TableLaunch&, const LaunchShape&, const Stream&) { fail(); }

}  // namespace speclab::cuda
