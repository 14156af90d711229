"""Figures of lookahead decoding and of Jacobi decoding.

Lookahead decoding with a window of W columns, n-grams of N tokens and at most G guesses: the scaling law, maps over W,
N and G, the speedup, the pool of n-grams along a text, one recorded step as a picture, and steps divided over devices.
Jacobi decoding: the iterates of one text."""

import math

import matplotlib.colors
import matplotlib.patches
import numpy as np

from figures import Figure, style
from figures.record import NotApplicable

FIELDS = ("W", "N", "G")


def shape(case):
    return tuple(case.options[name] for name in FIELDS)


def lookahead_cases(run):
    cases = [c for c in run.speculative if c.strategy == "lookahead" and c.metric("tau") is not None]
    if not cases:
        raise NotApplicable("no case of lookahead decoding with tokens per step")
    return cases


def grid(run):
    """Returns (fit, [(cell, case)]). summary.json has a fit of the law for each group of cases that differ in W, N and G
    alone; `fit` is the one with the most cases. A cell is the entry of one of these cases in the fit."""
    fits = run.summary.get("lookahead") or []
    if not fits:
        raise NotApplicable(
            "summary.json has no law of lookahead decoding, which is fitted to cases that differ in W, N and G alone"
        )
    fit = max(fits, key=lambda each: len(each["cells"]))
    by_id = {case.id: case for case in run.cases}
    return fit, [(cell, by_id[cell["case"]]) for cell in fit["cells"] if cell["case"] in by_id]


def law(fit, w, n, g):
    """Tokens per step by Fu et al. 2024, Eq. 5 and 7, which assume W = G. If W and G differ, W^share G^(1 - share)
    stands for the number of guesses; this is not from the paper."""
    share = 0.5 if fit["share"] is None else fit["share"]
    branches = w**share * g ** (1 - share)
    expected = n - sum((1 - fit["alpha"] ** i) ** branches for i in range(1, n))
    return (fit["f"] - 1 + expected) / fit["f"]


def draw_scaling(run):
    fit, cells = grid(run)
    square = [(cell, case) for cell, case in cells if cell["W"] == cell["G"]]
    sizes = sorted({cell["N"] for cell, _ in square})
    if len(square) < 3:
        raise NotApplicable("fewer than three cases with W = G")
    figure, axes = style.figure(2.6)
    widths = np.geomspace(min(cell["W"] for cell, _ in square), max(cell["W"] for cell, _ in square), 60)
    for index, n in enumerate(sizes):
        members = sorted(((c, case) for c, case in square if c["N"] == n), key=lambda pair: pair[0]["W"])
        look = style.curve_style(index)
        per_step = [case.metric("ops_factor") * case.metric("tau") for _, case in members]
        style.error_bars(
            axes,
            per_step,
            [case for _, case in members],
            "tau",
            color=look["color"],
            marker=look["marker"],
            linestyle="none",
            label=f"N = {n}",
        )
        if len(members) > 1:
            at = np.interp(np.log(widths), np.log([c["W"] for c, _ in members]), np.log(per_step))
            axes.plot(np.exp(at), [law(fit, w, n, w) for w in widths], color=look["color"], linestyle=look["linestyle"])
    axes.set(xscale="log", xlabel="operations per step / autoregressive", ylabel="tokens per step $S$")
    style.log_axis(axes.xaxis)
    axes.set_title(f"lines: Fu et al., Eq. 7, α = {fit['alpha']:.2f}, f = {fit['f']:.2f}", loc="left")
    style.legend_below(figure, *axes.get_legend_handles_labels(), columns=3)
    return figure


def heat_map(cells, columns, title):
    xs = sorted({cell["W"] for cell, _ in cells})
    ys = sorted({cell[columns] for cell, _ in cells})
    if len(xs) < 2 or len(ys) < 2:
        raise NotApplicable(f"fewer than two values of W or of {columns}")
    values = np.full((len(ys), len(xs)), math.nan)
    for cell, case in cells:
        values[ys.index(cell[columns]), xs.index(cell["W"])] = case.metric("tau")
    figure, axes = style.figure(max(1.8, 0.9 + 0.28 * len(ys)))
    image = axes.imshow(values, origin="lower", aspect="auto", cmap="Greys", vmin=1, vmax=np.nanmax(values) * 1.25)
    for (row, column), value in np.ndenumerate(values):
        if not math.isnan(value):
            axes.text(column, row, f"{value:.2f}", ha="center", va="center", fontsize=style.SMALL_PT)
    axes.set_xticks(range(len(xs)), xs)
    axes.set_yticks(range(len(ys)), ys)
    axes.set(xlabel="window $W$", ylabel=title)
    axes.grid(False)
    figure.colorbar(image, ax=axes, label="tokens per step $S$")
    return figure


def draw_wn(run):
    _, cells = grid(run)
    return heat_map([(c, case) for c, case in cells if c["W"] == c["G"]], "N", "n-gram size $N$ ($G = W$)")


def draw_wg(run):
    _, cells = grid(run)
    sizes = [cell["N"] for cell, _ in cells if cell["W"] != cell["G"]]
    if not sizes:
        raise NotApplicable("W = G in every case")
    n = max(set(sizes), key=sizes.count)
    return heat_map([(c, case) for c, case in cells if c["N"] == n], "G", f"guesses $G$ ($N = {n}$)")


def draw_speedup(run):
    cases = [case for case in lookahead_cases(run) if case.metric("speedup") is not None]
    if not cases:
        raise NotApplicable("no case has a speedup")
    figure, axes = style.figure(2.4)
    rows = [case.metric("rows_per_step") for case in cases]
    style.error_bars(
        axes, rows, cases, "speedup", color=style.COLOURS[0], marker="o", linestyle="none", label="measured"
    )
    axes.plot(
        rows,
        [case.metric("tau") for case in cases],
        linestyle="none",
        color=style.COLOURS[6],
        marker="_",
        markersize=7,
        label="tokens per step $S$: the speedup if rows cost nothing",
    )
    times = cases[0].metric("t_n")
    if times:
        measured = sorted((int(n), ratio) for n, ratio in times.items())
        best = max(case.metric("tau") for case in cases)
        axes.plot(
            [n for n, _ in measured],
            [best / ratio for _, ratio in measured],
            linestyle="--",
            color=style.COLOURS[5],
            label=f"ceiling: largest $S$ = {best:.2f}, divided by $t(n)$",
        )
    axes.axhline(1, color="#555555", linewidth=0.6)
    axes.set(xscale="log", xlabel="rows per step", ylabel="speedup", ylim=(0, None))
    style.log_axis(axes.xaxis)
    style.legend_below(figure, *axes.get_legend_handles_labels(), columns=1)
    return figure


def fullest(run):
    return max(
        lookahead_cases(run),
        key=lambda case: (case.options["W"] == case.options["G"], case.options["W"] <= 16, case.options["W"]),
    )


BINS = 12


def draw_pool(run):
    case = fullest(run)
    longest = max((len(line["tokens"]) for line in case.lines()), default=0)
    if longest < BINS:
        raise NotApplicable("the texts are too short")
    drafted, hit, steps, pool = (np.zeros(BINS) for _ in range(4))
    for line in case.lines():
        if line["repeat"] != 0:
            continue
        at = 1
        for step in line["steps"]:
            bin_ = min(BINS - 1, at * BINS // longest)
            steps[bin_] += 1
            drafted[bin_] += step["drafted"] > 0
            hit[bin_] += step["accepted"] > 0
            pool[bin_] += max(0, step.get("pool", 0))
            at += step["emitted"]
    if not pool.any():
        raise NotApplicable("the record has no pool sizes")
    figure, (top, bottom) = style.figure(3.0, rows=2, sharex=True)
    position = (np.arange(BINS) + 0.5) * longest / BINS
    with np.errstate(invalid="ignore"):
        top.plot(position, drafted / steps, **style.curve_style(0), label="with a guess")
        top.plot(position, hit / steps, **style.curve_style(1), label="with an accepted guess")
        bottom.plot(position, pool / steps, **style.curve_style(2))
    top.set(ylabel="share of steps", ylim=(0, 1.02))
    bottom.set(xlabel="tokens of the text so far", ylabel="n-grams in the pool", ylim=(0, None))
    style.legend_below(figure, *top.get_legend_handles_labels())
    return figure


def one_step(case):
    """Of the recorded steps with a full window and a guess, the one with the most accepted tokens. Returns (line of the
    step, index of its pending token in line["tokens"], step)."""
    best = None
    for line in case.lines():
        if line["repeat"] != 0 or "pieces" not in line:
            continue
        at = 0
        for step in line["steps"]:
            w, n, _ = shape(case)
            full = len(step.get("probes", [])) == (w - 1) + (n - 2) * w and step["drafted"] > 0
            if full and (best is None or step["accepted"] > best[2]["accepted"]):
                best = (line, at, step)
            at += step["emitted"]
    if best is None:
        raise NotApplicable("no recorded step with a full window and a guess")
    return best


MOST_GUESSES = 6


def draw_step(run):
    """Window, columns, guesses and mask of one recorded step."""
    cases = [
        c
        for c in lookahead_cases(run)
        if 3 <= c.options["W"] <= 8
        and 3 <= c.options["N"] <= 6
        and c.options["G"] != 0
        and not c.options["accept_window"]
        and c.options["emulate"] == "none"
    ]
    if not cases:
        raise NotApplicable(
            "no case that can be drawn: W from 3 to 8, N from 3 to 6, G not 0, no accept_window, emulate none"
        )
    for case in sorted(cases, key=lambda c: -c.options["W"]):
        try:
            line, at, step = one_step(case)
            break
        except NotApplicable:
            continue
    else:
        raise NotApplicable("no recorded step with a full window and a guess")
    w, n, _ = shape(case)
    words = dict(zip(line["tokens"], line["pieces"]))
    word = lambda token: (words.get(token) or f"#{token}").replace("\n", "↵").strip() or "·"
    nodes = [(line["tokens"][at], -1)] + [(t["id"], t.get("parent", i)) for i, t in enumerate(step["tokens"])]
    first_probe = len(nodes)
    nodes += [(token, parent) for token, parent, _ in step["probes"]]
    depth = [0] * len(nodes)
    for node in range(1, len(nodes)):
        depth[node] = depth[nodes[node][1]] + 1

    figure, (top, bottom) = style.figure(5.2, rows=2, gridspec_kw={"height_ratios": [1.1, 1]})
    leaves = [i for i in range(1, first_probe) if i not in {parent for _, parent in nodes[1:first_probe]}]
    accepted = {i + 1 for i, token in enumerate(step["tokens"]) if token["accepted"]}
    rows = n - 1 + min(len(leaves), MOST_GUESSES)

    letters = max(2, int(2.6 / (w + n - 2) / 0.068))  # number of letters that fit into a cell

    def cell(x, y, text, face, edge="#333333", weight="normal"):
        top.add_patch(
            matplotlib.patches.Rectangle((x - 0.47, y - 0.4), 0.94, 0.8, facecolor=face, edgecolor=edge, linewidth=0.6)
        )
        top.text(
            x, y, text[:letters], ha="center", va="center", fontsize=style.SMALL_PT, fontweight=weight, parse_math=False
        )

    cell(0, 0, word(nodes[0][0]), "#bbbbbb", weight="bold")
    labels = [(0, "level 0")]
    for index in range(first_probe, len(nodes)):
        k = index - first_probe
        level = 0 if k < w - 1 else 1 + (k - (w - 1)) // w
        cell(depth[index], -level, word(nodes[index][0]), "#ffffff" if level < n - 2 else "#eeeeee")
        labels.append((-level, f"level {level}"))
    for number, leaf in enumerate(leaves[:MOST_GUESSES]):
        y = -(n - 1) - 0.4 - number
        node = leaf
        while node > 0:
            right = node in accepted
            cell(
                depth[node],
                y,
                word(nodes[node][0]),
                "#8fc5e8" if right else "#ffffff",
                weight="bold" if right else "normal",
            )
            node = nodes[node][1]
        labels.append((y, f"guess {number + 1}"))
    top.set(xlim=(-0.6, w + n - 2.4), ylim=(-rows - 0.1, 0.7), xlabel="offset from the pending token (bold, grey)")
    top.set_yticks(*zip(*dict(labels).items()))
    top.tick_params(axis="y", length=0)
    top.grid(False)
    for spine in top.spines.values():
        spine.set_visible(False)

    mask = np.zeros((len(nodes), len(nodes)))
    for node in range(len(nodes)):
        other = node
        while other >= 0:
            mask[node, other] = 1 if other != node else 0.6
            other = nodes[other][1]
    bottom.imshow(1 - mask, cmap="gray", vmin=0, vmax=1, interpolation="nearest")
    for edge in (0.5, first_probe - 0.5, first_probe + w - 1.5):
        bottom.axhline(edge, color="#777777", linewidth=0.5)
        bottom.axvline(edge, color="#777777", linewidth=0.5)
    bottom.set(xlabel="row that is seen\n(pending token, guesses, window by level)", ylabel="row that sees")
    bottom.grid(False)
    return figure


def draw_devices(run):
    """Draws the setting that was measured with the most values of `devices`."""
    settings = {}
    for each in run.summary.get("lookahead_devices") or []:
        if each["speedup"] is not None:
            key = [part for part in each["case"].split("/") if not part.startswith("devices=")]
            settings.setdefault("/".join(key), {})[each["devices"]] = each
    if not settings:
        raise NotApplicable("no case with a speedup divides its steps over devices")
    name, members = max(settings.items(), key=lambda pair: len(pair[1]))
    numbers = sorted(members)
    shown = [(1, members[numbers[0]]["undivided_speedup"])] + [(d, members[d]["speedup"]) for d in numbers]
    figure, axes = style.figure(2.2)
    axes.plot(
        *zip(*((d, s) for d, s in shown if s is not None)),
        **style.curve_style(0),
        label="parts measured one after the other",
    )
    predicted = [(d, members[d]["predicted_speedup"]) for d in numbers if members[d]["predicted_speedup"] is not None]
    if predicted:
        axes.plot(
            *zip(*predicted), **style.curve_style(1), label="predicted: tokens per step / $t(n)$ of the largest part"
        )
    axes.axhline(1, color="#555555", linewidth=0.6)
    axes.set(xlabel="devices $D$", ylabel="speedup", ylim=(0, None), xticks=[1, *numbers])
    axes.set_title(name.removeprefix("lookahead/").replace("/", ", "), loc="left")
    style.legend_below(figure, *axes.get_legend_handles_labels(), columns=1)
    return figure


def draw_trajectory(run):
    cases = [c for c in run.speculative if c.strategy == "jacobi"]
    if not cases:
        raise NotApplicable("no case of Jacobi decoding")
    case = max(cases, key=lambda c: (c.options["scheme"] == "sliding", c.options["keep_tail"], c.options["block"]))
    line = next((each for each in case.lines() if each["repeat"] == 0), None)
    if line is None:
        raise NotApplicable("no finished line")
    text, shown = line["tokens"], 32
    triples = {tuple(text[i : i + 3]) for i in range(len(text) - 2)}
    wide = min(len(text), shown + 16)
    image = np.full((min(shown, len(line["steps"])), wide), math.nan)
    at = 1
    for row, step in enumerate(line["steps"][:shown]):
        image[row, : min(at, wide)] = 0.75  # emitted in an earlier step
        ids = [token["id"] for token in step["tokens"]]
        place = [at + k for k in range(len(ids))]
        elsewhere = set()
        for k in range(len(ids) - 2):
            inside = place[k] + 2 < len(text)
            if inside and all(ids[k + j] != text[place[k] + j] for j in range(3)) and tuple(ids[k : k + 3]) in triples:
                elsewhere |= {k, k + 1, k + 2}
        for k, token in enumerate(ids):
            if place[k] < wide:
                image[row, place[k]] = 0.0 if token == text[place[k]] else 0.45 if k in elsewhere else 1.0
        at += step["emitted"]
    figure, axes = style.figure(2.8)
    palette = matplotlib.colors.ListedColormap(["#0B3C5D", "#E69F00", "#cccccc", "#f4f4f4"])
    axes.imshow(
        np.digitize(image, [0.2, 0.6, 0.9]).astype(float) + np.where(np.isnan(image), math.nan, 0),
        cmap=palette,
        vmin=-0.5,
        vmax=3.5,
        aspect="auto",
        interpolation="nearest",
    )
    names = [
        ("#cccccc", "emitted before"),
        ("#0B3C5D", "right, not emitted yet"),
        ("#E69F00", "right tokens, wrong place"),
        ("#f4f4f4", "wrong"),
    ]
    handles = [matplotlib.patches.Patch(facecolor=colour, edgecolor="#777777", linewidth=0.4) for colour, _ in names]
    axes.set(xlabel="token of the text", ylabel="iteration")
    axes.grid(False)
    style.legend_below(figure, handles, [name for _, name in names])
    return figure


FIGURES = [
    Figure(
        "lookahead_scaling",
        "Scaling law of lookahead decoding",
        "Tokens per step against the operations of a step / those of an autoregressive step, for the cases with W = "
        "G in the largest group of cases that differ in W, N and G alone. Lines: the law of Fu et al. 2024 (Eq. 7), "
        "fitted to all cases of the group.",
        draw_scaling,
    ),
    Figure(
        "lookahead_wn",
        "Tokens per step over W and N",
        "The cases with W = G in the largest group of cases that differ in W, N and G alone.",
        draw_wn,
    ),
    Figure(
        "lookahead_wg",
        "Tokens per step over W and G",
        "The cases with the n-gram size N that the axis names, in the largest group of cases that differ in W, N and G "
        "alone.",
        draw_wg,
    ),
    Figure(
        "lookahead_speedup",
        "Lookahead decoding on this machine",
        "Circles: speedup against the rows of a step. Short lines: tokens per step, which would be the speedup if rows "
        "cost nothing. Dashed: the largest tokens per step of all these cases, divided by the measured t(n).",
        draw_speedup,
    ),
    Figure(
        "lookahead_pool",
        "The pool along a text",
        "Top: the share of steps that had a guess, and the share in which a guessed token was accepted. Bottom: how "
        "many n-grams the pool held.",
        draw_pool,
    ),
    Figure(
        "lookahead_step",
        "One step of lookahead decoding",
        "A recorded step. Top: the tokens that the step feeds to the target, by position; of the guesses, at most "
        f"{MOST_GUESSES} are drawn. The levels of the window are the last iterates; the logits at the last level "
        "(shaded) give the next iterate. Blue: accepted. Bottom: which row sees which rows.",
        draw_step,
    ),
    Figure(
        "lookahead_devices",
        "Lookahead parallelism",
        "Columns and guesses are divided over devices. The devices exchange only tokens, and the exchange is counted "
        "as free. The parts were measured on this machine, one after the other. One device: measured as a whole.",
        draw_devices,
    ),
    Figure(
        "jacobi_trajectory",
        "Jacobi iterates",
        "Each row of the picture is a forward. Emitted before: in an earlier forward. Right, not emitted yet: the "
        "guess is the token that the text has there. Right tokens, wrong place: three consecutive guesses that are "
        "wrong there, but occur elsewhere in the text.",
        draw_trajectory,
    ),
]
