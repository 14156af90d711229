// Matrix products with AVX-512 and AMX: emulated on every machine, and with the real instructions if it has
// them.
#include "core/backend/cpu/bf16_units.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cfloat>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "core/backend/backend.h"
#include "core/base/error.h"
#include "core/measure/environment.h"
#include "tests/backend/numbers.h"

namespace speclab::bf16_units_test {
namespace {

using namespace speclab::fixtures;

using cpu::Bf16Unit;
using cpu::RowGroups;

float flush(float value) { return std::fabs(value) < FLT_MIN ? std::copysign(0.0f, value) : value; }

/// The sum of one output in the order that the header promises; w and x [in].
float in_order(Bf16Unit unit, const Bf16* w, const float* x, int in) {
  const auto weight = [&](int k) { return k < in ? flush(bf16_to_float(w[k])) : 0.0f; };
  const auto input = [&](int k) { return k < in ? flush(bf16_to_float(float_to_bf16(x[k]))) : 0.0f; };
  float sum = 0;
  if (unit == Bf16Unit::kAvx512) {
    for (int k = 0; k < in; k += 2) {
      sum = flush(std::fma(weight(k + 1), input(k + 1), sum));
      sum = flush(std::fma(weight(k), input(k), sum));
    }
    return sum;
  }
  for (int begin = 0; begin < in; begin += 32) {
    float even = 0, odd = 0;
    for (int k = begin; k < std::min(begin + 32, in); k += 2) {
      even = flush(std::fma(weight(k), input(k), even));
      odd = flush(std::fma(weight(k + 1), input(k + 1), odd));
    }
    sum = flush(sum + flush(even + odd));
  }
  return sum;
}

struct Case {
  Bf16Unit unit;
  bool emulated;
  std::string numerics() const { return std::string(cpu::name_of(unit)) + (emulated ? "-emulated" : ""); }
};

/// The emulations, and the real instructions that this machine has.
std::vector<Case> cases() {
  std::vector<Case> all;
  for (const Bf16Unit unit : {Bf16Unit::kAvx512, Bf16Unit::kAmx}) {
    all.push_back({unit, true});
    if (cpu::supported(unit)) all.push_back({unit, false});
  }
  return all;
}

class Unit : public testing::TestWithParam<Case> {};

TEST_P(Unit, RowsHaveTheBitsOfTheirOrderForAnyNumberOfRowsAndThreads) {
  constexpr int kMost = 125;  // AVX-512 takes up to 12 rows at once, and 120 rows per pass over the weights
  for (const auto& [out, in] : {std::pair{1, 1}, {16, 32}, {40, 31}, {100, 66}, {33, 44}, {70, 577}}) {
    std::vector<Bf16> rows;
    for (const float value : normal_numbers(static_cast<std::size_t>(out) * in, 1))
      rows.push_back(float_to_bf16(value * .1f));
    const std::vector<float> x = normal_numbers(static_cast<std::size_t>(kMost) * in, 2);
    std::vector<float> expected(static_cast<std::size_t>(kMost) * out);
    for (int i = 0; i < kMost; ++i) {
      for (int j = 0; j < out; ++j)
        expected[i * out + j] = in_order(GetParam().unit, rows.data() + j * in, x.data() + i * in, in);
    }
    for (const int threads : {1, 3}) {
      const auto backend = make_cpu_backend({threads, GetParam().numerics()});
      const PackedMatrix w = pack(*backend, out, in, rows);
      if (!GetParam().emulated && threads == 1) {
        // The manual only describes the order of the sums. Here a row must also not depend on the other
        // rows.
        for (int i = 0; i < kMost; ++i) {
          std::vector<float> alone(static_cast<std::size_t>(out));
          backend->linear(w, x.data() + i * in, 1, alone.data(), false);
          for (int j = 0; j < out; ++j) {
            EXPECT_NEAR(alone[j], expected[i * out + j], 1e-5 * std::sqrt(in));
            expected[i * out + j] = alone[j];
          }
        }
      }
      for (const int n : {1, 2, 7, 12, 13, 16, 17, 33, kMost}) {
        std::vector<float> y(static_cast<std::size_t>(n) * out, 7.0f);
        backend->linear(w, x.data(), n, y.data(), false);
        EXPECT_EQ(std::memcmp(y.data(), expected.data(), y.size() * sizeof(float)), 0)
            << GetParam().numerics() << " " << out << " x " << in << ", rows: " << n
            << ", threads: " << threads;
        backend->linear(w, x.data(), n, y.data(), true);
        EXPECT_EQ(y.back(), 2 * expected[y.size() - 1]) << "added to what was there";
      }
    }
  }
}

TEST(Bf16Groups, RowsAreRoundedAndInterleavedByPairs) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (const int rows : {1, 3, 16}) {
    for (const int in : {1, 31, 32, 513, 1100}) {
      std::vector<float> x = normal_numbers(static_cast<std::size_t>(rows) * in, 3);
      const std::vector<float> special = {std::nanf(""), -infinity,       infinity, 0x1.01p0f, 0x1.03p0f,
                                          -0x1.01p0f,    0x1.fffffep127f, -0.0f,    0x1p-149f};
      for (std::size_t i = 0; i < special.size() && i < x.size(); ++i)
        x[x.size() - 1 - i * 5 % x.size()] = special[i];
      const int length = cpu::bf16_row_length(in);
      std::vector<Bf16> out(static_cast<std::size_t>(rows) * length, 7);
      cpu::round_group(x.data(), rows, in, out.data());
      for (int r = 0; r < rows; ++r) {
        for (int k = 0; k < length; ++k) {
          ASSERT_EQ(out[(k / 2 * rows + r) * 2 + k % 2], k < in ? float_to_bf16(x[r * in + k]) : 0)
              << rows << " x " << in << ", row " << r << ", input " << k;
        }
      }
    }
  }
}

TEST(Bf16Groups, CoverAllRowsWithinWhatTheKernelsTake) {
  for (const Bf16Unit unit : {Bf16Unit::kAvx512, Bf16Unit::kAmx}) {
    for (int n = 1; n <= 300; ++n) {
      const RowGroups groups = bf16_row_groups(unit, n);
      int rows = 0;
      for (int g = 0; g < groups.count; ++g) {
        EXPECT_EQ(groups.begin(g), rows);
        EXPECT_LE(groups.size(g), unit == Bf16Unit::kAmx ? 1 : n <= 16 ? 16 : 12) << n;
        rows += groups.size(g);
      }
      EXPECT_EQ(rows, n);
    }
  }
}

TEST(Bf16Units, TheirPeakIsMeasured) {
  for (const Bf16Unit unit : {Bf16Unit::kAvx512, Bf16Unit::kAmx}) {
    if (!cpu::supported(unit)) continue;
    EXPECT_GT(measure_peak_flops(1, [&](std::int64_t rounds) { return cpu::bf16_unit_rounds(unit, rounds); }),
              1e9);
  }
}

TEST_P(Unit, DenormalNumbersAreZeros) {
  const auto backend = make_cpu_backend({1, GetParam().numerics()});
  const Bf16 denormal = 1, one = float_to_bf16(1), small = float_to_bf16(0x1p-100f);
  const float tiny[2] = {0x1p-100f, 1.0f};
  float y = 7;
  backend->linear(pack(*backend, 1, 2, {small, denormal}), tiny, 1, &y, false);
  EXPECT_EQ(y, 0) << "a product below the normal numbers, and a weight";
  backend->linear(pack(*backend, 1, 2, {denormal, one}), tiny, 1, &y, false);
  EXPECT_EQ(y, 1);
}

INSTANTIATE_TEST_SUITE_P(Bf16, Unit, testing::ValuesIn(cases()), [](const auto& info) {
  return std::string(info.param.unit == Bf16Unit::kAvx512 ? "Avx512" : "Amx") +
         (info.param.emulated ? "Emulated" : "");
});

TEST(Bf16Units, AreWithinRoundingOfExactProducts) {
  constexpr int kOut = 48, kIn = 576;
  std::vector<Bf16> rows;
  for (const float value : normal_numbers(kOut * kIn, 3)) rows.push_back(float_to_bf16(value));
  const std::vector<float> x = normal_numbers(kIn, 4);
  for (const Bf16Unit unit : {Bf16Unit::kAvx512, Bf16Unit::kAmx}) {
    for (int j = 0; j < kOut; ++j) {
      double sum = 0, magnitude = 0;
      for (int k = 0; k < kIn; ++k) {
        const double term =
            static_cast<double>(bf16_to_float(rows[j * kIn + k])) * bf16_to_float(float_to_bf16(x[k]));
        sum += term, magnitude += std::fabs(term);
      }
      EXPECT_NEAR(in_order(unit, rows.data() + j * kIn, x.data(), kIn), sum, 1e-5 * magnitude);
    }
  }
}

TEST(Bf16Units, AClassThatTheCpuLacksNamesItsEmulation) {
  for (const Bf16Unit unit : {Bf16Unit::kAvx512, Bf16Unit::kAmx}) {
    if (cpu::supported(unit)) continue;
    try {
      make_cpu_backend({1, std::string(cpu::name_of(unit))});
      ADD_FAILURE() << "made a backend without the instructions";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr(std::string(cpu::name_of(unit)) + "-emulated"));
    }
  }
}

}  // namespace
}  // namespace speclab::bf16_units_test
