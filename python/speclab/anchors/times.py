"""Forms for published times, rates and speedups.

A quotient of two published numbers may be off by the rounding of both.
"""

from .. import theory
from .judgement import (
    ABOVE_BOUND,
    CONSISTENT,
    CONTRADICTION,
    DIFFERS,
    NOT_ENOUGH,
    Judgement,
    by_rounding,
    near,
    percent,
)
from .reading import Row


def ratio(row: Row) -> tuple[float, float, float]:
    """The speedup from two times or two rates, and the smallest and the largest speedup that their rounding allows."""
    if row.get("before") is not None:
        return (
            _faster(row["before"], row["after"]),
            _faster(row.low("before"), row.high("after")),
            _faster(row.high("before"), row.low("after")),
        )
    before, after = "rate_before", "rate_after"
    return (
        _faster(1 / row[before], 1 / row[after]),
        _faster(1 / row.high(before), 1 / row.low(after)),
        _faster(1 / row.low(before), 1 / row.high(after)),
    )


def _faster(before: float, after: float) -> float:
    return theory.measured_cost_speedup(1, before, draft=0, target=after)


def _excludes(row: Row, column: str, low: float, high: float) -> bool:
    """True if the printed number cannot be in [low, high]."""
    return row.get(column) is not None and (row.low(column) > high or row.high(column) < low)


def quotient(row: Row) -> Judgement:
    """A speedup from two times or two rates, compared with other numbers of the same source.

    The source states the speedup itself, the tokens per step (tau), its largest speedup (most), several of these, or
    none of them.
    """
    found, low, high = ratio(row)
    stated, tau, most = row.get("speedup"), row.get("tau"), row.get("most")
    name, quantity = "before / after", "speedup"
    alpha = c = None
    if row.get("draft_ms") is not None:
        c = row["draft_ms"] / row["before"]
        alpha = theory.alpha_from_speedup(found, row["gamma"], c)
        if alpha is None:
            reason = f"With this draft and gamma, no alpha from 0 to 1 gives a speedup of {found:.2f}."
            return Judgement(name, quantity, found, stated, ABOVE_BOUND, reason, None, c)
    if _excludes(row, "speedup", low, high):
        reason = f"The quotient of the published times is {found:.3f}, which does not round to {stated:g}."
        return Judgement(name, quantity, found, stated, CONTRADICTION, reason + _step_of(tau, found), alpha, c)
    if tau is not None and low > row.high("tau"):
        reason = f"A step emits at most {tau:g} tokens and takes at least as long as an autoregressive step, so the speedup is at most {tau:g}."
        return Judgement(name, "speedup, at most", tau, found, ABOVE_BOUND, reason)
    if most is not None and low > row.high("most"):
        reason = f"The largest speedup that the source states for this setting is {most:g}." + _step_of(tau, found)
        return Judgement(name, "speedup, at most", most, found, ABOVE_BOUND, reason)
    if stated is None and tau is None and most is None:
        reason = "Neither an acceptance nor tokens per step are given, so no formula says what the speedup should be."
        return Judgement(name, quantity, found, None, NOT_ENOUGH, reason)
    if alpha is not None:
        reason = f"Theorem 3.8 gives this speedup for alpha = {alpha:.3f} and c = {c:.3f}."
    else:
        reason = "The quotient of the published numbers agrees with the source's other numbers." + _step_of(tau, found)
    if stated is None:
        bound = most if most is not None else tau
        return Judgement(name, "speedup, at most", bound, found, CONSISTENT, reason, alpha, c)
    return Judgement(name, quantity, found, stated, CONSISTENT, reason, alpha, c)


def _step_of(tau: float | None, speedup: float) -> str:
    if tau is None:
        return ""
    return f" With {tau:g} tokens per step, a step with its drafts takes {tau / speedup:.2f} autoregressive steps."


def step_cost(row: Row) -> Judgement:
    """A speedup that is published with tau.

    The time of a step without its drafts cannot be shorter than a target forward over one row.
    """
    tau, speedup = row["tau"], row["speedup"]
    if row.get("k") is not None and tau > row["k"]:
        reason = f"A step emits at most k = {row['k']} tokens."
        return Judgement("tau <= k", "tau, at most", row["k"], tau, ABOVE_BOUND, reason)
    if row.get("overhead") is not None and speedup <= tau:
        predicted = theory.measured_cost_speedup(tau, 1, draft=0, target=row["overhead"])
        verdict = CONSISTENT if near(predicted, speedup, row.tolerance) else DIFFERS
        reason = f"The published speedup is {percent(speedup, predicted)} tau / overhead."
        return Judgement("tau / overhead", "speedup", predicted, speedup, verdict, reason)
    drafts = row["depth"] * row["t_draft"] / row["t_ar"] if row.get("t_draft") is not None else 0.0
    bound = theory.measured_cost_speedup(tau, 1, draft=drafts, target=1)
    verify = tau / speedup - drafts
    name = "tau / (1 + d c)" if drafts else "tau"
    c = row["t_draft"] / row["t_ar"] if drafts else None
    if speedup > bound:
        fewest = row["depth"] * row.low("t_draft") / row.high("t_ar") if drafts else 0.0
        explains = theory.measured_cost_speedup(row.high("tau"), 1, draft=fewest, target=1) >= row.low("speedup")
        reason = (
            f"The target's forward over the draft would take {verify:.3f} of a forward over one row."
            + by_rounding(explains)
        )
        return Judgement(name, "speedup, at most", bound, speedup, ABOVE_BOUND, reason, None, c, explains)
    rest = "the target's forward over the draft" if drafts else "a step with its drafts"
    slower = " Autoregressive decoding emits the same tokens in less time." if speedup < 1 else ""
    reason = f"At this speedup {rest} takes {verify:.2f} autoregressive steps.{slower}"
    return Judgement(name, "speedup, at most", bound, speedup, CONSISTENT, reason, None, c)


def step_times(row: Row) -> Judgement:
    """A speedup that is published with tau and the times of drafting and verification (MagicDec).

    Other work only makes the step longer.
    """
    gamma, tau = row["gamma"], row["tau"]
    predicted = theory.measured_cost_speedup(tau, row["t_ar"], draft=row["drafts"], target=row["verify"])
    c = row["drafts"] / gamma / row["t_ar"]
    alpha = theory.alpha_from_tokens(tau, gamma)
    name, speedup = "tau t_ar / (drafts + verification)", row["speedup"]
    if alpha is None:
        reason = f"A chain of {gamma} tokens emits at most {gamma + 1} tokens per step."
        return Judgement(name, "speedup", predicted, speedup, ABOVE_BOUND, reason, None, c)
    if _excludes(row, "speedup", row.low("t_ar") / row.high("t_sd"), row.high("t_ar") / row.low("t_sd")):
        reason = (
            f"The quotient of the published times per token is {row['t_ar'] / row['t_sd']:.3f}, "
            f"which does not round to {speedup:g}."
        )
        return Judgement(name, "speedup", predicted, speedup, CONTRADICTION, reason, alpha, c)
    if row.low("speedup") > predicted * (1 + 0.5 * row.printed_to["tau"] / tau):
        reason = "The speedup is larger than it would be without any time for sampling and bookkeeping."
        return Judgement(name, "speedup, at most", predicted, speedup, ABOVE_BOUND, reason, alpha, c)
    verdict = CONSISTENT if near(predicted, speedup, row.tolerance) else DIFFERS
    reason = (
        f"The published speedup is {percent(speedup, predicted)} the speedup of a step that only drafts and verifies. "
        "Sampling and bookkeeping take the rest of the time."
    )
    return Judgement(name, "speedup", predicted, speedup, verdict, reason, alpha, c)


def traffic(row: Row) -> Judgement:
    """A speedup from two rates. Its bound is 1 / traffic, if memory limits decoding.

    traffic: memory traffic per token, with speculation / without it.
    """
    found, low, high = ratio(row)
    bound = theory.measured_cost_speedup(1, 1, draft=0, target=row["traffic"])
    name = "1 / memory traffic"
    if _excludes(row, "speedup", low, high):
        reason = f"The quotient of the published rates is {found:.3f}, which does not round to {row['speedup']:g}."
        return Judgement(name, "speedup", found, row["speedup"], CONTRADICTION, reason)
    if found > bound:
        reason = "The speed rose by more than the memory traffic fell."
        return Judgement(name, "speedup, at most", bound, found, ABOVE_BOUND, reason)
    reason = (
        f"The speed rose by a factor of {found:.2f}. "
        f"The memory traffic per token fell to {row['traffic']:g} times that of autoregressive decoding."
    )
    return Judgement(name, "speedup, at most", bound, found, CONSISTENT, reason)


def time_per_token(row: Row) -> Judgement:
    """A time per token, compared with the time of the whole text."""
    found = row["seconds"] / row["tokens"] * 1000
    if near(found, row["t_token"], row.tolerance):
        return Judgement("time / tokens", "ms per token", found, row["t_token"], CONSISTENT, "The two times agree.")
    reason = f"The whole text took {found:.1f} ms per token, so {row['t_token']:g} ms was not measured in the same run."
    return Judgement("time / tokens", "ms per token", found, row["t_token"], CONTRADICTION, reason)
