#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/backend/backend.h"
#include "core/model/model.h"
#include "core/model/weights.h"

namespace speclab {

/// Buffers of one forward; they grow to the largest one and stay. Private to the model layer.
struct Model::Workspace {
  std::vector<float> embedded;              // [n, embedding_dim], with a projection
  std::vector<float> residual, normed;      // [n, hidden]
  std::vector<float> branch;                // [n, hidden], with position embeddings, post norms or a parallel feed-forward
  std::vector<float> qkv, attended;         // [n, (heads + 2 kv_heads) * head_dim], [n, heads * head_dim]
  std::vector<float> gate_up, activated;    // [n, 2 ffn] or [n, ffn], [n, ffn]
  std::vector<float> wanted, logits;        // [rows, hidden], [rows, head_rows] (several sequences)
  std::vector<Token> tokens;                // [n]
  std::vector<std::int32_t> depths, positions, slots;  // [n]
  std::vector<std::int32_t> paths;          // in-flight slots of every row's path, one after the other
  std::vector<std::size_t> path_begin;      // [n + 1]
  std::vector<AttentionRow> attention_rows; // [n]
};

}  // namespace speclab
