#pragma once

#include "core/backend/cuda/kernels/acceptance_kernel.h"
#include "core/backend/cuda/kernels/kv_kernel.h"
#include "core/backend/plan.h"

// The kernels of a planned round (core/backend/plan.h) besides forwards, sampling and acceptance. They lay
// out rows from the state of the sequence, move accepted rows in the KV cache, update the state, and decide
// whether the rounds go on. Each kernel has one block unless its comment says otherwise.

namespace speclab::cuda {

inline constexpr int kPlanThreads = kMostPlanNodes;

/// The state of a sequence that a plan runs.
struct PlanState {
  std::int64_t position = 0;                  ///< position of the pending (last emitted) token
  std::int64_t draw_at[kMostPlanNodes] = {};  ///< [d]: position of drafted tokens of depth d + 1
  PhiloxKey key{};
  std::int32_t nodes = 1;                    ///< number of nodes: the pending token and this round's draft
  std::int32_t previous = 0;                 ///< token at position - 1
  std::int32_t tokens[kMostPlanNodes] = {};  ///< by node: the pending token, the draft, then padding
  std::int32_t emitted = 0, max_tokens = 0;
  std::int32_t rounds = 0;       ///< number of finished rounds
  PlanEnd end = PlanEnd::kNone;  ///< any other value: Settle does nothing in further rounds
  std::int32_t ends = 0, end_tokens[kMostPlanEnds] = {};
  simt::u64 stamp_ns[4] = {};
  // The tree. If the device drafts, this is the full tree of the PlanShape, the same in every round. If the
  // host drafts, each call of DeviceProgram::start() passes the tree of one round.
  std::int32_t parents[kMostPlanNodes] = {}, depths[kMostPlanNodes] = {};
  std::int32_t q_rows[kMostPlanNodes] = {};           ///< see Accept
  std::int32_t path_begin[kMostPlanNodes + 1] = {};   ///< RowsInFlight::path_begin of the target's forward
  std::int32_t level_begin[kMostPlanNodes + 1] = {};  ///< [depth + 2], see PlanShape
};

/// Returns the depth to which a draft may go after a pending token. After the drafted tokens, one more token
/// must fit into the text, and the sequence must fit into both caches.
SPECLAB_BOTH int plan_draft_limit(int depth, std::int64_t position, int emitted, int max_tokens,
                                  int target_capacity, int draft_capacity) {
  std::int64_t limit = depth;
  if (limit > max_tokens - emitted - 1) limit = max_tokens - emitted - 1;
  if (limit > target_capacity - 1 - position) limit = target_capacity - 1 - position;
  if (limit > draft_capacity - position) limit = draft_capacity - position;
  return limit > 0 ? static_cast<int>(limit) : 0;
}

/// Returns the number that is both the slot and the position of the pending token in a cache of `capacity`
/// positions. A queued round may run after the text has reached the end of the cache. Such a round
/// uses the last positions of the cache, and its results are not read.
SPECLAB_BOTH int plan_origin(std::int64_t position, int capacity) {
  const std::int64_t origin = position < capacity ? position : capacity - 1;
  return origin > 1 ? static_cast<int>(origin) : 1;
}

/// Lays out the nodes from `first` to first + n - 1 of the state's tree as rows of a forward. Node -1 is the
/// token before the pending one. Node i uses the i-th slot after the slot of the pending token.
struct LayRows {
  PlanState* state = nullptr;
  const std::int32_t* parents = nullptr;  ///< [nodes]
  const std::int32_t* depths = nullptr;   ///< [nodes]
  int first = 0, n = 0;
  int base = 0;  ///< -1, 0 or 1: nodes from this depth on are in flight, nodes of smaller depth are committed
  int capacity = 0;  ///< positions that the cache holds
  int offset = 0;    ///< offset of the position embedding
  int draws = -1;    ///< >= 0: the tokens at depth 1 + draws are drawn from this forward, and the kernel also
                     ///< writes their position; -1: none
  std::int32_t* tokens = nullptr;            ///< out [n]
  std::int32_t* position_rows = nullptr;     ///< out [n]
  std::int32_t* positions = nullptr;         ///< out [n]
  std::int32_t* slots = nullptr;             ///< out [n]
  const std::int32_t* path_begin = nullptr;  ///< [n + 1]
  std::int32_t* paths = nullptr;             ///< out [path_begin[n]]
  std::int32_t* committed = nullptr;         ///< out
};

/// Moves the accepted path right behind the pending token, in all planes of a cache (MoveSlots with the moves
/// of the verdict).
struct MoveAccepted {
  simt::u16* data = nullptr;
  int planes = 0, slots = 0, stride = 0;
  int capacity = 0;  ///< positions that the cache holds
  const PlanState* state = nullptr;
  const Verdict* verdict = nullptr;
};

/// Emits the accepted tokens and the bonus or correction, up to the first end token or limit. Writes the
/// round into the ring and prepares the state for the next round.
struct Settle {
  PlanState* state = nullptr;
  const Verdict* verdict = nullptr;
  const Law* p_laws = nullptr;           ///< [nodes]
  const std::int32_t* q_rows = nullptr;  ///< [nodes], see Accept
  const Law* q_laws = nullptr;
  const float* q = nullptr;                   ///< [.., vocab]
  const std::int32_t* level_begin = nullptr;  ///< [depth + 2], see PlanShape
  int depth = 0, vocab = 0, target_capacity = 0, draft_capacity = 0;
  PlanRound* ring = nullptr;  ///< [kPlanRing]
};

/// Tells the loop of the recorded graph whether to run one more round.
struct Continue {
  const PlanState* state = nullptr;
  simt::u64 conditional = 0;  ///< handle of the loop's condition
};

/// Writes the device's clock into state->stamp_ns[which].
struct Stamp {
  PlanState* state = nullptr;
  int which = 0;
};

inline namespace SPECLAB_SIDE {

struct LayRowsKernel {
  static constexpr const char* kName = "lay_rows";
  static constexpr int kThreads = kPlanThreads;
  LayRows a;

  SPECLAB_DEVICE void operator()() const {
    const int i = simt::thread_index(), node = a.first + i, last = a.capacity - 1;
    if (i >= a.n) return;
    const std::int64_t pending = simt::load(&a.state->position);
    const int origin = plan_origin(pending, a.capacity), depth = node < 0 ? -1 : simt::load(a.depths + node);
    const int position = simt::min(origin + depth, last);
    simt::store(a.tokens + i, node < 0 ? simt::load(&a.state->previous) : simt::load(&a.state->tokens[node]));
    simt::store(a.positions + i, position);
    simt::store(a.position_rows + i, position + a.offset);
    simt::store(a.slots + i, origin + node);
    std::int32_t* path = a.paths + simt::load(a.path_begin + i);
    for (int at = node, d = depth; d >= a.base; --d) {
      simt::store(path + (d - a.base), origin + at);
      if (at >= 0) at = simt::load(a.parents + at);
    }
    if (i == 0) {
      simt::store(a.committed, simt::min(origin + a.base, last));
      if (a.draws >= 0) simt::store(&a.state->draw_at[a.draws], pending + a.draws + 1);
    }
  }
};

// One block per plane. Each thread moves its own piece of a slot, always at the same offset, for all moves
// one after the other. No thread reads what another one writes, so no barrier is needed.
struct MoveAcceptedKernel {
  static constexpr const char* kName = "move_accepted";
  static constexpr int kThreads = kKvThreads;
  MoveAccepted a;

  SPECLAB_DEVICE void operator()() const {
    const auto stride = static_cast<std::size_t>(a.stride);
    const int moves = simt::load(&a.verdict->moves),
              origin = plan_origin(simt::load(&a.state->position), a.capacity);
    simt::u16* plane =
        a.data + (static_cast<std::size_t>(simt::block_x()) * static_cast<std::size_t>(a.slots) +
                  static_cast<std::size_t>(origin)) *
                     stride;
    for (int begin = kKvPiece * simt::thread_index(); begin < a.stride; begin += kKvPiece * kKvThreads) {
      for (int j = 0; j < moves; ++j) {
        const auto from = static_cast<std::size_t>(simt::load(&a.verdict->from[j])),
                   to = static_cast<std::size_t>(simt::load(&a.verdict->to[j]));
        simt::store16(plane + to * stride + begin, simt::load16(plane + from * stride + begin));
      }
    }
  }
};

struct SettleKernel {
  static constexpr const char* kName = "settle";
  static constexpr int kThreads = kPlanThreads;
  Settle a;

  SPECLAB_DEVICE void operator()() const {
    if (simt::load(&a.state->end) != PlanEnd::kNone) return;
    const int i = simt::thread_index(), nodes = simt::load(&a.state->nodes),
              tested = simt::load(&a.verdict->tested), accepted = simt::load(&a.verdict->accepted);
    const int rounds = simt::load(&a.state->rounds);
    PlanRound* round = a.ring + rounds % kPlanRing;
    if (i < nodes) {
      const int token = simt::load(&a.state->tokens[i]);
      simt::store(&round->tokens[i], token);
      float confidence = -1;
      if (const int row = simt::load(a.q_rows + i); row >= 0) {
        const LawRow q = LawRow::of(a.q, a.q_laws, row, a.vocab);
        if (q.one_hot < 0) confidence = static_cast<float>(q.prob(token));
      }
      simt::store(&round->confidence[i], confidence);
    }
    if (i < tested) {
      const int node = simt::load(&a.verdict->tested_node[i]);
      simt::store(&round->tested_node[i], node);
      simt::store(&round->p[node], simt::load(&a.verdict->tested_p[i]));
      simt::store(&round->q[node], simt::load(&a.verdict->tested_q[i]));
    }
    if (i < accepted) simt::store(&round->path[i], simt::load(&a.verdict->path[i]));
    simt::fence_system();
    simt::block_sync();  // all threads have read the state
    if (i == 0) finish(round, rounds, nodes, tested, accepted);
  }

 private:
  SPECLAB_DEVICE void finish(PlanRound* round, int rounds, int nodes, int tested, int accepted) const {
    PlanState* state = a.state;
    const std::int64_t position = simt::load(&state->position);
    const int next = simt::load(&a.verdict->next);
    const int before = simt::load(&state->emitted), most = simt::load(&state->max_tokens),
              ends = simt::load(&state->ends);
    PlanEnd end = PlanEnd::kNone;
    int bad = -1, emitted = 0;
    for (int node = 1; node < nodes && end == PlanEnd::kNone; ++node) {
      const int row = simt::load(a.q_rows + node);
      bad = row < 0 ? -1 : simt::load(&a.q_laws[row].invalid);
      if (bad >= 0) end = PlanEnd::kBadDraft;
    }
    for (int depth = 0; depth <= accepted && end == PlanEnd::kNone; ++depth) {
      bad = simt::load(&a.p_laws[node_at(depth)].invalid);
      if (bad >= 0) end = PlanEnd::kBadTarget;
    }
    if (end == PlanEnd::kNone && simt::load(&a.verdict->fault) >= 0) end = PlanEnd::kNoMass;
    while (end == PlanEnd::kNone && emitted <= accepted) {
      const int token = emitted < accepted ? simt::load(&state->tokens[node_at(emitted + 1)]) : next;
      ++emitted;
      for (int e = 0; e < ends; ++e) {
        if (simt::load(&state->end_tokens[e]) == token) end = PlanEnd::kEndToken;
      }
      if (end != PlanEnd::kNone) break;
      if (before + emitted >= most) end = PlanEnd::kLength;
      else if (position + emitted >= a.target_capacity) end = PlanEnd::kContext;
    }
    simt::store(&round->nodes, nodes);
    simt::store(&round->accepted, accepted);
    simt::store(&round->next, next);
    simt::store(&round->bonus, simt::load(&a.verdict->bonus));
    simt::store(&round->emitted, emitted);
    simt::store(&round->end, end);
    simt::store(&round->bad_entry, bad);
    simt::store(&round->position, position);
    simt::store(&round->tested, tested);
    for (int s = 0; s < 3; ++s) simt::store(&round->stamp_ns[s], simt::load(&state->stamp_ns[s]));
    simt::store(&round->stamp_ns[3], simt::globaltimer());
    simt::fence_system();
    simt::store(&round->number, static_cast<simt::u32>(rounds + 1));

    simt::store(&state->rounds, rounds + 1);
    simt::store(&state->end, end);
    if (end != PlanEnd::kNone) return;  // Settle does nothing in rounds that are still queued
    const int total = before + emitted;
    simt::store(&state->previous, simt::load(&state->tokens[node_at(accepted)]));
    simt::store(&state->tokens[0], next);
    simt::store(&state->position, position + emitted);
    simt::store(&state->emitted, total);
    simt::store(&state->nodes, simt::load(a.level_begin + 1 +
                                          plan_draft_limit(a.depth, position + emitted, total, most,
                                                           a.target_capacity, a.draft_capacity)));
  }
  /// Returns the node of the accepted path at a depth.
  SPECLAB_DEVICE int node_at(int depth) const {
    return depth == 0 ? 0 : simt::load(&a.verdict->path[depth - 1]);
  }
};

struct ContinueKernel {
  static constexpr const char* kName = "continue_loop";
  static constexpr int kThreads = 32;
  Continue a;

  SPECLAB_DEVICE void operator()() const {
    if (simt::thread_index() != 0) return;
    const bool more =
        simt::load(&a.state->end) == PlanEnd::kNone && simt::load(&a.state->rounds) % kPlanLoop != 0;
    simt::set_conditional(a.conditional, more ? 1 : 0);
  }
};

struct StampKernel {
  static constexpr const char* kName = "stamp";
  static constexpr int kThreads = 32;
  Stamp a;

  SPECLAB_DEVICE void operator()() const {
    if (simt::thread_index() == 0) simt::store(&a.state->stamp_ns[a.which], simt::globaltimer());
  }
};

}  // namespace SPECLAB_SIDE

template <typename Visit>
void with_kernel(const LayRows& a, const Visit& visit) {
  if (a.n < 1 || a.n > kPlanThreads) fail_arguments("lay_rows", "the number of rows must be 1 to 128");
  visit(LayRowsKernel{a}, LaunchShape{.threads = kPlanThreads});
}
template <typename Visit>
void with_kernel(const MoveAccepted& a, const Visit& visit) {
  visit(MoveAcceptedKernel{a}, LaunchShape{.grid_x = a.planes, .threads = kKvThreads});
}
template <typename Visit>
void with_kernel(const Settle& a, const Visit& visit) {
  visit(SettleKernel{a}, LaunchShape{.threads = kPlanThreads});
}
template <typename Visit>
void with_kernel(const Continue& a, const Visit& visit) {
  visit(ContinueKernel{a}, LaunchShape{});
}
template <typename Visit>
void with_kernel(const Stamp& a, const Visit& visit) {
  visit(StampKernel{a}, LaunchShape{});
}

}  // namespace speclab::cuda
