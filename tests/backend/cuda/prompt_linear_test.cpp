#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "core/backend/cuda/runtime/cublaslt.h"
#include "core/backend/cuda_kernels.h"
#include "core/base/error.h"
#include "tests/backend/cuda/simt_fixture.h"
#include "tests/backend/there.h"

// Prompt products by a library: the row-major matrices that it gets, and what the backend does with its
// product.

namespace speclab::cuda::prompt_linear_test {
namespace {

using ::testing::HasSubstr;

std::size_t area(int a, int b) { return static_cast<std::size_t>(a) * static_cast<std::size_t>(b); }

std::vector<simt::u16> random_bf16(std::size_t count, unsigned seed) {
  std::vector<simt::u16> out;
  for (const float value : normal_numbers(count, seed)) out.push_back(float_to_bf16(value));
  return out;
}

// Memory after the last element is unchanged, because a scratch buffer is larger than most matrices in it.
TEST(PromptLinear, UnpackingGivesBackWhatWasPacked) {
  constexpr simt::u16 kUntouched = 0x7fc1;
  for (const auto& [out, in] : {std::pair{16, 32}, std::pair{1, 1}, std::pair{50, 70}, std::pair{33, 129},
                                std::pair{80, 64}, std::pair{25, 40}, std::pair{300, 136}}) {
    simt::Machine machine(1);
    const std::vector<simt::u16> rows = random_bf16(area(out, in), 1);
    const DeviceArray<simt::u16> there(machine, rows), packed(machine, weight_elements(out, in)),
        unpacked(machine, std::vector<simt::u16>(rows.size() + 8, kUntouched));
    launch(PackWeights{there.data(), 0, out, out, in, packed.data()}, {.machine = &machine});
    launch(UnpackWeights{packed.data(), out, in, unpacked.data()}, {.machine = &machine});
    std::vector<simt::u16> expected = rows;
    expected.resize(rows.size() + 8, kUntouched);
    EXPECT_EQ(unpacked.host(), expected) << out << " x " << in;
  }
}

TEST(PromptLinear, RowsAreRoundedInPlace) {
  for (const auto& [rows, in] : {std::pair{1, 1}, std::pair{3, 8}, std::pair{5, 70}, std::pair{40, 2056}}) {
    simt::Machine machine(2);
    const std::vector<float> values = normal_numbers(area(rows, in), 2);
    const DeviceArray<float> x(machine, values);
    const DeviceArray<simt::u16> plain(machine, values.size());
    launch(RoundPlain{x.data(), rows, in, plain.data()}, {.machine = &machine});
    const std::vector<simt::u16> found = plain.host();
    for (std::size_t i = 0; i < values.size(); ++i)
      ASSERT_EQ(found[i], float_to_bf16(values[i])) << rows << " x " << in << ", " << i;
  }
}

// Within the bound of every linear layer of double precision, c K 2^-24 sum |x w| with c = 2, plus the
// addition to y.
TEST(PromptLinear, TheBackendMultipliesWithinTheBound) {
  for (const CudaKernels kernels : {CudaKernels::kLaunches, CudaKernels::kPersistent}) {
    const auto backend = make_cuda_backend({.simulated = true, .cublaslt = true}, kernels);
    There there(*backend);
    for (const auto& [out, in, n] :
         {std::tuple{50, 70, 20}, std::tuple{64, 129, 32}, std::tuple{7, 300, 17}, std::tuple{64, 64, 1}}) {
      const std::vector<simt::u16> rows = random_bf16(area(out, in), 3);
      const PackedMatrix w = backend->pack(out, in, [&, in = in](int begin, int end, Bf16* to) {
        std::copy(rows.begin() + static_cast<std::ptrdiff_t>(area(begin, in)),
                  rows.begin() + static_cast<std::ptrdiff_t>(area(end, in)), to);
      });
      const std::vector<float> x = normal_numbers(area(n, in), 4), before = normal_numbers(area(n, out), 5);
      const float* from = there.floats(x);
      for (const bool accumulate : {false, true}) {
        float* y = there.floats(before);
        backend->prompt_linear(w, from, n, y, accumulate);
        const std::vector<float> found = there.back(y, before.size());
        for (int i = 0; i < n; ++i) {
          for (int m = 0; m < out; ++m) {
            double sum = accumulate ? before[area(i, out) + area(m, 1)] : 0, size = std::fabs(sum);
            for (int k = 0; k < in; ++k) {
              const double product = double{bf16_to_float(float_to_bf16(x[area(i, in) + area(k, 1)]))} *
                                     double{bf16_to_float(rows[area(m, in) + area(k, 1)])};
              sum += product;
              size += std::fabs(product);
            }
            ASSERT_NEAR(found[area(i, out) + area(m, 1)], sum, 2 * in * 0x1p-24 * size)
                << out << " x " << in << ", row " << i << ", output " << m;
          }
        }
      }
    }
  }
}

TEST(PromptLinear, OnlyABackendThatHasAWayForPromptsTakesThem) {
  const auto own = make_cuda_backend({.simulated = true}),
             library = make_cuda_backend({.simulated = true, .cublaslt = true});
  EXPECT_EQ(own->prompt_rows().most, 0);
  EXPECT_EQ(own->numerics_class(), "host-simt");
  EXPECT_GT(library->prompt_rows().most, library->prompt_rows().least);
  EXPECT_EQ(library->numerics_class(), "host-simt-cublaslt") << "bits are promised within a class";
  EXPECT_EQ(make_cpu_backend({1, "f32"})->prompt_rows().most, 0);
  EXPECT_THROW(make_cpu_backend({1, "f32"})->prompt_linear({}, nullptr, 0, nullptr, false), Bug);
}

TEST(PromptLinear, ALibraryThatIsNotThereIsNamed) {
  try {
    load_library({"libnosuchthing.so.13", "libnosuchthing.so"});
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(
        error.what(),
        HasSubstr("cuBLASLt: got no libnosuchthing.so.13 and no libnosuchthing.so in the folders that"));
    EXPECT_THAT(error.what(), HasSubstr("--prefill own needs no library."));
  }
  EXPECT_NE(load_library({"libnosuchthing.so", "libc.so.6"}), nullptr);
}

}  // namespace
}  // namespace speclab::cuda::prompt_linear_test
