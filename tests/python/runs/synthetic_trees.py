"""A made-up run with trees, several verifiers and bounds, in the format of results/SCHEMA.md, for tests of figures.

A child of rank r is accepted with P_RANK[r - 1], at every node. All numbers are invented.
    python tests/python/runs/synthetic_trees.py DIR
"""

import json
import pathlib
import random
import sys

import synthetic_run

P_RANK = [0.6, 0.15, 0.07, 0.04]
TEMPERATURES = [0.5, 1]
WIDTHS = [[2], [2, 1], [3, 2, 1], [4, 2, 2, 1]]
TREE_FILE = "made_up_tree.json"
TREE = [0, 0, 1, 1, 2, 3]  # parents


def parents_of(widths):
    parents, level = [], [0]
    for width in widths:
        below = []
        for node in level:
            for _ in range(width):
                parents.append(node)
                below.append(len(parents))
        level = below
    return parents


def decode(rng, parents, tokens):
    """Steps of one line: at each kept node one child is accepted, or none."""
    steps, emitted = [], 0
    while emitted < tokens:
        drafted = [
            {
                "id": rng.randrange(50),
                "parent": parent,
                "p": -1,
                "q": -1,
                "rank": -1,
                "tested": False,
                "accepted": False,
            }
            for parent in parents
        ]
        node, accepted = 0, 0
        while True:
            children = [index for index, parent in enumerate(parents) if parent == node]
            if not children:
                break
            draw, node = rng.random(), None
            for rank, child in enumerate(children):
                drafted[child].update(tested=True, p=0.5, q=0.5)
                if draw < sum(P_RANK[: rank + 1]):
                    drafted[child]["accepted"] = True
                    node, accepted = child + 1, accepted + 1
                    break
            if node is None:
                break
        got = min(accepted + 1, tokens - emitted)
        steps.append(
            {
                "source": "draft",
                "drafted": len(parents),
                "accepted": min(accepted, got),
                "emitted": got,
                "ended_by": "rejection",
                "nodes": len(parents) + 1,
                "rows": len(parents) + 1,
                "draft_calls": 2,
                "ns": [1_000_000, 11_000_000, 80_000, 50_000],
                "tokens": drafted,
            }
        )
        emitted += got
    return steps


def case_of(folder, rng, name, strategy, temperature, rule, parents, options):
    lines = []
    for order, category in enumerate(synthetic_run.CATEGORIES):
        steps = decode(rng, parents, 300)
        lines.append(synthetic_run.line(rng, name, str(order + 1), category, 0, order, steps))
    draft = "distilled" if parents else None
    entry = synthetic_run.case_entry(name, strategy, lines, draft=draft, rule=rule, options=options)
    entry["sampling"]["temperature"] = temperature
    entry["rule"] = rule
    metrics = entry["metrics"]
    metrics["speedup"], metrics["speedup_ci95"] = 0.6 * metrics["tau"], synthetic_run.around(0.6 * metrics["tau"])
    if parents:
        chain = all(parent == index for index, parent in enumerate(parents))
        metrics.update(
            tau_path_rule=1.1 * metrics["tau"],
            tau_token_rule=metrics["tau"],
            tau_bound=1.12 * metrics["tau"] if chain or rule == "rejection" else None,
        )
        if chain:
            metrics["path_gain_at"] = [0.02 * i * temperature for i in range(len(parents))]
            metrics["path_gain_at_ci95"] = [[g - 0.01, g + 0.01] for g in metrics["path_gain_at"]]
        else:
            entry["predictions"]["tree_by_rank_and_depth"] = {"value": 1.02 * metrics["tau"]}
    file = folder / "cases" / f"{name.replace('/', '__')}.jsonl"
    file.write_text("".join(json.dumps(record) + "\n" for record in lines), encoding="utf-8")
    entry["file"] = f"cases/{file.name}"
    return entry


def write(folder):
    folder = pathlib.Path(folder)
    synthetic_run.write(folder)
    rng = random.Random(5)
    (folder / TREE_FILE).write_text(json.dumps({"parents": TREE}), encoding="utf-8")
    cases = []
    for temperature in TEMPERATURES:

        def add(strategy, settings, rule, parents, options, temperature=temperature):
            name = f"{strategy}/draft=distilled/{settings}/rule={rule}/temperature={temperature}"
            cases.append(case_of(folder, rng, name, strategy, temperature, rule, parents, options))

        reference = f"autoregressive/temperature={temperature}"
        cases.append(case_of(folder, rng, reference, "autoregressive", temperature, None, [], {}))
        for rule in ("rejection", "block"):
            add("speculative_sampling", "gamma=4", rule, [0, 1, 2, 3], {"gamma": 4})
        for widths in WIDTHS:
            for rule in ("rejection", "traversal"):
                shown = "-".join(map(str, widths))
                add("tree_speculation", f"widths={shown}", rule, parents_of(widths), {"children": "independent"})
        add(
            "tree_speculation",
            "tree=file",
            "rejection",
            TREE,
            {"children": "without_replacement", "tree": str(folder / TREE_FILE)},
        )
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    summary["cases"] = cases
    summary["calibration"] = {
        "t_n": {str(n): 1 + 0.01 * (n - 1) for n in range(1, 33)},
        "drafts": {"distilled": {"c": 0.05}},
    }
    (folder / "summary.json").write_text(json.dumps(summary), encoding="utf-8")


if __name__ == "__main__":
    write(sys.argv[1])
