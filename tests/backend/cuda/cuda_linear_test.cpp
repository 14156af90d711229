#include <gtest/gtest.h>

#include <algorithm>

#include "core/base/error.h"
#include "tests/backend/cuda/simt_fixture.h"

// Packing, gathering, rounding and the linear kernel on the simulated GPU.

namespace speclab::cuda::cuda_linear_test {
namespace {

using simt::Machine;
using simt::u16;

std::vector<u16> bf16_values(std::size_t count, unsigned seed) {
  std::vector<u16> out;
  out.reserve(count);
  for (const float value : normal_numbers(count, seed)) out.push_back(float_to_bf16(value));
  return out;
}
std::size_t at(long long i) { return static_cast<std::size_t>(i); }

struct Matrix {
  int out, in;
  std::vector<u16> rows;  // [out, in]
  DeviceArray<u16> packed;

  // Packed in two portions, like a large matrix.
  Matrix(Machine& machine, int out, int in, unsigned seed)
      : out(out),
        in(in),
        rows(bf16_values(at(out) * at(in), seed)),
        packed(machine, weight_elements(out, in)) {
    const DeviceArray<u16> staged(machine, rows);
    const int first = out / 2 / kTileOut * kTileOut;
    for (const auto& [begin, count] : {std::pair{0, first}, std::pair{first, out - first}}) {
      if (count > 0)
        launch(PackWeights{staged.data() + at(begin) * at(in), begin, count, out, in, packed.data()},
               {.machine = &machine});
    }
  }
};

TEST(CudaWeights, PackingPutsEveryElementWhereTheLanesTakeIt) {
  for (const auto& [out, in] :
       {std::pair{16, 32}, std::pair{1, 1}, std::pair{50, 70}, std::pair{33, 129}, std::pair{80, 64}}) {
    Machine machine(1);
    const Matrix matrix(machine, out, in, 1);
    std::vector<bool> used(weight_elements(out, in));
    for (int m = 0; m < tiles_of(out, kTileOut) * kTileOut; ++m) {
      for (int k = 0; k < tiles_of(in, kTileIn) * kTileIn; ++k) {
        const std::size_t place = weight_at(in, m, k);
        ASSERT_FALSE(used.at(place)) << m << " " << k;
        used[place] = true;
        ASSERT_EQ(matrix.packed[place], m < out && k < in ? matrix.rows[at(m) * at(in) + at(k)] : 0)
            << m << " " << k;
      }
    }
  }
}

TEST(CudaWeights, GatherReadsRowsBack) {
  Machine machine(2);
  const Matrix table(machine, 100, 75, 2);
  const std::vector<std::int32_t> tokens = {99, 0, 17, 17, 48};
  const DeviceArray<std::int32_t> ids(machine, tokens);
  const DeviceArray<float> y(machine, tokens.size() * 75);
  launch(Gather{table.packed.data(), 75, ids.data(), 5, y.data()}, {.machine = &machine});
  for (int i = 0; i < 5; ++i) {
    for (int k = 0; k < 75; ++k)
      ASSERT_EQ(y[at(i * 75 + k)], bf16_to_float(table.rows[at(tokens[at(i)] * 75 + k)]));
  }
}

TEST(CudaWeights, RoundingPadsRowsWithZeros) {
  for (const int rows : {1, 8, 9, 33, 100}) {
    for (const int in : {7, 32, 100}) {
      Machine machine(3);
      const std::vector<float> values = normal_numbers(at(rows) * at(in + 1), 3);
      const DeviceArray<float> x(machine, values);
      const DeviceArray<u16> activations(machine, activation_elements(rows, in));
      launch(RoundRows{x.data(), in + 1, rows, in, activations.data()}, {.machine = &machine});
      std::vector<bool> used(activation_elements(rows, in));
      for (int i = 0; i < rows; ++i) {
        for (int k = 0; k < tiles_of(in, kTileIn) * kTileIn; ++k) {
          const std::size_t place = activation_at(rows, i, k);
          ASSERT_FALSE(used.at(place));
          used[place] = true;
          ASSERT_EQ(activations[place], k < in ? float_to_bf16(values[at(i) * at(in + 1) + at(k)]) : 0);
        }
      }
    }
  }
}

TEST(CudaLinear, ShapesThatTheKernelsAreCompiledFor) {
  int before = 0;
  for (int rows = 1; rows <= kMostRows; ++rows) {
    EXPECT_GE(row_tiles(rows) * kTileRows, rows);
    EXPECT_GE(row_tiles(rows), before);
    before = row_tiles(rows);
    for (const auto& [out, in] :
         {std::pair{576, 576}, std::pair{4096, 14336}, std::pair{28672, 4096}, std::pair{40, 3}}) {
      const LinearPlan plan = plan_of(out, in, rows);
      float partials[1];
      simt::u32 arrivals[1];
      with_kernel(Linear{.out = out, .in = in, .rows = rows, .partials = partials, .arrivals = arrivals},
                  [&](const auto& kernel, const LaunchShape& shape) {
                    EXPECT_EQ(std::string(kernel.kName), plan.many ? "linear_many" : "linear_few");
                    EXPECT_EQ(shape.threads, 32 * plan.warps);
                    // Two blocks fit on an SM of an A100. With many rows only one fits, by its registers.
                    EXPECT_LE(shape.shared_bytes, (plan.many ? 163 : 81) << 10);
                    // Every slice of every tile of outputs has a warp, and no block is idle.
                    const int tiles = tiles_of(out, kTileOut),
                              warps = plan.many ? tiles_of(tiles, kManyOutTiles) * plan.slices
                                                : tiles * plan.slices;
                    EXPECT_GE(shape.grid_x * shape.grid_y * plan.warps, warps);
                    EXPECT_LT((shape.grid_x - 1) * shape.grid_y * plan.warps, warps);
                  });
    }
  }
  // This holds also with a row that is normed beside the rings.
  const float row[1] = {};
  for (const auto& [in, most] : {std::pair{4096, 81}, std::pair{8192, 81}, std::pair{16384, 113}}) {
    with_kernel(Linear{.out = 4096, .in = in, .rows = 1, .norm = {.x = row}},
                [&](const auto&, const LaunchShape& shape) {
                  EXPECT_LE(shape.shared_bytes, most << 10);  // 16384 inputs: two blocks on an SM of an H100
                });
  }
  EXPECT_THROW(with_kernel(Linear{.out = 16, .in = 16, .rows = 129}, [](const auto&, const LaunchShape&) {}),
               Bug);
  EXPECT_THROW(
      with_kernel(Linear{.out = 16, .in = 4096, .rows = 128}, [](const auto&, const LaunchShape&) {}),
      Bug);  // no memory for partial sums
}

// The slices of the shapes of SmolLM2-135M and Llama-3.1-8B are part of the numerics class. Changing them
// changes the class.
TEST(CudaLinear, SlicesArePartOfTheNumericsClass) {
  EXPECT_EQ(slices_of(960, 576), 4);
  EXPECT_EQ(slices_of(576, 576), 4);
  EXPECT_EQ(slices_of(3072, 576), 4);
  EXPECT_EQ(slices_of(576, 1536), 8);
  EXPECT_EQ(slices_of(49152, 576), 1);
  EXPECT_EQ(slices_of(6144, 4096), 4);
  EXPECT_EQ(slices_of(4096, 4096), 4);
  EXPECT_EQ(slices_of(28672, 4096), 1);
  EXPECT_EQ(slices_of(4096, 14336), 4);
  EXPECT_EQ(slices_of(128256, 4096), 1);
  EXPECT_EQ(slices_of(16, 32), 1);
  for (const int in : {1, 32, 576, 1000, 14336}) {
    for (const int slices : {1, 2, 4, 8}) {
      EXPECT_EQ(slice_begin(in, slices, 0), 0);
      EXPECT_EQ(slice_begin(in, slices, slices), tiles_of(in, kTileIn));
    }
  }
}

struct Case {
  int out, in;
  std::vector<int> rows;
};

// x W^T + bias + before in double precision, with x rounded to bf16, and the sums of magnitudes.
struct Reference {
  std::vector<double> expected, magnitude;

  Reference(const Matrix& matrix, const std::vector<float>& x, const float* bias, const float* before) {
    const int rows = static_cast<int>(x.size()) / matrix.in;
    for (int i = 0; i < rows; ++i) {
      std::vector<float> rounded(at(matrix.in));
      for (int k = 0; k < matrix.in; ++k)
        rounded[at(k)] = bf16_to_float(float_to_bf16(x[at(i) * at(matrix.in) + at(k)]));
      for (int m = 0; m < matrix.out; ++m) {
        double sum = 0, size = 0;
        for (int k = 0; k < matrix.in; ++k) {
          const double product =
              static_cast<double>(rounded[at(k)]) * bf16_to_float(matrix.rows[at(m) * at(matrix.in) + at(k)]);
          sum += product;
          size += std::abs(product);
        }
        const double more[2] = {bias == nullptr ? 0.0 : bias[m],
                                before == nullptr ? 0.0 : before[expected.size()]};
        expected.push_back(sum + more[0] + more[1]);
        magnitude.push_back(size + std::abs(more[0]) + std::abs(more[1]));
      }
    }
  }
};

// Within (k + slices) 2^-24 sum |a b| of the sum in double precision, one rounding per addition. Each row has
// the same bits alone and in another order of warps and blocks.
void check(const Case& c, bool accumulate, bool biased) {
  Machine machine(at(c.out + c.in));
  const Matrix matrix(machine, c.out, c.in, 5);
  const int most = *std::max_element(c.rows.begin(), c.rows.end());
  const std::vector<float> values = normal_numbers(at(most) * at(c.in), 6),
                           before = normal_numbers(at(most) * at(c.out), 7);
  const DeviceArray<float> x(machine, values), bias(machine, normal_numbers(at(c.out), 8));
  const auto [expected, magnitude] =
      Reference(matrix, values, biased ? bias.data() : nullptr, accumulate ? before.data() : nullptr);
  const LinearPlan plan = plan_of(c.out, c.in, most);
  const DeviceArray<float> partials(machine, plan.partials + 1);
  const DeviceArray<simt::u32> arrivals(machine, std::vector<simt::u32>(at(plan.meeting) + 1));
  const auto run = [&](int first, int rows, int stride, const DeviceArray<float>& y) {
    const DeviceArray<u16> activations(machine, activation_elements(rows, c.in));
    launch(RoundRows{x.data() + at(first) * at(c.in), c.in, rows, c.in, activations.data()},
           {.machine = &machine});
    launch(Linear{.weights = matrix.packed.data(),
                  .out = c.out,
                  .in = c.in,
                  .activations = activations.data(),
                  .rows = rows,
                  .bias = biased ? bias.data() : nullptr,
                  .y = y.data(),
                  .y_stride = stride,
                  .accumulate = accumulate,
                  .partials = partials.data(),
                  .arrivals = arrivals.data()},
           {.machine = &machine});
  };
  std::vector<float> single(at(most) * at(c.out));
  for (int i = 0; i < most; ++i) {
    const DeviceArray<float> y(
        machine, std::vector<float>(before.begin() + i * c.out, before.begin() + (i + 1) * c.out));
    run(i, 1, c.out, y);
    std::copy_n(y.data(), c.out, single.begin() + i * c.out);
  }
  for (const int rows : c.rows) {
    SCOPED_TRACE(testing::Message() << rows << " rows by [" << c.out << ", " << c.in << "]");
    machine.reseed(at(rows));
    const int stride = c.out + 3;
    std::vector<float> initial(at(rows) * at(stride), NAN);
    for (int i = 0; i < rows; ++i)
      std::copy_n(before.begin() + i * c.out, c.out, initial.begin() + i * stride);
    const DeviceArray<float> y(machine, initial);
    run(0, rows, stride, y);
    for (int i = 0; i < rows; ++i) {
      for (int m = 0; m < c.out; ++m) {
        const std::size_t place = at(i) * at(c.out) + at(m);
        ASSERT_NEAR(y[at(i) * at(stride) + at(m)], expected[place], (c.in + 10) * 0x1p-24 * magnitude[place])
            << i << " " << m;
      }
      ASSERT_TRUE(same_bits(y.data() + i * stride, single.data() + i * c.out, at(c.out))) << "row " << i;
      for (int m = c.out; m < stride; ++m) ASSERT_TRUE(std::isnan(y[at(i) * at(stride) + at(m)]));
    }
    for (const simt::u32 arrived : arrivals.host()) ASSERT_EQ(arrived, 0u);
  }
}

TEST(CudaLinear, EveryBucketOfRows) {
  check({48, 512, {1, 2, 7, 8, 9, 16, 17, 24, 25, 32, 33, 48, 49, 64, 65, 96, 97, 127, 128}}, false, false);
}
TEST(CudaLinear, OddShapes) {
  for (const bool accumulate : {false, true}) {
    check({1, 1, {1, 3}}, accumulate, !accumulate);
    check({50, 70, {1, 10, 40}}, accumulate, true);
    check({17, 33, {2, 70}}, accumulate, false);
    check({31, 300, {5, 128}}, accumulate, true);
    check({130, 100, {12, 100}}, accumulate, false);
  }
}
TEST(CudaLinear, ShapesOfTheTarget) {
  check({576, 576, {4}}, true, false);
  check({96, 1536, {3, 65}}, true, false);
}
TEST(CudaLinear, HeadOfTheTarget) { check({49152, 64, {2}}, false, false); }
TEST(CudaLinear, ActivationsBeyondL1) { check({20, 4128, {9, 16}}, true, true); }
TEST(CudaLinear, EightWarpsShareTheirActivations) { check({27700, 32, {17}}, false, false); }

// Eight warps of a block go through many stages of activations together. The plan would give a matrix of this
// size to blocks of one warp, which read back only what they copied themselves. The bits are the same.
template <int kTiles>
void check_stages(int rows, int in) {
  constexpr int kOut = kLinearWarps * kManyOutTiles * kTileOut;
  SCOPED_TRACE(testing::Message() << rows << " rows of " << in);
  Machine machine(at(rows));
  const Matrix matrix(machine, kOut, in, 5);
  const DeviceArray<u16> activations(machine, bf16_values(activation_elements(rows, in), 6));
  const LinearPlan plan = plan_of(kOut, in, rows);
  ASSERT_EQ(row_tiles(rows), kTiles);
  ASSERT_EQ(plan.warps, 1);
  const DeviceArray<float> partials(machine, plan.partials), planned(machine, at(rows) * kOut),
      together(machine, at(rows) * kOut);
  const DeviceArray<simt::u32> arrivals(machine, std::vector<simt::u32>(at(plan.meeting)));
  Linear a{.weights = matrix.packed.data(),
           .out = kOut,
           .in = in,
           .activations = activations.data(),
           .rows = rows,
           .y = planned.data(),
           .y_stride = kOut,
           .partials = partials.data(),
           .arrivals = arrivals.data()};
  launch(a, {.machine = &machine});
  a.y = together.data();
  using Kernel = LinearManyKernel<kTiles>;
  const LaunchShape eight{.grid_x = 1,
                          .grid_y = plan.slices,
                          .threads = Kernel::kThreads,
                          .shared_bytes = Kernel::shared_bytes(kLinearWarps)};
  EXPECT_EQ(Kernel::within(eight, 163 << 10).threads, Kernel::kThreads);
  const LaunchShape fewer = Kernel::within(eight, 99 << 10);  // sm_86, sm_89
  EXPECT_LE(fewer.shared_bytes, 99 << 10);
  EXPECT_EQ(fewer.threads * fewer.grid_x, Kernel::kThreads);
  for (const LaunchShape& shape : {eight, fewer}) {
    machine.run(Kernel{a}, shape);
    EXPECT_TRUE(same_bits(together.data(), planned.data(), at(rows) * kOut)) << shape.threads;
  }
}
TEST(CudaLinear, EightWarpsShareManyStages) {
  check_stages<3>(20, 3000);
  check_stages<6>(45, 3000);
  check_stages<16>(128, 2100);
}

// Every form is within the bound, and the form of linear.h has its bits.
void check_free(int out, int in, int rows, int at_least) {
  SCOPED_TRACE(testing::Message() << rows << " rows by [" << out << ", " << in << "]");
  Machine machine(at(out + rows));
  const Matrix matrix(machine, out, in, 5);
  const std::vector<float> values = normal_numbers(at(rows) * at(in), 6),
                           before = normal_numbers(at(rows) * at(out), 7);
  const DeviceArray<float> x(machine, values), bias(machine, normal_numbers(at(out), 8)),
      invariant(machine, before);
  const DeviceArray<u16> activations(machine, activation_elements(rows, in));
  launch(RoundRows{x.data(), in, rows, in, activations.data()}, {.machine = &machine});
  Linear layer{.weights = matrix.packed.data(),
               .out = out,
               .in = in,
               .activations = activations.data(),
               .rows = rows,
               .bias = bias.data(),
               .y = invariant.data(),
               .y_stride = out,
               .accumulate = true};
  const LinearPlan meeting = free_meeting(layer);
  const DeviceArray<float> partials(machine, meeting.partials + 1);
  const DeviceArray<simt::u32> arrivals(machine, std::vector<simt::u32>(at(meeting.meeting) + 1));
  layer.partials = partials.data();
  layer.arrivals = arrivals.data();
  launch(layer, {.machine = &machine});
  const Reference reference(matrix, values, bias.data(), before.data());
  int same = 0;
  std::vector<LinearFree> forms = free_forms(layer);
  EXPECT_GE(static_cast<int>(forms.size()), at_least);
  for (LinearFree& form : forms) {
    SCOPED_TRACE(testing::Message() << form.slices << (form.many ? " blocks" : " warps")
                                    << (form.in_y ? " meet in y" : ""));
    const DeviceArray<float> y(machine, before);
    form.y = y.data();
    launch(form, {.machine = &machine});
    for (std::size_t i = 0; i < before.size(); ++i)
      ASSERT_NEAR(y[i], reference.expected[i], (in + 20) * 0x1p-24 * reference.magnitude[i]) << i;
    if (form.slices == slices_of(out, in) && !form.in_y)
      same += same_bits(y.data(), invariant.data(), before.size());
    for (const simt::u32 arrived : arrivals.host()) ASSERT_EQ(arrived, 0u);
  }
  EXPECT_EQ(same, rows > 8 && rows <= 16 ? 2 : 1);
}

TEST(CudaLinearFree, EveryFormComputesTheLayer) {
  check_free(50, 1030, 1, 4);
  check_free(50, 1030, 8, 4);
  check_free(33, 1030, 16, 12);
  check_free(33, 1024, 30, 8);
  check_free(17, 1024, 64, 8);
  check_free(17, 300, 128, 3);
}

TEST(CudaLinearFree, WhatIsNoFormIsRefused) {
  const auto refused = [](LinearFree form) {
    form.out = 64, form.in = 1024;
    float partials[1];
    simt::u32 arrivals[1];
    if (form.partials == nullptr) form.partials = partials, form.arrivals = arrivals;
    EXPECT_THROW(with_kernel(form, [](const auto&, const LaunchShape&) {}), Bug);
  };
  EXPECT_FALSE(has_free_forms(20));
  EXPECT_TRUE(has_free_forms(16));
  EXPECT_FALSE(has_free_forms(129));
  refused({{.rows = 20}, 1, true, false});
  refused({{.rows = 17}, 1, false, false});
  refused({{.rows = 8}, 2, true, false});
  refused({{.rows = 30}, 16, true, false});
  refused({{.rows = 4}, 16, false, false});
  refused({{.rows = 4}, 2, false, true});
  refused({{.rows = 30}, 2, true, true});  // does not accumulate
  refused({{.rows = 100, .accumulate = true}, 2, true, true});
}

}  // namespace
}  // namespace speclab::cuda::cuda_linear_test
