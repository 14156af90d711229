#pragma once

#include "core/backend/cuda/kernels/accept/path_law.h"
#include "core/backend/cuda/kernels/accept/write_verdict.h"
#include "core/backend/cuda/kernels/acceptance_kernel.h"

// Verifies a draft by whole paths, from the leaves to the root (AcceptRule::kPaths). The host's side is
// core/decoding/rules/rules_paths.cpp, which explains rho, R (a distribution) and S. The bits are the same.
//
// No rho, R or S depends on a coin (random number). Coins only decide at which node the walk ends. So the
// sums S of the first path (from the pending token, always to the first child) can be computed before the
// walk, as sums of chunks. If there is memory through which blocks exchange results (Accept::meeting), each
// of the first levels_ahead() nodes of this path has one block per piece of its row (row_pieces.h). The block
// that finishes last does the walk. If the draft is a chain of at most 8 tokens, this block reads only one
// chunk of a row, to draw a token. It reads whole rows, with 32 KiB in flight, when a node loses its second
// or a later child, and when a node that is not among these levels_ahead() nodes loses its first child.

namespace speclab::cuda {

/// Arguments of the kernel. `of.residual` has accept_scratch() entries (start_accept.h).
struct AcceptPaths {
  Accept of;
};

/// Largest number of nodes of the first path whose sums are computed before the walk.
SPECLAB_BOTH constexpr int levels_ahead(int nodes) {
  constexpr int kLevelsAhead = 8;
  return nodes - 1 < kLevelsAhead ? nodes - 1 : kLevelsAhead;
}
/// Largest number of laws R that are stored at the same time. A node stores its R when it loses its second
/// child. All nodes with a stored R are on the current path. Each such node, except the last, has at least
/// three children: two that failed and one on the path. One more law is needed for the R that is being
/// computed.
SPECLAB_BOTH constexpr int laws_stored(int nodes) { return nodes < 3 ? 0 : (nodes - 3) / 3 + 2; }

inline namespace SPECLAB_SIDE {

template <typename Coins>
struct AcceptPathsKernel {
  static constexpr const char* kName = "accept_paths";
  static constexpr int kThreads = kLawThreads;
  static constexpr bool kAlone = true;
  Accept a;
  Coins coins;

  /// The shared memory of a block: LawSpace, TreeFacts, PathStates, and a piece of a difference if there are
  /// several blocks.
  SPECLAB_BOTH static constexpr int facts_at(int vocab) { return LawSpace(vocab).bytes(); }
  SPECLAB_BOTH static constexpr int states_at(int vocab) { return facts_at(vocab) + TreeFacts::kBytes; }
  SPECLAB_BOTH static constexpr int bytes(int vocab, bool several) {
    return states_at(vocab) + PathStates::kBytes + (several ? 8 * PieceOrder::kEntries : 0);
  }
  /// Returns how many blocks work together.
  static int blocks(const Accept& a) {
    const bool several =
        a.meeting.arrivals != nullptr && a.p != nullptr && a.vocab > kRowPiece && a.nodes > 1;
    return several ? row_pieces(a.vocab) * levels_ahead(a.nodes) : 1;
  }

  SPECLAB_DEVICE double* sums_of(int level) const {
    return a.residual + static_cast<std::size_t>(level) * static_cast<std::size_t>(chunks_of(a.vocab));
  }
  SPECLAB_DEVICE double* law_at(int slot) const {
    return sums_of(levels_ahead(a.nodes)) +
           static_cast<std::size_t>(slot) * static_cast<std::size_t>(a.vocab);
  }
  SPECLAB_DEVICE LawRow row_of(int node) const { return LawRow::of(a.p, a.p_laws, node, a.vocab, a.p_sums); }

  /// Computes one piece of (rho p - q)+ for one level of the first path and writes the sums of the chunks of
  /// this piece. The number of the block determines the level and the piece.
  SPECLAB_DEVICE void sum_ahead(const LawSpace& space, const TreeFacts& facts, int nodes) const {
    const int pieces = row_pieces(a.vocab), piece = simt::block_x() % pieces,
              level = simt::block_x() / pieces;
    int node = 0, child = facts.first_child(0), depth = 0;
    double rho = 1;
    for (; depth < level && child < nodes && facts.q(child) > 0; ++depth) {
      rho = rho_of_child(rho, facts.p(child), facts.q(child));
      node = child;
      child = facts.first_child(node);
    }
    if (depth < level || child >= nodes) return;
    PathLaw difference{.p = row_of(node)};
    if (difference.p.one_hot >= 0) return;
    difference.take(rho, TreeFacts::drawn_from(a, child, facts.token(child)));
    const int begin = piece * kRowPiece, end = simt::min(begin + kRowPiece, a.vocab);
    const auto values = simt::shared<double>(bytes(a.vocab, false), PieceOrder::kEntries);
    visit_entries(begin + simt::thread_index(), end, simt::block_threads(), difference.loader(),
                  [&](int x, const TwoWeights& of) {
                    values.set(PieceOrder::place(x - begin), difference.weight_of(x, of));
                  });
    SPECLAB_ROLLED
    for (int x = end + simt::thread_index(); x < begin + kRowPiece; x += simt::block_threads())
      values.set(PieceOrder::place(x - begin), 0.0);
    PieceOrder::sum_chunks(values, space.lanes(), piece, chunks_of(a.vocab), sums_of(level));
  }

  SPECLAB_DEVICE PathLaw law_of(const TreeFacts& facts, int node, const PathStates::State& state) const {
    PathLaw law{.p = row_of(node), .rho = state.rho};
    if (state.removed < 0) return law;
    if (state.slot >= 0) {
      law.kind = PathLaw::Kind::kStored;
      law.stored = law_at(state.slot);
    } else {
      law.take(state.before, TreeFacts::drawn_from(a, state.removed, facts.token(state.removed)));
    }
    law.sum = state.sum;
    return law;
  }

  /// Returns a slot that no node on the path to `node` uses.
  SPECLAB_DEVICE static int free_slot(const TreeFacts& facts, const PathStates& states, int node) {
    static_assert(laws_stored(kMostNodes) <= 64);
    simt::u64 used = 0;
    SPECLAB_ROLLED
    for (; node >= 0; node = facts.parent(node)) {
      if (const int slot = states.slot(node); slot >= 0) used |= simt::u64{1} << slot;
    }
    int slot = 0;
    SPECLAB_ROLLED
    for (; (used >> slot & 1) != 0; ++slot) {
    }
    return slot;
  }

  /// Replaces R and rho of a node after a child failed. Returns true if LawSpace then holds the sums of the
  /// chunks of R.
  SPECLAB_DEVICE bool remove(const LawSpace& space, const TreeFacts& facts, const PathStates& states,
                             int node, int child) const {
    PathStates::State state = states.get(node);
    const PathLaw law = law_of(facts, node, state);
    const LawRow q = TreeFacts::drawn_from(a, child, facts.token(child));
    const double rho = state.rho;
    double left = 0;
    int slot = -1;
    if (law.p.one_hot >= 0) {  // R stays as it is
      left = path_residual(rho, 1, q.prob(law.p.one_hot));
    } else if (law.kind == PathLaw::Kind::kRow) {
      PathLaw next = law;
      next.take(rho, q);
      const KnownSums known{.chunks = state.ahead >= 0 ? sums_of(state.ahead) : nullptr};
      left = sum_row(
          space, a.vocab,
          Entries{next.loader(), [&](int x, const TwoWeights& of) { return next.weight_of(x, of); }, known});
    } else {
      slot = free_slot(facts, states, node);
      double* to = law_at(slot);
      const float* drawn = q.one_hot >= 0 ? law.p.weights : q.weights;
      const auto left_of = [&](int x, double prob_of_x, float w) {
        const double of_q = q.one_hot >= 0 ? (x == q.one_hot ? 1 : 0) : static_cast<double>(w) / q.sum;
        const double kept = path_residual(rho, prob_of_x, of_q);
        simt::store(to + x, kept);
        return kept;
      };
      if (law.kind == PathLaw::Kind::kStored) {
        left = sum_row(
            space, a.vocab,
            Entries{
                [&](int x) { return StoredWeight{simt::load(law.stored + x), simt::load(drawn + x)}; },
                [&](int x, const StoredWeight& of) { return left_of(x, of.stored / law.sum, of.drawn); }});
      } else {
        left = sum_row(
            space, a.vocab,
            Entries{[&, load = law.loader()](int x) { return ThreeWeights{load(x), simt::load(drawn + x)}; },
                    [&](int x, const ThreeWeights& of) {
                      return left_of(x, law.weight_of(x, of.own) / law.sum, of.drawn);
                    }});
      }
    }
    const bool changed = left > 0 && law.p.one_hot < 0;
    state.rho = rho_after_failure(rho, left);
    state.ahead = -1;  // the sums computed before the walk hold for the first removal only
    if (changed) {
      state.sum = left;
      if (state.removed < 0) {
        state.removed = child;
        state.before = rho;
      } else {
        state.slot = slot;
      }
    }
    states.set(node, state);
    return changed;
  }

  /// Draws the token after `node`, the last node of the path, whose children all failed. in_space: LawSpace
  /// holds the sums of the chunks of R of this node (the result of remove()).
  SPECLAB_DEVICE int correction(const LawSpace& space, const TreeFacts& facts, const PathStates& states,
                                int node, bool in_space, std::int64_t position) const {
    const PathLaw law = law_of(facts, node, states.get(node));
    const auto draw = static_cast<simt::u32>(node);
    if (law.p.one_hot >= 0 || law.kind == PathLaw::Kind::kRow)
      return law.p.sample(space, a.vocab, coins, position, kResidualCoin, draw);
    const KnownSums known{.in_space = in_space};
    if (law.kind == PathLaw::Kind::kStored) {
      return coins.categorical(
          space, a.vocab,
          Entries{[&](int x) { return simt::load(law.stored + x); }, [](int, double w) { return w; }, known},
          position, kResidualCoin, draw);
    }
    return coins.categorical(
        space, a.vocab,
        Entries{law.loader(), [&](int x, const TwoWeights& of) { return law.weight_of(x, of); }, known},
        position, kResidualCoin, draw);
  }

  SPECLAB_DEVICE void operator()() const {
    const LawSpace space(a.vocab);
    const TreeFacts facts(facts_at(a.vocab));
    const PathStates states(states_at(a.vocab));
    const std::int64_t position = simt::load(a.position);
    const int nodes = a.nodes_at == nullptr ? a.nodes : simt::load(a.nodes_at);
    facts.fetch(a, nodes);
    const bool several = simt::grid_x() > 1;
    if (several) {
      sum_ahead(space, facts, nodes);
      if (!last_of_row(space.told(), a.meeting.arrivals)) return;
    }
    const int levels = several ? levels_ahead(a.nodes) : 0;
    int node = 0, child = facts.first_child(0), fault = -1;
    bool in_space = false, valid = simt::load(&a.p_laws[0].invalid) < 0;
    states.set(0, {.ahead = levels > 0 ? 0 : -1});
    for (int level = 1;; level = levels) {
      for (; child < nodes && valid; child = facts.first_child(node), ++level) {
        const PathStates::State state = states.get(node);
        const double q_token = facts.q(child);
        if (!(q_token > 0)) {
          fault = child;
          break;
        }
        const double p_token =
            state.removed < 0 ? facts.p(child) : law_of(facts, node, state).prob(facts.token(child));
        states.set(child,
                   {.rho = rho_of_child(state.rho, p_token, q_token), .ahead = level < levels ? level : -1});
        node = child;
        valid = simt::load(&a.p_laws[node].invalid) < 0;
      }
      if (!valid || fault >= 0 || node == 0 ||
          coins.bernoulli(space, states.get(node).rho, position, kAcceptCoin, static_cast<simt::u32>(node)))
        break;
      const int failed = node;
      node = facts.parent(failed);
      in_space = remove(space, facts, states, node, failed);
      child = facts.next_sibling(failed);
    }
    // The path to an invalid row becomes the accepted path, so that the kernel Settle finds the row.
    int next = 0;
    const bool bonus = facts.first_child(node) == nodes;
    if (valid && fault < 0) {
      next = bonus ? row_of(node).sample(space, a.vocab, coins, position + facts.depth(node) + 1, kTargetCoin)
                   : correction(space, facts, states, node, in_space, position);
    }
    if (simt::thread_index() == 0) write_verdict(a.verdict, facts, nodes, node, next, fault, false);
  }

 private:
  struct StoredWeight {
    double stored;
    float drawn;
  };
  struct ThreeWeights {
    TwoWeights own;
    float drawn;
  };
};

}  // namespace SPECLAB_SIDE
}  // namespace speclab::cuda
