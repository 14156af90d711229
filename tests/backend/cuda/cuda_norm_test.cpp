#include <gtest/gtest.h>

#include "tests/backend/cuda/simt_fixture.h"

// Compares the norm kernels on the simulated GPU with double precision, also for widths that fill no piece
// and no block. The bits of a row do not depend on other rows.

namespace speclab::cuda::cuda_norm_test {
namespace {

struct Shape {
  int rows, heads, d, stride;  // stride of a row
};

void check(NormOf kind, const Shape& s, unsigned seed) {
  SCOPED_TRACE(testing::Message() << (kind == NormOf::kRms ? "rms" : "layer") << " norm of " << s.rows
                                  << " x " << s.heads << " x " << s.d << ", stride " << s.stride);
  simt::Machine machine(seed);
  const auto size = static_cast<std::size_t>(s.rows) * static_cast<std::size_t>(s.stride);
  std::vector<float> values = normal_numbers(size, seed);
  for (float& value : values) value += 0.5f;  // gives the rows a mean
  const DeviceArray<float> x(machine, values), out(machine, size);
  const DeviceArray<float> weight(machine, normal_numbers(static_cast<std::size_t>(s.d), seed + 1)),
      bias(machine, normal_numbers(static_cast<std::size_t>(s.d), seed + 2));
  const DeviceArray<simt::u16> activations(machine, activation_elements(s.rows, s.d));
  Norm norm{.kind = kind,
            .x = x.data(),
            .x_stride = s.stride,
            .weight = weight.data(),
            .bias = bias.data(),
            .eps = 1e-5f,
            .rows = s.rows,
            .heads = s.heads,
            .d = s.d,
            .out = out.data(),
            .out_stride = s.stride,
            .activations = s.heads == 1 ? activations.data() : nullptr};
  launch(norm, {.machine = &machine});
  for (int i = 0; i < s.rows; ++i) {
    for (int h = 0; h < s.heads; ++h) {
      const std::size_t begin = static_cast<std::size_t>(i) * static_cast<std::size_t>(s.stride) +
                                static_cast<std::size_t>(h * s.d);
      double mean = 0, squares = 0;
      for (int k = 0; k < s.d && kind == NormOf::kLayer; ++k) mean += double(values[begin + k]) / s.d;
      for (int k = 0; k < s.d; ++k) squares += std::pow(values[begin + k] - mean, 2) / s.d;
      for (int k = 0; k < s.d; ++k) {
        const double scaled = (values[begin + k] - mean) / std::sqrt(squares + 1e-5),
                     b = kind == NormOf::kLayer ? bias[k] : 0.0;
        const double expected = scaled * weight[k] + b;
        // The depth of the sum trees is 8 d / threads + 8 additions; the error of the mean counts once more.
        ASSERT_NEAR(out[begin + k], expected,
                    0x1p-24 * 40 * (std::abs(scaled * weight[k]) + std::abs(b) + std::abs(weight[k])))
            << i << " " << h << " " << k;
        if (s.heads > 1) continue;
        ASSERT_EQ(activations[activation_at(s.rows, i, k)], float_to_bf16(out[begin + k]));
      }
    }
    for (int k = s.d; k < tiles_of(s.d, kTileIn) * kTileIn && s.heads == 1; ++k)
      ASSERT_EQ(activations[activation_at(s.rows, i, k)] & 0x7fff, 0);
    for (int k = s.heads * s.d; k < s.stride; ++k)
      ASSERT_TRUE(std::isnan(out[static_cast<std::size_t>(i * s.stride + k)]));
  }
  // Runs in place for a single row, in another order of warps.
  machine.reseed(seed + 100);
  norm.out = const_cast<float*>(norm.x);
  norm.activations = nullptr;
  norm.rows = 1;
  for (int i = 0; i < s.rows; ++i) {
    norm.out = const_cast<float*>(norm.x = x.data() +
                                           static_cast<std::size_t>(i) * static_cast<std::size_t>(s.stride));
    launch(norm, {.machine = &machine});
    EXPECT_TRUE(same_bits(norm.x,
                          out.data() + static_cast<std::size_t>(i) * static_cast<std::size_t>(s.stride),
                          static_cast<std::size_t>(s.heads * s.d)))
        << i;
  }
}

TEST(CudaNorm, Rows) {
  unsigned seed = 0;
  for (const NormOf kind : {NormOf::kRms, NormOf::kLayer}) {
    for (const Shape& s : {Shape{3, 1, 576, 576}, Shape{9, 1, 64, 64}, Shape{2, 1, 1, 1}, Shape{4, 1, 61, 61},
                           Shape{2, 1, 4096, 4096}, Shape{2, 1, 5003, 5004}}) {
      check(kind, s, ++seed);
    }
  }
}

TEST(CudaNorm, HeadsLeaveTheRestOfARow) {
  check(NormOf::kRms, {3, 4, 64, 400}, 20);
  check(NormOf::kRms, {2, 3, 18, 61}, 21);
  check(NormOf::kLayer, {2, 2, 128, 256}, 22);
}

}  // namespace
}  // namespace speclab::cuda::cuda_norm_test
