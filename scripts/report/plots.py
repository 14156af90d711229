"""The numbers behind the interactive plots of a run, as JSON for static/plots.js."""

from . import values
from .ledger import term_name

CATEGORY_METRICS = ("speedup", "tau", "alpha")
MOST_SELECTED = 12  # cases in the plots when the page opens


def with_span(metrics, name):
    """[value, low, high] of a metric; None without a value."""
    value = metrics.get(name)
    if value is None:
        return None
    low, high = metrics.get(f"{name}_ci95") or (None, None)
    return [value, low, high]


def case_data(case):
    metrics = case.metrics
    entry = {
        "id": case.id,
        "label": case.label(without=()),
        "lossy": bool(case.lossy),
        "reference": bool(case.autoregressive),
        "verdict": values.verdict(case),
        "gamma": case.gamma,
        **{name: with_span(metrics, name) for name in CATEGORY_METRICS},
        "predicted": values.predicted(case),
        "at": metrics.get("acceptance_at"),
        "atSpans": metrics.get("acceptance_at_ci95"),
        "time": [metrics.get(f"time_{part}") for part in ("draft", "target", "accept", "other")],
        "waterfall": [
            [term_name(term["step"]), term["speedup"], term.get("log_ratio") or 0, term.get("explanation", "")]
            for term in case.waterfall or []
        ],
        "categories": {
            name: {metric: with_span(part["metrics"], metric) for metric in CATEGORY_METRICS}
            for name, part in (case.categories or {}).items()
        },
        "prompts": [
            [prompt, one.get("category", ""), one.get("tau"), one.get("speedup"), one.get("copied_4grams")]
            for prompt, one in (case.data.get("by_prompt") or {}).items()
        ],
    }
    return {name: value for name, value in entry.items() if value not in (None, [], {}, "")}


def first_selection(run):
    """The cases that the plots show first: all cases of a small run; otherwise the fastest case of each family (the
    fastest families first) and the slowest case of the run."""
    measured = [case for case in run.cases if case.metric("speedup") is not None]
    if len(run.cases) <= MOST_SELECTED:
        return list(range(len(run.cases)))
    fastest = {}
    for case in sorted(measured, key=lambda case: -case.metric("speedup")):
        if not case.autoregressive:
            fastest.setdefault(case.family(), case)
    chosen = list(fastest.values())[: MOST_SELECTED - 1]
    if measured:
        chosen.append(min(measured, key=lambda case: case.metric("speedup")))
    return sorted({run.cases.index(case) for case in chosen})


def data_of(run):
    number = {case: place for place, case in enumerate(run.cases)}
    calibration = run.summary.get("calibration") or {}
    times = calibration.get("t_n") or {}
    return values.rounded(
        {
            "cases": [case_data(case) for case in run.cases],
            "categories": sorted({name for case in run.cases for name in case.categories or {}}),
            "selected": first_selection(run),
            "families": [
                [next(iter(members)).label(), [number[case] for case in members]]
                for members in run.gamma_sweeps().values()
            ],
            "t": sorted((int(rows), ratio) for rows, ratio in times.items()),
        }
    )
