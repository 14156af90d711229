"""Growth of the arithmetic operations."""

from figures import Figure, style
from figures.record import NotApplicable


def draw(run):
    sweeps = {
        family: [case for case in members if case.metric("ops_factor") is not None]
        for family, members in run.gamma_sweeps().items()
    }
    sweeps = {family: members for family, members in sweeps.items() if members}
    if not sweeps:
        raise NotApplicable("no sweep of the draft length has ops_factor")
    figure, axes = style.figure(2.7)
    handles, labels = [], []
    for index, members in enumerate(sweeps.values()):
        look = style.curve_style(index)
        handles.append(
            style.error_bars(
                axes,
                [case.gamma for case in members],
                members,
                "ops_factor",
                color=look["color"],
                marker=look["marker"],
                linestyle="-",
            )
        )
        labels.append(members[0].label())
        points = [
            (case.gamma, case.predicted("leviathan_3_11_ops"))
            for case in members
            if case.predicted("leviathan_3_11_ops") is not None
        ]
        if points:
            axes.plot(*zip(*points), ":", color=look["color"], linewidth=1)
    axes.axhline(1, color="black", linewidth=0.8)
    axes.set(xlabel="draft length $\\gamma$", ylabel="operations per token\n/ autoregressive")
    style.integer_axis(axes.xaxis, [case.gamma for members in sweeps.values() for case in members])
    handles.append(axes.plot([], [], ":", color="#444444", linewidth=1)[0])
    labels.append("Leviathan, Theorem 3.11")
    style.legend_below(figure, handles, labels)
    return figure


FIGURES = [
    Figure(
        "operations_factor",
        "Arithmetic operations",
        "Floating-point operations of target and draft per emitted token / those of autoregressive decoding. Dotted: "
        "Leviathan et al., Theorem 3.11, from the measured alpha and c_hat.",
        draw,
    )
]
