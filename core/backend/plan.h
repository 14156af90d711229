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

// Planned rounds: [draft forwards | target forward | accept | settle] of one sequence, queued on a device
// before the host knows what the rounds before them gave. The shape of a round (how many rows) is the host's;
// tokens, positions and lengths stay where they are produced, and the host reads rounds from a ring when they
// are done. What is queued has no wait of the host in it, so that it can be recorded as a graph and replayed.
// Where the host drafts (PlanShape::given) a round is one of [target forward | accept | settle]: it begins
// with the tokens that the host uploads, and ends with the entry of the ring that the host waits for before
// it can draft again.

inline constexpr int kMostPlanNodes = 128;  ///< of a round, the pending token included
inline constexpr int kMostPlanEnds = 32;    ///< end tokens
inline constexpr int kPlanRing = 64;        ///< rounds that the host may leave unread
inline constexpr int kPlanLoop = 16;        ///< a loop stops behind rounds whose number is a multiple of this

/// Rows of one sequence for a forward. All pointers are memory of the backend; what they point to may change
/// until an operation reads it.
struct QueuedRows {
  const Token* tokens = nullptr;                ///< [rows.n], each below the vocabulary
  const std::int32_t* position_rows = nullptr;  ///< [rows.n], of a learned position embedding
  RowsInFlight rows;                     ///< positions below the context; slots below capacity + scratch
  const std::int32_t* wanted = nullptr;  ///< [wanted_count], rows whose logits are wanted, ascending
  int wanted_count = 0;
};

/// SamplingParams as kernels take them.
struct PlanSampling {
  bool greedy = true;  ///< temperature 0
  float scale = 1;     ///< float(min(1 / temperature, 1e30))
  int top_k = 0;
  double top_p = 1;
  bool operator==(const PlanSampling&) const = default;
};

/// What a round is: decides memory and kernels, and stays for a generation.
struct PlanShape {
  /// Children of each node of the drafted tree by depth, at most kMostPlanNodes nodes with the pending token;
  /// {1, 1, 1}: a chain; empty: autoregressive rounds. Nodes are numbered level by level, node 0 is the
  /// pending token.
  std::vector<int> widths;
  int vocab = 0;
  PlanSampling target, draft;
  AcceptRule rule = AcceptRule::kRatio;
  RatioForm form;
  CriterionForm criterion;
  int draft_columns = 0;                        ///< logits of a row of the draft
  std::vector<Token> draft_ids;                 ///< their tokens, ascending; empty: column i is token i
  int target_offset = 0, draft_offset = 0;      ///< ModelConfig::position_offset
  int target_capacity = 0, draft_capacity = 0;  ///< positions of their sessions
  /// Not 0: the host drafts, at most so many nodes with the pending token, any tree, which plan_start()
  /// brings for the one round that it begins. `widths` is empty then, and nothing of the draft model is read.
  int given = 0;
  bool given_laws = false;  ///< some of those tokens were drawn, and their laws come with them
  bool operator==(const PlanShape&) const = default;

  int depth() const { return static_cast<int>(widths.size()); }
  /// The first node of that depth; of depth() + 1: the number of nodes.
  int level_begin(int of_depth) const {
    int begin = 0;
    for (int d = 0, level = 1; d < of_depth; ++d) {
      begin += level;
      if (d < depth()) level *= widths[static_cast<std::size_t>(d)];
    }
    return begin;
  }
  int nodes() const { return given > 0 ? given : level_begin(depth() + 1); }
  /// What is accepted lies behind the pending token already.
  bool is_chain() const { return given > 0 ? given <= 2 : nodes() == depth() + 1; }
};

/// A law that a token was drawn from, as core/decoding/rows/distribution.h has it, of the host.
struct PlanLaw {
  const float* weights = nullptr;  ///< [vocab]
  double sum = 0;
};

/// What the host drafts for a round, of the host.
struct PlanDraft {
  std::span<const Token> tokens;          ///< [n] of nodes 1 .. n
  std::span<const std::int32_t> parents;  ///< [n], parent < node
  std::span<const std::int32_t> law_of;   ///< [n], into laws; -1: one-hot
  std::span<const PlanLaw> laws;          ///< at most n
};

/// A sequence as the device takes it over.
struct PlanStart {
  std::int64_t position = 0;        ///< of the pending token, at least 1
  Token previous = 0, pending = 0;  ///< at position - 1 and at position
  int emitted = 0, max_tokens = 0;  ///< emitted < max_tokens
  PhiloxKey key{};                  ///< Coins::key()
  std::uint32_t rounds = 0;         ///< queued on this plan so far, all generations: numbers go on
  std::vector<Token> ends;          ///< tokens that end the text, at most kMostPlanEnds
  PlanDraft draft;                  ///< where the shape says that it is given
};

enum class PlanEnd : std::int32_t { kNone, kEndToken, kLength, kContext, kBadTarget, kBadDraft, kNoMass };

/// A finished round as the host reads it.
struct PlanRound {
  std::uint32_t number;   ///< PlanStart::rounds + 1, + 2, ...: written last
  std::int32_t nodes;     ///< 1 + tokens drafted
  std::int32_t accepted;  ///< by the rule: so many nodes of `path`
  std::int32_t next, bonus;
  std::int32_t emitted;    ///< after the first end token or limit
  PlanEnd end;             ///< kNone: there is a next round
  std::int32_t bad_entry;  ///< kBadTarget, kBadDraft: the logit that is no number, or their count when all
                           ///< are -infinity
  std::int64_t position;   ///< of the pending token
  std::int32_t tested;     ///< so many nodes of tested_node
  std::uint64_t
      stamp_ns[4];  ///< clock of the device: begin, after the draft, after the target, end; see queue_stamp()
  Token tokens[kMostPlanNodes];                 ///< [nodes], the pending one first
  float confidence[kMostPlanNodes];             ///< [nodes] q of a drafted token; -1 where q is one-hot
  std::int32_t path[kMostPlanNodes];            ///< [accepted] nodes from depth 1 on
  std::int32_t tested_node[kMostPlanNodes];     ///< [tested] in order
  double p[kMostPlanNodes], q[kMostPlanNodes];  ///< [nodes] of the tokens that were tested; q = 1: one-hot
};

/// Memory of planned rounds and the rows of their forwards, made by Backend::make_plan(). It outlives what is
/// queued. In each RowsInFlight `committed` is the caller's to set before a forward is queued: the most that
/// may be committed then.
struct Plan {
  PlanShape shape;
  std::vector<std::int32_t> parents;  ///< [nodes], -1 for node 0; empty where the draft is given
  /// [depth]: first the two tokens before the draft (the one at position - 1 is fed again, and gets the bits
  /// it has), then the drafted levels but the last.
  std::vector<QueuedRows> draft;
  QueuedRows target;  ///< all nodes; those behind the draft are there for the shape
  float* draft_logits =
      nullptr;  ///< [nodes that have children, draft_columns], row i decides the children of node i
  float* target_logits = nullptr;     ///< [nodes, vocab]
  KvStore target_cache, draft_cache;  ///< the caller's to set where the draft is no chain: the accepted path
                                      ///< moves to its place there
  const PlanRound* ring = nullptr;    ///< [kPlanRing], memory that host and device see
  std::shared_ptr<void> own;          ///< of the backend

  /// Round `number`, null as long as it is not done.
  const PlanRound* round(std::uint32_t number) const {
    const PlanRound& at = ring[(number - 1) % kPlanRing];
    const std::uint32_t have =
        std::atomic_ref(const_cast<std::uint32_t&>(at.number)).load(std::memory_order_acquire);
    return have == number ? &at : nullptr;
  }
};

}  // namespace speclab
