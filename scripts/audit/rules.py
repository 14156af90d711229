"""Verifiers to compare with: exact ones, and four faulty ones that the audit must find (negative controls).

The first token of all four faulty ones is exact, so a check of the first token alone misses their errors.
"""

import functools

import numpy as np

from audit import transport


def positive(row):
    return np.maximum(row, 0)


def by_token(p, q, draft, coins):
    """Leviathan et al. 2023, Algorithm 1."""
    for i, x in enumerate(draft):
        if not coins.bernoulli(p[i][x] / q[i][x]):
            return i, coins.categorical(positive(p[i] - q[i]))
    return len(draft), coins.categorical(p[-1])


@functools.lru_cache(maxsize=1024)
def _best_coupling(p, drafts):
    return transport.best_coupling(dict(drafts), dict(enumerate(p)), lambda children, token: token in children)


def optimal_transport(p, drafts, children, coins):
    """The best rule for one node: the emitted token has the law p, and it is one of the children as often as any rule allows
    (Sun et al. 2023, arXiv 2310.15141). `drafts` is the law {children: P} from which `children` was drawn. Solves a
    linear program of at most transport.MOST_PAIRS variables. Needs SciPy."""
    row = _best_coupling(tuple(map(float, p)), tuple(drafts.items())).rows[tuple(children)]
    return list(row)[coins.categorical(row.values())]


def by_transport(p, q, draft, coins):
    """optimal_transport() at each token of a chain. With one child it accepts what by_token() accepts."""
    for i, x in enumerate(draft):
        token = optimal_transport(p[i], {(y,): float(q[i][y]) for y in range(len(q[i]))}, (x,), coins)
        if token != x:
            return i, token
    return len(draft), coins.categorical(p[-1])


def _products(p, q, draft):
    """rho_0 .. rho_gamma: the product of p/q along the draft, capped at 1 after each factor."""
    rho = [1.0]
    for i, x in enumerate(draft):
        rho.append(min(1.0, rho[-1] * p[i][x] / q[i][x]))
    return rho


def _pass(p, q, rho, i):
    """P(length i passes its test), for i < gamma."""
    left = positive(rho[i] * p[i] - q[i]).sum()
    return left / (left + 1 - rho[i]) if left > 0 or rho[i] < 1 else 1.0


def by_block(
    p, q, draft, coins, residual=lambda rho, p, q: positive(rho * p - q), last=lambda rho, p, q, draft: rho[-1]
):
    """Sun et al. 2024 (arXiv 2403.10444): accepts the longest prefix that passes its test. A negative control passes
    another `residual` (the law of the correction token) or another `last` (the probability of accepting the whole
    draft)."""
    rho, gamma = _products(p, q, draft), len(draft)
    if coins.bernoulli(last(rho, p, q, draft)):
        return gamma, coins.categorical(p[gamma])
    for i in range(gamma - 1, 0, -1):
        if coins.bernoulli(_pass(p, q, rho, i)):
            break
    else:
        i = 0
    return i, coins.categorical(residual(rho[i], p[i], q[i]))


def block_with_token_residual(p, q, draft, coins):
    """Negative control: accepts as the block rule does, but draws the correction token as the token rule does."""
    return by_block(p, q, draft, coins, residual=lambda rho, p, q: positive(p - q))


def _stops_at_first_rejection(p, q, draft, coins, scaled):
    rho = _products(p, q, draft)
    for i in range(len(draft)):
        if not coins.bernoulli(rho[i + 1]):
            left = positive((rho[i] if scaled else 1) * p[i] - q[i])
            return i, coins.categorical(left if left.sum() > 0 else p[i])
    return len(draft), coins.categorical(p[-1])


def stops_with_token_residual(p, q, draft, coins):
    """Negative control: tests the products of _products() one after the other and stops at the first that fails. Draws
    the correction token as the token rule does."""
    return _stops_at_first_rejection(p, q, draft, coins, scaled=False)


def stops_with_block_residual(p, q, draft, coins):
    """Negative control: as stops_with_token_residual, but draws the correction token as the block rule does."""
    return _stops_at_first_rejection(p, q, draft, coins, scaled=True)


def first_token_is_exact(p, q, draft, coins):
    """Negative control: the test of the whole draft does not cap the product after each factor."""

    def uncapped(rho, p, q, draft):
        return min(1.0, float(np.prod([p[i][x] / q[i][x] for i, x in enumerate(draft)])))

    return by_block(p, q, draft, coins, last=uncapped)
