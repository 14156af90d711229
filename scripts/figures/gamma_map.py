"""Map of the optimal draft length over alpha and c. The measured cases are marked on it."""

import matplotlib.colors
import numpy as np

from figures import Figure, style, theory
from figures.record import NotApplicable

LEVELS = [0, 1, 2, 3, 4, 6, 8, 12, 20, 40]
COLUMNS_PER_CHARACTER = 2.2  # columns of the map that a character covers; the map has 90 columns


def best_measured(members):
    return max(members, key=lambda case: case.metric("speedup"))


def draw(run):
    points = []
    for members in run.families().values():
        usable = [
            case
            for case in members
            if not case.lossy
            and case.gamma is not None
            and None not in (case.metric("alpha"), case.metric("c"), case.metric("speedup"))
            and case.metric("c") > 0
        ]
        if usable:
            points.append(best_measured(usable))
    points = points[: len(style.COLOURS)]
    if not points:
        raise NotApplicable("no lossless case has a draft length, alpha, a draft cost c above 0 and a speedup")
    figure, axes = style.figure(2.9)
    least = min(0.01, *(case.metric("c") / 1.5 for case in points), 1)
    alpha, c = np.meshgrid(np.linspace(0.01, 0.99, 90), np.geomspace(least, 1, 90))
    gains = np.stack([theory.speedup(alpha, gamma, c) for gamma in range(LEVELS[-1] + 1)])
    best = gains.argmax(axis=0)
    shades = matplotlib.colormaps["Greys"](np.linspace(0, 0.55, len(LEVELS)))
    for level, shade in zip(LEVELS[1:], shades[1:]):
        # How much better drafts of at least `level` tokens are than shorter ones. This number is smooth; the best
        # length itself jumps.
        advantage = gains[level:].max(axis=0) - gains[:level].max(axis=0)
        axes.contourf(alpha, c, advantage, levels=[0, np.inf], colors=[shade])
        axes.contour(alpha, c, advantage, levels=[0], colors="#555555", linewidths=0.4)
    # Writes the draft length of each region low in the map, where the region is wide enough. A narrow region gets no
    # number.
    for low, high in zip(LEVELS, LEVELS[1:] + [41]):
        inside = (best >= low) & (best < high)
        text = f"{low}+" if high == 41 else f"{low}" if high == low + 1 else f"{low}-{high - 1}"
        rows = [row for row in range(6, 84) if inside[row].sum() >= COLUMNS_PER_CHARACTER * len(text)]
        if rows:
            row = rows[len(rows) // 3]
            column = int(np.median(np.flatnonzero(inside[row])))
            axes.text(alpha[row, column], c[row, column], text, ha="center", va="center", fontsize=style.SMALL_PT)
    for index, case in enumerate(points):
        look = style.curve_style(index)
        axes.plot(
            case.metric("alpha"),
            case.metric("c"),
            linestyle="none",
            marker=look["marker"],
            color=look["color"],
            markersize=6,
            markeredgecolor="white",
            markeredgewidth=0.7,
            label=f"{case.label()}: best measured $\\gamma$ = {case.gamma}",
        )
    axes.set(
        xlabel="acceptance rate $\\alpha$\n(number: best $\\gamma$, Leviathan, Theorem 3.8)",
        ylabel="draft cost $c$",
        yscale="log",
        xlim=(0.01, 0.99),
        ylim=(least, 1),
    )
    axes.grid(False)
    style.legend_below(figure, *axes.get_legend_handles_labels(), columns=1)
    return figure


FIGURES = [
    Figure(
        "optimal_gamma_map",
        "Optimal draft length",
        "Numbers and shades: the draft length with the largest speedup by Leviathan et al., Theorem 3.8 (0: drafting "
        "does not pay). Each point stands for a group of cases that differ only in draft length. It shows alpha and c "
        "of the case with the largest measured speedup.",
        draw,
    )
]
