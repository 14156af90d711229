"""Verifiers of trees to compare with: an exact one, and three faulty ones that the audit must find (negative controls)."""

from audit.rules import positive


def multi_step(
    p, q, tree, coins, row_of=lambda tree, node: node, q_of=lambda tree, child: child, correction=lambda rows: rows[-1]
):
    """Multi-step speculative sampling (Miao et al. 2024, SpecInfer, arXiv 2305.09781, Algorithm 2): tests the children of a node one
    after the other, in the order in which they were drawn. After each rejection the residual takes the place of p.

    A negative control passes another `row_of` (the node whose p is read), `q_of` (the node whose q is read) or `correction`
    (the law of the correction token; `rows` are p and the residuals after each rejection)."""
    node, nodes = 0, []
    while True:
        rows = [p[row_of(tree, node)]]
        for child in tree.children(node):
            x, drawn_from = tree.tokens[child], q[q_of(tree, child)]
            if coins.bernoulli(rows[-1][x] / drawn_from[x]):
                node = child
                nodes.append(child)
                break
            residual = positive(rows[-1] - drawn_from)
            rows.append(residual / residual.sum())
        else:
            return nodes, coins.categorical(correction(rows))


def _first_sibling(tree, node):
    return node if node == 0 else tree.children(tree.parents[node])[0]


def residual_of_another_child(p, q, tree, coins):
    """Negative control: draws the correction token from the residual of the first child, though all children were rejected."""
    return multi_step(p, q, tree, coins, correction=lambda rows: rows[:2][-1])


def siblings_with_full_q(p, q, tree, coins):
    """Negative control: tests all children of a node with the q of the first one. This is exact for independent children and
    wrong for children that were drawn without replacement."""
    return multi_step(p, q, tree, coins, q_of=_first_sibling)


def row_of_another_node(p, q, tree, coins):
    """Negative control: after the acceptance of a child it reads p at the first child of the same parent. The first token is exact."""
    return multi_step(p, q, tree, coins, row_of=_first_sibling)
