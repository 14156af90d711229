"""Tokens per step, speedup and operations against alpha: curves of the theory, and the measured cases as points."""

import statistics

import numpy as np

from figures import Figure, style, theory
from figures.record import NotApplicable

MOST_GAMMAS = 5


def draw(run):
    cases = [
        case
        for case in run.speculative
        if case.gamma is not None and None not in (case.metric("alpha"), case.metric("tau"), case.metric("speedup"))
    ]
    if not cases:
        raise NotApplicable("no speculative case has a draft length, alpha, tau and a speedup")
    gammas = sorted({case.gamma for case in cases})
    if len(gammas) > MOST_GAMMAS:
        gammas = [gammas[round(i * (len(gammas) - 1) / (MOST_GAMMAS - 1))] for i in range(MOST_GAMMAS)]
    cases = [case for case in cases if case.gamma in gammas]
    # All curves use one c and one c_hat: the medians over the cases that have the same draft as the case `main`. Cases
    # with another draft are drawn as open points.
    main = max(cases, key=lambda case: (case.draft is not None, not case.lossy, case.metric("speedup")))
    middle = lambda name: statistics.median(
        [case.metric(name) for case in cases if case.draft == main.draft and case.metric(name) is not None] or [0.0]
    )
    c, c_hat = middle("c"), middle("c_hat")
    figure, (tokens, speed, work) = style.figure(5.6, rows=3, sharex=True)
    alpha = np.linspace(0, 0.97, 200)
    handles, labels = [], []
    for index, gamma in enumerate(gammas):
        look = style.curve_style(index)
        line = {"color": look["color"], "linestyle": look["linestyle"]}
        handles.append(tokens.plot(alpha, theory.tau(alpha, gamma), **line)[0])
        labels.append(f"$\\gamma$ = {gamma}")
        speed.plot(alpha, theory.speedup(alpha, gamma, c), **line)
        work.plot(alpha, theory.operations(alpha, gamma, c_hat), **line)
        own = [case for case in cases if case.gamma == gamma]
        for case in own:
            dot = {
                "color": look["color"],
                "marker": look["marker"],
                "linestyle": "none",
                "markerfacecolor": look["color"] if case.draft == main.draft else "white",
            }
            for axes, metric in ((tokens, "tau"), (speed, "speedup"), (work, "ops_factor")):
                if case.metric(metric) is not None:
                    axes.plot(case.metric("alpha"), case.metric(metric), **dot)
    speed.axhline(1, color="black", linewidth=0.8)
    top = max(max(case.metric("tau") for case in cases), 2.0)
    tokens.set(ylabel="tokens per step $\\tau$", ylim=(0.9, 1.35 * top))
    speed.set(
        ylabel=f"speedup\n(curves: c = {c:.3g})",
        ylim=(0, 1.3 * max(1.3, *(case.metric("speedup") for case in cases), 0)),
    )
    work.set(
        ylabel=f"operations factor\n(curves: ĉ = {c_hat:.3g})",
        xlabel="acceptance rate $\\alpha$",
        xlim=(0, 1),
        ylim=(0, 1.15 * max([case.metric("ops_factor") or 1 for case in cases])),
    )
    style.legend_below(figure, handles, labels, columns=3)
    return figure


FIGURES = [
    Figure(
        "curves_alpha",
        "Closed forms and measured cases against alpha",
        "Curves: Leviathan et al., Eq. 1, Theorem 3.8 and Theorem 3.11, with c and c_hat of one draft. Points: "
        "measured cases. Open points: cases with another draft, to which this c and c_hat do not apply.",
        draw,
    )
]
