"""The training of controllers: samples, labels, the replay that chooses a threshold, calibration, and the file, on made-up traces."""

import contextlib
import io
import json
import pathlib
import sys
import tempfile
import unittest
from unittest import mock

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / "scripts/fit"), str(ROOT / "scripts")]

import controller_choice
import controller_samples
import fit_controller

from figures.record import hash_of

CASE = "speculative_sampling/draft=d/gamma=3/schedule=entropy/entropy_threshold=10/top_probabilities=2"
RIGHT = {"confidence": 0.9, "entropy": 0.25, "top": [0.9, 0.05]}
WRONG = {"confidence": 0.2, "entropy": 2.0, "top": [0.2, 0.15]}
LENGTH = 24  # tokens of a text


def prompts_of(split, count):
    lines = (ROOT / "configs/prompts/speclab.jsonl").read_text(encoding="utf-8").splitlines()
    found = [prompt for prompt in map(json.loads, lines) if prompt["split"] == split]
    return [{"id": str(one["question_id"]), "split": split, "turns": one["turns"]} for one in found[:count]]


def step(text, position, right, gamma=3, plain=False):
    """A draft of `gamma` tokens after this position: the first `right` tokens are those of the text, the others are 0."""
    tokens, rows = [], []
    for depth in range(1, gamma + 1):
        good = depth <= right
        place = position + depth
        look = RIGHT if good else WRONG
        tokens.append({"id": text[place] if good and place < len(text) else 0, "tested": depth <= right + 1})
        tokens[-1]["confidence"] = look["confidence"]
        if not plain:
            tokens[-1]["entropy"] = look["entropy"]
        rows.append(look["top"])
    return {"tokens": tokens, "emitted": 1} | ({} if plain else {"top": rows})


def line(prompt, rights, **more):
    text = list(range(1, len(rights) + 2))
    steps = [step(text, position, right, **more) for position, right in enumerate(rights)]
    return {
        "case": CASE,
        "prompt": prompt,
        "repeat": 0,
        "tokens": text,
        "turns": [{"tokens": len(text), "steps": len(steps)}],
        "output_hash": hash_of(text),
        "row_hashes": [],
        "logits_hash": hash_of([]),
        "steps": steps,
    }


class FakeCase:
    """A case with given lines."""

    id = CASE

    def __init__(self, *lines):
        self._lines = lines

    def lines(self):
        return self._lines


class SampleTest(unittest.TestCase):
    def test_tokens_after_right_ones_are_labelled_up_to_the_end_of_the_text(self):
        samples = controller_samples.Samples(FakeCase(line("p", [2, 0, 3, 1])))  # five tokens
        # At position 2, two more tokens are known; at position 3, one.
        labelled = [[1, 1, 1], [1, 0, 0], [1, 1, 0], [1, 0, 0]]
        accepted = [[1, 1, 0], [0, 0, 0], [1, 1, 0], [1, 0, 0]]
        self.assertEqual(samples.labelled.astype(int).reshape(4, 3).tolist(), labelled)
        self.assertEqual(samples.accepted.astype(int).reshape(4, 3).tolist(), accepted)
        self.assertEqual(samples.texts[0].matching.tolist(), [2, 0, 2, 1])
        self.assertEqual(samples.texts[0].begin.tolist(), [0, 3, 6, 9, 12])

    def test_features_are_those_of_the_schedule(self):
        samples = controller_samples.Samples(FakeCase(line("p", [1, 0])))
        found = samples.features(["confidence", "entropy", "margin", "position", "product", "top_2"])
        np.testing.assert_allclose(found[0], [0.9, 0.25, 0.85, 1, 0.9, 0.05])
        np.testing.assert_allclose(found[1], [0.2, 2, 0.05, 2, 0.18, 0.15])
        np.testing.assert_allclose(found[3], [0.2, 2, 0.05, 1, 0.2, 0.15])  # a new draft
        with self.assertRaisesRegex(controller_samples.Refused, "--top"):
            samples.features(["top_3"])

    def test_turns_and_repeats(self):
        one = line("p", [1, 1])
        two = line("p", [3])
        both = {**one, "tokens": one["tokens"] + two["tokens"], "steps": one["steps"] + two["steps"]}
        both["turns"] = one["turns"] + two["turns"]
        samples = controller_samples.Samples(FakeCase(both, {**one, "repeat": 1}))
        self.assertEqual([len(text.matching) for text in samples.texts], [2, 1])
        self.assertEqual(samples.texts[1].matching.tolist(), [1], "the second turn has two tokens")
        self.assertEqual(samples.of_prompts({"p"})[1].sum(), 9)
        self.assertEqual(samples.of_prompts({"q"})[1].sum(), 0)

    def test_a_trace_without_rows_is_refused(self):
        for lines in ([line("p", [1], plain=True)], [line("p", [1], gamma=0)]):
            with self.assertRaises(controller_samples.Refused):
                controller_samples.Samples(FakeCase(*lines))

    def test_a_text_that_depends_on_the_drafts_is_refused(self):
        exact = controller_samples.Samples(FakeCase({**line("p", [1]), "promise": "ids"}))
        self.assertEqual(len(exact.texts), 1)
        with self.assertRaisesRegex(controller_samples.Refused, "coins=gumbel"):
            controller_samples.Samples(FakeCase({**line("p", [1]), "promise": "nothing"}))


class Choice(unittest.TestCase):
    def test_predictions_are_those_of_the_engine(self):
        """The numbers of tests/decoding/drafting/controller_test.cpp."""
        layers = [
            {"weights": [[1, 2, 3, -1, 0.5, -2], [-1, -1, -1, -1, -1, -1]], "bias": [0.1, 0]},
            {"weights": [[2, 5]], "bias": [-3]},
        ]
        controller = {"mean": [0] * 6, "scale": [1] * 6, "layers": layers}
        features = np.array([[0.6, 0.05, 0.5, 1, 2, 0.3], [0, 0, 0, 1, 2, 0.3]])
        np.testing.assert_allclose(
            controller_choice.predict(controller, features), [0.598687660112452, 0.04742587317756678], atol=1e-12
        )
        plain = {"mean": [0.5], "scale": [0.25], "layers": [{"weights": [[1]], "bias": [0]}]}
        self.assertAlmostEqual(controller_choice.predict(plain, np.array([[0.75]]))[0], 0.7310585786300049)

    def test_schedules_stop_as_those_of_the_engine(self):
        disco = controller_choice.stops("disco", np.array([0.7, 0.5, 0.4]), 0.5)
        self.assertEqual(disco.tolist(), [False, False, True])
        product = controller_choice.stops("specdec_pp", np.full(3, 0.7310586), 0.5)
        self.assertEqual(product.tolist(), [False, False, True])

    def test_reliability_as_in_the_engine(self):
        """The numbers of tests/theory/reliability_test.cpp."""
        found = controller_choice.reliability([0.9, 0.2, 0.7, 0.8], [True, False, False, True], 2)
        self.assertAlmostEqual(found["brier"], (0.01 + 0.04 + 0.49 + 0.04) / 4)
        self.assertAlmostEqual(found["ece"], (0.45 + 0.15) / 2)
        self.assertEqual([entry["count"] for entry in found["bins"]], [2, 2])
        self.assertEqual([entry["share"] for entry in found["bins"]], [0, 1])
        found = controller_choice.reliability([0.5, 0.5, 0.5, 0.5, 0.9], [True, False, True, False, True], 5)
        self.assertEqual([entry["count"] for entry in found["bins"]], [4, 1])
        self.assertAlmostEqual(found["ece"], 0.1 / 5)

    def test_a_replay_takes_the_steps_of_the_engine(self):
        """The text of tests/experiments/simulate/replay_test.cpp: drafts of three tokens with 2, 0, 3, 1, 0, 0 right ones."""
        text = controller_samples.Text("p", np.arange(0, 19, 3), np.array([2, 0, 3, 1, 0, 0]))
        self.assertEqual(controller_choice.replay([text], [[3] * 6]), [(3, 3), (3, 2), (3, 1)])
        self.assertEqual(controller_choice.replay([text], [[1] * 6]), [(1, 2), (1, 2), (1, 1), (1, 1)])
        predicted = np.array([0.9, 0.5, 0.2] * 6)
        lengths = controller_choice.drafted_tokens("disco", predicted, [text], 0.6)
        self.assertEqual(lengths, [[2] * 6])
        self.assertEqual(controller_choice.drafted_tokens("disco", predicted, [text], 0.1), [[3] * 6])

    def test_the_fastest_threshold_is_chosen(self):
        linear = lambda slope: {"constant": 0, "slope": slope}
        costs = {CASE: {"draft_ns": linear(1), "accept_ns": linear(0), "other_ns": 0}}
        calibration = {"t_n_ns": {"1": 10, "4": 13}, "cases": costs}
        times = controller_choice.StepTimes({"calibration": calibration}, FakeCase())
        self.assertEqual([times.step(drafted) for drafted in (0, 1, 3, 5)], [10, 12, 16, 20])
        text = controller_samples.Text("p", np.arange(0, 19, 3), np.array([2, 0, 3, 1, 0, 0]))
        predicted = np.array([0.9, 0.5, 0.2] * 6)
        threshold, rows = controller_choice.choose_threshold("disco", predicted, [text], times)
        by_threshold = {row["threshold"]: row for row in rows}
        # Three drafted tokens: 3 steps of 16; two: 3 steps of 14; one: 4 steps of 12; for 6 tokens.
        self.assertAlmostEqual(1e6 * by_threshold[0.4]["ms_per_token"], 48 / 6)
        self.assertAlmostEqual(1e6 * by_threshold[0.6]["ms_per_token"], 42 / 6)
        self.assertAlmostEqual(1e6 * by_threshold[0.95]["ms_per_token"], 48 / 6)
        self.assertEqual(by_threshold[0.6]["tau"], 2)
        self.assertEqual(by_threshold[0.6]["drafted_per_step"], 2)
        self.assertEqual(threshold, 0.55, "the first one above .5")
        with self.assertRaisesRegex(controller_samples.Refused, "--threshold"):
            controller_choice.StepTimes({"calibration": None}, FakeCase())


class Fit(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.prompts = prompts_of("fit", 8)
        self.options = {"emit_at_most": 1, "top_probabilities": 2}
        self.rights = [position * 7 % 4 for position in range(LENGTH - 1)]

    def write(self, calibration=True, **more):
        linear = lambda slope: {"constant": 0, "slope": slope}
        costs = {CASE: {"draft_ns": linear(1e5), "accept_ns": linear(0), "other_ns": 0}}
        case = {"id": CASE, "file": "cases/0.jsonl", "strategy": "speculative_sampling", "draft": "d"}
        case |= {"options": self.options, "reference": "autoregressive"}
        summary = {"schema_version": 1, "cases": [case]}
        if calibration:
            summary["calibration"] = {"t_n_ns": {"1": 1e6, "4": 1.3e6}, "cases": costs}
        models = {"target": {"name": "T", "sha256": "t"}, "d": {"name": "small", "sha256": "abc"}}
        for name, content in (
            ("summary", summary),
            ("config", {"prompts": self.prompts}),
            ("environment", {"models": models}),
        ):
            (self.folder / f"{name}.json").write_text(json.dumps(content))
        (self.folder / "cases").mkdir(exist_ok=True)
        lines = [json.dumps(line(prompt["id"], self.rights, **more)) for prompt in self.prompts]
        (self.folder / "cases/0.jsonl").write_text("".join(text + "\n" for text in lines))

    def run_script(self, *more, schedule="disco"):
        out, error = io.StringIO(), io.StringIO()
        words = [str(self.folder), "--schedule", schedule, "--top", "2", "--out", str(self.folder / "new/c.json")]
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(error):
            try:
                code = fit_controller.main([*words, *more])
            except SystemExit as exit:
                code = exit.code
        return code, out.getvalue(), error.getvalue()

    def test_a_controller_tells_right_tokens_from_wrong_ones(self):
        self.write()
        for schedule, features in (
            ("disco", ["top_1", "top_2", "entropy", "position"]),
            ("specdec_pp", ["confidence", "entropy", "margin", "position", "product"]),
        ):
            code, out, error = self.run_script(schedule=schedule)
            self.assertEqual((code, error), (0, ""))
            controller = json.loads((self.folder / "new/c.json").read_text())
            self.assertEqual(controller["format"], "speclab controller")
            self.assertEqual(controller["version"], 1)
            self.assertEqual(controller["schedule"], schedule)
            self.assertEqual(controller["draft"], {"name": "small", "sha256": "abc"})
            self.assertEqual(controller["features"], features)
            self.assertEqual(len(controller["layers"][0]["weights"]), 16)
            self.assertEqual(len(controller["layers"][0]["weights"][0]), len(features))
            self.assertEqual(len(controller["layers"][1]["weights"]), 1)
            held_out = controller["held_out"]
            self.assertEqual(held_out["prompts"], [self.prompts[3]["id"], self.prompts[7]["id"]])
            self.assertEqual(len(controller["training"]["prompts"]), 6)
            self.assertLess(held_out["calibration"]["brier"], 0.05, "the features tell all")
            self.assertTrue(0 < controller["threshold"] < 1)
            self.assertIn("chosen", out)
            self.assertIn("the draft's probability", out)
            samples = controller_samples.Samples(FakeCase(line("p", [1])))
            right, wrong, _ = controller_choice.predict(controller, samples.features(features))
            self.assertGreater(right, 0.7)
            self.assertLess(wrong, 0.2)

    def test_rejections_that_weigh_more_lower_the_predictions(self):
        """First tokens are right in about three of four cases, and look the same."""
        self.rights = [0 if position % 4 == 0 else 3 for position in range(LENGTH - 1)]
        with mock.patch.dict(WRONG, RIGHT):
            self.write()
            means = []
            for weight in ("1", "6"):
                code, _, error = self.run_script("--rejection-weight", weight, "--hidden", "2", "--top", "1")
                self.assertEqual((code, error), (0, ""))
                controller = json.loads((self.folder / "new/c.json").read_text())
                bins = controller["held_out"]["calibration"]["bins"]
                count = sum(entry["count"] for entry in bins)
                means.append(sum(entry["forecast"] * entry["count"] for entry in bins) / count)
                share = controller["held_out"]["accepted"]
        self.assertAlmostEqual(means[0], share, delta=0.05)
        self.assertLess(means[1], means[0] - 0.1)

    def test_the_threshold_may_be_given(self):
        self.write(calibration=False)
        code, _, error = self.run_script()
        self.assertEqual(code, 2)
        self.assertIn("--threshold", error)
        self.assertEqual(self.run_script("--threshold", "0.25")[0], 0)
        self.assertEqual(json.loads((self.folder / "new/c.json").read_text())["threshold"], 0.25)

    def test_what_cannot_be_trained_on_is_refused(self):
        def refused(text, *more):
            code, out, error = self.run_script(*more)
            self.assertEqual((code, out), (2, ""), error)
            self.assertIn(text, error)
            self.assertFalse((self.folder / "new").exists())

        refused("config.json")
        self.write(plain=True)
        refused("--evidence top")
        self.options = {"emit_at_most": 1}
        self.write()
        refused("--evidence top")
        self.options = {"emit_at_most": 1, "top_probabilities": 2}
        self.write()
        refused("--evidence top", "--case", "another")
        refused("not 3", "--top", "3")
        refused("at most 16", "--top", "17")
        refused("0 to 1", "--threshold", "2")
        refused("above 0", "--rejection-weight", "0")
        self.rights = [0] * (LENGTH - 1)
        self.write()
        refused("nothing to tell apart")
        self.rights = [1, 0] * 3
        self.prompts = prompts_of("fit", 3)
        self.write()
        refused("at least 4")
        self.prompts = prompts_of("measure", 8)
        self.write()
        refused('of split "measure"')


if __name__ == "__main__":
    unittest.main()
