#pragma once

#include "core/backend/cuda/acceptance_kernel.h"
#include "core/backend/plan.h"

// What a planned round needs besides forwards, sampling and acceptance: rows laid out from the state of the sequence, and that
// state moved on. One block each.

namespace speclab::cuda {

inline constexpr int kPlanThreads = kMostPlanNodes;

/// A sequence under a plan.
struct PlanState {
  std::int64_t position = 0;                  ///< of the pending token
  std::int64_t draw_at[kMostPlanNodes] = {};  ///< positions of the drafted tokens, x_1 first
  PhiloxKey key{};
  std::int32_t nodes = 1;                     ///< of this round: what limits let draft, and the pending token
  std::int32_t previous = 0;                  ///< token at position - 1
  std::int32_t tokens[kMostPlanNodes] = {};   ///< the pending token, then the draft; behind the draft any token
  std::int32_t emitted = 0, max_tokens = 0;
  std::int32_t rounds = 0;                    ///< finished
  PlanEnd end = PlanEnd::kNone;               ///< otherwise rounds change nothing any more
  std::int32_t ends = 0, end_tokens[kMostPlanEnds] = {};
  simt::u64 stamp_ns[4] = {};
};

/// Tokens that may be drafted behind a pending token: the next one must have room, in the text and in both caches.
SPECLAB_BOTH int plan_draft_limit(int gamma, std::int64_t position, int emitted, int max_tokens, int target_capacity, int draft_capacity) {
  std::int64_t limit = gamma;
  if (limit > max_tokens - emitted - 1) limit = max_tokens - emitted - 1;
  if (limit > target_capacity - 1 - position) limit = target_capacity - 1 - position;
  if (limit > draft_capacity - position) limit = draft_capacity - position;
  return limit > 0 ? static_cast<int>(limit) : 0;
}

/// Rows `first` .. first + n - 1 of the state's chain for a forward: row -1 is the token before the pending one, 0 the pending
/// one, i the drafted x_i. A row that would lie beyond the cache gets its last position: nobody reads what it gives.
struct LayRows {
  PlanState* state = nullptr;
  int first = 0, n = 0;
  int capacity = 0;  ///< positions
  int offset = 0;    ///< of the position embedding
  int draws = -1;    ///< >= 0: row 1 + draws of the draft is drawn from this forward; its position is written too
  std::int32_t* tokens = nullptr;         ///< out [n]
  std::int32_t* position_rows = nullptr;  ///< out [n]
  std::int32_t* positions = nullptr;      ///< out [n]
  std::int32_t* slots = nullptr;          ///< out [n]
  std::int32_t* path_begin = nullptr;     ///< out [n + 1]
  std::int32_t* paths = nullptr;          ///< out [n (n + 1) / 2]
  std::int32_t* committed = nullptr;      ///< out
};

/// Takes what was accepted into the text, up to the first end token or limit; then the round goes to the ring and the state to
/// the next one.
struct Settle {
  PlanState* state = nullptr;
  const Verdict* verdict = nullptr;
  const Law* p_laws = nullptr;  ///< [1 + gamma]
  const Law* q_laws = nullptr;  ///< [gamma]
  const float* q = nullptr;     ///< [gamma, vocab]
  int gamma = 0, vocab = 0, target_capacity = 0, draft_capacity = 0;
  PlanRound* ring = nullptr;    ///< [kPlanRing]
};

/// Whether the loop that a round is the body of goes on.
struct Continue {
  const PlanState* state = nullptr;
  simt::u64 conditional = 0;  ///< of the loop
};

/// The clock of the device into state->stamp_ns[which].
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
    const int i = simt::thread_index(), last = a.capacity - 1;
    if (i >= a.n) return;
    const auto pending = static_cast<int>(simt::load(&a.state->position));
    const int committed = simt::min(pending + a.first, last), position = simt::min(committed + i, last);
    simt::store(a.tokens + i, a.first + i < 0 ? simt::load(&a.state->previous) : simt::load(&a.state->tokens[a.first + i]));
    simt::store(a.positions + i, position);
    simt::store(a.position_rows + i, position + a.offset);
    simt::store(a.slots + i, committed + i);
    const int begin = i * (i + 1) / 2;
    simt::store(a.path_begin + i, begin);
    for (int j = 0; j <= i; ++j) simt::store(a.paths + begin + j, committed + j);
    if (i == a.n - 1) simt::store(a.path_begin + a.n, begin + a.n);
    if (i == 0) {
      simt::store(a.committed, committed);
      if (a.draws >= 0) simt::store(&a.state->draw_at[a.draws], static_cast<std::int64_t>(pending) + a.draws + 1);
    }
  }
};

struct SettleKernel {
  static constexpr const char* kName = "settle";
  static constexpr int kThreads = kPlanThreads;
  Settle a;

  SPECLAB_DEVICE void operator()() const {
    if (simt::load(&a.state->end) != PlanEnd::kNone) return;
    const int i = simt::thread_index(), nodes = simt::load(&a.state->nodes), tested = simt::load(&a.verdict->tested);
    const int rounds = simt::load(&a.state->rounds);
    PlanRound* round = a.ring + rounds % kPlanRing;
    if (i < nodes) {
      const int token = simt::load(&a.state->tokens[i]);
      simt::store(&round->tokens[i], token);
      float confidence = -1;
      if (i > 0) {
        const LawRow q = LawRow::of(a.q, a.q_laws, i - 1, a.vocab);
        if (q.one_hot < 0) confidence = static_cast<float>(q.prob(token));
      }
      simt::store(&round->confidence[i], confidence);
    }
    if (i < tested) {
      const int node = simt::load(&a.verdict->tested_node[i]);
      simt::store(&round->p[node], simt::load(&a.verdict->tested_p[i]));
      simt::store(&round->q[node], simt::load(&a.verdict->tested_q[i]));
    }
    simt::fence_system();
    simt::block_sync();  // all has been read
    if (i == 0) finish(round, rounds, nodes, tested);
  }

 private:
  SPECLAB_DEVICE void finish(PlanRound* round, int rounds, int nodes, int tested) const {
    PlanState* state = a.state;
    const std::int64_t position = simt::load(&state->position);
    const int accepted = simt::load(&a.verdict->accepted), next = simt::load(&a.verdict->next);
    const int before = simt::load(&state->emitted), most = simt::load(&state->max_tokens), ends = simt::load(&state->ends);
    PlanEnd end = PlanEnd::kNone;
    int bad = -1, emitted = 0;
    for (int row = 0; row < nodes - 1 && end == PlanEnd::kNone; ++row) {
      bad = simt::load(&a.q_laws[row].invalid);
      if (bad >= 0) end = PlanEnd::kBadDraft;
    }
    for (int row = 0; row <= accepted && end == PlanEnd::kNone; ++row) {
      bad = simt::load(&a.p_laws[row].invalid);
      if (bad >= 0) end = PlanEnd::kBadTarget;
    }
    if (end == PlanEnd::kNone && simt::load(&a.verdict->fault) >= 0) end = PlanEnd::kNoMass;
    while (end == PlanEnd::kNone && emitted <= accepted) {
      const int token = emitted < accepted ? simt::load(&state->tokens[emitted + 1]) : next;
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
    if (end != PlanEnd::kNone) return;  // what is still queued repeats this round
    const int total = before + emitted;
    simt::store(&state->previous, simt::load(&state->tokens[accepted]));
    simt::store(&state->tokens[0], next);
    simt::store(&state->position, position + emitted);
    simt::store(&state->emitted, total);
    simt::store(&state->nodes, 1 + plan_draft_limit(a.gamma, position + emitted, total, most, a.target_capacity, a.draft_capacity));
  }
};

struct ContinueKernel {
  static constexpr const char* kName = "continue_loop";
  static constexpr int kThreads = 32;
  Continue a;

  SPECLAB_DEVICE void operator()() const {
    if (simt::thread_index() != 0) return;
    const bool more = simt::load(&a.state->end) == PlanEnd::kNone && simt::load(&a.state->rounds) % kPlanLoop != 0;
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
  if (a.n < 1 || a.n > kPlanThreads) fail_arguments("lay_rows", "rows are 1 to 128");
  visit(LayRowsKernel{a}, LaunchShape{.threads = kPlanThreads});
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
