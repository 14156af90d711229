#!/usr/bin/env python3
"""Oracle of the bounds for verifiers: writes tests/golden/verifier_bounds.json.

    python3 scripts/oracle/verifier_bounds.py [--check]

The largest acceptance of k drafted children of a node is the value of a linear program. Its variables are a joint law of
the children and the emitted token. The law of the children is given, and the law of the token is the target's. The value is
the largest probability that the token is among the children (scripts/audit/transport.py). HiGHS (in scipy) solves the
program for random rows. A row is a list of whole numbers, some of them 0, divided by their sum.
--check writes nothing and exits 1 if the golden file would change.
"""

import argparse
import json
import pathlib
import random
import sys

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

from audit import transport

GOLDEN = ROOT / "tests/golden/verifier_bounds.json"
GOLDEN_PAIR = [(4, [11, 5, 3, 1], [8, 7, 1, 4])]
SHAPES = [(2, 1), (2, 2), (3, 2), (3, 3), (4, 2), (4, 3), (5, 2), (5, 3), (7, 3), (12, 2), (12, 3), (20, 2)]


def best_acceptance(target, drafts):
    found = transport.best_coupling(drafts, dict(enumerate(target)), lambda children, token: token in children)
    return abs(round(found.gain, 9))


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
    iid = best_acceptance(target, transport.independent_children(draft, k))
    without = best_acceptance(target, transport.children_without_replacement(draft, k))
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
