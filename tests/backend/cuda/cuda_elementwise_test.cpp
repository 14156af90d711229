#include <gtest/gtest.h>

#include <functional>

#include "tests/backend/cuda/simt_fixture.h"

// Compares the elementwise kernels on the simulated GPU with double precision.

namespace speclab::cuda::cuda_elementwise_test {
namespace {

double exact(Activation f, double x) {
  switch (f) {
    case Activation::kSilu: return x / (1 + std::exp(-x));
    case Activation::kGelu: return x / 2 * (1 + std::erf(x / std::sqrt(2.0)));
    case Activation::kGeluTanh:
      return x / 2 * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    case Activation::kRelu: return std::max(x, 0.0);
  }
  return 0;
}

TEST(CudaElementwise, Activations) {
  unsigned seed = 0;
  for (const Activation f :
       {Activation::kSilu, Activation::kGelu, Activation::kGeluTanh, Activation::kRelu}) {
    for (const int width : {3, 64, 77, 1536}) {
      for (const bool gated : {false, true}) {
        constexpr int kRows = 10;
        simt::Machine machine(++seed);
        const int in = gated ? 2 * width : width;
        std::vector<float> values = normal_numbers(static_cast<std::size_t>(kRows * in), seed, 3);
        values[0] = -200, values[1] = 200, values[2] = -12;
        const DeviceArray<float> x(machine, values), out(machine, static_cast<std::size_t>(kRows * width)),
            again(machine, static_cast<std::size_t>(width));
        const DeviceArray<simt::u16> activations(machine, activation_elements(kRows, width));
        launch(Activate{f, gated, x.data(), kRows, width, out.data(), activations.data()},
               {.machine = &machine});
        for (int i = 0; i < kRows; ++i) {
          for (int k = 0; k < width; ++k) {
            const double value = values[static_cast<std::size_t>(i * in + k)],
                         up = gated ? values[static_cast<std::size_t>(i * in + width + k)] : 1.0;
            const double expected = exact(f, value) * up;
            const float got = out[static_cast<std::size_t>(i * width + k)];
            ASSERT_NEAR(got, expected, 1e-6 * std::max(std::abs(value * up), 1e-30))
                << static_cast<int>(f) << " of " << value;
            ASSERT_EQ(activations[activation_at(kRows, i, k)], float_to_bf16(got));
          }
          for (int k = width; k < tiles_of(width, kTileIn) * kTileIn; ++k)
            ASSERT_EQ(activations[activation_at(kRows, i, k)] & 0x7fff, 0);
          launch(Activate{f, gated, x.data() + i * in, 1, width, again.data(), nullptr},
                 {.machine = &machine});
          ASSERT_TRUE(same_bits(again.data(), out.data() + i * width, static_cast<std::size_t>(width)));
        }
      }
    }
  }
}

TEST(CudaElementwise, InPlace) {
  struct Operation {
    ElementwiseOf operation;
    std::function<double(double y, double x, double factor)> exact;
    double bound;  // relative
  };
  const Operation operations[] = {
      {ElementwiseOf::kAdd, [](double y, double x, double) { return y + x; }, 0x1p-24},
      {ElementwiseOf::kAddBias, [](double y, double x, double) { return y + x; }, 0x1p-24},
      {ElementwiseOf::kScale, [](double y, double, double factor) { return y * factor; }, 0x1p-24},
      {ElementwiseOf::kSoftCap,
       [](double y, double, double factor) { return factor * std::tanh(y / factor); }, 0x1p-21},
  };
  unsigned seed = 50;
  for (const Operation& op : operations) {
    for (const int width : {1, 12, 61, 2049}) {
      constexpr int kRows = 3;
      simt::Machine machine(++seed);
      const auto count = static_cast<std::size_t>(kRows * width);
      const std::vector<float> before = normal_numbers(count, seed, 20);
      const bool bias = op.operation == ElementwiseOf::kAddBias;
      const DeviceArray<float> y(machine, before),
          x(machine, normal_numbers(bias ? static_cast<std::size_t>(width) : count, seed + 100));
      launch(Elementwise{op.operation, y.data(), x.data(), 7.5f, kRows, width}, {.machine = &machine});
      for (std::size_t i = 0; i < count; ++i) {
        const double expected = op.exact(before[i],
                                         x[bias ? i % static_cast<std::size_t>(width)
                                           : op.operation == ElementwiseOf::kAdd ? i
                                                                                 : 0],
                                         7.5);
        ASSERT_NEAR(y[i], expected, op.bound * std::abs(expected) + 1e-30)
            << static_cast<int>(op.operation) << " " << i;
      }
    }
  }
}

}  // namespace
}  // namespace speclab::cuda::cuda_elementwise_test
