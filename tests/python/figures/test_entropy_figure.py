"""The figure of acceptance against the target's entropy, from a made-up run whose rows have entropies."""

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
import synthetic_run

from figures import record, style
from figures.simulated import entropy


class Entropy(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name) / "run"
        synthetic_run.write(self.folder)

    def add_entropies(self):
        """Adds entropies: below 1 for a row that accepted its token, otherwise above 1."""
        for file in (self.folder / "cases").glob("*.jsonl"):
            lines = [json.loads(line) for line in file.read_text().splitlines()]
            for line in lines:
                rng = random.Random(f"{line['case']} {line['prompt']} {line['repeat']}")
                entropies, pending = [9.0] * len(line["tokens"]), 0
                for step in line["steps"]:
                    for place in range(step["emitted"]):
                        low = place < step["accepted"]
                        entropies[pending + 1 + place] = round(rng.uniform(0, 1) + (0 if low else 1), 4)
                    pending += step["emitted"]
                line["target_entropy"] = entropies
            file.write_text("".join(json.dumps(line) + "\n" for line in lines))

    def test_a_run_without_entropies_has_no_figure(self):
        with self.assertRaisesRegex(record.NotApplicable, "row_details"):
            entropy.draw(record.Run(self.folder))

    def test_each_token_has_the_entropy_of_the_row_that_judged_it(self):
        self.add_entropies()
        run = record.Run(self.folder)
        case = next(case for case in run.speculative if (case.gamma or 0) >= 4)
        found = entropy.samples(case)
        tested = sum(
            token["tested"]
            for line in case.lines()
            if line["repeat"] == 0
            for step in line["steps"]
            for token in step["tokens"][: step["emitted"]]
        )
        self.assertEqual(len(found), tested)
        wrong = [sample for sample in found if (sample[1] < 1) != sample[2]]
        self.assertEqual(wrong, [])
        ends = entropy.ends_of_bins([value for _, value, _ in found])
        bins = entropy.tally(found, ends)
        self.assertEqual(len(bins), entropy.BINS)
        counts = [count for _, count, _ in bins]
        self.assertLessEqual(max(counts) - min(counts), 2)
        self.assertGreater(bins[0][2] / bins[0][1], 0.9)
        self.assertLess(bins[-1][2] / bins[-1][1], 0.1)

    def test_a_position_of_a_trace_counts_once(self):
        self.add_entropies()
        run = record.Run(self.folder)
        case = next(case for case in run.speculative if (case.gamma or 0) >= 4)
        case.data["options"] = {"emit_at_most": 1}
        steps = sum(1 for line in case.lines() if line["repeat"] == 0 for step in line["steps"] if step["tokens"])
        self.assertEqual(len(entropy.samples(case)), steps)

    def test_the_figure_fits_a_column(self):
        self.add_entropies()
        with matplotlib.rc_context(style.RC):
            drawn = entropy.draw(record.Run(self.folder))
            drawn.canvas.draw()
            self.assertAlmostEqual(drawn.get_figwidth(), 3.35)
            top, bottom = drawn.axes
            self.assertEqual(len(bottom.get_lines()), len(synthetic_run.CATEGORIES))
            self.assertGreater(len(top.containers), 1)
            for axes in drawn.axes:
                box = axes.get_tightbbox().transformed(drawn.dpi_scale_trans.inverted())
                self.assertGreater(box.x0, -0.02)
                self.assertLess(box.x1, 3.37)
            plt.close(drawn)


if __name__ == "__main__":
    unittest.main()
