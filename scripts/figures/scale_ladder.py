"""The same drafts against targets of growing cost: speedup against c, measured and predicted."""

from matplotlib import ticker

from figures import Figure, style
from figures.record import NotApplicable

MOST_CURVES = 6  # more curves could not be told apart
SAME_PLACE = 1.15  # targets whose c differ by a smaller factor share a label


def places(points, order):
    """Where to write the names of targets above the points of a draft: [(names, c, height)]. Takes the c of a target from
    its first point, because c depends little on the draft length."""
    found = []
    for name in order:
        own = [case for target, case in points if target == name]
        if not own:
            continue
        c, top = own[0].metric("c"), max(case.interval("speedup")[1] for case in own)
        if found and max(c, found[-1][1]) < SAME_PLACE * min(c, found[-1][1]):
            names, c, other = found.pop()
            found.append(([*names, name], c, max(top, other)))
        else:
            found.append(([name], c, top))
    return found


def draw(ladder):
    curves = {}
    for name, run in ladder.runs.items():
        for case in run.speculative:
            if case.draft is not None and not case.lossy and None not in (case.metric("c"), case.metric("speedup")):
                curves.setdefault(case.id, []).append((name, case))
    curves = {id_: points for id_, points in curves.items() if len(points) > 1}
    if not curves:
        raise NotApplicable("no draft was measured against two or more targets")
    if len(curves) > MOST_CURVES:  # keeps the curves with the best speedups at the largest target
        best = sorted(curves, key=lambda id_: curves[id_][-1][1].metric("speedup"), reverse=True)[:MOST_CURVES]
        curves = {id_: points for id_, points in curves.items() if id_ in best}
    figure, axes = style.figure(3.2)
    handles, labels = [], []
    for index, points in enumerate(curves.values()):
        look = style.curve_style(index)
        cases = [case for _, case in points]
        x = [case.metric("c") for case in cases]
        handles.append(
            style.error_bars(axes, x, cases, "speedup", color=look["color"], marker=look["marker"], linestyle="-")
        )
        labels.append(cases[-1].label(without=()))
        for formula, dash in PREDICTED:
            known = [
                (case.metric("c"), case.predicted(formula)) for case in cases if case.predicted(formula) is not None
            ]
            if known:
                axes.plot(*zip(*known), dash, color=look["color"], linewidth=1)
    for draft in {points[0][1].draft for points in curves.values()}:
        own = [point for points in curves.values() for point in points if point[1].draft == draft]
        for names, c, top in places(own, list(ladder.runs)):
            axes.annotate(
                "all targets" if len(names) == len(ladder.runs) else ", ".join(names),
                (c, top),
                textcoords="offset points",
                xytext=(0, 4),
                ha="center",
                fontsize=style.SMALL_PT,
            )
    axes.set_xscale("log")
    every = [case.metric("c") for points in curves.values() for _, case in points]
    few = max(every) > 300 * min(every)
    axes.xaxis.set_major_locator(ticker.LogLocator(subs=(1,) if few else (1, 2, 5)))
    axes.xaxis.set_major_formatter(ticker.FormatStrFormatter("%g"))
    axes.xaxis.set_minor_formatter(ticker.NullFormatter())
    axes.axhline(1, color="black", linewidth=0.8)
    axes.set(xlabel="draft cost $c$ (time of draft / target call)", ylabel="speedup over autoregressive")
    axes.set_ylim(bottom=0, top=1.12 * axes.get_ylim()[1])
    axes.margins(x=0.12)
    for formula, dash in PREDICTED:
        if any(case.predicted(formula) is not None for points in curves.values() for _, case in points):
            handles.append(axes.plot([], [], dash, color="#444444", linewidth=1)[0])
            labels.append(NAMES[formula])
    style.legend_below(figure, handles, labels)
    return figure


PREDICTED = (("leviathan_3_8", ":"), ("measured_costs", "--"))
NAMES = {"leviathan_3_8": "Leviathan, Theorem 3.8", "measured_costs": "predicted by step costs"}

FIGURES = [
    Figure(
        "scale_ladder",
        "Speedup against draft cost, by target",
        "The same drafts with targets that compute the same function at different costs. Each target is a run of its "
        "own, with its own reference and calibration; its name stands above its points. Speedup: decode time per "
        "token of autoregressive decoding / decode time per token of the case, with 95 % intervals (bootstrap over "
        "prompts); c is a ratio of calibrated times (logarithmic). Dotted: Leviathan et al., Theorem 3.8, from the measured alpha and "
        "c. Dashed: from the measured tokens per step and the calibrated costs of a step.",
        draw,
    )
]
