"""Time against the draft length K: time per token with its spread, time of a step, and r' = tau / (K + 1).

After Chen et al. 2023, Figure 1."""

from figures import Figure, style
from figures.record import NotApplicable

MOST_SWEEPS = 4  # more bands could not be told apart
MOST_CATEGORIES = 4


def draw(run):
    sweeps = {
        family: [case for case in members if case.metric("ms_per_token") is not None]
        for family, members in run.fastest_gamma_sweeps(MOST_SWEEPS).items()
    }
    sweeps = {family: members for family, members in sweeps.items() if len(members) > 1}
    if not sweeps:
        raise NotApplicable("no strategy was measured at two or more draft lengths")
    figure, (time, step, share) = style.figure(5.2, rows=3, sharex=True)
    handles, labels = [], []

    def add(index, label, x, per_token, spread, per_step, ratio):
        look = style.curve_style(index)
        if spread and None not in spread:
            time.fill_between(
                x,
                [max(0, m - s) for m, s in zip(per_token, spread)],
                [m + s for m, s in zip(per_token, spread)],
                color=look["color"],
                alpha=0.13,
                linewidth=0,
            )
        handles.append(time.plot(x, per_token, **look)[0])
        labels.append(label)
        step.plot(x, per_step, **look)
        share.plot(x, ratio, **look)

    index = 0
    for members in sweeps.values():
        x = [case.gamma for case in members]
        of = lambda name: [case.metric(name) for case in members]
        add(
            index,
            members[0].label(),
            x,
            of("ms_per_token"),
            of("ms_per_token_sd"),
            of("ms_per_step"),
            [tau / (k + 1) for tau, k in zip(of("tau"), x)],
        )
        index += 1
    if len(sweeps) == 1:  # a figure of several strategies has no room for the prompt categories
        (members,) = sweeps.values()
        names = [name for name in members[0].categories if name and all(name in case.categories for case in members)]
        if 1 < len(names):
            for name in names[:MOST_CATEGORIES]:
                of = lambda metric: [case.categories[name]["metrics"].get(metric) for case in members]
                if None in of("ms_per_token") + of("ms_per_step") + of("tau"):
                    continue
                x = [case.gamma for case in members]
                add(
                    index,
                    name,
                    x,
                    of("ms_per_token"),
                    None,
                    of("ms_per_step"),
                    [tau / (k + 1) for tau, k in zip(of("tau"), x)],
                )
                index += 1
    baseline = run.baselines[0].metric("ms_per_token") if run.baselines else None
    if baseline is not None:
        handles.append(time.axhline(baseline, color="black", linewidth=0.8))
        labels.append("autoregressive")
    time.set(ylabel="ms per token")
    step.set(ylabel="ms per step")
    share.set(ylabel="$r'=\\tau/(K+1)$", xlabel="tokens drafted per step $K$")
    for axes in (time, step, share):
        axes.set_ylim(bottom=0)
    style.integer_axis(share.xaxis, [case.gamma for members in sweeps.values() for case in members])
    style.legend_below(figure, handles, labels)
    return figure


def draw_ratio(run):
    """Plots the measured speedup against two predictions of Chen et al.: r'(K+1), the limit for a draft that costs
    nothing, and the ratio that includes the cost of the draft."""
    cases = [
        case
        for case in run.speculative
        if None not in (case.metric("speedup"), case.predicted("chen_ratio"), case.predicted("chen_limit"))
    ]
    if len(cases) < 2:
        raise NotApplicable("fewer than two cases have the Chen ratio and a measured speedup")
    figure, axes = style.figure(2.9)
    for name, label, index in (
        ("chen_limit", "$r'(K+1)$: if drafting costs nothing", 1),
        ("chen_ratio", "$r'(K+1)\\,t_t/(K t_d+t_t)$: with the cost of the draft", 0),
    ):
        look = style.curve_style(index)
        style.error_bars(
            axes,
            [case.predicted(name) for case in cases],
            cases,
            "speedup",
            color=look["color"],
            marker=look["marker"],
            linestyle="none",
            markerfacecolor="white" if index else look["color"],
            label=label,
        )
    low, high = min(axes.get_xlim()[0], axes.get_ylim()[0]), max(axes.get_xlim()[1], axes.get_ylim()[1])
    axes.plot([low, high], [low, high], color="black", linewidth=0.8)
    axes.annotate(
        "measured = predicted",
        (high, high),
        ha="right",
        va="bottom",
        fontsize=style.SMALL_PT,
        rotation=0,
        textcoords="offset points",
        xytext=(-12, -4),
    )
    axes.set(xlabel="predicted speedup", ylabel="measured speedup")
    style.legend_below(figure, *axes.get_legend_handles_labels())
    return figure


FIGURES = [
    Figure(
        "draft_length",
        "Time against draft length",
        "Top: decode time per token; the band reaches one standard deviation over steps to either side. Middle: time "
        f"of one step. Bottom: r' = tau/(K+1). At most {MOST_SWEEPS} strategies: those with the best speedups. If there "
        f"is only one, up to {MOST_CATEGORIES} of its prompt categories have curves too, without bands. After Chen et "
        "al. 2023, Figure 1.",
        draw,
    ),
    Figure(
        "chen_ratio",
        "Measured speedup against the ratio of Chen et al.",
        "Each case appears twice: against r'(K+1), which assumes that drafting costs nothing, and against r'(K+1) "
        "t_t/(K t_d + t_t), with the measured times t_d of a draft forward and t_t of a target forward. K: tokens drafted "
        "per step. r' = tau/(K+1).",
        draw_ratio,
    ),
]
