"""Are there easy tokens inside hard tasks? Plots the acceptance of drafted tokens against the entropy of the target's row there."""

import math

from figures import Figure, style
from figures.confidence import wilson
from figures.record import NotApplicable

BINS = 8
LEAST = 5  # a bin with fewer tokens is not shown


def samples(case):
    """(category, entropy, accepted) of each tested drafted token of chains, in repeat 0. In a trace (emit_at_most 1)
    only the first token of each step counts, so that each position of a text counts once. The list is empty if the
    record has no entropies or if drafts branch."""
    most = 1 if (case.data.get("options") or {}).get("emit_at_most") == 1 else math.inf
    found = []
    for line in case.lines():
        if line["repeat"] != 0 or not line.get("target_entropy"):
            continue
        steps, begin = iter(line["steps"]), 0
        for turn in line["turns"]:
            pending = begin
            for _ in range(turn["steps"]):
                step = next(steps)
                for place, token in enumerate(step["tokens"]):
                    if token.get("parent", place) != place:
                        return []
                    if not token["tested"] or place >= min(most, step["emitted"]):
                        break
                    entropy = line["target_entropy"][pending + 1 + place]
                    found.append((line["category"], entropy, bool(token["accepted"])))
                pending += step["emitted"]
            begin += turn["tokens"]
    return found


def ends_of_bins(entropies):
    """The lower ends of all bins except the first. The bins have nearly equal numbers of samples; samples with the same
    entropy are in the same bin."""
    ordered = sorted(entropies)
    ends = (ordered[i * len(ordered) // BINS] for i in range(1, BINS))
    return sorted({end for end in ends if end > ordered[0]})


def tally(found, ends):
    """(mean entropy, tokens, accepted) of each bin with at least LEAST tokens."""
    bins = [[0.0, 0, 0] for _ in range(len(ends) + 1)]
    for _, entropy, accepted in found:
        entry = bins[sum(entropy >= end for end in ends)]
        entry[0] += entropy
        entry[1] += 1
        entry[2] += accepted
    return [(total / count, count, good) for total, count, good in bins if count >= LEAST]


def curve(axes, bins, label, index, intervals):
    x, y = [entropy for entropy, _, _ in bins], [good / count for _, count, good in bins]
    look = style.curve_style(index)
    if not intervals:
        return axes.plot(x, y, label=label, **look)
    spans = [wilson(good, count) for _, count, good in bins]
    bars = [[v - lo for v, (lo, _) in zip(y, spans)], [hi - v for v, (_, hi) in zip(y, spans)]]
    return axes.errorbar(x, y, yerr=bars, capsize=2, elinewidth=0.8, label=label, **look)


def draw(run):
    cases = [(case, found) for case in run.speculative if not case.lossy for found in [samples(case)] if found][:4]
    if not cases:
        raise NotApplicable("no lossless case of chains has the entropy of the target's rows (row_details)")
    figure, (top, bottom) = style.figure(4.2, rows=2, sharex=True)
    for index, (case, found) in enumerate(cases):
        ends = ends_of_bins([entropy for _, entropy, _ in found])
        curve(top, tally(found, ends), case.label(without=()), index, True)
    _, found = cases[0]
    ends = ends_of_bins([entropy for _, entropy, _ in found])
    categories = list(dict.fromkeys(category for category, _, _ in found))[: len(style.COLOURS)]
    for index, category in enumerate(categories):
        own = [sample for sample in found if sample[0] == category]
        curve(bottom, tally(own, ends), category or "no category", index, False)
    top.set(ylabel="share accepted", ylim=(0, 1.03))
    bottom.set(ylabel="share accepted", ylim=(0, 1.03), xlabel="entropy of the target's row (nats)")
    bottom.legend(loc="upper right", ncols=2, columnspacing=1.0, handletextpad=0.5)
    style.legend_below(figure, *top.get_legend_handles_labels(), columns=1)
    return figure


FIGURES = [
    Figure(
        "acceptance_by_entropy",
        "Acceptance against the target's entropy",
        "Share of tested tokens that were accepted, by the entropy of the target's row at temperature 1, in bins of "
        "equal numbers of tokens. Top: up to four lossless cases, with 95 % intervals that assume independent tokens. "
        "Bottom: the first of these cases, by category, in the same bins. Curves that lie on one another mean that the entropy explains "
        f"the difference between the categories. Bins with fewer than {LEAST} tokens are not shown.",
        draw,
    )
]
