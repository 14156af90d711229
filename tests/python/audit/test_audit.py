"""The audit of verifiers in Python: exact rules pass, faulty ones are found, and a meaningless answer is reported with the draft and the coins that led to it."""

import contextlib
import importlib
import importlib.util
import io
import json
import math
import random
import re
import sys
import unittest
import unittest.mock

import numpy as np
from audit_laboratory import ROOT, SMALL, Temporary, audit_script

from audit import coins, enumeration, report, rules, tables, transport

ZEROS = ("zeros", "one-hot p", "one-hot q")  # kinds in which rows may share no token by chance


def on_golden_pair(verify, gamma):
    return enumeration.enumerate_table(verify, tables.golden(gamma), gamma, 1e-9)


class ExactRules(unittest.TestCase):
    def test_pass_with_their_expected_tokens(self):
        for verify, taus in ((rules.by_token, (1.75, 2.3125, 2.734375)), (rules.by_block, (1.75, 2.3675, 2.883625))):
            for finding, tau in zip(report.audit(verify, report.Settings(max_vocab=3)), taus):
                self.assertTrue(finding.exact, finding)
                self.assertLess(finding.joint_error, 1e-12)
                self.assertAlmostEqual(finding.golden_tau, tau, 12)
                self.assertLessEqual(finding.excess, 1e-12)

    def test_the_optimum_is_reached_by_blocks(self):
        generator = np.random.default_rng(3)
        for kind in tables.KINDS:
            table = tables.random_table(kind, 3, 2, generator)
            found = enumeration.enumerate_table(rules.by_block, table, 2, 1e-9)
            self.assertAlmostEqual(found.tau, enumeration.best_tokens(table, 2), 12, kind)


class NegativeControls(unittest.TestCase):
    """Errors at gamma 2 on the golden pair, enumerated in exact rationals elsewhere."""

    def test_each_is_found(self):
        for verify, error in (
            (rules.block_with_token_residual, 0.0066),
            (rules.stops_with_token_residual, 0.0098),
            (rules.stops_with_block_residual, 0.0334),
            (rules.first_token_is_exact, 0.0206),
        ):
            with self.subTest(verify.__name__):
                found = on_golden_pair(verify, 2)
                self.assertAlmostEqual(found.joint_error, error, 4)
                self.assertLess(found.first_error, 1e-12, "a check of the first token alone misses the fault")
                self.assertEqual(len(found.failure.history), 1)
                one, two = report.audit(verify, SMALL)
                self.assertTrue(one.exact)
                self.assertFalse(two.exact)
                self.assertEqual(two.failure.table, "golden pair")

    def test_expected_tokens_above_the_optimum(self):
        self.assertAlmostEqual(on_golden_pair(rules.first_token_is_exact, 3).tau, 2.973854, 6)
        self.assertGreater(report.audit(rules.first_token_is_exact, SMALL)[1].excess, 0.05)

    def test_a_fault_that_only_zeros_show(self):
        """It divides the residual by a sum that is zero only where p has zeros."""

        def verify(p, q, draft, coins):
            if any(p[i][x] == 0 for i, x in enumerate(draft)):
                return 0, int(np.argmax(p[0]))
            return rules.by_token(p, q, draft, coins)

        finding = report.audit(verify, SMALL)[0]
        self.assertFalse(finding.exact)
        self.assertRegex(finding.failure.table, "zeros|disjoint|one-hot")


class Tables(unittest.TestCase):
    def test_kinds(self):
        generator = np.random.default_rng(5)
        made = {kind: [tables.random_table(kind, 4, 2, generator) for _ in range(5)] for kind in tables.KINDS}
        for kind, several in made.items():
            for table in several:
                self.assertEqual(len(table.p), 1 + 4 + 16, "a row for every history of up to two tokens")
                for history, p in table.p.items():
                    q = table.q[history]
                    self.assertAlmostEqual(p.sum(), 1, 12)
                    self.assertAlmostEqual(q.sum(), 1, 12)
                    self.assertEqual(np.array_equal(p, q), kind == "p = q")
                    if kind == "one-hot p":
                        self.assertEqual(p.max(), 1)
                    if kind not in ZEROS:
                        self.assertEqual(not (p * q).any(), kind == "disjoint p and q")
        for name in ("p", "q"):
            rows = [row for table in made["zeros"] for row in getattr(table, name).values()]
            self.assertGreater(sum((row == 0).any() for row in rows), len(rows) / 2)
        self.assertGreater(len({tuple(row) for row in made["generic"][0].p.values()}), 20, "rows depend on the history")


class Coins(unittest.TestCase):
    def law(self, program):
        out = {}
        for probability, result in coins.walk(program):
            out[result] = out.get(result, 0) + probability
        return out

    def test_every_branch_once(self):
        found = self.law(lambda c: (c.bernoulli(0.25), c.categorical([1, 0, 3])))
        self.assertEqual(found, {(True, 0): 0.0625, (True, 2): 0.1875, (False, 0): 0.1875, (False, 2): 0.5625})

    def test_a_uniform_number_is_one_number(self):
        """Its comparisons agree with each other, so the number is not drawn again."""

        def program(c):
            u = c.uniform()
            return u < 0.5, u <= 0.25, 0.75 > u, u >= 0.25, u > 2

        found = self.law(program)
        self.assertEqual(
            found,
            {
                (True, True, True, False, False): 0.25,
                (True, False, True, True, False): 0.25,
                (False, False, True, True, False): 0.25,
                (False, False, False, True, False): 0.25,
            },
        )

    def test_a_rule_of_thresholds_is_exact(self):
        def verify(p, q, draft, coins):
            for i, x in enumerate(draft):
                if coins.uniform() >= p[i][x] / q[i][x]:
                    return i, inverse(rules.positive(p[i] - q[i]), coins.uniform())
            return len(draft), inverse(p[-1], coins.uniform())

        def inverse(weights, u):
            bounds = np.cumsum(weights) / weights.sum()
            return next(i for i, bound in enumerate(bounds) if u < bound or i == len(bounds) - 1)

        self.assertTrue(all(finding.exact for finding in report.audit(verify, SMALL)))
        self.assertAlmostEqual(on_golden_pair(verify, 2).tau, 2.3125, 12)

    def test_misuse(self):
        for misuse, words in (
            (lambda c: float(c.uniform()), "may only be compared"),
            (lambda c: c.uniform() + 1, "may only be compared"),
            (lambda c: c.uniform() == 0.5, "may only be compared"),
            (lambda c: c.bernoulli(math.nan), "NaN"),
            (lambda c: c.categorical([0, 0]), "positive, finite sum"),
            (lambda c: c.categorical([1, -1]), "numbers >= 0"),
            (lambda c: c.categorical([]), "positive, finite sum"),
        ):
            with self.assertRaisesRegex(coins.Misuse, words):
                list(coins.walk(misuse))

    def test_endless_runs_are_refused(self):
        with self.assertRaisesRegex(coins.Misuse, "more than 1000 runs"):
            list(coins.walk(lambda c: [c.bernoulli(0.5) for _ in range(20)], most_runs=1000))

        def until(stop, c):
            while c.bernoulli(0.5) != stop:
                c.categorical([1, 1])

        for stop in (True, False):  # the first run ends, or it does not
            with self.assertRaisesRegex(coins.Misuse, "number of draws seems to have no bound"):
                list(coins.walk(lambda c: until(stop, c)))


class DeclaredCoins(unittest.TestCase):
    """A verifier that takes all its numbers before it decides."""

    def verifier(self, coins_of, unused=0):
        def verify(p, q, draft, coins):
            tests, last = [coins.uniform() for _ in draft], coins.uniform()
            for _ in range(unused):
                coins.bernoulli(1)
            for i, x in enumerate(draft):
                if tests[i] >= p[i][x] / q[i][x]:
                    return i, self.inverse(rules.positive(p[i] - q[i]), last)
            return len(draft), self.inverse(p[-1], last)

        verify.coins = coins_of
        return verify

    def inverse(self, weights, u):
        bounds = np.cumsum(weights) / weights.sum()
        return next(i for i, bound in enumerate(bounds) if u < bound or i == len(bounds) - 1)

    def test_the_declared_number_is_right(self):
        for declared in (lambda gamma: gamma + 1, None):
            self.assertTrue(all(finding.exact for finding in report.audit(self.verifier(declared), SMALL)))

    def test_another_number_is_reported(self):
        for declared, unused, words in (
            (2, 0, [None, "the number of coins was 3; verify.coins declares 2"]),
            (3, 0, ["the number of coins was 2; verify.coins declares 3", None]),
            (
                lambda gamma: gamma + 1,
                1,
                ["the number of coins was 3; verify.coins declares 2", "the number of coins was 4"],
            ),
        ):
            for finding, expected in zip(report.audit(self.verifier(declared, unused), SMALL), words, strict=True):
                self.assertEqual(finding.exact, expected is None)
                if expected:
                    self.assertRegex(finding.failure.text, r"draft \[0(, 0)?\], .*" + expected)

    def test_one_number_for_all_decisions(self):
        """The verifier takes one random number and decides about all tokens with it, but declares more numbers."""

        def verify(p, q, draft, coins):
            u = coins.uniform()
            for i, x in enumerate(draft):
                if u >= p[i][x] / q[i][x]:
                    return i, int(np.argmax(p[i] - q[i]))
            return len(draft), int(np.argmax(p[-1]))

        verify.coins = lambda gamma: gamma + 1
        self.assertIn("the number of coins was 1; verify.coins declares 2", report.audit(verify, SMALL)[0].failure.text)

    def test_a_declaration_that_is_no_number(self):
        for declared in ("two", 1.5, lambda: 1):
            text = report.audit(self.verifier(declared), SMALL)[0].failure.text
            self.assertRegex(
                text, r"draft \[0\], .*verify.coins is .*; expected a whole number, or a function of gamma"
            )


class Nonsense(unittest.TestCase):
    def failure(self, verify):
        finding = report.audit(verify, SMALL)[0]
        self.assertFalse(finding.exact)
        self.assertEqual(finding.tables, 0)
        return finding.failure

    def test_results(self):
        for result, words in (
            ((2, 0), "accepted 2 tokens of a draft of 1"),
            ((-1, 0), "accepted -1 tokens"),
            ((0, 4), "next token 4; the vocabulary is 0 to 3"),
            ((0, -1), "next token -1"),
            ((0.5, 1), "expected"),
            (None, "returned None"),
            ((1, 2, 3), "expected"),
        ):
            failure = self.failure(lambda p, q, draft, coins: result)
            self.assertRegex(failure.text, r"draft \[0\], .*" + words)
            self.assertEqual((failure.table, failure.history), ("golden pair", None))

    def test_an_exception_comes_with_draft_and_outcomes(self):
        def verify(p, q, draft, coins):
            if draft == (2,) and coins.categorical([1, 1, 1]) == 1:
                raise KeyError("seventeen")
            return rules.by_token(p, q, draft, coins)

        failure = self.failure(verify)
        self.assertRegex(failure.text, r"draft \[2\], outcomes of the coins \[1\]: KeyError: 'seventeen'")

    def test_other_randomness(self):
        calls = []

        def remembers(p, q, draft, coins):
            calls.append(draft)
            return 0, len(calls) % 2

        def changes_its_coins(p, q, draft, coins):
            calls.append(draft)
            return 0, coins.categorical([1, len(calls)])

        own = np.random.default_rng(1)
        for verify, words in (
            (lambda p, q, draft, coins: (0, int(np.random.random() < 0.5)), "drew from a generator"),
            (lambda p, q, draft, coins: (0, random.getrandbits(1)), "drew from a generator"),
            (lambda p, q, draft, coins: (0, int(np.random.default_rng().integers(2))), "generator of its own"),
            (lambda p, q, draft, coins: (0, int(own.integers(4))), "different results|weights"),
            (remembers, "different results"),
            (changes_its_coins, "randomness other than coins"),
        ):
            self.assertRegex(self.failure(verify).text, words)

    def test_changed_rows_are_the_verifiers_own(self):
        def verify(p, q, draft, coins):
            result = rules.by_token(p, q, draft, coins)
            p[:], q[:] = 0, 0
            return result

        self.assertTrue(report.audit(verify, SMALL)[1].exact)


class Script(Temporary):
    def test_exit_codes(self):
        exact = self.run_script("audit.rules:by_block")
        self.assertEqual(exact.returncode, 0, exact.stderr)
        self.assertRegex(exact.stdout, r"2\s+8\s+\d+\s+0\s+0\s+2\.3675\s+2\.3675\s+exact")
        wrong = self.run_script("audit.rules:first_token_is_exact", "--json")
        self.assertEqual(wrong.returncode, 1, wrong.stderr)
        found = json.loads(wrong.stdout)
        self.assertEqual([f["exact"] for f in found["findings"]], [True, False])
        self.assertEqual(found["findings"][1]["failure"]["history"], [0])

    def test_errors_of_the_user(self):
        (self.folder / "mine.py").write_text("number = 3\n", encoding="utf-8")
        for name, words in (
            ("no_such_module:verify", "no module no_such_module"),
            ("mine:verify", "no attribute 'verify'"),
            ("mine:number", "mine:number is int; expected a function"),
            ("mine", "expected MODULE:CALLABLE"),
        ):
            with self.subTest(name):
                stderr = io.StringIO()
                sys.path.insert(0, str(self.folder))
                with contextlib.redirect_stderr(stderr):
                    self.assertEqual(audit_script.main([name]), 2)
                sys.path.remove(str(self.folder))
                self.assertRegex(stderr.getvalue(), words)

    def test_the_verifier_of_the_page(self):
        """The ten lines of docs/audit.md, and the same lines with the fault that the page describes."""
        page = (ROOT / "docs/audit.md").read_text(encoding="utf-8")
        lines = re.search(r"```python\n(.*?)```", page, re.S)[1]
        (self.folder / "mine.py").write_text(lines, encoding="utf-8")
        self.assertEqual(self.run_script("mine:verify").returncode, 0)
        faulty = lines.replace("categorical(left)", "categorical(np.maximum(p[i] - q[i], 0))")
        self.assertNotEqual(faulty, lines)
        (self.folder / "faulty.py").write_text(faulty, encoding="utf-8")
        found = self.run_script("faulty:verify", "--path", str(self.folder))
        self.assertEqual(found.returncode, 1, found.stderr)
        self.assertIn("after the history [1]", found.stdout)
        self.assertIn("[0.598 0.25 0.102 0.05], the target's row is [0.55 0.25 0.15 0.05]", found.stdout)


class OptimalTransport(unittest.TestCase):
    P, Q = tables.GOLDEN_P, tables.GOLDEN_Q

    def test_programs_that_are_too_large(self):
        self.assertEqual(len(transport.independent_children([1 / 50] * 50, 2)), 2500)
        for make in (transport.independent_children, transport.children_without_replacement):
            with self.assertRaisesRegex(transport.TooLarge, "2 children and 51 tokens.*132651.*at most 125000"):
                make([1 / 51] * 51, 2)
        laws = {x: 1 / 400 for x in range(400)}
        with self.assertRaisesRegex(transport.TooLarge, "400 drafts and 400 outcomes.*160000"):
            transport.best_coupling(laws, laws, lambda draft, outcome: draft == outcome)

    @unittest.skipIf(importlib.util.find_spec("scipy"), "SciPy is installed")
    def test_without_scipy(self):
        with self.assertRaisesRegex(ModuleNotFoundError, "optimal transport needs the Python package scipy"):
            rules.optimal_transport(self.P, {(0,): 1.0}, (0,), None)

    @unittest.skipUnless(importlib.util.find_spec("scipy"), "SciPy is not installed; scripts/oracle.sh runs this")
    def test_several_children_of_the_golden_pair(self):
        for make, k, best in (
            (transport.independent_children, 1, 0.75),
            (transport.independent_children, 2, 0.9475),
            (transport.independent_children, 3, 0.992625),
            (transport.children_without_replacement, 2, 0.972756),
            (transport.children_without_replacement, 3, 1),
        ):
            drafts = make(self.Q, k)
            law, kept = np.zeros(4), 0

            def step(coins):
                children = list(drafts)[coins.categorical(drafts.values())]
                return children, rules.optimal_transport(self.P, drafts, children, coins)

            for probability, (children, token) in coins.walk(step):
                law[token] += probability
                kept += probability * (token in children)
            np.testing.assert_allclose(law, self.P, atol=1e-12)
            self.assertAlmostEqual(kept, best, 6)

    @unittest.skipUnless(importlib.util.find_spec("scipy"), "SciPy is not installed; scripts/oracle.sh runs this")
    def test_a_chain(self):
        for finding, tau in zip(report.audit(rules.by_transport, SMALL), (1.75, 2.3125)):
            self.assertTrue(finding.exact, finding)
            self.assertAlmostEqual(finding.golden_tau, tau, 9)

    @unittest.skipUnless(importlib.util.find_spec("scipy"), "SciPy is not installed; scripts/oracle.sh runs this")
    def test_full_information(self):
        """A verifier that sees both laws of whole texts, not only the rows of the drafted path: 12/9 tokens of the toy of Sun et
        al. 2024, where blocks accept 11/9."""
        p, q = (1 / 3, 2 / 3), (2 / 3, 1 / 3)
        target, drafts = ({(a, b): row[a] * row[b] for a in (0, 1) for b in (0, 1)} for row in (p, q))

        def common(draft, text):
            return (draft[0] == text[0]) * (1 + (draft[1] == text[1]))

        self.assertAlmostEqual(transport.best_coupling(drafts, target, common).gain, 12 / 9, 9)


if __name__ == "__main__":
    unittest.main()
