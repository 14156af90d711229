#include <gmock/gmock.h>

#include "core/backend/backend_choice.h"
#include "core/base/error.h"

// This program is linked with core/backend/cuda/launch/no_simulator.cpp in place of the simulated GPU, like a
// program that is built with SPECLAB_SIMULATOR=OFF.

namespace speclab {
namespace {

using testing::HasSubstr;

TEST(NoSimulator, HostSimtSaysHowToBuildIt) {
  for (const auto& make : {+[] { return make_cuda_backend({.simulated = true}); },
                           +[] { return make_backend({.backend = BackendKind::kSimulated}); }}) {
    try {
      make();
      FAIL() << "made a simulated GPU without the simulator";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("backend host-simt"));
      EXPECT_THAT(error.what(), HasSubstr("-DSPECLAB_SIMULATOR=ON"));
    }
  }
}

TEST(NoSimulator, TheCpuNeedsNone) {
  EXPECT_EQ(make_backend({.backend = BackendKind::kCpu, .threads = 1})->threads(), 1);
}

}  // namespace
}  // namespace speclab
