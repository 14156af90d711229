"""Draft size: a better draft is accepted more often and costs more."""

from figures import Figure, style
from figures.record import NotApplicable


def draw(run):
    best = {}
    for case in run.speculative:
        if case.draft is None or None in (case.metric("alpha"), case.metric("c"), case.metric("speedup")):
            continue
        if case.draft not in best or case.metric("speedup") > best[case.draft].metric("speedup"):
            best[case.draft] = case
    if len(best) < 3:
        raise NotApplicable("fewer than three drafts were measured")
    cases = sorted(best.values(), key=lambda case: case.metric("c"))
    figure, (top, bottom) = style.figure(3.9, rows=2, sharex=True)
    x = [case.metric("c") for case in cases]
    style.error_bars(top, x, cases, "alpha", **style.curve_style(0))
    measured = style.error_bars(bottom, x, cases, "speedup", **style.curve_style(0))
    handles, labels = [measured], ["measured"]
    points = [
        (case.metric("c"), case.predicted("leviathan_3_8"))
        for case in cases
        if case.predicted("leviathan_3_8") is not None
    ]
    if points:
        handles += bottom.plot(*zip(*points), **style.curve_style(1))
        labels.append("predicted, Eq. 3.8")
    for case in cases:
        top.annotate(
            case.draft.replace("layers", "L"),
            (case.metric("c"), case.metric("alpha")),
            textcoords="offset points",
            xytext=(3, -9),
            fontsize=style.SMALL_PT,
        )
    bottom.axhline(1, color="black", linewidth=0.8)
    top.set(ylabel="acceptance rate $\\alpha$", ylim=(0, 1.03))
    bottom.set(ylabel="best speedup", xlabel="draft cost $c$", ylim=(0, None))
    style.legend_below(figure, handles, labels)
    return figure


FIGURES = [
    Figure(
        "draft_capability",
        "Draft capability",
        "Each draft at its best measured draft length. Left to right: dearer drafts.",
        draw,
    )
]
