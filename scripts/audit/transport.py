"""Optimal transport: finds the best joint law of a draft and an outcome. The best law has the largest mean of a given gain.

The law of the draft and the law of the outcome are given, so a linear program finds the best joint law (Sun et al.
2023, arXiv 2310.15141, Section 3). HiGHS (in SciPy) solves the program. It has one variable for each pair of a draft
and an outcome: V^(k + 1) variables for k children of one node and V tokens. So it is fit only for tests and for upper
bounds on small vocabularies.
"""

import dataclasses
import itertools

MOST_PAIRS = 125_000  # 50 tokens with two children, 18 with three


class TooLarge(ValueError):
    """The linear program has more than MOST_PAIRS variables."""


@dataclasses.dataclass
class Coupling:
    """gain: the largest mean gain. rows: {draft: {outcome: P(outcome given the draft)}}, for drafts of positive probability."""

    gain: float
    rows: dict


def independent_children(q, k):
    """The law {children: P} of k tokens that are all drawn from q."""
    require_size(len(q) ** (k + 1), f"{k} children and {len(q)} tokens")
    support = [x for x in range(len(q)) if q[x] > 0]
    law = {}
    for drawn in itertools.product(support, repeat=k):
        law[drawn] = 1.0
        for x in drawn:
            law[drawn] *= float(q[x])
    return law


def children_without_replacement(q, k):
    """The law {children: P} of k tokens, each drawn from q without the earlier ones. If q has fewer than k tokens, all
    of them are drawn."""
    require_size(len(q) ** (k + 1), f"{k} children and {len(q)} tokens")
    support = [x for x in range(len(q)) if q[x] > 0]
    law = {}
    for drawn in itertools.permutations(support, min(k, len(support))):
        mass, left = 1.0, 1.0
        for x in drawn:
            mass *= float(q[x]) / left
            left -= float(q[x])
        law[drawn] = mass
    return law


def require_size(pairs, what):
    """Raises TooLarge if `pairs` variables are too many. what: how the message names the problem."""
    if pairs > MOST_PAIRS:
        raise TooLarge(
            f"{what}: a linear program of {pairs} variables; expected at most {MOST_PAIRS}. "
            "The closed form has no such limit (core/theory/verifier_bounds.h)."
        )


def best_coupling(drafts, target, gain):
    """The coupling of two laws {draft: P} and {outcome: P} that maximises the mean of gain(draft, outcome). Needs SciPy. Raises
    TooLarge, and RuntimeError if there is no solution, for example because a law does not sum to 1."""
    given, wanted = [d for d in drafts if drafts[d] > 0], list(target)
    require_size(len(given) * len(wanted), f"{len(given)} drafts and {len(wanted)} outcomes")
    try:
        import numpy as np
        from scipy import sparse
        from scipy.optimize import linprog
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"optimal transport needs the Python package {error.name}; use an environment with "
            "scripts/oracle/requirements.txt",
            name=error.name,
        ) from error
    rows_of_drafts = sparse.kron(sparse.eye(len(given)), np.ones(len(wanted)))
    rows_of_outcomes = sparse.kron(np.ones(len(given)), sparse.eye(len(wanted)))
    solved = linprog(
        np.array([-float(gain(draft, outcome)) for draft in given for outcome in wanted]),
        A_eq=sparse.vstack([rows_of_drafts, rows_of_outcomes], format="csc"),
        b_eq=np.array([drafts[draft] for draft in given] + [target[outcome] for outcome in wanted]),
        method="highs",
        options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
    )
    if not solved.success:
        raise RuntimeError(f"the linear program of an optimal transport: {solved.message}")
    mass = np.maximum(solved.x, 0).reshape(len(given), len(wanted))
    shares = mass / mass.sum(axis=1, keepdims=True)
    rows = {draft: dict(zip(wanted, row.tolist())) for draft, row in zip(given, shares)}
    return Coupling(-float(solved.fun), rows)
