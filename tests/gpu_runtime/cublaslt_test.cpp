// CublasLt on a fake library and a fake CUDA runtime: what a refused product leaves.
#if defined(SPECLAB_CUBLASLT)
#include "core/backend/cuda/runtime/cublaslt.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "core/base/error.h"
#include "tests/gpu_runtime/fake_cuda.h"

namespace speclab::cuda {
namespace {

using ::testing::HasSubstr;

// The loader finds a library by its name (SONAME) if it is loaded already.
class FakeCublasLt : public ::testing::Test {
 protected:
  FakeCublasLt() : library_(dlopen(SPECLAB_FAKE_CUBLASLT, RTLD_NOW | RTLD_LOCAL)) {
    if (library_ == nullptr) throw Error({"the fake library", dlerror(), "", ""});
    fake_cuda::reset();
    handles() = calls_to_fail() = 0;
  }
  ~FakeCublasLt() override { dlclose(library_); }
  int& handles() { return *static_cast<int*>(dlsym(library_, "fake_cublaslt_handles")); }
  int& calls_to_fail() { return *static_cast<int*>(dlsym(library_, "fake_cublaslt_calls_to_fail")); }

 private:
  void* library_;
};

TEST_F(FakeCublasLt, ARefusedProductLeavesNoHandles) {
  Gpu gpu(0);
  int refused = 0;
  {
    CublasLt products(gpu);
    for (bool done = false; !done; ++refused) {
      calls_to_fail() = refused + 1;
      std::string message;
      try {
        EXPECT_EQ(products.proposals(32, 64, 40), 1);
        done = true;
      } catch (const Error& error) {
        message = error.what();
      }
      if (done) break;
      EXPECT_THAT(message, HasSubstr("cuBLASLt: got "));
      EXPECT_EQ(handles(), 0) << message;
      ASSERT_LT(refused, 100);
    }
    EXPECT_EQ(handles(), 5) << "a product, three layouts and a preference, kept for the next product";
  }
  EXPECT_EQ(handles(), 0);
  EXPECT_EQ(refused, 12) << "calls that can fail";
}

}  // namespace
}  // namespace speclab::cuda
#endif
