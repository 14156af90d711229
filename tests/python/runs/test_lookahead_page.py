"""The page that compares runs of lookahead and Jacobi decoding with published numbers."""

import json
import pathlib
import sys
import tempfile
import unittest

import synthetic_run

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "scripts/pages"))

import lookahead_page

VERDICT = {
    "best": {"W": 1, "N": 3, "G": 1, "tau": 1.2, "speedup": 1.05},
    "degenerate": True,
    "never_slower": True,
    "ratio_noise": 0.012,
    "measured": [
        {"role": "recommended", "W": 1, "N": 3, "G": 1, "tau": 1.21, "speedup": 1.04, "speedup_ci95": [1.01, 1.07]}
        | {"predicted": {"tau": 1.2, "speedup": 1.05}, "verdict": "faster"}
    ],
    "by_free_rows": [{"rows": 128, "W": 16, "N": 5, "G": 16, "tau": 1.7, "speedup": 1.69}],
}


class LookaheadPage(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.run_folder = self.folder / "run"
        synthetic_run.write(self.run_folder)
        file = self.run_folder / "summary.json"
        summary = json.loads(file.read_text())
        summary["cases"][1]["published"] = [
            {
                "source": "a paper | its table",
                "category": "maths",
                "reason": "a larger model",
                "values": [
                    {"name": "speedup", "published": 1.89, "here": 0.5},
                    {"name": "tau", "published": 1.96, "here": 1.53},
                ],
            }
        ]
        summary["lookahead"] = [
            {"alpha": 0.4, "alpha_ci95": [0.3, 0.5], "f": 2.5, "f_ci95": None, "share": None, "cells": [{}] * 7}
            | {
                "held_out": [
                    {"what": "prompts", "cells": 7, "interpolated": 7, "error": None, "mean_error": None}
                    | {"error_other_prompts": 0.083, "mean_error_other_prompts": 0.12},
                    {"what": "W", "cells": 7, "interpolated": 4, "error": 0.021, "mean_error": 0.11}
                    | {"error_other_prompts": 0.09, "mean_error_other_prompts": 0.14},
                ],
                "machines": [],
            }
        ]
        summary["lookahead_devices"] = [
            {"devices": 2, "rows": [50.2, 61.0], "most_rows": [58, 69], "equal": True, "slowest_ms": 12.0}
            | {"speedup": 0.81, "predicted_speedup": 0.84}
        ]
        file.write_text(json.dumps(summary))
        (self.run_folder / "verdict").mkdir()
        (self.run_folder / "verdict" / "verdict.json").write_text(json.dumps(VERDICT))

    def page(self, *more):
        out = self.folder / "page.md"
        self.assertEqual(lookahead_page.main([str(self.run_folder), "--out", str(out), *more]), 0)
        return out.read_text()

    def test_published_numbers_law_and_verdict(self):
        page = self.page()
        self.assertIn(", maths | tau | 1.96 | 1.53 | a paper \\| its table | a larger model |", page)
        self.assertIn("| speedup | 1.89 | 0.50 |", page)
        self.assertIn("fitted to 7 cases: alpha 0.40 [0.30, 0.50] (n = 3), f 2.50.", page)
        self.assertIn("| no cell, half of the prompts | 7 | 7 |  |  | 8.3 % | 12.0 % |", page)
        self.assertIn("| all cells with the same W | 7 | 4 | 2.1 % | 11.0 % | 9.0 % | 14.0 % |", page)
        self.assertIn("| 2 | 50 61 | 58 69 | yes | 12.00 | 0.81 | 0.84 |", page)
        self.assertIn("Degenerate: a window of one column", page)
        self.assertIn("| recommended | 1 | 3 | 1 | 1.20 | 1.21 | 1.05 | 1.04 [1.01, 1.07] (n = 3) | faster |", page)
        self.assertIn("differs by up to 1.2 % between repeats", page)
        self.assertIn("as fast as autoregressive decoding? Yes, or at most 5 % slower.", page)

    def write_verdict(self, **changes):
        (self.run_folder / "verdict" / "verdict.json").write_text(json.dumps(dict(VERDICT, **changes)))

    def test_a_verdict_that_is_none_says_so(self):
        self.write_verdict(ratio_noise=None, never_slower=None)
        page = self.page()
        self.assertIn("There are no repeats", page)
        self.assertIn("autoregressive decoding? Not decided.", page)
        self.write_verdict(never_slower=False)
        self.assertIn("autoregressive decoding? NO, it is slower.", self.page())

    def test_older_records_judge_nothing(self):
        old = {key: value for key, value in VERDICT.items() if key != "ratio_noise"}
        (self.run_folder / "verdict" / "verdict.json").write_text(json.dumps(dict(old, noise_floor=0.358)))
        file = self.run_folder / "summary.json"
        summary = json.loads(file.read_text())
        del summary["lookahead"][0]["held_out"]
        summary["lookahead"][0] |= {"held_out_error": 0.021, "mean_error": 0.11}
        file.write_text(json.dumps(summary))
        page = self.page()
        self.assertIn("| 1.04 [1.01, 1.07] (n = 3) | not judged |", page)
        self.assertNotIn("at most 5 %", page)
        self.assertIn("This record has no verdict", page)
        self.assertIn("f 2.50.", page)
        self.assertNotIn("2.1 %", page)

    def test_without_times_only_tokens_per_step_are_told(self):
        page = self.page("--no-times")
        self.assertIn("| tau | 1.96 | 1.53 |", page)
        self.assertNotIn("speedup", page)
        self.assertNotIn("Recommended", page)
        self.assertIn("| 2 | 50 61 | 58 69 | yes |", page)

    def test_a_busy_machine_is_told_beside_times(self):
        file = self.run_folder / "summary.json"
        machine = {"busy": True, "text": "Busy machine: so."}
        file.write_text(json.dumps(dict(json.loads(file.read_text()), machine=machine)))
        self.assertIn("**Busy machine: so.**", self.page())
        self.assertNotIn("Busy", self.page("--no-times"))

    def test_a_run_that_is_not_complete_is_refused(self):
        file = self.run_folder / "summary.json"
        file.write_text(json.dumps(dict(json.loads(file.read_text()), complete=False)))
        self.assertEqual(lookahead_page.main([str(self.run_folder), "--out", str(self.folder / "page.md")]), 2)


if __name__ == "__main__":
    unittest.main()
