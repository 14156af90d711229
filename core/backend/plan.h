#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/backend/backend.h"
#include "core/backend/rule_forms.h"
#include "core/base/philox.h"
#include "core/base/token.h"

namespace speclab {

// The data that host and device share to run planned rounds. In a planned round a device runs a decoding step
// of one sequence by itself: [draft forwards | target forward | accept | settle]. The host queues a round
// before it knows the results of earlier rounds. "Settle" is the last part of a round: it appends the
// accepted tokens to the text, publishes the round and prepares the next one. The host decides the shape of a
// round (the number of rows). Tokens, positions and lengths stay on the device. The device writes finished
// rounds into a ring buffer, where the host reads them. Queued work never waits for the host, so it can be
// recorded as a graph and replayed.
//
// If the host drafts (PlanShape::given), a round is [target forward | accept | settle]. The host uploads the
// drafted tokens before the round, and reads its result from the ring before it drafts again.

inline constexpr int kMostPlanNodes = 128;  ///< largest number of nodes, the pending token included
inline constexpr int kMostPlanEnds = 32;    ///< largest number of end tokens
inline constexpr int kPlanRing = 64;        ///< number of rounds in the ring; a new one replaces the oldest
inline constexpr int kPlanLoop = 16;        ///< a loop stops after a round whose number is a multiple of this

/// The rows of one sequence for a forward that is queued. All pointers point into memory of the backend.
/// Operations that were queued earlier may still change the contents of this memory.
struct QueuedRows {
  const Token* tokens = nullptr;                ///< [rows.n], each below the vocabulary
  const std::int32_t* position_rows = nullptr;  ///< [rows.n], rows of a learned position embedding
  RowsInFlight rows;                            ///< positions below the context; slots below KvStore::slots
  const std::int32_t* wanted = nullptr;         ///< [wanted_count], rows that need logits, ascending
  int wanted_count = 0;
};

/// SamplingParams in the form that kernels use.
struct PlanSampling {
  bool greedy = true;  ///< temperature 0
  float scale = 1;     ///< float(min(1 / temperature, 1e30))
  int top_k = 0;
  double top_p = 1;
  bool operator==(const PlanSampling&) const = default;
};

/// The shape of a round. It determines memory and kernels and does not change during a generation.
struct PlanShape {
  /// Number of children of each node of the drafted tree, by depth; {1, 1, 1} is a chain, and empty means
  /// autoregressive rounds. With node 0, the pending token (emitted, but not yet in the KV cache), there are
  /// at most kMostPlanNodes nodes. Nodes are numbered level by level.
  std::vector<int> widths;
  int vocab = 0;
  PlanSampling target, draft;
  AcceptRule rule = AcceptRule::kRatio;
  RatioForm form;
  CriterionForm criterion;
  int draft_columns = 0;                    ///< logits per row of the draft
  std::vector<Token> draft_ids;             ///< token of each column, ascending; empty: column i is token i
  int target_offset = 0, draft_offset = 0;  ///< ModelConfig::position_offset
  int target_capacity = 0, draft_capacity = 0;  ///< positions that each session holds
  /// Not 0: the host drafts any tree of at most this many nodes, the pending token included, and passes the
  /// tree to DeviceProgram::start() for each round. `widths` is then empty, and the fields of the draft model
  /// do not matter.
  int given = 0;
  bool given_laws = false;  ///< the host samples some tokens and passes their distributions (PlanDraft::laws)
  bool operator==(const PlanShape&) const = default;

  int depth() const { return static_cast<int>(widths.size()); }
  /// The first node of a depth; for depth() + 1 the number of nodes.
  int level_begin(int of_depth) const {
    int begin = 0;
    for (int d = 0, level = 1; d < of_depth; ++d) {
      begin += level;
      if (d < depth()) level *= widths[static_cast<std::size_t>(d)];
    }
    return begin;
  }
  int nodes() const { return given > 0 ? given : level_begin(depth() + 1); }
  /// True if the draft is certainly a chain. Its accepted tokens then are already in their final slots of the
  /// KV cache, right after the pending token. False if the host may draft two or more nodes, because its tree
  /// may branch then.
  bool is_chain() const { return given > 0 ? given <= 2 : nodes() == depth() + 1; }
};

/// The distribution ("law", core/decoding/rows/distribution.h) from which the host sampled a drafted token.
/// It is in host memory.
struct PlanLaw {
  const float* weights = nullptr;  ///< [vocab]
  double sum = 0;
};

/// The draft of the host for one round, in host memory.
struct PlanDraft {
  std::span<const Token> tokens;          ///< [n], tokens of nodes 1 .. n
  std::span<const std::int32_t> parents;  ///< [n], parent < node
  std::span<const std::int32_t> law_of;   ///< [n], index in laws; -1: one-hot
  std::span<const PlanLaw> laws;          ///< at most n of them
};

/// The state of a sequence when the device takes it over.
struct PlanStart {
  std::int64_t position = 0;        ///< position of the pending token, at least 1
  Token previous = 0, pending = 0;  ///< the tokens at position - 1 and at position
  int emitted = 0, max_tokens = 0;  ///< emitted < max_tokens
  PhiloxKey key{};                  ///< Coins::key()
  std::uint32_t rounds = 0;         ///< the first round gets number rounds + 1; no earlier round on this plan
                                    ///< has a number above `rounds`
  std::vector<Token> ends;          ///< tokens that end the text, at most kMostPlanEnds
  PlanDraft draft;                  ///< only if PlanShape::given
};

/// Why no round follows. kBadTarget and kBadDraft: the logits of the target or of the draft are invalid.
/// kNoMass: a drafted token has probability 0 in the distribution from which it was drawn.
enum class PlanEnd : std::int32_t { kNone, kEndToken, kLength, kContext, kBadTarget, kBadDraft, kNoMass };

/// A finished round, for the host.
struct PlanRound {
  std::uint32_t number;      ///< PlanStart::rounds + 1, + 2, ...; written last
  std::int32_t nodes;        ///< 1 + tokens drafted
  std::int32_t accepted;     ///< number of accepted nodes, in `path`
  std::int32_t next, bonus;  ///< `next`: the bonus or correction token; `bonus`: 1 if it is a bonus, else 0
  std::int32_t emitted;      ///< emitted tokens, up to the first end token or limit
  PlanEnd end;               ///< kNone: another round follows
  /// With kBadTarget and kBadDraft: index of the first logit that is NaN or +infinity, or the number of
  /// logits if all logits are -infinity.
  std::int32_t bad_entry;
  std::int64_t position;  ///< position of tokens[0], the pending token at the start of the round
  std::int32_t tested;    ///< number of tested nodes, in tested_node
  /// The device's clock at the start, after the draft, after the target's forward and at the end.
  std::uint64_t stamp_ns[4];
  Token tokens[kMostPlanNodes];                 ///< [nodes], the pending token first
  float confidence[kMostPlanNodes];             ///< [nodes] q of the drafted token; -1 if q is one-hot
  std::int32_t path[kMostPlanNodes];            ///< [accepted] nodes, from depth 1 on
  std::int32_t tested_node[kMostPlanNodes];     ///< [tested] nodes in the order of the tests
  double p[kMostPlanNodes], q[kMostPlanNodes];  ///< [nodes], set for tested nodes only; q = 1: one-hot
};

/// The memory of planned rounds and the rows of their forwards. DeviceProgram::make_plan() creates it, and it
/// must outlive all queued work. Before the caller queues a forward, it sets `committed` in the RowsInFlight
/// to an upper bound of the number of keys that will be committed when the forward runs.
struct Plan {
  PlanShape shape;
  std::vector<std::int32_t> parents;  ///< [nodes], -1 for node 0; empty if the host drafts
  /// [depth], the rows of each draft forward. The first forward computes two rows: the token before the
  /// pending token, and the pending token. Each further forward computes one drafted level; the last level
  /// needs no forward. If the token before the pending token is already in the KV cache, it is computed
  /// again, with the same bits.
  std::vector<QueuedRows> draft;
  QueuedRows target;  ///< all nodes; nodes that the round does not use are padding
  float* draft_logits =
      nullptr;  ///< [nodes with children, draft_columns]; row i gives the children of node i
  float* target_logits = nullptr;     ///< [nodes, vocab]
  KvStore target_cache, draft_cache;  ///< set by the caller; unless the draft is a chain, settle() moves
                                      ///< the slots of the accepted path to their final places
  const PlanRound* ring = nullptr;    ///< [kPlanRing], in memory shared by host and device
  std::shared_ptr<void> own;          ///< belongs to the backend

  /// Returns round `number`; null if it has not finished, or if a later round has overwritten it.
  const PlanRound* round(std::uint32_t number) const {
    const PlanRound& at = ring[(number - 1) % kPlanRing];
    const std::uint32_t have =
        std::atomic_ref(const_cast<std::uint32_t&>(at.number)).load(std::memory_order_acquire);
    return have == number ? &at : nullptr;
  }
};

}  // namespace speclab
