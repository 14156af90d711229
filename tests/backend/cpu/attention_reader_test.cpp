// The weights of attention (AttentionReader), on every class of the CPU, against double precision.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "core/backend/attention_reader.h"
#include "core/backend/cpu/bf16_units.h"
#include "tests/backend/numbers.h"
#include "tests/backend/there.h"

namespace speclab::attention_reader_test {
namespace {

using namespace speclab::fixtures;

struct ReadCase {
  int heads, kv_heads, head_dim, committed;
  AttentionForm form;
};

TEST(AttentionReader, AgreesWithDouble) {
  std::vector<std::string> classes{"f32", "f32-kv16", "avx512-bf16-emulated"};
  if (cpu::supported(cpu::Bf16Unit::kAvx512)) classes.emplace_back("avx512-bf16");
  const std::vector<int> parent{-1, 0, 0, 2};  // a small tree in flight
  for (const std::string& numerics : classes) {
    for (const ReadCase& c : {ReadCase{6, 2, 24, 43, {}},
                              {1, 1, 10, 150, {.soft_cap = 2}},
                              {8, 2, 34, 60, {.window = 17}},
                              {3, 1, 16, 31, {.scale = .5, .window = 2}},
                              {2, 1, 8, 1, {}}}) {
      SCOPED_TRACE(numerics + " " + std::to_string(c.committed));
      std::vector<std::vector<float>> by_threads;
      for (const int threads : {1, 3}) {
        const auto backend = make_cpu_backend({threads, numerics});
        auto& reader = dynamic_cast<AttentionReader&>(*backend);
        const int nodes = static_cast<int>(parent.size()), width = (c.heads + 2 * c.kv_heads) * c.head_dim;
        const auto text = normal_numbers(static_cast<std::size_t>((c.committed + nodes) * width), 23);
        There there{*backend};
        KvStore kv = backend->allocate_kv(1, c.kv_heads, c.head_dim, c.committed + nodes);
        backend->rope_and_store(there.floats(text), c.heads, {},
                                there.rows(Flight::chain(0, c.committed + nodes)), kv, 0);
        std::vector<std::vector<std::int32_t>> paths(parent.size());
        Flight flight(c.committed);
        for (std::size_t i = 0; i < parent.size(); ++i) {
          if (parent[i] >= 0) paths[i] = paths[static_cast<std::size_t>(parent[i])];
          paths[i].push_back(c.committed + static_cast<int>(i));
          flight.add(paths[i]);
        }
        const std::vector<float> rows(text.begin() + c.committed * width, text.end());
        std::vector<float> mass(static_cast<std::size_t>(c.committed) + 1, 7);
        reader.read_attention(there.floats(rows), c.heads, kv, 0, there.rows(flight), c.form, mass.data());
        EXPECT_EQ(mass.back(), 7) << "one more than there are committed keys";
        mass.pop_back();
        by_threads.push_back(mass);
        std::vector<double> expected(mass.size());
        for (int i = 0; i < nodes; ++i) {
          const auto& path = paths[static_cast<std::size_t>(i)];
          const int position = c.committed + static_cast<int>(path.size()) - 1;
          for (int head = 0; head < c.heads; ++head) {
            const float* q = text.data() + (c.committed + i) * width + head * c.head_dim;
            std::vector<double> weights;
            double sum = 0;
            for (int at = 0; at <= position; ++at) {
              const int slot = at < c.committed ? at : path[static_cast<std::size_t>(at - c.committed)];
              const float* k =
                  text.data() + slot * width + (c.heads + head / (c.heads / c.kv_heads)) * c.head_dim;
              double score = 0;
              for (int d = 0; d < c.head_dim; ++d) {
                const float key = numerics == "f32" ? k[d] : bf16_to_float(float_to_bf16(k[d]));
                score += static_cast<double>(q[d]) * static_cast<double>(key);
              }
              score *= c.form.scale > 0 ? static_cast<double>(c.form.scale) : 1 / std::sqrt(c.head_dim);
              if (c.form.soft_cap > 0) score = c.form.soft_cap * std::tanh(score / c.form.soft_cap);
              const bool seen = c.form.window == 0 || at > position - c.form.window;
              weights.push_back(seen ? std::exp(score) : 0);
              sum += weights.back();
            }
            for (int at = 0; at < c.committed; ++at)
              expected[static_cast<std::size_t>(at)] += weights[static_cast<std::size_t>(at)] / sum / c.heads;
          }
        }
        for (std::size_t at = 0; at < mass.size(); ++at) ASSERT_NEAR(mass[at], expected[at], 2e-5) << at;
      }
      EXPECT_TRUE(same_bits(by_threads[0], by_threads[1]));
    }
  }
}

}  // namespace
}  // namespace speclab::attention_reader_test
