"""Acceptance by position in the draft."""

from figures import Figure, style
from figures.record import NotApplicable


def longest_of_each(run):
    chosen = []
    for members in run.families().values():
        usable = [case for case in members if case.metric("acceptance_at")]
        if usable:
            chosen.append(max(usable, key=lambda case: len(case.metric("acceptance_at"))))
    # There may be more cases than colours. Lossless cases come first, so that they are kept. The sort is stable.
    chosen.sort(key=lambda case: case.lossy)
    return chosen[: len(style.COLOURS)]


def draw(run):
    cases = longest_of_each(run)
    if not cases:
        raise NotApplicable("no case drafted anything")
    figure, (top, bottom) = style.figure(3.9, rows=2, sharex=True)
    handles, labels, longest = [], [], 1
    for index, case in enumerate(cases):
        look = style.curve_style(index)
        values = case.metric("acceptance_at")
        known = [
            (i + 1, value, span)
            for i, (value, span) in enumerate(zip(values, case.metric("acceptance_at_ci95") or [None] * len(values)))
            if value is not None
        ]
        if not known:
            continue
        longest = max(longest, known[-1][0])
        x, y, spans = zip(*known)
        spans = [span if span and None not in span else [value, value] for span, value in zip(spans, y)]
        bars = [[max(0, v - lo) for v, (lo, _) in zip(y, spans)], [max(0, hi - v) for v, (_, hi) in zip(y, spans)]]
        handles.append(top.errorbar(x, y, yerr=bars, capsize=2, elinewidth=0.8, **look))
        labels.append(case.label(without=()))
        joint = [(i + 1, value) for i, value in enumerate(case.metric("joint_at")) if value is not None]
        bottom.plot(*zip(*joint), **look)
        if case.metric("alpha") is not None:
            bottom.plot(x, [case.metric("alpha") ** i for i in x], color=look["color"], linestyle=":", linewidth=0.7)
    top.set(ylabel="accepted given tested", ylim=(0, 1.03))
    bottom.set(xlabel="position $i$ in the draft", ylabel="tokens 1 to $i$ accepted", ylim=(0, 1.03))
    style.integer_axis(bottom.xaxis, range(1, longest + 1) if longest <= 12 else range(1, longest + 1, 3))
    handles.append(bottom.plot([], [], ":", color="#444444", linewidth=0.7)[0])
    labels.append("i.i.d.: $\\alpha^i$")
    style.legend_below(figure, handles, labels, columns=1 if len(labels) < 5 else 2)
    return figure


FIGURES = [
    Figure(
        "acceptance_by_position",
        "Acceptance by position",
        "Top: probability that the i-th drafted token is accepted given that it was tested, with 95 % intervals. "
        "Bottom: probability that the first i tokens are all accepted, which is the running product of the values "
        "above. Thin dotted lines: alpha to the power i, which the closed forms assume.",
        draw,
    )
]
