"""The training curves of a folder of heads, drawn by scripts/report.py from a made-up card."""

import contextlib
import io
import json
import pathlib
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "scripts"))

import matplotlib
import matplotlib.pyplot as plt
import report

from figures import record, style
from figures.training import head_curves

CURVE = [
    dict(
        step=step,
        tokens=100 * step,
        seconds=float(step),
        alpha=[0.1 + step / 100, 0.05 + step / 200],
        loss=5 - step / 50,
    )
    for step in (0, 20, 40)
]


class HeadCurves(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def write(self, curve):
        (self.folder / "head.json").write_text(json.dumps({"kind": "medusa", "training": {"curve": curve}}))

    def report(self, *options):
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = report.main([str(self.folder), *options])
        return status, out.getvalue(), err.getvalue()

    def drawn(self, curve):
        self.write(curve)
        with matplotlib.rc_context(style.RC):
            figure = head_curves.draw(head_curves.Head(self.folder))
            figure.canvas.draw()
        self.addCleanup(plt.close, figure)
        return figure

    def test_the_curves_are_those_of_the_card(self):
        figure = self.drawn(CURVE)
        accepted, loss = figure.axes
        steps = [0, 20, 40]
        self.assertEqual(
            [[list(xy) for xy in line.get_data()] for line in accepted.get_lines()],
            [[steps, [point["alpha"][head] for point in CURVE]] for head in range(2)],
        )
        (line,) = loss.get_lines()
        self.assertEqual([list(xy) for xy in line.get_data()], [steps, [point["loss"] for point in CURVE]])
        (legend,) = figure.legends
        self.assertEqual([text.get_text() for text in legend.get_texts()], ["drafted token 1", "drafted token 2"])
        self.assertAlmostEqual(figure.get_figwidth(), 3.35)
        looks = {(line.get_marker(), line.get_linestyle()) for line in accepted.get_lines()}
        self.assertEqual(len(looks), 2, "readable in grey")

    def test_of_many_heads_some_are_shown(self):
        for count, shown in ((1, [1]), (8, list(range(1, 9))), (16, [1, 3, 5, 7, 10, 12, 14, 16])):
            figure = self.drawn([point | {"alpha": [0.5] * count} for point in CURVE])
            names = [text.get_text() for text in figure.legends[0].get_texts()]
            self.assertEqual(names, [f"drafted token {number}" for number in shown])

    def test_report_draws_a_folder_of_heads(self):
        self.write(CURVE)
        status, out, err = self.report()
        self.assertEqual((status, err), (0, ""))
        self.assertIn(f"1 figures in {self.folder / 'figures'}", out)
        files = sorted(file.name for file in (self.folder / "figures").iterdir())
        self.assertEqual(files, ["head_training.pdf", "head_training.svg"])

    def test_cards_without_a_curve_are_named(self):
        self.write(CURVE[:1])
        status, out, err = self.report()
        self.assertEqual(status, 0)
        self.assertIn("0 figures", out)
        self.assertIn("no head_training: the card has no curve", err)
        self.write([{key: value for key, value in point.items() if key != "loss"} for point in CURVE])
        status, _, err = self.report()
        self.assertEqual(status, 2)
        self.assertIn("head.json: training.curve/0 has no loss; train again", err)
        (self.folder / "head.json").write_text("[1")
        self.assertRaisesRegex(record.BadRun, "no card of heads", head_curves.Head, self.folder)
        (self.folder / "head.json").write_text("[1]")
        self.assertRaisesRegex(record.BadRun, "no card of heads", head_curves.Head, self.folder)

    def test_options_of_reports_are_refused(self):
        self.write(CURVE)
        for option in (["--out", "x.html"], ["--summary", "x.json"], ["--no-figures"]):
            status, _, err = self.report(*option)
            self.assertEqual(status, 2)
            self.assertIn(f"is a folder of heads. It has figures and no report; leave out {option[0]}", err)
        self.assertFalse((self.folder / "figures").exists())


if __name__ == "__main__":
    unittest.main()
