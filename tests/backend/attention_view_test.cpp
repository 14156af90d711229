// Attention over part of the committed keys (KeysInView), on every class of the CPU and on the simulated GPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <ostream>
#include <random>
#include <string>
#include <vector>

#include "core/backend/backend.h"
#include "core/backend/cpu/bf16_units.h"
#include "tests/backend/numbers.h"
#include "tests/backend/there.h"

namespace speclab::attention_view_test {
namespace {

using namespace speclab::fixtures;

struct ViewCase {
  std::string backend;
  int heads, kv_heads, head_dim, committed;
  AttentionForm form;
};

std::ostream& operator<<(std::ostream& out, const ViewCase& c) {
  return out << c.backend << ", " << c.heads << " heads, " << c.committed << " committed";
}

std::vector<ViewCase> view_cases() {
  std::vector<std::string> backends{"f32", "f32-kv16", "avx512-bf16-emulated", "host-simt"};
  if (cpu::supported(cpu::Bf16Unit::kAvx512)) backends.emplace_back("avx512-bf16");
  std::vector<ViewCase> cases;
  for (const std::string& backend : backends) {
    cases.push_back({backend, 6, 2, 24, 43, {}});
    cases.push_back({backend, 1, 1, 10, 150, {.soft_cap = 2}});
    cases.push_back({backend, 8, 2, 34, 300, {.window = 140}});
    cases.push_back({backend, 3, 1, 16, 131, {.window = 3}});  // hides rows of the path
    cases.push_back({backend, 20, 1, 16, 270, {}});            // a group of two tiles
    cases.push_back({backend, 2, 1, 8, 0, {}});
  }
  return cases;
}

/// A cache, a tree in flight behind it, and attention over any list of the committed keys.
class AttentionView : public testing::TestWithParam<ViewCase> {
 protected:
  const ViewCase c = GetParam();
  const std::shared_ptr<Backend> backend =
      c.backend == "host-simt" ? make_cuda_backend({.simulated = true}) : make_cpu_backend({2, c.backend});
  const bool float_cache = c.backend == "f32", bf16_products = c.backend.starts_with("avx512");
  const int width = (c.heads + 2 * c.kv_heads) * c.head_dim, out_width = c.heads * c.head_dim;
  static constexpr int kNodes = 7;
  const std::vector<int> parent{-1, 0, 0, 1, 2, 4, 3};
  const std::vector<float> text =
      normal_numbers(static_cast<std::size_t>((c.committed + kNodes) * width), 19);
  There there{*backend};
  KvStore kv = backend->allocate_kv(1, c.kv_heads, c.head_dim, c.committed + kNodes);
  std::vector<std::vector<std::int32_t>> paths = std::vector<std::vector<std::int32_t>>(kNodes);

  void SetUp() override {
    for (int i = 0; i < kNodes; ++i) {
      if (parent[i] >= 0) paths[i] = paths[parent[i]];
      paths[i].push_back(c.committed + i);
    }
    store(text);
  }
  /// Keys and values of all positions and rows in flight.
  void store(const std::vector<float>& rows) {
    backend->rope_and_store(there.floats(rows), c.heads, {},
                            there.rows(Flight::chain(0, c.committed + kNodes)), kv, 0);
  }
  std::vector<std::int32_t> everything() const {
    std::vector<std::int32_t> list(static_cast<std::size_t>(c.committed));
    std::iota(list.begin(), list.end(), 0);
    return list;
  }
  int position(int node) const { return c.committed + static_cast<int>(paths[node].size()) - 1; }
  int lowest_seen(int node) const {
    return c.form.window > 0 ? std::max(0, position(node) - c.form.window + 1) : 0;
  }
  /// Attention of the nodes, in that order. `list` null: of the full cache. [nodes, heads * head_dim]
  std::vector<float> attend(const std::vector<int>& nodes, const std::vector<std::int32_t>* list) {
    std::vector<float> rows;
    Flight flight(c.committed);
    std::vector<std::int32_t> ranks, first;
    for (const int node : nodes) {
      rows.insert(rows.end(), text.begin() + (c.committed + node) * width,
                  text.begin() + (c.committed + node + 1) * width);
      flight.add(paths[node]);
      if (list == nullptr) continue;
      ranks.push_back(static_cast<std::int32_t>(list->size() + paths[node].size()) - 1);
      const int lowest = lowest_seen(node);
      first.push_back(static_cast<std::int32_t>(
          lowest <= c.committed ? std::lower_bound(list->begin(), list->end(), lowest) - list->begin()
                                : static_cast<std::ptrdiff_t>(list->size()) + lowest - c.committed));
    }
    RowsInFlight in_flight = there.rows(flight);
    in_flight.earlier = kNodes - in_flight.n;
    KeysInView view;
    if (list != nullptr) {
      view = {static_cast<int>(list->size()), there.integers(*list), there.integers(ranks),
              there.integers(first)};
      in_flight.view = &view;
    }
    const std::size_t size = nodes.size() * static_cast<std::size_t>(out_width);
    float* out = there.room(size);
    backend->attention(there.floats(rows), c.heads, kv, 0, in_flight, out, c.form);
    return there.back(out, size);
  }
  const std::vector<int> all_nodes{0, 1, 2, 3, 4, 5, 6};
  double stored(float value) const { return float_cache ? value : bf16_to_float(float_to_bf16(value)); }
  double asked(float value) const { return bf16_products ? bf16_to_float(float_to_bf16(value)) : value; }
};

std::vector<std::int32_t> random_list(int committed, int seed) {
  std::mt19937 random(static_cast<unsigned>(seed));
  const unsigned share = 1 + random() % 4;
  std::vector<std::int32_t> list;
  for (int position = 0; position < committed; ++position)
    if (random() % 4 < share) list.push_back(position);
  return list;
}
/// The first few and the last few of the keys.
std::vector<std::int32_t> ends(int committed, int first, int last) {
  std::vector<std::int32_t> list;
  for (int position = 0; position < committed; ++position)
    if (position < first || position >= committed - last) list.push_back(position);
  return list;
}

TEST_P(AttentionView, OfEverythingHasTheBitsOfTheFullCache) {
  const auto list = everything();
  EXPECT_TRUE(same_bits(attend(all_nodes, &list), attend(all_nodes, nullptr)));
}

TEST_P(AttentionView, AgreesWithDoubleOverTheListedKeys) {
  const double scale = 1 / std::sqrt(static_cast<double>(c.head_dim));
  for (const auto& list :
       {random_list(c.committed, 1), ends(c.committed, 4, 21), std::vector<std::int32_t>{}}) {
    const auto out = attend(all_nodes, &list);
    for (int i = 0; i < kNodes; ++i) {
      std::vector<std::int32_t> seen;  // rows of the text
      for (const std::int32_t key : list)
        if (key >= lowest_seen(i)) seen.push_back(key);
      for (int depth = 0; depth < static_cast<int>(paths[i].size()); ++depth)
        if (c.committed + depth >= lowest_seen(i)) seen.push_back(paths[i][depth]);
      for (int head = 0; head < c.heads; ++head) {
        const int kv_head = head / (c.heads / c.kv_heads);
        const float* q = text.data() + (c.committed + i) * width + head * c.head_dim;
        std::vector<double> expected(static_cast<std::size_t>(c.head_dim)), magnitude(expected);
        double total = 0;
        for (const std::int32_t key : seen) {
          const float* k = text.data() + key * width + (c.heads + kv_head) * c.head_dim;
          double score = 0;
          for (int d = 0; d < c.head_dim; ++d) score += scale * asked(q[d]) * stored(k[d]);
          if (c.form.soft_cap > 0) score = c.form.soft_cap * std::tanh(score / c.form.soft_cap);
          total += std::exp(score);
          for (int d = 0; d < c.head_dim; ++d) {
            const double share = std::exp(score) * stored(k[c.kv_heads * c.head_dim + d]);
            expected[d] += share;
            magnitude[d] += std::abs(share);
          }
        }
        for (int d = 0; d < c.head_dim; ++d) {
          // Weights are rounded to bf16: half a unit of the last place.
          const double bound = 2e-5 + (bf16_products ? std::ldexp(magnitude[d] / total, -8) : 0);
          ASSERT_NEAR(out[i * out_width + head * c.head_dim + d], expected[d] / total, bound)
              << "node " << i << ", head " << head << ", " << list.size() << " keys listed";
        }
      }
    }
  }
}

// A row of a tree has the bits of that row alone, whatever else is fed and in any order.
TEST_P(AttentionView, RowsDoNotDependOnOtherRows) {
  for (int seed = 2; seed < 5; ++seed) {
    const auto list = random_list(c.committed, seed);
    const auto out = attend(all_nodes, &list), backwards = attend({6, 5, 4, 3, 2, 1, 0}, &list);
    const auto row = static_cast<std::size_t>(out_width);
    for (int i = 0; i < kNodes; ++i) {
      const auto alone = attend({i}, &list);
      EXPECT_TRUE(same_bits(alone.data(), out.data() + i * out_width, row)) << "node " << i;
      EXPECT_TRUE(same_bits(alone.data(), backwards.data() + (kNodes - 1 - i) * out_width, row))
          << "node " << i;
    }
  }
}

// Keys and values that are not listed never enter, not even multiplied by zero.
TEST_P(AttentionView, DoesNotReadOtherKeys) {
  const auto list = random_list(c.committed, 6);
  const auto before = attend(all_nodes, &list);
  auto poisoned = text;
  for (int position = 0; position < c.committed; ++position) {
    if (!std::binary_search(list.begin(), list.end(), position))
      std::fill_n(poisoned.begin() + position * width, width, std::numeric_limits<float>::quiet_NaN());
  }
  store(poisoned);
  EXPECT_TRUE(same_bits(attend(all_nodes, &list), before));
}

INSTANTIATE_TEST_SUITE_P(Cases, AttentionView, testing::ValuesIn(view_cases()), [](const auto& info) {
  std::string name = info.param.backend + "_" + std::to_string(info.index);
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

}  // namespace
}  // namespace speclab::attention_view_test
