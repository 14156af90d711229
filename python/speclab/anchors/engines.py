"""Forms for the log of an engine: rates in tokens/s and counts of drafted and accepted tokens.

llama.cpp prints "accept", which is accepted / drafted tokens. It is not alpha: if the first token of a chain is
rejected, the tokens after it are not tested, but they count as drafted.
"""

from .. import theory
from .judgement import ABOVE_BOUND, CONSISTENT, CONTRADICTION, DIFFERS, NOT_ENOUGH, Judgement, near, percent
from .reading import Row


def implied_alpha(row: Row) -> Judgement:
    """The alpha that accepted / drafted tokens implies, compared with the alpha that the source uses."""
    gamma = row["gamma"]
    predicted = theory.alpha_from_utilization(row["utilization"], gamma)
    name, stated = "alpha (1 - alpha^gamma) / (gamma (1 - alpha)) = accepted / drafted", row["alpha"]
    if near(predicted, stated, row.tolerance):
        return Judgement(name, "alpha", predicted, stated, CONSISTENT, "The two alphas agree.", predicted)
    reason = (
        f"The source uses accepted / drafted tokens, {stated:g}, as alpha. Tokens after a rejection are drafted but "
        f"never tested, so the acceptance of a tested token is larger: {predicted:.3f}. Eq. 1 gives "
        f"{theory.expected_tokens(stated, gamma):.2f} tokens per step with alpha = {stated:g}, and "
        f"{theory.expected_tokens(predicted, gamma):.2f} with alpha = {predicted:.3f}."
    )
    return Judgement(name, "alpha", predicted, stated, CONTRADICTION, reason, predicted)


def utilization_tokens(row: Row) -> Judgement:
    """Tokens per step, from accepted / drafted tokens."""
    gamma, tau = row["gamma"], row["tau"]
    alpha = theory.alpha_from_utilization(row["utilization"], gamma)
    predicted = theory.expected_tokens(alpha, gamma)
    verdict = CONSISTENT if near(predicted, tau, row.tolerance) else ABOVE_BOUND if tau > gamma + 1 else DIFFERS
    reason = (
        f"The published tau is {percent(tau, predicted)} Eq. 1 with the alpha that accepted / drafted tokens implies."
    )
    return Judgement("Eq. 1", "tau", predicted, tau, verdict, reason, alpha)


def measured_rates(row: Row) -> Judgement:
    """Tokens/s from accepted / drafted tokens and the measured rates.

    target_rates: pairs [n, tokens/s], each for target forwards over n rows.
    """
    gamma, t_ar = row["gamma"], 1000 / row["rate_ar"]
    alpha = theory.alpha_from_utilization(row["utilization"], gamma)
    tau = theory.expected_tokens(alpha, gamma)
    times = theory.RowTimes({1: t_ar, **{rows: rows * 1000 / rate for rows, rate in row["target_rates"]}})
    drafts, verify = gamma * 1000 / row["rate_draft"], times.at(gamma + 1)
    predicted = row["rate_ar"] * theory.measured_cost_speedup(tau, t_ar, draft=drafts, target=verify)
    c, name = row["rate_ar"] / row["rate_draft"], "tau t_ar / (gamma t_draft + t(gamma + 1))"
    parts = f"{drafts:.1f} ms for the drafts and {verify:.1f} ms for the target, which takes {times.ratio(gamma + 1):.2f} times as long over "
    parts += f"{gamma + 1} rows as over one"
    if row.get("rate") is None:
        reason = f"A step emits {tau:.2f} tokens and takes {parts}. The measured speed is not known here."
        return Judgement(name, "tokens/s", predicted, None, NOT_ENOUGH, reason, alpha, c)
    step = 1000 * tau / row["rate"]
    if row["rate"] > predicted:
        reason = (
            f"At the published rate a step of {tau:.2f} tokens lasts {step:.1f} ms, but its parts take longer: {parts}."
        )
        return Judgement(name, "tokens/s, at most", predicted, row["rate"], ABOVE_BOUND, reason, alpha, c)
    verdict = CONSISTENT if near(predicted, row["rate"], row.tolerance) else DIFFERS
    reason = (
        f"A step emits {tau:.2f} tokens and takes {step:.1f} ms: {parts}. The remaining {step - drafts - verify:.1f} "
        f"ms are sampling and bookkeeping. The speedup is {row['rate'] / row['rate_ar']:.2f}. Without sampling and "
        f"bookkeeping it would be {predicted / row['rate_ar']:.2f}."
    )
    return Judgement(name, "tokens/s", predicted, row["rate"], verdict, reason, alpha, c)


def counted_tokens(row: Row) -> Judgement:
    """Tokens/s from counts of tokens and the rates of both models.

    Each emitted token that is not an accepted drafted token takes one target forward over one row (rate_ar). Each
    drafted token takes a draft forward (rate_draft) and a row in a target forward over several rows (rate_rows).
    """
    emitted, drafted, accepted, rate_ar = row["emitted"], row["drafted"], row["accepted"], row["rate_ar"]
    drafts, verify = drafted / row["rate_draft"], drafted / row["rate_rows"]
    alone = (emitted - accepted) / rate_ar
    predicted = rate_ar * theory.measured_cost_speedup(emitted, 1 / rate_ar, draft=drafts, target=alone + verify)
    fits = near(predicted, row["rate"], row.tolerance)
    verdict = CONSISTENT if fits else ABOVE_BOUND if row["rate"] > predicted else DIFFERS
    reason = (
        f"The published rate is {percent(row['rate'], predicted)} emitted tokens / sum of the times. "
        f"{drafted - accepted} drafted tokens were rejected. They take time but are not output, so {emitted} tokens "
        f"count and not {emitted + drafted - accepted}."
    )
    c = rate_ar / row["rate_draft"]
    return Judgement("emitted / sum of times", "tokens/s", predicted, row["rate"], verdict, reason, None, c)
