"""The drafts that a verifier judges: every chain, or every tree of one shape, with its probability and its rows."""

import dataclasses
import itertools
import operator

import numpy as np

from audit.coins import Misuse

INDEPENDENT, WITHOUT_REPLACEMENT = "independent", "without-replacement"
DRAWS = (INDEPENDENT, WITHOUT_REPLACEMENT)  # how the children of a node are drawn


@dataclasses.dataclass(frozen=True)
class Tree:
    """A drafted tree. Node 0 is the pending token; its token and its parent are -1. The other nodes are numbered in the order
    in which they were drawn, so a parent has a smaller number than its children."""

    tokens: tuple
    parents: tuple

    def children(self, node):
        """The children of a node, in the order in which they were drawn."""
        return [child for child, parent in enumerate(self.parents) if parent == node]

    def path(self, node):
        """The nodes from the first drafted one to `node`."""
        return [] if node == 0 else [*self.path(self.parents[node]), node]

    def text(self, node):
        """The tokens of path(node)."""
        return tuple(self.tokens[on_path] for on_path in self.path(node))


@dataclasses.dataclass
class Draft:
    """`probability` is the probability that this draft is drawn. `p`, `q` and `judged` are arguments of the verifier. Row i of q is the
    distribution from which token i was drawn.

    For a chain, p is [gamma + 1, vocab], q is [gamma, vocab], and `judged` has its tokens. For a tree of n drafted nodes, p and q are
    [n + 1, vocab], row i belongs to node i, row 0 of q is NaN, and `judged` is the Tree.
    """

    probability: float
    p: np.ndarray
    q: np.ndarray
    judged: tuple | Tree

    @property
    def size(self):
        """The number of drafted tokens."""
        return len(self.p) - 1

    def __str__(self):
        if isinstance(self.judged, Tree):
            return f"tokens {list(self.judged.tokens)} of the tree {list(self.judged.parents)}"
        return f"draft {list(self.judged)}"

    def emitted(self, result):
        """The tokens that a step with this result of the verifier emits. Raises Misuse if the result is not valid."""
        tree = isinstance(self.judged, Tree)
        try:
            kept, token = result
            kept = [operator.index(node) for node in kept] if tree else operator.index(kept)
            token = operator.index(token)
        except (TypeError, ValueError):
            expected = (
                "(nodes, next_token), a list of nodes and a whole number"
                if tree
                else "(accepted, next_token), two whole numbers"
            )
            raise Misuse(f"it returned {result!r}; expected {expected}") from None
        if not 0 <= token < self.p.shape[1]:
            raise Misuse(f"it returned the next token {token}; the vocabulary is 0 to {self.p.shape[1] - 1}")
        if not tree:
            if not 0 <= kept <= self.size:
                raise Misuse(f"it accepted {kept} tokens of a draft of {self.size}")
            return (*self.judged[:kept], token)
        last = kept[-1] if kept else 0
        if not 0 <= last <= self.size or self.judged.path(last) != kept:
            raise Misuse(f"it accepted the nodes {kept}, which are no path from a child of node 0")
        return (*self.judged.text(last), token)


def chains(table, gamma):
    """Every chain of gamma tokens whose probability is not zero."""
    for tokens in itertools.product(range(table.vocab), repeat=gamma):
        probability = float(np.prod([table.q[tokens[:i]][x] for i, x in enumerate(tokens)]))
        if probability > 0:
            p = np.array([table.p[tokens[:i]] for i in range(gamma + 1)])
            q = np.array([table.q[tokens[:i]] for i in range(gamma)]).reshape(gamma, table.vocab)
            yield Draft(probability, p, q, tokens)


def depth(parents):
    """The largest number of drafted nodes on a path of a tree with these parents."""
    return max(len(Tree(parents, parents).path(node)) for node in range(len(parents)))


def trees(table, parents, draws):
    """Every tree of one shape whose probability is not zero. `parents`: as in Tree. `draws`: one of DRAWS. A child that is drawn
    without replacement never has the token of an earlier child of the same node. If q has no token left for a child, the tree lacks
    this child and all nodes below it. Raises ValueError if `parents` or `draws` is wrong."""
    if not parents or parents[0] != -1 or any(not 0 <= parents[i] < i for i in range(1, len(parents))):
        raise ValueError(f"parents {list(parents)}; expected -1, then for each node a node before it")
    if draws not in DRAWS:
        raise ValueError(f"draws {draws!r}; expected {' or '.join(DRAWS)}")
    nothing = np.full(table.vocab, np.nan)

    def grow(node, tree, rows, numbers, probability):
        """Draws node `node` of the shape and all later ones. numbers[i] is the number that node i of the shape has in the tree. It is
        None if the tree lacks this node."""
        if node == len(parents):
            p = np.array([table.p[tree.text(i)] for i in range(len(tree.tokens))])
            yield Draft(probability, p, np.array(rows), tree)
            return
        parent = numbers[parents[node]]
        row = None if parent is None else table.q[tree.text(parent)]
        if row is not None and draws == WITHOUT_REPLACEMENT and tree.children(parent):
            row = row.copy()
            row[[tree.tokens[child] for child in tree.children(parent)]] = 0
            row = row / row.sum() if row.sum() > 0 else None
        if row is None:
            yield from grow(node + 1, tree, rows, [*numbers, None], probability)
            return
        for x in range(table.vocab):
            if row[x] > 0:
                longer = Tree((*tree.tokens, x), (*tree.parents, parent))
                of_node = [*numbers, len(tree.tokens)]
                yield from grow(node + 1, longer, [*rows, row], of_node, probability * float(row[x]))

    return grow(1, Tree((-1,), (-1,)), [nothing], [0], 1.0)
