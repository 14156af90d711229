#pragma once

#include <span>
#include <vector>

#include "core/backend/backend.h"
#include "core/backend/cpu/attention.h"

namespace speclab::cpu {

/// One query of attention_mass(): it sees the slots [0, committed), then those of its path.
struct MassQuery {
  const float* q;  ///< [head_dim]
  int committed;
  std::span<const std::int32_t> path;
};

/// Adds share * weight to mass[j] for the softmax weight of each committed key j, [committed]. `scores` is
/// scratch. Keys that the window of `form` hides have no weight.
void add_attention_mass(const HeadCache<float>& cache, const MassQuery& query, const AttentionForm& form,
                        float share, std::vector<float>& scores, float* mass);
void add_attention_mass(const HeadCache<Bf16>& cache, const MassQuery& query, const AttentionForm& form,
                        float share, std::vector<float>& scores, float* mass);

}  // namespace speclab::cpu
