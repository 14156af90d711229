"""The study of routing per query, on a made-up run whose answer is known."""

import contextlib
import io
import json
import math
import pathlib
import random
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "scripts/studies"))
sys.path.insert(0, str(ROOT / "tests/python/runs"))

import routing
import synthetic_run

PLAIN, ALONE = "autoregressive", "speculative_sampling/draft=d/gamma=64/rule=threshold/theta=0"
EXACT, LENIENT = "speculative_sampling/draft=d/gamma=4", "speculative_sampling/draft=d/gamma=4/rule=lenience"
PROMPTS = ["1", "2", "3", "4"]
# The draft is sure of prompts 1 and 2. It is wrong about its loss in prompt 2.
CONFIDENCE = {"1": 0.9, "2": 0.8, "3": 0.5, "4": 0.2}
NLL = {PLAIN: dict.fromkeys(PROMPTS, 0.5), ALONE: {"1": 0.5, "2": 2.5, "3": 0.75, "4": 3}}
NLL |= {LENIENT: dict.fromkeys(PROMPTS, 0.6)}
TOKENS, NLL_TOKENS = 4, 5  # of a text: without and with the token from prefill


def drafted(case, confidence):
    """Steps of one text. A token of the draft alone takes 1 ns of drafting, and the target 100 ns that do not count."""
    if case != ALONE:
        ns = {PLAIN: 10, EXACT: 5, LENIENT: 4}[case]
        return [{"emitted": TOKENS, "drafted": 0, "accepted": 0, "tokens": [], "ns": [0, ns * TOKENS, 0, 0]}]
    tokens = [{"confidence": value} for value in (confidence, confidence, confidence / 2)]
    return [{"emitted": TOKENS, "drafted": 3, "accepted": 3, "tokens": tokens, "ns": [3, 100, 50, 1]}]


class Study(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def write(self, name="run", change=lambda case, steps: None, cases=(PLAIN, EXACT, ALONE, LENIENT), nll=NLL):
        folder = self.folder / name
        (folder / "cases").mkdir(parents=True)
        entries = []
        for number, case in enumerate(cases):
            lines = []
            for prompt in PROMPTS:
                for repeat in range(2):
                    steps = drafted(case, CONFIDENCE[prompt])
                    change(case, steps)
                    lines.append(synthetic_run.line(random.Random(1), case, prompt, "", repeat, 0, steps))
            (folder / f"cases/{number}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
            rule = {PLAIN: None, EXACT: "rejection", LENIENT: "lenience", ALONE: "threshold"}[case]
            entries.append(
                {"id": case, "file": f"cases/{number}.jsonl", "strategy": case.split("/")[0], "rule": rule}
                | {"draft": None if case == PLAIN else "d", "lossy": case in (ALONE, LENIENT), "reference": PLAIN}
                | {"options": {"theta": 0, "threshold_top_k": 0} if case == ALONE else {}}
            )
        environment = {"models": {"target": {"name": "tiny"}}, "cpu": {"model": "a processor"}, "threads": 2}
        environment |= {"numerics": "f32", "date": "2026-01-01T00:00:00Z"}
        summary = {"schema_version": 1, "cases": entries, "ratio_noise": 0.01}
        for file, content in (("environment", environment), ("summary", summary)):
            (folder / f"{file}.json").write_text(json.dumps(content))
        teacher = [
            {"kind": "nll", "case": case, "prompt": prompt, "seed": 1, "sum": value * NLL_TOKENS, "tokens": NLL_TOKENS}
            for case, by_prompt in nll.items()
            for prompt, value in by_prompt.items()
        ]
        teacher.append({"kind": "alpha", "case": EXACT, "prompt": "1", "seed": 1, "sum": 1, "positions": 2})
        (folder / "teacher.jsonl").write_text("".join(json.dumps(line) + "\n" for line in teacher))
        return folder

    def call(self, *arguments):
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = routing.main([str(argument) for argument in arguments])
        return code, out.getvalue(), err.getvalue()

    def study(self, *arguments):
        file = self.folder / "numbers.json"
        code, out, err = self.call(self.write(), "--json", file, *arguments)
        self.assertEqual((code, err), (0, ""))
        return json.loads(file.read_text()), out

    def test_the_ends_are_the_draft_and_the_target_alone(self):
        found, _ = self.study("--look", 2, "--thresholds", 3)
        draft = found[0]
        target = next(row for row in found if row["name"] == "target alone")
        self.assertEqual((draft["name"], draft["share"]), ("draft alone", 1))
        self.assertAlmostEqual(draft["ms_per_token"], 4 / TOKENS * 1e-6, msg="3 ns of drafting and 1 of bookkeeping")
        self.assertAlmostEqual(draft["speedup"], 10)
        self.assertAlmostEqual(draft["target_nll"], (0.5 + 2.5 + 0.75 + 3) / 4)
        self.assertAlmostEqual(target["speedup"], 1)
        self.assertAlmostEqual(target["loss"], 0)

    def test_thresholds_send_the_surest_prompts_to_the_draft(self):
        found, _ = self.study("--look", 2, "--thresholds", 3)
        by_confidence = [row for row in found if row["name"] == "by confidence"]
        self.assertEqual([row["share"] for row in by_confidence], [0.75, 0.5, 0.25])
        middle = by_confidence[1]
        self.assertAlmostEqual(middle["threshold"], math.log(0.8))
        # Two prompts take 4 ns each. The other two take 40 ns, and the draft's first two of four tokens before: 8 / 3 ns.
        self.assertAlmostEqual(middle["ms_per_token"], (2 * 4 + 2 * (40 + 8 / 3)) / (4 * TOKENS) * 1e-6)
        self.assertAlmostEqual(middle["loss"], (0 + 2 + 0 + 0) / 4, msg="it trusts prompt 2 wrongly")
        hindsight = [row for row in found if row["name"] == "in hindsight"][1]
        self.assertAlmostEqual(hindsight["loss"], (0 + 0.25) / 4)
        self.assertAlmostEqual(hindsight["ms_per_token"], (2 * 4 + 2 * 40) / (4 * TOKENS) * 1e-6)
        coin = [row for row in found if row["name"] == "by a coin"][1]
        self.assertAlmostEqual(coin["loss"], (0 + 2 + 0.25 + 2.5) / 4 / 2)
        low, high = middle["loss_ci95"]
        self.assertTrue(low < middle["loss"] < high, (low, high))

    def test_the_router_may_look_at_all_tokens(self):
        found, _ = self.study("--look", 0, "--thresholds", 3)
        middle = [row for row in found if row["name"] == "by confidence"][1]
        self.assertAlmostEqual(middle["threshold"], math.log(0.8) - math.log(2) / 3)
        self.assertAlmostEqual(middle["ms_per_token"], (2 * 4 + 2 * (40 + 4)) / (4 * TOKENS) * 1e-6)

    def test_speculative_decoding_and_lossy_rules_stand_beside_it(self):
        found, out = self.study("--look", 2, "--thresholds", 3)
        exact, lenient = found[-2:]
        self.assertAlmostEqual(exact["speedup"], 2)
        self.assertAlmostEqual(exact["loss"], 0)
        self.assertAlmostEqual(lenient["speedup"], 2.5)
        self.assertAlmostEqual(lenient["loss"], 0.1)
        self.assertIn("tiny on a processor, 2 threads", out)
        self.assertIn("| draft alone |  | 100 % | 0.000 | 10.00", out)
        # The router with three quarters to the draft takes 12 + 40 + 8 / 3 ns, less than 4 * 20, and loses (0 + 2 + .25) / 4.
        self.assertIn("Routers by confidence that are faster lose at least +0.562 nats per token.", out)

    def test_a_run_that_lacks_something_is_refused(self):
        def refused(text, folder):
            code, out, err = self.call(folder)
            self.assertEqual((code, out), (2, ""), err)
            self.assertIn(text, err)

        def reject(case, steps):
            if case == ALONE:
                steps[0]["accepted"] = 2

        def forget(case, steps):
            for token in steps[0]["tokens"]:
                token["confidence"] = -1

        refused("0 cases with the rule", self.write("no draft", cases=(PLAIN, EXACT, LENIENT)))
        refused("a drafted token was rejected", self.write("rejects", reject))
        refused("no confidence", self.write("unsure", forget))
        refused(f'no "nll" of {ALONE}', self.write("no nll", nll={PLAIN: NLL[PLAIN]}))
        refused(f'no "nll" of {LENIENT}', self.write("no lossy nll", nll={PLAIN: NLL[PLAIN], ALONE: NLL[ALONE]}))
        folder = self.write("no teacher")
        (folder / "teacher.jsonl").unlink()
        refused('"teacher_forced": true', folder)

    def test_its_config_has_what_it_needs(self):
        config = json.loads((ROOT / "configs/routing.json").read_text(encoding="utf-8"))
        self.assertIsNot(config.get("teacher_forced"), False)
        alone = [case for case in config["cases"] if case.get("rule") == "threshold" and case.get("theta") == 0]
        self.assertEqual(len(alone), 1)
        self.assertEqual((alone[0]["schedule"], alone[0]["confidence_threshold"]), ("confidence", 0))
        self.assertGreaterEqual(alone[0]["gamma"] + 1, config["options"]["max_tokens"])


if __name__ == "__main__":
    unittest.main()
