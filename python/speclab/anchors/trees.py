"""Closed forms of trees: the sum over the nodes of the product of the acceptances along the path (Chen et al. 2024, "Sequoia", arXiv 2402.12374), and
lookahead decoding (Fu et al. 2024, arXiv 2402.02057, Eq. 7)."""

from .. import theory
from .judgement import ABOVE_BOUND, CONSISTENT, CONTRADICTION, DIFFERS, NOT_ENOUGH, Judgement, near, percent
from .reading import Row


def of_each_rank(success: list[float]) -> list[float]:
    """P(the token of rank k is right) from P(one of the k best is right)."""
    return [now - before for before, now in zip([0.0, *success], success)]


def rank_rates(row: Row) -> Judgement:
    """How often the target's token is among the k best of the draft. The rates must be a distribution function."""
    success = row["success"]
    limit = theory.expected_tokens_limit(min(1.0, max(0.0, success[0])))
    name, quantity = "1 / (1 - alpha) with the rate of the best token", "tau of a chain, at most"
    if min(of_each_rank(success)) < 0 or success[-1] > 1:
        reason = "The rates fall with k or exceed 1, which no distribution does."
        return Judgement(name, quantity, limit, None, CONTRADICTION, reason, success[0])
    reason = (
        "The rates rise with k and do not exceed 1. "
        f"Tokens per step are not given; a chain emits at most {limit:.2f} on average."
    )
    return Judgement(name, quantity, limit, None, NOT_ENOUGH, reason, success[0])


def widened_tree(row: Row) -> Judgement:
    """Tokens per step of a tree.

    The pending token has `width` children. Below each child, the draft's best tokens follow down to `depth`.
    """
    width, depth, tau = row["width"], row["depth"], row["tau"]
    parents, ranks = [0] * width, list(range(1, width + 1))
    for level in range(1, depth):
        parents += [(level - 1) * width + branch for branch in range(1, width + 1)]
        ranks += [1] * width
    predicted = theory.tree_expected_tokens(parents, ranks, [of_each_rank(row["success"])])
    most = theory.expected_tokens(1, depth)
    name = "sum over the nodes of the acceptances of their paths"
    if tau > most:
        reason = f"A path has {depth} tokens, so a step emits at most {most:g}."
        return Judgement(name, "tau", predicted, tau, ABOVE_BOUND, reason, row["success"][0])
    if near(predicted, tau, row.tolerance):
        reason = f"The published tau is {percent(tau, predicted)} the tau of a tree with the same rates at every level."
        return Judgement(name, "tau", predicted, tau, CONSISTENT, reason, row["success"][0])
    reason = (
        f"The published tau is {percent(tau, predicted)} the tau of a tree with the same rates at every level, "
        "so these rates do not hold at every level of this tree."
    )
    return Judgement(name, "tau", predicted, tau, DIFFERS, reason, row["success"][0])


def chain_in_tree(row: Row) -> Judgement:
    """tau of a tree that contains a chain whose acceptances by position are known."""
    predicted = theory.positional_expected_tokens(row["acceptance"])
    most, tau = theory.expected_tokens(1, row["depth"]), row["tau"]
    name = "1 + sum of products of the acceptances by position"
    if tau > most:
        reason = f"A path has {row['depth']} tokens, so a step emits at most {most:g}."
        return Judgement(name, "tau, at least", predicted, tau, ABOVE_BOUND, reason)
    if tau < predicted:
        reason = f"The tree contains the chain, but its tau is {percent(tau, predicted)} the tau of the chain."
        return Judgement(name, "tau, at least", predicted, tau, DIFFERS, reason)
    reason = f"The tree contains the chain and emits {tau - predicted:.2f} tokens per step more than the chain."
    return Judgement(name, "tau, at least", predicted, tau, CONSISTENT, reason)


def lookahead_law(row: Row) -> Judgement:
    """Step compression (tokens per step) of lookahead decoding with window W, n-gram size N and G guesses."""
    shape = theory.LookaheadShape(row["W"], row["N"], row["G"])
    predicted, tau = theory.LookaheadLaw(row["alpha"], row["f"]).tokens(shape), row["tau"]
    name = "S = (f - 1 + E) / f"
    if tau > row["N"]:
        reason = f"A step emits at most N = {row['N']} tokens."
        return Judgement(name, "tau", predicted, tau, ABOVE_BOUND, reason, row["alpha"])
    verdict = CONSISTENT if near(predicted, tau, row.tolerance) else DIFFERS
    reason = f"The published tau is {percent(tau, predicted)} the tau of the law; a step has {shape.rows} rows."
    return Judgement(name, "tau", predicted, tau, verdict, reason, row["alpha"])


def at_most(row: Row) -> Judgement:
    """A number that must not be above another number of the same source."""
    value, bound = row["value"], row["bound"]
    if value > bound:
        return Judgement(
            "the other number", "at most", bound, value, ABOVE_BOUND, f"The value is {percent(value, bound)} its bound."
        )
    return Judgement(
        "the other number", "at most", bound, value, CONSISTENT, f"The value is {percent(value, bound)} its bound."
    )
