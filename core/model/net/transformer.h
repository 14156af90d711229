#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/backend/backend.h"
#include "core/backend/plan.h"
#include "core/model/net/model.h"
#include "core/model/net/view_rows.h"
#include "core/model/net/weights.h"

namespace speclab {

/// How many states a tap asks for.
inline std::size_t nodes_of(const Tap& tap, const Feed& feed) {
  return tap.nodes.empty() ? feed.parents.size() : tap.nodes.size();
}

/// A tap as the forward serves it, in memory of the backend.
struct Model::TappedRows {
  int layer;
  const std::int32_t* rows;  ///< [count]
  int count;
  float* to;  ///< [count, hidden]
};
/// Rows whose input of the first layer is given.
struct Model::EmbeddedRows {
  int first, count;
  const float* from;         ///< [count, hidden]
  const std::int32_t* rows;  ///< 0, 1, ... where `from` is memory of the backend; null: of the host
};
/// What a forward is of, in memory of the backend.
struct Model::Inputs {
  int n = 0;
  const Token* tokens = nullptr;                ///< [n]
  const std::int32_t* position_rows = nullptr;  ///< [n], of the position embedding
  const std::int32_t* wanted = nullptr;         ///< [wanted_count], rows whose logits are wanted
  int wanted_count = 0;
  bool maxima = false;  ///< of their logits too
  bool prompt = false;  ///< products take Backend::prompt_linear()
  std::span<const TappedRows> taps = {};
  std::span<const EmbeddedRows> embedded = {};
  std::span<const int> run = {};      ///< indices of the layers to run
  LayerPart part = {};                ///< says whether hidden states come from the sessions or go to them
  const std::int32_t* own = nullptr;  ///< [n], 0, 1, ...; where the part is an early exit or its rest
};
/// The rows of a sequence among them, in order.
struct Model::Placed {
  Session* session;
  RowsInFlight rows;
  const KeysInView* views = nullptr;  ///< of each layer that runs; null: no view

  RowsInFlight rows_in(std::size_t run_index) const {
    RowsInFlight in = rows;
    if (views != nullptr) in.view = views + run_index;
    return in;
  }
};
/// What Model::work() counts of a forward of one sequence.
struct Model::Ran {
  std::span<const int> layers;  ///< indices of those that ran
  bool embedded = true;         ///< from tokens, and not from kept hidden states
  std::int64_t n = 0, m = 0;    ///< rows, rows with logits
  std::int64_t keys = 0;        ///< visible keys, summed over the rows
  std::int64_t layer_keys = 0;  ///< the same summed over the layers
  std::int64_t cached = 0;  ///< keys in the cache before this forward that it read, summed over the layers
};

/// Buffers of one forward; they grow to the largest one and stay. Private to the model layer.
struct Model::Workspace {
  Buffer<float> embedded;          // [n, embedding_dim], with a projection
  Buffer<float> residual, normed;  // [n, hidden]
  Buffer<float> branch;  // [n, hidden], with position embeddings, post norms or a parallel feed-forward
  Buffer<float> qkv, attended;       // [n, (heads + 2 kv_heads) * head_dim], [n, heads * head_dim]
  Buffer<float> gate_up, activated;  // [n, 2 ffn] or [n, ffn], [n, ffn]
  Buffer<float> maxima;              // [rows, maxima_of(head_rows)], of the last forward where noted
  bool noted = false;
  Buffer<float> wanted,
      logits;  // [rows, hidden], [rows, head_rows] (unless the backend writes where they are wanted)

  Buffer<float> states;  // [tapped rows, hidden], on their way to the host
  std::vector<TappedRows> taps;
  std::vector<EmbeddedRows> given;
  Buffer<std::int32_t> token_ids;  // of embed()

  // What the operations must know about the rows, in one array that goes to the backend in one piece:
  // tokens [n], rows of the position embedding [n], positions [n], slots [n], path_begin [n + 1], wanted
  // [rows], tapped [rows], given in memory of the backend [rows], paths.
  std::vector<std::int32_t> numbers;
  Buffer<std::int32_t> staged;     // the same there
  std::vector<Placed> placed;      // [feeds with rows]
  std::vector<int> run;            // indices of the layers to run
  std::vector<StagedKeys> viewed;  // [feeds with a view][run]
  std::vector<KeysInView> views;   // the same in memory of the backend
};

}  // namespace speclab
