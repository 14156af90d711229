#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "core/backend/backend.h"
#include "core/backend/cpu/kernels.h"
#include "core/base/error.h"
#include "tests/backend/flight.h"
#include "tests/backend/numbers.h"

namespace speclab {
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
            const double term = static_cast<double>(bf16_to_float(rows[static_cast<std::size_t>(j) * in + k])) * x[static_cast<std::size_t>(i) * in + k];
            sum += term;
            magnitude += std::abs(term);
          }
          ASSERT_NEAR(alone[static_cast<std::size_t>(i) * out + j], sum, magnitude * in * std::ldexp(1.0, -24)) << i << ", " << j;
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

INSTANTIATE_TEST_SUITE_P(Shapes, Linear, testing::Values(Shape{64, 64}, Shape{3, 3}, Shape{1, 1}, Shape{100, 33}, Shape{960, 576},
                                                        Shape{576, 1536}, Shape{129, 130}, Shape{2085, 64}, Shape{4096, 20}));

// The same bits with maxima, whatever the shape, the rows, the threads and the unit; nothing is written beside them.
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
          std::vector<float> plain(static_cast<std::size_t>(n) * out), y(plain.size() + 1, 7), maxima(n * blocks + 1, 7);
          backend->linear(w, x.data(), n, plain.data(), false);
          ASSERT_TRUE(backend->linear_noting(w, x.data(), n, y.data(), maxima.data()));
          ASSERT_TRUE(same_bits(y.data(), plain.data(), plain.size())) << numerics << ", " << out << " outputs, " << n << " rows, " << threads << " threads";
          ASSERT_EQ(y.back(), 7);
          ASSERT_EQ(maxima.back(), 7);
          for (std::size_t i = 0; i + 1 < maxima.size(); ++i) {
            const float* row = plain.data() + i / blocks * out;
            const int begin = static_cast<int>(i % blocks) * kMaximumOf;
            ASSERT_EQ(maxima[i], *std::max_element(row + begin, row + std::min(out, begin + kMaximumOf)))
                << numerics << ", " << out << " outputs, " << n << " rows, " << threads << " threads, number " << i;
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

// An odd row is padded; the padding must not be what an earlier call left there, which 0 times infinity would show.
TEST(Linear, AnOddRowEndsInAZero) {
  const auto backend = make_cpu_backend({1, "f32"});
  const PackedMatrix even = pack(*backend, 1, 4, random_bf16(4, 3)), odd = pack(*backend, 1, 3, random_bf16(3, 4));
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
    for (int k = 0; k < 7; ++k) EXPECT_EQ(out[i * 7 + k], bf16_to_float(rows[static_cast<std::size_t>(tokens[i]) * 7 + k]));
  }
  const std::vector<Token> outside{130};
  EXPECT_THROW(backend->gather(table, outside.data(), static_cast<int>(outside.size()), out.data()), Bug);
}

TEST(Pack, PassesOnTheErrorOfItsReader) {
  const auto backend = make_cpu_backend({2, "f32"});
  EXPECT_THROW(backend->pack(200, 4, [](int begin, int, Bf16*) { if (begin > 0) throw Error({"tensor", "torn", "", ""}); }), Error);
}

TEST(RmsNorm, AgreesWithDouble) {
  const auto backend = make_cpu_backend({1, "f32"});
  for (const int d : {1, 15, 16, 17, 64, 576}) {
    const auto x = normal_numbers(d, 6), weight = normal_numbers(d, 7);
    std::vector<float> out(d);
    backend->rms_norm(x.data(), weight.data(), 1e-5f, 1, d, out.data());
    double squares = 0;
    for (float value : x) squares += static_cast<double>(value) * value;
    for (int i = 0; i < d; ++i) EXPECT_NEAR(out[i], x[i] * weight[i] / std::sqrt(squares / d + 1e-5), 2e-6 * (1 + std::abs(out[i])));
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

// A sequence of `committed` slots and a small tree in flight, attended in double precision.
class Attention : public testing::TestWithParam<const char*> {
 protected:
  static constexpr int kHeads = 6, kKvHeads = 2, kHeadDim = 24, kWidth = (kHeads + 2 * kKvHeads) * kHeadDim;
};

TEST_P(Attention, AgreesWithDoubleAndTreeEqualsChains) {
  const bool narrow = std::string_view(GetParam()) == "f32-kv16";
  const auto backend = make_cpu_backend({2, GetParam()});
  constexpr int kCommitted = 43, kNodes = 7, kPositions = 64;
  // parent:            0 root, 1 and 2 below 0, 3 below 1, 4 below 2, 5 below 4, 6 below 3
  const std::vector<int> parent{-1, 0, 0, 1, 2, 4, 3};
  std::vector<float> cos(kPositions * kHeadDim / 2), sin(cos.size());
  for (std::size_t i = 0; i < cos.size(); ++i) { cos[i] = std::cos(0.1f * i); sin[i] = std::sin(0.1f * i); }
  const auto history = normal_numbers(kCommitted * kWidth, 9), tree = normal_numbers(kNodes * kWidth, 10);
  const Rotation rotation{cos.data(), sin.data(), kHeadDim};
  const Flight prompt = Flight::chain(0, kCommitted);

  const auto fill = [&](KvStore& kv) {
    auto rows = history;
    backend->rope_and_store(rows.data(), kHeads, rotation, prompt.rows(), kv, 0);
    return rows;
  };
  KvStore kv = backend->allocate_kv(1, kKvHeads, kHeadDim, kCommitted + kNodes);
  const auto rotated_history = fill(kv);
  auto rows = tree;
  std::vector<std::vector<std::int32_t>> paths(kNodes);
  Flight flight(kCommitted);
  for (int i = 0; i < kNodes; ++i) {
    if (parent[i] >= 0) paths[i] = paths[parent[i]];
    paths[i].push_back(kCommitted + i);
    flight.add(paths[i]);
  }
  backend->rope_and_store(rows.data(), kHeads, rotation, flight.rows(), kv, 0);
  std::vector<float> out(kNodes * kHeads * kHeadDim);
  backend->attention(rows.data(), kHeads, kv, 0, flight.rows(), out.data());

  const auto stored = [&](float value) { return static_cast<double>(narrow ? bf16_to_float(float_to_bf16(value)) : value); };
  for (int i = 0; i < kNodes; ++i) {
    // In double, from the rotated rows.
    std::vector<const float*> seen;
    for (int slot = 0; slot < kCommitted; ++slot) seen.push_back(rotated_history.data() + slot * kWidth);
    for (const int slot : paths[i]) seen.push_back(rows.data() + (slot - kCommitted) * kWidth);
    for (int head = 0; head < kHeads; ++head) {
      const int kv_head = head / (kHeads / kKvHeads);
      std::vector<double> weight;
      double total = 0;
      for (const float* row : seen) {
        double score = 0;
        for (int d = 0; d < kHeadDim; ++d) score += static_cast<double>(rows[i * kWidth + head * kHeadDim + d]) * stored(row[(kHeads + kv_head) * kHeadDim + d]);
        weight.push_back(std::exp(score / std::sqrt(kHeadDim)));
        total += weight.back();
      }
      for (int d = 0; d < kHeadDim; ++d) {
        double expected = 0;
        for (std::size_t key = 0; key < seen.size(); ++key) expected += weight[key] / total * stored(seen[key][(kHeads + kKvHeads + kv_head) * kHeadDim + d]);
        ASSERT_NEAR(out[(i * kHeads + head) * kHeadDim + d], expected, 2e-5) << "node " << i << " head " << head;
      }
    }
    // Bitwise: the same path fed as a chain, one row at a time, in a cache of its own.
    KvStore alone = backend->allocate_kv(1, kKvHeads, kHeadDim, kCommitted + kNodes);
    fill(alone);
    for (std::size_t step = 0; step < paths[i].size(); ++step) {
      std::vector<float> row(tree.begin() + (paths[i][step] - kCommitted) * kWidth, tree.begin() + (paths[i][step] - kCommitted + 1) * kWidth);
      const Flight single_row = Flight::chain(kCommitted + static_cast<int>(step), 1);  // all before it counts as committed
      backend->rope_and_store(row.data(), kHeads, rotation, single_row.rows(), alone, 0);
      std::vector<float> single(kHeads * kHeadDim);
      backend->attention(row.data(), kHeads, alone, 0, single_row.rows(), single.data());
      if (step + 1 == paths[i].size()) {
        ASSERT_TRUE(same_bits(single.data(), out.data() + i * kHeads * kHeadDim, single.size())) << "node " << i;
      }
    }
  }

  // The order of the rows does not matter, even where the first ones see slots of a later block of keys.
  std::vector<float> reversed, reversed_out(out.size());
  for (int i = kNodes - 1; i >= 0; --i) reversed.insert(reversed.end(), rows.begin() + i * kWidth, rows.begin() + (i + 1) * kWidth);
  Flight backwards(kCommitted);
  for (int i = kNodes - 1; i >= 0; --i) backwards.add(paths[i]);
  backend->attention(reversed.data(), kHeads, kv, 0, backwards.rows(), reversed_out.data());
  for (int i = 0; i < kNodes; ++i) {
    EXPECT_TRUE(same_bits(reversed_out.data() + (kNodes - 1 - i) * kHeads * kHeadDim, out.data() + i * kHeads * kHeadDim, kHeads * kHeadDim)) << "node " << i;
  }

  // Keeping the path 0, 2, 4 and asking again from the compacted cache gives the row of node 5.
  const std::vector<std::int32_t> from{kCommitted, kCommitted + 2, kCommitted + 4, kCommitted + 5}, to{kCommitted, kCommitted + 1, kCommitted + 2, kCommitted + 3};
  backend->move_slots(kv, from, to);
  constexpr int kLast = kCommitted + 3;
  const Flight view = Flight::chain(kLast, 1);
  std::vector<float> moved(kHeads * kHeadDim);
  backend->attention(rows.data() + 5 * kWidth, kHeads, kv, 0, view.rows(), moved.data());
  EXPECT_TRUE(same_bits(moved.data(), out.data() + 5 * kHeads * kHeadDim, moved.size()));
  KvStore copy = backend->allocate_kv(kv.layers, kv.kv_heads, kv.head_dim, kv.slots + 32);
  backend->copy_kv(kv, kLast + 1, copy);
  backend->attention(rows.data() + 5 * kWidth, kHeads, copy, 0, view.rows(), out.data());
  EXPECT_TRUE(same_bits(moved.data(), out.data(), moved.size()));
}

// Scores far beyond what exp() holds: the largest key takes everything.
TEST_P(Attention, ScoresMayBeLarge) {
  const auto backend = make_cpu_backend({1, GetParam()});
  constexpr int kHeadDim = 16, kWidth = 3 * kHeadDim;
  const std::vector<float> cos(kHeadDim, 1.0f), sin(kHeadDim, 0.0f);
  std::vector<float> rows(2 * kWidth), out(kHeadDim);  // q, k and v of two positions; key 1 is the larger one
  for (int i = 0; i < kHeadDim; ++i) {
    rows[kWidth + i] = 100;
    rows[kHeadDim + i] = 50, rows[kWidth + kHeadDim + i] = 60;
    rows[2 * kHeadDim + i] = 1, rows[kWidth + 2 * kHeadDim + i] = 2;
  }
  KvStore kv = backend->allocate_kv(1, 1, kHeadDim, 2);
  backend->rope_and_store(rows.data(), 1, {cos.data(), sin.data(), kHeadDim}, Flight::chain(0, 2).rows(), kv, 0);
  const Flight last = Flight::chain(1, 1);
  backend->attention(rows.data() + kWidth, 1, kv, 0, last.rows(), out.data());
  EXPECT_EQ(out, std::vector<float>(kHeadDim, 2.0f));
}

INSTANTIATE_TEST_SUITE_P(Classes, Attention, testing::Values("f32", "f32-kv16"));

// Nothing is copied that is in its place already.
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
}  // namespace speclab
