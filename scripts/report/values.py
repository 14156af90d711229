"""Numbers of a case as text: values with their intervals, what the calibration leaves unexplained, and verdicts."""

# The predicted speedup of a case is the first of these predictions that it has, as in experiments/analysis/table.cpp.
PREDICTIONS = ("cascade_measured_t", "tree_speedup", "measured_t_speedup", "mixture_speedup")
FEW_PROMPTS = 10  # an interval over fewer prompts shows their number; same as kFewClusters in core/measure/stats.h
LEAST_PROMPTS = 3  # prompts that a noise floor needs
MEANINGLESS_NOISE = 0.5  # a noise floor above this is not shown
SAME = 1.05  # "same": the interval stays within 5 % of 1, as in experiments/analysis/lookahead_verdict.cpp
OTHER_TEXTS = " *"  # mark after a speedup
OTHER_TEXTS_NOTE = "* The texts of this case differ from those of its reference: the speedup compares the time per emitted token of different texts."
DRIFT = "machine_drift"
VERDICTS = ("faster", "slower", "same", "unclear")


def shown(value, pattern="{:.3g}"):
    return "" if value is None else pattern.format(value)


def span_text(span, pattern):
    """[1.20, 1.26]; "" without a span."""
    return "" if not span or None in span else f" [{pattern.format(span[0])}, {pattern.format(span[1])}]"


def interval(case, span, pattern):
    """An interval over prompts, with their number if it is small: [1.20, 1.26] (n = 9)."""
    text = span_text(span, pattern)
    return text + f" (n = {case.prompts})" if text and case.prompts < FEW_PROMPTS else text


def with_interval(case, metric, pattern):
    value = case.metric(metric)
    if value is None:
        return ""
    mark = OTHER_TEXTS if metric == "speedup" and of_other_texts(case) else ""
    return shown(value, pattern) + interval(case, case.metric(f"{metric}_ci95"), pattern) + mark


def predicted(case):
    """The predicted speedup of a case for its kind of draft; None without one."""
    return next((value for value in map(case.predicted, PREDICTIONS) if value is not None), None)


def of_other_texts(case):
    """True if the text of the case differs from the text of its reference, so that its speedup compares different texts. False for older
    records, which do not say."""
    return case.metric("texts_equal") is False and case.metric("speedup") is not None


def share_of_step(case, share, span):
    """A share in per cent with its interval: "-1.3 [-7.6, 4.9]"."""
    return f"{100 * share:.1f}" + interval(case, span and [100 * end for end in span], "{:.1f}")


def unexplained_share(case):
    """Share of the step time that the calibration leaves unexplained, and its interval. What the term machine_drift
    explains counts as unexplained here, because machine drift is not a calibrated cost. None for a case without a
    waterfall."""
    last = case.waterfall[-1] if case.waterfall else {}
    if last.get("residual_share") is None:
        return None
    steps = [term["step"] for term in case.waterfall]
    if "unexplained_share" in last:
        return last["unexplained_share"], last["unexplained_share_ci95"]
    if DRIFT not in steps:
        return last["residual_share"], last.get("residual_share_ci95")
    # An older record lacks the field. The share follows from its terms, but the interval does not.
    known = case.waterfall[steps.index(DRIFT) - 1]["speedup"]
    return 1 - last["speedup"] / known, None


def unexplained(case):
    """unexplained_share() as text, in per cent: "-1.3 [-7.6, 4.9]"."""
    found = unexplained_share(case)
    return share_of_step(case, *found) if found else ""


def left_by_drift(case):
    """The share that is still unexplained after the term machine_drift. "" without that term."""
    last = case.waterfall[-1] if case.waterfall else {}
    if last.get("residual_share") is None or DRIFT not in [term["step"] for term in case.waterfall]:
        return ""
    return share_of_step(case, last["residual_share"], last.get("residual_share_ci95"))


def noise(run):
    """Says which differences of time are noise, in the words of `speclab report`."""
    prompts = max((case.prompts for case in run.cases), default=0)
    repeats = max((case.repeats for case in run.cases), default=0)
    floor = run.summary["noise_floor"]
    if prompts == 0:
        return ""
    if floor is not None and prompts >= LEAST_PROMPTS and floor <= MEANINGLESS_NOISE:
        return f"Differences of time below {100 * floor:.1f} % are noise."
    few = "repeats" if floor is None else "prompts or repeats"
    return f"Too few {few} to say which differences of time are noise (prompts: {prompts}, repeats: {repeats})."


def noise_of_speedups(run):
    """By how much the same speedup differs between repeats; None when the run cannot tell."""
    floor = run.summary.get("ratio_noise")
    return floor if floor is not None and floor <= MEANINGLESS_NOISE else None


def verdict(case):
    """Judges a speedup against 1 by its interval over prompts, widened by the noise between repeats where the run knows it.

    "faster" or "slower": 1 lies outside. "same": the interval stays within 5 % of 1. Else "unclear", with a reason where
    there is one. "" for a case without a speedup over a reference.
    """
    if case.reference is None or case.metric("speedup") is None:
        return ""
    if case.metric("matches_reference") is False:
        return "unclear: not equal"
    if case.run.busy:
        return "unclear: busy machine"
    span = case.metric("speedup_ci95")
    if not span or None in span:
        return "unclear: one prompt"
    wider = 1 + (noise_of_speedups(case.run) or 0)
    low, high = span[0] / wider, span[1] * wider
    if low > 1:
        return "faster"
    if high < 1:
        return "slower"
    return "same" if low >= 1 / SAME and high <= SAME else "unclear"


def equality(case):
    if case.lossy:
        return "lossy"
    return {True: "yes", False: "NO", None: "same law" if case.reference else ""}[case.metric("matches_reference")]


def rounded(value, digits=5):
    """The value for a plot. Floats get a few significant digits; infinities and NaN become None. Lists and maps are
    rounded element by element."""
    if isinstance(value, dict):
        return {name: rounded(one, digits) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(one, digits) for one in value]
    if not isinstance(value, float):
        return value
    if value != value or value in (float("inf"), float("-inf")):
        return None
    short = float(f"{value:.{digits}g}")
    return int(short) if short.is_integer() and abs(short) < 2**53 else short
