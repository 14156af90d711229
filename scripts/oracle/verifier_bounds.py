#!/usr/bin/env python3
"""Oracle of the bounds for verifiers: writes tests/golden/verifier_bounds.json.

    python3 scripts/oracle/verifier_bounds.py [--check]

The largest acceptance of k drafted children of a node is the value of a linear program: a joint law of the children and the
emitted token, with the given law of the children and the target's law of the token, that gives the most mass to tokens which
are among the children. HiGHS (in scipy) solves it for random rows. Rows are whole numbers divided by their sum; some are 0.
--check writes nothing and exits 1 if the golden file would change.
"""

import argparse
import itertools
import json
import pathlib
import random
import sys

import numpy as np
from scipy.optimize import linprog

GOLDEN = pathlib.Path(__file__).resolve().parents[2] / "tests/golden/verifier_bounds.json"
GOLDEN_PAIR = [(4, [11, 5, 3, 1], [8, 7, 1, 4])]
SHAPES = [(2, 1), (2, 2), (3, 2), (3, 3), (4, 2), (4, 3), (5, 2), (5, 3)]


def laws_of_drafts(q, k):
    """Two laws {children: P}: drawn independently, and without replacement. In the second, there are fewer than k children
    if q has fewer tokens."""
    support = [x for x in range(len(q)) if q[x] > 0]
    iid, without = {}, {}
    for drawn in itertools.product(support, repeat=k):
        iid[drawn] = float(np.prod([q[x] for x in drawn]))
    for drawn in itertools.permutations(support, min(k, len(support))):
        mass, left = 1.0, 1.0
        for x in drawn:
            mass *= q[x] / left
            left -= q[x]
        without[drawn] = mass
    return iid, without


def best_acceptance(p, drafts):
    """The linear program over the mass of (children, emitted token)."""
    tuples, vocab = list(drafts), len(p)
    gain = np.array([-float(x in drawn) for drawn in tuples for x in range(vocab)])
    rows_of_drafts = np.kron(np.eye(len(tuples)), np.ones(vocab))
    rows_of_tokens = np.kron(np.ones(len(tuples)), np.eye(vocab))
    solved = linprog(
        gain,
        A_eq=np.vstack([rows_of_drafts, rows_of_tokens]),
        b_eq=np.concatenate([[drafts[drawn] for drawn in tuples], p]),
        method="highs",
    )
    if not solved.success:
        raise RuntimeError(solved.message)
    return abs(round(solved.fun, 9))


def cases():
    draw = random.Random(7)
    for vocab, k in SHAPES:
        rows = GOLDEN_PAIR if vocab == 4 else []
        while len(rows) < 4:
            p, q = ([draw.choice([0, 0, 1, 2, 3, 5, 8, 13]) for _ in range(vocab)] for _ in range(2))
            if sum(p) and sum(q):
                rows = [*rows, (vocab, p, q)]
        for _, p, q in rows:
            yield k, p, q


def solve(k, p, q):
    target, draft = np.array(p) / sum(p), np.array(q) / sum(q)
    iid, without = (best_acceptance(target, law) for law in laws_of_drafts(draft, k))
    return {"k": k, "p": p, "q": q, "iid": iid, "without_replacement": without}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if the golden file would change")
    options = parser.parse_args()
    lines = ",\n".join(" " + json.dumps(solve(*case)) for case in cases())
    text = "[\n" + lines + "\n]\n"
    if options.check:
        same = GOLDEN.exists() and GOLDEN.read_text() == text
        print(f"{GOLDEN.name}: {'as before' if same else 'different'}")
        sys.exit(0 if same else 1)
    GOLDEN.write_text(text)
    print(f"{GOLDEN}: {text.count('{')} linear programs of each kind")


if __name__ == "__main__":
    main()
