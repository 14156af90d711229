"""Speedup against draft length, measured and predicted."""

from figures import Figure, style
from figures.record import NotApplicable

MOST_SWEEPS = 6  # more curves could not be told apart


def draw(run):
    sweeps = run.fastest_gamma_sweeps(MOST_SWEEPS)
    if not sweeps:
        raise NotApplicable("no strategy was measured at two or more draft lengths")
    figure, axes = style.figure(2.9)
    handles, labels = [], []
    for index, members in enumerate(sweeps.values()):
        look = style.curve_style(index)
        x = [case.gamma for case in members]
        handles.append(
            style.error_bars(axes, x, members, "speedup", color=look["color"], marker=look["marker"], linestyle="-")
        )
        labels.append(members[0].label())
        for name, dash in (("leviathan_3_8", ":"), ("measured_costs", "--")):
            points = [(case.gamma, case.predicted(name)) for case in members if case.predicted(name) is not None]
            if points:
                axes.plot(*zip(*points), dash, color=look["color"], linewidth=1)
    single = [
        case
        for members in run.families().values()
        for case in members
        if case.family() not in run.gamma_sweeps() and case.metric("speedup") is not None and not case.lossy
    ][: max(0, len(style.COLOURS) - len(sweeps))]
    for index, case in enumerate(single, start=len(sweeps)):
        look = style.curve_style(index)
        x = [case.gamma] if case.gamma is not None else [axes.get_xlim()[1]]
        handles.append(
            style.error_bars(axes, x, [case], "speedup", color=look["color"], marker=look["marker"], linestyle="none")
        )
        labels.append(case.label(without=()))
    axes.axhline(1, color="black", linewidth=0.8)
    axes.set(xlabel="draft length $\\gamma$", ylabel="speedup over autoregressive")
    style.integer_axis(axes.xaxis, [case.gamma for members in sweeps.values() for case in members])
    for name, dash, text in (
        ("leviathan_3_8", ":", "Leviathan, Theorem 3.8"),
        ("measured_costs", "--", "predicted by step costs"),
    ):
        if any(case.predicted(name) is not None for members in sweeps.values() for case in members):
            handles.append(axes.plot([], [], dash, color="#444444", linewidth=1)[0])
            labels.append(text)
    style.legend_below(figure, handles, labels)
    return figure


FIGURES = [
    Figure(
        "speedup_gamma",
        "Speedup against draft length",
        "Decode time per token of autoregressive decoding / decode time per token of the case, with 95 % intervals "
        "(bootstrap over prompts). Dotted: Leviathan et al., Theorem 3.8, from the measured alpha and c. Dashed: from the measured "
        f"tokens per step and the calibrated costs of a step. At most {MOST_SWEEPS} curves: those with the best "
        "speedups. Single points: lossless cases with a single draft length, or with none (at the right end).",
        draw,
    )
]
