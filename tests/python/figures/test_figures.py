"""Figures of a made-up run (synthetic_run.py): every figure draws, and shows the numbers of the record."""

import contextlib
import copy
import io
import json
import math
import pathlib
import shutil
import sys
import tempfile
import unittest
import unittest.mock

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "scripts"))
sys.path.insert(0, str(ROOT / "tests/python/runs"))

import matplotlib
import matplotlib.pyplot as plt
import matplotlib.text
import report
import synthetic_run
from report.drawn import caption_of

import figures
from figures import confidence, generated_text, lookahead, record, scale_ladder, style, theory
from figures.simulated import entropy, replay
from figures.timing import timeline
from figures.training import by_prompt
from figures.verification import cells, trees, verifiers


def setUpModule():
    global RUN
    folder = tempfile.TemporaryDirectory()
    unittest.addModuleCleanup(folder.cleanup)
    RUN = pathlib.Path(folder.name) / "run"
    synthetic_run.write(RUN)


def by_name(name):
    return next(figure for figure in figures.all_figures() if figure.name == name)


class Scratch(unittest.TestCase):
    """A copy of the run that a test may damage."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name) / "run"
        shutil.copytree(RUN, self.folder)


class Theory(unittest.TestCase):
    def test_leviathan_table_1(self):
        for alpha, gamma, operations, speedup in [
            (0.6, 2, 1.53, 1.96),
            (0.7, 3, 1.58, 2.53),
            (0.8, 2, 1.23, 2.44),
            (0.8, 5, 1.63, 3.69),
            (0.9, 2, 1.11, 2.71),
            (0.9, 10, 1.60, 6.86),
        ]:
            self.assertAlmostEqual(theory.operations(alpha, gamma, 0), operations, delta=0.006)
            self.assertAlmostEqual(theory.speedup(alpha, gamma, 0), speedup, delta=0.006)

    def test_optimal_gamma(self):
        for alpha, c, gamma in [
            (0.6, 0.05, 4),
            (0.8, 0.05, 8),
            (0.9, 0.05, 13),
            (0.5, 0.1, 2),
            (0.8, 0.2, 4),
            (0.1, 0.2, 0),
        ]:
            self.assertEqual(theory.best_gamma(alpha, c), gamma)

    def test_alpha_one(self):
        self.assertEqual(theory.tau(1, 4), 5)


class Drawing(unittest.TestCase):
    ABSENT = {"draft_capability", "temperature"}  # the made-up run has two drafts and one temperature
    ABSENT |= {figure.name for figure in lookahead.FIGURES}  # test_lookahead_figures.py
    ABSENT |= {figure.name for figure in verifiers.FIGURES + trees.FIGURES}  # test_tree_figures.py
    ABSENT |= {figure.name for figure in cells.FIGURES}  # test_tree_grid.py
    ABSENT |= {figure.name for figure in entropy.FIGURES}  # test_entropy_figure.py
    ABSENT |= {figure.name for figure in replay.FIGURES}  # test_replay_figure.py
    ABSENT |= {figure.name for figure in by_prompt.FIGURES}  # training/test_by_prompt_figure.py

    def test_every_figure_draws_in_a_column_with_readable_text(self):
        run = record.Run(RUN)
        for figure in figures.all_figures():
            with self.subTest(figure.name), matplotlib.rc_context(style.RC):
                if figure.name in self.ABSENT:
                    self.assertRaises(record.NotApplicable, figure.draw, run)
                    continue
                drawn = figure.draw(run)
                drawn.canvas.draw()
                self.assertAlmostEqual(drawn.get_figwidth(), 3.35)
                for text in drawn.findobj(matplotlib.text.Text):
                    if text.get_text():
                        self.assertGreaterEqual(
                            text.get_fontsize(), 7 * 0.69, text.get_text()
                        )  # superscripts of log axes
                        self.assertTrue(text.get_fontsize() >= 7 or "$" in text.get_text(), text.get_text())
                for axes in drawn.axes:  # nothing exceeds the page
                    box = axes.get_tightbbox().transformed(drawn.dpi_scale_trans.inverted())
                    self.assertGreater(box.x0, -0.02, figure.name)
                    self.assertLess(box.x1, 3.37, figure.name)
                plt.close(drawn)

    def test_curves_differ_without_colour(self):
        looks = [style.curve_style(i) for i in range(len(style.COLOURS))]
        self.assertEqual(len({look["marker"] for look in looks}), len(looks))
        self.assertEqual(len({str(look["linestyle"]) for look in looks}), len(looks))

    def test_a_rule_looks_the_same_in_every_panel(self):
        run = record.Run(RUN)
        lossy = [case for case in run.cases if case.lossy]
        self.assertGreater(len({case.rule for case in lossy}), 1, "one rule shows nothing")
        for case in run.cases:  # the first panel lacks the rule that the second shows first
            case.data["metrics"]["target_nll"] = 1.5
            if case.rule == lossy[0].rule or not case.lossy:
                case.data["metrics"]["distance"] = None
        drawn = by_name("quality_tradeoff").draw(run)
        seen = {}
        for axes in drawn.axes:
            for line in axes.get_lines():
                if not line.get_label().startswith("_"):
                    seen.setdefault(line.get_label(), set()).add((line.get_marker(), line.get_color()))
        plt.close(drawn)
        self.assertGreater(len(drawn.axes), 1)
        self.assertEqual({rule: len(looks) for rule, looks in seen.items()}, dict.fromkeys(seen, 1))

    def test_a_legend_that_is_too_wide_takes_one_column_and_the_figure_grows(self):
        with matplotlib.rc_context(style.RC):
            for length in (8, 29, 45):
                drawn, axes = style.figure(2.3)
                handles = [axes.plot([0, 1])[0] for _ in range(8)]
                style.legend_below(drawn, handles, ["M" + "x" * (length - 1)] * 8)
                drawn.canvas.draw()
                (legend,) = drawn.legends
                box = legend.get_window_extent().transformed(drawn.dpi_scale_trans.inverted())
                self.assertGreaterEqual(box.x0, 0, length)
                self.assertLessEqual(box.x1, 3.35, length)
                self.assertEqual(legend._ncols, 2 if length == 8 else 1)
                self.assertGreater(axes.get_window_extent().height / drawn.dpi, 1.3, "room for the data")
                plt.close(drawn)

    def test_an_infinite_divergence_is_not_drawn_and_old_records_have_a_perplexity(self):
        run = record.Run(RUN)
        lossy = [case for case in run.cases if case.lossy]
        for case in run.cases:
            case.data["metrics"]["target_nll"] = 0.5
        lossy[0].data["metrics"].update(kl=0.0, kl_infinite=7)
        drawn = by_name("quality_tradeoff").draw(run)
        by_label = {axes.get_xlabel(): axes for axes in drawn.axes}
        rules = {case.rule.replace("_", " ") for case in lossy}
        count = lambda axes: sum(len(line.get_xdata()) for line in axes.get_lines() if line.get_label() in rules)
        divergence = by_label["KL divergence from the target's law, nats"]
        self.assertEqual(count(divergence), count(by_label["total variation from the target's law"]) - 1)
        *curves, _ = by_label[
            "perplexity of the text under the target"
        ].get_lines()  # the last one is the line at speedup 1
        drawn_at = {round(float(x), 6) for curve in curves for x in curve.get_xdata()}
        self.assertEqual(drawn_at, {round(math.exp(0.5), 6)})
        plt.close(drawn)

    def test_only_the_fastest_sweeps_are_drawn(self):
        run = record.Run(RUN)
        cases = [case for case in run.speculative if case.draft == "distilled" and not case.lossy]
        run.cases = run.baselines + [
            self.copy(run, case, draft=f"draft{i}", speedup=speedup)
            for i, speedup in enumerate([1.2, 0.9, 1.5, 1.1, 0.8, 1.3, 1.4])
            for case in cases
        ]
        kept = [members[0].draft for members in run.fastest_gamma_sweeps(4).values()]
        self.assertEqual(kept, ["draft0", "draft2", "draft5", "draft6"], "the order of the run")
        self.assertEqual(len(run.fastest_gamma_sweeps(40)), 7)

    def test_draft_capability_keeps_models_and_layers_apart(self):
        run = record.Run(RUN)
        (case, *_) = [case for case in run.speculative if case.draft == "distilled" and not case.lossy]
        run.environment["models"] = {
            "target": {"sha256": "t"},
            "small": {"sha256": "s"},
            "large": {"sha256": "l"},
            "keep5": {"sha256": "t"},
            "keep20": {"sha256": "t"},
        }
        run.cases = run.baselines + [
            self.copy(run, case, draft=draft, c=c, speedup=speedup)
            for draft, c, speedup in [("small", 0.02, 1.2), ("large", 0.05, 1.3), ("keep5", 0.2, 0.9)]
            + [("keep20", 0.7, 0.6), ("keep20", 0.7, 0.5)]
        ]
        for one, predicted in zip(run.speculative, (1.4, 1.1, 0.9, 0.7, 0.8), strict=True):
            one.data["predictions"]["leviathan_3_8"]["value"] = predicted
        finding = by_name("draft_capability").finding
        self.assertEqual(
            finding(run),
            f"The best size measured is large with γ {case.gamma} (speedup 1.30); the best size by Theorem 3.8 is small "
            f"with γ {case.gamma} (predicted 1.40, measured 1.20).",
        )
        run.cases[2].data["predictions"]["leviathan_3_8"]["value"] = 1.5
        self.assertIn("and Theorem 3.8 names the same one (predicted 1.50).", finding(run))
        self.assertTrue(caption_of(by_name("draft_capability"), run).endswith(finding(run)))
        drawn = by_name("draft_capability").draw(run)
        top, bottom = drawn.axes
        self.assertEqual(sorted(text.get_text() for text in top.texts), ["keep20", "keep5", "large", "small"])
        measured = [
            [[float(x), float(y)] for x, y in line.get_xydata()]
            for container in bottom.containers
            for line in container.lines[:1]
        ]
        self.assertEqual(measured, [[[0.02, 1.2], [0.05, 1.3]], [[0.2, 0.9], [0.7, 0.6]]])
        plt.close(drawn)

    @staticmethod
    def copy(run, case, draft, **metrics):
        data = copy.deepcopy(case.data)
        data["draft"], data["id"] = draft, data["id"].replace(f"draft={case.draft}", f"draft={draft}")
        data["metrics"].update(metrics)
        return record.Case(data, run)

    def test_the_optimum_of_the_map_is_not_applicable_without_drafts(self):
        run = record.Run(RUN)
        run.cases = run.baselines
        for figure in figures.all_figures():
            if figure.name != "time_split":
                self.assertRaises(record.NotApplicable, figure.draw, run)

    def test_files_are_whole_and_repeatable(self):
        run = record.Run(RUN)
        with tempfile.TemporaryDirectory() as folder:
            stem = pathlib.Path(folder) / "waterfall"
            paths = style.render(by_name("waterfall").draw, run, stem)
            first = [path.read_bytes() for path in paths]
            self.assertEqual([path.suffix for path in paths], [".svg", ".pdf"])
            style.render(by_name("waterfall").draw, run, stem)
            self.assertEqual([path.read_bytes() for path in paths], first)
            self.assertEqual(len(list(pathlib.Path(folder).iterdir())), 2)


class Ladder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name) / "ladder"
        synthetic_run.write_ladder(self.folder)

    def test_every_point_is_a_case_of_its_target(self):
        ladder = record.Ladder(self.folder)
        self.assertEqual(list(ladder.runs), ["135M", "500M", "1B"], "by bytes, not by name")
        with matplotlib.rc_context(style.RC):
            drawn = figures.ladder_figures()[0].draw(ladder)
            drawn.canvas.draw()
        measured = {
            tuple((float(x), float(y)) for x, y in line.get_xydata())
            for container in drawn.axes[0].containers
            for line in container.lines[:1]
        }
        every = {
            tuple(
                (case.metric("c"), case.metric("speedup"))
                for run in ladder.runs.values()
                for case in run.cases
                if case.id == id_
            )
            for id_ in {case.id for case in ladder.runs["1B"].speculative if case.draft and not case.lossy}
        }
        self.assertLessEqual(measured, every)
        self.assertEqual(len(measured), 6, "the best ones")
        self.assertEqual({text.get_text() for text in drawn.axes[0].texts}, {"135M", "500M", "1B"})
        layers = [
            (name, case) for name, run in ladder.runs.items() for case in run.speculative if case.draft == "layers-12"
        ]
        found = scale_ladder.places(layers, list(ladder.runs))
        self.assertEqual([names for names, *_ in found], [["135M", "500M", "1B"]], "their c does not change")
        self.assertEqual(drawn.axes[0].get_xscale(), "log")
        plt.close(drawn)

    def test_figures_and_pages_of_a_twin_say_so(self):
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = report.main([str(self.folder), "--only", "scale_ladder", "--only", "speedup_gamma"])
        self.assertEqual(status, 0, err.getvalue())
        self.assertTrue((self.folder / "figures/scale_ladder.pdf").exists())
        self.assertTrue((self.folder / "figures/scale_ladder.svg").exists())
        self.assertIn("Target: 1B inflated from made-up.", (self.folder / "1B/report.html").read_text())
        self.assertNotIn("inflated", (self.folder / "135M/report.html").read_text())
        with tempfile.TemporaryDirectory() as folder, unittest.mock.patch.object(style, "save") as save:
            for name, noted in (("1B", 1), ("135M", 0)):
                style.render(by_name("speedup_gamma").draw, record.Run(self.folder / name), pathlib.Path(folder) / "f")
                title = save.call_args.args[0].get_suptitle()
                self.assertEqual(title, "target: 1B inflated from made-up" if noted else "")

    def test_a_ladder_without_its_runs_is_refused(self):
        shutil.rmtree(self.folder / "1B")
        err = io.StringIO()
        with contextlib.redirect_stderr(err):
            self.assertEqual(report.main([str(self.folder)]), 2)
        self.assertIn("1B", err.getvalue())


class Reading(Scratch):
    def test_labels_name_what_differs(self):
        labels = [case.label(without=()) for case in record.Run(self.folder).cases]
        self.assertEqual(len(set(labels)), len(labels))
        self.assertIn("distilled γ 4", labels)
        self.assertIn("distilled γ 4 lenience 0.5", labels)
        self.assertIn("lookup", labels)

    def test_torn_and_failed_lines_are_left_out(self):
        case = record.Run(self.folder).cases[1]
        whole = case.lines()
        with open(self.folder / case.file, "a") as file:
            file.write(json.dumps({"case": case.id, "error": "NaN logits"}) + '\n{"case": "to')
        self.assertEqual(case.lines(), whole)

    def test_marked_calls_are_the_text(self):
        case, line = generated_text.pick(record.Run(self.folder))
        calls = generated_text.marked_calls(line)
        self.assertEqual("".join(piece for call in calls for piece, _ in call), "".join(line["pieces"][1:]))
        self.assertEqual([len(call) for call in calls], [step["emitted"] for step in line["steps"]])
        looks = [look for call in calls for _, look in call]
        self.assertEqual(looks.count("accepted"), sum(step["accepted"] for step in line["steps"]))

    def test_confidence_counts_tested_tokens_of_one_repeat(self):
        case = next(case for case in record.Run(self.folder).cases if case.draft)
        tested = [
            token
            for line in case.lines()
            if line["repeat"] == 0
            for step in line["steps"]
            for token in step["tokens"]
            if token["tested"]
        ]
        bins = confidence.tally(case)
        self.assertEqual(sum(entry[0] for entry in bins), len(tested))
        self.assertEqual(sum(entry[1] for entry in bins), sum(token["accepted"] for token in tested))

    def test_a_changed_line_is_named(self):
        case = record.Run(self.folder).speculative[0]
        file = self.folder / case.file
        lines = file.read_text().splitlines()
        original = json.loads(lines[1])
        for change, words in (
            (
                lambda line: line["tokens"].__setitem__(0, line["tokens"][0] + 1),
                "output_hash is not the hash of tokens",
            ),
            (lambda line: line.update(row_hashes=[1]), "logits_hash is not the hash of row_hashes"),
            (lambda line: line.update(case="another"), "case another, expected"),
        ):
            line = copy.deepcopy(original)
            change(line)
            file.write_text("\n".join([lines[0], json.dumps(line), *lines[2:]]) + "\n")
            with self.assertRaisesRegex(record.BadRun, f"line 2: {words}"):
                case.lines()

    def test_timeline_shows_one_prompt(self):
        chosen = timeline.pick(record.Run(self.folder))
        self.assertEqual(len({line["prompt"] for _, line in chosen}), 1)
        self.assertTrue(chosen[-1][0].autoregressive)
        every = sorted(
            line["wall_ns"] / sum(step["emitted"] for step in line["steps"])
            for line in chosen[0][0].lines()
            if line["repeat"] == 0
        )
        shown = chosen[0][1]
        self.assertEqual(shown["wall_ns"] / sum(step["emitted"] for step in shown["steps"]), every[len(every) // 2])


if __name__ == "__main__":
    unittest.main()
