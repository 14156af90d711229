"""The proof of `speclab compare` (scripts/studies/compare_proof.py) with a stand-in for the program whose verdicts are known."""

import contextlib
import io
import json
import pathlib
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "scripts/studies"))

import compare_proof
import compare_proof_page as judge

# speclab_planted: writes finished runs, and compares as the file knobs.json beside it says.
PROGRAM = """#!{python} -SE
import datetime, json, pathlib, sys
HERE = pathlib.Path(sys.argv[0]).parent
knobs = json.loads((HERE / "knobs.json").read_text())
words, plant, report = sys.argv[1:], None, None
with (HERE / "calls").open("a") as calls:
    calls.write(" ".join(words) + "\\n")
while words[0].startswith("--"):
    plant = words[1] if words[0] == "--plant" else plant
    report = words[1] if words[0] == "--plant-report" else report
    words = words[2:]
fault = plant.partition("=")[0] if plant else None

def run():
    folder = pathlib.Path(words[words.index("--resume") + 1 if "--resume" in words else words.index("--out") + 1])
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text("{{}}")
    if folder.name == knobs.get("interrupt") and "--resume" not in words:
        return 130
    if folder.name == knobs.get("fail"):
        print("error: a line failed", file=sys.stderr)
        return 1
    began = "2026-01-01T01:30:00Z" if folder.name == "second" else "2026-01-01T00:00:00Z"
    if knobs.get("now"):
        began = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    environment = {{"date": began, "commit": "c" * 40, "dirty": False, "threads": 2, "numerics": "f32", "cpu": {{"model": "a processor"}}}}
    busy = folder.name == knobs.get("busy") and not folder.with_name(folder.name + "-busy1").exists()
    alpha = knobs["alpha"] - (knobs["loss"] if fault == "acceptance" else 0)
    cases = [{{"metrics": {{"alpha": None}}}}, {{"metrics": {{"alpha": alpha}}}}]
    machine = {{"busy": busy, "text": "Busy machine." if busy else ""}}
    (folder / "environment.json").write_text(json.dumps(environment))
    (folder / "summary.json").write_text(json.dumps({{"complete": True, "cases": cases, "machine": machine}}))
    pathlib.Path(report).write_text(json.dumps({{"delay_ns": 31, "step_ns": 1000}}))
    return 0

def compare():
    new = pathlib.Path(words[2]).name
    if new == knobs.get("refuse"):
        print("error: --aa: got a run on a busy machine", file=sys.stderr)
        return 2
    found = json.loads((HERE / ("fault.json" if fault else "same.json")).read_text())
    plain, drafted = found["cases"]
    if fault:
        part = knobs.get("parts", {{}}).get(fault, {{"bookkeeping": "overhead"}}.get(fault, fault))
        drafted["change"]["parts"][part] = {{"log_ratio": -0.03, "ci95": [-0.035, -0.025]}}
    if fault and fault == knobs.get("missed"):
        drafted["verdict"], drafted["failures"] = "unclear", []
    for name, entry in (("alarm", drafted), ("alarm_of_reference", plain)):
        if new == knobs.get(name):
            entry["verdict"], entry["failures"], found["failed"] = "slower", ["slower"], True
    if new == knobs.get("varies"):
        drafted["paired_steps"]["variance_paired"] = 1e-4
    if new == "second":
        drafted["change"]["ratio"] = knobs.get("second", 1.004)
    print(json.dumps(found))
    return 1 if found["failed"] else 0

sys.exit(run() if words[0] == "run" else compare())
"""


def case(name, verdict, ratio, speedup=None, parts=None):
    """A case of a comparison. speedup: NEW / BASE; None for the autoregressive case."""
    zero = {"log_ratio": 0.0, "ci95": [-0.002, 0.002]}
    named = {part: (parts or {}).get(part, zero) for part in ("reference", *judge.PARTS)}
    change = {"speedup": {"base": None if speedup is None else 1.4, "new": None if speedup is None else 1.4 * speedup}}
    change |= {
        "ratio": ratio if speedup is None else speedup,
        "ratio_ci95": [ratio - 0.003, ratio + 0.003],
        "parts": named,
    }
    entry = {"id": name, "verdict": verdict, "ratio": ratio, "ratio_ci95": change["ratio_ci95"], "change": change}
    entry["paired_steps"] = {"variance_paired": 1e-6, "variance_unpaired": 2e-6 if speedup is None else 1e-5}
    return entry | {"failures": ["slower"] if verdict == "slower" else [], "again": None}


def comparison(*cases):
    failed = any(case["failures"] for case in cases)
    return {"cases": list(cases), "failed": failed, "noise": 0.008, "speedup_noise": 0.006}


PLAIN, SPEC = "autoregressive", "speculative_sampling/gamma=4"
SAME = comparison(case(PLAIN, "same", 1.002), case(SPEC, "same", 0.997, 0.996))
FAULT = comparison(case(PLAIN, "same", 1.001), case(SPEC, "slower", 0.97, 0.971))


class Study(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name).resolve()
        self.folder, self.program = self.root / "study", self.root / "program"
        self.program.write_text(PROGRAM.format(python=sys.executable), encoding="utf-8")
        self.program.chmod(0o755)
        for name, content in (("same", SAME), ("fault", FAULT)):
            (self.root / f"{name}.json").write_text(json.dumps(content))
        (self.root / "results").mkdir()
        self.knobs()

    def knobs(self, **more):
        (self.root / "knobs.json").write_text(json.dumps({"alpha": 0.5, "loss": 0.02, **more}))

    def calls(self):
        file = self.root / "calls"
        return file.read_text().splitlines() if file.exists() else []

    def call(self, *words, pairs=1):
        words = [self.folder, "--binary", self.program, *(["--pairs", pairs] if pairs else []), *words]
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = compare_proof.main([str(word) for word in words], self.root)
        return code, out.getvalue(), err.getvalue()

    def proof(self):
        return json.loads((self.folder / "proof.json").read_text())

    def test_everything_is_found_and_nothing_is_done_twice(self):
        code, out, err = self.call(pairs=2)
        self.assertEqual(code, 0, err)
        self.assertIn("4 of 4 planted faults were found, and 4 were attributed", out)
        self.assertIn("0 of 2 comparisons of equal runs raised an alarm", out)
        self.assertIn("have not been compared yet", out)
        found = self.proof()
        self.assertEqual(found["rate"], 0.04)  # .02 of an alpha of .5
        self.assertIsNone(found["summary"]["passed"])
        self.assertEqual([one["fault"] for one in found["planted"]], list(judge.PART_OF))
        self.assertEqual(found["planted"][0]["planted"], 0.031)
        self.assertEqual(found["planted"][3]["alpha"], [0.5, 0.48])
        self.assertEqual(len(found["pairs"]), 2)
        calls = self.calls()
        self.assertEqual(len(calls), 1 + 2 * 6 + 6)
        planted = [words.split()[1] for words in calls if words.startswith("--plant ") and " run " in words]
        self.assertEqual(planted, ["draft=0.03", "verification=0.03", "bookkeeping=0.03", "acceptance=0.04"])
        # A comparison with a fault plants it in the second measurement of its suspects, too.
        again = [words for words in calls if words.startswith("--plant ") and " compare " in words]
        self.assertEqual(len(again), 4)
        self.assertTrue(all("--rerun" in words and "--aa" in words for words in again))
        # The A/A run of a comparison is the last run without a fault before it.
        floors = [pathlib.Path(words.split("--aa ")[1].split()[0]).name for words in calls if "--aa" in words]
        self.assertEqual(floors, ["first", "01-base", "02-base", "03-new", "04-base", "05-base"])

        self.assertEqual(self.call("--second", pairs=None)[0], 0)
        found = self.proof()
        self.assertIs(found["summary"]["passed"], True)
        self.assertEqual(found["second"]["hours"], 1.5)
        self.assertTrue(found["second"]["speedups_within"])
        page = (self.folder / "proof.md").read_text()
        self.assertIn("**passed.** 4 of 4 planted faults", page)
        self.assertIn(
            "Two runs 1.5 hours apart agree within 1 % in their speedups and within 1 % in their times per token.", page
        )
        self.assertIn(f"| bookkeeping | 3.10 % | {SPEC} | yes | yes | -3.00 [-3.50, -2.50] | -3.00 % |", page)
        self.assertIn(f"| acceptance | alpha 0.500 to 0.480 | {SPEC} | yes | yes |", page)
        self.assertIn("Changes of the speed: -0.30 % to +0.20 %.", page)
        self.assertIn(f"| {SPEC} | 1e-06 | 1e-05 | 0.100 | yes |", page)
        self.assertIn(f"| {PLAIN} | 1e-06 | 2e-06 | 0.500 |  |", page)
        self.assertIn("In 1 of 1 cases with a draft, the variance of the paired ratio is at most a quarter", page)

        before = self.calls()
        self.assertEqual(self.call(pairs=None)[0], 0)
        self.assertEqual(self.calls(), before, "a finished study runs nothing")
        code, _, err = self.call("--keep", pairs=None)
        self.assertEqual(code, 0, err)
        self.assertEqual((self.root / "results/compare_proof.md").read_text(), page)

    def test_a_fault_that_is_missed_or_blamed_on_another_part(self):
        self.knobs(missed="draft", parts={"verification": "overhead"}, alarm_of_reference="04-new")
        code, out, _ = self.call()
        self.assertEqual(code, 1)
        self.assertIn("3 of 4 planted faults were found, and 2 were attributed", out)
        self.assertIn("1 cases without a fault were called slower", out)
        page = (self.folder / "proof.md").read_text()
        self.assertIn("**failed.**", page)
        self.assertIn(f"| draft | 3.10 % | {SPEC} | no (unclear) | yes |", page)
        self.assertIn(f"| verification | 3.10 % | {SPEC} | yes | no (overhead) |", page)

    def test_an_alarm(self):
        self.knobs(alarm="05-new")
        code, out, _ = self.call()
        self.assertEqual(code, 1)
        self.assertIn("1 of 1 comparisons of equal runs raised an alarm", out)
        self.assertIn(f"- Alarm in comparison 1: {SPEC}: slower", (self.folder / "proof.md").read_text())

    def test_a_comparison_that_was_refused_proves_nothing(self):
        self.knobs(refuse="05-new")
        code, out, _ = self.call()
        self.assertEqual(code, 1)
        self.assertIn("1 comparisons of equal runs gave no verdict", out)
        self.assertIn("got a run on a busy machine", (self.folder / "proof.md").read_text())

    def test_pairs_that_vary_too_much(self):
        # The paired variances of the two comparisons are 1e-6 and 1e-4, the unpaired ones 1e-5.
        self.knobs(varies="03-new")
        code, out, _ = self.call(pairs=2)
        self.assertEqual(code, 1)
        self.assertIn("In 0 of 1 cases with a draft, the variance of the paired ratio", out)
        self.assertIn(f"| {SPEC} | 5.05e-05 | 1e-05 | 5.050 | no |", (self.folder / "proof.md").read_text())

    def test_a_busy_run_is_measured_again(self):
        self.knobs(busy="02-base")
        code, _, err = self.call()
        self.assertEqual(code, 0, err)
        self.assertIn("02-base: Busy machine. It is measured again.", err)
        self.assertTrue((self.folder / "runs/02-base-busy1/summary.json").exists())
        self.assertTrue((self.folder / "runs/02-base/summary.json").exists())

    def test_it_goes_on_after_an_interruption(self):
        self.knobs(interrupt="02-new")
        code, _, err = self.call()
        self.assertEqual(code, 130, err)
        done = len(self.calls())
        code, _, err = self.call(pairs=None)
        self.assertEqual(code, 0, err)
        new = self.calls()[done:]
        self.assertIn("--resume", new[0])
        self.assertIn("02-new", new[0])
        self.assertEqual(len(self.calls()), done + 1 + 2 * 3 + 4)

    def test_runs_that_are_not_an_hour_apart(self):
        self.knobs(now=True)
        self.assertEqual(self.call()[0], 0)
        code, _, err = self.call("--second", pairs=None)
        self.assertEqual(code, 2)
        self.assertIn("Wait until an hour has passed", err)

    def test_speedups_that_do_not_agree(self):
        self.knobs(second=0.985)
        self.assertEqual(self.call()[0], 0)
        code, out, _ = self.call("--second", pairs=None)
        self.assertEqual(code, 1)
        self.assertIn("agree not within 1 % in their speedups and within 1 % in their times", out)

    def test_what_is_refused(self):
        def refused(text, *words, **options):
            code, out, err = self.call(*words, **options)
            self.assertEqual((code, out), (2, ""), err)
            self.assertIn(text, err)

        refused("no study", "--second", pairs=None)
        refused("no study", "--keep", pairs=None)
        self.knobs(fail="first")
        refused("a line failed")
        self.knobs(alpha=0.01)
        refused("alpha is 0.010")
        refused("begun with pairs 1, not 2", pairs=2)
        refused("begun with share 0.03, not 0.1", "--share", "0.1")
        self.program.write_text(self.program.read_text() + "# another program\n")
        refused("not the program that began")
        self.program.unlink()
        refused("no such program")
        for words in (["--pairs", "0"], ["--share", "0"], ["--share", "nan"], ["--second", "--keep"]):
            with self.assertRaises(SystemExit), contextlib.redirect_stderr(io.StringIO()):
                compare_proof.main([str(self.folder), *words])


class Judgement(unittest.TestCase):
    def test_every_case_with_a_draft_must_be_slower(self):
        slow = {"draft": {"log_ratio": -0.03, "ci95": [-0.04, -0.02]}}
        both = comparison(case(SPEC, "slower", 0.97, 0.97, slow), case("other", "same", 0.99, 0.99, slow))
        found = judge.judged_plant("draft", both)
        self.assertEqual((found["found"], found["attributed"]), (False, False))
        alone = judge.judged_plant("draft", comparison(both["cases"][0]))
        self.assertEqual((alone["found"], alone["attributed"]), (True, True))
        other = judge.judged_plant("acceptance", comparison(both["cases"][0]))
        self.assertEqual((other["found"], other["attributed"]), (True, False))

    def test_a_case_without_times_is_not_found(self):
        lost = {**case(SPEC, "unclear: no time", 0.97, 0.97), "change": None}
        self.assertFalse(judge.judged_plant("draft", comparison(lost))["found"])
        self.assertFalse(judge.judged_pair(comparison(lost))["judged"])
        self.assertFalse(judge.judged_plant("draft", comparison())["found"])

    def test_a_busy_machine_gives_no_verdict(self):
        busy = judge.judged_pair(comparison(case(SPEC, judge.BUSY, 1, 1)))
        self.assertEqual((busy["judged"], busy["alarms"]), (False, []))

    def test_a_quarter_of_the_variance_is_the_limit(self):
        def summary(paired, speedup=1.0):
            one = case(SPEC, "same", 1, speedup)
            one["paired_steps"] = {"variance_paired": paired, "variance_unpaired": 4e-6}
            pairs = [judge.judged_pair(comparison(one))]
            return judge.summary_of({"planted": [], "pairs": pairs, "second": None, "planned_pairs": 1})

        self.assertEqual((summary(1e-6)["paired"], summary(1e-6)["passed"]), (1, None))
        for paired in (1.01e-6, None):  # too much, or not known
            found = summary(paired)
            self.assertEqual((found["paired"], found["drafting"], found["passed"]), (0, 1, False))
        self.assertEqual(summary(4e-6, speedup=None)["drafting"], 0, "without a draft the rule does not apply")
        lost = {**case(SPEC, "same", 1, 1.0), "paired_steps": None}
        self.assertEqual(judge.judged_pair(comparison(lost))["variances"], {})

    def test_the_order_spreads_the_faults(self):
        order = compare_proof.order_of(20)
        self.assertEqual(order.count(None), 20)
        self.assertEqual([place for place, fault in enumerate(order) if fault], [0, 6, 12, 18])
        self.assertEqual(compare_proof.order_of(1).count(None), 1)

    def test_a_page_without_measurements_says_so(self):
        empty = {"planted": [], "pairs": [], "second": None, "planned_pairs": 20, "machine": "m", "commit": "c" * 40}
        text = judge.page({**empty, "config": "x.json", "share": 0.03, "alpha_loss": 0.02, "rate": 0.04})
        self.assertEqual(text.count("Not measured yet."), 3)
        self.assertIn("**not complete.**", text)

    def test_a_refused_comparison_of_two_runs_says_neither_within_nor_not_within(self):
        names = ("found", "faults", "attributed", "alarms", "pairs", "wrong", "judged", "drafting", "paired")
        summary = dict.fromkeys(names, 0)
        text = judge.verdict_text(summary, {"second": {"error": "another config", "hours": 1.5}})
        self.assertIn("was refused", text)
        self.assertNotIn("within 1 %", text)


if __name__ == "__main__":
    unittest.main()
