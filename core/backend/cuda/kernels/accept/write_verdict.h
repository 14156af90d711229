#pragma once

#include "core/backend/cuda/kernels/acceptance_kernel.h"

// Writes the verdict of rules that do not walk from the pending token, node by node.

namespace speclab::cuda {
inline namespace SPECLAB_SIDE {

/// Writes a verdict whose path ends at the node `last`. One thread calls it. The tested nodes are the
/// children of the nodes on the path: all children if `tests_all` is true, otherwise those up to the accepted
/// child, in draw order. `next` is a bonus token if `last` has no children. `fault`: see Verdict.
SPECLAB_DEVICE void write_verdict(Verdict* verdict, const TreeFacts& facts, int nodes, int last, int next,
                                  int fault, bool tests_all) {
  const int depth = facts.depth(last);
  for (int node = last, at = depth; at > 0; node = facts.parent(node))
    simt::store(&verdict->path[--at], node);
  int moves = 0, tested = 0;
  for (int at = 0, node = 0; at <= depth; ++at) {
    const int accepted = at < depth ? simt::load(&verdict->path[at]) : nodes;
    if (at < depth && accepted != at + 1) {
      simt::store(&verdict->from[moves], accepted);
      simt::store(&verdict->to[moves], at + 1);
      ++moves;
    }
    for (int child = facts.first_child(node); child < nodes; child = facts.next_sibling(child)) {
      simt::store(&verdict->tested_node[tested], child);
      simt::store(&verdict->tested_p[tested], facts.p(child));
      simt::store(&verdict->tested_q[tested], facts.q(child));
      ++tested;
      if (child == accepted && !tests_all) break;
    }
    node = accepted;
  }
  simt::store(&verdict->accepted, depth);
  simt::store(&verdict->next, next);
  simt::store(&verdict->bonus, facts.first_child(last) == nodes ? 1 : 0);
  simt::store(&verdict->fault, fault);
  simt::store(&verdict->moves, moves);
  simt::store(&verdict->tested, tested);
}

}  // namespace SPECLAB_SIDE
}  // namespace speclab::cuda
