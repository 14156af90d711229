"""Tables in place of two models: a row p of the target and a row q of the draft for every history of tokens."""

import dataclasses
import itertools

import numpy as np

GOLDEN_P = (0.55, 0.25, 0.15, 0.05)
GOLDEN_Q = (0.40, 0.35, 0.05, 0.20)
KINDS = ("generic", "zeros", "p = q", "disjoint p and q", "one-hot p", "one-hot q", "q near p")


@dataclasses.dataclass
class Table:
    """p and q: {history: row}. A history is the tuple of tokens after the pending token."""

    name: str
    vocab: int
    p: dict
    q: dict


def histories(vocab, length):
    """All histories shorter than `length`, the shortest first."""
    for size in range(length):
        yield from itertools.product(range(vocab), repeat=size)


def golden(gamma):
    """The same pair of rows after every history."""
    contexts = list(histories(len(GOLDEN_P), gamma + 1))
    rows = {c: np.array(GOLDEN_P) for c in contexts}, {c: np.array(GOLDEN_Q) for c in contexts}
    return Table("golden pair", len(GOLDEN_P), *rows)


def random_table(kind, vocab, gamma, random):
    p, q = {}, {}
    for context in histories(vocab, gamma + 1):
        p[context], q[context] = _rows(kind, vocab, random)
    return Table(f"{kind}, {vocab} tokens", vocab, p, q)


def _rows(kind, vocab, random):
    p, q = (_weights(kind, vocab, random) for _ in range(2))
    if kind == "p = q":
        q = p.copy()
    elif kind == "disjoint p and q":
        p[1::2], q[0::2] = 0, 0
    elif kind == "one-hot p":
        p = np.eye(vocab)[random.integers(vocab)]
    elif kind == "one-hot q":
        q = np.eye(vocab)[random.integers(vocab)]
    elif kind == "q near p":
        q = p * (1 + 1e-6 * np.arange(1, vocab + 1))
    return p / p.sum(), q / q.sum()


def _weights(kind, vocab, random):
    while True:
        weights = random.integers(1, 1001, vocab).astype(float)
        if kind == "zeros":
            weights[random.random(vocab) < 1 / 3] = 0
        if weights.sum() > 0:
            return weights
