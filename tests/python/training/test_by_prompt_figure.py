"""The figure of acceptance in the order of the prompts, from a made-up run with a case that learns."""

import copy
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
import synthetic_run

from figures import record, style
from figures.training import by_prompt

STILL = "speculative_sampling/draft=distilled/gamma=4"
LEARNING = "online_speculation/draft=distilled/gamma=4/keep=true"


class ByPrompt(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name) / "run"
        synthetic_run.write(self.folder)

    def add_learning_case(self):
        """A copy of a case of chains, in which every tested token of the last prompt is accepted."""
        file = self.folder / "summary.json"
        summary = json.loads(file.read_text())
        case = copy.deepcopy(next(case for case in summary["cases"] if case["id"] == STILL))
        lines = [json.loads(line) for line in (self.folder / case["file"]).read_text().splitlines()]
        case.update(id=LEARNING, strategy="online_speculation", file="cases/learning.jsonl")
        for line in lines:
            line["case"] = LEARNING
            for step in line["steps"] if line["prompt"] == "3" else ():
                for token in step["tokens"]:
                    token["accepted"] = token["tested"]
        (self.folder / case["file"]).write_text("".join(json.dumps(line) + "\n" for line in lines))
        summary["cases"].append(case)
        file.write_text(json.dumps(summary))

    def test_a_run_without_a_case_that_learns_has_no_figure(self):
        with self.assertRaisesRegex(record.NotApplicable, "online_speculation"):
            by_prompt.draw(record.Run(self.folder))

    def test_the_curves_are_the_shares_of_the_record(self):
        self.add_learning_case()
        run = record.Run(self.folder)
        cases = by_prompt.comparable(run)
        self.assertEqual([case.id for case in cases], [STILL, LEARNING], "same draft, draft length, rule and sampling")
        with matplotlib.rc_context(style.RC):
            drawn = by_prompt.draw(run)
        (axes,) = drawn.axes
        shares = []
        for case in cases:
            of_case = []
            for prompt in ("1", "2", "3"):
                tokens = [
                    token["accepted"]
                    for line in case.lines()
                    if line["prompt"] == prompt and line["repeat"] == 0
                    for step in line["steps"]
                    for token in step["tokens"]
                    if token["tested"]
                ]
                of_case.append(sum(tokens) / len(tokens))
            shares.append(of_case)
        lines = [line for line in axes.get_lines() if len(line.get_xdata()) == 3]
        self.assertEqual([[1, 2, 3]] * 2, [list(line.get_xdata()) for line in lines])
        self.assertEqual(shares, [list(line.get_ydata()) for line in lines])
        self.assertEqual(shares[1][2], 1)
        self.assertLess(shares[0][2], 1)
        switches = [line.get_xdata()[0] for line in axes.get_lines() if len(line.get_xdata()) == 2]
        self.assertEqual(switches, [1.5, 2.5], "each prompt of the made-up run has a category of its own")
        plt.close(drawn)

    def test_one_prompt_shows_no_order(self):
        self.add_learning_case()
        for file in (self.folder / "cases").glob("*.jsonl"):
            lines = [line for line in file.read_text().splitlines() if json.loads(line)["prompt"] == "1"]
            file.write_text("".join(line + "\n" for line in lines))
        with self.assertRaisesRegex(record.NotApplicable, "two prompts"):
            by_prompt.draw(record.Run(self.folder))


if __name__ == "__main__":
    unittest.main()
