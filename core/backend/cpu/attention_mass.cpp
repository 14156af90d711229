#include "core/backend/cpu/attention_mass.h"

#include <algorithm>
#include <cmath>

namespace speclab::cpu {
namespace {

// scores[i] = q . key of slot `from` + i, for `count` slots of one block of keys.
template <typename Kv>
void score_slots(const HeadCache<Kv>& cache, const float* q, int from, int count, float* scores) {
  std::fill_n(scores, count, 0.0f);
  for (int d = 0; d < cache.head_dim; ++d) {
    const Kv* key = cache.keys + key_index<Kv>(from, d, cache.head_dim);
    constexpr int kStep = sizeof(Kv) == 2 ? 2 : 1;  // from one key to the next
    for (int i = 0; i < count; ++i) {
      if constexpr (sizeof(Kv) == 2) scores[i] += q[d] * bf16_to_float(key[i * kStep]);
      else scores[i] += q[d] * key[i * kStep];
    }
  }
}

template <typename Kv>
void add_mass(const HeadCache<Kv>& cache, const MassQuery& query, const AttentionForm& form, float share,
              std::vector<float>& scores, float* mass) {
  const int path = static_cast<int>(query.path.size()), all = query.committed + path;
  const int first = form.window > 0 ? std::max(0, all - form.window) : 0;
  scores.resize(static_cast<std::size_t>(all));
  for (int slot = first / kKeyBlock * kKeyBlock; slot < query.committed; slot += kKeyBlock)
    score_slots(cache, query.q, slot, std::min(kKeyBlock, query.committed - slot), scores.data() + slot);
  for (int i = 0; i < path; ++i)
    score_slots(cache, query.q, query.path[static_cast<std::size_t>(i)], 1,
                scores.data() + query.committed + i);
  const float scale = form.scale > 0 ? form.scale : 1.0f / std::sqrt(static_cast<float>(cache.head_dim));
  float most = -INFINITY;
  for (int i = first; i < all; ++i) {
    float& score = scores[static_cast<std::size_t>(i)];
    score *= scale;
    if (form.soft_cap > 0) score = form.soft_cap * std::tanh(score / form.soft_cap);
    most = std::max(most, score);
  }
  double sum = 0;
  for (int i = first; i < all; ++i) {
    float& score = scores[static_cast<std::size_t>(i)];
    sum += score = std::exp(score - most);
  }
  const auto unit = static_cast<float>(share / sum);
  for (int i = first; i < query.committed; ++i) mass[i] += unit * scores[static_cast<std::size_t>(i)];
}

}  // namespace

void add_attention_mass(const HeadCache<float>& cache, const MassQuery& query, const AttentionForm& form,
                        float share, std::vector<float>& scores, float* mass) {
  add_mass(cache, query, form, share, scores, mass);
}
void add_attention_mass(const HeadCache<Bf16>& cache, const MassQuery& query, const AttentionForm& form,
                        float share, std::vector<float>& scores, float* mass) {
  add_mass(cache, query, form, share, scores, mass);
}

}  // namespace speclab::cpu
