"""Figures of simulated devices: they fit a column, are readable, and say on every axis that they are simulated."""

import contextlib
import io
import json
import pathlib
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / folder) for folder in ("scripts", "scripts/pages", "tests/python/runs")]

import device_simulations
import devices_page
import matplotlib
import matplotlib.pyplot as plt
import matplotlib.text

from figures import style
from figures.simulated import devices

CASES = {"speculative_sampling/draft=distilled/gamma=2": (1.7, 1.4), "prompt_lookup/length=5": (2.0, 1.6)}


class Figures(unittest.TestCase):
    def check(self, draw, *arguments):
        with matplotlib.rc_context(style.RC):
            figure = draw(*arguments)
            self.addCleanup(plt.close, figure)
            figure.canvas.draw()
            self.assertAlmostEqual(figure.get_figwidth(), 3.35)
            for text in figure.findobj(matplotlib.text.Text):
                if text.get_text():
                    self.assertGreaterEqual(text.get_fontsize(), 7, text.get_text())
            for axes in figure.axes:
                box = axes.get_tightbbox().transformed(figure.dpi_scale_trans.inverted())
                self.assertGreater(box.x0, -0.02)
                self.assertLess(box.x1, 3.37)
        return figure

    def test_sweeps(self):
        for axis in devices.AXES:
            with self.subTest(axis):
                sweep = device_simulations.sweep(CASES, axis, "H100 SXM 80 GB")
                figure = self.check(devices.sweep_figure, sweep, lambda case: case.split("/")[0])
                axes = figure.axes[0]
                self.assertIn("simulated", axes.get_xlabel())
                self.assertIn("simulated", axes.get_ylabel())
                self.assertIn("H100", axes.get_xlabel())
                curves = [line for line in axes.lines if len(line.get_xdata()) == len(sweep["points"])]
                shown = sorted(list(line.get_ydata()) for line in curves)
                self.assertEqual(shown, sorted(case["speedup"] for case in sweep["cases"] if case["speedup"]))
                marks = [line for line in axes.lines if len(line.get_xdata()) == 1]
                self.assertEqual({line.get_xdata()[0] for line in marks}, {2.5})

    def test_a_break_even_is_on_the_line_of_one(self):
        figure = self.check(devices.sweep_figure, device_simulations.sweep(CASES, "rows", None))
        marks = [line for line in figure.axes[0].lines if len(line.get_xdata()) == 1]
        self.assertTrue(all(line.get_ydata()[0] == 1 for line in marks))

    def test_timelines(self):
        rows = device_simulations.timelines(["serial", "pearl", "amusd", "dsi"])["timelines"]
        figure = self.check(devices.timeline_figure, rows, "H100")
        self.assertEqual(len(figure.axes), 4)  # the draft without segments has no panel
        self.assertIn("simulated", figure.axes[-1].get_xlabel())
        self.assertTrue(all("simulated speedup 1.75" in axes.get_title(loc="left") for axes in figure.axes))
        colours = {patch.get_facecolor() for patch in figure.axes[0].patches}
        self.assertEqual(len(colours), 2)

    def test_the_command_draws_what_simulate_printed(self):
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            for name, content in (
                ("ridge", [device_simulations.sweep(CASES, "ridge", None)]),
                ("overlap", [device_simulations.timelines(["serial", "pearl"])]),
            ):
                (folder / f"{name}.json").write_text(json.dumps(content))
                status = devices_page.main(["figure", str(folder / f"{name}.json"), str(folder / f"{name}.svg")])
                self.assertEqual(status, 0)
                self.assertGreater((folder / f"{name}.svg").stat().st_size, 1000)
            (folder / "bad.json").write_text("[{}]")
            with contextlib.redirect_stderr(io.StringIO()) as err:
                self.assertEqual(devices_page.main(["figure", str(folder / "bad.json"), str(folder / "x.svg")]), 2)
            self.assertIn("neither a sweep nor timelines", err.getvalue())


if __name__ == "__main__":
    unittest.main()
