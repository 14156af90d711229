"""Judges the published number of a row of a table by its closed form."""

import dataclasses

CONSISTENT = "consistent"
DIFFERS = "differs"  # the prediction is off by more than the tolerance, but the published number is possible
NOT_ENOUGH = "not enough given"
ABOVE_BOUND = "above a bound"
IMPOSSIBLE_C = "impossible c"
CONTRADICTION = "contradiction"  # numbers of one source exclude each other
VERDICTS = (CONSISTENT, DIFFERS, NOT_ENOUGH, ABOVE_BOUND, IMPOSSIBLE_C, CONTRADICTION)
FLAGGED = (ABOVE_BOUND, IMPOSSIBLE_C, CONTRADICTION)


@dataclasses.dataclass(frozen=True)
class Judgement:
    """The verdict on one row.

    formula: what was computed. predicted, published: the two values of `quantity` that are compared; None for a value
    that is not known. alpha, c: the values that the row implies, if it implies any. rounding: True if a number that
    rounds to the published one would be consistent.
    """

    formula: str
    quantity: str
    predicted: float | None
    published: float | None
    verdict: str
    reason: str
    alpha: float | None = None
    c: float | None = None
    rounding: bool = False


def near(predicted: float, published: float, tolerance: float) -> bool:
    return abs(published - predicted) <= tolerance * abs(predicted)


def percent(published: float, predicted: float) -> str:
    """How the published number compares with the predicted one: "7.0 % above", "3.0 % below", or "equal to"."""
    share = published / predicted - 1
    if abs(share) < 0.0005:
        return "equal to"
    return f"{abs(share) * 100:.1f} % {'above' if share >= 0 else 'below'}"


def by_rounding(explains: bool) -> str:
    return (
        f" The rounding of the printed digits {'explains' if explains else 'does not explain'} "
        "the excess over the bound."
    )
