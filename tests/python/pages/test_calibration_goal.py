"""The section of results/README.md about the goal of the calibration, on made-up records."""

import pathlib
import sys
import types
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / folder) for folder in ("scripts", "scripts/pages")]

import calibration_goal


def quickstart(folder, shares, cpu_share=0.98):
    """A record with the reference and one case for each unexplained share."""

    def case(share):
        last = {"step": "measured", "residual_share": 0.5, "unexplained_share": share, "unexplained_share_ci95": None}
        return types.SimpleNamespace(
            waterfall=[] if share is None else [last], metric=lambda name: {"cpu_share": cpu_share}.get(name)
        )

    return types.SimpleNamespace(folder=pathlib.Path("results/baselines") / folder, cases=[*map(case, [None, *shares])])


class Goal(unittest.TestCase):
    def three(self, shares, **more):
        return [quickstart(f"m/quickstart{name}", shares, **more) for name in ("", "-2", "-3")]

    def test_three_good_runs_show_it(self):
        self.assertEqual(calibration_goal.section(self.three([0.03] * 9)), "")
        good = [*self.three([-0.03] * 9)[:2], quickstart("m/quickstart-3", [0.02] * 7 + [0.2, -0.2])]
        self.assertEqual(calibration_goal.section(good), "", "25 of 27")

    def test_what_is_missing_is_listed(self):
        for runs, row in (
            (self.three([0.01] * 9)[:2], "| m | 2 of 3 | 18 of 18 cases | 0.980 to 0.980 |"),
            (self.three([0.01] * 8 + [-0.031]), "| m | 3 of 3 | 24 of 27 cases | 0.980 to 0.980 |"),
            (self.three([0.01] * 9, cpu_share=0.96), "| m | 3 of 3 | 27 of 27 cases | 0.960 to 0.960 |"),
            (self.three([0.01] * 9, cpu_share=None), "| m | 3 of 3 | 27 of 27 cases | unknown |"),
        ):
            with self.subTest(row):
                self.assertIn(f"\n{row}\n", calibration_goal.section(runs))

    def test_only_quickstarts_count_and_each_machine_by_itself(self):
        runs = [*self.three([0.01] * 9), quickstart("other/quickstart", [0.01]), quickstart("third/budget", [0.9])]
        section = calibration_goal.section(runs)
        self.assertIn("| other | 1 of 3 | 1 of 1 cases |", section)
        self.assertNotIn("| m |", section)
        self.assertNotIn("third", section)
        self.assertEqual(calibration_goal.section([]), "")
        self.assertIn("--set repeats=3", section)


if __name__ == "__main__":
    unittest.main()
