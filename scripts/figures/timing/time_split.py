"""How the time of a step divides into its phases."""

import textwrap

from figures import Figure, style
from figures.record import NotApplicable

PHASES = [
    ("time_target", "target", "#0072B2"),
    ("time_draft", "draft", "#E69F00"),
    ("time_accept", "accept", "#006B4F"),
    ("time_other", "other", "#CCCCCC"),
]
MOST = 22
WIDEST = 26  # characters of a name; the bars get the rest of the column


def draw(run):
    cases = [case for case in run.cases if case.metric("time_target") is not None]
    if not cases:
        raise NotApplicable("no case has phase times")
    if len(cases) > MOST:  # keeps the case with the best speedup of each family
        chosen = {}
        for case in cases:
            key = case.family()
            if key not in chosen or (case.metric("speedup") or 0) > (chosen[key].metric("speedup") or 0):
                chosen[key] = case
        cases = list(chosen.values())[:MOST]
    names = [textwrap.fill(case.label(without=()), WIDEST) for case in cases]
    lines = max(name.count("\n") for name in names) + 1
    figure, axes = style.figure(1.0 + (0.08 + 0.11 * lines) * len(cases))
    left = [0.0] * len(cases)
    rows = range(len(cases))
    for (name, label, colour), hatch in zip(PHASES, style.HATCHES):
        widths = [case.metric(name) or 0.0 for case in cases]
        axes.barh(
            rows,
            widths,
            left=left,
            height=0.72,
            color=colour,
            hatch=hatch,
            edgecolor="white" if not hatch else "#333333",
            linewidth=0.3,
            label=label,
        )
        left = [a + b for a, b in zip(left, widths)]
    for row, (case, end) in enumerate(zip(cases, left)):
        if case.metric("tau") is not None:
            axes.text(end, row, f" {case.metric('tau'):.2f}", va="center", fontsize=style.SMALL_PT)
    axes.set_yticks(rows, names)
    axes.invert_yaxis()
    axes.set_xlim(0, max(left) * 1.14)
    axes.set_xlabel("ms per step\n(number: tokens per step)")
    axes.grid(axis="y", visible=False)
    style.legend_below(figure, *axes.get_legend_handles_labels(), columns=4)
    return figure


FIGURES = [
    Figure(
        "time_split",
        "Time per step",
        "Mean time of one step by phase. The number at the end of a bar is tau, the tokens that a step emits.",
        draw,
    )
]
