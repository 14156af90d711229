"""speclab.load_foreign: every format in one common form, and bad input that leaves the rest usable."""

import math
import pathlib
import tempfile
import unittest
import warnings

import foreign_files as made
import installed

installed.use()

import speclab
from speclab import theory


class Files(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def write(self, text, name="file"):
        file = self.folder / name
        file.write_text(text, encoding="utf-8")
        return file

    def load(self, text, **options):
        """Loads a file without problems. A warning is an error."""
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            return speclab.load_foreign(self.write(text), **options)

    def partly(self, text, problem, **options):
        """The usable part of a file with one problem."""
        file = self.write(text)
        with self.assertWarnsRegex(UserWarning, "1 problems"):
            found = speclab.load_foreign(file, **options)
        self.assertEqual(len(found.problems), 1)
        self.assertRegex(found.problems.problem[0], problem)
        with self.assertRaisesRegex(speclab.Error, problem):
            speclab.load_foreign(file, strict=True, **options)
        return found

    def refused(self, text, problem, **options):
        with self.assertRaisesRegex(speclab.Error, problem):
            speclab.load_foreign(self.write(text), **options)


class SpecBench(Files):
    def test_frames(self):
        text = made.lines(
            made.answer(81, [3, 1, 5, 2]),
            made.answer(82, [1, 1, 2, 4, 1], category="qa", wall=(1.0, 0.5), steps=[2, 3]),
        )
        found = self.load(text, gamma=4)
        self.assertEqual(found.format, "Spec-Bench answer file")
        self.assertEqual(list(found.texts.text), ["81", "82"])
        self.assertEqual(list(found.texts.category), ["writing", "qa"])
        self.assertEqual(list(found.texts.tokens), [11, 9])
        self.assertEqual(list(found.texts.steps), [4, 5])
        self.assertEqual(list(found.texts.accepted), [7, 4])
        self.assertEqual(list(found.texts.drafted), [16, 20])
        self.assertEqual(list(found.texts.seconds), [2.0, 1.5])
        self.assertEqual(list(found.steps.emitted), [3, 1, 5, 2, 1, 1, 2, 4, 1])
        self.assertEqual(found.texts.attrs["units"]["seconds"], "s")
        row = found.cases.loc["m-7b"]
        self.assertEqual((row.texts, row.tokens, row.tau), (2, 20, 20 / 9))
        self.assertAlmostEqual(row.tokens_per_second, 20 / 3.5)
        self.assertLess(row.tau_lo, row.tau)

    def test_the_last_step_of_each_turn_is_no_rejection(self):
        """Steps of turn 1: 1, 1; of turn 2: 2, 4, 1. Without the last of each: 1, 2, 4 with 0, 1, 3 accepted tokens of 4."""
        found = self.load(made.lines(made.answer(1, [1, 1, 2, 4, 1], wall=(1, 1), steps=[2, 3])), gamma=4)
        self.assertEqual([(one.accepted, one.rejected) for one in found.rounds()[0]], [(0, True), (1, True), (3, True)])
        self.assertEqual(found.alpha().value, 4 / 7)
        self.assertIsNone(found.alpha().lo)

    def test_a_draft_that_is_accepted_whole_has_no_rejection(self):
        found = self.load(made.lines(made.answer(1, [3, 3, 1, 1])), gamma=2)
        self.assertEqual(found.alpha().value, 4 / 5)

    def test_gamma_must_be_known_for_alpha_alone(self):
        found = self.load(made.lines(made.answer(1, [3, 1, 1])))
        self.assertEqual(found.tau().value, 5 / 3)
        self.assertTrue(found.cases.alpha.isna().all())
        with self.assertRaisesRegex(speclab.Error, "does not tell the draft length.*gamma=.*accepted here is 2"):
            found.alpha()
        with self.assertRaisesRegex(speclab.Error, "accepted 2 tokens, more than gamma = 1"):
            self.load(made.lines(made.answer(1, [3, 1, 1])), gamma=1).alpha()

    def test_closed_forms_run_on_it(self):
        found = self.load(made.lines(*(made.answer(i, [3, 1, 5, 2, 1 + i % 4, 2]) for i in range(8))), gamma=4)
        alpha = found.alpha()
        self.assertEqual(alpha.value, theory.alpha_mle(found.rounds()).value)
        frame = found.predict(c=0.1)
        self.assertEqual(frame.value["leviathan_3_8"], theory.walltime_improvement(alpha.value, 4, 0.1))
        self.assertEqual(frame.value_lo["leviathan_3_8"], theory.walltime_improvement(alpha.lo, 4, 0.1))
        self.assertTrue((frame.value_lo <= frame.value_hi).all())
        self.assertLess(found.predict(c=0.3).value["leviathan_3_8"], frame.value["leviathan_3_8"])

    def test_a_single_text_has_no_interval(self):
        found = self.load(made.lines(made.answer(1, [3, 1, 5, 2])), gamma=4)
        self.assertIsNone(found.alpha().lo)
        self.assertEqual(list(found.predict(c=0.1).columns), ["quantity", "unit", "value", "equation", "assumptions"])

    def test_the_measured_speedup(self):
        fast = self.load(made.lines(*(made.answer(i, [2, 2, 2], wall=(1 + i / 10,)) for i in range(4))))
        slow = self.load(made.lines(*(made.answer(i, [1] * 6, wall=(2 + i / 5,)) for i in range(1, 6))))
        found = fast.speedup_over(slow)
        self.assertAlmostEqual(found.value, 2)
        self.assertAlmostEqual(found.lo, 2)
        self.assertEqual(found.terms, 3)  # questions 1 to 3 are in both files
        trace = self.load(made.lines(made.trace("a", [1], [1])))
        with self.assertRaisesRegex(speclab.Error, "other work"):
            fast.speedup_over(trace, base_case="ngram")

    def test_two_models_are_two_cases(self):
        found = self.load(made.lines(made.answer(1, [3, 1]), made.answer(1, [1, 1], model="other")))
        self.assertEqual(list(found.cases.tau), [2, 1])
        self.assertEqual(found.tau("other").value, 1)
        with self.assertRaisesRegex(speclab.Error, "2 cases: m-7b, other"):
            found.tau()
        with self.assertRaisesRegex(speclab.Error, "no case 'x'"):
            found.tau("x")


class BadSpecBench(Files):
    good = made.lines(made.answer(1, [3, 1, 2]))

    def test_a_truncated_file(self):
        found = self.partly(self.good + made.lines(made.answer(2, [1]))[:60], "cut off here")
        self.assertEqual(list(found.texts.text), ["1"])

    def test_a_missing_field(self):
        second = made.answer(2, [1])
        del second["choices"][0]["wall_time"]
        self.assertEqual(len(self.partly(self.good + made.lines(second), "no choices/0/wall_time").texts), 1)

    def test_times(self):
        for wall, problem in ((float("nan"), "finite"), (-1.0, "clock ran backwards"), ("2", "expected a time")):
            found = self.partly(self.good + made.lines(made.answer(2, [1], wall=(wall,))), problem)
            self.assertEqual(found.texts.seconds.sum(), 2)

    def test_lengths(self):
        for lengths, problem in (([1, -2], "no negative"), ([1, 1.5], "whole number"), ("11", "a list")):
            self.partly(self.good + made.lines({**made.answer(2, [1, 1], accept_lengths=lengths)}), problem)

    def test_mixed_records(self):
        other = made.lines(made.response("r", [3], [1]))
        self.assertEqual(len(self.partly(self.good + other, "mixed records: vLLM responses").texts), 1)
        self.partly(self.good + '{"what": 1}\n', "no known format")

    def test_a_repeated_question(self):
        found = self.partly(self.good + made.lines(made.answer(1, [1, 1])), "1 of m-7b occurs again later")
        self.assertEqual(found.tau().value, 1)

    def test_nothing_usable(self):
        self.refused("", "not recognised")
        self.refused("not json\n", "not recognised.*Spec-Bench")
        self.refused(made.lines(made.answer(1, [1], wall=())), "no usable results.*wall_time")
        with self.assertRaisesRegex(speclab.Error, "No such file"):
            speclab.load_foreign(self.folder / "absent")
        with self.assertRaisesRegex(speclab.Error, "gamma is 0"):
            speclab.load_foreign(self.write(self.good), gamma=0)
        (self.folder / "binary").write_bytes(b"\xff\xfe\x00")
        with self.assertRaisesRegex(speclab.Error, "not UTF-8"):
            speclab.load_foreign(self.folder / "binary")

    def test_files_of_two_formats(self):
        files = [self.write("accepted\n1\n", "a"), self.write(self.good, "b")]
        with self.assertWarnsRegex(UserWarning, "1 problems"):
            found = speclab.load_foreign(files)
        self.assertRegex(found.problems.problem[0], "mixed records")
        with self.assertRaisesRegex(speclab.Error, "CSV of steps, but the other files are Spec-Bench"):
            speclab.load_foreign(files[::-1])


class Vllm(Files):
    drafted, accepted = [3, 3, 2, 3, 0, 3], [3, 0, 2, 1, 0, 3]

    def test_detailed_and_summary_agree(self):
        for detailed in (True, False):
            found = self.load(made.lines(made.response("r", self.drafted, self.accepted, detailed=detailed)))
            self.assertEqual(found.tau().value, 15 / 6)
            self.assertEqual(found.alpha().value, 9 / 11)  # the drafts of 2 and 0 tokens are not rejected
            self.assertEqual(found.texts.seconds[0], 0.1)
            self.assertEqual(found.texts.tokens[0], 16)
            self.assertEqual(theory.accepted_histogram(found.rounds()), [2, 1, 1, 2])

    def test_varied_lengths_are_a_mixture(self):
        found = self.load(made.lines(*(made.response(f"r{i}", self.drafted, self.accepted) for i in range(3))))
        lengths = theory.draft_length_counts(found.rounds())
        value = theory.mixture_expected_tokens(9 / 11, lengths)
        self.assertAlmostEqual(found.predict(c=0.1).value["mixture_tokens"], value)

    def test_a_whole_response_in_one_file(self):
        text = made.json.dumps(made.response("r", [3, 3], [1, 2]), indent=2)
        self.assertEqual(self.load(text).tau().value, 2.5)

    def test_older_summaries(self):
        one = made.response("r", [3, 3], [1, 3], detailed=False)
        del one["metrics"]["speculative_decoding"]["acceptance_histogram_by_draft_length"]
        self.assertEqual(self.load(made.lines(one)).alpha().value, 4 / 5)
        varied = made.response("v", [3, 1], [1, 0], detailed=False)
        del varied["metrics"]["speculative_decoding"]["acceptance_histogram_by_draft_length"]
        self.partly(made.lines(one, varied), "draft lengths vary.*Use level detailed")

    def test_bad_responses(self):
        good = made.response("r", [3, 3], [1, 2])
        for changes, problem in (
            ({"num_spec_steps": 3}, "num_spec_steps is 3, but the steps have 2"),
            ({"num_draft_tokens": 5}, "num_draft_tokens is 5"),
            ({"per_step_accepted": [1]}, "1 steps, per_step_drafted 2"),
            ({"per_step_drafted": [0, 6]}, "accepted more tokens than were drafted"),
            ({"num_spec_tokens": None}, "num_spec_tokens is None"),
        ):
            self.partly(made.lines(good, made.response("b", [3, 3], [1, 2], **changes)), problem)
        null = {**good, "id": "n", "metrics": {"speculative_decoding": None}}
        self.partly(made.lines(good, null), "null: speculative decoding was off")
        self.partly(made.lines(good, made.response("b", [3], [1], milliseconds=-1.0)), "clock ran backwards")


class Prometheus(Files):
    def test_one_page(self):
        found = self.load(made.counters(10, 30, [8, 5, 2], seconds=2.0, tokens=26))
        self.assertEqual(found.tau().value, 2.5)
        self.assertEqual(found.alpha().value, 15 / 23)  # 8 of the 10 drafts ended with a rejection
        self.assertEqual((found.texts.text[0], found.texts.case[0]), ("engine 0", "m"))
        self.assertEqual(found.cases.tokens_per_second["m"], 13)
        self.assertEqual(found.predict(c=0.1).loc["leviathan_eq_1"].value, theory.expected_tokens(15 / 23, 3))
        with self.assertRaisesRegex(speclab.NotApplicable, "sums in place of steps"):
            found.rounds()

    def test_two_pages_are_subtracted(self):
        before = self.write(made.counters(10, 30, [8, 5, 2], seconds=2.0, tokens=26), "before")
        after = self.write(made.counters(14, 42, [11, 7, 4], seconds=2.5, tokens=40), "after")
        found = speclab.load_foreign([before, after])
        self.assertEqual((found.tau().value, found.texts.seconds[0], found.texts.tokens[0]), (2.75, 0.5, 14))
        with self.assertRaisesRegex(speclab.Error, "falls from 14 to 10|falls from"):
            speclab.load_foreign([after, before])
        again = self.write(made.counters(99, 297, [90, 50, 40], started=6.0, seconds=9.0), "again")
        with self.assertRaisesRegex(speclab.Error, "started again"):
            speclab.load_foreign([before, again])
        with self.assertRaisesRegex(speclab.Error, "3 pages"):
            speclab.load_foreign([before, after, self.write(after.read_text(), "third")])
        with self.assertRaisesRegex(speclab.Error, "no counters of vLLM"):
            speclab.load_foreign([before, self.write("x", "other")])

    def test_engines_are_texts(self):
        text = made.counters(10, 20, [5, 5]) + made.counters(10, 20, [7, 1], labels='model_name="m",engine="1"')
        found = self.load(text)
        self.assertEqual(list(found.texts.accepted), [10, 8])
        self.assertEqual(found.tau().value, 1.9)

    def test_varied_lengths_give_bounds(self):
        """Of 10 drafts of at most 2 tokens one has 1 token. If it was accepted whole, 4 drafts were rejected, otherwise 5."""
        found = self.load(made.counters(10, 19, [7, 5])).alpha()
        self.assertEqual((found.lo, found.hi), (12 / 17, 12 / 16))
        self.assertIn("bounds", found.method)

    def test_bad_pages(self):
        self.refused(made.counters(10, 30, [8, 9, 2]), "grow along the draft")
        self.refused(made.counters(10, 31, [8, 5, 2]), "of 31 drafted tokens")
        self.refused(
            made.counters(10, 30, [8, 5, 2]).replace("accepted_tokens_total", "x"), "no vllm:spec_decode_num_accepted"
        )
        self.refused(made.counters(10, 30, [8, 5, 2]).replace('position="2"', 'position="3"'), "positions have 13")
        self.refused(made.counters("NaN", 30, [8, 5, 2]).replace("NaN.0", "NaN"), "expected a whole number")


class IkLlama(Files):
    def test_compact_and_detailed(self):
        for one in (made.attempt, made.detailed_attempt):
            found = self.load("ggml_init: logs\n" + made.lines(one("code", 10, [10, 10], [8, 5])) + "done\n")
            self.assertEqual(found.tau().value, 2.3)
            self.assertEqual(found.alpha().value, 13 / 18)
            self.assertEqual((found.texts.text[0], found.texts.seconds[0], found.texts.gamma[0]), ("code/1", 1.5, 2))
            self.assertEqual(found.texts.case[0], "mtp")

    def test_a_shorter_draft_gives_bounds(self):
        """9 drafts have 2 tokens, one has 1. 8 first tokens and 5 second tokens were accepted. So of the 3 drafts with one accepted token at
        most one is the short draft."""
        found = self.load(made.lines(made.attempt("code", 10, [10, 9], [8, 5]))).alpha()
        self.assertEqual((found.lo, found.hi), (13 / 18, 13 / 17))

    def test_lengths_that_must_have_been_accepted_whole(self):
        """9 of the 10 drafts have 1 token, and one has 2. So of the 9 drafts with one accepted token at least 8 have 1 token."""
        found = self.load(made.lines(made.attempt("code", 10, [10, 1], [9, 0]))).alpha()
        self.assertEqual((found.lo, found.hi), (9 / 11, 9 / 10))

    def test_a_baseline_and_a_summary(self):
        plain = made.attempt("code", 0, [], [], stages=[], generated=50, decode_s=5.0)
        found = self.load(made.lines(plain, {"row_type": "summary", "attempts": 1}))
        self.assertEqual(found.cases.loc["baseline"].tokens_per_second, 10)
        fast = self.load(made.lines(made.attempt("code", 10, [10, 10], [8, 5], decode_s=1.15)))
        self.assertAlmostEqual(fast.speedup_over(found).value, 2)
        with self.assertRaisesRegex(speclab.NotApplicable, "no steps"):
            found.tau()

    def test_bad_attempts(self):
        good = made.attempt("code", 10, [10, 10], [8, 5])
        for bad, problem in (
            (made.attempt("x", 10, [10, 10], [8, 9]), "grow along the draft"),
            (made.attempt("x", 10, [10, 4], [8, 5]), "more tokens were accepted than drafted"),
            (made.attempt("x", 10, [10], [8, 5]), "more tokens were accepted than drafted"),
            (made.attempt("x", 10, [10], [8], ok=False, error="decode failed"), "the attempt failed: decode failed"),
            (made.attempt("x", 10, [10], [8], decode=float("nan")), "finite"),
            (made.attempt("x", 1, [1], [1], stages=[{"type": "a"}, {"type": "b"}]), r"2 kinds of drafts \(a, b\)"),
        ):
            self.partly(made.lines(good, bad), problem)


class SpecDecodeBench(Files):
    text = made.lines(made.trace("134", [1, 1, 3, 2, 1], [2, 1, 9, 2, 1]))

    def test_a_walk_with_drafts_of_gamma(self):
        """eagle with gamma 1: 2 tokens at 0, then min(9, 2) at 2, then 1 at 4."""
        found = self.load(self.text, gamma=1)
        own = found.steps[found.steps.case == "eagle"]
        self.assertEqual(list(own.emitted), [2, 2, 1])
        self.assertEqual(found.tau("ngram").value, 5 / 4)  # 1, 1, 2, 1
        self.assertEqual(found.alpha("eagle").value, 1)
        self.assertEqual(found.alpha("ngram").value, 1 / 3)

    def test_without_gamma_drafts_are_as_long_as_accepted(self):
        found = self.load(self.text)
        self.assertEqual(list(found.steps[found.steps.case == "eagle"].emitted), [2, 3])
        self.assertEqual(found.cases.tau["eagle"], 2.5)
        self.assertTrue(found.texts.seconds.isna().all())

    def test_bad_traces(self):
        self.partly(self.text + made.lines(made.trace("b", [1, 0], [1, 1])), "has a 0")
        long = {**made.trace("b", [1, 1], [1, 1]), "generated_token_ids": [5]}
        self.partly(self.text + made.lines(long), "2 positions, the text 1 tokens")


class Table(Files):
    def test_steps_and_seconds(self):
        found = self.load("text,accepted,drafted,seconds\na,2,3,0.5\na,3,3,0.25\na,0,1,0.5\nb,1,3,1\nb,0,3,1\n")
        self.assertEqual(list(found.texts.emitted), [8, 3])
        self.assertEqual(list(found.texts.seconds), [1.25, 2])
        self.assertEqual(found.alpha().value, 6 / 8)  # a: 2 and a rejection, 3; b: 1 and a rejection
        self.assertEqual(list(found.steps.seconds), [0.5, 0.25, 0.5, 1, 1])

    def test_emitted_and_a_clock(self):
        found = self.load("emitted, clock\n3, 1\n1, 1.5\n4, 2.5\n", gamma=3)
        self.assertEqual(list(found.steps.seconds), [1, 0.5, 1])
        self.assertEqual(found.alpha().value, 2 / 4)

    def test_times_that_are_not_usable(self):
        for rows, problem in (
            ("1,1\n2,nan\n0,3\n", "finite"),
            ("1,2\n2,1\n0,3\n", "clock ran backwards.*has no time"),
            ("1,1\n2,-5\n0,6\n", "negative"),
            ("1,1\n2,\n0,6\n", "expected a number"),
        ):
            found = self.partly("accepted,clock\n" + rows, problem)
            self.assertEqual(list(found.steps.accepted), [1, 2, 0])
            self.assertTrue(found.texts.seconds.isna().all())
            self.assertEqual(found.steps.seconds.isna().sum(), 1)

    def test_a_bad_count_ends_its_text(self):
        for row, problem in (("a,x", "expected a number"), ("a,nan", "whole"), ("a,-1", "no negative"), ("a", "cells")):
            found = self.partly(f"text,accepted\na,2\n{row}\na,1\nb,1\n", problem)
            self.assertEqual(list(found.texts.steps), [1, 1])

    def test_bad_columns(self):
        self.refused("accepted,emitted\n1,2\n", "one of the columns accepted and emitted")
        self.refused("accepted,speed\n1,2\n", "column 'speed'")
        self.refused("accepted,seconds,seconds\n1,2,3\n", "column 'seconds'")
        self.refused("accepted,seconds,clock\n1,2,2\n", "at most one of seconds and clock")
        self.refused("accepted,drafted\n3,2\n", "3 accepted tokens of 2")


class Explain(Files):
    """The waterfall of another program's results."""

    steps = "text,accepted,drafted,seconds\n" + "".join(
        f"{text},{accepted},4,{seconds}\n"
        for text, lengths, seconds in (("a", (2, 4, 0, 1), 0.5), ("b", (4, 4, 3, 1, 0), 0.4), ("c", (0, 1, 2, 0), 0.6))
        for accepted in lengths
    )
    t = theory.RowTimes({1: 2.0, 5: 2.8})

    def check_sum(self, frame):
        logs = frame.log_ratio[frame.known]
        self.assertAlmostEqual(logs.sum(), math.log(frame.speedup["measured"] / frame.speedup["ideal"]))

    def test_terms_against_the_closed_forms(self):
        found = self.load(self.steps)
        frame = found.explain(0.45, c=0.1, t=self.t)
        alpha, tau = found.alpha().value, found.tau().value
        self.assertEqual(list(frame.index), ["ideal", "iid", "draft_cost", "verification_width", "rest", "measured"])
        self.assertAlmostEqual(frame.speedup["ideal"], theory.expected_tokens(alpha, 4))
        self.assertAlmostEqual(frame.speedup["iid"], tau)
        self.assertAlmostEqual(frame.log_ratio["draft_cost"], -math.log(1.4))
        self.assertAlmostEqual(
            frame.speedup["verification_width"] / tau,
            theory.walltime_improvement(alpha, 4, 0.1, 1.4) / theory.expected_tokens(alpha, 4),
        )
        tokens, seconds = found.texts.tokens.sum(), found.texts.seconds.sum()
        self.assertAlmostEqual(frame.speedup["measured"], 0.45 * tokens / seconds)
        self.assertAlmostEqual(frame.speedup["rest"], frame.speedup["measured"])
        self.check_sum(frame)
        self.assertTrue(frame.known.all())
        self.assertIn("sum over the steps", frame.explanation["rest"])
        self.assertEqual(frame.attrs["units"]["log_ratio"], "log(ratio)")

    def test_intervals(self):
        frame = self.load(self.steps).explain(0.45, c=0.1, t=self.t)
        for step, name in (("ideal", "speedup"), ("iid", "log_ratio"), ("rest", "log_ratio"), ("measured", "speedup")):
            row = frame.loc[step]
            self.assertLess(row[f"{name}_lo"], row[name], step)
            self.assertGreater(row[f"{name}_hi"], row[name], step)
        for step in ("draft_cost", "verification_width"):  # every step drafts 4 tokens
            self.assertAlmostEqual(frame.log_ratio_lo[step], frame.log_ratio_hi[step])
        one = self.load("accepted,drafted,seconds\n2,4,1\n0,4,1\n1,4,1\n").explain(1, c=0.1)
        self.assertTrue(one[["speedup_lo", "log_ratio_lo", "speedup_hi", "log_ratio_hi"]].isna().all(axis=None))

    def test_a_baseline_of_the_same_format(self):
        fast = self.load(made.lines(*(made.answer(i, [3, 1, 4], wall=(1 + i / 10,)) for i in range(4))), gamma=4)
        slow = self.load(made.lines(*(made.answer(i, [1] * 8, wall=(2 + i / 3,)) for i in range(1, 6))))
        frame, ratio = fast.explain(slow), fast.speedup_over(slow)
        row = frame.loc["measured"]
        self.assertAlmostEqual(row.speedup, ratio.value)
        self.assertAlmostEqual(row.speedup_lo, ratio.lo)
        self.assertAlmostEqual(row.speedup_hi, ratio.hi)
        self.assertIn("over 3 texts", row.explanation)
        self.assertIn("with prefill", frame.explanation["rest"])
        self.check_sum(frame)
        trace = self.load(made.lines(made.trace("a", [1], [1])))
        with self.assertRaisesRegex(speclab.Error, "other work"):
            fast.explain(trace, base_case="ngram")

    def test_what_is_not_known_is_in_the_rest(self):
        found = self.load(self.steps)
        frame = found.explain(0.45)
        self.assertEqual(list(frame.known), [True, True, False, False, True, True])
        self.assertEqual(frame.speedup["verification_width"], frame.speedup["iid"])
        self.assertRegex(frame.explanation["draft_cost"], "in the rest: the source has no draft_seconds. Give c")
        self.assertRegex(frame.explanation["verification_width"], "in the rest: .* Give t")
        self.check_sum(frame)
        only_t = found.explain(0.45, t=self.t)
        self.assertAlmostEqual(only_t.log_ratio["verification_width"], -math.log(1.4))
        without = found.explain(c=0.1)
        self.assertEqual(list(without.known), [True, True, True, False, False, False])
        self.assertTrue(math.isnan(without.speedup["measured"]))
        self.assertRegex(without.explanation["measured"], "give base")

    def test_without_a_draft_length(self):
        found = self.load(made.lines(made.answer(1, [3, 1, 2]), made.answer(2, [1, 1, 4])))
        frame = found.explain(0.5, c=0.1, t=self.t)
        self.assertEqual(list(frame.known), [True, False, False, False, True, True])
        self.assertAlmostEqual(frame.speedup["ideal"], 2)  # tau
        for step in ("iid", "draft_cost", "verification_width"):
            self.assertIn("Give gamma to load_foreign", frame.explanation[step])

    def test_sums_alone(self):
        found = self.load(made.counters(10, 30, [8, 5, 2], seconds=2.0, tokens=26))
        frame = found.explain(0.1, c=0.1)
        self.assertAlmostEqual(frame.speedup["ideal"], theory.expected_tokens(15 / 23, 3))
        self.assertAlmostEqual(frame.log_ratio["draft_cost"], -math.log(1.3))
        self.assertAlmostEqual(frame.speedup["measured"], 1.3)
        varied = self.load(made.counters(10, 19, [7, 5], seconds=2.0, tokens=26)).explain(0.1, c=0.1, t=self.t)
        self.assertRegex(varied.explanation["iid"], "not known: draft lengths vary")
        self.assertAlmostEqual(varied.speedup["ideal"], 2.2)  # tau
        self.assertAlmostEqual(varied.speedup["draft_cost"], 2.2 / 1.19)
        self.assertAlmostEqual(varied.speedup["verification_width"], 2.2 / (0.19 + 1 + 0.1 * 1.9))
        self.check_sum(varied)

    def test_the_times_of_a_table(self):
        rows = "a,2,4,1.0,0.2,0.7\na,0,4,1.0,0.2,0.7\nb,4,4,1.5,0.2,0.9\nb,1,4,1.0,0.2,0.7\n"
        text = "text,accepted,drafted,seconds,draft_seconds,target_seconds\n" + rows
        found = self.load(text)
        frame = found.explain(0.5)
        self.assertTrue(frame.known.all())
        self.assertAlmostEqual(frame.log_ratio["draft_cost"], -math.log(1 + 0.2 / 0.5))
        self.assertAlmostEqual(frame.speedup["verification_width"], 11 / 4 / ((0.2 + 0.75) / 0.5))
        self.assertAlmostEqual(found.explain(0.5, c=0.05).log_ratio["draft_cost"], -math.log(1.2))
        self.assertRegex(found.explain().explanation["draft_cost"], "draft_seconds need .* Give base")
        bad = self.partly(
            text.replace("1.0,0.2,0.7\na", "1.0,-1,0.7\na", 1), "the clock ran backwards.*has no draft_seconds"
        )
        self.assertEqual(list(bad.explain(0.5).known), [True, True, False, True, True, True])

    def test_bad_arguments(self):
        found = self.load(self.steps)
        for options, problem in (
            ({"base": -1}, "base is -1"),
            ({"base": math.nan}, "base is nan"),
            ({"base": 1, "c": -0.1}, "c is -0.1"),
            ({"base": 1, "c": math.inf}, "c is inf"),
            ({"case": "x"}, "no case 'x'"),
        ):
            with self.assertRaisesRegex(speclab.Error, problem):
                found.explain(**options)
        other = self.load(self.steps.replace("\na,", "\nz,").replace("\nb,", "\ny,").replace("\nc,", "\nx,"))
        with self.assertRaisesRegex(speclab.NotApplicable, "no text with a time"):
            found.explain(other)
        untimed = self.load(made.lines(made.trace("a", [1, 2], [1, 1])), gamma=2)
        with self.assertRaisesRegex(speclab.NotApplicable, "no text with a time"):
            untimed.explain(1, case="eagle")


if __name__ == "__main__":
    unittest.main()
