"""The audit of verifiers of trees. The drafts are all trees of a shape. The exact rule passes. The audit finds faulty rules and
names the first history after which they are wrong."""

import importlib.util
import itertools
import json
import unittest

import numpy as np
from audit_laboratory import Temporary

from audit import drafts, enumeration, report, tables, transport, tree_rules

PAIR, TRIPLE, TWO_PATHS, UNEVEN = report.TREES


def table_of(kind, vocab, gamma, seed=1):
    return tables.random_table(kind, vocab, gamma, np.random.default_rng(seed))


def audited(verify, table, parents, draws):
    return enumeration.enumerate_trees(verify, table, parents, draws, 1e-9)


def of_toy(p, q, length):
    """The same two rows after every history."""
    contexts = list(tables.histories(len(p), length + 1))
    return tables.Table("toy", len(p), {c: np.array(p) for c in contexts}, {c: np.array(q) for c in contexts})


class Drafts(unittest.TestCase):
    def law(self, table, parents, draws):
        found = {}
        for draft in drafts.trees(table, parents, draws):
            key = draft.judged.tokens[1:]
            self.assertNotIn(key, found)
            found[key] = draft.probability
        self.assertAlmostEqual(sum(found.values()), 1, 12)
        return found

    def test_children_of_one_node(self):
        table = tables.golden(1)
        for draws, law in (
            (drafts.INDEPENDENT, transport.independent_children(tables.GOLDEN_Q, 3)),
            (drafts.WITHOUT_REPLACEMENT, transport.children_without_replacement(tables.GOLDEN_Q, 3)),
        ):
            found = self.law(table, TRIPLE, draws)
            self.assertEqual(set(found), set(law))
            for children, probability in law.items():
                self.assertAlmostEqual(found[children], probability, 12)

    def test_the_draws_of_each_node_are_its_own(self):
        """Without replacement, siblings differ and other nodes may be equal. Each row is that of the history."""
        table = table_of("generic", 2, 3)
        self.assertEqual(len(self.law(table, UNEVEN, drafts.INDEPENDENT)), 16)
        self.assertEqual(len(self.law(table, UNEVEN, drafts.WITHOUT_REPLACEMENT)), 8)
        for draft in drafts.trees(table, UNEVEN, drafts.WITHOUT_REPLACEMENT):
            tree = draft.judged
            self.assertEqual(tree.parents, UNEVEN)
            self.assertNotEqual(tree.tokens[2], tree.tokens[3])
            self.assertEqual(tree.text(4), (tree.tokens[1], tree.tokens[3], tree.tokens[4]))
            for node in range(5):
                np.testing.assert_array_equal(draft.p[node], table.p[tree.text(node)])
            np.testing.assert_array_equal(draft.q[4], table.q[tree.text(3)])
            np.testing.assert_array_equal(draft.q[3], np.eye(2)[tree.tokens[3]], "the row without the first child")
            self.assertTrue(np.isnan(draft.q[0]).all())

    def test_a_child_without_a_token_is_left_out_with_its_children(self):
        table = of_toy([0.5, 0.5], [0.0, 1.0], 2)
        (draft,) = drafts.trees(table, (-1, 0, 0, 2, 1), drafts.WITHOUT_REPLACEMENT)
        self.assertEqual(draft.judged, drafts.Tree((-1, 1, 1), (-1, 0, 1)))
        self.assertEqual(draft.size, 2)

    def test_wrong_arguments(self):
        for parents in ((), (0, 0), (-1, 1), (-1, 0, 3), (-1, -1)):
            with self.assertRaisesRegex(ValueError, "for each node a node before it"):
                list(drafts.trees(tables.golden(1), parents, drafts.INDEPENDENT))
        with self.assertRaisesRegex(ValueError, "'swor'; expected independent or without-replacement"):
            list(drafts.trees(tables.golden(1), PAIR, "swor"))


class ExactRule(unittest.TestCase):
    def test_expected_tokens(self):
        """The engine's rule "rejection" has these numbers (docs/verifiers.md; for two levels `speclab audit rejection`)."""
        for parents, draws, tau in (
            (PAIR, drafts.INDEPENDENT, 1.8625),
            (TRIPLE, drafts.INDEPENDENT, 1.9194),
            (PAIR, drafts.WITHOUT_REPLACEMENT, 1.9021),
            (TRIPLE, drafts.WITHOUT_REPLACEMENT, 1.9281),
            (TWO_PATHS, drafts.INDEPENDENT, 2.509375),
        ):
            found = audited(tree_rules.multi_step, tables.golden(drafts.depth(parents)), parents, draws)
            self.assertIsNone(found.failure)
            self.assertAlmostEqual(found.tau, tau, 4)

    def test_every_kind_of_table(self):
        for parents, draws, kind in itertools.product(report.TREES, drafts.DRAWS, tables.KINDS):
            table = table_of(kind, 2, 3)
            found = audited(tree_rules.multi_step, table, parents, draws)
            self.assertIsNone(found.failure, (parents, draws, kind))
            self.assertLess(found.joint_error, 1e-12)
            self.assertLess(found.tau, enumeration.tree_bound(table, parents, draws) + 1e-12)

    def test_more_tokens(self):
        for draws in drafts.DRAWS:
            self.assertLess(
                audited(tree_rules.multi_step, table_of("zeros", 3, 2), TWO_PATHS, draws).joint_error, 1e-12
            )

    def test_a_path_is_a_chain(self):
        """Without siblings the rule is the token rule. It emits 2.734375 tokens for a draft of three."""
        found = audited(tree_rules.multi_step, tables.golden(3), (-1, 0, 1, 2), drafts.INDEPENDENT)
        self.assertAlmostEqual(found.tau, 2.734375, 12)


class NegativeControls(unittest.TestCase):
    def test_the_residual_of_another_child(self):
        for draws in drafts.DRAWS:
            found = audited(tree_rules.residual_of_another_child, tables.golden(1), PAIR, draws)
            self.assertEqual(found.failure.history, ())
            self.assertGreater(found.first_error, 1e-3)

    def test_siblings_that_are_tested_with_the_full_q(self):
        verify, table = tree_rules.siblings_with_full_q, tables.golden(1)
        self.assertIsNone(audited(verify, table, PAIR, drafts.INDEPENDENT).failure)
        found = audited(verify, table, PAIR, drafts.WITHOUT_REPLACEMENT)
        self.assertEqual(found.failure.history, ())
        self.assertGreater(found.first_error, 1e-3)

    def test_siblings_below_the_first_level(self):
        """The nodes at depth 1 have no siblings, so the fault begins after the first token."""
        verify, parents = tree_rules.siblings_with_full_q, (-1, 0, 1, 1)
        found = audited(verify, tables.golden(2), parents, drafts.WITHOUT_REPLACEMENT)
        self.assertLess(found.first_error, 1e-12)
        self.assertEqual(found.failure.history, (0,))

    def test_the_row_of_another_node(self):
        for parents, length in ((TWO_PATHS, 1), (UNEVEN, 2)):
            found = audited(tree_rules.row_of_another_node, table_of("generic", 2, 3), parents, drafts.INDEPENDENT)
            self.assertLess(found.first_error, 1e-12)
            self.assertGreater(found.joint_error, 1e-3)
            self.assertEqual(len(found.failure.history), length)


class Bound(unittest.TestCase):
    def test_siblings(self):
        """The optima of docs/verifiers.md."""
        for parents, draws, tau in (
            (PAIR, drafts.INDEPENDENT, 1.9475),
            (TRIPLE, drafts.INDEPENDENT, 1.992625),
            (PAIR, drafts.WITHOUT_REPLACEMENT, 1.972756),
            (TRIPLE, drafts.WITHOUT_REPLACEMENT, 2),
        ):
            self.assertAlmostEqual(enumeration.tree_bound(tables.golden(1), parents, draws), tau, 6)

    def test_full_information(self):
        """On the toy of Sun et al. 2024 the optimum is 12/9 accepted tokens."""
        toy = of_toy([1 / 3, 2 / 3], [2 / 3, 1 / 3], 2)
        self.assertAlmostEqual(enumeration.tree_bound(toy, (-1, 0, 1), drafts.INDEPENDENT), 1 + 12 / 9, 12)

    def test_depths_with_many_texts_count_as_the_depth_before(self):
        """There are 64 texts of three tokens, too many for depth 3. At depth 2 the bound is the overlap of the laws of two tokens."""
        p, q = (np.outer(row, row) for row in (tables.GOLDEN_P, tables.GOLDEN_Q))
        found = enumeration.tree_bound(tables.golden(3), (-1, 0, 1, 2), drafts.INDEPENDENT)
        self.assertAlmostEqual(found, 1 + 0.75 + 2 * np.minimum(p, q).sum(), 12)

    def test_a_tree_that_may_lack_a_depth(self):
        """The second sibling, and with it depth 2, is missing where the row q has one token."""
        toy = of_toy([0.5, 0.5], [0.0, 1.0], 2)
        found = enumeration.tree_bound(toy, (-1, 0, 0, 2), drafts.WITHOUT_REPLACEMENT)
        self.assertAlmostEqual(found, 1.5, 12)

    @unittest.skipUnless(importlib.util.find_spec("scipy"), "SciPy is not installed; scripts/oracle.sh runs this")
    def test_against_a_linear_program(self):
        for seed, draws in itertools.product(range(3), drafts.DRAWS):
            table = table_of("generic", 3, 2, seed)
            law, target = {}, {}
            for draft in drafts.trees(table, TWO_PATHS, draws):
                key = frozenset(draft.judged.text(node) for node in (3, 4))
                law[key] = law.get(key, 0) + draft.probability
            for text in itertools.product(range(3), repeat=2):
                target[text] = float(table.p[()][text[0]] * table.p[text[:1]][text[1]])
            two = transport.best_coupling(law, target, lambda paths, text: text in paths).gain
            one = enumeration.tree_bound(table, PAIR, draws)
            self.assertAlmostEqual(enumeration.tree_bound(table, TWO_PATHS, draws), one + two, 7)


class Results(unittest.TestCase):
    def failure(self, verify):
        finding = report.audit(verify, report.Settings(max_gamma=2, max_vocab=2, trees=drafts.INDEPENDENT))[2]
        self.assertEqual((finding.exact, finding.parents), (False, TWO_PATHS))
        return finding.failure.text

    def test_what_is_no_result(self):
        for result, words in (
            (([1, 2], 0), r"accepted the nodes \[1, 2\], which are no path from a child of node 0"),
            (([3], 0), "no path"),
            (([0, 1], 0), "no path"),
            (([5], 0), "no path"),
            (([-1], 0), "no path"),
            (([1], 4), "next token 4; the vocabulary is 0 to 3"),
            ((1, 0), r"returned \(1, 0\); expected \(nodes, next_token\)"),
            (None, "returned None"),
        ):
            text = self.failure(lambda p, q, tree, coins: result)
            self.assertRegex(text, r"tokens \[-1, 0, 0, 0, 0\] of the tree \[-1, 0, 0, 1, 2\], .*" + words)

    def test_declared_coins(self):
        """verify.coins may be a function of the number of drafted nodes."""

        def verify(p, q, tree, coins):
            for _ in range(2):
                coins.bernoulli(1)
            return [], coins.categorical(p[0])

        verify.coins = lambda nodes: nodes + 1
        self.assertIn("number of coins was 3; verify.coins declares 5", self.failure(verify))

    def test_too_many_tokens(self):
        """A verifier that accepts whatever it can has more tokens than the bound."""
        settings = report.Settings(max_gamma=1, max_vocab=2, trees=drafts.INDEPENDENT)
        finding = report.audit(lambda p, q, tree, coins: ([1], coins.categorical(p[1])), settings)[0]
        self.assertGreater(finding.excess, 0.05)
        self.assertAlmostEqual(finding.golden_tau, 2, 12)


class Script(Temporary):
    def test_exit_codes(self):
        exact = self.run_script("audit.tree_rules:multi_step", "--trees", "without-replacement", gamma=1)
        self.assertEqual(exact.returncode, 0, exact.stderr)
        self.assertRegex(exact.stdout, r"0 0 0 +8 +\d+ +0 +0 +1\.928085 +2 +exact")
        self.assertIn("node: without replacement.", exact.stdout)
        wrong = self.run_script("audit.tree_rules:siblings_with_full_q", "--trees", "without-replacement", gamma=1)
        self.assertEqual(wrong.returncode, 1, wrong.stderr)
        self.assertIn('tree 0 0: wrong after the history [] on the table "golden pair"', wrong.stdout)
        found = self.run_script("audit.tree_rules:siblings_with_full_q", "--trees", "independent", "--json", gamma=1)
        self.assertEqual(found.returncode, 0, found.stderr)
        findings = json.loads(found.stdout)["findings"]
        self.assertEqual([f["parents"] for f in findings], [[-1, 0, 0], [-1, 0, 0, 0]])

    def test_without_the_option(self):
        """The audit then gives chains to a verifier of trees, and the report shows the error."""
        found = self.run_script("audit.tree_rules:multi_step", gamma=1)
        self.assertEqual(found.returncode, 1, found.stderr)
        self.assertIn("AttributeError: 'tuple' object has no attribute 'children'", found.stdout)


if __name__ == "__main__":
    unittest.main()
