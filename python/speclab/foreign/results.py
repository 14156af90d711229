"""Other programs' results as frames, with the estimators and closed forms of this package: `Foreign`."""

import dataclasses
import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from ..errors import Error
from ..record import NotApplicable
from .reading import Problem
from .text import Text

if TYPE_CHECKING:
    from ..theory import Round, RowTimes

RESAMPLES, SEED = 2000, 20260101  # as the estimators of speclab.theory
TEXTS = ("case", "text", "category", "tokens", "steps", "emitted", "drafted", "accepted", "seconds", "gamma", "where")
STEPS = ("case", "text", "step", "drafted", "accepted", "emitted", "seconds")
CASES = (
    *("case", "texts", "tokens", "steps", "tau", "tau_lo", "tau_hi", "alpha", "alpha_lo", "alpha_hi"),
    *("draft_utilization", "gamma", "seconds", "tokens_per_second"),
)
UNITS = {
    **{name: "tokens" for name in ("tokens", "emitted", "drafted", "accepted")},
    **{name: "tokens/step" for name in ("tau", "tau_lo", "tau_hi", "gamma")},
    **{"steps": "steps", "seconds": "s", "tokens_per_second": "1/s"},
}


@dataclasses.dataclass(frozen=True)
class Ratio:
    """An estimate with its 95 % interval. lo and hi are None for a single text, except for an alpha that
    is known only up to bounds: then lo and hi are these bounds."""

    value: float
    lo: float | None
    hi: float | None
    terms: float  #: the denominator: tests or steps; for a speedup the number of texts
    method: str


class Foreign:
    """Results of another program. `speclab.load_foreign` makes it.

    texts: a row for each text that the source lists. steps: a row for each step, where the source lists steps. cases: a row for each model
    or drafter of the source. problems: file, line and reason of everything that was left out.
    accepted counts drafted tokens that were kept; emitted adds the bonus or correction token of each step; tau = emitted / steps.
    """

    def __init__(
        self, format: str, times: str, texts: Sequence[Text], problems: Sequence[Problem], gamma: int | None
    ) -> None:
        self.format = format  #: the name of the source's format
        self.times = times  #: what `seconds` of a text includes
        self.gamma = gamma  #: the draft length that the caller gave; None: that of the source
        self._texts = list(texts)
        self._problems = list(problems)

    def __repr__(self) -> str:
        return f"<speclab.Foreign {self.format}: {len(self._texts)} texts, {len(self._problems)} problems>"

    @property
    def problems(self) -> pd.DataFrame:
        """What was left out: file, line, problem."""
        return pd.DataFrame([dataclasses.asdict(one) for one in self._problems], columns=["file", "line", "problem"])

    @functools.cached_property
    def texts(self) -> pd.DataFrame:
        """A row for each text: case, text, category, tokens, steps, emitted, drafted, accepted, seconds, gamma, where.

        tokens is the source's own count of the whole text; emitted counts the tokens of its steps. drafted is <NA> if neither the source
        nor the caller told the draft length.
        """
        rows = []
        for one in self._texts:
            gamma = self._gamma(one)
            numbers = (
                one.category,
                one.tokens,
                one.steps,
                one.in_steps,
                one.drafted_by(gamma),
                one.accepted,
                one.seconds,
                gamma,
            )
            rows.append(dict(zip(TEXTS, (one.case, one.name, *numbers, one.where), strict=True)))
        return _frame(rows, TEXTS)

    @functools.cached_property
    def steps(self) -> pd.DataFrame:
        """A row for each step, in order; in no known order if the source has only histograms. Empty if it has only sums."""
        rows = []
        for one in self._texts:
            for number, emitted in enumerate(one.emitted or ()):
                drafted = one.drafted[number] if one.drafted is not None else self._gamma(one)
                time = None if one.step_seconds is None else one.step_seconds[number]
                values = (one.case, one.name, number, drafted, max(emitted - 1, 0), emitted, time)
                rows.append(dict(zip(STEPS, values, strict=True)))
        return _frame(rows, STEPS)

    @functools.cached_property
    def cases(self) -> pd.DataFrame:
        """A row for each case, with the 95 % intervals of tau and alpha (bootstrap over texts). Index: case.

        alpha is NaN if the method `alpha` raises an error, for example because the draft length is not known. draft_utilization = accepted / drafted, which other programs call acceptance rate.
        """
        rows = []
        for case in self._cases():
            own = self._of(case)
            tau = self._ratio([one.in_steps for one in own], [one.steps for one in own], "")
            try:
                alpha = self.alpha(case)
            except (Error, NotApplicable):
                alpha = None
            drafted = [one.drafted_by(self._gamma(one)) for one in own]
            gammas = {self._gamma(one) for one in own}
            seconds, tokens = [one.seconds for one in own], [one.tokens for one in own]
            timed = [(s, n) for s, n in zip(seconds, tokens, strict=True) if s is not None and n is not None]
            time = sum(s for s, _ in timed)
            rows.append(
                {
                    **{"case": case, "texts": len(own), "steps": sum(one.steps for one in own)},
                    "tokens": None if None in tokens else sum(n for n in tokens if n is not None),
                    **_ends("tau", tau),
                    **_ends("alpha", alpha),
                    "draft_utilization": None
                    if None in drafted or not sum(n or 0 for n in drafted)
                    else sum(one.accepted for one in own) / sum(n or 0 for n in drafted),
                    "gamma": gammas.pop() if len(gammas) == 1 else None,
                    "seconds": time if timed else None,
                    "tokens_per_second": sum(n for _, n in timed) / time if time else None,
                }
            )
        return _frame(rows, CASES).set_index("case")

    def rounds(self, case: str | None = None) -> "list[list[Round]]":
        """The acceptance data for the estimators of `speclab.theory`, [texts][rounds], for drafts that are chains.

        A step that the end of its text may have cut is left out, because the source does not tell a rejection from a cut. Raises
        NotApplicable for a source that has only sums, and Error if the draft length is not known or is smaller than the accepted tokens of a step.
        """
        from .. import theory

        found = []
        for one in self._of(case):
            if one.emitted is None:
                raise NotApplicable(f"{one.where}: this source has sums in place of steps. `alpha` works on them.")
            rounds = []
            for number, emitted in enumerate(one.emitted):
                gamma = one.drafted[number] if one.drafted is not None else self._known_gamma(one)
                accepted = max(emitted - 1, 0)
                if accepted > gamma:
                    raise Error(
                        f"{one.where}: a step accepted {accepted} tokens, more than gamma = {gamma}. Give the right gamma."
                    )
                if number not in one.unclear:
                    rounds.append(theory.Round(gamma, accepted, accepted < gamma, emitted))
            if rounds:
                found.append(rounds)
        return found

    def alpha(self, case: str | None = None) -> Ratio:
        """The probability that a tested token is accepted: accepted / (accepted + rejections), the maximum-likelihood estimate.

        It is for drafts that are chains. Its interval is a bootstrap over texts. If the source does not say how many drafts were rejected,
        the value is the middle of the possible values, and the interval covers all of them.
        """
        own = self._of(case)
        if all(one.counts is None for one in own):
            from .. import theory

            found = theory.alpha_mle(self.rounds(case))
            if found is None:
                raise NotApplicable("no drafted token was tested, so there is no acceptance to estimate.")
            return Ratio(found.value, *(found.ci or (None, None)), found.terms, "accepted / (accepted + rejections)")
        counts = [one.counts for one in own if one.counts is not None]
        accepted = [float(one.accepted) for one in counts]
        ends = [[one.accepted + one.rejected_hi for one in counts], [one.accepted + one.rejected_lo for one in counts]]
        method = "accepted / (accepted + rejections), from sums"
        low, high = (self._ratio(accepted, tests, method) for tests in ends)
        if low is None or high is None:
            raise NotApplicable("no drafted token was tested, so there is no acceptance to estimate.")
        if low == high:
            return low
        method += "; draft lengths vary, so the rejections are known up to bounds"
        lo = low.value if low.lo is None else low.lo
        hi = high.value if high.hi is None else high.hi
        return Ratio((low.value + high.value) / 2, lo, hi, (low.terms + high.terms) / 2, method)

    def tau(self, case: str | None = None) -> Ratio:
        """Emitted tokens per step, with the bonus or correction token. Steps without a draft count if the source lists them."""
        own = self._of(case)
        found = self._ratio([one.in_steps for one in own], [one.steps for one in own], "emitted tokens / steps")
        if found is None:
            raise NotApplicable("the source has no steps.")
        return found

    def predict(self, c: float, t: "RowTimes | None" = None, case: str | None = None) -> pd.DataFrame:
        """The closed forms at the estimated alpha, as `speclab.predict` gives them. value_lo, value_hi: the values at the ends of alpha's interval.

        c: time of a draft forward / of a target forward. t: measured times of the target by rows; without it a forward of gamma + 1 rows
        costs as much as a forward of one row. If the draft length varies, there are only the two forms for a mixture of lengths:
        mixture_tokens and mixture_speedup.
        """
        from .. import theory
        from ..predicted import predict

        alpha = self.alpha(case)
        gammas = self._draft_lengths(case)
        if len(gammas) == 1:
            at = [predict(alpha=x, gamma=gammas[0], c=c, t=t) for x in _points(alpha)]
        else:
            rounds = self.rounds(case)
            lengths = theory.draft_length_counts(rounds)
            times = t or theory.RowTimes({1: 1.0, len(lengths): 1.0})
            at = [_mixture(theory, x, c, lengths, times) for x in _points(alpha)]
        out = at[0].copy()
        if len(at) == 3:
            place = list(out.columns).index("value") + 1
            out.insert(place, "value_lo", np.minimum(at[1]["value"], at[2]["value"]))
            out.insert(place + 1, "value_hi", np.maximum(at[1]["value"], at[2]["value"]))
        return out

    def explain(
        self,
        base: "Foreign | float | None" = None,
        *,
        case: str | None = None,
        base_case: str | None = None,
        c: float | None = None,
        t: "RowTimes | None" = None,
    ) -> pd.DataFrame:
        """The terms that lead from the ideal to the measured speedup, as far as the source tells them. Index: step.

        ideal: tokens a step by Eq. 1 of Leviathan et al. 2023 at the estimated alpha, as if drafts cost nothing and t(n) = t(1); the
        measured tau if alpha or the draft lengths are not known. iid: measured tau / tau by Eq. 1. draft_cost: the time of drafting. verification_width: the time of the
        target's forward over the draft. rest: everything else that the times include, with draft_cost and verification_width if
        they are not known. measured: time per token, baseline / these results.

        base: the baseline's results, or its seconds per token. Without it the measured speedup is not known. All terms are over the texts
        that both results have. c, t: costs measured elsewhere, as for `predict`. A CSV of steps may have its own (`draft_seconds`,
        `target_seconds`); c and t take precedence over them. `known` is False for a term that neither the source nor the caller tells; `explanation` says
        what is missing. `speedup` is the value after this term and all known terms before it. The known log_ratios add up to
        log(measured / ideal). Intervals: bootstrap over texts; of `speedup` in the first and the last row, of `log_ratio` in the others.
        """
        from .explained import Costs, Explanation

        own = self._of(case)
        if c is not None and not (c >= 0 and np.isfinite(c)):
            raise Error(f"c is {c}, expected a number that is not negative")
        of_base: dict[str, tuple[float, float]] = {}  # seconds and tokens of the baseline by text
        if base is not None:
            timed = self._timed(case)
            if isinstance(base, Foreign):
                self._require_same_times(base)
                of_base = base._timed(base_case)
            elif base > 0 and np.isfinite(base):
                of_base = {name: (base * tokens, tokens) for name, (_, tokens) in timed.items()}
            else:
                raise Error(f"base is {base}, expected the results of the baseline or its seconds per token")
            own = [one for one in own if one.name in timed and one.name in of_base]
            if not own:
                raise NotApplicable("no text with a time is in both results.")
        gammas = [self._gamma(one) for one in own]
        return Explanation(own, gammas, [of_base.get(one.name) for one in own], Costs(c, t), self.times).frame()

    def speedup_over(self, base: "Foreign", case: str | None = None, base_case: str | None = None) -> Ratio:
        """The measured speedup: time per token of `base` / of these results, over the texts that both have.

        The interval is a paired bootstrap over texts. Both results must measure the same part of the work (`times`).
        Spec-Bench's own script reports another number: the mean of the texts' tokens per second, divided by the same mean of the
        baseline.
        """
        self._require_same_times(base)
        mine, theirs = self._timed(case), base._timed(base_case)
        shared = [name for name in mine if name in theirs]
        if not shared:
            raise NotApplicable("no text with a time is in both results.")
        times = np.array([[*theirs[name], *mine[name]] for name in shared])  # seconds and tokens of base, then of these
        ratio = lambda sums: float(sums[0] / sums[1] * sums[3] / sums[2])
        drawn = np.random.default_rng(SEED).integers(0, len(shared), (RESAMPLES, len(shared)))
        lo, hi = (
            np.quantile([ratio(times[one].sum(axis=0)) for one in drawn], [0.025, 0.975])
            if len(shared) > 1
            else (None, None)
        )
        return Ratio(
            ratio(times.sum(axis=0)), lo and float(lo), hi and float(hi), len(shared), "time per token, base / these"
        )

    def _require_same_times(self, base: "Foreign") -> None:
        if base.times != self.times:
            raise Error(
                f"the times of base include other work ({base.times}) than these ({self.times}). Compare files of one format."
            )

    def _cases(self) -> list[str]:
        return list(dict.fromkeys(one.case for one in self._texts))

    def _of(self, case: str | None) -> list[Text]:
        known = self._cases()
        if case is None and len(known) > 1:
            raise Error(f"the results hold {len(known)} cases: {', '.join(known)}. Name one of them.")
        if case is not None and case not in known:
            raise Error(f"no case {case!r}. There are: {', '.join(known)}.")
        return [one for one in self._texts if case is None or one.case == case]

    def _gamma(self, one: Text) -> int | None:
        return one.gamma if self.gamma is None else self.gamma

    def _known_gamma(self, one: Text) -> int:
        gamma = self._gamma(one)
        if gamma is None:
            largest = max(max(n - 1, 0) for text in self._texts for n in text.emitted or [0])
            raise Error(
                f"{self.format}: the source does not tell the draft length, so a rejection cannot be told from a draft that was accepted "
                f"whole. Give it: load_foreign(file, gamma=...). The most that a step accepted here is {largest}."
            )
        return gamma

    def _draft_lengths(self, case: str | None) -> list[int]:
        """The draft lengths that occur. If the source does not list them: the largest draft length of each text."""
        own = self._of(case)
        if any(one.drafted is not None for one in own):
            return sorted({length for one in own for length in one.drafted or ()})
        return sorted({self._known_gamma(one) for one in own})

    def _timed(self, case: str | None) -> dict[str, tuple[float, float]]:
        own = self._of(case)
        return {one.name: (one.seconds, float(one.tokens)) for one in own if one.seconds is not None and one.tokens}

    @staticmethod
    def _ratio(above: Sequence[float], below: Sequence[float], method: str) -> Ratio | None:
        from .. import theory

        found = theory.ratio_of_sums([float(one) for one in above], [float(one) for one in below])
        return None if found is None else Ratio(found[0], *(found[1] or (None, None)), float(sum(below)), method)


def _points(alpha: Ratio) -> list[float]:
    return [alpha.value] if alpha.lo is None or alpha.hi is None else [alpha.value, alpha.lo, alpha.hi]


def _mixture(theory: Any, alpha: float, c: float, lengths: Sequence[float], times: "RowTimes") -> pd.DataFrame:
    assumed = "independent acceptance; draft lengths as measured"
    rows = [
        (
            "mixture_tokens",
            "tau",
            "tokens/step",
            theory.mixture_expected_tokens(alpha, lengths),
            "mean of Eq. 1 over draft lengths",
            assumed,
        ),
        (
            "mixture_speedup",
            "speedup",
            "ratio",
            theory.mixture_speedup(alpha, c, lengths, times),
            "mixture of Theorem 3.8",
            assumed,
        ),
    ]
    return pd.DataFrame(rows, columns=["name", "quantity", "unit", "value", "equation", "assumptions"]).set_index(
        "name"
    )


def _ends(name: str, found: Ratio | None) -> dict[str, float | None]:
    if found is None:
        return {name: None, f"{name}_lo": None, f"{name}_hi": None}
    return {name: found.value, f"{name}_lo": found.lo, f"{name}_hi": found.hi}


def _frame(rows: list[dict[str, Any]], columns: Sequence[str]) -> pd.DataFrame:
    table = pd.DataFrame(rows, columns=list(columns))
    for name in ("tokens", "steps", "emitted", "drafted", "accepted", "gamma"):
        if name in table:
            table[name] = table[name].astype("Int64")
    for name in table:
        if str(name).startswith(("tau", "alpha")) or name in ("seconds", "tokens_per_second", "draft_utilization"):
            table[name] = table[name].astype("float64")
    table.attrs["units"] = {str(name): UNITS[str(name)] for name in table if name in UNITS}
    return table
