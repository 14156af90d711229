"""Figures of verifiers and trees on a made-up run (synthetic_trees.py): they draw and show the numbers of the record."""

import pathlib
import sys
import tempfile
import types
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "scripts"))
sys.path.insert(0, str(ROOT / "tests/python/runs"))

import matplotlib
import matplotlib.pyplot as plt
import matplotlib.text
import numpy as np
import synthetic_trees

from figures import record, style
from figures.verification import trees, verifiers


def setUpModule():
    global RUN
    folder = tempfile.TemporaryDirectory()
    unittest.addModuleCleanup(folder.cleanup)
    RUN = pathlib.Path(folder.name) / "run"
    synthetic_trees.write(RUN)


def curve(axes, label):
    return next(line for line in axes.get_lines() if line.get_label() == label)


class Drawing(unittest.TestCase):
    def test_every_figure_draws_in_a_column_with_readable_text(self):
        run = record.Run(RUN)
        for figure in verifiers.FIGURES + trees.FIGURES:
            with self.subTest(figure.name), matplotlib.rc_context(style.RC):
                drawn = figure.draw(run)
                drawn.canvas.draw()
                self.assertAlmostEqual(drawn.get_figwidth(), style.COLUMN_IN)
                for text in drawn.findobj(matplotlib.text.Text):
                    if text.get_text() and "$" not in text.get_text():
                        self.assertGreaterEqual(text.get_fontsize(), 7, text.get_text())
                for axes in drawn.axes:
                    box = axes.get_tightbbox().transformed(drawn.dpi_scale_trans.inverted())
                    self.assertGreater(box.x0, -0.02, figure.name)
                    self.assertLess(box.x1, 3.37, figure.name)
                plt.close(drawn)

    def test_a_run_without_bounds_or_trees_has_no_such_figure(self):
        run = record.Run(RUN)
        run.cases = [case for case in run.cases if case.strategy == "speculative_sampling"]
        for case in run.cases:
            for name in ("tau_path_rule", "path_gain_at"):
                case.data["metrics"].pop(name, None)
        for figure in verifiers.FIGURES + trees.FIGURES:
            with self.subTest(figure.name):
                self.assertRaises(record.NotApplicable, figure.draw, run)


class Verifiers(unittest.TestCase):
    def test_each_verifier_shows_its_tau_and_the_bound_of_its_draft(self):
        run = record.Run(RUN)
        drawn = verifiers.draw_temperature(run)
        self.assertEqual(len(drawn.axes), 2, "a chain and a tree")
        chain = [case for case in run.cases if case.strategy == "speculative_sampling"]
        found = [list(line.get_ydata()) for line in drawn.axes[0].get_lines()]
        for rule in ("rejection", "block"):
            wanted = [case.metric("tau") for case in chain if case.rule == rule]
            self.assertTrue(any(np.allclose(line, wanted) for line in found if len(line) == 2), rule)
        bounds = [
            max(case.metric("tau_bound") for case in chain if case.sampling["temperature"] == t)
            for t in synthetic_trees.TEMPERATURES
        ]
        self.assertTrue(any(np.allclose(line, bounds) for line in found if len(line) == 2))
        plt.close(drawn)

    def test_the_gain_is_that_of_each_temperature(self):
        drawn = verifiers.draw_gain(record.Run(RUN))
        lines = [list(line.get_ydata()) for line in drawn.axes[0].get_lines()]
        for t in synthetic_trees.TEMPERATURES:
            self.assertTrue(
                any(np.allclose(line, [0.02 * i * t for i in range(4)]) for line in lines if len(line) == 4)
            )
        plt.close(drawn)


class Trees(unittest.TestCase):
    def test_acceptance_by_rank_and_depth_is_that_of_the_record(self):
        steps = trees.largest_group(record.Run(RUN))[-1][1]
        counts = trees.rank_counts(steps)
        for rank, p in enumerate(synthetic_trees.P_RANK[:2], 1):
            accepted, reached = counts[1, rank]
            self.assertAlmostEqual(accepted / reached, p, delta=0.08)
        self.assertEqual(counts[1, 1][1], counts[1, 2][1], "all children of a judged node count as reached")

    def test_options_that_are_lists(self):
        run = record.Run(RUN)
        for case in run.cases:
            case.data.setdefault("options", {})["sequences"] = [3]
        self.assertEqual(len(trees.largest_group(run)), len(trees.largest_group(record.Run(RUN))))

    def test_the_best_tree_has_the_golden_values(self):
        p = [0.6, 0.15, 0.07, 0.04, 0.03, 0.02, 0.02, 0.02]
        values = trees.best_tokens(lambda depth, rank: p[rank - 1], len(p), 64)
        for n, tokens in {1: 1, 2: 1.6, 4: 2.176, 8: 2.6356, 16: 3.076, 32: 3.5097, 64: 3.9675}.items():
            self.assertAlmostEqual(values[n - 1], tokens, delta=1e-4)

    def test_a_chain_is_the_best_tree_of_width_one(self):
        values = trees.best_tokens(lambda depth, rank: 0.5, 1, 3, 6)
        self.assertEqual(list(values), [1, 1.5, 1.75, 1.875, 1.875, 1.875])

    def test_few_nodes_take_the_number_of_all_depths(self):
        of, ranks = trees.acceptance({(1, 1): [60, 100], (2, 1): [0, 10]})
        self.assertEqual((of(1, 1), of(2, 1), ranks), (0.6, 60 / 110, 1))

    def test_the_map_predicts_from_measured_costs(self):
        drawn = trees.draw_map(record.Run(RUN))
        values = drawn.axes[0].collections[0].get_array()
        group = trees.largest_group(record.Run(RUN))
        of, ranks = trees.acceptance(trees.rank_counts([step for entry in group for step in entry[1]]))
        wanted = trees.best_tokens(of, ranks, 2)[3] / (1.03 + 2 * 0.05)  # four nodes, two levels
        self.assertAlmostEqual(values[1, 3], wanted, places=9)
        plt.close(drawn)

    def test_a_list_of_widths_is_no_tree_file(self):
        case = types.SimpleNamespace(options={"tree": [3, 2, 1]})
        self.assertEqual(trees.tree_files(types.SimpleNamespace(speculative=[case])), {})

    def test_shapes_show_every_node(self):
        drawn = trees.draw_shapes(record.Run(RUN))
        dots = max(drawn.axes[0].get_lines(), key=lambda line: len(line.get_xdata()))
        self.assertEqual(list(dots.get_ydata()), [0, 1, 1, 2, 2, 2, 3], "nodes in the order of the file")
        ends = {(x, y) for line in drawn.axes[0].get_lines() for x, y in zip(*line.get_data())}
        self.assertEqual(ends, set(zip(*dots.get_data())), "every line joins two dots")
        plt.close(drawn)


if __name__ == "__main__":
    unittest.main()
