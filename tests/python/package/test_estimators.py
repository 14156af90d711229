"""scripts/studies/estimators.py: the study of estimators on a few runs, and its page."""

import json
import pathlib
import sys
import tempfile
import unittest
from unittest import mock

import installed

installed.use()
sys.path.insert(0, str(installed.ROOT / "scripts/studies"))

import estimators

from speclab import theory


def made_up_study():
    """A study with numbers that are easy to find in the page."""
    best = {
        cost: {"speeds": [1, 1.5], "gamma": 5, "speed": 1.25, "iid_gamma": 3, "loss": 0.011}
        for cost in estimators.COSTS
    }
    truth = {
        "i.i.d.": {"description": "independent", "alpha": 0.75, "tau": 3.05, "best": best},
        "switching": {
            "description": "easy and hard",
            "alpha": 0.8,
            "tau": 2.9,
            "best": {cost: {**best[cost], "loss": 0.021 + 0.01 * i, "iid_gamma": 7} for i, cost in enumerate(best)},
        },
    }
    cells = [
        {
            "process": name,
            "prompts": prompts,
            "alpha_mle": {
                "bias": 0.0012,
                "sd": 0.02,
                "coverage": 0.91,
                "width": 0.1,
                "wilson_coverage": 0.6 + prompts / 1000,
            },
            "alpha_min": {"bias": -0.0001, "sd": 0.01, "coverage": 0.92, "width": 0.1},
            "tau": {"bias": 0.01, "sd": 0.1, "coverage": 0.8 + prompts / 1000, "width": 0.4},
            "losses": {cost: {"mean": 0.0123 + prompts / 10000, "p95": 0.05} for cost in estimators.COSTS},
        }
        for name in truth
        for prompts in estimators.PROMPTS
    ]
    return {
        "format": estimators.FORMAT,
        "gamma": 4,
        "tokens": 127,
        "longest": 16,
        "level": 0.95,
        "replicates": 400,
        "seed": 1,
        "processes": truth,
        "cells": cells,
    }


class Page(unittest.TestCase):
    def test_the_numbers_of_the_file_are_on_it(self):
        page = estimators.page_of(made_up_study())
        for text in (
            "| i.i.d. | independent | 0.7500 | 3.0500 |",
            "| switching | 80 | +0.0012 | 0.0200 | 91.0 % | 68.0 % | -0.0001 | 0.0100 | 92.0 % | +0.0100 | 0.1000 | 88.0 % |",
            "| 1.3 % | 1.5 % | 2.0 % |",
            "smallest coverage is 60.9 % (i.i.d., 9 prompts)",
            "the largest loss of speed is 4.1 % (switching, c = 0.05, each row 5 %: gamma 7 instead of 5)",
            "standard error of about 1.1 %",
        ):
            self.assertIn(text, page)
        rows = [line for line in page.splitlines() if line.startswith("|")]
        self.assertEqual(len(rows), 3 * 2 + 2 + 6 + 6)

    def test_the_kept_page_is_that_of_the_kept_file(self):
        if not estimators.JSON_FILE.exists():
            self.assertFalse(estimators.PAGE.exists(), "a page without its numbers")
            return
        page = estimators.page_of(estimators.read_study(estimators.JSON_FILE))
        self.assertEqual(estimators.PAGE.read_text(encoding="utf-8"), page)

    def test_another_file_is_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "a.json"
            file.write_text("{}")
            with self.assertRaises(SystemExit):
                estimators.read_study(file)


class Study(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        words = ["measure", "--replicates", "40", "--jobs", "2"]
        words += ["--json", str(cls.folder / "e.json"), "--page", str(cls.folder / "e.md")]
        estimators.main(words)
        cls.study = json.loads((cls.folder / "e.json").read_text())

    def test_all_processes_at_all_sizes(self):
        found = {(one["process"], one["prompts"]) for one in self.study["cells"]}
        self.assertEqual(found, {(name, n) for name in estimators.DESCRIPTIONS for n in estimators.PROMPTS})
        self.assertIn("| recorded | 80 |", (self.folder / "e.md").read_text())

    def test_the_iid_process_is_estimated_rightly(self):
        truth = self.study["processes"]["i.i.d."]
        self.assertAlmostEqual(truth["alpha"], 0.75, places=9)
        for one in self.study["cells"]:
            if one["process"] != "i.i.d.":
                continue
            for key in ("alpha_mle", "tau"):
                self.assertLess(abs(one[key]["bias"]), 4.5 * one[key]["sd"] / 40**0.5 + 0.002)
            self.assertGreater(one["alpha_mle"]["wilson_coverage"], 0.8)
            self.assertGreater(one["tau"]["coverage"], 0.7)
            self.assertLess(one["losses"]["c = 0.2, rows free"]["mean"], 0.02)

    def test_wilson_is_too_narrow_where_prompts_differ(self):
        by_key = {(one["process"], one["prompts"]): one for one in self.study["cells"]}
        differs = by_key["random effect", 80]["alpha_mle"]
        self.assertLess(differs["wilson_coverage"], 0.75)
        self.assertGreater(differs["coverage"], differs["wilson_coverage"])

    def test_losses_compare_with_the_best_gamma(self):
        for truth in self.study["processes"].values():
            for best in truth["best"].values():
                self.assertEqual(best["speed"], max(best["speeds"]))
                self.assertAlmostEqual(best["speeds"][0], 1, places=6)
                self.assertGreaterEqual(best["loss"], 0)
                self.assertLess(best["loss"], 0.5)
        best = self.study["processes"]["i.i.d."]["best"]["c = 0.05, rows free"]
        self.assertEqual(
            best["iid_gamma"], theory.optimal_gamma(self.study["processes"]["i.i.d."]["alpha"], 0.05, 16).gamma
        )

    def test_seeds_differ(self):
        seeds = {
            estimators.seed_of(1, name, prompts, replicate)
            for name in estimators.DESCRIPTIONS
            for prompts in estimators.PROMPTS
            for replicate in range(3)
        }
        self.assertEqual(len(seeds), 3 * len(estimators.DESCRIPTIONS) * len(estimators.PROMPTS))

    def test_too_wide_intervals_are_seen(self):
        """A control: an interval that always holds the truth has coverage 1."""
        with mock.patch.object(estimators, "tau_of", lambda run: (2.5, (0, 100))):
            truth = estimators.truth_of("i.i.d.")
            cell = estimators.cell("i.i.d.", 9, truth, 3, 1)
        self.assertEqual(cell["tau"]["coverage"], 1)
        self.assertAlmostEqual(cell["tau"]["bias"], 2.5 - truth["tau"])


if __name__ == "__main__":
    unittest.main()
