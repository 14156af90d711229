#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "tests/backend/numbers.h"
#include "tests/backend/there.h"
#include "tests/on_device/on_device.h"

// Compares every operation of Backend with the CPU backend, and checks that a row has the same bits for every
// number of rows.

namespace speclab::on_device::operations_test {
namespace {

using fixtures::same_bits;

std::size_t at(long long i) { return static_cast<std::size_t>(i); }

/// Reproducible numbers that any thread can compute: standard normal except for the tails.
float number(std::uint64_t i) {
  std::uint64_t x = (i + 1) * 0x9e3779b97f4a7c15u;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
  x = (x ^ x >> 27) * 0x94d049bb133111ebu;
  x ^= x >> 31;
  float sum = 0;
  for (int part = 0; part < 4; ++part) sum += static_cast<float>(x >> (16 * part) & 0xffff) * 0x1p-16f - .5f;
  return sum * 1.7320508f;
}
std::vector<float> numbers(std::size_t count, std::uint64_t seed) {
  std::vector<float> out(count);
  for (std::size_t i = 0; i < count; ++i) out[i] = number(i + (seed << 40));
  return out;
}
/// Numbers that bf16 holds exactly.
std::vector<float> rounded(std::vector<float> x) {
  for (float& value : x) value = bf16_to_float(float_to_bf16(value));
  return x;
}
std::vector<float> magnitudes(std::vector<float> x) {
  for (float& value : x) value = std::abs(value);
  return x;
}

PackedMatrix matrix(Backend& backend, int out, int in, bool magnitude = false) {
  return backend.pack(out, in, [in, magnitude](int begin, int end, Bf16* rows) {
    const auto first = at(begin) * at(in), count = at(end - begin) * at(in);
    for (std::size_t i = 0; i < count; ++i) {
      const float value = number(first + i);
      rows[i] = float_to_bf16(magnitude ? std::abs(value) : value);
    }
  });
}

struct MatrixShape {
  int out, in;
};
/// On a GPU the shapes of SmolLM2-135M and of Llama-3.1-8B; otherwise small shapes with every number of
/// slices.
std::vector<MatrixShape> matrix_shapes() {
  if (on_gpu())
    return {{1, 1},       {50, 70},     {960, 576},   {3072, 576},   {576, 1536},
            {49152, 576}, {6144, 4096}, {4096, 4096}, {28672, 4096}, {4096, 14336}};
  return {{1, 1}, {50, 70}, {33, 300}};
}
/// Numbers of rows on both sides of every bucket boundary; on a GPU all numbers.
std::vector<int> row_counts() {
  std::vector<int> counts{1, 2, 7, 8, 9, 16, 17, 24, 25, 32, 33, 48, 49, 64, 65, 96, 97, 128};
  if (on_gpu()) {
    counts.clear();
    for (int n = 1; n <= 128; ++n) counts.push_back(n);
  }
  return counts;
}

class OnDeviceOperations : public OnDevice {};
class OnDeviceRows : public OnDevice {};

// CPU and device sum floats in different orders: each is within (k + 10) 2^-24 sum |a b| of the true value.
TEST_F(OnDeviceOperations, LinearIsWithinTheBoundOfTheCpu) {
  for (const auto& [out, in] : matrix_shapes()) {
    const PackedMatrix there = matrix(*backend(), out, in), here = matrix(*cpu(), out, in),
                       sizes = matrix(*cpu(), out, in, true);
    for (const int rows : {1, 5, 16, 33, 130}) {
      if (!on_gpu() && rows > 5 && in > 70) continue;
      SCOPED_TRACE(testing::Message() << rows << " rows by [" << out << ", " << in << "]");
      const std::vector<float> x = rounded(numbers(at(rows) * at(in), 1)),
                               before = numbers(at(rows) * at(out), 2);
      for (const bool accumulate : {false, true}) {
        There memory(*backend());
        float* y = memory.floats(before);
        backend()->linear(there, memory.floats(x), rows, y, accumulate);
        const std::vector<float> got = memory.back(y, before.size());
        std::vector<float> expected = before, size = magnitudes(before);
        cpu()->linear(here, x.data(), rows, expected.data(), accumulate);
        cpu()->linear(sizes, magnitudes(x).data(), rows, size.data(), accumulate);
        for (std::size_t i = 0; i < got.size(); ++i)
          ASSERT_NEAR(got[i], expected[i], 2 * (in + 10) * 0x1p-24 * size[i])
              << "row " << i / at(out) << ", output " << i % at(out);
      }
    }
  }
}

TEST_F(OnDeviceRows, LinearHasTheSameBitsForEveryNumberOfRows) {
  constexpr int kRows = 128;
  for (const auto& [out, in] : matrix_shapes()) {
    const PackedMatrix w = matrix(*backend(), out, in);
    There memory(*backend());
    const float* x = memory.floats(numbers(kRows * at(in), 3));
    float* y = memory.room(kRows * at(out));
    for (int row = 0; row < kRows; ++row)
      backend()->linear(w, x + at(row) * at(in), 1, y + at(row) * at(out), false);
    const std::vector<float> alone = memory.back(y, kRows * at(out));
    float* together = memory.room(kRows * at(out));
    for (const int rows : row_counts()) {
      backend()->fill_columns(0, 0, rows, out, together);
      backend()->linear(w, x, rows, together, false);
      const std::vector<float> got = memory.back(together, at(rows) * at(out));
      for (int row = 0; row < rows; ++row) {
        ASSERT_TRUE(same_bits(got.data() + at(row) * at(out), alone.data() + at(row) * at(out), at(out)))
            << "row " << row << " of " << rows << " by [" << out << ", " << in << "]";
      }
    }
  }
}

/// The arguments of an operation, all in memory of the backend.
struct Given {
  int n;
  const float* x;                     ///< [n, in]
  const float *weight, *bias;         ///< [in]
  const std::int32_t *tokens, *rows;  ///< [n]; `rows` are 0, 1, ...
  float* y;                           ///< [n, out]; holds x before if both have the same width
};
struct RowOperation {
  const char* name;
  int in, out;
  double bound;  ///< bound of the difference to the CPU relative to max(1, value); 0: the same bits
  std::function<void(Backend&, const Given&)> run;
};

std::vector<RowOperation> row_operations() {
  const int d = size(75, 4096), heads = 3, width = heads * 25, vocab = size(90, 5000);
  const auto table = std::make_shared<std::pair<PackedMatrix, PackedMatrix>>(matrix(*backend(), vocab, d),
                                                                             matrix(*cpu(), vocab, d));
  constexpr double kSums = 80 * 0x1p-24, kCurves = 32 * 0x1p-24;
  std::vector<RowOperation> all{
      {"rms_norm", d, d, kSums,
       [d](Backend& b, const Given& g) { b.rms_norm(g.x, g.weight, 1e-5f, g.n, d, g.y); }},
      {"layer_norm", d, d, kSums,
       [d](Backend& b, const Given& g) { b.layer_norm(g.x, g.weight, g.bias, 1e-5f, g.n, d, g.y); }},
      {"rms_norm_heads", width, width, kSums,
       [=](Backend& b, const Given& g) {
         b.rms_norm_heads(g.y, width, heads, g.weight, 1e-6f, g.n, width / heads);
       }},
      {"silu_multiply", 2 * d, d, kCurves,
       [d](Backend& b, const Given& g) { b.silu_multiply(g.x, g.n, d, g.y); }},
      {"add_bias", d, d, 0, [d](Backend& b, const Given& g) { b.add_bias(g.weight, g.n, d, g.y); }},
      {"add", d, d, 0, [d](Backend& b, const Given& g) { b.add(g.x, g.n, d, g.y); }},
      {"scale", d, d, 0, [d](Backend& b, const Given& g) { b.scale(.3f, g.n, d, g.y); }},
      {"soft_cap", d, d, kCurves, [d](Backend& b, const Given& g) { b.soft_cap(1.5f, g.n, d, g.y); }},
      {"fill_columns", d, d, 0, [d](Backend& b, const Given& g) { b.fill_columns(-2, 7, g.n, d, g.y); }},
      {"copy_rows", d, d, 0, [d](Backend& b, const Given& g) { b.copy_rows(g.x, g.rows, g.n, d, g.y); }},
      {"gather", d, d, 0,
       [=](Backend& b, const Given& g) {
         b.gather(b.host_memory() ? table->second : table->first, g.tokens, g.n, g.y);
       }},
  };
  for (const Activation f :
       {Activation::kSilu, Activation::kGelu, Activation::kGeluTanh, Activation::kRelu}) {
    for (const bool gated : {false, true}) {
      all.push_back({gated ? "activate, gated" : "activate", gated ? 2 * d : d, d, kCurves,
                     [=](Backend& b, const Given& g) { b.activate(f, gated, g.x, g.n, d, g.y); }});
    }
  }
  return all;
}

constexpr int kMostRows = 128;

/// Runs an operation on rows [first, first + n).
std::vector<float> rows_by(Backend& backend, const RowOperation& operation, int first, int n) {
  There memory(backend);
  static std::map<int, std::vector<float>> made;  // keyed by width
  std::vector<float>& x = made[operation.in];
  if (x.empty()) x = numbers(kMostRows * at(operation.in), 5);
  const auto part = [&](int row) {
    return x.begin() + static_cast<std::ptrdiff_t>(at(row) * at(operation.in));
  };
  const std::vector<float> given(part(first), part(first + n));
  std::vector<std::int32_t> tokens, rows;
  for (int i = 0; i < n; ++i) tokens.push_back((first + i) * 37 % size(90, 5000)), rows.push_back(i);
  float* y = operation.in == operation.out ? memory.floats(given) : memory.room(at(n) * at(operation.out));
  operation.run(backend, {n, memory.floats(given), memory.floats(numbers(at(operation.in), 6)),
                          memory.floats(numbers(at(operation.in), 7)), memory.integers(tokens),
                          memory.integers(rows), y});
  return memory.back(y, at(n) * at(operation.out));
}

TEST_F(OnDeviceOperations, RowsAreThoseOfTheCpu) {
  for (const RowOperation& operation : row_operations()) {
    const std::vector<float> got = rows_by(*backend(), operation, 0, 9),
                             expected = rows_by(*cpu(), operation, 0, 9);
    for (std::size_t i = 0; i < got.size(); ++i) {
      if (operation.bound == 0) {
        ASSERT_TRUE(same_bits(&got[i], &expected[i], 1))
            << operation.name << ": " << got[i] << " and " << expected[i] << " at " << i;
      }
      ASSERT_NEAR(got[i], expected[i], operation.bound * std::max(1.0f, std::abs(expected[i])))
          << operation.name << " at " << i;
    }
  }
}

TEST_F(OnDeviceRows, OperationsHaveTheSameBitsForEveryNumberOfRows) {
  const std::vector<int> counts = on_gpu() ? row_counts() : std::vector<int>{2, 9, 17};
  for (const RowOperation& operation : row_operations()) {
    std::vector<float> alone;
    for (int row = 0; row < counts.back(); ++row) {
      const std::vector<float> one = rows_by(*backend(), operation, row, 1);
      alone.insert(alone.end(), one.begin(), one.end());
    }
    for (const int n : counts) {
      const std::vector<float> together = rows_by(*backend(), operation, 0, n);
      ASSERT_TRUE(same_bits(together.data(), alone.data(), together.size()))
          << operation.name << ", rows " << n;
    }
  }
}

// A layer fused with the operation of its input has the bits of both in sequence, for every number of rows.
TEST_F(OnDeviceRows, LayersWithTheirInputHaveTheBitsOfTheOperationsApart) {
  const int d = size(64, 576), ffn = size(96, 1536);
  const PackedMatrix up = matrix(*backend(), 2 * ffn, d), down = matrix(*backend(), d, ffn);
  const FeedForward form{.up = &up, .function = Activation::kSilu, .gated = true, .down = &down};
  for (const int n : on_gpu() ? row_counts() : std::vector<int>{1, 9, 33}) {
    There memory(*backend());
    const auto rows = [n](int width) { return at(n) * at(width); };
    const float* x = memory.floats(numbers(rows(d), 15));
    const NormForm norm{.weight = memory.floats(numbers(at(d), 16)), .eps = 1e-5f};
    float *normed = memory.room(rows(d)), *raised = memory.room(rows(2 * ffn)),
          *activated = memory.room(rows(ffn)), *y = memory.room(rows(d));
    const auto same = [&](const float* a, const float* b, int width) {
      return same_bits(memory.back(a, rows(width)).data(), memory.back(b, rows(width)).data(), rows(width));
    };

    backend()->rms_norm(x, norm.weight, norm.eps, n, d, normed);
    backend()->linear(up, normed, n, raised, false);
    float *scratch = memory.room(rows(2 * ffn)), *together = memory.room(rows(2 * ffn));
    backend()->norm_linear(norm, x, up, n, scratch, together);
    EXPECT_TRUE(same(together, raised, 2 * ffn)) << "norm_linear, rows " << n;

    backend()->activate(form.function, true, raised, n, ffn, activated);
    backend()->linear(down, activated, n, y, false);
    float* out = memory.room(rows(d));
    backend()->activate_linear(form.function, true, raised, down, n, scratch, out, false);
    EXPECT_TRUE(same(out, y, d)) << "activate_linear, rows " << n;

    float* part = memory.room(rows(d));
    backend()->feed_forward(norm, x, form, n, memory.room(rows(d)), memory.room(rows(2 * ffn)),
                            memory.room(rows(ffn)), part, false);
    EXPECT_TRUE(same(part, y, d)) << "feed_forward, rows " << n;
  }
}

struct Heads {
  int heads, kv_heads, dim;
  int query() const { return heads * dim; }
  int width() const { return (heads + 2 * kv_heads) * dim; }
};

/// A cache filled with a text of rows, one at a time.
class Cache {
 public:
  Cache(Backend& backend, Heads heads, int slots, const std::vector<float>& rows)
      : memory_(backend),
        backend_(backend),
        heads_(heads),
        kv_(backend.allocate_kv(2, heads.kv_heads, heads.dim, slots)) {
    const int count = static_cast<int>(rows.size() / at(heads.width()));
    for (int first = 0; first < count; first += 128) {
      const int n = std::min(128, count - first);
      const auto begin = rows.begin() + static_cast<std::ptrdiff_t>(at(first) * at(heads.width()));
      put({begin, begin + static_cast<std::ptrdiff_t>(at(n) * at(heads.width()))}, Flight::chain(first, n));
    }
  }
  /// Attention of new rows, whose keys and values go into the cache. [n, heads * dim]
  std::vector<float> mixed(const std::vector<float>& rows, const Flight& flight,
                           const AttentionForm& form = {}) {
    float* there = put(rows, flight);
    const RowsInFlight in_flight = memory_.rows(flight);
    float* out = memory_.room(at(in_flight.n) * at(heads_.query()));
    backend_.attention(there, heads_.heads, kv_, 1, in_flight, out, form);
    return memory_.back(out, at(in_flight.n) * at(heads_.query()));
  }
  KvStore& kv() { return kv_; }

 private:
  float* put(const std::vector<float>& rows, const Flight& flight) {
    float* there = memory_.floats(rows);
    backend_.rope_and_store(there, heads_.heads, {}, memory_.rows(flight), kv_, 1);
    return there;
  }
  There memory_;
  Backend& backend_;
  Heads heads_;
  KvStore kv_;
};

std::vector<float> part(const std::vector<float>& rows, int width, const std::vector<int>& which) {
  std::vector<float> out;
  for (const int row : which)
    out.insert(out.end(), rows.begin() + row * width, rows.begin() + (row + 1) * width);
  return out;
}

class OnDeviceAttention : public OnDevice {
 protected:
  struct Case {
    Heads heads;
    int committed, nodes;
    AttentionForm form{};
  };
  static std::vector<Case> cases() {
    if (!on_gpu()) return {{{6, 2, 24}, 43, 9}, {{2, 1, 20}, 140, 7, {0, 2, 20}}};
    return {{{9, 3, 64}, 128, 128},
            {{9, 3, 64}, 2048, 64},
            {{32, 8, 64}, 130, 33},
            {{32, 8, 128}, 8000, 17},
            {{32, 32, 128}, 300, 16},
            {{12, 12, 64}, 0, 128},
            {{8, 4, 256}, 700, 24, {.0625f, 50, 512}},
            {{14, 2, 64}, 1023, 96},
            {{2, 1, 20}, 140, 7, {0, 2, 20}}};
  }
  /// A tree of random shape whose depth stays moderate, as paths of rows.
  static std::vector<std::vector<int>> paths_of(int nodes) {
    std::mt19937 random(static_cast<unsigned>(nodes));
    std::vector<std::vector<int>> paths;
    for (int i = 0; i < nodes; ++i) {
      const int parent = i == 0       ? -1
                         : i % 3 == 0 ? i - 1
                                      : static_cast<int>(random() % static_cast<unsigned>(i));
      paths.push_back(parent < 0 ? std::vector<int>{} : paths[at(parent)]);
      paths.back().push_back(i);
    }
    return paths;
  }
};

TEST_F(OnDeviceAttention, TreesAgreeWithTheCpuAndHaveTheBitsOfTheirChains) {
  for (const Case& c : cases()) {
    SCOPED_TRACE(testing::Message() << c.heads.heads << "/" << c.heads.kv_heads << " heads of " << c.heads.dim
                                    << ", " << c.nodes << " nodes behind " << c.committed);
    const int width = c.heads.width(), slots = c.committed + c.nodes;
    const std::vector<float> text = numbers(at(c.committed) * at(width), 7),
                             tree = numbers(at(c.nodes) * at(width), 8);
    const auto paths = paths_of(c.nodes);
    Flight flight(c.committed);
    for (const auto& path : paths) {
      std::vector<std::int32_t> slots_of;
      for (const int node : path) slots_of.push_back(c.committed + node);
      flight.add(slots_of);
    }
    Cache device(*backend(), c.heads, slots, text), host(*cpu(), c.heads, slots, text);
    const std::vector<float> got = device.mixed(tree, flight, c.form),
                             expected = host.mixed(tree, flight, c.form);
    for (std::size_t i = 0; i < got.size(); ++i)
      ASSERT_NEAR(got[i], expected[i], 1e-5) << "node " << i / at(c.heads.query());
    Cache alone(*backend(), c.heads, slots, text);
    const int stride = on_gpu() ? std::max(1, c.nodes / 12) : 3;
    for (int node = c.nodes - 1; node >= 0; node -= stride) {  // its path as single tokens
      std::vector<float> last;
      for (std::size_t step = 0; step < paths[at(node)].size(); ++step) {
        last = alone.mixed(part(tree, width, {paths[at(node)][step]}),
                           Flight::chain(c.committed + static_cast<int>(step), 1), c.form);
      }
      ASSERT_TRUE(same_bits(last.data(), got.data() + at(node) * at(c.heads.query()), last.size()))
          << "node " << node;
    }
  }
}

TEST_F(OnDeviceAttention, ChainsOfEveryLengthHaveTheBitsOfSingleRows) {
  const Heads heads = on_gpu() ? Heads{9, 3, 64} : Heads{4, 2, 16};
  const int width = heads.width(), most = size(20, 128);
  for (const int committed : on_gpu() ? std::vector<int>{0, 127, 1000} : std::vector<int>{120}) {
    const std::vector<float> text = numbers(at(committed) * at(width), 9),
                             chain = numbers(at(most) * at(width), 10);
    Cache one(*backend(), heads, committed + most, text), many(*backend(), heads, committed + most, text);
    std::vector<float> alone;
    for (int row = 0; row < most; ++row) {
      const std::vector<float> mixed =
          one.mixed(part(chain, width, {row}), Flight::chain(committed + row, 1));
      alone.insert(alone.end(), mixed.begin(), mixed.end());
    }
    for (int n = 1; n <= most; n += on_gpu() ? 1 : 6) {
      const std::vector<float> got =
          many.mixed({chain.begin(), chain.begin() + n * width}, Flight::chain(committed, n));
      ASSERT_TRUE(same_bits(got.data(), alone.data(), got.size())) << n << " rows behind " << committed;
    }
  }
}

TEST_F(OnDeviceOperations, RotationHasTheBitsOfTheCpu) {
  const Heads heads = on_gpu() ? Heads{32, 8, 128} : Heads{3, 1, 20};
  constexpr int kRows = 7, kPositions = 9;
  for (const int turned : {heads.dim, heads.dim / 4 * 2}) {
    std::vector<float> cos = numbers(at(kPositions * turned / 2), 11), sin = cos;
    for (float& angle : cos) angle = std::cos(angle);
    for (float& angle : sin) angle = std::sin(angle);
    std::vector<float> host = numbers(at(kRows * heads.width()), 12);
    There memory(*backend());
    float* rows = memory.floats(host);
    KvStore kv = backend()->allocate_kv(1, heads.kv_heads, heads.dim, kPositions),
            cpu_kv = cpu()->allocate_kv(1, heads.kv_heads, heads.dim, kPositions);
    const Flight flight = Flight::chain(0, kRows);
    backend()->rope_and_store(rows, heads.heads, {memory.floats(cos), memory.floats(sin), turned},
                              memory.rows(flight), kv, 0);
    cpu()->rope_and_store(host.data(), heads.heads, {cos.data(), sin.data(), turned}, flight.rows(), cpu_kv,
                          0);
    EXPECT_TRUE(same_bits(memory.back(rows, host.size()).data(), host.data(), host.size())) << turned;
  }
}

// Attention over a path with scattered slots does not change when the slots are moved together, here and in a
// copy with other slots.
TEST_F(OnDeviceAttention, MovedAndCopiedSlotsHoldWhatTheyHeld) {
  const Heads heads = on_gpu() ? Heads{32, 8, 128} : Heads{3, 1, 20};
  const int width = heads.width(), committed = size(43, 1500), nodes = size(12, 100),
            slots = committed + nodes;
  const std::vector<float> text = numbers(at(committed) * at(width), 13),
                           tree = numbers(at(nodes) * at(width), 14);
  std::vector<std::int32_t> path;
  for (int slot = committed; slot < slots; slot += 1 + (slot - committed) % 4) path.push_back(slot);
  Flight flight(committed);
  for (int i = 0; i < nodes; ++i) {
    const auto found = std::find(path.begin(), path.end(), committed + i);
    flight.add(found == path.end() ? std::vector<std::int32_t>{committed + i}
                                   : std::vector<std::int32_t>(path.begin(), found + 1));
  }
  Cache cache(*backend(), heads, slots, text);
  const std::vector<float> before = cache.mixed(tree, flight);
  std::vector<std::int32_t> to(path.size());
  for (std::size_t i = 0; i < to.size(); ++i) to[i] = committed + static_cast<std::int32_t>(i);
  backend()->move_slots(cache.kv(), path, to);
  const int kept = committed + static_cast<int>(path.size());
  Cache copy(*backend(), heads, slots + 33, {});
  backend()->copy_kv(cache.kv(), kept, copy.kv());
  const int last = path.back() - committed;
  for (Cache* each : {&cache, &copy}) {
    const std::vector<float> again = each->mixed(part(tree, width, {last}), Flight::chain(kept - 1, 1));
    EXPECT_TRUE(same_bits(again.data(), before.data() + at(last) * at(heads.query()), again.size()));
  }
}

class OnDeviceMemory : public OnDevice {};

TEST_F(OnDeviceMemory, WhatDoesNotFitIsRefusedWithTheNumbers) {
  const std::size_t bytes = on_gpu() ? std::size_t{1} << 44 : std::size_t{1} << 62;
  try {
    backend()->allocate(bytes);
    FAIL() << "allocated " << bytes << " bytes";
  } catch (const Error& error) {
    EXPECT_THAT(std::string(error.what()),
                testing::ContainsRegex(on_gpu() ? "16777216\\.0 MiB more.* [0-9.]+ MiB free of [0-9.]+"
                                                : "for 4398046511104\\.0 MiB"));
  }
  try {
    backend()->allocate_kv(1 << 12, 1 << 8, 64, 1 << 28);  // 64 PiB
    FAIL() << "allocated a cache";
  } catch (const Error& error) {
    EXPECT_THAT(std::string(error.what()), testing::HasSubstr("MiB"));
  }
  There memory(*backend());  // the device still works
  EXPECT_EQ(memory.back(memory.floats({1, 2, 3}), 3), (std::vector<float>{1, 2, 3}));
}

class OnDeviceErrors : public OnDevice {};

// In a separate process, because after such an error a process can no longer use the GPU.
TEST_F(OnDeviceErrors, NameTheCallAndTheKernel) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto touch_nothing = [] {
    try {
      There memory(*backend());
      float* y = memory.room(16);
      backend()->copy_rows(nullptr, memory.integers({0}), 1, 16, y);
      memory.back(y, 16);
    } catch (const std::exception& error) {
      std::fprintf(stderr, "%s\n", error.what());
      std::_Exit(3);
    }
    std::_Exit(0);
  };
  EXPECT_EXIT(touch_nothing(), testing::ExitedWithCode(3),
              on_gpu() ? "cuda[A-Za-z]+.* on .*device.*last kernel copy_rows" : "kernel copy_rows");
}

}  // namespace
}  // namespace speclab::on_device::operations_test
