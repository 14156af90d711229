"""Does the draft know when it is right? Plots the share of accepted tokens against the forecast of their acceptance.
The forecast is the probability that the draft gave a token, or the prediction of the controller that stops drafts."""

import math

from figures import Figure, style
from figures.acceptance import longest_of_each
from figures.record import NotApplicable

BINS = 10


def wilson(k, n, z=1.96):
    """95 % interval of a proportion (Wilson 1927)."""
    share = k / n
    centre = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    return min(share, centre - half), max(
        share, centre + half
    )  # if the share is 0 or 1, rounding may put a bound on its wrong side


def tally(case):
    """[tested, accepted, sum of forecasts] per bin of the forecast, over the lines of repeat 0."""
    bins = [[0, 0, 0.0] for _ in range(BINS)]
    for line in case.lines():
        if line["repeat"] != 0:
            continue
        for step in line["steps"]:
            for token in step["tokens"]:
                confidence = token.get("predicted", token.get("confidence", -1))
                if token["tested"] and 0 <= confidence <= 1:
                    entry = bins[min(BINS - 1, int(confidence * BINS))]
                    entry[0] += 1
                    entry[1] += bool(token["accepted"])
                    entry[2] += confidence
    return bins


def draw(run):
    counted = [
        (case, bins)
        for case in longest_of_each(run)
        if case.draft is not None and not case.lossy
        for bins in [tally(case)]
        if any(b[0] for b in bins)
    ]
    counted = counted[:4]
    if not counted:
        raise NotApplicable("no lossless case with a draft model has a tested token with a confidence")
    figure, (top, bottom) = style.figure(3.7, rows=2, sharex=True, height_ratios=[3, 1])
    for index, (case, bins) in enumerate(counted):
        look = style.curve_style(index)
        kept = [entry for entry in bins if entry[0] >= 5]
        x = [entry[2] / entry[0] for entry in kept]
        y = [entry[1] / entry[0] for entry in kept]
        spans = [wilson(entry[1], entry[0]) for entry in kept]
        top.errorbar(
            x,
            y,
            yerr=[[v - lo for v, (lo, _) in zip(y, spans)], [hi - v for v, (_, hi) in zip(y, spans)]],
            capsize=2,
            elinewidth=0.8,
            label=case.label(without=()),
            **look,
        )
        total = sum(entry[0] for entry in bins)
        edges = [i / BINS for i in range(BINS + 1)]
        bottom.stairs([entry[0] / total for entry in bins], edges, color=look["color"], linestyle=look["linestyle"])
    top.plot([0, 1], [0, 1], color="#888888", linewidth=0.7)
    top.set(ylabel="share accepted", ylim=(0, 1.03))
    bottom.set(xlabel="forecast of the token's acceptance", ylabel="share of\ntested tokens", xlim=(0, 1))
    style.legend_below(figure, *top.get_legend_handles_labels(), columns=1 if len(counted) < 4 else 2)
    return figure


FIGURES = [
    Figure(
        "confidence",
        "Draft confidence against acceptance",
        "Top: share of tested tokens that were accepted, with 95 % intervals, in bins of their forecast. The forecast "
        "is the probability that the draft gave a token or, with a controller, the controller's prediction. "
        "Bins with fewer than 5 tokens are not shown. Grey line: share accepted = forecast. Bottom: how the tested "
        "tokens are spread over all bins.",
        draw,
    )
]
