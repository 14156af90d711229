#include <gmock/gmock.h>

#include "core/backend/backend_choice.h"
#include "core/backend/cuda_kernels.h"
#include "core/base/error.h"

// This program is linked with core/backend/no_cuda.cpp in place of the CUDA backend, like a program for the
// CPU alone.

namespace speclab {
namespace {

using testing::AllOf;
using testing::HasSubstr;

template <class Call>
std::string message_of(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(NoCuda, AGpuOrItsSimulationIsRefusedWithTheOptionThatBuildsIt) {
  EXPECT_THAT(message_of([] { make_backend({.backend = BackendKind::kCuda}); }),
              AllOf(HasSubstr("backend cuda"), HasSubstr("-DSPECLAB_CUDA=ON")));
  EXPECT_THAT(message_of([] { make_backend({.backend = BackendKind::kSimulated}); }),
              AllOf(HasSubstr("backend host-simt"), HasSubstr("-DSPECLAB_SIMULATOR=ON")));
  EXPECT_THAT(message_of([] { make_cuda_backend({}); }), HasSubstr("-DSPECLAB_CUDA=ON"));
}

TEST(NoCuda, AutoTakesTheCpu) {
  EXPECT_THAT(gpu_absent(), HasSubstr("built without"));
  EXPECT_FALSE(is_device({}));
  EXPECT_EQ(make_backend({.threads = 1})->threads(), 1);
}

}  // namespace
}  // namespace speclab
