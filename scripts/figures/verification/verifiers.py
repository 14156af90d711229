"""Tokens per step of verifiers against the temperature, beside the bounds of their drafts, and the path gain of block
verification."""

from figures import Figure, style
from figures.record import NotApplicable
from figures.sampling import number

MOST_CURVES = len(style.COLOURS)
MOST_TEMPERATURES = 4


def temperature(case):
    value = (case.data.get("sampling") or {}).get("temperature")
    return number(value)


def verifier(case):
    """What judged the draft: "coupled" for coupled sampling, otherwise the rule."""
    return "coupled" if case.coins == "gumbel" else (case.rule or "").replace("_", " ")


def draft_of(case):
    """The strategy and its settings except those of the verifier and the temperature: what was drafted."""
    return case.family(without=("rule", "coins", "temperature"))


def by_draft(run):
    """{draft: {verifier: [(temperature, case)]}} of the lossless cases with bounds."""
    found = {}
    for case in run.speculative:
        if case.metric("tau_path_rule") is None or case.lossy or temperature(case) is None:
            continue
        found.setdefault(draft_of(case), {}).setdefault(verifier(case), []).append((temperature(case), case))
    for verifiers in found.values():
        for points in verifiers.values():
            points.sort(key=lambda point: point[0])
    return found


def draft_name(case):
    words = case.label(without=("rule", "coins", "temperature"))
    return words if len(words) <= 44 else words[:41] + "..."


def chosen_drafts(run):
    """The chain and the tree that the most verifiers judged. A draft counts only if two or more verifiers judged it, at
    least one of them at two or more temperatures."""
    chosen = {}
    for verifiers in by_draft(run).values():
        longest = max(len({t for t, _ in points}) for points in verifiers.values())
        if len(verifiers) < 2 or longest < 2:
            continue
        case = next(iter(verifiers.values()))[0][1]
        kind = "chain" if case.metric("path_gain_at") is not None else "tree"
        if kind not in chosen or len(verifiers) > len(chosen[kind]):
            chosen[kind] = verifiers
    return [chosen[kind] for kind in ("chain", "tree") if kind in chosen]


def draw_temperature(run):
    drafts = chosen_drafts(run)
    if not drafts:
        raise NotApplicable('no draft was judged by two verifiers at two temperatures with "bounds": true')
    figure, panels = style.figure(0.7 + 1.7 * len(drafts), rows=len(drafts), sharex=True, squeeze=False)
    names = []  # a verifier has one look in both panels
    for verifiers in drafts:
        names += [name for name in verifiers if name not in names]
    names = names[:MOST_CURVES]
    handles, labels = {}, {}
    for axes, verifiers in zip(panels[:, 0], drafts):
        lowest = []
        for name, points in verifiers.items():
            if name not in names:
                continue
            x, cases = zip(*points)
            handles[name] = style.error_bars(axes, x, cases, "tau", **style.curve_style(names.index(name)))
            labels[name] = name
            lowest += [case.metric("tau") for case in cases]
        # Cases with the same draft have nearly the same bound; the largest one at each temperature is drawn.
        bounds = {}
        for points in verifiers.values():
            for t, case in points:
                if case.metric("tau_bound") is not None:
                    bounds[t] = max(bounds.get(t, 0), case.metric("tau_bound"))
        if bounds:
            x, y = zip(*sorted(bounds.items()))
            if next(iter(verifiers.values()))[0][1].metric("path_gain_at") is not None:  # a chain
                handles["bound"] = axes.fill_between(x, y, max(y) * 1.5, color="#dddddd", linewidth=0)
                axes.plot(x, y, color="#444444", linewidth=0.8)
                labels["bound"] = "above the bound"
            else:
                (handles["walk"],) = axes.plot(x, y, color="#444444", linewidth=2.4, alpha=0.5)
                labels["walk"] = "bound, position by position"
        top = max([*lowest, *bounds.values()])
        axes.set(ylabel="tokens per step $\\tau$", ylim=(0.95 * min(lowest), 1.04 * top))
        axes.set_title(draft_name(next(iter(verifiers.values()))[0][1]), fontsize=style.SMALL_PT)
    panels[-1, 0].set(xlabel="temperature")
    style.legend_below(figure, list(handles.values()), [labels[name] for name in handles], columns=2)
    return figure


def draw_gain(run):
    """Draws path_gain_at of the longest chain at each temperature."""
    chains = {}
    for verifiers in by_draft(run).values():
        for points in verifiers.values():
            for t, case in points:
                gains = case.metric("path_gain_at")
                if gains and len(gains) > len((chains.get(t) or case).metric("path_gain_at")) - (t not in chains):
                    chains[t] = case
    if not chains or max(len(case.metric("path_gain_at")) for case in chains.values()) < 2:
        raise NotApplicable('no chain of two tokens or more with "bounds": true')
    shown = sorted(chains)
    if len(shown) > MOST_TEMPERATURES:
        shown = [shown[round(i * (len(shown) - 1) / (MOST_TEMPERATURES - 1))] for i in range(MOST_TEMPERATURES)]
    figure, axes = style.figure(2.6)
    handles, labels = [], []
    for index, t in enumerate(shown):
        case = chains[t]
        look = style.curve_style(index)
        gains = case.metric("path_gain_at")
        spans = case.metric("path_gain_at_ci95") or [None] * len(gains)
        known = [
            (i + 1, gain, span or [gain, gain]) for i, (gain, span) in enumerate(zip(gains, spans)) if gain is not None
        ]
        if not known:
            continue
        x, y, spans = zip(*known)
        bars = [[max(0, v - lo) for v, (lo, _) in zip(y, spans)], [max(0, hi - v) for v, (_, hi) in zip(y, spans)]]
        handles.append(axes.errorbar(x, y, yerr=bars, capsize=2, elinewidth=0.8, **look))
        labels.append(f"T {t:g}")
    axes.axhline(0, color="black", linewidth=0.8)
    axes.set(xlabel="verified tokens per draft $\\gamma$", ylabel="gain of block verification\n(tokens per step)")
    style.integer_axis(axes.xaxis, range(1, 1 + max(len(chains[t].metric("path_gain_at")) for t in shown)))
    style.legend_below(figure, handles, labels, columns=4)
    return figure


FIGURES = [
    Figure(
        "verifiers",
        "Verifiers against the temperature",
        "Tokens per step of several verifiers on the same kind of draft, with 95 % intervals. In the picture of the "
        "chain, no lossless verifier of these drafts can lie in the grey region. In the picture of the tree, the "
        "thick grey line bounds verifiers that decide one position after the other, at the positions that they "
        "visited; rules over whole paths may lie above it.",
        draw_temperature,
    ),
    Figure(
        "path_gain",
        "Gain of block verification over the token rule",
        "Expected tokens per step of block verification minus those of the token rule. Both are computed for the same "
        "steps (drafts and rows), as if only the first γ tokens of each draft were verified. 95 % intervals over prompts.",
        draw_gain,
    ),
]
