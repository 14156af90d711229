"""Acceptance and speed against the temperature, lenience, and the upper end b of the acceptance coin."""

from figures import Figure, style
from figures.record import NotApplicable


def number(text):
    try:
        return float(text)
    except (TypeError, ValueError):
        return None


def sweeps_over(run, name):
    """{family: [(value, case)]} along one numeric setting of the case id."""
    result = {}
    for family, members in run.families(without=(name,)).items():
        points = [
            (number(dict(case.settings()).get(name)), case)
            for case in members
            if case.metric("alpha") is not None and case.metric("speedup") is not None
        ]
        points = sorted(((value, case) for value, case in points if value is not None), key=lambda point: point[0])
        if len({value for value, _ in points}) > 1:
            result[family] = points
    return result


def panels(run, name, label):
    sweeps = sweeps_over(run, name)
    if not sweeps:
        raise NotApplicable(f"no sweep over {label}")
    figure, (top, bottom) = style.figure(3.9, rows=2, sharex=True)
    handles, labels = [], []
    for index, points in enumerate(list(sweeps.values())[: len(style.COLOURS)]):
        x, cases = zip(*points)
        handles.append(style.error_bars(top, x, cases, "alpha", **style.curve_style(index)))
        style.error_bars(bottom, x, cases, "speedup", **style.curve_style(index))
        labels.append(cases[0].label(without=(name,)))
    bottom.axhline(1, color="black", linewidth=0.8)
    top.set(ylabel="acceptance rate $\\alpha$", ylim=(0, 1.03))
    bottom.set(ylabel="speedup", xlabel=label)
    style.legend_below(figure, handles, labels)
    return figure


FIGURES = [
    Figure(
        "temperature",
        "Temperature",
        "Acceptance rate and speedup against the sampling temperature, with 95 % intervals.",
        lambda run: panels(run, "temperature", "temperature"),
    ),
    Figure(
        "lenience",
        "Lenience",
        "Acceptance rate and speedup against lenience l (Leviathan et al., A.5); lossy if l is below 1.",
        lambda run: panels(run, "lenience", "lenience $l$"),
    ),
    Figure(
        "dumbing_down",
        "Upper end b of the acceptance coin",
        "Acceptance rate and speedup if the acceptance coin is uniform on [0, b]; lossy if b is below 1.",
        lambda run: panels(run, "b", "upper end $b$ of the acceptance coin"),
    ),
]
