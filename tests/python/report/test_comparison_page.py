"""The page of a comparison: from a made-up output of `speclab compare --json` (synthetic_comparison.py), and by a stand-in for the binary."""

import contextlib
import io
import json
import pathlib
import re
import sys
import tempfile
import unittest
import unittest.mock

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / folder) for folder in ("scripts", "tests/python/runs")]

import report
import synthetic_comparison
import synthetic_run
from report import comparison, sentences
from synthetic_comparison import SLOWER

from figures.record import Run


def setUpModule():
    global RUN, SUMMARY
    folder = tempfile.TemporaryDirectory()
    unittest.addModuleCleanup(folder.cleanup)
    RUN = pathlib.Path(folder.name) / "run"
    synthetic_run.write(RUN)
    SUMMARY = json.loads((RUN / "summary.json").read_text())


class Fixture(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.found = synthetic_comparison.comparison(SUMMARY)

    def main(self, *words):
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = report.main(["--compare", str(RUN), str(RUN), "--out", str(self.folder / "page.html"), *words])
        return status, err.getvalue()

    def html(self, found=None):
        file = self.folder / "found.json"
        file.write_text(json.dumps(found or self.found))
        status, err = self.main("--comparison", str(file))
        self.assertIn(status, (0, 1), err)
        return (self.folder / "page.html").read_text()

    def row(self, html, case_id):
        number = next(place for place, case in enumerate(SUMMARY["cases"]) if case["id"] == case_id)
        return re.findall(r"<t[dh][^>]*>([^<]*)", re.search(rf'<tr id="case-{number}".*?</tr>', html)[0])


class Page(Fixture):
    def test_the_exit_code_is_that_of_the_comparison(self):
        file = self.folder / "found.json"
        file.write_text(json.dumps(self.found))
        self.assertEqual(self.main("--comparison", str(file))[0], 1)
        file.write_text(json.dumps({**self.found, "failed": False}))
        self.assertEqual(self.main("--comparison", str(file))[0], 0)

    def test_the_parts_of_a_change_stand_in_the_row(self):
        html = self.html()
        case = next(case for case in self.found["cases"] if case["id"] == SLOWER)
        speeds, steps = case["change"]["speedup"], case["paired_steps"]["base_steps"]
        cells = self.row(html, SLOWER)
        self.assertEqual(cells[1], "distilled γ 4")
        self.assertEqual(cells[2:4], [f"{speeds['base']:.3f}", f"{speeds['new']:.3f}"])
        self.assertEqual(cells[4], "0.941 [0.937, 0.945]")
        self.assertEqual(cells[5:10], ["0.0 ±0.3", "0.0 ±0.3", "-6.0 ±0.3", "-0.2 ±0.3", "+0.1 ±0.3"])
        self.assertEqual(cells[10:], [f"0.941 ({steps - 1} of {steps})", "slower", "equal"])
        self.assertEqual(self.row(html, "autoregressive")[2:4], ["", ""], "no speedup without a reference")
        self.assertTrue("was measured again: slower, BASE / NEW 0.945." in html)

    def test_three_sentences(self):
        said = [re.sub("<.*?>", "", str(one)) for one in sentences.of_comparison(self.found, {SLOWER: "the slow one"})]
        self.assertEqual(
            said[0], "NEW fails the comparison with BASE: of 19 cases 18 same, 1 slower; 1 case with a failure."
        )
        self.assertRegex(
            said[1],
            r"^the slow one loses most: it takes 6.3 % more time per token \(speedup \d\.\d\d → \d\.\d\d\), "
            r"and the largest part of the change is draft \(−6.0 %\)\.$",
        )
        self.assertEqual(
            said[2],
            "All 57 compared texts are equal token for token, and the noise floor, from A/A runs, is 1.0 % for times and 1.2 % for speedups.",
        )

    def test_a_faster_case_is_no_loss(self):
        for case in self.found["cases"]:
            case["verdict"] = "same"
        one = self.found["cases"][2]
        one["change"]["ratio"], one["ratio"] = 1.2, 1.2
        one["change"]["parts"]["acceptance"]["log_ratio"] = 0.18
        said = re.sub("<.*?>", "", str(sentences.of_comparison(self.found, {})[1]))
        self.assertIn("changes most, but is not slower: it takes 16.7 % less time per token", said)
        self.assertIn("the largest part of the change is acceptance (+18.0 %)", said)

    def test_changed_texts_are_marked(self):
        texts = {"compared": 3, "changed": 2, "promised": True, "first": {"prompt": "7", "seed": 1, "token": 5}}
        self.found["cases"][3]["texts"] = texts
        html = self.html()
        self.assertTrue('class="bad">CHANGED 2 of 3 (first: prompt 7, seed 1, token 5)</td>' in html)
        self.assertTrue("2 of 57 compared texts differ (2 of them were promised to be equal)" in html)

    def test_gates_have_columns_of_their_own(self):
        html = self.html(synthetic_comparison.gated(SUMMARY))
        self.assertEqual(self.row(html, SLOWER)[2:], ["300 → 312 worse", "differs", "equal"])
        self.assertEqual(self.row(html, "autoregressive")[2:], ["300", "equal", "equal"])
        self.assertTrue("1 of 19 compared counts differ; times were not judged." in html)
        self.assertTrue('id="plots" hidden' in html, "there is nothing to draw")

    def test_circumstances_come_first(self):
        self.found["workload_differences"] = ["seeds [1] and [2]"]
        self.found["new_machine"]["text"] = "Busy machine: <x>.\n"
        self.found["nothing_compared"] = "no lines"
        html = self.html()
        for text in (
            "The workloads differ: seeds [1] and [2].",
            "NEW: Busy machine: &lt;x&gt;.",
            "Nothing was compared: no lines.",
        ):
            self.assertTrue(text in html, text)

    def test_environments_stand_side_by_side(self):
        base, new = Run(RUN), Run(RUN)
        new.environment["threads"] = 7
        html = comparison.comparison_page(self.found, base, new)
        self.assertTrue("1 fields differ" in html or "1 field differs" in html)
        self.assertTrue('<tr class="differs"><th scope="row">threads</th><td>2</td><td>7</td></tr>' in html)


class Binary(Fixture):
    """With a program in place of the binary."""

    def binary(self, output, status=0, err=""):
        file = self.folder / "speclab"
        (self.folder / "output").write_text(output)
        file.write_text(
            f'#!/bin/sh\necho "$@" > {self.folder}/words\ncat {self.folder}/output\necho "{err}" >&2\nexit {status}\n'
        )
        file.chmod(0o755)
        return unittest.mock.patch.dict("os.environ", SPECLAB_BINARY=str(file))

    def test_it_is_asked(self):
        with self.binary(json.dumps(self.found), status=1):
            self.assertEqual(self.main()[0], 1)
        self.assertEqual((self.folder / "words").read_text(), f"compare {RUN} {RUN} --json\n")
        self.assertTrue("NEW fails the comparison" in (self.folder / "page.html").read_text())

    def test_its_error_is_passed_on(self):
        with self.binary("", status=2, err="error: the models differ"):
            status, err = self.main()
        self.assertEqual((status, err), (2, "report: the models differ\n"))
        self.assertFalse((self.folder / "page.html").exists())

    def test_another_output_is_refused(self):
        file = self.folder / "found.json"
        for text, words in (
            ("{}", "the comparison has no base, new"),
            ("[]", "the comparison has no base"),
            ("{", "not JSON"),
        ):
            file.write_text(text)
            status, err = self.main("--comparison", str(file))
            self.assertEqual(status, 2)
            self.assertIn(words, err)
            self.assertIn("speclab compare BASE NEW --json", err)


if __name__ == "__main__":
    unittest.main()
