"""The page that sets schedules beside the best constant length, on made-up runs whose answer is known."""

import contextlib
import io
import json
import pathlib
import sys
import tempfile
import unittest

from timed_run import PLAIN, write_run

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "scripts/pages"))

import schedules_page

BASE = "speculative_sampling/draft=d/gamma="
SHORT, LONG = f"{BASE}2", f"{BASE}6"
QUICK, SLOW = f"{BASE}12/schedule=product/product_threshold=0.3", f"{BASE}12/schedule=bandit/exploration=0"
EQUAL, AUTO = f"{BASE}2/schedule=heuristic", f"{BASE}8/budget=auto"
DEFAULTS = {"confidence_threshold": 0.4, "exploration": 2, "first_threshold": 0.8, "gamma_max": 32}
DEFAULTS |= {"product_threshold": 0.3, "least_samples": 6, "budget": "fixed", "schedule": "constant"}
DEFAULTS |= {"controller": "", "controller_threshold": -1, "goodput_memory": 0.9}
OPTIONS = {
    SHORT: {"gamma": 2},
    LONG: {"gamma": 6},
    QUICK: {"gamma": 12, "schedule": "product"},
    SLOW: {"gamma": 12, "schedule": "bandit", "exploration": 0},
    EQUAL: {"gamma": 2, "schedule": "heuristic"},
    AUTO: {"gamma": 8, "budget": "auto"},
}
OPTIONS = {case: DEFAULTS | own for case, own in OPTIONS.items()}
# Over both categories SHORT is the best constant length: 5 ns a token against 5.5.
TIMES = {PLAIN: {"a": 10, "b": 10}, SHORT: {"a": 6, "b": 4}, LONG: {"a": 4, "b": 7}, QUICK: {"a": 5, "b": 3}}
TIMES |= {SLOW: {"a": 9, "b": 6}, EQUAL: {"a": 6, "b": 4}, AUTO: {"a": 4, "b": 4}}
PROMPTS = {"1": "a", "2": "a", "3": "b", "4": "b"}


def setting(gamma, schedule, threshold, speedup, regret):
    return {
        "gamma": gamma,
        "schedule": schedule,
        "threshold": threshold,
        "speedup": speedup,
        "regret": {"step": regret},
    }


TRACES = {
    "traces": [
        {"case": "speculative_sampling/draft=other/gamma=12", "settings": [], "oracles": {"step": {"speedup": 99}}},
        {
            "case": "speculative_sampling/draft=d/gamma=12/schedule=confidence/confidence_threshold=0",
            "settings": [
                setting(2, "constant", "", 1.9, 0.125),
                setting(12, "product", "0.3", 2.4, 0.0625),
                setting(12, "bandit", "", 1.2, 0.5),
                setting(2, "heuristic", "", 1.3, 0.4),
            ],
            "oracles": {
                "step": {"speedup": 3.25, "ms_per_token": 2.5},
                "length": {"speedup": 1.9, "ms_per_token": 3.5, "gamma": 2},
            },
        },
    ]
}


class SchedulesPage(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def write(self, name, times=TIMES, prompts=PROMPTS, **more):
        return write_run(self.folder / name, times, prompts, options=OPTIONS, **more)

    def call(self, *arguments):
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = schedules_page.main([str(argument) for argument in arguments])
        return code, out.getvalue(), err.getvalue()

    def rows(self, *arguments):
        """The cells of the first table, by the number of the case in the order on the page."""
        code, out, err = self.call(*arguments)
        self.assertEqual((code, err), (0, ""))
        lines = [line for line in out.splitlines() if line.startswith("| ")]
        return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[1:7]], out

    def test_every_schedule_is_compared_with_the_best_constant_length(self):
        rows, out = self.rows(self.write("run"))
        short, long, quick, slow, equal, auto = rows
        self.assertIn("2.00 [", short[1])
        self.assertEqual(short[2:], ["best", ""])
        self.assertEqual(long[3], "", "a constant length gets no verdict")
        self.assertIn("0.91 [", long[2])
        # In a 6 / 5, in b 4 / 3; over all prompts 10 / 8.
        self.assertRegex(quick[2], r"^1\.25 \[1\.1[78], 1\.3[56]\]$")
        self.assertEqual(quick[3], "faster")
        self.assertEqual(slow[3], "slower")
        self.assertEqual(equal[2], "1.00 [0.98, 1.02]", "the noise alone")
        self.assertEqual(equal[3], "no difference")
        self.assertEqual(auto[3], "no difference", "faster in a, equal in b: some resamples have only b")
        self.assertIn("product", quick[0])
        self.assertIn("faster: 1; no difference: 2; slower: 1.", out)
        self.assertIn("tiny on a processor, 2 threads", out)

    def test_noise_makes_a_difference_unclear(self):
        rows, _ = self.rows(self.write("run", noise=0.6))
        self.assertEqual({row[3] for row in rows[2:]}, {"no difference"})
        rows, _ = self.rows(self.write("one", prompts={"1": "a"}))
        self.assertEqual({row[3] for row in rows[2:]}, {"unclear: one prompt"})

    def test_the_constant_length_may_be_chosen_on_other_prompts(self):
        other = {**TIMES, SHORT: {"a": 9, "b": 9}}
        run, chosen = self.write("run"), self.write("other", other, {"5": "a", "6": "b"})
        rows, out = self.rows(run, "--chosen-on", chosen)
        self.assertEqual(rows[1][2:], ["best", ""])
        self.assertTrue(rows[2][2].startswith("1.38 ["), "11 / 8")
        self.assertIn("chosen on 2 other prompts", out)

    def test_replayed_numbers_stand_beside_the_measured_ones(self):
        file = self.folder / "replay.json"
        file.write_text(json.dumps(TRACES))
        rows, out = self.rows(self.write("run"), "--replay", file)
        short, long, quick, slow, equal, auto = rows
        self.assertEqual(short[4:], ["1.90", "0.125"])
        self.assertEqual(long[4:], ["", ""], "the trace was not replayed with this length")
        self.assertEqual(quick[4:], ["2.40", "0.062"])
        self.assertEqual(slow[4:], ["", ""], "it has another exploration")
        self.assertEqual(equal[4:], ["", ""], "a replay limits gamma_max")
        self.assertEqual(auto[4:], ["", ""])
        self.assertIn("| the best length of each step | 3.25 | 2.500 |", out)
        self.assertNotIn("99", out)

    def test_forecasts_that_stop_drafts_have_their_calibration(self):
        disco = f"{BASE}12/schedule=disco/controller=c.json"
        metrics = {
            QUICK: {"confidence_ece": 0.125, "confidence_brier": 0.25, "predicted_ece": None}
            | {"confidence_bins": [0.25, 0.75], "accepted_by_confidence": [0.5, 0.625]},
            disco: {"confidence_ece": 0.5, "predicted_ece": 0.0625, "predicted_brier": 0.1875}
            | {"predicted_bins": [0.5], "accepted_by_predicted": [0.4375]},
            SLOW: {"confidence_ece": 0.75, "confidence_brier": 0.5},
        }
        options = {**OPTIONS, disco: DEFAULTS | {"gamma": 12, "schedule": "disco", "controller": "c.json"}}
        times = {**TIMES, disco: {"a": 5, "b": 5}}
        folder = write_run(self.folder / "controlled", times, PROMPTS, options=options, metrics=metrics)
        code, out, err = self.call(folder)
        self.assertEqual((code, err), (0, ""))
        part = out.split("| forecast of acceptance |")[1]
        rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in part.splitlines() if "|" in line][2:]
        self.assertEqual(len(rows), 2, "a bandit stops by no forecast")
        self.assertEqual(rows[0][1:], ["the draft's probability", "0.125", "0.250", "0.25 → 0.50, 0.75 → 0.62"])
        self.assertEqual(rows[1][1:], ["the controller's prediction", "0.062", "0.188", "0.50 → 0.44"])
        self.assertNotIn("forecast of acceptance", self.call(self.write("run"))[1])

    def test_the_threshold_of_a_controller_is_that_of_its_file_unless_an_option_replaces_it(self):
        own = DEFAULTS | {"schedule": "disco", "controller": "build/c.json"}
        self.assertEqual(schedules_page.threshold_of(own), "of build/c.json")
        self.assertEqual(schedules_page.threshold_of(own | {"controller_threshold": 0.25}), "0.25 of build/c.json")

    def test_a_selection_is_compared_with_the_best_drafter_alone(self):
        copies, bandit = "suffix_decoding/length=4", "selection/drafts=d+e/choose=bandit"
        slow = "selection/drafts=d+e/choose=full_information"
        times = {PLAIN: TIMES[PLAIN], SHORT: TIMES[SHORT], AUTO: TIMES[AUTO], copies: {"a": 2, "b": 7}}
        times |= {bandit: {"a": 2, "b": 4}, slow: {"a": 8, "b": 8}}
        options = {**OPTIONS, copies: {"budget": "fixed"}, bandit: {"budget": "auto"}, slow: {"budget": "auto"}}
        folder = write_run(self.folder / "selection", times, PROMPTS, options=options)
        code, out, err = self.call(folder)
        self.assertEqual((code, err), (0, ""))
        part = out.split("## Selection among drafters")[1]
        rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in part.splitlines() if "|" in line]
        best, first, second = rows[2:]
        self.assertEqual(best[2:], ["best", ""])
        self.assertIn("2.22 [", best[1], "copies: 4.5 ns a token; auto is faster but not fixed")
        self.assertTrue(first[2].startswith("1.50 ["), "4.5 / 3")
        self.assertEqual(second[3], "slower")
        self.assertTrue(second[2].startswith("0.56 ["), "4.5 / 8")
        alone = {case: by_category for case, by_category in times.items() if case in (PLAIN, bandit, AUTO)}
        code, _, err = self.call(write_run(self.folder / "alone", alone, PROMPTS, options=options))
        self.assertEqual(code, 2)
        self.assertIn("no case of speculative_sampling", err)

    def test_what_cannot_be_compared_is_refused(self):
        def refused(text, *arguments):
            code, out, err = self.call(*arguments)
            self.assertEqual((code, out), (2, ""), err)
            self.assertIn(text, err)

        run = self.write("run")
        no_constants = {case: times for case, times in TIMES.items() if case not in (SHORT, LONG)}
        refused("Add constant lengths", self.write("none", no_constants))
        refused("no case with a schedule", self.write("constant", {case: TIMES[case] for case in (PLAIN, SHORT)}))
        refused("no case with a draft", self.write("plain", {PLAIN: TIMES[PLAIN]}))
        long = {case: times for case, times in TIMES.items() if case != SHORT}
        refused(f"no case {SHORT}", self.write("lacks", long), "--chosen-on", run)
        for text in ("not JSON", '{"traces": 3}'):
            (self.folder / "bad.json").write_text(text)
            refused("speclab replay TRACE --json", run, "--replay", self.folder / "bad.json")
        (self.folder / "other.json").write_text(json.dumps({"traces": TRACES["traces"][:1]}))
        refused("no trace of speculative_sampling with draft d", run, "--replay", self.folder / "other.json")

    def test_its_config_has_every_schedule_and_constant_lengths(self):
        source = (ROOT / "core/decoding/drafting/schedule.cpp").read_text(encoding="utf-8")
        names = set(part.split('"')[1] for part in source.split(".name = ")[1:])
        found = set()
        for case in json.loads((ROOT / "configs/schedules.json").read_text(encoding="utf-8"))["cases"]:
            schedules = case.get("schedule", "constant")
            found.update(schedules if isinstance(schedules, list) else [schedules])
        self.assertGreater(len(names), 8)
        self.assertEqual(found, names)


if __name__ == "__main__":
    unittest.main()
