#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

#include "core/backend/backend.h"
#include "core/backend/cpu/kernels.h"
#include "tests/backend/cuda/flight.h"
#include "tests/backend/numbers.h"

// Compares the operations of families other than Llama with double precision, also for widths that are not
// multiples of the vector width. Bits are the same for one row and many, and for every vector width.

namespace speclab::row_operations_test {
namespace {

using namespace speclab::fixtures;

/// Calls run(rows, n) in place for all rows at once, for each row, and with AVX2 alone; the bits must agree.
template <typename Run>
std::vector<float> checked(std::vector<float> in, int n, const Run& run) {
  std::vector<float> all = in;
  run(all.data(), n);
  const std::size_t width = in.size() / static_cast<std::size_t>(n);
  std::vector<float> single = in, narrow = in;
  for (int i = 0; i < n; ++i) run(single.data() + static_cast<std::size_t>(i) * width, 1);
  cpu::force_avx2(true);
  run(narrow.data(), n);
  cpu::force_avx2(false);
  EXPECT_TRUE(same_bits(all, single));
  EXPECT_TRUE(same_bits(all, narrow));
  return all;
}

constexpr int kRows = 37;

TEST(RowOperations, LayerNorm) {
  const auto backend = make_cpu_backend({2, "f32"});
  for (const int d : {1, 7, 16, 24, 61, 768}) {
    std::vector<float> x = normal_numbers(static_cast<std::size_t>(kRows * d), 1, 2);
    for (float& value : x) value += 3;  // gives the rows a mean
    const std::vector<float> weight = normal_numbers(static_cast<std::size_t>(d), 2, 2),
                             bias = normal_numbers(static_cast<std::size_t>(d), 3, 2);
    const auto out = checked(x, kRows, [&](float* rows, int n) {
      backend->layer_norm(rows, weight.data(), bias.data(), 1e-5f, n, d, rows);
    });
    for (int i = 0; i < kRows; ++i) {
      const float* row = x.data() + i * d;
      double mean = 0, squares = 0;
      for (int k = 0; k < d; ++k) mean += row[k] / double(d);
      for (int k = 0; k < d; ++k) squares += (row[k] - mean) * (row[k] - mean) / d;
      for (int k = 0; k < d; ++k) {
        if (d > 1)
          ASSERT_NEAR(out[i * d + k], (row[k] - mean) / std::sqrt(squares + 1e-5) * weight[k] + bias[k], 2e-5)
              << d;
        else ASSERT_EQ(out[i], bias[0]);
      }
    }
  }
}

TEST(RowOperations, NormOfHeadsLeavesTheRestOfARow) {
  const auto backend = make_cpu_backend({2, "f32"});
  constexpr int kStride = 61, kHeads = 3, kDim = 18;
  const std::vector<float> x = normal_numbers(kRows * kStride, 4, 2), weight = normal_numbers(kDim, 5, 2);
  const auto out = checked(x, kRows, [&](float* rows, int n) {
    backend->rms_norm_heads(rows, kStride, kHeads, weight.data(), 1e-6f, n, kDim);
  });
  for (int i = 0; i < kRows; ++i) {
    for (int k = 0; k < kStride; ++k) {
      if (k >= kHeads * kDim) {
        ASSERT_EQ(out[i * kStride + k], x[i * kStride + k]);
        continue;
      }
      double squares = 0;
      for (int j = 0; j < kDim; ++j)
        squares += std::pow(double(x[i * kStride + k / kDim * kDim + j]), 2) / kDim;
      ASSERT_NEAR(out[i * kStride + k], x[i * kStride + k] / std::sqrt(squares + 1e-6) * weight[k % kDim],
                  1e-5);
    }
  }
}

double activation(Activation f, double x) {
  switch (f) {
    case Activation::kSilu: return x / (1 + std::exp(-x));
    case Activation::kGelu: return x / 2 * (1 + std::erf(x / std::sqrt(2.0)));
    case Activation::kGeluTanh:
      return x / 2 * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    case Activation::kRelu: return std::max(x, 0.0);
  }
  return 0;
}

TEST(RowOperations, Activations) {
  const auto backend = make_cpu_backend({2, "f32"});
  for (const Activation f :
       {Activation::kSilu, Activation::kGelu, Activation::kGeluTanh, Activation::kRelu}) {
    for (const int ffn : {3, 16, 45}) {
      for (const bool gated : {false, true}) {
        const int width = gated ? 2 * ffn : ffn;
        std::vector<float> x = normal_numbers(static_cast<std::size_t>(kRows * width), 6, 2);
        x[0] = -200, x[1] = 200, x[2] = -12;  // exp() of these is no finite float
        std::vector<float> out(static_cast<std::size_t>(kRows * ffn)), single(out), narrow(out);
        backend->activate(f, gated, x.data(), kRows, ffn, out.data());
        for (int i = 0; i < kRows; ++i)
          backend->activate(f, gated, x.data() + i * width, 1, ffn, single.data() + i * ffn);
        cpu::force_avx2(true);
        backend->activate(f, gated, x.data(), kRows, ffn, narrow.data());
        cpu::force_avx2(false);
        EXPECT_TRUE(same_bits(out, single));
        EXPECT_TRUE(same_bits(out, narrow));
        for (int i = 0; i < kRows; ++i) {
          for (int k = 0; k < ffn; ++k) {
            const double expected = activation(f, x[i * width + k]) * (gated ? x[i * width + ffn + k] : 1.0);
            ASSERT_NEAR(out[i * ffn + k], expected, 2e-6 * std::max(1.0, std::abs(expected)))
                << static_cast<int>(f) << " of " << x[i * width + k];
          }
        }
      }
    }
  }
}

TEST(RowOperations, SumsScalesAndCaps) {
  const auto backend = make_cpu_backend({2, "f32"});
  constexpr int kWidth = 45;
  const std::vector<float> x = normal_numbers(kRows * kWidth, 7, 20), bias = normal_numbers(kWidth, 8, 2),
                           other = normal_numbers(kRows * kWidth, 9, 2);
  const auto biased =
      checked(x, kRows, [&](float* rows, int n) { backend->add_bias(bias.data(), n, kWidth, rows); });
  const auto scaled = checked(x, kRows, [&](float* rows, int n) { backend->scale(1.7f, n, kWidth, rows); });
  const auto capped = checked(x, kRows, [&](float* rows, int n) { backend->soft_cap(15, n, kWidth, rows); });
  std::vector<float> sum = x;
  backend->add(other.data(), kRows, kWidth, sum.data());
  for (int i = 0; i < kRows * kWidth; ++i) {
    ASSERT_EQ(biased[i], x[i] + bias[i % kWidth]);
    ASSERT_EQ(scaled[i], x[i] * 1.7f);
    ASSERT_EQ(sum[i], x[i] + other[i]);
    ASSERT_NEAR(capped[i], 15 * std::tanh(x[i] / 15.0), 1e-5);
  }
}

TEST(RowOperations, CopiesRowsAndFillsColumns) {
  const auto backend = make_cpu_backend({2, "f32"});
  constexpr int kWidth = 7;
  std::vector<float> x = normal_numbers(kRows * kWidth, 12, 2), out(3 * kWidth);
  const std::vector<std::int32_t> rows{0, kRows - 1, 2};
  backend->copy_rows(x.data(), rows.data(), 3, kWidth, out.data());
  for (int i = 0; i < 3; ++i) {
    for (int k = 0; k < kWidth; ++k) EXPECT_EQ(out[i * kWidth + k], x[rows[i] * kWidth + k]);
  }
  const std::vector<float> before = x;
  backend->fill_columns(-1, 4, kRows, kWidth, x.data());
  for (int i = 0; i < kRows * kWidth; ++i) EXPECT_EQ(x[i], i % kWidth < 4 ? before[i] : -1) << i;
}

// A sequence is fed in blocks. Window, soft cap and scale agree with double precision, and each block has the
// bits of single rows.
TEST(RowOperations, AttentionWithAWindowAndASoftCap) {
  constexpr int kHeads = 2, kDim = 20, kWidth = (kHeads + 2) * kDim, kTokens = 90;
  const std::vector<float> x = normal_numbers(kTokens * kWidth, 10, 1);
  for (const char* numerics : {"f32", "f32-kv16"}) {
    const auto backend = make_cpu_backend({2, numerics});
    for (const AttentionForm form :
         {AttentionForm{0, 0, 5}, AttentionForm{.3f, 0, 33}, AttentionForm{.3f, 2, 16},
          AttentionForm{0, 1.5f, 0}, AttentionForm{0, 0, 1}}) {
      const auto run = [&](int block) {
        KvStore kv = backend->allocate_kv(1, 1, kDim, kTokens);
        std::vector<float> out(kTokens * kHeads * kDim);
        for (int begin = 0; begin < kTokens; begin += block) {
          const int n = std::min(block, kTokens - begin);
          std::vector<float> rows(x.begin() + begin * kWidth, x.begin() + (begin + n) * kWidth);
          const Flight flight = Flight::chain(begin, n);
          backend->rope_and_store(rows.data(), kHeads, {}, flight.rows(), kv, 0);
          backend->attention(rows.data(), kHeads, kv, 0, flight.rows(), out.data() + begin * kHeads * kDim,
                             form);
        }
        return out;
      };
      const std::vector<float> alone = run(1);
      for (const int block : {2, 7, 40, 90})
        EXPECT_TRUE(same_bits(alone, run(block)))
            << numerics << ", window " << form.window << ", blocks of " << block;
      if (numerics != std::string("f32")) continue;
      const double scale = form.scale > 0 ? form.scale : 1 / std::sqrt(double(kDim));
      for (int i = 0; i < kTokens; ++i) {
        for (int head = 0; head < kHeads; ++head) {
          std::vector<double> mixed(kDim);
          double total = 0;
          for (int j = form.window > 0 ? std::max(0, i - form.window + 1) : 0; j <= i; ++j) {
            double score = 0;
            for (int d = 0; d < kDim; ++d)
              score += scale * x[i * kWidth + head * kDim + d] * x[j * kWidth + kHeads * kDim + d];
            if (form.soft_cap > 0) score = form.soft_cap * std::tanh(score / form.soft_cap);
            total += std::exp(score);
            for (int d = 0; d < kDim; ++d)
              mixed[d] += std::exp(score) * x[j * kWidth + (kHeads + 1) * kDim + d];
          }
          for (int d = 0; d < kDim; ++d)
            ASSERT_NEAR(alone[(i * kHeads + head) * kDim + d], mixed[d] / total, 1e-5)
                << "row " << i << ", window " << form.window;
        }
      }
    }
  }
}

TEST(RowOperations, RotatesTheFirstDimensionsOnly) {
  const auto backend = make_cpu_backend({1, "f32"});
  constexpr int kDim = 10, kRotated = 4;
  const std::vector<float> cos{1, 1, .6f, .28f}, sin{0, 0, .8f, .96f};  // [2 positions, 2]
  std::vector<float> row = normal_numbers(3 * kDim, 11, 2);
  const std::vector<float> before = row;
  KvStore kv = backend->allocate_kv(1, 1, kDim, 2);
  const Flight flight = Flight::chain(1, 1);
  backend->rope_and_store(row.data(), 1, {cos.data(), sin.data(), kRotated}, flight.rows(), kv, 0);
  for (int part = 0; part < 3; ++part) {
    for (int i = 0; i < kDim; ++i) {
      const float* v = before.data() + part * kDim;
      float expected = v[i];
      if (part < 2 && i < 2) expected = v[i] * cos[2 + i] - v[i + 2] * sin[2 + i];
      if (part < 2 && i >= 2 && i < 4) expected = v[i] * cos[i] + v[i - 2] * sin[i];
      EXPECT_FLOAT_EQ(row[static_cast<std::size_t>(part * kDim + i)], expected) << part << " " << i;
    }
  }
}

}  // namespace
}  // namespace speclab::row_operations_test
