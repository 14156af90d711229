"""speclab.measure_proposer: proposers in Python, with the real binary on a tiny model and on a toy."""

import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import unittest
import unittest.mock

import installed

installed.use()
sys.path.insert(0, str(installed.ROOT / "tests/python/pages"))

import numpy as np
from tiny_model import write_tiny_model

import speclab
from speclab.proposals import BadAnswer, checked

BINARY = pathlib.Path(os.environ.get("SPECLAB_BINARY", installed.ROOT / "build/release/speclab"))
SYMBOLS = 8
TOY = {"markov": {"vocab": SYMBOLS, "order": 1, "seed": 1, "sharpness": 2}}
ARGUMENTS = ("--backend", "cpu", "--threads", "1")


class Lookup:
    """Copies what followed the first earlier occurrence of the last tokens, as `prompt_lookup` does by default."""

    def propose(self, context_ids, k):
        text = context_ids.tolist()
        for n in (3, 2, 1):
            for start in range(n, len(text)):
                if text[start - n : start] == text[-n:]:
                    return text[start : start + k]
        return []


class Uniform:
    """Returns a row in which all tokens are equally probable, and guesses token 0."""

    def __init__(self):
        self.texts = []

    def propose(self, context_ids, k):
        self.texts.append(context_ids)
        return np.zeros(k, int), np.full((k, SYMBOLS), 1 / SYMBOLS)


class Measured(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        patch = unittest.mock.patch.dict(os.environ, {"SPECLAB_BINARY": str(BINARY)})
        patch.start()
        self.addCleanup(patch.stop)

    def toy(self, proposer, **more):
        settings = {"max_tokens": 40, "prompts": ["1 2 3", "4 5"], "out": self.folder / "run", **more}
        return speclab.measure_proposer(proposer, target=TOY, arguments=ARGUMENTS, **settings)

    def expect_copies(self, run):
        """Lookup must draft the same tokens as prompt_lookup, and the same tokens must be accepted."""
        inside = next(case for case in run.cases.index if case.startswith("prompt_lookup"))
        outside = "outside_proposer/proposer=Lookup/gamma=4"
        order = ["prompt", "turn", "step", "node"]
        drafted = run.drafted.sort_values(order)[["case", *order, "id", "tested", "accepted"]]
        of = {case: part.drop(columns="case").values.tolist() for case, part in drafted.groupby("case")}
        self.assertGreater(len(of[inside]), 0)
        self.assertEqual(of[outside], of[inside])
        for metric in ("tau", "alpha", "steps", "tokens"):
            self.assertEqual(run.cases[metric][outside], run.cases[metric][inside], metric)
        hashes = run.lines.groupby("case").output_hash.agg(set)
        self.assertEqual(hashes[outside], hashes["autoregressive"])
        self.assertTrue(run.cases.matches_reference[outside])
        self.assertIn("they do not show how fast the method is", run.cases.times_note[outside])
        self.assertTrue(run.cases.times_note.drop(outside).isna().all())
        return run.cases.loc[outside]

    def test_copies_are_those_of_prompt_lookup(self):
        lookup = {"strategy": "prompt_lookup", "length": 4, "cut_at_end": False, "budget": "fixed"}
        # A greedy text of a Markov chain soon repeats itself, so copies are accepted.
        found = self.expect_copies(self.toy(Lookup(), cases=[lookup]))
        self.assertGreater(found.tau, 1.5)
        self.assertGreater(found.alpha, 0.5)
        report = subprocess.run([BINARY, "report", self.folder / "run"], capture_output=True, text=True)
        self.assertIn(
            "/gamma=4: another program proposed the tokens, and the times of this case contain that program",
            report.stdout,
        )
        write_tiny_model(self.folder / "model", layers=2)
        run = speclab.measure_proposer(
            Lookup(),
            target=self.folder / "model",
            prompts=["Why is the sky blue?", {"id": "count", "turns": ["Count to ten. Count to nine.", "Again."]}],
            max_tokens=48,
            options={"ignore_eos": True},
            cases=[lookup],
            out=self.folder / "model-run",
            arguments=ARGUMENTS,
        )
        self.expect_copies(run)

    def test_tokens_are_drawn_from_the_rows(self):
        uniform = Uniform()
        run = self.toy(uniform, temperature=1, gamma=[2, 3], seed=[1, 2], options={"ignore_eos": True})
        drafted = run.drafted
        self.assertEqual(set(drafted.case), {f"outside_proposer/proposer=Uniform/gamma={gamma}" for gamma in (2, 3)})
        tested = drafted[drafted.tested]
        self.assertTrue(np.allclose(tested.q, 1 / SYMBOLS))
        self.assertEqual(set(drafted.id), set(range(SYMBOLS)), "the engine draws, whatever is guessed")
        # The expected acceptance of a draw is the sum of min(p, 1/8) over the target's row.
        self.assertTrue(tested.expected.between(1 / SYMBOLS, 1).all())
        self.assertFalse(uniform.texts[0].flags.writeable)
        self.assertTrue(run.cases.alpha.drop("autoregressive").between(0, 1).all())

    def test_coupled_texts_are_equal(self):
        class RowByRow:
            def propose(self, context_ids, k):
                return None, np.full(SYMBOLS, 1 / SYMBOLS, np.float32)

        run = self.toy(RowByRow(), temperature=1, options={"coins": "gumbel"})
        case = "outside_proposer/proposer=RowByRow/gamma=4"
        self.assertTrue(run.cases.matches_reference[case])
        self.assertGreater(run.cases.tau[case], 1)

    def test_begin_observe_and_trees(self):
        class Watching:
            """Proposes the same token twice, as children of the text and below each other."""

            def __init__(self):
                self.begun, self.text = [], []

            def begin(self, prompt_ids):
                self.begun.append(prompt_ids.tolist())
                self.text = None

            def propose(self, context_ids, k):
                if self.text is not None and self.text != context_ids.tolist():
                    raise AssertionError(f"{self.text} and {context_ids}")
                self.text = context_ids.tolist()
                last = self.text[-1]
                tokens, parents = [last, (last + 1) % SYMBOLS, last], [-1, -1, 0]
                return speclab.DraftTree(tokens, parents) if k > 1 else None

            def observe(self, accepted, tokens):
                if not 0 <= accepted <= len(tokens):
                    raise AssertionError(f"{accepted} of {tokens}")
                if self.text is not None:
                    self.text += tokens.tolist()

        watching = Watching()
        run = self.toy(watching)
        self.assertEqual(sorted(watching.begun), [[1, 2, 3], [4, 5]])
        case = "outside_proposer/proposer=Watching/gamma=4"
        self.assertTrue(run.cases.matches_reference[case])
        drafted = run.drafted
        self.assertEqual(drafted[drafted.node == 3].parent.unique().tolist(), [1])
        self.assertEqual(drafted[drafted.node == 2].parent.unique().tolist(), [0])

    def test_an_exception_keeps_its_traceback_and_names_the_place(self):
        class Tired:
            def __init__(self):
                self.calls = 0

            def propose(self, context_ids, k):
                self.calls += 1
                if self.calls == 3:
                    raise ZeroDivisionError("too tired")
                return [0]

        tired = Tired()
        caught = None
        try:  # assertRaises would drop the traceback
            self.toy(tired, prompts=[{"id": "only", "turns": ["1 2 3"]}])
        except ZeroDivisionError as error:
            caught = error
        self.assertEqual(str(caught), "too tired")
        (note,) = caught.__notes__
        self.assertRegex(
            note, r"Raised by Tired\.propose\(\) in step 2 of prompt 'only', seed 1\. Finished lines are in "
        )
        frames = traceback.extract_tb(caught.__traceback__)
        self.assertEqual((frames[-1].name, pathlib.Path(frames[-1].filename).name), ("propose", "test_proposers.py"))
        self.assertEqual(tired.calls, 3, "nothing is asked after an exception")
        (line,) = (self.folder / "run/cases").glob("outside_proposer*.jsonl")
        self.assertIn("ZeroDivisionError: too tired", line.read_text())

    def test_a_proposer_that_hangs_is_interrupted(self):
        class Stuck:
            def propose(self, context_ids, k):
                while True:
                    try:
                        time.sleep(3600)
                    except Exception:  # a proposer that goes on, whatever happens, is interrupted too
                        if self.caught:
                            raise
                        self.caught = True

        stuck = Stuck()
        stuck.caught = False
        before = signal.signal(signal.SIGALRM, signal.SIG_IGN)
        self.addCleanup(signal.signal, signal.SIGALRM, before)
        start = time.monotonic()
        with self.assertRaisesRegex(speclab.Error, "no answer within 0.2 s.*larger time_limit") as caught:
            self.toy(stuck, prompts=[{"id": "only", "turns": ["1 2 3"]}], time_limit=0.2)
        self.assertLess(time.monotonic() - start, 30)
        self.assertTrue(stuck.caught)
        (note,) = caught.exception.__notes__
        self.assertIn("Raised by Stuck.propose() in step 0 of prompt 'only', seed 1.", note)
        self.assertEqual(signal.getsignal(signal.SIGALRM), signal.SIG_IGN)
        self.assertEqual(signal.getitimer(signal.ITIMER_REAL), (0, 0))

    def test_an_answer_without_sense_names_the_place(self):
        class Strange:
            def propose(self, context_ids, k):
                return [SYMBOLS]

        with self.assertRaisesRegex(
            speclab.Error, r"^Strange\.propose\(\) in step 0 of prompt '[12]', seed 1: tokens: got 8 at place 0"
        ):
            self.toy(Strange())

    def test_what_the_engine_refuses(self):
        with self.assertRaisesRegex(speclab.Error, "no_such_rule"):
            self.toy(Lookup(), rule="no_such_rule")
        with self.assertRaisesRegex(speclab.Error, "/no/such/model"):
            speclab.measure_proposer(Lookup(), target="/no/such/model", prompts=["hi"], out=self.folder / "none")
        with self.assertRaisesRegex(speclab.Error, "has no method propose"):
            self.toy(object())
        for seconds in (0, -1, float("nan"), 1e6):
            with self.assertRaisesRegex(speclab.Error, "time_limit: got .*, expected 0.01 to 86400 seconds"):
                self.toy(Lookup(), time_limit=seconds)
        with self.assertRaisesRegex(speclab.Error, "name: got 'a/b'"):
            self.toy(Lookup(), name="a/b")
        with self.assertRaisesRegex(speclab.Error, "the config of the run"):
            self.toy(Lookup(), options={"stop": {1, 2}})


class Answers(unittest.TestCase):
    """The checks of what a proposer returns."""

    def test_right_answers(self):
        for answer, tokens, rows in (
            (None, [], 0),
            ([], [], 0),
            ((1, 2), [1, 2], 0),
            (np.array([3], np.uint8), [3], 0),
            (([1, 2], np.eye(4)[[1, 2]]), [1, 2], 2),
            ((None, [0.25] * 4), [], 1),
            (([1], None), [1], 0),
            (([], np.zeros((0, 4))), [], 0),
        ):
            with self.subTest(answer=answer):
                found = checked(answer, 2, 4)
                self.assertEqual((found.form, found.tokens.tolist(), len(found.rows)), (0, tokens, rows))
                self.assertEqual(len(found.message()), 4 * (3 + len(tokens) + 4 * rows))
        tree = checked(speclab.DraftTree([1, 2, 3], np.array([-1, 0, -1])), 2, 4)
        self.assertEqual((tree.form, tree.parents.tolist()), (1, [-1, 0, -1]))

    def test_wrong_answers(self):
        even = np.full(4, 0.25)
        tree = speclab.DraftTree
        for answer, words in (
            (5, "tokens: got int of shape"),
            ("ab", "tokens: got str, expected a list"),
            ([[1], [2]], "of one dimension"),
            ([1.0], "type float64, expected whole numbers"),
            ([True], "type bool"),
            ([[1], [2, 3]], "tokens: "),
            ([2, 4], "got 4 at place 1, expected ids from 0 to 3"),
            ([2**40], "got 1099511627776 at place 0"),
            ([-1], "got -1 at place 0"),
            ([1, 1, 1], "got 3, expected at most k = 2"),
            (([1], np.full((2, 4), 0.25)), r"shape \(2, 4\), expected \(1, 4\)"),
            (([1], np.full(3, 1 / 3)), r"shape \(3,\)"),
            ((None, np.full((2, 4), 0.25)), r"expected \(1, 4\)"),
            (([1], even * 0.9), "row 0 with the sum 0.9, expected 1"),
            (([1], even * np.nan), "got nan for token 0 in row 0"),
            (([1], [1.5, -0.5, 0, 0]), "got -0.5 for token 1"),
            (([1], [0.5, 0, 0.5, 0]), "q = 0 in row 0 for its own token 1"),
            (([1], ["a", "b", "c", "d"]), "expected probabilities"),
            (tree([1, 2], [-1]), "parents: got 1, expected one for each of the 2 tokens"),
            (tree([1, 2], [-1, 1]), "parents: got 1 at place 1"),
            (tree([1, 2, 3], [-1, 0, 1]), "a token at depth 3, expected a depth of at most k = 2"),
            (tree([1] * 128, [-1] * 128), "a tree of 128, expected at most 127"),
        ):
            with self.subTest(answer=answer), self.assertRaisesRegex(BadAnswer, words):
                checked(answer, 2, 4)


if __name__ == "__main__":
    unittest.main()
