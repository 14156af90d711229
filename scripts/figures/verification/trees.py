"""Trees of drafted tokens: tokens per step against their size, speedup by size and depth, acceptance by rank and depth, shapes."""

import collections
import functools
import json
import pathlib

import matplotlib.colors
import numpy as np

from figures import Figure, style
from figures.record import NotApplicable

MOST_NODES = 64
MOST_DEPTH = 10
LEAST_REACHED = 50  # with fewer reached nodes at a rank and depth, the acceptance of the rank over all depths is used
MOST_RANKS = 5
MOST_SHAPES = 3


def parents_of(step):
    """The parent of each drafted token as a node number; 0 is the pending token."""
    return [token.get("parent", index) for index, token in enumerate(step["tokens"])]


def branches(step):
    return any(parent != index for index, parent in enumerate(parents_of(step)))


@functools.lru_cache(maxsize=1)  # three figures need the steps
def tree_cases(run):
    """[(case, steps)] of the lossless cases with a draft model that drafted a tree with branches in some step. `steps`: the
    steps of repeat 0 that have a draft."""
    found = []
    for case in run.speculative:
        if case.lossy or not case.draft:
            continue
        steps = [step for line in case.lines() if line["repeat"] == 0 for step in line["steps"]]
        steps = [step for step in steps if step["tokens"]]
        if any(map(branches, steps)):
            found.append((case, steps))
    return found


def rank_counts(steps):
    """{(depth, rank): [accepted, reached]} of the children of node 0 and of the accepted nodes. Leaves out the
    children of a parent if none of them was tested, and nodes after the end of the text."""
    counts = collections.defaultdict(lambda: [0, 0])
    for step in steps:
        cut = step["emitted"] <= step["accepted"]
        kept, depth, ranks = {0}, [0], collections.Counter()
        judged = {parent for parent, token in zip(parents_of(step), step["tokens"]) if token["tested"]}
        for index, (parent, token) in enumerate(zip(parents_of(step), step["tokens"])):
            ranks[parent] += 1
            depth.append(depth[parent] + 1)
            if parent not in kept or parent not in judged or (cut and depth[parent] >= step["accepted"]):
                continue
            count = counts[depth[-1], ranks[parent]]
            count[0] += token["accepted"]
            count[1] += 1
            if token["accepted"]:
                kept.add(index + 1)
    return counts


def acceptance(counts):
    """Returns p(depth, rank) as a function, and the largest rank. Where too few nodes were reached, p is the acceptance
    of the rank over all depths."""
    pooled = collections.defaultdict(lambda: [0, 0])
    for (_, rank), (accepted, reached) in counts.items():
        pooled[rank][0] += accepted
        pooled[rank][1] += reached

    def of(depth, rank):
        accepted, reached = counts.get((depth, rank), (0, 0))
        if reached < LEAST_REACHED:
            accepted, reached = pooled.get(rank, (0, 0))
        return accepted / reached if reached else 0.0

    return of, max(pooled, default=0)


def best_tokens(of, ranks, depth, nodes=MOST_NODES):
    """An array. Entry n - 1: tokens per step of the best tree that has n nodes, the pending token included, and at most
    `depth` levels.

    The best tree of n nodes holds the n nodes with the largest products of p along their paths: a child never has a
    larger product than its parent, and a later rank is taken to be no better than an earlier one (Chen et al. 2024,
    Section 3.1, where p falls with the rank).
    """
    level, values = [1.0], [1.0]
    for d in range(1, depth + 1):
        p = np.minimum.accumulate([of(d, rank) for rank in range(1, ranks + 1)])
        level = sorted((value * x for value in level for x in p), reverse=True)[:nodes]
        values += level
    values = sorted(values, reverse=True)[:nodes]
    return np.cumsum(values + [0.0] * (nodes - len(values)))  # further nodes add no tokens


def nodes_and_depth(steps):
    """The most frequent number of nodes (the pending token included) and the most frequent depth of the drafted trees."""

    def depth_of(step):
        depth = [0]
        for parent in parents_of(step):
            depth.append(depth[parent] + 1)
        return max(depth)

    usual = lambda values: collections.Counter(values).most_common(1)[0][0]
    return usual([step["nodes"] for step in steps]), usual([depth_of(step) for step in steps])


def largest_group(run):
    """The group of tree cases with the most sizes of trees. The cases of a group have the same draft, temperature, rule
    and way to draw children. Options may be lists, so they are compared as text."""
    groups = collections.defaultdict(list)
    for case, steps in tree_cases(run):
        options = case.options or {}
        drawn = [str(options.get(name)) for name in ("children", "sequences", "sources")]
        kind = (case.draft, case.sampling["temperature"], *drawn, case.rule)
        groups[kind].append((case, steps, *nodes_and_depth(steps)))
    if not groups:
        raise NotApplicable("no lossless case with a draft model drafts trees with branches")
    return max(groups.values(), key=lambda group: (len({entry[2] for entry in group}), len(group)))


def draw_size(run):
    group = sorted(largest_group(run), key=lambda entry: entry[2])
    of, ranks = acceptance(rank_counts([step for _, steps, _, _ in group for step in steps]))
    figure, axes = style.figure(2.7)
    x = [nodes for _, _, nodes, _ in group]
    cases = [case for case, _, _, _ in group]
    handles = [style.error_bars(axes, x, cases, "tau", **{**style.curve_style(0), "linestyle": "none"})]
    labels = ["measured"]

    def add(points, label, look):
        points = [(n, y) for n, y in points if y is not None]
        if points:
            handles.append(axes.plot(*zip(*points), **look)[0])
            labels.append(label)

    predicted = [(n, case.predicted("tree_by_rank_and_depth")) for n, case in zip(x, cases)]
    add(
        predicted,
        "predicted from acceptance by rank, depth",
        dict(color="#E69F00", marker="x", linestyle="none", markersize=5),
    )
    add(
        [(n, case.metric("tau_bound")) for n, case in zip(x, cases)],
        "bound at the visited positions",
        dict(color="#444444", marker="_", linestyle="none", markersize=8),
    )
    most = max(max(x), 2)
    best = best_tokens(of, ranks, max(depth for _, _, _, depth in group), most)
    add(list(zip(range(1, most + 1), best)), "best tree of this size", dict(color="#006B4F", linestyle="-"))
    first = of(1, 1)
    if first < 1:
        handles.append(axes.axhline(1 / (1 - first), color="#CC79A7", linestyle="--", linewidth=1))
        labels.append("limit of chains, $1/(1-p_1)$; $p_1$: first child")
    axes.set(xlabel="nodes of the tree (pending token included)", ylabel="tokens per step $\\tau$", xscale="log")
    style.log_axis(axes.xaxis)
    style.legend_below(figure, handles, labels, columns=1)
    return figure


def draw_map(run):
    group = largest_group(run)
    calibration = run.summary.get("calibration") or {}
    times = {int(n): ratio for n, ratio in (calibration.get("t_n") or {}).items()}
    c = ((calibration.get("drafts") or {}).get(group[0][0].draft) or {}).get("c")
    if len(times) < 2 or c is None:
        raise NotApplicable("no calibration of t(n) and of the draft")
    of, ranks = acceptance(rank_counts([step for _, steps, _, _ in group for step in steps]))
    sizes = [n for n in (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64) if n <= max(times)]
    depths = list(range(1, MOST_DEPTH + 1))
    # t(n) does not fall with n; single measured times may.
    known = sorted(times)
    t = np.interp(sizes, known, np.maximum.accumulate([times[n] for n in known]))
    values = np.array([best_tokens(of, ranks, d, sizes[-1])[np.array(sizes) - 1] for d in depths])
    speed = values / (t[None, :] + np.array(depths)[:, None] * c)
    figure, axes = style.figure(3.1)
    norm = matplotlib.colors.TwoSlopeNorm(1, min(0.5, speed.min()), max(1.5, speed.max()))
    picture = axes.pcolormesh(range(len(sizes)), depths, speed, cmap="PuOr", norm=norm, shading="nearest")
    bar = figure.colorbar(picture, ax=axes, label="predicted speedup of the best tree")
    bar.ax.tick_params(labelsize=style.SMALL_PT)
    row, column = np.unravel_index(speed.argmax(), speed.shape)
    for colour, width in (("white", 3), ("black", 1)):
        axes.plot(column, depths[row], "s", markersize=11, markerfacecolor="none", color=colour, markeredgewidth=width)
    best = {}
    for case, _, nodes, depth in group:
        speedup = case.metric("speedup")
        if speedup is not None and nodes <= sizes[-1] and depth <= MOST_DEPTH:
            place = round(float(np.interp(nodes, sizes, range(len(sizes))))), depth
            best[place] = max(best.get(place, 0), speedup)
    for (x, y), speedup in best.items():
        text = axes.text(x, y, f"{speedup:.2f}", ha="center", va="center", fontsize=style.SMALL_PT)
        text.set_bbox({"facecolor": "white", "edgecolor": "none", "pad": 0.6, "alpha": 0.8})
    axes.grid(False)
    axes.set(
        xlabel="nodes of the tree\n(number: measured speedup;\nsquare: largest prediction)", ylabel="depth of the tree"
    )
    axes.set_xticks(range(len(sizes)), [str(n) for n in sizes])
    style.integer_axis(axes.yaxis, depths)
    return figure


def draw_acceptance(run):
    group = largest_group(run)
    counts = rank_counts([step for _, steps, _, _ in group for step in steps])
    depths = sorted({depth for depth, _ in counts})
    figure, axes = style.figure(2.7)
    handles, labels, deepest = [], [], 1
    for rank in range(1, MOST_RANKS + 1):
        points = []
        for depth in depths:
            accepted, reached = counts.get((depth, rank), (0, 0))
            if reached >= LEAST_REACHED:
                share = accepted / reached
                points.append((depth, share, 1.96 * (share * (1 - share) / reached) ** 0.5))
        if points:
            x, y, error = zip(*points)
            deepest = max(deepest, *x)
            low = [min(e, v) for e, v in zip(error, y)]
            handles.append(
                axes.errorbar(x, y, yerr=[low, error], capsize=2, elinewidth=0.8, **style.curve_style(rank - 1))
            )
            labels.append(f"child {rank}")
    if not handles:
        raise NotApplicable(f"no child was reached {LEAST_REACHED} times")
    axes.set(xlabel="depth", ylabel="accepted\n(given that the parent is kept)", ylim=(0, None))
    style.integer_axis(axes.xaxis, range(1, deepest + 1))
    style.legend_below(figure, handles, labels, columns=3)
    return figure


def tree_files(run):
    """The tree files of the cases, as {name: parents}."""
    found = {}
    for case in run.speculative:
        name = (case.options or {}).get("tree")
        if not isinstance(name, str) or not name:  # other strategies have an option "tree" that is a list
            continue
        for folder in (pathlib.Path.cwd(), pathlib.Path(__file__).resolve().parents[3]):
            try:
                parents = json.loads((folder / name).read_text(encoding="utf-8"))["parents"]
            except (OSError, ValueError, KeyError):
                continue
            found.setdefault(pathlib.Path(name).stem, parents)
            break
    return found


def places(parents):
    """Coordinates of the nodes: leaves side by side, a parent above the middle of its children."""
    children = collections.defaultdict(list)
    for node, parent in enumerate(parents, 1):
        children[parent].append(node)
    x, y, leaves = {}, {}, 0

    def put(node, depth):
        nonlocal leaves
        y[node] = depth
        for child in children[node]:
            put(child, depth + 1)
        if children[node]:
            x[node] = (x[children[node][0]] + x[children[node][-1]]) / 2
        else:
            x[node], leaves = leaves, leaves + 1

    put(0, 0)
    return x, y


def draw_shapes(run):
    files = sorted(tree_files(run).items(), key=lambda item: len(item[1]))
    if not files:
        raise NotApplicable("no case drafts a tree from a tree file")
    files = files[:MOST_SHAPES]
    figure, panels = style.figure(1.75 * len(files), rows=len(files), squeeze=False)
    for axes, (name, parents) in zip(panels[:, 0], files):
        x, y = places(parents)
        for node, parent in enumerate(parents, 1):
            axes.plot([x[parent], x[node]], [y[parent], y[node]], color="#666666", linewidth=0.7)
        size = max(1.5, min(4, 120 / max(1, len(set(x.values())))))
        axes.plot(
            [x[node] for node in sorted(x)], [y[node] for node in sorted(x)], "o", color="#0072B2", markersize=size
        )
        axes.invert_yaxis()
        axes.set(ylabel="depth", xticks=[])
        style.integer_axis(axes.yaxis, range(0, max(y.values()) + 1, 1 if max(y.values()) <= 6 else 2))
        axes.grid(False)
        axes.set_title(f"{name}: {len(parents)} drafted tokens", fontsize=style.SMALL_PT)
    return figure


FIGURES = [
    Figure(
        "tree_size",
        "Tokens per step against the size of the tree",
        "Measured tokens per step with 95 % intervals, the prediction from the acceptance by rank and depth on the "
        "other prompts, and the bound at the positions that the steps visited. Line: the best tree of each size by "
        "the same acceptance. Dashed: the limit of chains if every token is accepted with the probability p_1 of the "
        "first child of the pending token.",
        draw_size,
    ),
    Figure(
        "tree_speedup",
        "Speedup by size and depth of the tree",
        "Colours: predicted speedup F/(t(n) + d c) of the best tree with at most n nodes and d levels. F: its tokens "
        "per step, from the acceptance by rank and depth. t(n) and c come from the calibration. Black square: the "
        "largest prediction. Numbers: measured speedups, at the nearest cell.",
        draw_map,
    ),
    Figure(
        "tree_acceptance",
        "Acceptance by rank and depth",
        "How often the first, second, ... child of a node is accepted, by its depth, if its parent was kept. 95 % intervals by the normal "
        f"approximation. A point needs at least {LEAST_REACHED} such children.",
        draw_acceptance,
    ),
    Figure(
        "tree_shapes",
        "Trees that were drafted",
        f"The trees of the cases' tree files; if there are more than {MOST_SHAPES}, the smallest. The pending token is at "
        "the top; children are in draw order from left to right.",
        draw_shapes,
    ),
]
