"""scripts/train/head_training/tree.py chooses the tree of the largest expected number of tokens."""

import itertools
import pathlib
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "scripts/train"))
from head_training.tree import best_tree  # noqa: E402


def value(accuracy, path):
    product = 1.0
    for head, rank in enumerate(path):
        product *= accuracy[head][rank]
    return product


class HeadTree(unittest.TestCase):
    def test_small_trees_are_the_best_of_all_trees(self):
        accuracy = [[0.5, 0.2, 0.1], [0.4, 0.25, 0.05]]
        paths = [(a,) for a in range(3)] + list(itertools.product(range(3), range(3)))
        for nodes in range(1, 6):
            tree, expected = best_tree(accuracy, nodes)
            closed = (s for s in itertools.combinations(paths, nodes) if all(len(p) == 1 or p[:1] in s for p in s))
            best = max(1 + sum(value(accuracy, p) for p in s) for s in closed)
            self.assertAlmostEqual(expected, best)
            self.assertAlmostEqual(expected, 1 + sum(value(accuracy, p) for p in tree))
            self.assertEqual(len(tree), nodes)

    def test_by_hand(self):
        # Values: [0] .5, [0,0] .2, [1] .2, [0,1] .125.
        tree, expected = best_tree([[0.5, 0.2], [0.4, 0.25]], 4)
        self.assertEqual(tree[0], [0])
        self.assertEqual(sorted(tree), [[0], [0, 0], [0, 1], [1]])
        self.assertAlmostEqual(expected, 2.025)

    def test_every_tree_has_its_parents_and_earlier_siblings(self):
        # Accuracies of the heads of Vicuna 7B by rank: differences of the cumulative ones of Medusa's repository (assets/medusa_acc.csv).
        cumulative = [
            [0.560, 0.672, 0.727, 0.760, 0.780],
            [0.316, 0.424, 0.485, 0.528, 0.562],
            [0.201, 0.288, 0.348, 0.383, 0.417],
            [0.147, 0.225, 0.274, 0.311, 0.340],
        ]
        accuracy = [[b - a for a, b in zip([0.0, *row], row)] for row in cumulative]
        tree, expected = best_tree(accuracy, 40)
        paths = {tuple(path) for path in tree}
        for path in paths:
            self.assertTrue(len(path) == 1 or path[:-1] in paths)
            self.assertTrue(path[-1] == 0 or (*path[:-1], path[-1] - 1) in paths)
        self.assertAlmostEqual(expected, 1 + sum(value(accuracy, p) for p in paths))
        self.assertGreater(expected, 1 + 0.56 * (1 + 0.316 * (1 + 0.201 * (1 + 0.147))))  # the chain of best tokens

    def test_heads_that_are_never_right_get_no_nodes(self):
        self.assertEqual(best_tree([[0.0, 0.0]], 3), ([], 1.0))
        tree, expected = best_tree([[0.5, 0.0], [0.0, 0.0]], 3)
        self.assertEqual((tree, expected), ([[0]], 1.5))


if __name__ == "__main__":
    unittest.main()
