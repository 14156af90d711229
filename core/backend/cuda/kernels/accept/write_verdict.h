#pragma once

#include "core/backend/cuda/kernels/acceptance_kernel.h"

// Writes the verdict of rules that do not walk node by node from the pending token (the root).

namespace speclab::cuda {
inline namespace SPECLAB_SIDE {

/// Writes a verdict without its tested nodes. The path ends at the node `last`. One thread calls this
/// function. `next` is a bonus token if `last` has no children. `fault`: see Verdict.
SPECLAB_DEVICE void write_path(Verdict* verdict, const TreeFacts& facts, int nodes, int last, int next,
                               int fault) {
  const int depth = facts.depth(last);
  int moves = 0;
  for (int node = last, at = depth; at > 0; node = facts.parent(node))
    simt::store(&verdict->path[--at], node);
  for (int at = 0; at < depth; ++at) {
    const int accepted = simt::load(&verdict->path[at]);
    if (accepted == at + 1) continue;
    simt::store(&verdict->from[moves], accepted);
    simt::store(&verdict->to[moves], at + 1);
    ++moves;
  }
  simt::store(&verdict->accepted, depth);
  simt::store(&verdict->next, next);
  simt::store(&verdict->bonus, facts.first_child(last) == nodes ? 1 : 0);
  simt::store(&verdict->fault, fault);
  simt::store(&verdict->moves, moves);
}

/// Writes a tested node, with p and q of its token. One thread calls it.
SPECLAB_DEVICE void write_test(Verdict* verdict, int number, int node, double p, double q) {
  simt::store(&verdict->tested_node[number], node);
  simt::store(&verdict->tested_p[number], p);
  simt::store(&verdict->tested_q[number], q);
}

/// Writes a verdict as write_path() does, and the tested nodes. Every child of `last` is tested. Of the
/// children of each node above `last`, all are tested if `tests_all` is true, otherwise those up to the
/// accepted child, in draw order.
SPECLAB_DEVICE void write_verdict(Verdict* verdict, const TreeFacts& facts, int nodes, int last, int next,
                                  int fault, bool tests_all) {
  write_path(verdict, facts, nodes, last, next, fault);
  const int depth = facts.depth(last);
  int tested = 0;
  for (int at = 0, node = 0; at <= depth; ++at) {
    const int accepted = at < depth ? simt::load(&verdict->path[at]) : nodes;
    for (int child = facts.first_child(node); child < nodes; child = facts.next_sibling(child)) {
      write_test(verdict, tested++, child, facts.p(child), facts.q(child));
      if (child == accepted && !tests_all) break;
    }
    node = accepted;
  }
  simt::store(&verdict->tested, tested);
}

}  // namespace SPECLAB_SIDE
}  // namespace speclab::cuda
