#!/usr/bin/env python3
"""Audits a verifier of speculative decoding that is a Python function. Needs NumPy.

    .venv/bin/python scripts/audit.py MODULE:CALLABLE [--path FOLDER] [--gamma N] [--vocab N] [--tables N] [--json]
                                                      [--trees independent|without-replacement]

Python looks for MODULE in the folders of --path, then in the current folder, then in the folder of this script, then in
its usual places. CALLABLE is a function

    def verify(p, q, draft, coins):       # p [gamma + 1, vocab], q [gamma, vocab]: float64; draft: gamma token ids
        ...
        return accepted, next_token

It must take every random decision from coins: coins.bernoulli(probability), coins.categorical(weights), or
coins.uniform(), a number that may only be compared (u < x). If each run takes the same number of coins, verify.coins may
declare this number, or a function of gamma that returns it. The audit then reports a run that takes another number.
With --trees, CALLABLE gets a tree in place of the draft, and returns a list of nodes in place of the number of
accepted tokens (docs/audit.md).
The audit runs the function on small tables of p and q (a fixed one and random ones), for every draft and every outcome
of the coins. It compares the exact law (the probabilities) of the emitted tokens with the law of the target, for the
first token alone and for all gamma + 1 tokens together.
docs/audit.md explains the output. Exit codes: 0 exact, 1 wrong, 2 the audit could not start.
"""

import argparse
import importlib
import json
import os
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [os.getcwd(), str(HERE)]

try:
    from audit import drafts, report
except ModuleNotFoundError as error:
    print(
        f"audit: the Python package {error.name} is missing. Run scripts/setup_python.sh and use .venv/bin/python.",
        file=sys.stderr,
    )
    sys.exit(2)


class Refused(Exception):
    pass


def load(name):
    """The function that MODULE:CALLABLE names."""
    module, colon, function = name.partition(":")
    if not (module and colon and function):
        raise Refused(f"{name}: expected MODULE:CALLABLE, for example audit.rules:by_block")
    try:
        found = importlib.import_module(module)
        for part in function.split("."):
            found = getattr(found, part)
    except ModuleNotFoundError as error:
        raise Refused(
            f"{name}: no module {error.name}. Install it, or name its folder with --path; the current folder is searched too"
        ) from error
    except Exception as error:  # whatever a foreign module raises when it is imported
        raise Refused(f"{name}: {type(error).__name__}: {error}") from error
    if not callable(found):
        raise Refused(f"{name} is {type(found).__name__}; expected a function verify(p, q, draft, coins)")
    return found


def size(least, most):
    def parse(text):
        value = int(text)
        if not least <= value <= most:
            raise argparse.ArgumentTypeError(f"{value}; expected {least} to {most}")
        return value

    return parse


def main(words):
    defaults = report.Settings()
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("verifier", metavar="MODULE:CALLABLE")
    parser.add_argument(
        "--path", action="append", default=[], help="folder in which Python looks for MODULE; may be repeated"
    )
    parser.add_argument(
        "--gamma", type=size(1, 5), default=defaults.max_gamma, help="longest draft; all lengths from 1 are audited"
    )
    parser.add_argument(
        "--trees",
        choices=drafts.DRAWS,
        help="audit a verifier of trees whose children are drawn in this way; --gamma is then the largest depth of a tree",
    )
    parser.add_argument(
        "--vocab", type=size(2, 6), default=defaults.max_vocab, help="largest vocabulary; all sizes from 2 are audited"
    )
    parser.add_argument(
        "--tables",
        type=size(1, 1000),
        default=defaults.tables,
        help="number of random tables of each kind and vocabulary size",
    )
    parser.add_argument("--seed", type=size(0, 2**31), default=defaults.seed, help="seed of the tables")
    parser.add_argument(
        "--tolerance", type=float, default=defaults.tolerance, help="errors up to this number count as rounding"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args(words)
    sys.path[:0] = options.path
    try:
        verify = load(options.verifier)
    except Refused as refused:
        print(f"audit: {refused}.", file=sys.stderr)
        return 2
    settings = report.Settings(
        options.gamma, options.vocab, options.tables, options.seed, options.tolerance, options.trees
    )
    findings = report.audit(verify, settings)
    if options.json:
        print(json.dumps(report.as_json(options.verifier, findings, settings), indent=1))
    else:
        print(report.as_text(options.verifier, findings, settings))
    return 0 if all(f.exact for f in findings) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
