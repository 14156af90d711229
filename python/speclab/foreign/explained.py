"""Explains the speedup of another program's results term by term: `Foreign.explain`.

The table has the terms of a run's waterfall, as far as their inputs are known. Each term replaces one idealisation by a measurement. If the term `iid`
is not known, `ideal` is the measured tau. The effect of other unknown terms stays in the term `rest`. The table says which terms are not known.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from ..record import NotApplicable
from .text import Text

if TYPE_CHECKING:
    from ..theory import RowTimes

RESAMPLES, SEED = 2000, 20260101  # as the estimators of speclab.theory
STEPS = ("ideal", "iid", "draft_cost", "verification_width", "rest", "measured")
COLUMNS = (
    *("speedup", "speedup_lo", "speedup_hi", "log_ratio", "log_ratio_lo", "log_ratio_hi", "known", "explanation"),
)
SUMS = (
    *("steps", "emitted", "drafted", "accepted", "tests_lo", "tests_hi", "seconds", "tokens"),
    *("base_seconds", "base_tokens", "draft_seconds", "target_seconds"),
)


@dataclasses.dataclass(frozen=True)
class Costs:
    """What the caller knows about costs. c: time of a draft forward / of a target forward. t: times of the target by rows."""

    c: float | None
    t: "RowTimes | None"


def numbers_of(one: Text, gamma: int | None, base: tuple[float, float] | None) -> dict[str, float]:
    """The sums of a text by the names in SUMS; NaN for what its source does not tell. base: seconds and tokens of the baseline for this text.

    tests_lo, tests_hi: bounds of the number of tested tokens. A step that the end of the text may have cut counts in neither of them nor in
    `accepted`.
    """
    drafted = one.drafted_by(gamma)
    values: dict[str, float | None] = {
        "steps": one.steps,
        "emitted": one.in_steps,
        "drafted": drafted,
        "seconds": one.seconds,
        "tokens": one.tokens,
        "draft_seconds": one.draft_seconds,
        "target_seconds": one.target_seconds,
    }
    if one.counts is not None:
        values["accepted"] = one.counts.accepted
        values["tests_lo"] = one.counts.accepted + one.counts.rejected_lo
        values["tests_hi"] = one.counts.accepted + one.counts.rejected_hi
    elif one.emitted is not None and drafted is not None:
        clear = [
            (max(emitted - 1, 0), one.drafted[number] if one.drafted is not None else gamma or 0)
            for number, emitted in enumerate(one.emitted)
            if number not in one.unclear
        ]
        tokens = sum(accepted for accepted, _ in clear)
        tests = tokens + sum(accepted < length for accepted, length in clear)
        values |= {"accepted": tokens, "tests_lo": tests, "tests_hi": tests}
    if base is not None:
        values["base_seconds"], values["base_tokens"] = base
    found = {name: values.get(name) for name in SUMS}
    return {name: math.nan if value is None else float(value) for name, value in found.items()}


def lengths_of(one: Text, gamma: int | None) -> list[float] | None:
    """Entry g: the number of steps that drafted g tokens. None if these numbers are not known."""
    if one.counts is None and one.drafted is not None:
        return [float(n) for n in np.bincount(np.asarray(one.drafted, dtype=np.int64), minlength=1)]
    if gamma is None or one.drafted_by(gamma) != gamma * one.steps:
        return None
    return [0.0] * gamma + [float(one.steps)]


class Explanation:
    """The waterfall of some texts. base: for each text, the seconds and tokens of the baseline; None if they are not known."""

    def __init__(
        self,
        texts: Sequence[Text],
        gammas: Sequence[int | None],
        base: Sequence[tuple[float, float] | None],
        costs: Costs,
        times: str,
    ) -> None:
        rows = [numbers_of(*each) for each in zip(texts, gammas, base, strict=True)]
        self.sums = np.array([[row[name] for name in SUMS] for row in rows])  # [texts][SUMS]
        lengths = [lengths_of(one, gamma) for one, gamma in zip(texts, gammas, strict=True)]
        known = [one for one in lengths if one is not None]
        self.lengths: np.ndarray | None = None  # [texts][draft length]
        if len(known) == len(lengths):
            longest = max(len(one) for one in known)
            self.lengths = np.array([one + [0.0] * (longest - len(one)) for one in known])
        self.costs, self.times = costs, times

    def frame(self) -> pd.DataFrame:
        """A row for each of STEPS, with 95 % intervals by a bootstrap over texts."""
        values = self._values(np.arange(len(self.sums)))
        if math.isnan(values["tau"]):
            raise NotApplicable("the source has no steps.")
        drawn = np.random.default_rng(SEED).integers(0, len(self.sums), (RESAMPLES, len(self.sums)))
        resampled = [self._values(one) for one in drawn] if len(self.sums) > 1 else []
        speedup = values["ideal"]
        rows = []
        for step in STEPS:
            ends = step in ("ideal", "measured")
            term = values[step]
            known = not math.isnan(term)
            if step == "measured":
                speedup = term
            elif known and not ends:
                speedup *= math.exp(term)
            lo, hi = _middle([one[step] for one in resampled]) if known else (math.nan, math.nan)
            rows.append(
                {
                    **{"step": step, "speedup": speedup, "log_ratio": 0.0 if ends and known else term},
                    **({"speedup_lo": lo, "speedup_hi": hi} if ends else {"log_ratio_lo": lo, "log_ratio_hi": hi}),
                    **{"known": known, "explanation": self._explanation(step, values)},
                }
            )
        table = pd.DataFrame(rows, columns=["step", *COLUMNS]).set_index("step")
        ratios, logs = ("speedup", "speedup_lo", "speedup_hi"), ("log_ratio", "log_ratio_lo", "log_ratio_hi")
        table.attrs["units"] = {**dict.fromkeys(ratios, "ratio"), **dict.fromkeys(logs, "log(ratio)")}
        return table

    def _values(self, drawn: np.ndarray) -> dict[str, float]:
        """The speedups "ideal" and "measured", the log-ratios of the terms between them, and the numbers behind them. NaN: not known."""
        from .. import theory

        sums = dict(zip(SUMS, (float(one) for one in self.sums[drawn].sum(axis=0)), strict=True))
        tau, drafted = _over(sums["emitted"], sums["steps"]), _over(sums["drafted"], sums["steps"])
        alpha = (_over(sums["accepted"], sums["tests_lo"]) + _over(sums["accepted"], sums["tests_hi"])) / 2
        lengths = None if self.lengths is None else self.lengths[drawn].sum(axis=0)
        ideal = tau
        if lengths is not None and not math.isnan(alpha):
            ideal = theory.mixture_expected_tokens(alpha, [float(n) for n in lengths])
        token = _over(sums["base_seconds"], sums["base_tokens"])  # time of a token of the baseline
        draft = _over(_over(sums["draft_seconds"], sums["steps"]), token)
        if self.costs.c is not None:
            draft = self.costs.c * drafted
        wide = _over(_over(sums["target_seconds"], sums["steps"]), token)
        if self.costs.t is not None:
            wide = self._width(self.costs.t, lengths, drafted)
        paid_draft = 0.0 if math.isnan(draft) else draft
        with_draft = 1 + paid_draft
        with_width = with_draft if math.isnan(wide) else paid_draft + wide
        measured = _over(token, _over(sums["seconds"], sums["tokens"]))
        unknown_iid = lengths is None or math.isnan(alpha)
        return {
            **{"tau": tau, "drafted": drafted, "alpha": alpha, "draft": draft, "wide": wide},
            **{"ideal": ideal, "measured": measured, "step_time": _over(tau, measured), "modelled_step": with_width},
            "iid": math.nan if unknown_iid else _log(tau / ideal),
            "draft_cost": math.nan if math.isnan(draft) else -_log(with_draft),
            "verification_width": math.nan if math.isnan(wide) else _log(_over(with_draft, with_width)),
            "rest": _log(_over(measured * with_width, tau)),
        }

    def _width(self, t: "RowTimes", lengths: np.ndarray | None, drafted: float) -> float:
        """The mean of t(g + 1) over steps, in units of t(1). Without the draft lengths: t at the mean number of rows,
        linear between whole numbers of rows."""
        if lengths is not None:
            times = [t.ratio(g + 1) for g in range(len(lengths))]
            return float(np.dot(lengths, times) / lengths.sum())
        if math.isnan(drafted):
            return math.nan
        below, rest = int(drafted) + 1, drafted - int(drafted)
        return (1 - rest) * t.ratio(below) + rest * t.ratio(below + 1)

    def _explanation(self, step: str, values: dict[str, float]) -> str:
        """A sentence with the numbers behind a row, or with what is not known and how the caller can give it."""
        known = not math.isnan(values[step])
        tau, drafted, alpha = values["tau"], values["drafted"], values["alpha"]
        length = "" if math.isnan(drafted) else f" of {drafted:.2f} tokens"
        if step == "ideal":
            if math.isnan(values["iid"]):
                return f"{tau:.3f} tokens a step as measured, a draft that costs nothing, t(n) = t(1)"
            return f"Eq. 1 at alpha {alpha:.3f}: tokens a step, a draft{length} that costs nothing, t(n) = t(1)"
        if step == "iid":
            if known:
                return (
                    f"alpha {alpha:.3f} at every position gives {values['ideal']:.3f} tokens a step, measured {tau:.3f}"
                )
            if self.lengths is not None:
                return "not known: no drafted token was tested."
            if not math.isnan(drafted):
                return "not known: draft lengths vary, and the source has only their sum."
            return "not known: the source does not tell the draft length. Give gamma to load_foreign."
        if step == "draft_cost":
            if known:
                return f"drafting{length} takes {values['draft']:.3f} times as long as {self._unit(self.costs.c)}"
            return self._missing("c", self.costs.c is not None, "draft_seconds")
        if step == "verification_width":
            if known:
                unit = self._unit(self.costs.t)
                return f"the target's forward over a draft takes {values['wide']:.3f} times as long as {unit}"
            return self._missing("t", self.costs.t is not None, "target_seconds")
        if not known:
            return "not known: give base, the baseline's results or its seconds per token."
        if step == "rest":
            return (
                f"a step takes {values['step_time']:.3f} times as long as a token of the baseline; the known terms "
                f"explain {values['modelled_step']:.3f} of this. The times include: {self.times}."
            )
        count = len(self.sums)
        return f"time per token, baseline / these results, over {count} text{'s' * (count != 1)}"

    @staticmethod
    def _unit(given: object) -> str:
        """What a cost is compared with: costs that the caller gives are ratios of forwards."""
        return "a token of the baseline" if given is None else "a target's forward over one row"

    def _missing(self, cost: str, given: bool, name: str) -> str:
        """Why the term of a cost is not known."""
        if given:
            return f"not known, so in the rest: {cost} is given, but not the draft length. Give gamma to load_foreign."
        if not np.isnan(self.sums[:, SUMS.index(name)].sum()):
            return f"not known, so in the rest: {name} need a token's time of the baseline. Give base or {cost}."
        return f"not known, so in the rest: the source has no {name}. Give {cost}."


def _over(above: float, below: float) -> float:
    return above / below if below > 0 else math.nan


def _log(ratio: float) -> float:
    return math.log(ratio) if ratio > 0 else math.nan


def _middle(values: Sequence[float]) -> tuple[float, float]:
    """The interval that holds the middle 95 % of the values. NaN without values, or if more than half of them are not finite."""
    finite = [value for value in values if math.isfinite(value)]
    if not finite or 2 * len(finite) < len(values):
        return math.nan, math.nan
    lo, hi = np.quantile(finite, [0.025, 0.975])
    return float(lo), float(hi)
