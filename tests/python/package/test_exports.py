"""speclab.export: files that other programs read, and that load_foreign reads back."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

import installed

installed.use()

import pandas as pd
import pyarrow.parquet

import speclab
from speclab import exports, kept_lines, theory

BINARY = pathlib.Path(os.environ.get("SPECLAB_BINARY", installed.ROOT / "build/release/speclab"))
CHAIN = "speculative_sampling/draft=distilled/gamma=4"
SLIM = installed.BASELINES / "epyc-avx512-2cores/budget"


def rounded(answer):
    """An answer without its date, and with times in whole nanoseconds, because sums in seconds differ in their last digit."""
    for choice in answer["choices"]:
        choice["wall_time"] = [round(time, 9) for time in choice["wall_time"]]
    return {name: value for name, value in answer.items() if name != "tstamp"}


class Export(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.run_ = speclab.load(installed.QUICKSTART)

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.to = pathlib.Path(folder.name) / "out/here"

    def test_spec_bench_reads_back(self):
        files = speclab.export(self.run_, self.to, "spec_bench")
        self.assertEqual(len(files), len(self.run_.cases))
        by_model = {}
        for file in files:
            found = speclab.load_foreign(file, gamma=5)
            self.assertEqual(len(found.problems), 0)
            by_model |= {str(case): found for case in found.cases.index}
        base = by_model["autoregressive"]
        for case, row in self.run_.cases.iterrows():
            found = by_model[str(case)]
            self.assertEqual(found.tau().value, row.tau)
            if case != "autoregressive":
                self.assertAlmostEqual(found.speedup_over(base).value, row.speedup_end_to_end, 9)
        self.assertEqual(by_model[CHAIN].cases.tokens.iloc[0], 1056 + 9)  # and a token from each prefill

    def test_an_answer(self):
        (file,) = speclab.export(
            self.run_, self.to, "spec_bench", cases=[CHAIN], categories={"maths": "math_reasoning"}
        )
        answers = {one["question_id"]: one for one in map(json.loads, file.read_text().splitlines())}
        self.assertEqual(len(answers), 9)
        self.assertEqual((answers[301]["category"], answers[205]["category"]), ("math_reasoning", "code"))
        (choice,) = answers[205]["choices"]
        lines = self.run_.lines
        line = lines[(lines.case == CHAIN) & (lines.prompt == "205")].iloc[0]
        self.assertEqual(choice["turns"], [line.text])
        self.assertEqual(choice["new_tokens"], [128])
        self.assertEqual(sum(choice["accept_lengths"]), 127)
        self.assertEqual(choice["decoding_steps"], [line.steps])
        self.assertAlmostEqual(choice["wall_time"][0], (line.prefill_ns + line.draft_prefill_ns + line.wall_ns) / 1e9)

    @unittest.skipUnless(BINARY.exists() or os.environ.get("SPECLAB_BINARY"), "no binary is built")
    def test_the_binary_exports_the_same(self):
        """`speclab report --export` defines the same names in C++: answers are equal, and so are the sums over vLLM's requests."""
        folder = self.to.parent / "run"
        folder.parent.mkdir(parents=True)
        kept_lines.restore(installed.QUICKSTART, folder)
        report = lambda tool: (
            subprocess.run(
                [BINARY, "report", folder, "--export", tool, "--case", CHAIN],
                capture_output=True,
                text=True,
                check=True,
            ).stdout
        )
        (file,) = speclab.export(folder, self.to, "spec_bench", cases=[CHAIN])
        expected, found = (
            {one["question_id"]: rounded(one) for one in map(json.loads, text.splitlines())}
            for text in (report("spec-bench"), file.read_text())
        )
        self.assertEqual(found, expected)
        page = json.loads(report("vllm"))
        (file,) = speclab.export(folder, self.to, "prometheus", cases=[CHAIN])
        for name in ("drafts", "draft_tokens", "accepted_tokens"):
            value = float(page[f"vllm:spec_decode_num_{name}"])
            self.assertRegex(file.read_text(), rf"(?m)^vllm:spec_decode_num_{name}_total{{.*}} {value}$")
        for position, value in enumerate(page["vllm:spec_decode_num_accepted_tokens_per_pos"]):
            self.assertIn(f'position="{position}"}} {float(value)}\n', file.read_text())

    def test_trees(self):
        """Drafted tokens are nodes; positions and num_spec_tokens go by depth."""
        steps = [{"drafted": 3, "accepted": 1, "tokens": [{"parent": 0}, {"parent": 0}, {"parent": 2}]}]
        self.assertEqual(exports._depth(steps[0]), 2)
        self.assertEqual(exports._acceptance(steps, 2)["acceptance_histogram"], [0, 1, 0])

    def test_vllm_reads_back(self):
        (file,) = speclab.export(self.run_, self.to, "vllm", cases=[CHAIN])
        found = speclab.load_foreign(file)
        steps = self.run_.steps
        own = steps[(steps.case == CHAIN) & (steps.drafted > 0)]
        self.assertEqual(found.tau().value, 1 + own.accepted.sum() / len(own))
        self.assertEqual(found.cases.draft_utilization.iloc[0], own.accepted.sum() / own.drafted.sum())
        self.assertAlmostEqual(found.texts.seconds.sum(), self.run_.lines.query("case == @CHAIN").wall_ns.sum() / 1e9)
        self.assertAlmostEqual(
            found.alpha().value, self.run_.cases.alpha[CHAIN], delta=0.01
        )  # cut steps count as rejected
        first = json.loads(file.read_text().splitlines()[0])["metrics"]["speculative_decoding"]
        self.assertEqual(sum(first["acceptance_histogram"]), first["num_spec_steps"])

    def test_prometheus_reads_back(self):
        (file,) = speclab.export(self.run_, self.to, "prometheus", cases=[CHAIN])
        (responses,) = speclab.export(self.run_, self.to, "vllm", cases=[CHAIN])
        page, each = speclab.load_foreign(file), speclab.load_foreign(responses)
        self.assertEqual(page.tau().value, each.tau().value)
        self.assertAlmostEqual(page.texts.seconds[0], each.texts.seconds.sum())
        self.assertLessEqual(page.alpha().lo, each.alpha().value)
        self.assertLessEqual(each.alpha().value, page.alpha().hi)
        histogram = theory.accepted_histogram(each.rounds())
        self.assertIn(f'position="3"}} {float(histogram[4])}\n', file.read_text())

    def test_only_cases_that_speculate_have_metrics_of_vllm(self):
        files = speclab.export(self.run_, self.to, "vllm")
        self.assertEqual(len(files), len(self.run_.cases) - 1)
        with self.assertRaisesRegex(speclab.Error, "autoregressive: drafts nothing"):
            speclab.export(self.run_, self.to, "vllm", cases=["autoregressive"])

    def test_csv(self):
        files = {file.name: file for file in speclab.export(self.run_, self.to, "csv")}
        cases = pd.read_csv(files["cases.csv"], index_col="case")
        pd.testing.assert_series_equal(cases.tau, self.run_.cases.tau)
        self.assertEqual(json.loads(files["units.json"].read_text())["cases"]["ms_per_step"], "ms")
        self.assertEqual(len(pd.read_csv(files["drafted.csv"])), len(self.run_.drafted))

    def test_parquet(self):
        files = {file.stem: file for file in speclab.export(self.run_, self.to, "parquet", cases=[CHAIN])}
        steps = pd.read_parquet(files["steps"])
        self.assertEqual(set(steps.case), {CHAIN})
        self.assertEqual(len(steps), (self.run_.steps.case == CHAIN).sum())
        schema = pyarrow.parquet.read_schema(files["steps"])
        self.assertEqual(schema.field("target_ns").metadata, {b"unit": b"ns"})
        self.assertEqual(pd.read_parquet(files["options"]).case.tolist(), [CHAIN])

    def test_every_committed_record(self):
        for file in sorted(installed.BASELINES.rglob("summary.json")):
            with self.subTest(file.parent.name):
                count = len(speclab.export(file.parent, self.to / file.parent.name, "parquet"))
                self.assertGreater(count, 7)

    def test_pyarrow_is_missed_before_anything_is_read(self):
        with unittest.mock.patch.dict(sys.modules, {"pyarrow": None}):
            with self.assertRaisesRegex(speclab.Error, "Parquet needs the package pyarrow"):
                speclab.export("/no/such/run", self.to, "parquet")

    def test_bad_input(self):
        with self.assertRaisesRegex(speclab.NotApplicable, "slim record has no steps"):
            speclab.export(SLIM, self.to, "spec_bench")
        with self.assertRaisesRegex(speclab.Error, "no case 'x'"):
            speclab.export(self.run_, self.to, "csv", cases=["x"])
        with self.assertRaisesRegex(speclab.Error, "no lines of repeat 7"):
            speclab.export(self.run_, self.to, "vllm", repeat=7)
        with self.assertRaisesRegex(speclab.Error, "format 'xml', expected one of spec_bench"):
            speclab.export(self.run_, self.to, "xml")
        unequal = speclab.load(installed.QUICKSTART)
        next(case for case in unequal.record.cases if case.id == CHAIN).data["metrics"]["matches_reference"] = False
        with self.assertRaisesRegex(speclab.Error, "does not equal its reference"):
            speclab.export(unequal, self.to, "vllm")
        self.assertFalse(self.to.exists())
        self.to.parent.mkdir()
        self.to.write_text("a file")
        with self.assertRaisesRegex(speclab.Error, "Name a folder"):
            speclab.export(self.run_, self.to, "csv")


if __name__ == "__main__":
    unittest.main()
