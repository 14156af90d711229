"""The figure of replays beside a run, from a made-up comparison of a made-up run."""

import json
import pathlib
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "scripts"))
sys.path.insert(0, str(ROOT / "tests/python/runs"))

import matplotlib
import matplotlib.pyplot as plt
import matplotlib.text
import synthetic_run

from figures import record, style
from figures.simulated import replay

# (certainty, calibrated, error of the speedup) of the cases, and errors of the prompts of exact ones.
CASES = [
    ("exact", True, 0.01),
    ("exact", False, -0.03),
    ("expectation", False, 0.05),
    ("fitted", True, 0.02),
    ("exact", True, 0.0),
]
PROMPTS = [("1", False, 0.04), ("2", True, -0.08), ("3", True, 0.02)]


def comparison(run):
    """What `speclab replay --check --json` would print, with these errors."""
    rows = []
    for case, (certainty, calibrated, error) in zip(run.speculative, CASES):
        speedup = case.metric("speedup")
        prompts = [
            {"prompt": name, "held_out": held_out, "ms": 500.0, "replayed_ms": 500 * (1 + wrong), "error": wrong}
            for name, held_out, wrong in PROMPTS
            if certainty == "exact"
        ]
        rows.append(
            {
                "case": case.id,
                "certainty": certainty,
                "calibrated": calibrated,
                "held_out": False,
                "tau": 2.0,
                "replayed_tau": 2.0,
                "speedup": speedup,
                "replayed_speedup": speedup * (1 + error),
                "error": error,
                "prompts": prompts,
                "prompt_errors": None,
            }
        )
    rows.append({**rows[0], "case": "a case of another run"})
    rows.append(
        {**rows[0], "case": run.speculative[len(CASES)].id, "replayed_speedup": None, "error": None, "prompts": []}
    )
    return {"cases": rows}


class Replay(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name) / "run"
        synthetic_run.write(self.folder)
        self.run_ = record.Run(self.folder)

    def write(self, content):
        text = content if isinstance(content, str) else json.dumps(content)
        (self.folder / replay.FILE).write_text(text, encoding="utf-8")

    def test_a_run_without_a_comparison_has_no_figure(self):
        with self.assertRaisesRegex(record.NotApplicable, "--check"):
            replay.draw(self.run_)

    def test_other_files_are_refused(self):
        for content, words in (("[", "not JSON"), ([], 'no list "cases"'), ({"cases": 1}, 'no list "cases"')):
            self.write(content)
            with self.assertRaisesRegex(record.BadRun, words):
                replay.draw(self.run_)
        self.write({"cases": []})
        with self.assertRaisesRegex(record.NotApplicable, "no speedup"):
            replay.draw(self.run_)

    def test_the_points_are_those_of_the_comparison(self):
        self.write(comparison(self.run_))
        rows = replay.read(self.run_)
        self.assertEqual(len(rows), len(CASES) + 1, "a case of another run is left out")
        cases, prompts = replay.speedups(rows), replay.prompts(rows)
        self.assertEqual([point[2] for point in cases], [kind for kind, _, _ in CASES])
        self.assertEqual([point[3] for point in cases], [not calibrated for _, calibrated, _ in CASES])
        self.assertEqual(len(prompts), 3 * len(PROMPTS))
        self.assertEqual(sum(point[3] for point in prompts), 6)

    def test_the_medians_are_those_of_all_and_of_the_unseen(self):
        self.write(comparison(self.run_))
        rows = replay.read(self.run_)
        text = replay.errors_text(replay.speedups(rows), 0.03, "not calibrated")
        self.assertEqual(text, "median error 2.0 % of 5 (goal: 3 %)\nnot calibrated: 4.0 % of 2")
        text = replay.errors_text(replay.prompts(rows), 0.06, "held out")
        self.assertEqual(text, "median error 4.0 % of 9 (goal: 6 %)\nheld out: 5.0 % of 6")

    def test_the_figure_fits_a_column_and_tells_the_kinds_apart(self):
        self.write(comparison(self.run_))
        with matplotlib.rc_context(style.RC):
            drawn = replay.draw(self.run_)
            self.addCleanup(plt.close, drawn)
            drawn.canvas.draw()
        self.assertAlmostEqual(drawn.get_figwidth(), 3.35)
        top, bottom = drawn.axes
        for text in drawn.findobj(matplotlib.text.Text):
            if text.get_text() and "$" not in text.get_text():
                self.assertGreaterEqual(text.get_fontsize(), 7, text.get_text())
        for axes in drawn.axes:
            box = axes.get_tightbbox().transformed(drawn.dpi_scale_trans.inverted())
            self.assertGreater(box.x0, -0.02)
            self.assertLess(box.x1, 3.37)
        points = [line for line in top.get_lines() if line.get_linestyle() == "None" and len(line.get_xdata())]
        self.assertEqual(sum(len(line.get_xdata()) for line in points), len(CASES))
        self.assertEqual({line.get_marker() for line in points}, {"o", "s", "^"})
        hollow = [line for line in points if line.get_markerfacecolor() == "white"]
        self.assertEqual(sum(len(line.get_xdata()) for line in hollow), 2)
        self.assertIn("median error 4.0 %", bottom.get_title(loc="left"))

    def test_without_times_of_prompts_there_is_one_panel(self):
        content = comparison(self.run_)
        for row in content["cases"]:
            row["prompts"] = []
        self.write(content)
        with matplotlib.rc_context(style.RC):
            drawn = replay.draw(self.run_)
            self.addCleanup(plt.close, drawn)
            self.assertEqual(len(drawn.axes), 1)


if __name__ == "__main__":
    unittest.main()
