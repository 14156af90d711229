"""How `speclab optimize` runs, and the commands that use what it writes."""

import json

from .laboratory import SMALL


def optimized_tree(test, laboratory, text):
    """Runs the command on a small run, made first where the command takes one. Exit code 1: no tree is worth its time."""
    make = f"speclab optimize tree configs/quickstart.json --draft distilled --out tree.json{SMALL} -q"
    if not (laboratory.folder / "tree.json.run/summary.json").exists():
        result = laboratory.run(make)
        test.assertIn(result.returncode, (0, 1), result.stderr)
    if "configs/" not in text:
        result = laboratory.run(text)
        test.assertIn(result.returncode, (0, 1), result.stderr)


def optimized_config(test, laboratory, text):
    """Runs the command on the two prompts of one category. Exit code 1: no setting is faster with the tiny model."""
    short = (
        " --set 'prompts.categories=[\"code\"]' --set max_tokens=8 --longest 2 --nodes 4 --depth 2 --lookahead-rows 8"
    )
    result = laboratory.run(text + short + " --repeats 1 --threads 1 -q")
    test.assertIn(result.returncode, (0, 1), result.stderr)
    test.assertNotIn("error:", result.stderr)


def grid_of_trees(test, laboratory, text):
    """Runs the command on few prompts. Exit code 1: no tree is worth its time with the tiny model."""
    result = laboratory.run(text + SMALL + " -q")
    test.assertIn(result.returncode, (0, 1), result.stderr)
    test.assertNotIn("error:", result.stderr)


def cells_of_a_grid(test, laboratory, text):
    """Runs the command after those before it on the page. Exit code 1 of `check` is a verdict about the tiny model."""
    if not (laboratory.folder / "grid.json").exists():
        make = "speclab optimize tree configs/acceptance_rules.json --draft distilled --set prompts.split=fit --set options.temperature=0 --out chosen.json --grid grid.json"
        grid_of_trees(test, laboratory, make)
    if " pick " not in text and not (laboratory.folder / "build/cells/config.json").exists():
        pick = ".venv/bin/python scripts/tree_grid.py pick grid.json configs/sequoia_table.json --out build/cells"
        test.succeeds(laboratory.run(pick), pick)
    if " check " in text and not (laboratory.folder / "results/runs/cells/config.json").exists():
        cells_of_a_grid(test, laboratory, "speclab run build/cells/config.json --out results/runs/cells")
    result = laboratory.run(text + (SMALL if " run " in text else ""))
    test.assertIn(result.returncode, (0, 1) if " check " in text else (0,), result.stderr)


def case_with_a_tree(test, laboratory, text):
    """Runs the command with a small tree file in place of one that `speclab optimize` wrote."""
    tree = {"parents": [0, 0, 1], "ranks": [1, 2, 1]}
    (laboratory.folder / "tree.json").write_text(json.dumps({"format": "speclab tree 1", **tree}))
    ranges = [{"from": 0, "to": 0.5, "parents": [], "ranks": []}, {"from": 0.5, "to": 1, **tree}]
    (laboratory.folder / "trees.json").write_text(json.dumps({"format": "speclab tree 2", "trees": ranges}))
    test.succeeds(laboratory.run(text + SMALL), text)


def trees_by_confidence(test, laboratory, text):
    """Runs the command on few prompts. Exit code 1: no tree is worth its time with the tiny model."""
    result = laboratory.run(text + SMALL + " -q")
    test.assertIn(result.returncode, (0, 1), result.stderr)
    test.assertIn("rees by confidence", result.stdout)


def write_skip_file(laboratory, name):
    skip = {"format": "speclab skip 1", "layers": list(range(30)), "skip": [3, 7]}
    (laboratory.folder / name).write_text(json.dumps(skip))


def with_skip_file(test, laboratory, text):
    """Runs the command with a small skip file in place of one that `speclab optimize` wrote."""
    write_skip_file(laboratory, "skip.json")
    test.succeeds(laboratory.run(text + " --set max_tokens=4"), text)


def with_skip_file_and_small_run(test, laboratory, text):
    """Runs the command on few prompts, with a small skip file."""
    write_skip_file(laboratory, "build/skip.json")
    test.succeeds(laboratory.run(text + SMALL + " --filter 'skip_file|gamma=2'"), text)
