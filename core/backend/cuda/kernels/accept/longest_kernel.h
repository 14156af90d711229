#pragma once

#include "core/backend/cuda/kernels/accept/write_verdict.h"
#include "core/backend/cuda/kernels/acceptance_kernel.h"

// Accepts the longest path whose tokens all meet a criterion, a condition on a token (AcceptRule::kLongest).
// The host's side is verify_longest() of core/decoding/rules/rules_criterion.cpp, with the same bits.
//
// A criterion judges each token on its own. So if there is memory through which blocks exchange results
// (Accept::meeting), each node has a block, which judges the children of the node. The block that finishes
// last looks for the path. Without such memory one block does everything.

namespace speclab::cuda {

/// Arguments of the kernel. `of.residual` has accept_scratch() entries (start_accept.h).
struct AcceptLongest {
  Accept of;
};

inline namespace SPECLAB_SIDE {

template <typename Coins>
struct AcceptLongestKernel {
  static constexpr const char* kName = "accept_longest";
  static constexpr int kThreads = kLawThreads;
  static constexpr bool kAlone = true;
  static constexpr double kRefused = 1e300;  ///< stands for the log p of a token that is not accepted
  Accept a;
  Coins coins;

  /// The shared memory of a block: LawSpace, TreeFacts, and the nodes that longest() finds.
  SPECLAB_BOTH static constexpr int facts_at(int vocab) { return LawSpace(vocab).bytes(); }
  SPECLAB_BOTH static constexpr int bytes(int vocab, bool) {
    return facts_at(vocab) + TreeFacts::kBytes + kMostNodes * (8 + 2 * 4);
  }
  static int blocks(const Accept& a) { return a.meeting.arrivals != nullptr ? a.nodes : 1; }

  /// For each child of `node`, writes the log of its probability in the row that the criterion looks at, or
  /// kRefused if the criterion does not accept the child.
  SPECLAB_DEVICE void judge(const AcceptKernel<Coins>& walk, const LawSpace& space, const TreeFacts& facts,
                            int nodes, int node) const {
    const AcceptedSet set =
        walk.accepted_at(space, LawRow::of(a.p, a.p_laws, node, a.vocab), node, facts.depth(node));
    for (int child = facts.first_child(node); child < nodes; child = facts.next_sibling(child)) {
      const int token = facts.token(child);
      const bool accepts = set.accepts(space, token);
      const double p = set.seen.prob(token);
      if (simt::thread_index() == 0) simt::store(a.residual + child, accepts ? log_of_accepted(p) : kRefused);
    }
  }

  /// Returns the last node of the longest accepted path. Among paths of equal length the one with the largest
  /// sum of log p wins. If the sums are equal too, the path wins whose last node comes first (by depth, then
  /// in draw order). If an invalid row (Law::invalid) is needed, returns the first node with such a row
  /// instead. One thread calls this function.
  SPECLAB_DEVICE int longest(const TreeFacts& facts, int nodes) const {
    const int found_at = facts_at(a.vocab) + TreeFacts::kBytes;
    const auto log_p = simt::shared<double>(found_at, kMostNodes);
    const auto found = simt::shared<std::int32_t>(found_at + 8 * kMostNodes, kMostNodes),
               depths = simt::shared<std::int32_t>(found_at + 12 * kMostNodes, kMostNodes);
    int count = 1, best = 0;
    found.set(0, 0);
    depths.set(0, 0);
    log_p.set(0, 0.0);
    for (int i = 0; i < count; ++i) {
      const int node = found[i], depth = depths[i], most = depths[best];
      const double sum = log_p[i];
      if (depth > most || (depth == most && sum > log_p[best])) best = i;
      int child = facts.first_child(node);
      if (child < nodes && simt::load(&a.p_laws[node].invalid) >= 0) return node;
      for (; child < nodes; child = facts.next_sibling(child)) {
        const double own = simt::load(a.residual + child);
        if (own == kRefused) continue;
        found.set(count, child);
        depths.set(count, depth + 1);
        log_p.set(count, sum + own);
        ++count;
      }
    }
    return found[best];
  }

  SPECLAB_DEVICE void operator()() const {
    const AcceptKernel<Coins> walk{a, coins};
    const LawSpace space(a.vocab);
    const TreeFacts facts(facts_at(a.vocab));
    const int nodes = a.nodes_at == nullptr ? a.nodes : simt::load(a.nodes_at);
    facts.fetch(a, nodes);
    SPECLAB_ROLLED
    for (int node = simt::block_x(); node < nodes; node += simt::grid_x()) {
      if (facts.first_child(node) < nodes) judge(walk, space, facts, nodes, node);
    }
    if (simt::grid_x() > 1 && !last_of_row(space.told(), a.meeting.arrivals)) return;
    simt::block_sync();
    if (simt::thread_index() == 0) space.told().set(0, static_cast<simt::u64>(longest(facts, nodes)));
    simt::block_sync();
    const int last = static_cast<int>(space.told()[0]);
    const LawRow row = LawRow::of(a.p, a.p_laws, last, a.vocab, a.p_sums);
    const int depth = facts.depth(last);
    const std::int64_t position = simt::load(a.position) + depth + 1;
    // After a rejection these rules draw from the same distribution as after full acceptance.
    const int next = a.criterion.typical && row.one_hot < 0
                         ? walk.token_within(space, row, walk.accepted_at(space, row, last, depth), position)
                         : walk.target_token(space, row, position);
    if (simt::thread_index() == 0) write_verdict(a.verdict, facts, nodes, last, next, -1, true);
  }
};

}  // namespace SPECLAB_SIDE
}  // namespace speclab::cuda
