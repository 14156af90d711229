#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <ostream>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "core/backend/backend.h"
#include "core/base/error.h"
#include "tests/backend/numbers.h"
#include "tests/backend/there.h"

// Compares the operations of the GPU backend on its simulated GPU with the CPU and with double precision. The
// kernels are those that nvcc compiles. scripts/gpu_check.sh tests what only a GPU can show: its matrix unit
// and its races.

namespace speclab::cuda_backend_test {
namespace {

using namespace speclab::fixtures;

float stored(float value) { return bf16_to_float(float_to_bf16(value)); }

struct AttentionCase {
  const char* name;
  int heads, kv_heads, head_dim, committed;
  AttentionForm form;
};
std::ostream& operator<<(std::ostream& out, const AttentionCase& c) { return out << c.name; }

class SimulatedAttention : public testing::TestWithParam<AttentionCase> {};

// A prompt, and a tree after it whose paths cross a split. Its rows agree with double precision, and have the
// bits of its chains.
TEST_P(SimulatedAttention, AgreesWithDoubleAndTreeEqualsChains) {
  const AttentionCase c = GetParam();
  const auto backend = make_cuda_backend({.simulated = true});
  There there(*backend);
  const int width = (c.heads + 2 * c.kv_heads) * c.head_dim, out_width = c.heads * c.head_dim,
            slots = c.committed + 8;
  // parent: 0 is the root, 1 and 2 below it, 3 below 1, 4 below 2, 5 below 4, 6 below 3
  const std::vector<int> parent{-1, 0, 0, 1, 2, 4, 3};
  const int nodes = static_cast<int>(parent.size());
  const auto text = normal_numbers(static_cast<std::size_t>((c.committed + nodes) * width), 9);
  const auto fill = [&](KvStore& kv) {
    float* rows = there.floats({text.begin(), text.begin() + c.committed * width});
    backend->rope_and_store(rows, c.heads, {}, there.rows(Flight::chain(0, c.committed)), kv, 0);
  };
  KvStore kv = backend->allocate_kv(1, c.kv_heads, c.head_dim, slots);
  fill(kv);
  std::vector<std::vector<std::int32_t>> paths(parent.size());
  Flight flight(c.committed);
  for (int i = 0; i < nodes; ++i) {
    if (parent[i] >= 0) paths[i] = paths[parent[i]];
    paths[i].push_back(c.committed + i);
    flight.add(paths[i]);
  }
  const std::vector<float> tree(text.begin() + c.committed * width, text.end());
  float* rows = there.floats(tree);
  const RowsInFlight in_flight = there.rows(flight);
  backend->rope_and_store(rows, c.heads, {}, in_flight, kv, 0);
  float* mixed = there.room(static_cast<std::size_t>(nodes * out_width));
  backend->attention(rows, c.heads, kv, 0, in_flight, mixed, c.form);
  const auto out = there.back(mixed, static_cast<std::size_t>(nodes * out_width));
  // The device reads the number of keys; the host only knows a bound.
  RowsInFlight bounded = in_flight;
  bounded.committed = c.committed + 300;
  bounded.committed_at = there.integers({c.committed});
  float* again = there.room(static_cast<std::size_t>(nodes * out_width));
  backend->attention(rows, c.heads, kv, 0, bounded, again, c.form);
  ASSERT_TRUE(same_bits(there.back(again, out.size()).data(), out.data(), out.size()));

  const double scale = c.form.scale > 0 ? c.form.scale : 1 / std::sqrt(double(c.head_dim));
  for (int i = 0; i < nodes; ++i) {
    std::vector<std::int32_t> seen(static_cast<std::size_t>(c.committed));  // rows of the text by position
    std::iota(seen.begin(), seen.end(), 0);
    seen.insert(seen.end(), paths[i].begin(), paths[i].end());
    const int position = static_cast<int>(seen.size()) - 1,
              first = c.form.window > 0 ? std::max(0, position - c.form.window + 1) : 0;
    for (int head = 0; head < c.heads; ++head) {
      const int kv_head = head / (c.heads / c.kv_heads);
      const float* q = tree.data() + i * width + head * c.head_dim;
      std::vector<double> expected(static_cast<std::size_t>(c.head_dim));
      double total = 0;
      for (int p = first; p <= position; ++p) {
        const float* k = text.data() + seen[p] * width + (c.heads + kv_head) * c.head_dim;
        double score = 0;
        for (int d = 0; d < c.head_dim; ++d) score += scale * q[d] * stored(k[d]);
        if (c.form.soft_cap > 0) score = c.form.soft_cap * std::tanh(score / c.form.soft_cap);
        total += std::exp(score);
        for (int d = 0; d < c.head_dim; ++d)
          expected[d] += std::exp(score) * stored(k[c.kv_heads * c.head_dim + d]);
      }
      for (int d = 0; d < c.head_dim; ++d)
        ASSERT_NEAR(out[i * out_width + head * c.head_dim + d], expected[d] / total, 1e-5)
            << "node " << i << ", head " << head;
    }
    // The path as single tokens, in another cache.
    KvStore alone = backend->allocate_kv(1, c.kv_heads, c.head_dim, slots);
    fill(alone);
    float* single = there.room(static_cast<std::size_t>(out_width));
    for (std::size_t step = 0; step < paths[i].size(); ++step) {
      const float* from = text.data() + paths[i][step] * width;
      float* row = there.floats({from, from + width});
      const RowsInFlight one = there.rows(Flight::chain(c.committed + static_cast<int>(step), 1));
      backend->rope_and_store(row, c.heads, {}, one, alone, 0);
      backend->attention(row, c.heads, alone, 0, one, single, c.form);
    }
    ASSERT_TRUE(same_bits(there.back(single, static_cast<std::size_t>(out_width)).data(),
                          out.data() + i * out_width, static_cast<std::size_t>(out_width)))
        << "node " << i;
  }

  // Keeps the path 0, 2, 4 and asks for node 5 again, here and in a copy with other slots.
  backend->move_slots(
      kv, std::vector<std::int32_t>{c.committed, c.committed + 2, c.committed + 4, c.committed + 5},
      std::vector<std::int32_t>{c.committed, c.committed + 1, c.committed + 2, c.committed + 3});
  KvStore copy = backend->allocate_kv(1, c.kv_heads, c.head_dim, slots + 33);
  backend->copy_kv(kv, c.committed + 4, copy);
  const RowsInFlight last = there.rows(Flight::chain(c.committed + 3, 1));
  for (const KvStore* store : {&kv, &copy}) {
    float* moved = there.room(static_cast<std::size_t>(out_width));
    backend->attention(rows + 5 * width, c.heads, *store, 0, last, moved, c.form);
    EXPECT_TRUE(same_bits(there.back(moved, static_cast<std::size_t>(out_width)).data(),
                          out.data() + 5 * out_width, static_cast<std::size_t>(out_width)));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Cases, SimulatedAttention,
    testing::Values(AttentionCase{"groups of three, a split begun", 6, 2, 24, 43, {}},
                    AttentionCase{"one head, across a split", 1, 1, 10, 126, {}},
                    AttentionCase{"four heads, from a third split on", 4, 4, 8, 256, {.3f, 0, 0}},
                    AttentionCase{"soft cap and a window over two splits", 2, 1, 20, 140, {0, 2, 20}},
                    AttentionCase{"a window within the path", 3, 1, 16, 130, {0, 0, 2}},
                    AttentionCase{"no prompt", 8, 2, 136, 0, {}},
                    AttentionCase{"a group beyond a tile, two blocks of tiles", 24, 1, 16, 130, {}},
                    AttentionCase{"a long context, sixteen splits and more", 2, 1, 8, 2100, {}}),
    [](const auto& info) { return "case_" + std::to_string(info.index); });

// Rotation and stored keys and values have the bits of the CPU.
TEST(SimulatedGpu, RotatesAsTheCpuDoes) {
  const auto backend = make_cuda_backend({.simulated = true}), cpu = make_cpu_backend({1, "f32-kv16"});
  There there(*backend);
  constexpr int kHeads = 3, kKvHeads = 1, kDim = 20, kWidth = (kHeads + 2 * kKvHeads) * kDim, kRows = 5,
                kPositions = 9;
  for (const int turned : {kDim, 6, 0}) {
    const auto angles = normal_numbers(static_cast<std::size_t>(kPositions * turned / 2 + 1), 3);
    std::vector<float> cos = angles, sin = angles;
    for (float& angle : cos) angle = std::cos(angle);
    for (float& angle : sin) angle = std::sin(angle);
    const Flight flight = Flight::chain(0, kRows);
    std::vector<float> host = normal_numbers(kRows * kWidth, 4);
    float* rows = there.floats(host);
    KvStore kv = backend->allocate_kv(2, kKvHeads, kDim, 12),
            cpu_kv = cpu->allocate_kv(2, kKvHeads, kDim, 12);
    backend->rope_and_store(rows, kHeads, {there.floats(cos), there.floats(sin), turned}, there.rows(flight),
                            kv, 1);
    cpu->rope_and_store(host.data(), kHeads, {cos.data(), sin.data(), turned}, flight.rows(), cpu_kv, 1);
    EXPECT_TRUE(same_bits(there.back(rows, host.size()).data(), host.data(), host.size())) << turned;
    // With one visible key, attention returns its stored value.
    float* mixed = there.room(kHeads * kDim);
    backend->attention(rows + 2 * kWidth, kHeads, kv, 1, there.rows(Flight::chain(2, 1)), mixed, {0, 0, 1});
    const auto out = there.back(mixed, kHeads * kDim);
    for (int i = 0; i < kHeads * kDim; ++i)
      EXPECT_EQ(out[i], stored(host[2 * kWidth + (kHeads + 1) * kDim + i % kDim]));
  }
}

TEST(SimulatedGpu, CopiesRowsAndFillsColumns) {
  const auto backend = make_cuda_backend({.simulated = true});
  There there(*backend);
  constexpr int kRows = 6, kWidth = 300;
  const auto x = normal_numbers(kRows * kWidth, 5);
  const std::vector<std::int32_t> wanted{5, 0, 3};
  float* from = there.floats(x);
  float* to = there.room(wanted.size() * kWidth);
  backend->copy_rows(from, there.integers(wanted), 3, kWidth, to);
  const auto copied = there.back(to, wanted.size() * kWidth);
  for (std::size_t i = 0; i < wanted.size(); ++i)
    EXPECT_TRUE(same_bits(copied.data() + i * kWidth, x.data() + wanted[i] * kWidth, kWidth));
  backend->fill_columns(-1, 17, kRows, kWidth, from);
  const auto filled = there.back(from, x.size());
  for (int i = 0; i < kRows * kWidth; ++i) ASSERT_EQ(filled[i], i % kWidth < 17 ? x[i] : -1) << i;
}

// An operation that is fused with the linear layer after it has the bits of both in sequence, also in parts.
TEST(SimulatedGpu, LinearLayersWithTheirInputsHaveTheBitsOfBoth) {
  const auto backend = make_cuda_backend({.simulated = true});
  There there(*backend);
  constexpr int kIn = 45, kOut = 20;  // partial tiles
  const auto matrix = backend->pack(kOut, kIn, [](int begin, int end, Bf16* rows) {
    for (int i = begin * kIn; i < end * kIn; ++i) *rows++ = float_to_bf16(std::sin(static_cast<float>(i)));
  });
  const float* weight = there.floats(normal_numbers(kIn, 1));
  const float* bias = there.floats(normal_numbers(kIn, 2));
  for (const int rows : {1, 5, 130}) {
    SCOPED_TRACE(rows);
    const auto count = static_cast<std::size_t>(rows);
    const float* x = there.floats(normal_numbers(count * 2 * kIn, 3));
    const std::vector<float> before = normal_numbers(count * kOut, 4);
    float* scratch = there.room(count * kIn);
    const auto expect_same = [&](const auto& apart, const auto& together) {
      float* first = there.floats(before);
      float* second = there.floats(before);
      apart(first);
      together(second);
      EXPECT_TRUE(same_bits(there.back(first, before.size()).data(), there.back(second, before.size()).data(),
                            before.size()));
    };
    for (const bool layer : {false, true}) {
      const NormForm norm{layer, weight, layer ? bias : nullptr, 1e-5f};
      expect_same([&](float* y) { backend->Backend::norm_linear(norm, x, matrix, rows, scratch, y); },
                  [&](float* y) { backend->norm_linear(norm, x, matrix, rows, scratch, y); });
    }
    for (const bool gated : {false, true}) {
      expect_same(
          [&](float* y) {
            backend->Backend::activate_linear(Activation::kSilu, gated, x, matrix, rows, scratch, y, gated);
          },
          [&](float* y) {
            backend->activate_linear(Activation::kSilu, gated, x, matrix, rows, scratch, y, gated);
          });
    }
    constexpr int kHeads = 9, kKvHeads = 3, kDim = 5, kWidth = (kHeads + 2 * kKvHeads) * kDim;
    KvStore kv = backend->allocate_kv(1, kKvHeads, kDim, rows);
    float* qkv = there.floats(normal_numbers(count * kWidth, 5));
    const RowsInFlight in_flight = there.rows(Flight::chain(0, rows));
    backend->rope_and_store(qkv, kHeads, {}, in_flight, kv, 0);
    expect_same(
        [&](float* y) {
          backend->Backend::attention_linear(qkv, kHeads, kv, 0, in_flight, {}, matrix, scratch, y, true);
        },
        [&](float* y) {
          backend->attention_linear(qkv, kHeads, kv, 0, in_flight, {}, matrix, scratch, y, true);
        });
  }
}

// The kernel of the product multiplies gate and up; with the sum over k in one slice and in four, for few
// rows and many.
TEST(SimulatedGpu, FeedForwardHasTheBitsOfItsOperations) {
  const auto backend = make_cuda_backend({.simulated = true});
  There there(*backend);
  constexpr int kWidth = 64, kOut = 20;
  const auto pack = [&](int out, int in) {
    return backend->pack(out, in, [in](int begin, int end, Bf16* rows) {
      for (int i = begin * in; i < end * in; ++i)
        *rows++ = float_to_bf16(std::sin(static_cast<float>(i)) / 16);
    });
  };
  const auto down = pack(kOut, kWidth);
  for (const int in : {45, 520, 2100}) {
    const auto up = pack(2 * kWidth, in);
    const float* weight = there.floats(normal_numbers(static_cast<std::size_t>(in), 1));
    const float* bias = there.floats(normal_numbers(2 * kWidth, 2));
    for (const auto& [rows, function, biased] :
         {std::tuple{1, Activation::kSilu, false}, std::tuple{9, Activation::kGelu, true},
          std::tuple{20, Activation::kGeluTanh, true}, std::tuple{130, Activation::kRelu, false}}) {
      SCOPED_TRACE(testing::Message() << rows << " rows of " << in);
      const auto count = static_cast<std::size_t>(rows);
      const float* x = there.floats(normal_numbers(count * static_cast<std::size_t>(in), 3));
      const FeedForward form{&up, biased ? bias : nullptr, function, true, &down};
      const NormForm norm = rows == 9 ? NormForm{} : NormForm{false, weight, nullptr, 1e-5f};
      const std::vector<float> before = normal_numbers(count * kOut, 4);
      float* first = there.floats(before);
      float* second = there.floats(before);
      float* scratch[] = {there.room(count * static_cast<std::size_t>(in)), there.room(count * 2 * kWidth),
                          there.room(count * kWidth)};
      backend->Backend::feed_forward(norm, x, form, rows, scratch[0], scratch[1], scratch[2], first, true);
      backend->feed_forward(norm, x, form, rows, scratch[0], scratch[1], scratch[2], second, true);
      EXPECT_TRUE(same_bits(there.back(first, before.size()).data(), there.back(second, before.size()).data(),
                            before.size()));
    }
  }
}

// Memory of the device is only accessed through uploads and downloads.
TEST(SimulatedGpu, MemoryIsApart) {
  const auto backend = make_cuda_backend({.simulated = true});
  EXPECT_EQ(backend->name(), "host-simt");
  EXPECT_EQ(backend->numerics_class(), "host-simt");
  EXPECT_FALSE(backend->host_memory());
  std::vector<float> host{1, 2, 3};
  const float* place = host.data();
  const Buffer<float> kept = backend->keep(host);
  EXPECT_NE(kept.data(), place);
  float back[3] = {};
  backend->download(kept.data(), sizeof back, back);
  EXPECT_EQ(back[2], 3);
  const std::vector<std::int32_t> ids{4, 5};
  Buffer<std::int32_t> staged;
  const std::int32_t* there = backend->stage(ids, staged);
  EXPECT_EQ(there, staged.data());
  std::int32_t again[2] = {};
  backend->download(there, sizeof again, again);
  EXPECT_EQ(again[1], 5);
}

// Without a GPU, the message says what is missing and what works instead. With one, it works.
TEST(CudaBackend, SaysWhyThereIsNoGpu) {
  const std::string reason = gpu_absent();
  if (reason.empty()) {
    EXPECT_EQ(make_cuda_backend({})->name(), "cuda");
    EXPECT_THROW(make_cuda_backend({.device = 1000}), Error);
    return;
  }
  try {
    make_cuda_backend({});
    FAIL() << "made a backend without a GPU";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find(reason), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("host-simt"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace speclab::cuda_backend_test
