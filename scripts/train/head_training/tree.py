"""Chooses the static tree of independent heads from their measured accuracies (Cai et al. 2024, "Medusa", Section 2.3.3).

A node at depth d is a path of ranks. If the heads are right independently of each other, the probability that the path
is right is the product of their accuracies.
A step emits the pending token's successor and one token for each right node, so the expected number of emitted tokens is 1 plus the
sum over the nodes. A node is never worth more than its parent and its earlier sibling. So taking the most valuable node each time gives
the best tree of each size.
"""

import heapq


def best_tree(accuracy, nodes):
    """The `nodes` most valuable nodes, best first, and the expected tokens of a step. accuracy[head][rank]: share of positions where the
    head's token of this rank is right; it does not grow with the rank."""
    tree, expected = [], 1.0
    waiting = [(-accuracy[0][0], (0,))]
    while waiting and len(tree) < nodes:
        value, path = heapq.heappop(waiting)
        if value == 0:
            break
        tree.append(list(path))
        expected -= value
        above = -value / accuracy[len(path) - 1][path[-1]]
        if path[-1] + 1 < len(accuracy[len(path) - 1]):  # the next sibling
            heapq.heappush(waiting, (-above * accuracy[len(path) - 1][path[-1] + 1], (*path[:-1], path[-1] + 1)))
        if len(path) < len(accuracy):  # the first child
            heapq.heappush(waiting, (value * accuracy[len(path)][0], (*path, 0)))
    return tree, expected
