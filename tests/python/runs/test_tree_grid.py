"""scripts/tree_grid.py and its figure: which trees are picked, and how measured speedups are judged (made-up grid and run)."""

import contextlib
import copy
import io
import json
import os
import pathlib
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "scripts"))

import matplotlib
import matplotlib.pyplot as plt
import matplotlib.text
import synthetic_trees
import tree_grid

from figures import record, style
from figures.verification import cells

TURNS = ["Why is the sky blue?", "And at night?"]
DRAWS = {
    "draft": "distilled",
    "rule": "rejection",
    "temperature": 0.5,
    "top_k": 0,
    "top_p": 1,
    "coins": "independent",
    "children": "independent",
    "used_up": "best",
    "draft_temperature": -1,
}


def made_up_grid():
    """A grid of stars of 2 to 21 nodes. The best star has 11 nodes (14 by the forwards alone), the worst one 21."""
    entries = [
        {
            "nodes": n,
            "depth": 1,
            "tau": 1 + 0.03 * n,
            "speedup": 1.3 - 0.001 * (n - 14.4) ** 2,
            "step_speedup": 1.2 - 0.002 * (n - 10.6) ** 2,
            "parents": [0] * (n - 1),
        }
        for n in range(2, 22)
    ]
    chains = [
        {"gamma": g, "tau": 1 + 0.1 * g, "speedup": 1, "step_speedup": 1.1 - 0.01 * abs(g - 3)} for g in range(1, 6)
    ]
    return {
        "format": "speclab tree grid 1",
        "chosen_by": "step_speedup",
        "cells": entries,
        "chains": chains,
        "acceptance": [[0.5, 0.2]],
        "c": 0.05,
        "draws": DRAWS,
        "device": "cpu",
        "numerics": "f32",
        "target": {"sha256": "1"},
        "draft": {"sha256": "2"},
        "prompts": [{"id": "7", "split": "fit", "sha256": cells.hash_of_turns(["Another text."])}],
    }


CONFIG = {
    "name": "any",
    "target": "model.gguf",
    "drafts": {"distilled": {"model": "draft"}, "other": {"model": "x"}},
    "prompts": {"file": "prompts.jsonl", "limit": 4},
    "seed": 3,
    "repeats": 1,
    "options": {"temperature": [0, 1], "max_tokens": 64, "budget": "auto"},
    "cases": [{"strategy": "autoregressive"}],
}


class Scratch(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.write("grid.json", made_up_grid())
        self.write("config.json", CONFIG)

    def write(self, name, content):
        (self.folder / name).write_text(json.dumps(content), encoding="utf-8")

    def read(self, name):
        return json.loads((self.folder / name).read_text(encoding="utf-8"))

    def main(self, *words):
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = tree_grid.main([str(word) for word in words])
        return code, out.getvalue(), err.getvalue()

    def pick(self, out="cells", *more):
        return self.main(
            "pick", self.folder / "grid.json", self.folder / "config.json", "--out", self.folder / out, *more
        )


class Picking(Scratch):
    def test_picks_the_best_the_worst_and_random_cells(self):
        grid = made_up_grid()
        chosen = tree_grid.picked(grid, 10, 1)
        self.assertEqual([role for role, _ in chosen], ["best", "worst"] + ["random"] * 10)
        self.assertEqual([cell["nodes"] for _, cell in chosen[:2]], [11, 21])
        self.assertEqual(len({cell["nodes"] for _, cell in chosen}), 12, "no cell twice")
        self.assertEqual(chosen, tree_grid.picked(grid, 10, 1), "the seed decides")
        self.assertNotEqual(chosen, tree_grid.picked(grid, 10, 2))
        self.assertEqual(len(tree_grid.picked(grid, 100, 1)), 20, "no more cells than there are")
        grid["chosen_by"] = "speedup"
        self.assertEqual(tree_grid.picked(grid, 0, 1)[0][1]["nodes"], 14)

    def test_writes_a_config_and_its_tree_files(self):
        code, _, err = self.pick("cells", "--split", "measure", "--random", "3")
        self.assertEqual(code, 0, err)
        config = self.read("cells/config.json")
        self.assertEqual(config["drafts"], {"distilled": {"model": "draft"}})
        self.assertEqual(config["prompts"], {"file": "prompts.jsonl", "limit": 4, "split": "measure"})
        self.assertEqual(config["options"]["temperature"], 0.5, "that of the grid")
        self.assertEqual(
            (config["options"]["budget"], config["options"]["max_tokens"], config["seed"]), ("fixed", 64, 3)
        )
        self.assertIs(config["bounds"], True)
        baseline, chains, trees = config["cases"]
        self.assertEqual(baseline, {"strategy": "autoregressive"})
        self.assertEqual(chains["gamma"], [2, 3, 4])
        self.assertEqual(trees["children"], "independent")
        self.assertNotIn("used_up", trees, "the default")
        self.assertNotIn("rule", trees, "the default")
        self.assertEqual(len(trees["tree"]), 5)
        best = json.loads(pathlib.Path(trees["tree"][0]).read_text())
        self.assertEqual((best["format"], best["role"], best["nodes"]), ("speclab tree 1", "best", 11))
        self.assertEqual((best["parents"], best["ranks"]), ([0] * 10, list(range(1, 11))))
        self.assertAlmostEqual(best["predicted"]["step_speedup"], 1.2 - 0.002 * 0.16)
        self.assertEqual(best["prompts"], made_up_grid()["prompts"])
        self.assertNotIn("cells", best)

    def test_ranks_count_the_children_of_each_node(self):
        cell = {"nodes": 6, "depth": 2, "tau": 1, "speedup": 1, "step_speedup": 1, "parents": [0, 0, 1, 1, 2]}
        self.assertEqual(tree_grid.tree_file(made_up_grid(), "best", cell)["ranks"], [1, 2, 1, 2, 1])

    def test_another_rule_is_that_of_the_grid(self):
        grid = made_up_grid()
        grid["draws"] = {**DRAWS, "rule": "traversal"}
        self.write("grid.json", grid)
        self.assertEqual(self.pick()[0], 0)
        _, chains, trees = self.read("cells/config.json")["cases"]
        self.assertEqual((chains["rule"], trees["rule"]), ("traversal", "traversal"))

    def test_says_what_is_wrong(self):
        self.assertEqual(self.pick()[0], 0)
        for change, words, out in [
            ({}, "has a config.json already", "cells"),
            ({"format": "other"}, "speclab tree grid 1", "b"),
            ({"draws": {**DRAWS, "draft": "none"}}, 'no draft "none"', "b"),
            ({"cells": made_up_grid()["cells"][:1]}, "a single cell", "b"),
        ]:
            self.write("grid.json", {**made_up_grid(), **change})
            code, _, err = self.pick(out)
            self.assertEqual(code, 2, words)
            self.assertIn(words, err)
        (self.folder / "grid.json").write_text("no json")
        self.assertEqual(self.pick("b")[0], 2)


class Judging(Scratch):
    """The made-up run measures five picked trees with the speedups of a test."""

    def run_with(self, speedups, noise=0.01, over_chain=1.02, prompts=TURNS, half_width=0.02, **environment):
        self.assertEqual(self.pick("cells", "--random", "3")[0], 0)
        folder = self.folder / "cells" / "run"
        synthetic_trees.write(folder)
        summary = self.read("cells/run/summary.json")
        model = next(case for case in summary["cases"] if case["strategy"] == "tree_speculation")
        kept = [case for case in summary["cases"] if case["strategy"] == "autoregressive"][:1]
        config = {"prompts": [{"id": "1", "turns": prompts}], "cases": []}
        for file, speedup in zip(self.read("cells/config.json")["cases"][2]["tree"], speedups, strict=True):
            case = copy.deepcopy(model)
            case["id"] = f"tree_speculation/tree={file}"
            case["options"] = {**DRAWS, "tree": file}
            case["metrics"].update(
                speedup=speedup,
                speedup_ci95=[speedup * (1 - half_width), speedup * (1 + half_width)],
                speed_over_chain=over_chain,
                speed_over_chain_ci95=[over_chain - half_width, over_chain + half_width],
            )
            case["best_chain"] = "a chain"
            kept.append(case)
            config["cases"].append(
                {"id": case["id"], "draft": "distilled", "rule": "rejection", "options": case["options"]}
            )
        summary.update(cases=kept, ratio_noise=noise)
        self.write("cells/run/summary.json", summary)
        self.write("cells/run/config.json", config)
        known = self.read("cells/run/environment.json")
        known.update({"device": "cpu", "numerics": "f32", "models": {"target": {"sha256": "1"}}, **environment})
        self.write("cells/run/environment.json", known)
        return folder

    def predicted(self):
        """The predictions of the trees that Scratch.pick picks, in the order of the config."""
        return [cell["step_speedup"] for _, cell in tree_grid.picked(made_up_grid(), 3, 1)]

    def test_sets_measured_beside_predicted(self):
        truth = self.predicted()
        folder = self.run_with([truth[0] / 1.04, truth[1] / 0.98, *truth[2:]])
        found = cells.cells(record.Run(folder))
        self.assertEqual([cell["role"] for cell in found], ["best", "worst", "random", "random", "random"])
        self.assertAlmostEqual(found[0]["error"]["step_speedup"], 0.04)
        self.assertAlmostEqual(found[1]["error"]["step_speedup"], -0.02)
        self.assertAlmostEqual(
            found[0]["error"]["speedup"], (1.3 - 0.001 * 3.4**2) / found[0]["speedup"] - 1, msg="the form of the paper"
        )
        largest, median = cells.error_summary(found, "step_speedup")
        self.assertAlmostEqual(largest, 0.04)
        self.assertAlmostEqual(median, 0)
        code, out, err = self.main("check", folder, "--json", self.folder / "verdict.json")
        self.assertEqual((code, err), (0, ""))
        self.assertIn("largest error 4.0 %, median error 0.0 %", out)
        self.assertIn("within 5 % of the measurement: yes", out)
        self.assertEqual(out.count("| random |"), 3)
        verdict = self.read("verdict.json")
        self.assertEqual(verdict["within"], "yes")
        self.assertAlmostEqual(verdict["errors"]["step_speedup"]["largest"], 0.04)
        self.assertNotIn("file", verdict["cells"][0])

    def test_a_wrong_prediction_fails(self):
        truth = self.predicted()
        folder = self.run_with([truth[0] / 1.2, *truth[1:]])
        code, out, _ = self.main("check", folder)
        self.assertEqual(code, 1)
        self.assertIn("within 5 % of the measurement: no", out)

    def test_an_interval_may_leave_it_open(self):
        truth = self.predicted()
        folder = self.run_with([truth[0] / 1.07, *truth[1:]])  # the interval ends 2 % away, and noise adds 1 %
        code, out, _ = self.main("check", folder)
        self.assertEqual(code, 0)
        self.assertIn("within 5 % of the measurement: unclear", out)
        self.assertEqual(cells.is_within(1.07, 1, None), "no", "without an interval")
        self.assertEqual(cells.is_within(0.94, 1, (0.97, 1.03)), "unclear")
        self.assertEqual(cells.is_within(0.90, 1, (0.97, 1.03)), "no")

    def test_the_best_tree_must_not_be_below_the_best_chain(self):
        for over_chain, verdict, code in [(1.1, "faster", 0), (0.98, "not below", 0), (0.9, "below", 1)]:
            with self.subTest(verdict):
                self.setUp()
                found, out, _ = self.main("check", self.run_with(self.predicted(), over_chain=over_chain))
                self.assertEqual(found, code)
                self.assertIn(f"best chain (a chain): {verdict}.", out)

    def test_without_repeats_nothing_is_certain(self):
        folder = self.run_with(self.predicted(), noise=None, over_chain=0.5)
        code, out, _ = self.main("check", folder)
        self.assertEqual(code, 0)
        self.assertIn("no repeats or one prompt", out)

    def test_refuses_what_the_predictions_are_not_for(self):
        for words, change in [
            ("its acceptance was measured on prompts of this run (7)", {"prompts": ["Another text."]}),
            ("device 'gpu'", {"device": "gpu"}),
            ("numerics 'bf16'", {"numerics": "bf16"}),
            ("target '9'", {"models": {"target": {"sha256": "9"}}}),
        ]:
            with self.subTest(words):
                self.setUp()
                code, out, err = self.main("check", self.run_with(self.predicted(), **change))
                self.assertEqual((code, out), (2, ""))
                self.assertIn(words, err)

    def test_refuses_a_run_of_other_trees(self):
        folder = self.run_with(self.predicted())
        for file in (self.folder / "cells").glob("*_n*.json"):
            os.remove(file)
        code, _, err = self.main("check", folder)
        self.assertEqual(code, 2)
        self.assertIn("tree files are gone", err)

    def test_the_figure_shows_every_cell(self):
        run = record.Run(self.run_with(self.predicted()))
        with matplotlib.rc_context(style.RC):
            drawn = cells.FIGURES[0].draw(run)
            drawn.canvas.draw()
        self.assertAlmostEqual(drawn.get_figwidth(), style.COLUMN_IN)
        for text in drawn.findobj(matplotlib.text.Text):
            if text.get_text():
                self.assertGreaterEqual(text.get_fontsize(), 7, text.get_text())
        points = [container.lines[0].get_xydata() for container in drawn.axes[0].containers]
        shown = sorted(tuple(point) for part in points for point in part)
        wanted = sorted((value, value) for value in self.predicted())
        self.assertEqual(len(shown), 5)
        for (x, y), (predicted, measured) in zip(shown, wanted):
            self.assertAlmostEqual(x, predicted)
            self.assertAlmostEqual(y, measured)
        plt.close(drawn)
        run.cases = []
        self.assertRaises(record.NotApplicable, cells.FIGURES[0].draw, run)


if __name__ == "__main__":
    unittest.main()
