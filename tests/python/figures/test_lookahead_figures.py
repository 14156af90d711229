"""Figures of lookahead and Jacobi decoding on made-up records: they draw and show the numbers of the record."""

import json
import pathlib
import random
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

from figures import lookahead, record, style

FIT = {"alpha": 0.4, "f": 2.5, "share": None}
SHAPES = [(w, n, w) for w in (1, 4, 15) for n in (3, 5)] + [(4, 5, 2), (15, 5, 2)]


def step_of(rng, w, n, warm, at):
    """A step with two guesses; the first is right to its end."""
    accepted = rng.randrange(n - 1) if warm else 0
    tokens = []
    for guess in range(2 if warm else 0):
        for k in range(n - 1):
            token = {
                "id": rng.randrange(50),
                "p": -1,
                "q": 1,
                "rank": -1,
                "tested": False,
                "accepted": guess == 0 and k < accepted,
            }
            if k == 0:
                token["parent"] = 0
            tokens.append(token)
    probes, above = [], [0]
    for _ in range(w - 1):
        probes.append([rng.randrange(50), above[-1], -1])
        above.append(len(tokens) + len(probes))
    for _ in range(n - 2 if warm else 0):
        for column in range(w):
            probes.append([rng.randrange(50), above[column], 3])
            above[column] = len(tokens) + len(probes)
    return {
        "source": "pool" if tokens else "",
        "drafted": len(tokens),
        "accepted": accepted,
        "emitted": accepted + 1,
        "ended_by": "rejection",
        "nodes": len(tokens) + 1,
        "rows": 1 + len(tokens) + len(probes),
        "draft_calls": 0,
        "ns": [1, 2, 3, 4],
        "pool": 10 * at,
        "probes": probes,
        "tokens": tokens,
    }


def write(folder):
    synthetic_run.write(folder)
    rng = random.Random(4)
    file = folder / "summary.json"
    summary = json.loads(file.read_text())
    model = next(case for case in summary["cases"] if case["strategy"] == "prompt_lookup")
    cells = []

    def add(strategy, options, metrics, steps):
        name = strategy + "".join(f"/{key}={value}" for key, value in options.items())
        case = dict(model, id=name, strategy=strategy, options=options, file=f"cases/{name.replace('/', '__')}.jsonl")
        case["metrics"] = dict(model["metrics"], **metrics)
        summary["cases"].append(case)
        lines = [synthetic_run.line(rng, name, "1", "chat", 0, 0, steps)]
        (folder / case["file"]).write_text("".join(json.dumps(line) + "\n" for line in lines))
        return name

    for w, n, g in SHAPES:
        tau = lookahead.law(dict(FIT, share=0.5), w, n, g)
        steps = [step_of(rng, w, n, warm=i >= n - 2, at=i) for i in range(20)]
        options = {"W": w, "N": n, "G": g, "accept_window": False, "emulate": "none"}
        rows = (w + g) * (n - 1)
        name = add(
            "lookahead",
            options,
            {
                "tau": tau,
                "tau_ci95": [tau - 0.05, tau + 0.05],
                "rows_per_step": rows,
                "ops_factor": rows / tau,
                "t_n": {"1": 1, "8": 1.5, "120": 9},
            },
            steps,
        )
        cells.append({"case": name, "W": w, "N": n, "G": g, "tau": tau})
    jacobi = []
    for _ in range(12):
        tokens = [
            {"id": rng.randrange(6), "p": -1, "q": 1, "rank": -1, "tested": False, "accepted": False} for _ in range(8)
        ]
        jacobi.append(
            {
                "source": "jacobi",
                "drafted": 8,
                "accepted": 0,
                "emitted": 1,
                "ended_by": "rejection",
                "nodes": 9,
                "rows": 9,
                "draft_calls": 0,
                "ns": [1, 2, 3, 4],
                "tokens": tokens,
            }
        )
    add("jacobi", {"scheme": "sliding", "block": 9, "keep_tail": True}, {}, jacobi)
    summary["lookahead"] = [dict(FIT, cells=cells, machines=[])]
    summary["lookahead_devices"] = [
        {
            "case": f"lookahead/W=4/N=5/G=4/devices={d}",
            "devices": d,
            "speedup": 0.4 * d,
            "predicted_speedup": 0.5 * d,
            "undivided_speedup": 0.3,
        }
        for d in (2, 3, 8)
    ] + [
        {
            "case": "lookahead/W=1/N=5/G=4/devices=4",
            "devices": 4,
            "speedup": None,
            "predicted_speedup": None,
            "undivided_speedup": None,
        }
    ]
    file.write_text(json.dumps(summary))


def setUpModule():
    global RUN
    folder = tempfile.TemporaryDirectory()
    unittest.addModuleCleanup(folder.cleanup)
    RUN = pathlib.Path(folder.name) / "run"
    write(RUN)


class LookaheadFigures(unittest.TestCase):
    def test_every_figure_draws_in_a_column_with_readable_text(self):
        run = record.Run(RUN)
        for figure in lookahead.FIGURES:
            with self.subTest(figure.name), matplotlib.rc_context(style.RC):
                drawn = figure.draw(run)
                drawn.canvas.draw()
                self.assertAlmostEqual(drawn.get_figwidth(), 3.35)
                for text in drawn.findobj(matplotlib.text.Text):
                    if text.get_text():
                        self.assertTrue(text.get_fontsize() >= 7 or "$" in text.get_text(), text.get_text())
                for axes in drawn.axes:
                    box = axes.get_tightbbox().transformed(drawn.dpi_scale_trans.inverted())
                    self.assertGreater(box.x0, -0.02, figure.name)
                    self.assertLess(box.x1, 3.37, figure.name)
                plt.close(drawn)

    def test_the_law_of_the_paper(self):
        self.assertAlmostEqual(lookahead.law({"alpha": 0.425, "f": 3.106, "share": None}, 15, 5, 15), 1.979, delta=5e-4)
        self.assertAlmostEqual(lookahead.law({"alpha": 0.425, "f": 3.106, "share": None}, 7, 5, 7), 1.762, delta=5e-4)

    def test_the_step_with_most_accepted_tokens_is_shown(self):
        run = record.Run(RUN)
        case = next(c for c in run.cases if c.strategy == "lookahead" and c.options["W"] == 4 and c.options["N"] == 5)
        line, at, step = lookahead.one_step(case)
        self.assertEqual(step["accepted"], max(s["accepted"] for s in line["steps"]))
        self.assertEqual(at, sum(s["emitted"] for s in line["steps"][: line["steps"].index(step)]))

    def test_the_setting_with_most_devices_begins_undivided(self):
        drawn = lookahead.draw_devices(record.Run(RUN))
        measured, predicted = (line.get_xydata().tolist() for line in drawn.axes[0].get_lines()[:2])
        self.assertEqual(measured, [[1, 0.3], [2, 0.8], [3, 0.4 * 3], [8, 3.2]])
        self.assertEqual(predicted, [[2, 1], [3, 1.5], [8, 4]])
        plt.close(drawn)

    def test_without_such_cases_nothing_applies(self):
        run = record.Run(RUN)
        run.cases = run.baselines
        run.summary = dict(run.summary, lookahead_devices=[])
        for figure in lookahead.FIGURES:
            self.assertRaises(record.NotApplicable, figure.draw, run)


if __name__ == "__main__":
    unittest.main()
