"""The page that compares budget "auto" with the best fixed setting, on two made-up runs whose answer is known."""

import contextlib
import io
import json
import pathlib
import re
import sys
import tempfile
import unittest

from timed_run import PLAIN, write_run

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "scripts/pages"))

import budget_page

AUTO = "speculative_sampling/draft=d/budget=auto"
SHORT, LONG = (f"speculative_sampling/draft=d/gamma={gamma}/budget=fixed" for gamma in (1, 2))
# Time per token by category. Where settings are chosen, SHORT is best in a and LONG in b and over all.
CHOSEN_ON = {PLAIN: {"a": 10, "b": 10}, AUTO: {"a": 7, "b": 7}, SHORT: {"a": 5, "b": 9}, LONG: {"a": 8, "b": 4}}
# Where they are measured, LONG is best in a. A page that chose there would say 0.67 for a in place of 0.83.
MEASURED_ON = {PLAIN: {"a": 10, "b": 10}, AUTO: {"a": 6, "b": 4}, SHORT: {"a": 5, "b": 8}, LONG: {"a": 4, "b": 4}}


class BudgetPage(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.chosen_on = write_run(self.folder / "chosen", CHOSEN_ON, {"1": "a", "2": "a", "3": "b", "4": "b"})
        self.prompts = {"5": "a", "6": "a", "7": "b", "8": "b"}

    def measured(self, times=None, prompts=None, **more):
        return write_run(self.folder / "measured", times or MEASURED_ON, prompts or self.prompts, **more)

    def call(self, *arguments):
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = budget_page.main([str(argument) for argument in arguments])
        return code, out.getvalue(), err.getvalue()

    def rows(self, folder):
        found = budget_page.rows(budget_page.Sweep(self.chosen_on), budget_page.Sweep(folder))
        return {row["category"]: row for row in found}

    def test_settings_are_chosen_on_other_prompts_than_they_are_measured_on(self):
        rows = self.rows(self.measured())
        self.assertEqual(list(rows), ["a", "b", "all"])
        self.assertEqual([row["setting"] for row in rows.values()], [SHORT, LONG, LONG])
        for category, auto, fixed in (("a", 10 / 6, 2), ("b", 2.5, 2.5), ("all", 2, 2.5)):
            self.assertAlmostEqual(rows[category]["auto"], auto)
            self.assertAlmostEqual(rows[category]["fixed"], fixed)
            self.assertAlmostEqual(rows[category]["ratio"], auto / fixed)
        low, high = rows["a"]["ratio_interval"]
        self.assertAlmostEqual(low, 5 / 6 / 1.02)
        self.assertAlmostEqual(high, 5 / 6 * 1.02)
        self.assertEqual(rows["a"]["verdict"], "NO")
        self.assertEqual(rows["b"]["verdict"], "yes")
        self.assertEqual(rows["a"]["prompts"], 2)
        low, high = rows["all"]["ratio_interval"]
        self.assertLess(low, 0.8)
        self.assertGreater(high, 0.8)

    def test_noise_makes_a_verdict_unclear(self):
        rows = self.rows(self.measured(noise=0.2))
        self.assertEqual(rows["a"]["verdict"], "unclear", "0.83 and 20 % of noise")
        self.assertEqual(rows["b"]["verdict"], "unclear")
        self.assertEqual(self.rows_of_one_prompt()["a"]["verdict"], "unclear: one prompt")

    def rows_of_one_prompt(self):
        folder = write_run(self.folder / "few", MEASURED_ON, {"5": "a", "7": "b"})
        return self.rows(folder)

    def test_the_page_and_the_filter(self):
        code, out, err = self.call(self.chosen_on, self.measured())
        self.assertEqual((code, err), (0, ""))
        self.assertIn("| speculative_sampling | d | a | 2 | 1.67", out)
        self.assertIn("| gamma=1 | 2.00 | 0.83 [0.82, 0.85] | NO |", out)
        self.assertIn("tiny on a processor, 2 threads, f32, 2026-01-01. Settings chosen on 4 prompts", out)
        page = self.folder / "page.md"
        self.assertEqual(self.call(self.chosen_on, self.folder / "measured", "--out", page)[0], 0)
        self.assertEqual(page.read_text(), out)
        code, out, _ = self.call(self.chosen_on, "--filter")
        self.assertEqual(code, 0)
        kept = [case for case in CHOSEN_ON if re.search(out.strip(), case)]
        self.assertEqual(kept, list(CHOSEN_ON))
        self.assertFalse(re.search(out.strip(), SHORT + "/gamma=1"))

    def test_the_filter_leaves_out_what_was_not_chosen(self):
        worse = {**CHOSEN_ON, "speculative_sampling/draft=d/gamma=[3,1]/budget=fixed": {"a": 99, "b": 99}}
        folder = write_run(self.folder / "more", worse, {"1": "a", "3": "b"})
        pattern = budget_page.case_filter(budget_page.Sweep(folder))
        self.assertEqual([case for case in worse if re.search(pattern, case)], list(CHOSEN_ON))

    def test_runs_that_cannot_be_compared_are_refused(self):
        def refused(text, times=None, prompts=None, **more):
            folder = write_run(
                self.folder / f"bad{len(list(self.folder.iterdir()))}",
                times or MEASURED_ON,
                prompts or self.prompts,
                **more,
            )
            code, _, err = self.call(self.chosen_on, folder)
            self.assertEqual(code, 2, text)
            self.assertIn(text, err)

        refused("a prompt on which settings were chosen", prompts={"4": "b", "5": "a"})
        refused("its target differs", target="other")
        refused("its d differs", draft="other")
        refused(f"no case {SHORT}", {case: MEASURED_ON[case] for case in (PLAIN, AUTO, LONG)})
        refused('with budget "auto"', {case: MEASURED_ON[case] for case in (PLAIN, SHORT, LONG)})
        folder = self.measured()
        file = folder / "cases/1.jsonl"
        file.write_text("".join(line + "\n" for line in file.read_text().splitlines() if '"prompt": "8"' not in line))
        code, _, err = self.call(self.chosen_on, folder)
        self.assertEqual(code, 2)
        self.assertIn(f"{AUTO} has no finished line of prompt 8", err)
        with self.assertRaises(SystemExit), contextlib.redirect_stderr(io.StringIO()):
            budget_page.main([str(self.chosen_on), str(self.folder / "measured"), "--filter"])

    def test_one_run_shows_whether_defaults_are_slower_than_plain_decoding(self):
        code, out, err = self.call(self.measured())
        self.assertEqual((code, err), (0, ""))
        self.assertRegex(out, r"\| 2.00 \[1\.\d+, 2\.\d+\] \| yes \| 1.67 \| 2.50 \|")
        self.assertNotIn("gamma", out, "fixed settings are not judged")
        slow = {**MEASURED_ON, AUTO: {"a": 12, "b": 11}}
        code, out, _ = self.call(write_run(self.folder / "slow", slow, self.prompts))
        self.assertEqual(code, 1)
        self.assertIn("| NO | 0.83 | 0.91 |", out)
        code, out, _ = self.call(write_run(self.folder / "noisy", slow, self.prompts, noise=0.3))
        self.assertEqual(code, 0, "the loss may be noise")
        self.assertIn("unclear: 1.", out)

    def test_its_config_sweeps_every_strategy_that_has_a_budget(self):
        having = {
            file.stem
            for file in (ROOT / "strategies").glob("*.cpp")
            for text in [file.read_text(encoding="utf-8")]
            if re.search(r"BudgetOptions budget;", text) and '.needs_file = "head"' not in text  # no head is shipped
        }
        self.assertGreater(len(having), 12)
        for name in ("budget", "budget_best_fixed"):
            found = {"auto": set(), "fixed": set()}
            for case in json.loads((ROOT / f"configs/{name}.json").read_text(encoding="utf-8"))["cases"]:
                strategies = case["strategy"] if isinstance(case["strategy"], list) else [case["strategy"]]
                budgets = case.get("budget", [])
                for budget in budgets if isinstance(budgets, list) else [budgets]:
                    found[budget].update(strategies)
            self.assertEqual(found, {"auto": having, "fixed": having}, name)


if __name__ == "__main__":
    unittest.main()
