#!/usr/bin/env python3
"""Tests the predictions of `speclab optimize tree --grid`: picks trees, and compares their measured with their
predicted speedup.

    build/release/speclab optimize tree CONFIG --out tree.json --grid grid.json --set prompts.split=fit
    .venv/bin/python scripts/tree_grid.py pick grid.json CONFIG --out DIR [--seed 1] [--random 10] [--repeats 3] [--split measure]
    build/release/speclab run DIR/config.json --out DIR/run
    .venv/bin/python scripts/tree_grid.py check DIR/run [--json FILE]

A grid has a cell for each combination of size and depth: the tree that is predicted to be best, with its prediction.

pick writes a config and the tree files that it names into DIR. The cases of the config are the tree with the best
predicted speedup, the one with the worst, `--random` others drawn with `--seed`, the chains around the length with the
best predicted speedup, and autoregressive decoding. So one run measures all of them on the same prompts: for each
prompt, all cases run one after the other. Target, drafts, prompts and options are those of CONFIG; sampling and the way
in which children are drawn and judged are those of the grid. The prompts should be of split "measure" (--split),
because the acceptance in the grid was measured on prompts of split "fit".

check prints each tree with its measured speedup and two predictions. One prediction comes from all costs of a step.
The other is F / (t(n) + d c), with F tokens per step, n rows of the target and d levels of the tree. Then follow the
largest and the median error and two verdicts:
- whether every prediction is within 5 % of the measurement. "unclear": a prediction is not, but it is within 5 % of
  another value in the interval of the measurement.
- whether the tree with the best predicted speedup is slower than the fastest measured chain ("below") by more than
  noise.
Intervals are over prompts and are widened by the difference of the same speedup between repeats. Exit code 1: a
prediction is off by more than 5 % and not unclear, or the verdict on the best tree is "below". A run is refused if it
has a prompt on which the acceptance was measured, or if its machine or its models are not those of the grid.
`scripts/report.py DIR/run` draws the figure tree_cells.
"""

import argparse
import json
import pathlib
import random
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

try:
    from figures.record import BadRun, Run
    from figures.verification import cells
except ModuleNotFoundError as error:
    sys.exit(
        f"tree_grid: the Python package {error.name} is missing. Run scripts/setup_python.sh and use .venv/bin/python."
    )

GRID_FORMAT = "speclab tree grid 1"
TREE_FORMAT = "speclab tree 1"
SAMPLING = ("temperature", "top_k", "top_p", "coins")
OF_CHAINS = {"draft_temperature": -1, "draft_top_k": -1, "draft_top_p": -1}  # how a chain is drawn, with the defaults
OF_TREES = {"children": "without_replacement", "used_up": "best", **OF_CHAINS}
USUAL_RULES = ("rejection", "coupled")  # what "rule": "auto" means
DRAFT_ROWS = 32


class Refused(Exception):
    """A message for the user."""


def read(file, what):
    try:
        content = json.loads(pathlib.Path(file).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise Refused(f"{file}: {error}. Expected {what}.") from error
    if not isinstance(content, dict):
        raise Refused(f"{file}: expected {what}.")
    return content


def read_grid(file):
    grid = read(file, "a file that `speclab optimize tree --grid` wrote")
    if grid.get("format") != GRID_FORMAT or not grid.get("cells"):
        raise Refused(
            f'{file}: expected "format": "{GRID_FORMAT}" and at least one cell. `speclab optimize tree --grid` writes it.'
        )
    return grid


def picked(grid, count, seed):
    """[(role, cell)]: the best cell, the worst one, and `count` of the others."""
    by = grid["chosen_by"]
    ordered = sorted(grid["cells"], key=lambda cell: cell[by], reverse=True)
    if len(ordered) < 2:
        raise Refused("the grid has a single cell. Allow more with --nodes and --depth.")
    others = ordered[1:-1]
    drawn = random.Random(seed).sample(others, min(count, len(others)))
    return [("best", ordered[0]), ("worst", ordered[-1]), *(("random", cell) for cell in drawn)]


def tree_file(grid, role, cell):
    """A tree file with the predictions for its cell, and with the data from which they were made."""
    children, ranks = {}, []
    for parent in cell["parents"]:
        children[parent] = children.get(parent, 0) + 1
        ranks.append(children[parent])
    predicted = {key: cell[key] for key in ("tau", "speedup", "step_speedup")}
    source = {key: value for key, value in grid.items() if key not in ("format", "cells", "chains", "chosen_by")}
    return {
        "format": TREE_FORMAT,
        "role": role,
        "nodes": cell["nodes"],
        "depth": cell["depth"],
        "parents": cell["parents"],
        "ranks": ranks,
        "predicted": {**predicted, "chosen_by": grid["chosen_by"]},
        **source,
    }


def chain_lengths(grid):
    """The length with the best prediction and its neighbours."""
    best = max(grid["chains"], key=lambda chain: chain[grid["chosen_by"]])["gamma"]
    return [gamma for gamma in (best - 1, best, best + 1) if gamma >= 1]


def config_of(grid, config, trees, arguments):
    draws = grid["draws"]
    draft = draws["draft"]
    if draft not in config.get("drafts", {}):
        raise Refused(f'the config has no draft "{draft}", but the grid was made for it.')
    if "target" not in config:
        raise Refused('the config has no "target".')
    options = {**config.get("options", {}), "budget": "fixed"}
    options.update({name: draws[name] for name in SAMPLING if name in draws})
    rule = {} if draws["rule"] in USUAL_RULES else {"rule": draws["rule"]}
    prompts = {**config["prompts"], **({"split": arguments.split} if arguments.split else {})}
    of = lambda defaults: {
        name: draws[name] for name, default in defaults.items() if draws.get(name, default) != default
    }
    return {
        "name": "tree_grid",
        "description": f"Trees of the best, the worst and random cells of {pathlib.Path(arguments.grid).name}, the best chains, and "
        f"autoregressive decoding (scripts/tree_grid.py, seed {arguments.seed}).",
        "target": config["target"],
        "drafts": {draft: config["drafts"][draft]},
        "prompts": prompts,
        **{key: config[key] for key in ("seed", "seeds", "warmup") if key in config},
        "repeats": arguments.repeats,
        "teacher_forced": False,
        "bounds": True,
        "options": options,
        "calibration": {
            "rows": max(cell["nodes"] for cell in grid["cells"]),
            "draft_rows": DRAFT_ROWS,
            "rounds": 60,
            "texts": 4,
        },
        "cases": [
            {"strategy": "autoregressive"},
            {
                "strategy": "speculative_sampling",
                "draft": draft,
                "gamma": chain_lengths(grid),
                **rule,
                **of(OF_CHAINS),
            },
            {"strategy": "tree_speculation", "draft": draft, "tree": trees, **rule, **of(OF_TREES)},
        ],
    }


def pick(arguments):
    grid, config = read_grid(arguments.grid), read(arguments.config, "a config")
    folder = pathlib.Path(arguments.out)
    if (folder / "config.json").exists():
        raise Refused(f"{folder}: has a config.json already. Choose another --out.")
    trees = {
        str(folder / f"{role}_n{cell['nodes']}_d{cell['depth']}.json"): tree_file(grid, role, cell)
        for role, cell in picked(grid, arguments.random, arguments.seed)
    }
    files = {**trees, str(folder / "config.json"): config_of(grid, config, list(trees), arguments)}
    folder.mkdir(parents=True, exist_ok=True)
    for file, content in files.items():
        pathlib.Path(file).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    print(f"{folder / 'config.json'}: {len(trees)} trees and chains of {chain_lengths(grid)} tokens.", file=sys.stderr)
    print(f"Measure them: build/release/speclab run {folder / 'config.json'} --out {folder / 'run'}", file=sys.stderr)


def span(interval):
    return f" [{interval[0]:.3f}, {interval[1]:.3f}]" if interval and None not in interval else ""


def table(found):
    lines = [
        "| cell | nodes | depth | tau | predicted | speedup | predicted | error | by F/(t(n) + d c) | error | within 5 % | over chain |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for cell in found:
        predicted, error = cell["predicted"], cell["error"]
        over = "" if cell["over_chain"] is None else f"{cell['over_chain']:.3f}{span(cell['over_chain_ci95'])}"
        all_costs = (
            ("", "")
            if predicted["step_speedup"] is None
            else (f"{predicted['step_speedup']:.3f}", f"{100 * error['step_speedup']:+.1f} %")
        )
        lines.append(
            f"| {cell['role']} | {cell['nodes']} | {cell['depth']} | {cell['tau']:.3f} | {predicted['tau']:.3f} | "
            f"{cell['speedup']:.3f}{span(cell['speedup_ci95'])} | {' | '.join(all_costs)} | {predicted['speedup']:.3f} | "
            f"{100 * error['speedup']:+.1f} % | {cell['within']} | {over} |"
        )
    return lines


def verdict_of(found):
    """The summary of the cells, and whether the predictions and the best tree pass."""
    withins = [cell["within"] for cell in found]
    best = next((cell for cell in found if cell["role"] == "best"), None)
    return {
        "errors": {
            form: {"largest": errors[0], "median": errors[1]}
            for form in cells.FORMS
            if (errors := cells.error_summary(found, form))
        },
        "within": "no" if "no" in withins else "unclear" if "unclear" in withins else "yes",
        "best_tree": best["chain_verdict"] if best else "no best tree",
        "best_chain": best["best_chain"] if best else None,
    }


FORM_NAMES = {"step_speedup": "all costs of a step", "speedup": "F / (t(n) + d c)"}


def check(arguments):
    run = Run(arguments.run, read(arguments.summary, "a summary") if arguments.summary else None)
    found = cells.cells(run)
    if not found:
        raise Refused(
            f"{arguments.run}: no case with a tree that `tree_grid.py pick` picked, or its tree files are gone."
        )
    cells.require_fair(run, found)
    verdict = verdict_of(found)
    print("\n".join(table(found)))
    for form, errors in verdict["errors"].items():
        print(
            f"\nSpeedup by {FORM_NAMES[form]}: largest error {100 * errors['largest']:.1f} %, "
            f"median error {100 * errors['median']:.1f} %, over {len(found)} trees."
        )
    print(f"\nEvery prediction within 5 % of the measurement: {verdict['within']}.")
    print(f"The best tree against the best chain ({verdict['best_chain']}): {verdict['best_tree']}.")
    if run.busy:
        print(f"The machine was busy: {run.busy}")
    if arguments.json:
        shown = [{key: value for key, value in cell.items() if key != "file"} for cell in found]
        text = json.dumps({"cells": shown, **verdict}, indent=1)
        pathlib.Path(arguments.json).write_text(text + "\n", encoding="utf-8")
    return 1 if verdict["within"] == "no" or verdict["best_tree"] == "below" else 0


def main(words=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    of_pick = commands.add_parser("pick", help="write a config that measures cells of a grid")
    of_pick.add_argument("grid", metavar="GRID")
    of_pick.add_argument("config", metavar="CONFIG")
    of_pick.add_argument("--out", required=True, help="the folder to write")
    of_pick.add_argument("--seed", type=int, default=1, help="seed that draws the random cells")
    of_pick.add_argument("--random", type=int, default=10, help="number of random cells")
    of_pick.add_argument("--repeats", type=int, default=3)
    of_pick.add_argument("--split", choices=("measure", "fit"), help="take the prompts of this split")
    of_pick.set_defaults(run_command=pick)
    of_check = commands.add_parser("check", help="compare measured speedups with predicted ones")
    of_check.add_argument("run", metavar="RUN")
    of_check.add_argument("--summary", help="a summary in place of RUN/summary.json (speclab report RUN --json)")
    of_check.add_argument("--json", help="also write the cells and verdicts to this file")
    of_check.set_defaults(run_command=check)
    arguments = parser.parse_args(words)
    try:
        return arguments.run_command(arguments) or 0
    except (Refused, BadRun) as error:
        print(f"tree_grid: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
