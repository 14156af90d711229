#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "core/backend/cuda_kernels.h"
#include "core/backend/device_program.h"
#include "core/base/bf16.h"
#include "tests/backend/cuda/flight.h"
#include "tests/backend/numbers.h"
#include "tests/backend/there.h"

// How many kernels a forward launches. Launches that are fused have the bits of separate launches.

namespace speclab::launches_test {
namespace {

using namespace speclab::fixtures;

/// Names of the launches that `operations` records. Nothing runs.
std::vector<std::string> launched(Backend& backend, const std::function<void()>& operations) {
  std::vector<std::string> names;
  const auto graph = backend.device_program()->record(false, operations);
  for (const GraphNode& node : graph->nodes) names.emplace_back(node.kernel);
  return names;
}

struct Decoder {
  int layers, hidden, heads, kv_heads, head_dim, ffn, vocab;
};
constexpr Decoder kSmolLm2_135m{30, 576, 9, 3, 64, 1536, 49152},
    kLlama32_1b{16, 2048, 32, 8, 64, 8192, 128256}, kLlama31_8b{32, 4096, 32, 8, 128, 14336, 128256};

/// The operations of a forward (Transformer) with matrices of the right sizes that have no contents.
std::vector<std::string> forward(const Decoder& d, int rows, int committed) {
  const auto backend = make_cuda_backend({.simulated = true});
  pack(*backend, 16, 512, std::vector<Bf16>(16 * 512));  // makes room where the slices of many rows meet
  const auto matrix = [](int out, int in) { return PackedMatrix{out, in, nullptr, 0}; };
  const int query = d.heads * d.head_dim, kv_width = d.kv_heads * d.head_dim;
  const PackedMatrix table = matrix(d.vocab, d.hidden), qkv = matrix(query + 2 * kv_width, d.hidden),
                     out = matrix(d.hidden, query), up = matrix(2 * d.ffn, d.hidden),
                     down = matrix(d.hidden, d.ffn);
  KvStore kv{d.layers, d.kv_heads, d.head_dim, committed + rows, 0, nullptr, 0};
  const float weight = 1;
  float x[1], projected[1];
  const NormForm norm{false, &weight, nullptr, 1e-5f};
  const Rotation rotation{x, x, d.head_dim};
  RowsInFlight in_flight;
  in_flight.n = rows;
  in_flight.committed = committed;
  return launched(*backend, [&] {
    backend->gather(table, nullptr, rows, x);
    for (int layer = 0; layer < d.layers; ++layer) {
      backend->norm_linear(norm, x, qkv, rows, nullptr, projected);
      backend->rope_and_store(projected, d.heads, rotation, in_flight, kv, layer);
      backend->attention_linear(projected, d.heads, kv, layer, in_flight, {}, out, nullptr, x, true);
      backend->feed_forward(norm, x, {&up, nullptr, Activation::kSilu, true, &down}, rows, nullptr, nullptr,
                            nullptr, x, true);
    }
    backend->copy_rows(x, nullptr, rows, d.hidden, x);
    backend->rms_norm(x, &weight, 1e-5f, rows, d.hidden, x);
    backend->linear(table, x, rows, x, false);
  });
}

// Without fusing, a layer has seven launches at one row. With more rows the norms are launches of their own.
TEST(Launches, OfAForward) {
  const std::size_t ends = 5;  // gather, copy_rows, rms_norm, round_rows, linear
  for (const Decoder& d : {kSmolLm2_135m, kLlama31_8b}) {
    const auto layers = static_cast<std::size_t>(d.layers);
    EXPECT_EQ(forward(d, 1, 100).size(), layers * 5 + ends);
    EXPECT_EQ(forward(d, 1, 1023).size(), layers * 5 + ends);
    EXPECT_EQ(forward(d, 1, 1024).size(), layers * 6 + ends);  // nine splits are added up once
    EXPECT_EQ(forward(d, 5, 100).size(), layers * 8 + ends);   // every row has splits of its own
    EXPECT_EQ(forward(d, 32, 100).size(), layers * 9 + ends);  // linear_many.h fuses only the activation
  }
  EXPECT_EQ(forward(kSmolLm2_135m, 1, 100).size(), 155u);
  EXPECT_EQ(forward(kLlama31_8b, 1, 100).size(), 165u);
  // Here the product before the rotation has eight slices, so a block has one tile of outputs (can_rotate).
  EXPECT_EQ(forward(kLlama32_1b, 1, 100).size(), 16 * 6 + ends);
  std::map<std::string, int> counts;
  for (const std::string& name : forward(kSmolLm2_135m, 1, 100)) ++counts[name];
  EXPECT_EQ(counts, (std::map<std::string, int>{{"gather", 1},
                                                {"linear_few", 4 * 30 + 1},
                                                {"attention_splits", 30},
                                                {"copy_rows", 1},
                                                {"rms_norm", 1},
                                                {"round_rows", 1}}));
}

// Every operation runs, in order, although the backend may hold one back to fuse it with the next.
TEST(Launches, AProductThatNothingFollowsIsLaunched) {
  const auto backend = make_cuda_backend({.simulated = true});
  const PackedMatrix w{96, 64, nullptr, 0};
  float x[1];
  EXPECT_EQ(launched(*backend, [&] { backend->linear(w, x, 1, x, false); }),
            (std::vector<std::string>{"round_rows", "linear_few"}));
  const NormForm norm{false, x, nullptr, 1e-5f};
  EXPECT_EQ(launched(*backend,
                     [&] {
                       backend->norm_linear(norm, x, w, 1, nullptr, x);
                       backend->norm_linear(norm, x, w, 1, nullptr, x);
                       backend->soft_cap(1, 1, 64, x);
                     }),
            (std::vector<std::string>{"linear_few", "linear_few", "elementwise"}));
}

class FusedLaunches : public testing::TestWithParam<int> {};

// A submit() between two operations keeps them from being fused.
TEST_P(FusedLaunches, HaveTheBitsOfSeparateOnes) {
  const int rows = GetParam(), hidden = 256, heads = 4, kv_heads = 2, head_dim = 64, committed = 130,
            width = (heads + 2 * kv_heads) * head_dim;
  const auto numbers = [](int count, unsigned seed) {
    return normal_numbers(static_cast<std::size_t>(count), seed);
  };
  const auto run = [&](bool separate, std::size_t& launches) {
    const auto backend = make_cuda_backend({.simulated = true});
    There there(*backend);
    const auto matrix = [&](int out, int in, unsigned seed) {
      std::vector<Bf16> rounded;
      for (const float each : numbers(out * in, seed)) rounded.push_back(float_to_bf16(each));
      return pack(*backend, out, in, rounded);
    };
    const PackedMatrix qkv = matrix(width, hidden, 1), out = matrix(hidden, heads * head_dim, 2);
    KvStore kv = backend->allocate_kv(1, kv_heads, head_dim, committed + rows);
    const auto prompt = there.floats(numbers(committed * width, 3));
    backend->rope_and_store(prompt, heads, {}, there.rows(Flight::chain(0, committed)), kv, 0);
    const float *x = there.floats(numbers(rows * hidden, 4)), *weight = there.floats(numbers(hidden, 5)),
                *cos = there.floats(numbers((committed + rows) * head_dim / 2, 6)),
                *sin = there.floats(numbers((committed + rows) * head_dim / 2, 7));
    float *projected = there.floats(numbers(rows * width, 8)), *y = there.floats(numbers(rows * hidden, 9)),
          *attended = there.floats(numbers(rows * heads * head_dim, 10));
    const RowsInFlight in_flight = there.rows(Flight::chain(committed, rows));
    const auto graph = backend->device_program()->record(false, [&] {
      backend->norm_linear({false, weight, nullptr, 1e-5f}, x, qkv, rows, nullptr, projected);
      if (separate) backend->submit();
      backend->rope_and_store(projected, heads, {cos, sin, head_dim}, in_flight, kv, 0);
      if (separate) {
        backend->attention(projected, heads, kv, 0, in_flight, attended);
        backend->linear(out, attended, rows, y, true);
      } else {
        backend->attention_linear(projected, heads, kv, 0, in_flight, {}, out, nullptr, y, true);
      }
    });
    backend->device_program()->replay(*graph);
    launches = graph->nodes.size();
    std::vector<float> all = there.back(projected, static_cast<std::size_t>(rows * width));
    const std::vector<float> sum = there.back(y, static_cast<std::size_t>(rows * hidden));
    all.insert(all.end(), sum.begin(), sum.end());
    std::vector<Bf16> kept(kv.bytes / sizeof(Bf16));
    backend->download(kv.data.get(), kv.bytes, kept.data());
    for (const Bf16 each : kept) all.push_back(bf16_to_float(each));
    return all;
  };
  std::size_t apart = 0, together = 0;
  const std::vector<float> expected = run(true, apart), got = run(false, together);
  ASSERT_EQ(got.size(), expected.size());
  EXPECT_TRUE(same_bits(got.data(), expected.data(), got.size()));
  // Separate launches: one of them rounds the attended rows.
  EXPECT_EQ(apart - together, rows == 1 ? 3u : 2u);
}
INSTANTIATE_TEST_SUITE_P(Rows, FusedLaunches, testing::Values(1, 3, 8, 9, 16));

}  // namespace
}  // namespace speclab::launches_test
