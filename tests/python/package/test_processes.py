"""Acceptance processes and Markov chains of speclab.theory, against computations in Python."""

import itertools
import math
import unittest

import installed

installed.use()

import speclab
from speclab import theory

P = [[0.6, 0.3, 0.1], [0.2, 0.5, 0.3], [0.25, 0.25, 0.5]]
Q = [[0.3, 0.4, 0.3], [0.4, 0.4, 0.2], [0.1, 0.2, 0.7]]


def rejection_counts(state, left, gamma):
    """(steps, tests, accepted) of the rest of a text, by recursion over drafts and decisions."""
    if left == 0:
        return (0.0, 0.0, 0.0)
    drafted = min(gamma, left - 1)
    total = [1.0, 0.0, 0.0]

    def add(chance, after, emitted):
        for i, value in enumerate(rejection_counts(after, left - emitted, gamma)):
            total[i] += chance * value

    def walk(chance, at, depth):
        if depth == drafted:
            for y, p in enumerate(P[at]):
                add(chance * p, y, depth + 1)
            return
        total[1] += chance
        for x, q in enumerate(Q[at]):
            total[2] += chance * min(q, P[at][x])
            walk(chance * min(q, P[at][x]), x, depth + 1)
        for y, p in enumerate(P[at]):
            add(chance * max(0.0, p - Q[at][y]), y, depth + 1)

    walk(1.0, state, 0)
    return tuple(total)


class Chains(unittest.TestCase):
    def test_texts_by_recursion(self):
        for gamma, tokens, first in itertools.product((1, 2, 3), (1, 2, 5), (0, 2)):
            found = theory.markov_chain_counts(P, Q, gamma, tokens=tokens, first=first)
            steps, tests, accepted = rejection_counts(first, tokens, gamma)
            self.assertAlmostEqual(found.steps, steps)
            self.assertAlmostEqual(found.tests, tests)
            self.assertAlmostEqual(found.accepted, accepted)
            self.assertAlmostEqual(found.emitted, tokens)

    def test_equal_rows_are_the_formulas_for_rows(self):
        p, q = [0.55, 0.25, 0.15, 0.05], [0.40, 0.35, 0.05, 0.20]
        for verifier in ("rejection", "coupled", "block"):
            self.assertAlmostEqual(
                theory.markov_chain_counts([p] * 4, [q] * 4, 4, verifier).tau, theory.expected_tau(p, q, 4, verifier)
            )
        self.assertAlmostEqual(theory.markov_chain_counts([p] * 16, [q] * 16, 2, order=2).tau, 2.3125)
        self.assertTrue(math.isnan(theory.markov_chain_counts([p] * 4, [q] * 4, 4, "block").alpha))

    def test_alpha_is_weighted_by_the_stationary_law(self):
        law = [1 / 3] * 3
        for _ in range(200):
            law = [sum(law[s] * P[s][x] for s in range(3)) for x in range(3)]
        expected = sum(law[s] * sum(map(min, P[s], Q[s])) for s in range(3))
        self.assertAlmostEqual(theory.markov_chain_alpha(P, Q), expected)

    def test_errors(self):
        for call in (
            lambda: theory.markov_chain_counts(P, Q[:2], 2),
            lambda: theory.markov_chain_counts(P, Q, 2, "lenience"),
            lambda: theory.markov_chain_counts(P, Q, 2, tokens=3),
            lambda: theory.markov_chain_counts(P, Q, 2, tokens=3, first=3),
            lambda: theory.markov_chain_counts([[0.5, 0.6], [0.5, 0.5]], [[0.5, 0.5]] * 2, 2),
            lambda: theory.markov_chain_counts([[0.5, 0.5], [1.0]], [[0.5, 0.5]] * 2, 2),
            lambda: theory.markov_chain_counts([], [], 2),
            lambda: theory.markov_chain_alpha(P, Q, "block"),
        ):
            with self.assertRaises(speclab.Error):
                call()


class Processes(unittest.TestCase):
    def test_closed_forms(self):
        self.assertAlmostEqual(theory.iid_process(0.7).expected_tokens(5), theory.expected_tokens(0.7, 5))
        self.assertAlmostEqual(theory.positional_process([0.9, 0.5]).expected_tokens(2), 1 + 0.9 + 0.45)
        self.assertAlmostEqual(theory.decaying_process(0.9, 0.5).expected_tokens(2), 1 + 0.9 + 0.9 * 0.45)
        switching = theory.switching_process([0.9, 0.3], 0.8)
        expected = (theory.expected_tokens(0.9, 4) + theory.expected_tokens(0.3, 4)) / 2
        self.assertAlmostEqual(switching.expected_tokens(4), expected)
        self.assertAlmostEqual(theory.lengths_process([1, 2, 1]).expected_tokens(2), 2)
        self.assertAlmostEqual(theory.beta_process(0.6, 0.2).of_round(1).alpha, 0.6)
        # E[alpha] + E[alpha^2] with a = 2.4 and b = 1.6
        self.assertAlmostEqual(theory.beta_process(0.6, 0.2).expected_tokens(2), 1 + 0.6 + 0.6 * 3.4 / 5)

    def test_the_rates_that_vllm_takes(self):
        self.assertEqual(theory.minimum_variance_process(1.5).joint_acceptance(3), [1, 0.5, 0])
        for found, expected in zip(theory.iid_process(0.5).joint_acceptance(3), (0.5, 0.25, 0.125)):
            self.assertAlmostEqual(found, expected)

    def test_simulated_runs_have_the_expected_counts(self):
        for process in (
            theory.iid_process(0.8),
            theory.beta_process(0.7, 0.2),
            theory.switching_process([0.9, 0.2], 0.9),
        ):
            run = process.simulate(4, 2000, 40, 3)
            self.assertEqual(len(run), 2000)
            self.assertTrue(all(sum(one.emitted for one in prompt) == 40 for prompt in run))
            expected = process.of_text(4, 40)
            rounds = [len(prompt) for prompt in run]
            mean = sum(rounds) / len(rounds)
            sd = math.sqrt(sum((value - mean) ** 2 for value in rounds) / len(rounds))
            self.assertAlmostEqual(mean, expected.rounds, delta=4.5 * sd / math.sqrt(len(rounds)))
            self.assertAlmostEqual(theory.alpha_mle(run, resamples=10).value, expected.alpha, delta=0.02)
        self.assertEqual(
            [len(prompt) for prompt in theory.iid_process(0.5).simulate(3, 5, 30, 7)],
            [len(prompt) for prompt in theory.iid_process(0.5).simulate(3, 5, 30, 7)],
        )

    def test_a_recorded_run(self):
        run = speclab.load(installed.QUICKSTART).rounds("speculative_sampling/draft=distilled/gamma=4")
        process = theory.recorded_process(run)
        self.assertEqual(process.most_gamma, 4)
        whole = [[one for one in prompt if one.drafted == 4 and one.emitted == one.accepted + 1] for prompt in run]
        expected = sum(sum(one.emitted for one in prompt) / len(prompt) for prompt in whole) / len(whole)
        self.assertAlmostEqual(process.expected_tokens(4), expected)
        with self.assertRaises(speclab.Error):
            process.expected_tokens(5)

    def test_errors(self):
        for call in (
            lambda: theory.iid_process(1.1),
            lambda: theory.positional_process([]),
            lambda: theory.lengths_process([0, 0]),
            lambda: theory.minimum_variance_process(-1),
            lambda: theory.beta_process(0.5, 0),
            lambda: theory.recorded_process([]),
            lambda: theory.iid_process(0.5).joint_acceptance(-1),
            lambda: theory.iid_process(0.5).simulate(3, 0, 30, 7),
        ):
            with self.assertRaises(speclab.Error):
                call()


if __name__ == "__main__":
    unittest.main()
