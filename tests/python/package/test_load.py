"""speclab.load: frames agree with the record, for runs with lines, kept lines, slim records and summaries alone."""

import json
import math
import pathlib
import shutil
import sys
import tempfile
import unittest

import installed

installed.use()
sys.path.insert(0, str(installed.ROOT / "tests/python/runs"))

import pandas as pd
import synthetic_run

import speclab
from speclab import frames, kept_lines, theory

SUMMARY_ONLY = installed.BASELINES / "lookahead-wng-epyc-avx2-2cores"
SLIM = installed.BASELINES / "epyc-avx512-2cores/budget"


class Quickstart(unittest.TestCase):
    """The committed quickstart, whose record is full."""

    @classmethod
    def setUpClass(cls):
        cls.run_ = speclab.load(installed.QUICKSTART)
        cls.summary = json.loads((installed.QUICKSTART / "summary.json").read_text())

    def test_cases_are_those_of_the_summary(self):
        cases = self.run_.cases
        self.assertEqual(self.run_.kept, "full")
        self.assertEqual(list(cases.index), [case["id"] for case in self.summary["cases"]])
        for case in self.summary["cases"]:
            row = cases.loc[case["id"]]
            self.assertEqual(row.ms_per_token, case["metrics"]["ms_per_token"])
            if case["reference"] is None:
                self.assertTrue(math.isnan(row.speedup) and math.isnan(row.alpha))
            else:
                self.assertEqual(row.speedup, case["metrics"]["speedup"])
                self.assertEqual([row.alpha_lo, row.alpha_hi], case["metrics"]["alpha_ci95"])
        self.assertTrue(cases.label.is_unique)
        self.assertEqual(self.run_.options.shape[0], len(cases))

    def test_units(self):
        units = self.run_.cases.attrs["units"]
        self.assertEqual((units["tau"], units["speedup_lo"], units["ms_per_token"]), ("tokens/step", "ratio", "ms"))
        self.assertNotIn("alpha", units)
        self.assertEqual(units["draft_calls"], "1/token")
        self.assertEqual(self.run_.steps.attrs["units"]["target_ns"], "ns")
        self.assertNotIn("draft_calls", self.run_.lines.attrs["units"])

    def test_estimators(self):
        """The estimators of the page are those of the binary, and frames of metrics have them."""
        listed = {metric["name"]: metric["estimator"] for metric in speclab.call("list", "metrics")}
        self.assertEqual(speclab.estimators(), listed)
        self.assertTrue(all(listed.values()))
        self.assertEqual(speclab.call("describe", "alpha")["estimator"], "censored maximum likelihood")
        of_cases = self.run_.cases.attrs["estimators"]
        self.assertEqual((of_cases["tau"], of_cases["alpha"]), ("ratio of sums", "censored maximum likelihood"))
        self.assertNotIn("gamma", of_cases)
        self.assertEqual(self.run_.positions.attrs["estimators"]["acceptance_at"], "proportions")
        self.assertEqual(self.run_.waterfall.attrs["estimators"], {}, "its speedups are no metrics")

    def test_lines_and_steps_give_the_metrics_again(self):
        lines, steps = self.run_.lines, self.run_.steps
        self.assertEqual(len(lines), 9 * len(self.run_.cases))
        for case, row in self.run_.cases.iterrows():
            own, of_steps = lines[lines.case == case], steps[steps.case == case]
            self.assertEqual(own.tokens.sum() / own.steps.sum(), row.tau)
            self.assertEqual(of_steps.emitted.mean(), row.tau)
            self.assertAlmostEqual(of_steps.target_ns.mean() / 1e6, row.time_target)
            self.assertAlmostEqual(own.wall_ns.sum() / own.tokens.sum() / 1e6, row.ms_per_token)
        self.assertTrue(lines.text.str.len().gt(0).all())

    def test_drafted_tokens_give_the_acceptance_again(self):
        drafted = self.run_.drafted
        for case, row in self.run_.cases.dropna(subset=["draft_utilization"]).iterrows():
            own = drafted[drafted.case == case]
            self.assertAlmostEqual(own.accepted.sum() / len(own), row.draft_utilization, delta=0.02)
        untested = drafted[~drafted.tested]
        self.assertGreater(len(untested), 0)
        self.assertTrue(untested.p.isna().all())
        self.assertTrue(drafted[drafted.tested].p.between(0, 1).all())
        chains = drafted[drafted.case.str.startswith("speculative_sampling")]
        self.assertTrue((chains.depth == chains.node).all())

    def test_estimators_give_the_metrics_again(self):
        """The estimators of C++, over the rounds that Python read, give the numbers of the record bit for bit."""
        count = 0
        for case in self.summary["cases"][1:]:  # the first is autoregressive
            metrics, rounds = case["metrics"], self.run_.rounds(case["id"])
            for name, estimate in (
                ("alpha", theory.alpha_mle),
                ("alpha_min", theory.alpha_min),
                ("draft_utilization", theory.draft_utilization),
                ("tau_over_eq1", theory.tokens_over_eq1),
            ):
                found = estimate(rounds)
                with self.subTest(case["id"], metric=name):
                    if metrics[name] is None:
                        self.assertIsNone(found)
                        continue
                    self.assertEqual(found.value, metrics[name])
                    committed = [
                        float(f"{end:.7g}") for end in found.ci
                    ]  # a committed record has seven digits of an interval
                    self.assertEqual(committed, metrics[f"{name}_ci95"])
                    count += 1
            positions = theory.acceptance_by_position(rounds)
            self.assertEqual([one.acceptance for one in positions], metrics["acceptance_at"] or [])
            self.assertEqual(theory.accepted_histogram(rounds), metrics["accepted_histogram"] or [])
        self.assertGreater(count, 20)

    def test_positions_and_predictions(self):
        case = next(case for case in self.summary["cases"] if case["gamma"] == 4)
        positions = self.run_.positions.loc[case["id"]]
        for name, first in (("acceptance_at", 1), ("joint_at", 1), ("accepted_histogram", 0)):
            self.assertEqual(positions[name].dropna().to_dict(), dict(enumerate(case["metrics"][name], first)))
        predictions = self.run_.predictions.set_index(["case", "name"])
        for name, entry in case["predictions"].items():
            self.assertEqual(predictions.value[case["id"], name], entry["value"])
        row = self.run_.cases.loc[case["id"]]
        alpha, gamma = row.alpha, int(row.gamma)
        self.assertAlmostEqual(predictions.value[case["id"], "leviathan_eq_1"], theory.expected_tokens(alpha, gamma), 5)

    def test_waterfall_and_calibration(self):
        waterfall = self.run_.waterfall
        for case, terms in waterfall.groupby("case"):
            first, last = terms.iloc[0], terms.iloc[-1]
            self.assertEqual((first.step, last.step), ("leviathan_3_8", "measured"))
            self.assertTrue(last.unexplained_share_lo < last.unexplained_share < last.unexplained_share_hi)
            self.assertAlmostEqual(terms.log_ratio.sum(), math.log(last.speedup / first.speedup), 5)
            self.assertAlmostEqual(last.speedup, self.run_.cases.speedup[case], 5)
        calibration = self.run_.calibration.set_index(["model", "rows"])
        self.assertEqual(calibration.t["target", 1], 1)
        self.assertEqual(calibration.t["target", 4], self.summary["calibration"]["t_n"]["4"])
        self.assertEqual(self.run_.calibration_rounds["round"].max() + 1, self.summary["calibration"]["rounds"])
        self.assertIn("autoregressive", self.run_.calibrated_steps.index)

    def test_parts(self):
        self.assertEqual(self.run_.categories.loc[("autoregressive", "code"), "prompts"], 2)
        one = self.summary["cases"][3]
        self.assertEqual(self.run_.prompts.alpha[one["id"], "103"], one["alpha_by_prompt"]["103"])
        self.assertEqual(self.run_.sources.source_share[one["id"], "draft"], one["metrics"]["source_share"]["draft"])
        self.assertIn("quickstart", repr(self.run_))


class OtherRecords(unittest.TestCase):
    def test_a_summary_alone(self):
        run = speclab.load(SUMMARY_ONLY)
        self.assertEqual(run.kept, "none")
        self.assertGreater(len(run.cases), 5)
        self.assertGreater(len(run.waterfall), 5)
        for name in ("lines", "steps", "drafted", "calibration_rounds"):
            with self.assertRaisesRegex(speclab.NotApplicable, "kept without"):
                getattr(run, name)

    def test_a_slim_record(self):
        run = speclab.load(SLIM)
        self.assertEqual(run.kept, "slim")
        with self.assertRaisesRegex(speclab.NotApplicable, "totals in place of steps"):
            run.steps
        own = run.lines[run.lines["repeat"] == 0]
        for case, row in run.cases.iterrows():
            lines = own[own.case == case]
            self.assertAlmostEqual(lines.tokens.sum() / lines.steps.sum(), row.tau)
        self.assertTrue(own.text.notna().all())

    def test_every_committed_record_has_all_frames_of_its_summary(self):
        records = sorted(file.parent for file in installed.BASELINES.rglob("summary.json"))
        self.assertGreater(len(records), 10)
        for folder in records:
            run = speclab.load(folder)
            for name in (
                "cases",
                "options",
                "categories",
                "prompts",
                "positions",
                "sources",
                "predictions",
                "waterfall",
            ):
                with self.subTest(folder.name, frame=name):
                    self.assertIsInstance(getattr(run, name), pd.DataFrame)
            self.assertEqual(run.calibration.empty, run.summary["calibration"] is None)


class RunFolder(unittest.TestCase):
    """A made-up run with its lines, as `speclab run` leaves it."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name) / "run"
        synthetic_run.write(self.folder)

    def test_intervals_of_a_waterfall_and_of_what_ifs(self):
        file = self.folder / "summary.json"
        summary = json.loads(file.read_text())
        case = next(case for case in summary["cases"] if case["waterfall"])
        case["waterfall"][0]["speedup_ci95"] = [1.1, 1.3]
        case["waterfall"][1]["log_ratio_ci95"] = [-0.2, 0.1]
        case["predictions"]["what_if_flat_t"] = {
            **{"value": 2.0, "value_ci95": [1.9, 2.1], "kind": "what_if", "measured": None, "error": None},
            **{"quantity": "speedup", "equation": "e", "assumptions": "a", "change": 0.25},
        }
        file.write_text(json.dumps(summary))
        run = speclab.load(self.folder)
        terms = run.waterfall[run.waterfall.case == case["id"]]
        first, second = terms.iloc[0], terms.iloc[1]
        self.assertEqual((first.speedup_lo, first.speedup_hi), (1.1, 1.3))
        self.assertEqual((second.log_ratio_lo, second.log_ratio_hi), (-0.2, 0.1))
        self.assertTrue(math.isnan(first.log_ratio_lo) and math.isnan(second.speedup_lo))
        self.assertEqual(run.waterfall.attrs["units"]["speedup_lo"], "ratio")
        row = run.predictions.set_index(["case", "name"]).loc[case["id"], "what_if_flat_t"]
        self.assertEqual((row.kind, row.value_lo, row.value_hi, row.change), ("what_if", 1.9, 2.1, 0.25))

    def test_intervals_of_calibrated_costs_and_records_without_them(self):
        file = self.folder / "summary.json"
        summary = json.loads(file.read_text())
        old, new = [case for case in summary["cases"] if case["metrics"]["c"]][:2]
        for case in summary["cases"]:
            self.assertNotIn("c_ci95", case["metrics"])
        new["metrics"] |= {"c_ci95": [0.1, 0.2], "t_draft": 1.5, "t_draft_ci95": [1.4, 1.6]}
        new["metrics"] |= {"t_n": {"1": 1, "8": 1.5}, "t_n_ci95": {"1": [1, 1], "8": None}}
        file.write_text(json.dumps(summary))
        run = speclab.load(self.folder)
        self.assertEqual(
            list(run.cases.loc[new["id"], ["c_lo", "c_hi", "t_draft_lo", "t_draft_hi"]]), [0.1, 0.2, 1.4, 1.6]
        )
        self.assertTrue(math.isnan(run.cases.loc[old["id"], "c_lo"]))
        self.assertNotIn("t_n_ci95", run.cases.columns)
        self.assertEqual(run.cases.attrs["units"]["t_draft_lo"], "ms")
        by_id = {case.id: case for case in run.record.cases}
        self.assertEqual(by_id[new["id"]].interval("c"), [0.1, 0.2])
        self.assertEqual(by_id[old["id"]].interval("c"), [old["metrics"]["c"]] * 2)

    def test_an_infinite_divergence_is_not_an_unknown_one(self):
        rows = frames.drafted_rows({}, {"tokens": [{"kl": None}, {"kl": 0.5}, {}]})
        self.assertEqual([row["kl"] for row in rows], [math.inf, 0.5, None])

    def test_packed_lines_are_the_same_lines(self):
        run = speclab.load(self.folder)
        packed = self.folder.with_name("packed")
        packed.mkdir()
        for file in ("summary.json", "environment.json", "config.json"):
            if (self.folder / file).exists():
                shutil.copy(self.folder / file, packed)
        (packed / kept_lines.NAME).write_bytes(kept_lines.pack(self.folder))
        again = speclab.load(packed)
        self.assertEqual((run.kept, again.kept), ("full", "full"))
        for name in ("lines", "steps", "drafted", "calibration_rounds"):
            pd.testing.assert_frame_equal(getattr(run, name), getattr(again, name))
        self.assertGreater(len(run.drafted), 1000)

    def test_a_changed_line_is_an_error(self):
        file = next((self.folder / "cases").glob("*.jsonl"))
        lines = file.read_text().splitlines()
        changed = json.loads(lines[0])
        changed["tokens"][0] += 1
        file.write_text("\n".join([json.dumps(changed), *lines[1:]]) + "\n")
        with self.assertRaisesRegex(speclab.BadRun, "output_hash is not the hash of tokens"):
            speclab.load(self.folder).lines

    def test_a_half_written_last_line_is_left_out(self):
        count = len(speclab.load(self.folder).lines)
        file = next((self.folder / "cases").glob("*.jsonl"))
        file.write_text(file.read_text() + '{"case": "x')
        self.assertEqual(len(speclab.load(self.folder).lines), count)

    def test_bad_folders(self):
        with self.assertRaisesRegex(speclab.Error, "Give the folder that `speclab run` wrote"):
            speclab.load("/no/such/run")
        (self.folder / "summary.json").write_text('{"schema')
        with self.assertRaisesRegex(speclab.BadRun, "not JSON"):
            speclab.load(self.folder)
        (self.folder / "summary.json").write_text('{"schema_version": 99}')
        with self.assertRaisesRegex(speclab.BadRun, "schema_version 99"):
            speclab.load(self.folder)
        (self.folder / "targets.json").write_text('{"targets": ["small", "large"]}')
        with self.assertRaisesRegex(speclab.BadRun, "small, large"):
            speclab.load(self.folder)

    def test_rounds_of_an_unknown_case(self):
        with self.assertRaisesRegex(speclab.BadRun, "no case 'x'"):
            speclab.load(installed.QUICKSTART).rounds("x")


if __name__ == "__main__":
    unittest.main()
