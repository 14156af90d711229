"""Draft size: a better draft is accepted more often and costs more."""

from figures import Figure, style
from figures.record import NotApplicable

FORMULA = "leviathan_3_8"


def drafting_cases(run):
    """The cases with a draft model and all numbers that the figure needs."""
    return [
        case
        for case in run.speculative
        if case.draft is not None and None not in (case.metric("alpha"), case.metric("c"), case.metric("speedup"))
    ]


def best_sizes(run):
    """A sentence that names the draft with the largest speedup, as measured and as predicted, over all draft lengths."""
    cases = drafting_cases(run)
    size = lambda case: f"{case.draft} with γ {case.gamma}"
    measured = lambda case: case.metric("speedup")
    fastest = max(cases, key=measured)
    words = f"The best size measured is {size(fastest)} (speedup {measured(fastest):.2f})"
    predicted = lambda case: case.predicted(FORMULA)
    promised = max((case for case in cases if predicted(case) is not None), key=predicted, default=None)
    if promised is None:
        return f"{words}; no case has a prediction by Theorem 3.8."
    if promised is fastest:
        return f"{words}, and Theorem 3.8 names the same one (predicted {predicted(promised):.2f})."
    return (
        f"{words}; the best size by Theorem 3.8 is {size(promised)} "
        f"(predicted {predicted(promised):.2f}, measured {measured(promised):.2f})."
    )


def draw(run):
    best = {}
    for case in drafting_cases(run):
        if case.draft not in best or case.metric("speedup") > best[case.draft].metric("speedup"):
            best[case.draft] = case
    if len(best) < 3:
        raise NotApplicable("fewer than three drafts have a case with alpha, c and a speedup")
    cases = sorted(best.values(), key=lambda case: case.metric("c"))
    figure, (top, bottom) = style.figure(3.9, rows=2, sharex=True)
    # Draft models and layers of the target get separate curves, because their costs differ by a factor of a hundred.
    models = run.environment["models"]
    skips = {case.draft for case in cases if models[case.draft]["sha256"] == models["target"]["sha256"]}
    kinds = [
        ("draft models", [case for case in cases if case.draft not in skips]),
        ("layers of the target", [case for case in cases if case.draft in skips]),
    ]
    handles, labels = [], []
    for index, (kind, members) in enumerate(kinds):
        if not members:
            continue
        x = [case.metric("c") for case in members]
        style.error_bars(top, x, members, "alpha", **style.curve_style(index))
        handles.append(style.error_bars(bottom, x, members, "speedup", **style.curve_style(index)))
        labels.append(f"{kind}, measured")
        points = [
            (case.metric("c"), case.predicted(FORMULA)) for case in members if case.predicted(FORMULA) is not None
        ]
        if points:
            handles += bottom.plot(*zip(*points), **style.curve_style(index) | {"linestyle": ":", "marker": "none"})
            labels.append("Leviathan, Theorem 3.8")
    for case in cases:
        top.annotate(
            case.draft.replace("layers", "L"),
            (case.metric("c"), case.metric("alpha")),
            textcoords="offset points",
            xytext=(3, 3),
            rotation=50,
            fontsize=style.SMALL_PT,
        )
    top.set_xscale("log")
    bottom.axhline(1, color="black", linewidth=0.8)
    top.set(ylabel="acceptance rate $\\alpha$", ylim=(0, 1.3))
    bottom.set(ylabel="best speedup", xlabel="draft cost $c$", ylim=(0, None))
    style.legend_below(figure, handles, labels)
    return figure


FIGURES = [
    Figure(
        "draft_capability",
        "Draft capability",
        "Each draft in the case with its largest measured speedup, against its cost c (logarithmic). Dotted: the speedup "
        "by Leviathan et al., Theorem 3.8.",
        draw,
        best_sizes,
    )
]
