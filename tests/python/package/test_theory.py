"""speclab.theory: values of papers, values that were computed independently, and the numbers that `speclab theory` prints."""

import itertools
import json
import math
import os
import pathlib
import random
import subprocess
import unittest

import installed
import numpy as np

installed.use()

import speclab
from speclab import theory

BINARY = pathlib.Path(os.environ.get("SPECLAB_BINARY", installed.ROOT / "build/release/speclab"))
P, Q = [0.55, 0.25, 0.15, 0.05], [0.40, 0.35, 0.05, 0.20]


class Published(unittest.TestCase):
    def test_leviathan_table_1(self):
        table = [
            *((0.6, 2, 1.53, 1.96), (0.7, 3, 1.58, 2.53), (0.8, 2, 1.23, 2.44)),
            *((0.8, 5, 1.63, 3.69), (0.9, 2, 1.11, 2.71), (0.9, 10, 1.60, 6.86)),
        ]
        for alpha, gamma, operations, speed in table:
            self.assertAlmostEqual(theory.operations_factor(alpha, gamma, 0), operations, delta=0.005)
            self.assertAlmostEqual(theory.walltime_improvement(alpha, gamma, 0), speed, delta=0.005)

    def test_the_best_gamma(self):
        table = [
            *((0.6, 0.01, 7, 2.297), (0.9, 0.01, 24, 7.486), (0.7, 0.05, 6, 2.353)),
            *((0.5, 0.1, 2, 1.458), (0.8, 0.1, 6, 2.470), (0.8, 0.2, 4, 1.868)),
        ]
        for alpha, c, gamma, speedup in table:
            best = theory.optimal_gamma(alpha, c)
            self.assertEqual(best.gamma, gamma)
            self.assertAlmostEqual(best.speedup, speedup, delta=0.0005)
            self.assertFalse(best.at_limit)
        self.assertEqual(theory.optimal_gamma(0.3, 0.4).gamma, 0)

    def test_chen_reports(self):
        for r, alpha in ((0.8, 0.8882), (0.62, 0.7583), (0.8125, 0.8960)):
            self.assertAlmostEqual(theory.alpha_from_tokens(r * 5, 4), alpha, delta=5e-5)
        self.assertAlmostEqual(theory.chen_ratio(0.8, 4, 1.8, 14.1), 2.648, delta=0.0005)

    def test_utilization(self):
        self.assertAlmostEqual(theory.expected_draft_utilization(0.7, 5), 0.388, delta=0.0005)
        self.assertAlmostEqual(theory.alpha_from_utilization(theory.expected_draft_utilization(0.7, 5), 5), 0.7)

    def test_sequoia_example(self):
        """The values of the dynamic program for one vector of acceptances."""
        ranks = [0.6, 0.15, 0.07, 0.04, 0.03, 0.02, 0.02, 0.02]
        sizes = {1: 1, 2: 1.6, 4: 2.176, 8: 2.6356, 16: 3.076, 32: 3.5097, 64: 3.9675}
        for nodes, tokens in sizes.items():
            self.assertAlmostEqual(theory.best_tree_tokens([ranks], nodes, nodes - 1), tokens, delta=5e-5)
        self.assertAlmostEqual(theory.tree_expected_tokens([0, 0, 1], [1, 2, 1], [ranks]), 1 + 0.6 + 0.15 + 0.36)


class Rows(unittest.TestCase):
    """Rows p and q of one position, [vocabulary]. The values were enumerated in exact fractions."""

    def test_expected_tau(self):
        tokenwise = [1.75, 2.3125, 2.734375, 3.05078125, 3.288086, 3.4661]
        block = [1.75, 2.3675, 2.883625, 3.32580625, 3.708890, 4.0441]
        for gamma, (by_token, by_block) in enumerate(zip(tokenwise, block), 1):
            self.assertAlmostEqual(theory.expected_tau(P, Q, gamma), by_token, delta=5e-5)
            self.assertAlmostEqual(theory.expected_tau(P, Q, gamma, verifier="block"), by_block, delta=5e-5)
        self.assertAlmostEqual(theory.expected_tau([1 / 3, 2 / 3], [2 / 3, 1 / 3], 2, verifier="block"), 1 + 11 / 9)
        self.assertAlmostEqual(theory.expected_tau([1 / 3, 2 / 3], [2 / 3, 1 / 3], 2), 1 + 10 / 9)

    def test_expected_tau_by_enumeration(self):
        """The values of the block rule, computed again in Python: the mean of the min(1, ...) products over all drafts."""
        for gamma in range(1, 5):
            total = 1.0
            for draft in (x for length in range(1, gamma + 1) for x in itertools.product(range(4), repeat=length)):
                chance, rho = 1.0, 1.0
                for token in draft:
                    chance *= Q[token]
                    rho = min(1.0, rho * P[token] / Q[token])
                total += chance * rho
            self.assertAlmostEqual(theory.expected_tau(P, Q, gamma, verifier="block"), total)

    def test_bounds(self):
        self.assertAlmostEqual(theory.row_overlap(P, Q), 0.75)
        self.assertAlmostEqual(theory.coupling_acceptance(P, Q), 0.706441, delta=5e-7)
        self.assertAlmostEqual(theory.best_acceptance(P, Q, 2), 0.9475)
        self.assertAlmostEqual(theory.best_acceptance(P, Q, 3), 0.992625)
        self.assertAlmostEqual(theory.best_acceptance(P, Q, 2, "without_replacement"), 0.972756, delta=5e-7)
        self.assertAlmostEqual(theory.best_acceptance(P, Q, 3, "without_replacement"), 1)

    def test_arrays_are_rows_too(self):
        for kind in (np.float64, np.float32):
            self.assertAlmostEqual(theory.row_overlap(np.array(P, kind), np.array(Q, kind)), 0.75, places=6)


class AsTheCommand(unittest.TestCase):
    """`speclab theory --json` prints the same numbers under the same names, bit for bit."""

    def test_numbers(self):
        times = {1: 1.0, 4: 1.2, 9: 1.7}
        t = theory.RowTimes(times)
        text = ",".join(f"{rows}:{time}" for rows, time in times.items())
        rows = {"p": ",".join(map(str, P)), "q": ",".join(map(str, Q))}
        shape = theory.LookaheadShape(15, 5, 15)
        inputs = [
            ({"alpha": 0.8, "gamma": 5, "c": 0.05}, {}, {}),
            ({"alpha": 0.8, "gamma": 5, "c": 0.05, "c_hat": 0.04, "tau": 3.1, "speedup": 2.2}, {"t": t}, {"t": text}),
            ({"gamma": 3, "utilization": 0.6}, {}, {}),
            ({"c": 0.1}, {"t": t, "acceptance": [0.9, 0.8, 0.5]}, {"t": text, "acceptance": ".9,.8,.5"}),
            ({"k": 2, "gamma": 4, "c": 0.1}, {"p": P, "q": Q}, rows),
            ({"alpha": 0.7, "alpha2": 0.85, "gamma2": 4, "rounds": 2, "c": 0.2, "c2": 0.02}, {}, {}),
            ({"alpha": 0.425, "f": 3.106}, {"lookahead": shape, "t": t}, {"W": 15, "N": 5, "t": text}),
            ({"r": 0.8, "gamma": 4, "c": 0.1}, {}, {}),
        ]
        names = set()
        for both, here, there in inputs:
            found = theory.predictions(**both, **here)
            words = [f"--{name.replace('_', '-')}={value}" for name, value in {**both, **there}.items()]
            printed = subprocess.run([BINARY, "theory", *words, "--json"], capture_output=True, text=True)
            self.assertEqual(printed.returncode, 0, printed.stderr)
            expected = json.loads(printed.stdout)
            self.assertEqual({one.name for one in found}, set(expected))
            for one in found:
                with self.subTest(one.name, words=words):
                    value = expected[one.name]["value"]
                    self.assertEqual(one.value if math.isfinite(one.value) else None, value)
                    self.assertEqual(one.equation, expected[one.name]["equation"])
                    self.assertEqual(one.quantity, expected[one.name]["quantity"])
            names |= set(expected)
            frame = speclab.predict(**both, **here)
            self.assertEqual(list(frame.index), [one.name for one in found])
            self.assertEqual(list(frame.value), [one.value for one in found])
        self.assertGreater(len(names), 35)
        self.assertEqual(speclab.predict(alpha=0.8, gamma=5).unit["leviathan_eq_1"], "tokens/step")

    def test_units_are_those_of_the_binary(self):
        printed = subprocess.run([BINARY, "list", "metrics", "--json"], capture_output=True, text=True, check=True)
        self.assertEqual(speclab.units(), {one["name"]: one["unit"] for one in json.loads(printed.stdout)})


class Estimators(unittest.TestCase):
    def rounds(self, alpha, gamma, prompts=40, steps=50, seed=1):
        """Steps with independent acceptance."""
        coins = random.Random(seed)
        run = []
        for _ in range(prompts):
            one = []
            for _ in range(steps):
                passed = list(itertools.takewhile(lambda _: coins.random() < alpha, range(gamma)))
                one.append(theory.Round(gamma, len(passed), len(passed) < gamma, len(passed) + 1))
            run.append(one)
        return run

    def test_alpha_of_a_known_process(self):
        for alpha, gamma in ((0.5, 3), (0.8, 4), (0.9, 8)):
            run = self.rounds(alpha, gamma)
            found = theory.alpha_mle(run)
            lo, hi = theory.wilson_interval(found.value * found.terms, found.terms, 0.9999)
            self.assertTrue(lo < alpha < hi)
            self.assertTrue(found.ci[0] < found.value < found.ci[1])
            accepted = sum(one.accepted for prompt in run for one in prompt)
            self.assertEqual(found.terms, sum(one.tests for prompt in run for one in prompt))
            self.assertEqual(found.value, accepted / found.terms)
            self.assertGreater(theory.iid_position_test(run).p_value, 1e-4)
            drift = theory.alpha_drift(run)
            self.assertGreater(drift.chi2.p_value, 1e-4)
            self.assertEqual((len(drift.alpha), drift.chi2.degrees), (3, 2))
            self.assertAlmostEqual(theory.tokens_over_eq1(run).value, 1, delta=0.05)
            self.assertEqual(sum(theory.accepted_histogram(run)), 2000)
            self.assertEqual(theory.draft_length_counts(run)[gamma], 2000)

    def test_no_data_is_none(self):
        nothing = [[theory.Round(0, 0, False, 1)]]
        self.assertIsNone(theory.alpha_mle(nothing))
        self.assertIsNone(theory.iid_position_test(nothing))
        self.assertIsNone(theory.alpha_drift(nothing))
        self.assertIsNone(theory.wilson_interval(0, 0))

    def test_a_cut_step_is_censored(self):
        cut = theory.chain_round(accepted=1, emitted=1, tested=[True, True], passed=[True, False], expected=[0.5, 0.5])
        self.assertEqual((cut.drafted, cut.accepted, cut.rejected), (2, 1, False))
        whole = theory.chain_round(
            accepted=1, emitted=2, tested=[True, True], passed=[True, False], expected=[0.5, 0.5]
        )
        self.assertEqual((whole.accepted, whole.rejected, whole.expected_sum), (1, True, 1.0))


class Costs(unittest.TestCase):
    def test_decoder(self):
        """The weights of Llama 2 7B, by hand."""
        shape = theory.DecoderShape(layers=32, hidden=4096, heads=32, kv_heads=32, head_dim=128, ffn=11008, vocab=32000)
        layer = 4 * 4096 * 4096 + 3 * 4096 * 11008
        self.assertEqual(shape.body_weights, 32 * layer)
        self.assertEqual(shape.head_weights, 32000 * 4096)
        self.assertEqual(shape.flops_per_token(), 2 * (32 * layer + 32000 * 4096))
        one, eight = theory.forward_cost(shape, 1, 1000), theory.forward_cost(shape, 8, 1000)
        self.assertEqual(one.weight_bytes, eight.weight_bytes)
        self.assertAlmostEqual(eight.body_flops, 8 * one.body_flops)
        h100 = theory.Machine(989e12, 3.35e12)
        self.assertAlmostEqual(theory.roofline_seconds(one, h100), one.bytes / 3.35e12)
        self.assertAlmostEqual(theory.ridge_rows(shape, h100), 989e12 / 3.35e12)

    def test_row_times(self):
        t = theory.RowTimes({1: 2.0, 5: 3.0})
        self.assertEqual((t.at(3), t.ratio(5), t.largest_measured), (2.5, 1.5, 5))
        self.assertEqual(theory.positional_expected_tokens([0.5, 0.5]), 1.75)
        self.assertAlmostEqual(theory.mixture_expected_tokens(0.5, [0, 1, 1]), (1.5 + 1.75) / 2)
        self.assertAlmostEqual(theory.break_even_alpha(4, 0.1), theory.alpha_from_speedup(1, 4, 0.1))


class Errors(unittest.TestCase):
    def test_numbers_outside_their_domain(self):
        with self.assertRaises(speclab.Error) as raised:
            theory.expected_tokens(1.5, 4)
        self.assertIsInstance(raised.exception, ValueError)
        self.assertEqual((raised.exception.what, raised.exception.got), ("alpha", "1.5"))
        self.assertIn("alpha: got 1.5, expected", str(raised.exception))

    def test_bad_input(self):
        for call in (
            lambda: theory.expected_tokens(math.nan, 4),
            lambda: theory.expected_tokens(0.5, -1),
            lambda: theory.row_overlap([0.5, 0.5], [1.0]),
            lambda: theory.row_overlap([0.5, 0.4], [0.5, 0.5]),
            lambda: theory.expected_tau(P, Q, 2, verifier="blok"),
            lambda: theory.best_acceptance(P, Q, 2, "twice"),
            lambda: theory.best_acceptance([1 / 21] * 21, [1 / 21] * 21, 2, "without_replacement"),
            lambda: theory.RowTimes({2: 1.0}),
            lambda: theory.predictions(p=P),
            lambda: theory.tree_expected_tokens([0, 0], [1], [[0.5]]),
            lambda: theory.predictions(alpha=0.5, p=P, q=Q),
            lambda: theory.predictions(alpha=0.5, alpha2=0.5),
            lambda: theory.chain_round(accepted=0, emitted=1, tested=[True], passed=[]),
        ):
            with self.assertRaises(speclab.Error):
                call()
        with self.assertRaises(TypeError):
            theory.expected_tokens("0.5", 4)


if __name__ == "__main__":
    unittest.main()
