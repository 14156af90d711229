#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "core/backend/backend.h"
#include "core/backend/graph.h"
#include "core/backend/plan.h"
#include "core/model/net/model.h"
#include "core/model/net/view_rows.h"
#include "core/model/net/weights.h"

namespace speclab {

// The structs of a forward, for the source files that implement it. Private to the model layer.

/// Number of states that a tap asks for.
inline std::size_t nodes_of(const Tap& tap, const Feed& feed) {
  return tap.nodes.empty() ? feed.parents.size() : tap.nodes.size();
}

/// A tap as the forward serves it, with rows and output in the backend's memory.
struct Model::TappedRows {
  int layer;
  const std::int32_t* rows;  ///< [count]
  int count;
  float* to;  ///< [count, hidden]
};
/// Rows for which the caller gives the input of the first layer.
struct Model::EmbeddedRows {
  int first, count;
  const float* from;         ///< [count, hidden]
  const std::int32_t* rows;  ///< 0, 1, ... if `from` is in the backend's memory; null if it is on the host
};
/// The input of a forward, in the backend's memory.
struct Model::Inputs {
  int n = 0;
  const Token* tokens = nullptr;                ///< [n]
  const std::int32_t* position_rows = nullptr;  ///< [n], rows of the position embedding
  const std::int32_t* wanted = nullptr;         ///< [wanted_count], rows whose logits are computed
  int wanted_count = 0;
  bool maxima = false;  ///< whether to note the block maxima of these logits
  bool prompt = false;  ///< Backend::prompt_linear() computes all products except those with the output head
  std::span<const TappedRows> taps = {};
  std::span<const EmbeddedRows> embedded = {};
  std::span<const int> run = {};      ///< indices of the layers to run
  LayerPart part = {};                ///< whether hidden states are read from the sessions or kept in them
  const std::int32_t* own = nullptr;  ///< [n], 0, 1, ...; only for layers until or from an early exit
};
/// The rows of one feed, or of QueuedRows. They are consecutive among the inputs of the forward.
struct Model::Placed {
  Session* session;
  RowsInFlight rows;
  const KeysInView* views = nullptr;  ///< [layers that run], the view of each layer; null without a view
  float* attention = nullptr;         ///< Feed::attention
  const float* beside = nullptr;      ///< Feed::beside

  RowsInFlight rows_in(std::size_t run_index) const {
    RowsInFlight in = rows;
    if (views != nullptr) in.view = views + run_index;
    return in;
  }
};
/// Forwards of one session that are recorded as graphs. Everything that differs between two forwards with the
/// same key is in the array Workspace::numbers.
struct Model::Recorded {
  struct Key {
    int n, wanted, earlier;      ///< rows, rows with logits, rows in flight before them
    int bound;                   ///< upper bound of the number of committed keys
    const std::int32_t* staged;  ///< Workspace::staged
    auto operator<=>(const Key&) const = default;
  };
  struct Entry {
    std::shared_ptr<Graph> graph;   ///< null: the forward ran once and was not recorded
    const float* logits = nullptr;  ///< where the graph writes them
  };
  static constexpr std::size_t kMost = 64;  ///< most entries; the session drops all before it adds another
  std::map<Key, Entry> entries;
};
/// The size of a forward of one sequence, for Model::work().
struct Model::Ran {
  std::span<const int> layers;  ///< indices of the layers that ran
  bool embedded = true;         ///< false if the input is hidden states that an early exit kept
  std::int64_t n = 0, m = 0;    ///< rows, rows with logits
  std::int64_t keys = 0;        ///< visible keys, summed over the rows
  std::int64_t layer_keys = 0;  ///< visible keys, summed over the rows and the layers
  std::int64_t cached =
      0;  ///< keys of earlier rows that were read from the cache, summed over the layers that ran
};

/// Buffers of a forward. Each grows to the size that the largest forward needs, and is kept. Private to the
/// model layer.
struct Model::Workspace {
  Buffer<float> embedded;          // [n, embedding_dim], only with a projection
  Buffer<float> residual, normed;  // [n, hidden]
  Buffer<float> branch;  // [n, hidden], only with position embeddings, post norms or a parallel feed-forward
  Buffer<float> qkv, attended;       // [n, (heads + 2 kv_heads) * head_dim], [n, heads * head_dim]
  Buffer<float> gate_up, activated;  // [n, 2 ffn] ([n, ffn] if not gated), [n, ffn]
  Buffer<float> maxima;              // block maxima, [rows, maxima_of(head_rows)], valid if `noted`
  bool noted = false;                // whether the last product with the output head noted maxima
  Buffer<float> wanted,
      logits;  // [rows, hidden], [rows, head_rows] (unless the backend writes logits directly to their
               // destination)

  Buffer<float> states;  // [tapped rows, hidden], before they are downloaded
  std::vector<TappedRows> taps;
  std::vector<EmbeddedRows> given;
  Buffer<std::int32_t> token_ids;  // for embed()

  // All integers that the operations need about the rows. They are in one array, which goes to the backend as
  // one upload: tokens [n], rows of the position embedding [n], positions [n], slots [n], path_begin [n + 1],
  // rows whose logits are wanted, tapped rows, EmbeddedRows::rows (for embeddings in the backend's memory),
  // number of committed keys of each feed [feeds], paths, then the arrays of views (view_rows.h) and
  // Inputs::own.
  std::vector<std::int32_t> numbers;
  Buffer<std::int32_t> staged;     // the same numbers in the backend's memory
  std::vector<Placed> placed;      // [feeds with rows]
  std::vector<int> run;            // indices of the layers to run
  std::vector<StagedKeys> viewed;  // [feeds with a view][run]
  std::vector<KeysInView> views;   // the same, with pointers into `staged`
};

}  // namespace speclab
