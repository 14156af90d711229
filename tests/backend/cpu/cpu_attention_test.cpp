// Attention of every numerics class of the CPU over a cache and rows in flight.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "core/backend/backend.h"
#include "core/backend/cpu/bf16_units.h"
#include "tests/backend/cuda/flight.h"
#include "tests/backend/numbers.h"

namespace speclab::cpu_attention_test {
namespace {

using namespace speclab::fixtures;

// A sequence of `committed` slots and a small tree in flight, attended in double precision.
struct CacheCase {
  std::string numerics;
  int head_dim, committed;
};
/// Head dimensions that fill no vector and that fill several; odd and even numbers of committed keys, few and
/// many.
std::vector<CacheCase> cache_cases() {
  std::vector<std::string> classes{"f32", "f32-kv16", "avx512-bf16-emulated"};
  if (cpu::supported(cpu::Bf16Unit::kAvx512)) classes.emplace_back("avx512-bf16");
  std::vector<CacheCase> cases;
  for (const std::string& numerics : classes) {
    for (const auto& [head_dim, committed] : {std::pair{24, 43}, {24, 44}, {64, 150}, {64, 147}, {98, 16}})
      cases.push_back({numerics, head_dim, committed});
  }
  return cases;
}
class Attention : public testing::TestWithParam<CacheCase> {
 protected:
  static constexpr int kHeads = 6, kKvHeads = 2;
  const std::string numerics = GetParam().numerics;
  const bool float_cache = numerics == "f32", bf16_products = numerics.starts_with("avx512");
  const int kHeadDim = GetParam().head_dim, kCommitted = GetParam().committed,
            kWidth = (kHeads + 2 * kKvHeads) * kHeadDim;
};

TEST_P(Attention, AgreesWithDoubleAndTreeEqualsChains) {
  const auto backend = make_cpu_backend({2, numerics});
  constexpr int kNodes = 7, kPositions = 192;
  // parent:            0 root, 1 and 2 below 0, 3 below 1, 4 below 2, 5 below 4, 6 below 3
  const std::vector<int> parent{-1, 0, 0, 1, 2, 4, 3};
  std::vector<float> cos(kPositions * kHeadDim / 2), sin(cos.size());
  for (std::size_t i = 0; i < cos.size(); ++i) {
    cos[i] = std::cos(0.1f * i);
    sin[i] = std::sin(0.1f * i);
  }
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

  const auto rounded = [](float value) { return static_cast<double>(bf16_to_float(float_to_bf16(value))); };
  const auto stored = [&](float value) { return float_cache ? static_cast<double>(value) : rounded(value); };
  const auto asked = [&](float value) { return bf16_products ? rounded(value) : static_cast<double>(value); };
  for (int i = 0; i < kNodes; ++i) {
    // Reference in double precision from the rotated rows.
    std::vector<const float*> seen;
    for (int slot = 0; slot < kCommitted; ++slot) seen.push_back(rotated_history.data() + slot * kWidth);
    for (const int slot : paths[i]) seen.push_back(rows.data() + (slot - kCommitted) * kWidth);
    for (int head = 0; head < kHeads; ++head) {
      const int kv_head = head / (kHeads / kKvHeads);
      std::vector<double> weight;
      double total = 0;
      for (const float* row : seen) {
        double score = 0;
        for (int d = 0; d < kHeadDim; ++d)
          score +=
              asked(rows[i * kWidth + head * kHeadDim + d]) * stored(row[(kHeads + kv_head) * kHeadDim + d]);
        weight.push_back(std::exp(score / std::sqrt(kHeadDim)));
        total += weight.back();
      }
      for (int d = 0; d < kHeadDim; ++d) {
        double expected = 0, magnitude = 0;
        for (std::size_t key = 0; key < seen.size(); ++key) {
          const double share =
              weight[key] / total * stored(seen[key][(kHeads + kKvHeads + kv_head) * kHeadDim + d]);
          expected += share;
          magnitude += std::abs(share);
        }
        const double bound = 2e-5 + (bf16_products ? std::ldexp(magnitude, -9)
                                                   : 0);  // half a unit in the last place of the weights
        ASSERT_NEAR(out[(i * kHeads + head) * kHeadDim + d], expected, bound)
            << "node " << i << " head " << head;
      }
    }
    // Bitwise equal: the same path fed as a chain, one row at a time, in another cache.
    KvStore alone = backend->allocate_kv(1, kKvHeads, kHeadDim, kCommitted + kNodes);
    fill(alone);
    for (std::size_t step = 0; step < paths[i].size(); ++step) {
      std::vector<float> row(tree.begin() + (paths[i][step] - kCommitted) * kWidth,
                             tree.begin() + (paths[i][step] - kCommitted + 1) * kWidth);
      const Flight single_row =
          Flight::chain(kCommitted + static_cast<int>(step), 1);  // all rows before it count as committed
      backend->rope_and_store(row.data(), kHeads, rotation, single_row.rows(), alone, 0);
      std::vector<float> single(kHeads * kHeadDim);
      backend->attention(row.data(), kHeads, alone, 0, single_row.rows(), single.data());
      if (step + 1 == paths[i].size()) {
        ASSERT_TRUE(same_bits(single.data(), out.data() + i * kHeads * kHeadDim, single.size()))
            << "node " << i;
      }
    }
  }

  // The order of the rows does not matter, even where the first ones see slots of a later block of keys.
  std::vector<float> reversed, reversed_out(out.size());
  for (int i = kNodes - 1; i >= 0; --i)
    reversed.insert(reversed.end(), rows.begin() + i * kWidth, rows.begin() + (i + 1) * kWidth);
  Flight backwards(kCommitted);
  for (int i = kNodes - 1; i >= 0; --i) backwards.add(paths[i]);
  backend->attention(reversed.data(), kHeads, kv, 0, backwards.rows(), reversed_out.data());
  for (int i = 0; i < kNodes; ++i) {
    EXPECT_TRUE(same_bits(reversed_out.data() + (kNodes - 1 - i) * kHeads * kHeadDim,
                          out.data() + i * kHeads * kHeadDim, kHeads * kHeadDim))
        << "node " << i;
  }

  // After keeping the path 0, 2, 4, the compacted cache gives the same row for node 5.
  const std::vector<std::int32_t> from{kCommitted, kCommitted + 2, kCommitted + 4, kCommitted + 5},
      to{kCommitted, kCommitted + 1, kCommitted + 2, kCommitted + 3};
  backend->move_slots(kv, from, to);
  const int kLast = kCommitted + 3;
  const Flight view = Flight::chain(kLast, 1);
  std::vector<float> moved(kHeads * kHeadDim);
  backend->attention(rows.data() + 5 * kWidth, kHeads, kv, 0, view.rows(), moved.data());
  EXPECT_TRUE(same_bits(moved.data(), out.data() + 5 * kHeads * kHeadDim, moved.size()));
  KvStore copy = backend->allocate_kv(kv.layers, kv.kv_heads, kv.head_dim, kv.slots + 32);
  backend->copy_kv(kv, kLast + 1, copy);
  backend->attention(rows.data() + 5 * kWidth, kHeads, copy, 0, view.rows(), out.data());
  EXPECT_TRUE(same_bits(moved.data(), out.data(), moved.size()));
}

// Scores beyond the range of exp(): the key with the largest score gets all weight.
TEST_P(Attention, ScoresMayBeLarge) {
  const auto backend = make_cpu_backend({1, numerics});
  constexpr int kHeadDim = 16, kWidth = 3 * kHeadDim;
  const std::vector<float> cos(kHeadDim, 1.0f), sin(kHeadDim, 0.0f);
  std::vector<float> rows(2 * kWidth), out(kHeadDim);  // q, k and v of two positions; key 1 is the larger one
  for (int i = 0; i < kHeadDim; ++i) {
    rows[kWidth + i] = 100;
    rows[kHeadDim + i] = 50, rows[kWidth + kHeadDim + i] = 60;
    rows[2 * kHeadDim + i] = 1, rows[kWidth + 2 * kHeadDim + i] = 2;
  }
  KvStore kv = backend->allocate_kv(1, 1, kHeadDim, 2);
  backend->rope_and_store(rows.data(), 1, {cos.data(), sin.data(), kHeadDim}, Flight::chain(0, 2).rows(), kv,
                          0);
  const Flight last = Flight::chain(1, 1);
  backend->attention(rows.data() + kWidth, 1, kv, 0, last.rows(), out.data());
  EXPECT_EQ(out, std::vector<float>(kHeadDim, 2.0f));
}

// With windows that begin anywhere and with capped scores, the rows of a chain equal single rows, and the
// processor's instructions give the bits of their emulation.
TEST(AttentionInProducts, WindowsCapsAndTheRealInstructions) {
  constexpr int kHeads = 4, kHeadDim = 48, kWidth = (kHeads + 2) * kHeadDim, kCommitted = 203, kRows = 20;
  const std::vector<float> cos(kHeadDim * 256, 1.0f), sin(kHeadDim * 256, 0.0f);
  const auto all = normal_numbers((kCommitted + kRows) * kWidth, 31);
  const auto attend = [&](const std::string& numerics, const AttentionForm& form, int first, int rows,
                          int threads) {
    const auto backend = make_cpu_backend({threads, numerics});
    KvStore kv = backend->allocate_kv(1, 1, kHeadDim, kCommitted + kRows);
    auto history = all;
    backend->rope_and_store(history.data(), kHeads, {cos.data(), sin.data(), kHeadDim},
                            Flight::chain(0, first + rows).rows(), kv, 0);
    std::vector<float> out(static_cast<std::size_t>(rows) * kHeads * kHeadDim);
    const Flight chain = Flight::chain(first, rows);
    backend->attention(history.data() + first * kWidth, kHeads, kv, 0, chain.rows(), out.data(), form);
    return out;
  };
  for (const AttentionForm form :
       {AttentionForm{}, AttentionForm{.window = 37}, AttentionForm{.soft_cap = 5.0f, .window = 64}}) {
    const auto emulated = attend("avx512-bf16-emulated", form, kCommitted, kRows, 1);
    for (int i = 0; i < kRows; ++i) {
      const auto single = attend("avx512-bf16-emulated", form, kCommitted + i, 1, 1);
      EXPECT_TRUE(same_bits(single.data(), emulated.data() + i * kHeads * kHeadDim, single.size()))
          << "row " << i << " window " << form.window;
    }
    if (!cpu::supported(cpu::Bf16Unit::kAvx512)) continue;
    for (const int threads : {1, 3}) {
      const auto real = attend("avx512-bf16", form, kCommitted, kRows, threads);
      EXPECT_TRUE(same_bits(real.data(), emulated.data(), real.size()))
          << threads << " threads, window " << form.window;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Classes, Attention, testing::ValuesIn(cache_cases()), [](const auto& info) {
  std::string name = info.param.numerics + "_" + std::to_string(info.param.head_dim) + "_" +
                     std::to_string(info.param.committed);
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

}  // namespace
}  // namespace speclab::cpu_attention_test
