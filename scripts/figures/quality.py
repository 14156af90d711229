"""Gain and cost of lossy acceptance: speed against distance from the target."""

import math

from figures import Figure, style
from figures.record import NotApplicable


def group_of(case):
    return (case.rule or case.strategy) if case.lossy else "lossless"


def looks(run):
    """Gives a rule the same look in every panel."""
    return {rule: style.curve_style(index) for index, rule in enumerate(dict.fromkeys(map(group_of, run.cases)))}


def finite_kl(case):
    """The KL divergence of a case; None if it is infinite at some position, as it is for most cases at temperature 0."""
    return None if case.metric("kl_infinite") else case.metric("kl")


def perplexity(case):
    """Older records have only its logarithm."""
    nll = case.metric("target_nll")
    return case.metric("perplexity") or (None if nll is None else math.exp(nll))


# (quantity of a case or None, label)
PANELS = (
    (lambda case: case.metric("distance"), "total variation from the target's law"),
    (finite_kl, "KL divergence from the target's law, nats"),
    (perplexity, "perplexity of the text under the target"),
    (lambda case: case.metric("token_disagreement"), "share of tokens that differ from the reference"),
)


def panel(axes, run, quantity, label):
    groups = {}
    for case in run.cases:
        if quantity(case) is None or (case.metric("speedup") is None and not case.autoregressive):
            continue
        groups.setdefault(group_of(case), []).append(case)
    for rule, cases in groups.items():
        look = looks(run)[rule]
        cases.sort(key=quantity)
        temperatures = [case.sampling["temperature"] for case in cases]
        x, y = [quantity(case) for case in cases], [case.metric("speedup") or 1.0 for case in cases]
        for temperature, fill in ((0, "white"), (None, look["color"])):
            chosen = [i for i, t in enumerate(temperatures) if (t == 0) == (temperature == 0)]
            if chosen:
                axes.plot(
                    [x[i] for i in chosen],
                    [y[i] for i in chosen],
                    marker=look["marker"],
                    color=look["color"],
                    markerfacecolor=fill,
                    linestyle=look["linestyle"] if rule != "lossless" else "none",
                    linewidth=0.8,
                    label=rule.replace("_", " "),
                )
    axes.axhline(1, color="black", linewidth=0.8)
    axes.set(xlabel=label, ylabel="speedup")


def draw(run):
    panels = [
        (quantity, label)
        for quantity, label in PANELS
        if sum(case.lossy and quantity(case) is not None for case in run.cases) > 1
    ]
    if not panels:
        raise NotApplicable("no two lossy cases share a metric: distance, kl, target_nll or token_disagreement")
    figure, axes = style.figure(0.7 + 1.75 * len(panels), rows=len(panels), squeeze=False)
    for axis, (quantity, label) in zip(axes[:, 0], panels):
        panel(axis, run, quantity, label)
    shown = {}
    for axis in axes[:, 0]:
        for handle, label in zip(*axis.get_legend_handles_labels()):
            shown.setdefault(label, handle)
    style.legend_below(figure, shown.values(), list(shown), columns=3)
    return figure


FIGURES = [
    Figure(
        "quality_tradeoff",
        "Speed against quality",
        "Lossy acceptance rules. Open markers: temperature 0; filled: temperature above 0. Lossless: the "
        "autoregressive references, at speedup 1. The KL divergence is shown for the cases in which it is finite at every "
        "position.",
        draw,
    )
]
