"""Closed forms of chains with independent acceptance (Leviathan et al. 2023, arXiv 2211.17192; Chen et al. 2023, arXiv 2302.01318).

alpha: P(a tested token is accepted). gamma: drafted tokens per step. c: time of a draft forward / of a target forward. tau: tokens per step.
"""

from .. import theory
from .judgement import (
    ABOVE_BOUND,
    CONSISTENT,
    DIFFERS,
    IMPOSSIBLE_C,
    NOT_ENOUGH,
    Judgement,
    by_rounding,
    near,
    percent,
)
from .reading import Row


def chain(row: Row) -> Judgement:
    """A speedup that is published with alpha and gamma.

    If c is published too, the form predicts the speedup. Otherwise it computes the c that the speedup implies. A
    negative c is impossible.
    """
    alpha, gamma, speedup = row["alpha"], row["gamma"], row["speedup"]
    bound = theory.expected_tokens(alpha, gamma)
    c = theory.c_from_speedup(speedup, alpha, gamma)
    if row.get("c") is not None:
        predicted = theory.walltime_improvement(alpha, gamma, row["c"])
        fits = near(predicted, speedup, row.tolerance)
        verdict = CONSISTENT if fits else IMPOSSIBLE_C if c < 0 else DIFFERS
        reason = f"The published speedup is {percent(speedup, predicted)} the prediction with c = {row['c']:.3g}."
        return Judgement("Theorem 3.8", "speedup", predicted, speedup, verdict, reason, alpha, c)
    name = "Eq. 1 (c = 0)"
    if c < 0:
        explains = theory.expected_tokens(min(1.0, row.high("alpha")), gamma) >= row.low("speedup")
        reason = (
            f"A step emits {bound:.2f} tokens with this alpha and gamma, so no draft, however fast, gives a speedup of {speedup:g}; "
            f"c would be {c:.3f}." + by_rounding(explains)
        )
        return Judgement(name, "speedup, at most", bound, speedup, IMPOSSIBLE_C, reason, alpha, c, explains)
    reason = f"A draft forward that takes {c:.3f} of a target forward gives this speedup."
    if row.get("c_elsewhere") is not None:
        reason += f" Another source assumes c = {row['c_elsewhere']:g} for this draft."
    return Judgement(name, "speedup, at most", bound, speedup, CONSISTENT, reason, alpha, c)


def alpha_alone(row: Row) -> Judgement:
    limit = theory.expected_tokens_limit(row["alpha"])
    reason = (
        "Neither a draft length nor a speedup is given. "
        f"With any draft length, a step emits at most {limit:.2f} tokens on average."
    )
    return Judgement("1 / (1 - alpha)", "tau, at most", limit, None, NOT_ENOUGH, reason, row["alpha"])


def best_length(row: Row) -> Judgement:
    """A speedup that is published with alpha and c, compared with the speedup at the best draft length for them."""
    best = theory.optimal_gamma(row["alpha"], row["c"])
    name, speedup = "Theorem 3.8 at the best gamma", row["speedup"]
    if speedup <= best.speedup:
        reason = f"The best draft length is {best.gamma}."
        return Judgement(name, "speedup, at most", best.speedup, speedup, CONSISTENT, reason, row["alpha"], row["c"])
    explains = theory.optimal_gamma(row.high("alpha"), row["c"]).speedup >= row.low("speedup")
    reason = (
        f"With this alpha and c the best draft length is {best.gamma}, and the published speedup is {percent(speedup, best.speedup)} "
        "what it gives." + by_rounding(explains)
    )
    alpha, c = row["alpha"], row["c"]
    return Judgement(name, "speedup, at most", best.speedup, speedup, ABOVE_BOUND, reason, alpha, c, explains)


def chen_ratio(row: Row) -> Judgement:
    """A speedup that is published with r' = tau / (K + 1) and the times of both models."""
    gamma, r = row["gamma"], row["r"]
    predicted = theory.chen_ratio(r, gamma, row["t_draft"], row["t_target"])
    alpha = theory.alpha_from_tokens(r * (gamma + 1), gamma)
    verdict = CONSISTENT if near(predicted, row["speedup"], row.tolerance) else DIFFERS
    reason = (
        f"The published speedup is {percent(row['speedup'], predicted)} the formula, "
        "which has no time for sampling and bookkeeping."
    )
    c = row["t_draft"] / row["t_target"]
    if alpha is None or row["speedup"] > r * (gamma + 1):
        verdict, reason = (
            ABOVE_BOUND,
            f"A step emits r'(K + 1) = {r * (gamma + 1):.2f} tokens and takes at least as long as a target forward.",
        )
    name = "r'(K + 1) t_target / (K t_draft + t_target)"
    return Judgement(name, "speedup", predicted, row["speedup"], verdict, reason, alpha, c)


def blocks(row: Row) -> Judgement:
    """The mean number of tokens accepted from a block of k proposed tokens.

    The first token of a block is the model's own, so it is always accepted. So a block has the tau of a
    chain with gamma = k - 1.
    """
    k, tau = row["k"], row["tau"]
    bound = theory.expected_tokens(1, k - 1)
    alpha = theory.alpha_from_tokens(tau, k - 1)
    if alpha is None:
        reason = f"A block of {k} tokens cannot have {tau:g} accepted tokens."
        return Judgement("Eq. 1 at alpha = 1", "tau, at most", bound, tau, ABOVE_BOUND, reason)
    reason = f"Eq. 1 gives this mean number of accepted tokens for alpha = {alpha:.3f}."
    return Judgement("Eq. 1 at alpha = 1", "tau, at most", bound, tau, CONSISTENT, reason, alpha)


def speedup_alone(row: Row) -> Judgement:
    """A speedup that is published with neither an acceptance nor tokens per step.

    most_tokens: the largest number of tokens that a step can emit, if the method has such a limit.
    """
    most, speedup = row.get("most_tokens"), row["speedup"]
    if most is None:
        return Judgement(
            "none", "speedup", None, speedup, NOT_ENOUGH, "Neither an acceptance nor tokens per step are given."
        )
    bound = theory.expected_tokens(1, most - 1)
    if speedup > bound:
        explains = row.low("speedup") <= bound
        reason = (
            f"A step emits at most {most} tokens and takes at least as long as an autoregressive step."
            + by_rounding(explains)
        )
        return Judgement(
            "Eq. 1 at alpha = 1", "speedup, at most", bound, speedup, ABOVE_BOUND, reason, None, None, explains
        )
    slower = " A speedup below 1 means slower than autoregressive decoding." if speedup < 1 else ""
    reason = (
        f"The speedup does not exceed {most}, the largest number of tokens that a step can emit. "
        f"Neither an acceptance nor tokens per step are given.{slower}"
    )
    return Judgement("Eq. 1 at alpha = 1", "speedup, at most", bound, speedup, NOT_ENOUGH, reason)


def utilization(row: Row) -> Judgement:
    """Accepted / drafted tokens at one draft length, predicted from the alpha at another draft length."""
    gamma, found = row["gamma"], row["utilization"]
    predicted = theory.expected_draft_utilization(row["alpha"], gamma)
    if found > 1:
        return Judgement(
            "accepted <= drafted",
            "draft_utilization, at most",
            1,
            found,
            ABOVE_BOUND,
            "More tokens were accepted than drafted.",
        )
    alpha = theory.alpha_from_utilization(found, gamma)
    verdict = CONSISTENT if near(predicted, found, row.tolerance) else DIFFERS
    reason = (
        f"A constant alpha of {row['alpha']:g} would give {predicted:.3f}. The ratio accepted / drafted tokens falls "
        f"with gamma even if alpha does not; the published ratio implies alpha = {alpha:.3f}."
    )
    return Judgement(
        "alpha (1 - alpha^gamma) / (gamma (1 - alpha))", "draft_utilization", predicted, found, verdict, reason, alpha
    )
