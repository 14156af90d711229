"""The study of preflight verdicts: how pairs are judged and exchanged, and that it goes on where it was interrupted. No model runs."""

import contextlib
import io
import json
import os
import pathlib
import re
import sys
import tempfile
import unittest
from unittest import mock

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "scripts/studies"))

import preflight_pairs as study
from preflight_pairs import BadRun, Pair

ABOVE, BELOW, HOLDS = [1.2, 1.4], [0.5, 0.7], [0.9, 1.1]


def result(verdict="worth it", measured=ABOVE, pair="a", **more):
    return {"pair": pair, "verdict": verdict, "measured": sum(measured) / 2, "measured_ci95": measured} | more


def right(count):
    return [result(pair=str(number)) for number in range(count)]


class Judging(unittest.TestCase):
    def test_sides_of_one(self):
        self.assertEqual([study.side(one) for one in (ABOVE, BELOW, HOLDS)], ["above", "below", "holds 1"])
        self.assertEqual(study.side([1, 1.2]), "holds 1")
        self.assertEqual(study.side([0.8, 1]), "holds 1")

    def test_a_verdict_is_wrong_on_the_other_side_only(self):
        expected = {
            ("worth it", "above"): "right",
            ("worth it", "below"): "wrong",
            ("not worth it", "above"): "wrong",
            ("not worth it", "below"): "right",
            ("unclear", "above"): "unclear",
            ("unclear", "below"): "unclear",
        }
        for (verdict, where), wanted in expected.items():
            with self.subTest(verdict=verdict, where=where):
                self.assertEqual(study.judgement(result(verdict, {"above": ABOVE, "below": BELOW}[where])), wanted)

    def test_a_measured_interval_that_holds_one_exchanges_the_pair_whatever_the_verdict(self):
        for verdict in ("worth it", "not worth it", "unclear"):
            self.assertEqual(study.judgement(result(verdict, HOLDS)), "exchanged")

    def test_a_problem_is_a_failure_even_beside_numbers(self):
        self.assertEqual(study.judgement({"pair": "a", "problem": "no speedup"}), "failed")
        self.assertEqual(study.judgement(result(problem="x")), "failed")


class Exchanges(unittest.TestCase):
    def judge(self, kinds, reserve):
        """Pairs and reserve pairs by the interval that they measure."""
        asked = []

        def result_of(pair):
            asked.append(pair)
            return result(measured=pair[1], pair=pair[0])

        judged, exchanged = study.judged_pairs(kinds, reserve, result_of)
        return [one["pair"] for one in judged], [one["pair"] for one in exchanged], [pair[0] for pair in asked]

    def test_without_exchanges_no_reserve_pair_is_measured(self):
        found = self.judge([("a", ABOVE), ("b", BELOW)], [("r", ABOVE)])
        self.assertEqual(found, (["a", "b"], [], ["a", "b"]))

    def test_reserve_pairs_come_in_order_and_once(self):
        found = self.judge([("a", HOLDS), ("b", HOLDS), ("c", ABOVE)], [("r", ABOVE), ("s", BELOW), ("t", ABOVE)])
        self.assertEqual(found, (["r", "s", "c"], ["a", "b"], ["a", "r", "b", "s", "c"]))

    def test_a_reserve_pair_may_be_exchanged_too(self):
        found = self.judge([("a", HOLDS)], [("r", HOLDS), ("s", ABOVE)])
        self.assertEqual(found, (["s"], ["a", "r"], ["a", "r", "s"]))

    def test_a_place_stays_empty_without_reserve(self):
        found = self.judge([("a", HOLDS), ("b", ABOVE)], [("r", HOLDS)])
        self.assertEqual(found, (["b"], ["a", "r"], ["a", "r", "b"]))


class Conclusions(unittest.TestCase):
    def test_twenty_right_verdicts_pass(self):
        end = study.conclusion(right(20))
        self.assertEqual(
            end, {"passed": True, "counts": {"right": 20, "wrong": 0, "unclear": 0, "failed": 0}, "reasons": []}
        )

    def test_four_unclear_verdicts_pass_and_five_do_not(self):
        unclear = [result("unclear")]
        self.assertTrue(study.conclusion(right(16) + 4 * unclear)["passed"])
        end = study.conclusion(right(15) + 5 * unclear)
        self.assertFalse(end["passed"])
        self.assertIn("5 verdicts are unclear", end["reasons"][0])

    def test_one_wrong_verdict_does_not_pass(self):
        end = study.conclusion(right(19) + [result("worth it", BELOW)])
        self.assertEqual((end["passed"], end["reasons"]), (False, ["1 verdicts are wrong"]))

    def test_a_failed_pair_does_not_pass(self):
        self.assertFalse(study.conclusion(right(19) + [{"pair": "a", "problem": "x"}])["passed"])

    def test_too_few_pairs_do_not_pass(self):
        end = study.conclusion(right(19))
        self.assertEqual((end["passed"], end["reasons"]), (False, ["19 pairs were judged, 20 are needed"]))


class Pairs(unittest.TestCase):
    def test_there_are_twenty_pairs_of_every_kind(self):
        self.assertEqual(len(study.PAIRS), study.WANTED)
        self.assertGreaterEqual(len(study.RESERVE), 8)
        names = [pair.name for pair in study.PAIRS + study.RESERVE]
        self.assertEqual(len(set(names)), len(names), "each pair has a folder of its own")
        for name in names:
            self.assertRegex(name, r"^[\w.-]+$")
        self.assertEqual({pair.draft[0] for pair in study.PAIRS}, {"model", "layers", "ngrams"})
        self.assertEqual({pair.target for pair in study.PAIRS}, set(study.TWINS))
        models = {pair.draft[1] for pair in study.PAIRS if pair.draft[0] == "model"}
        sizes = [
            one.name
            for one in (ROOT / "models/draft").iterdir()
            if re.fullmatch(r"smollm2-135m-instruct(-\d+)?", one.name)
        ]
        self.assertLessEqual(
            {f"models/draft/{name}" for name in sizes}, models, "every distilled draft is in some pair"
        )
        self.assertTrue(any(pair.inflate for pair in study.PAIRS), "a draft may be a twin")

    def test_words_and_config_describe_the_same_pair(self):
        pair = Pair("500M", ("model", study.WIDE), (("ffn", 6144),))
        words = pair.words(pathlib.Path("f"))
        self.assertEqual(words[:2], [study.TARGET, study.WIDE])
        self.assertEqual(words[words.index("--inflate") + 1], "hidden=896,heads=15,ffn=4864")
        self.assertEqual(words[words.index("--inflate-draft") + 1], "ffn=6144")
        config = pair.config({"strategy": "speculative_sampling", "draft": "draft", "gamma": 2})
        self.assertEqual(config["target"], {"model": study.TARGET, "inflate": study.TWINS["500M"]})
        self.assertEqual(config["drafts"], {"draft": {"model": study.WIDE, "inflate": {"ffn": 6144}}})
        self.assertEqual(config["cases"][1]["gamma"], 2)
        skip = Pair("135M", ("layers", 20))
        self.assertEqual(skip.words(pathlib.Path("f")), [study.TARGET, "--keep-layers", "20"])
        self.assertEqual(skip.config({})["drafts"], {"draft": {"layers": {"keep": 20}}})
        self.assertEqual(skip.config({})["target"], study.TARGET)
        counts = Pair("135M", ("ngrams", ("file", 3)))
        self.assertEqual(counts.words(pathlib.Path("f"))[1:3], ["--ngrams", "f/texts.ngrams"])
        self.assertNotIn("drafts", counts.config({}))
        text = Pair("135M", ("ngrams", ("text", 2)))
        self.assertEqual(text.words(pathlib.Path("f"))[1:], ["--ngrams", "text", "--order", "2"])


# Stands in for the binary. The name of the pair's folder says what it does: the verdict, and where the real run measures.
FAKE = """#!{python}
import json, pathlib, sys
words = sys.argv[1:]
log = pathlib.Path({log!r})
out = pathlib.Path(words[words.index("--out") + 1] if "--out" in words else words[-1])
plan = json.loads(pathlib.Path({plan!r}).read_text())
with open(log, "a") as file:
    file.write(json.dumps(words) + "\\n")
if words[0] == "ngram":
    out.write_text("counts")
    sys.exit(0)
does = plan[out.parent.name]
if words[0] == "preflight":
    (out / "trace").mkdir(parents=True, exist_ok=True)
    (out / "trace/config.json").write_text("{{}}")
    if does.get("stop") == "preflight":
        sys.exit(130)
    if does.get("fail") == "preflight":
        sys.exit(2)
    setting = {{"what": "draft chain", "gamma": 3, "tree": None, "speedup": 1.3}}
    verdict = {{"verdict": does["verdict"], "interval": does["predicted"], "strategies": [setting], "recommended": 0}}
    verdict |= {{"alpha": 0.5, "c": 0.05, "setting": {{"strategy": "speculative_sampling", "draft": "draft", "gamma": 3}}}}
    (out / "preflight.json").write_text(json.dumps(verdict))
else:
    out.mkdir(parents=True, exist_ok=True)
    (out / "config.json").write_text("{{}}")
    if does.get("stop") == "run":
        sys.exit(130)
    metrics = {{"speedup": sum(does["measured"]) / 2, "speedup_ci95": does["measured"], "tau": 1.5}}
    if does.get("fail") == "run":
        metrics = {{"speedup": None}}
    cases = [{{"id": "autoregressive", "strategy": "autoregressive"}}, {{"id": "spec", "strategy": "speculative_sampling", "metrics": metrics}}]
    (out / "summary.json").write_text(json.dumps({{"schema_version": 1, "cases": cases}}))
    environment = {{"cpu": {{"model": "a processor"}}, "threads": 2, "numerics": "f32", "date": "2026-01-01T00:00:00Z"}}
    (out / "environment.json").write_text(json.dumps(environment))
"""


class Orchestration(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.log, self.plan, fake = self.folder / "log", self.folder / "plan.json", self.folder / "speclab"
        fake.write_text(FAKE.format(python=sys.executable, log=str(self.log), plan=str(self.plan)))
        fake.chmod(0o755)
        changed = mock.patch.dict(os.environ, {"SPECLAB_BINARY": str(fake)})
        changed.start()
        self.addCleanup(changed.stop)
        self.records = self.folder / "records"
        self.good, self.layers = Pair("135M", ("model", study.WIDE)), Pair("135M", ("layers", 20))
        self.write_plan()

    def write_plan(self, **changes):
        plan = {
            self.good.name: {"verdict": "worth it", "predicted": [1.1, 1.5], "measured": ABOVE},
            self.layers.name: {"verdict": "not worth it", "predicted": [0.5, 0.8], "measured": BELOW},
        }
        for name, change in changes.items():
            plan[getattr(self, name).name] |= change
        self.plan.write_text(json.dumps(plan))

    def calls(self):
        return [json.loads(line) for line in self.log.read_text().splitlines()] if self.log.exists() else []

    def measure(self, pairs=None, reserve=(), options=()):
        with contextlib.redirect_stderr(io.StringIO()) as shown:
            found = study.Study(self.records, options).measure(pairs or (self.good, self.layers), reserve)
        self.shown = shown.getvalue()
        return found

    def test_both_runs_of_a_pair_and_progress(self):
        found = self.measure(options=["--threads", "1"])
        self.assertEqual([study.judgement(one) for one in found["judged"]], ["right", "right"])
        self.assertEqual([words[0] for words in self.calls()], ["preflight", "run"] * 2)
        for words in self.calls():
            self.assertEqual(words[-2:], ["--threads", "1"])
        self.assertIn("--no-check", self.calls()[0])
        config = json.loads((self.records / self.good.name / "run.json").read_text())
        self.assertEqual(config["cases"][1], {"strategy": "speculative_sampling", "draft": "draft", "gamma": 3})
        self.assertIn(f"{self.good.name}: worth it; real run", self.shown)
        self.assertGreaterEqual(found["judged"][0]["seconds"], 0)
        self.assertFalse(found["conclusion"]["passed"], "two pairs are too few")

    def test_finished_pairs_are_not_measured_again(self):
        first = self.measure()
        count = len(self.calls())
        self.assertEqual(self.measure(), first)
        self.assertEqual(len(self.calls()), count)

    def test_an_interrupted_preflight_goes_on(self):
        self.write_plan(good={"stop": "preflight"})
        with self.assertRaises(study.Interrupted):
            self.measure()
        self.assertEqual(len(self.calls()), 1, "the study stops with its run")
        self.write_plan()
        found = self.measure()
        self.assertIn("--resume", self.calls()[1])
        self.assertIsNone(found["judged"][0]["seconds"], "a part of the time is not known")

    def test_an_interrupted_real_run_goes_on(self):
        self.write_plan(good={"stop": "run"})
        with self.assertRaises(study.Interrupted):
            self.measure()
        self.write_plan()
        self.measure()
        words = self.calls()[2]
        self.assertEqual(words, ["run", "--resume", str(self.records / self.good.name / "run")])

    def test_a_failed_pair_is_kept_and_the_others_go_on(self):
        for part in ("preflight", "run"):
            with self.subTest(part):
                self.records = self.folder / part
                self.write_plan(good={"fail": part})
                found = self.measure()
                self.assertEqual([study.judgement(one) for one in found["judged"]], ["failed", "right"])

    def test_a_pair_is_exchanged(self):
        self.write_plan(good={"measured": HOLDS})
        found = self.measure(pairs=(self.good,), reserve=(self.layers,))
        self.assertEqual([one["pair"] for one in found["judged"]], [self.layers.name])
        self.assertEqual([one["pair"] for one in found["exchanged"]], [self.good.name])

    def test_ngrams_are_counted_once(self):
        pair = Pair("135M", ("ngrams", ("file", 3)))
        plan = json.loads(self.plan.read_text())
        plan[pair.name] = plan[self.good.name]
        self.plan.write_text(json.dumps(plan))
        self.measure(pairs=(pair,))
        self.assertEqual([words[0] for words in self.calls()], ["ngram", "preflight", "run"])
        self.assertTrue((self.records / "texts.ngrams").exists())

    def test_a_verdict_that_does_not_follow_from_its_interval_is_refused(self):
        self.write_plan(good={"predicted": HOLDS})
        with self.assertRaisesRegex(BadRun, "does not follow"):
            self.measure()

    def test_a_folder_of_another_study_is_refused(self):
        self.measure()
        with self.assertRaisesRegex(BadRun, "another study"):
            self.measure(options=["--threads", "4"])

    def test_damaged_results_are_refused(self):
        self.measure()
        (self.records / self.good.name / "result.json").write_text("{")
        with self.assertRaisesRegex(BadRun, "result.json"):
            self.measure()

    def test_a_missing_binary_is_named(self):
        with mock.patch.dict(os.environ, {"SPECLAB_BINARY": str(self.folder / "nowhere")}):
            with self.assertRaisesRegex(BadRun, "nowhere"):
                self.measure()

    def main(self, *words):
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = study.main([str(word) for word in words])
        return code, out.getvalue(), err.getvalue()

    def test_the_page_comes_from_the_numbers_alone(self):
        self.write_plan(good={"measured": HOLDS})
        found = self.measure(pairs=(self.good,), reserve=(self.layers,))
        numbers, page = self.folder / "n.json", self.folder / "n.md"
        study.write_json(numbers, found)
        code, out, _ = self.main("page", "--json", numbers, "--page", page)
        self.assertEqual((code, out), (1, "not passed: 1 pairs were judged, 20 are needed\n"))
        text = page.read_text(encoding="utf-8")
        for part in (
            "**not passed**",
            "1 right",
            "## Exchanged pairs",
            self.layers.name,
            "0.60 [0.50, 0.70]",
            "a processor",
        ):
            self.assertIn(part, text)

    def test_a_study_that_passes(self):
        numbers, page = self.folder / "n.json", self.folder / "n.md"
        judged = self.measure(pairs=(self.good,))["judged"] * 20
        content = {"format": study.FORMAT, "wanted": 20, "most_unclear": 4, "tokens": 96, "repeats": 2}
        content |= {"judged": judged, "exchanged": [], "conclusion": study.conclusion(judged)}
        study.write_json(numbers, content)
        self.assertEqual(self.main("page", "--json", numbers, "--page", page)[0], 0)
        self.assertIn("The test is **passed**", page.read_text(encoding="utf-8"))

    def test_another_file_is_refused(self):
        numbers = self.folder / "n.json"
        numbers.write_text('{"format": "something"}')
        code, _, err = self.main("page", "--json", numbers, "--page", self.folder / "n.md")
        self.assertEqual(code, 2)
        self.assertIn("something", err)


if __name__ == "__main__":
    unittest.main()
