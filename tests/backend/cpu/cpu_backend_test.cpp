#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "core/backend/backend.h"
#include "core/backend/cpu/kernels.h"
#include "core/base/error.h"
#include "tests/backend/cuda/flight.h"
#include "tests/backend/numbers.h"

namespace speclab::cpu_backend_test {
namespace {

using namespace speclab::fixtures;

std::vector<Bf16> random_bf16(std::size_t count, unsigned seed) {
  std::vector<Bf16> values;
  for (float value : normal_numbers(count, seed)) values.push_back(float_to_bf16(value * 0.1f));
  return values;
}

struct Shape {
  int out, in;
};

class Linear : public testing::TestWithParam<Shape> {};

TEST_P(Linear, AgreesWithDoubleAndKeepsRowBits) {
  const auto [out, in] = GetParam();
  const auto rows = random_bf16(static_cast<std::size_t>(out) * in, 1);
  constexpr int kMost = 70;
  const auto x = normal_numbers(static_cast<std::size_t>(kMost) * in, 2);
  std::vector<float> alone;  // row by row on one thread: the reference for the bits
  for (const int threads : {1, 2, 3}) {
    const auto backend = make_cpu_backend({threads, "f32"});
    const PackedMatrix w = pack(*backend, out, in, rows);
    if (alone.empty()) {
      alone.resize(static_cast<std::size_t>(kMost) * out);
      for (int i = 0; i < kMost; ++i) backend->linear(w, x.data() + i * in, 1, alone.data() + i * out, false);
      for (int i = 0; i < kMost; i += 13) {
        for (int j = 0; j < out; ++j) {
          double sum = 0, magnitude = 0;
          for (int k = 0; k < in; ++k) {
            const double term =
                static_cast<double>(bf16_to_float(rows[static_cast<std::size_t>(j) * in + k])) *
                x[static_cast<std::size_t>(i) * in + k];
            sum += term;
            magnitude += std::abs(term);
          }
          ASSERT_NEAR(alone[static_cast<std::size_t>(i) * out + j], sum,
                      magnitude * in * std::ldexp(1.0, -24))
              << i << ", " << j;
        }
      }
    }
    for (const int n : {1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16, 31, 33, 64, 70}) {
      std::vector<float> y(static_cast<std::size_t>(n) * out);
      backend->linear(w, x.data(), n, y.data(), false);
      ASSERT_TRUE(same_bits(y.data(), alone.data(), y.size())) << n << " rows, " << threads << " threads";
      std::vector<float> twice = y;
      backend->linear(w, x.data(), n, twice.data(), true);
      for (std::size_t i = 0; i < y.size(); ++i) ASSERT_EQ(twice[i], y[i] + y[i]);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, Linear,
                         testing::Values(Shape{64, 64}, Shape{3, 3}, Shape{1, 1}, Shape{100, 33},
                                         Shape{960, 576}, Shape{576, 1536}, Shape{129, 130}, Shape{2085, 64},
                                         Shape{4096, 20}));

// A product that also notes the maxima of its outputs has the same bits, for every shape, number of rows,
// number of threads and unit. Nothing is written outside the outputs.
TEST(Linear, NotesTheLargestOutputs) {
  constexpr int kMost = 80;
  std::vector<std::string> classes = cpu_numerics_classes();
  classes.insert(classes.end(), {"avx512-bf16-emulated", "amx-bf16-emulated"});
  for (const std::string& numerics : classes) {
    for (const int out : {1, 63, 64, 65, 96, 130, 500, 1025}) {
      const int in = out == 130 ? 7 : 8;
      const auto rows = random_bf16(static_cast<std::size_t>(out) * in, 1);
      auto x = normal_numbers(static_cast<std::size_t>(kMost) * in, 2);
      for (const int threads : {1, 2, 3}) {
        const auto backend = make_cpu_backend({threads, numerics});
        const PackedMatrix w = pack(*backend, out, in, rows);
        const auto blocks = static_cast<std::size_t>(maxima_of(out));
        for (int n = 1; n <= kMost; n += out > 100 ? 11 : 1) {
          std::vector<float> plain(static_cast<std::size_t>(n) * out), y(plain.size() + 1, 7),
              maxima(n * blocks + 1, 7);
          backend->linear(w, x.data(), n, plain.data(), false);
          ASSERT_TRUE(backend->linear_noting(w, x.data(), n, y.data(), maxima.data()));
          ASSERT_TRUE(same_bits(y.data(), plain.data(), plain.size()))
              << numerics << ", " << out << " outputs, " << n << " rows, " << threads << " threads";
          ASSERT_EQ(y.back(), 7);
          ASSERT_EQ(maxima.back(), 7);
          for (std::size_t i = 0; i + 1 < maxima.size(); ++i) {
            const float* row = plain.data() + i / blocks * out;
            const int begin = static_cast<int>(i % blocks) * kMaximumOf;
            ASSERT_EQ(maxima[i], *std::max_element(row + begin, row + std::min(out, begin + kMaximumOf)))
                << numerics << ", " << out << " outputs, " << n << " rows, " << threads << " threads, number "
                << i;
          }
        }
      }
    }
  }
}

TEST(Linear, Avx2AndAvx512HaveTheSameBits) {
  const auto backend = make_cpu_backend({1, "f32"});
  const auto rows = random_bf16(300 * 577, 3);
  const auto x = normal_numbers(9 * 577, 4);
  const PackedMatrix w = pack(*backend, 300, 577, rows);
  std::vector<float> best(9 * 300), avx2(9 * 300);
  backend->linear(w, x.data(), 9, best.data(), false);
  cpu::force_avx2(true);
  backend->linear(w, x.data(), 9, avx2.data(), false);
  cpu::force_avx2(false);
  EXPECT_TRUE(same_bits(best.data(), avx2.data(), best.size()));
}

// An odd row is padded. The padding must not be data of an earlier call; 0 times infinity would reveal it.
TEST(Linear, AnOddRowEndsInAZero) {
  const auto backend = make_cpu_backend({1, "f32"});
  const PackedMatrix even = pack(*backend, 1, 4, random_bf16(4, 3)),
                     odd = pack(*backend, 1, 3, random_bf16(3, 4));
  const std::vector<float> infinite(2 * 4, INFINITY), x(2 * 3, 1.0f);
  std::vector<float> y(2);
  backend->linear(even, infinite.data(), 2, y.data(), false);
  backend->linear(odd, x.data(), 2, y.data(), false);
  EXPECT_TRUE(std::isfinite(y[0]) && std::isfinite(y[1]));
}

TEST(Gather, ReadsRowsBack) {
  const auto backend = make_cpu_backend({2, "f32"});
  const auto rows = random_bf16(130 * 7, 5);
  const PackedMatrix table = pack(*backend, 130, 7, rows);
  const std::vector<Token> tokens{129, 0, 64, 63};
  std::vector<float> out(tokens.size() * 7);
  backend->gather(table, tokens.data(), static_cast<int>(tokens.size()), out.data());
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    for (int k = 0; k < 7; ++k)
      EXPECT_EQ(out[i * 7 + k], bf16_to_float(rows[static_cast<std::size_t>(tokens[i]) * 7 + k]));
  }
  const std::vector<Token> outside{130};
  EXPECT_THROW(backend->gather(table, outside.data(), static_cast<int>(outside.size()), out.data()), Bug);
}

TEST(Pack, PassesOnTheErrorOfItsReader) {
  const auto backend = make_cpu_backend({2, "f32"});
  EXPECT_THROW(backend->pack(200, 4,
                             [](int begin, int, Bf16*) {
                               if (begin > 0) throw Error({"tensor", "torn", "", ""});
                             }),
               Error);
}

TEST(RmsNorm, AgreesWithDouble) {
  const auto backend = make_cpu_backend({1, "f32"});
  for (const int d : {1, 15, 16, 17, 64, 576}) {
    const auto x = normal_numbers(d, 6), weight = normal_numbers(d, 7);
    std::vector<float> out(d);
    backend->rms_norm(x.data(), weight.data(), 1e-5f, 1, d, out.data());
    double squares = 0;
    for (float value : x) squares += static_cast<double>(value) * value;
    for (int i = 0; i < d; ++i)
      EXPECT_NEAR(out[i], x[i] * weight[i] / std::sqrt(squares / d + 1e-5), 2e-6 * (1 + std::abs(out[i])));
  }
}

TEST(SiluMultiply, AgreesWithDoubleAlsoInTheTail) {
  const auto backend = make_cpu_backend({1, "f32"});
  for (const int ffn : {1, 7, 8, 9, 33, 1536}) {
    auto both = normal_numbers(2 * ffn, 8);
    both[0] = -90.0f;
    std::vector<float> out(ffn);
    backend->silu_multiply(both.data(), 1, ffn, out.data());
    for (int i = 0; i < ffn; ++i) {
      const double gate = both[i];
      EXPECT_NEAR(out[i], gate / (1 + std::exp(-gate)) * both[ffn + i], 1e-5 * (1 + std::abs(out[i])));
    }
  }
}

// Data that is already in place is not copied.
TEST(CpuBackend, MemoryOfTheHostIsItsOwn) {
  const auto backend = make_cpu_backend({1, "f32"});
  ASSERT_TRUE(backend->host_memory());
  std::vector<float> numbers{1, 2, 3};
  const float* place = numbers.data();
  const Buffer<float> kept = backend->keep(std::move(numbers));
  EXPECT_EQ(kept.data(), place);
  EXPECT_EQ(kept.size(), 3u);
  EXPECT_TRUE(backend->keep({}).empty());
  const std::vector<std::int32_t> ids{4, 5};
  Buffer<std::int32_t> unused;
  EXPECT_EQ(backend->stage(ids, unused), ids.data());
  EXPECT_TRUE(unused.empty());
  Buffer<float> grows;
  float* first = backend->room(grows, 3);
  EXPECT_EQ(backend->room(grows, 2), first);
  backend->upload(kept.data(), 3 * sizeof(float), first);
  float back[3] = {};
  backend->download(grows.data(), sizeof back, back);
  EXPECT_EQ(back[2], 3);
  backend->room(grows, 1000);
  EXPECT_EQ(grows.size(), 1000u);
}

TEST(CpuBackend, RefusesWhatItCannotDo) {
  EXPECT_THROW(make_cpu_backend({-1, "f32"}), Error);
  EXPECT_THROW(make_cpu_backend({100000, "f32"}), Error);
  EXPECT_THROW(make_cpu_backend({1, "fp4"}), Error);
}

}  // namespace
}  // namespace speclab::cpu_backend_test
