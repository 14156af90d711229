"""Equations of the record as MathML. The parsed trees are also computed, and must give the predictions of the record."""

import math
import pathlib
import re
import sys
import unittest
import xml.etree.ElementTree

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "scripts"))

from report import formula

from figures.record import Run

RECORD = ROOT / "results/baselines/epyc-avx512-2cores/quickstart"
SOURCES = ("core/theory/predictions.cpp", "experiments/analysis/cascade_theory.cpp", "core/theory/cascade.cpp")


def number_of(node, names):
    """The value of a tree. names: the values of its symbols; a callable is a function, which is applied to the group after it."""
    kind = node[0]
    if kind == "number":
        return float(node[1])
    if kind == "symbol":
        return names[node[1]]
    if kind == "group":
        return number_of(node[2], names)
    if kind == "power":
        return number_of(node[1], names) ** number_of(node[2], names)
    if kind == "fraction":
        return number_of(node[1], names) / number_of(node[2], names)
    return row_of(list(node[1]), names)


def row_of(nodes, names):
    """The value of sums of products. A sum or product sign applies to the terms after it."""
    signs = [place for place, node in enumerate(nodes) if node in (("operator", "+"), ("operator", "−")) and place > 0]
    if signs:  # a sum is left-associative: the last sign divides it
        sign = 1 if nodes[signs[-1]][1] == "+" else -1
        return row_of(nodes[: signs[-1]], names) + sign * row_of(nodes[signs[-1] + 1 :], names)
    head, *rest = nodes
    if head[0] == "big":
        index, most = bound_of(head[2], names)
        values = [
            row_of(rest, {**names, index: value, f"a_{index}": names.get("a", [0] * value)[value - 1]})
            for value in range(1, most + 1)
        ]
        return sum(values) if head[1] == "∑" else math.prod(values)
    if head[0] == "symbol" and callable(names.get(head[1])):
        return names[head[1]](number_of(rest[0], names)) * (row_of(rest[1:], names) if rest[1:] else 1)
    return number_of(head, names) * (row_of(rest, names) if rest else 1)


def bound_of(below, names):
    """(index, largest value) of "i<N", "j<=i" and "i", which runs over the draft."""
    if below[0] == "symbol":
        return below[1], len(names["a"])
    left, sign, right = below[1]
    return left[1], int(number_of(right, names)) - (sign[1] == "<")


def compute(text, **names):
    return number_of(formula.parse(text), names)


class Values(unittest.TestCase):
    def test_equations_of_a_record_give_its_predictions(self):
        """Each case of the committed quickstart with one draft length, from its own alpha, c and acceptance by position."""
        checked = 0
        for case in Run(RECORD).speculative:
            metrics, predictions = case.metrics, case.predictions
            if "leviathan_3_8" not in predictions or case.draft is None:
                continue
            names = {"alpha": metrics["alpha"], "gamma": case.gamma, "c": metrics["c"], "K": case.gamma}
            names |= {"c_hat": metrics["c_hat"], "r'": metrics["r_prime"], "a": metrics["acceptance_at"]}
            names |= {"t_t": 1, "t_d": metrics["c"]}
            for name in (
                "leviathan_eq_1",
                "leviathan_limit",
                "leviathan_3_8",
                "leviathan_3_11_ops",
                "chen_ratio",
                "chen_limit",
                "positional",
            ):
                found = compute(predictions[name]["equation"], **names)
                self.assertAlmostEqual(found, predictions[name]["value"], 5, f"{case.id}: {name}")
                checked += 1
        self.assertGreater(checked, 30)

    def test_functions_and_sums(self):
        t = lambda rows: 1 + 0.1 * rows
        self.assertAlmostEqual(compute("gamma c + t(gamma+1)", gamma=3, c=0.2, t=t), 0.6 + 1.4)
        law = compute("(f - 1 + N - sum_{i<N} (1 - alpha^i)^W) / f", f=3, N=4, alpha=0.4, W=5)
        self.assertAlmostEqual(law, (3 - 1 + 4 - sum((1 - 0.4**i) ** 5 for i in (1, 2, 3))) / 3)
        extended = compute(
            "(f - 1 + N - sum_{i<N} (1 - alpha^i)^(W^s G^(1-s))) / f", f=3, N=3, alpha=0.4, W=9, G=4, s=0.5
        )
        self.assertAlmostEqual(extended, (3 - 1 + 3 - sum((1 - 0.4**i) ** 6 for i in (1, 2))) / 3)
        self.assertAlmostEqual(compute("1 - 2 - 3"), -4)
        self.assertAlmostEqual(compute("S / t((W + G)(N - 1))", S=2, t=t, W=3, G=2, N=3), 2 / 2)


class Notation(unittest.TestCase):
    def equations(self):
        """Every equation of the committed records and of the sources."""
        found = set()
        for file in ROOT.glob("results/baselines/**/summary.json"):
            for case in Run(file.parent).cases:
                found |= {entry["equation"] for entry in (case.predictions or {}).values()}
        for name in SOURCES:
            text = re.sub(r'"\s*\n\s*"', "", (ROOT / name).read_text(encoding="utf-8"))
            found |= set(
                re.findall(r'"(?:tau|speedup|ops_factor|alpha|gamma|draft_calls|W|N|rows_per_step)",\s*"([^"]+)"', text)
            )
        return found

    def test_every_equation_is_read(self):
        equations = self.equations()
        self.assertGreater(len(equations), 30)
        for text in sorted(equations):
            markup = str(formula.mathml(text))
            self.assertTrue(markup.startswith("<math"), text)
            xml.etree.ElementTree.fromstring(markup)

    def test_no_name_is_lost(self):
        for text in sorted(self.equations()):
            shown = re.sub(r"<annotation.*?</annotation>|<[^>]*>", "", str(formula.mathml(text)))
            for word in re.findall(r"[A-Za-z]{3,}", text):
                known = formula.GREEK.get(word) or formula.BIG.get(word) or word
                if word in ("hat", "sum", "over") or word == "of" or known == "∏":
                    continue
                self.assertIn(known, shown.replace("\u00a0", " "), text)

    def test_fractions_take_whole_products_but_no_words(self):
        text = "argmax over gamma of E[tau] / (gamma c + t(gamma+1)) solved for alpha"
        kinds = [node[0] for node in formula.parse(text)[1]]
        self.assertEqual(kinds, ["text", "symbol", "text", "fraction", "text", "symbol"])
        nodes = formula.parse("sum over steps of F / sum over steps of (t(n) + calls c)")
        self.assertEqual(nodes[0], "fraction")
        self.assertEqual(nodes[1][1][0], ("big", "∑", ("text", "steps")))
        self.assertEqual([node[0] for node in formula.parse("sum_x 1 / sum_y q_y")[1]], ["big", "fraction"])

    def test_indices(self):
        self.assertEqual(formula.symbol("gamma_i"), "<msub><mi>γ</mi><mi>i</mi></msub>")
        self.assertEqual(formula.symbol("alpha2"), "<msub><mi>α</mi><mn>2</mn></msub>")
        self.assertIn("<mover", formula.symbol("c_hat"))

    def test_other_texts_stay_texts(self):
        for text in ("(1 - alpha", "a + ", "x ^", ")"):
            self.assertEqual(str(formula.mathml(text)), f"<code>{text}</code>")
        self.assertEqual(str(formula.mathml("1 < <b>")), "<code>1 &lt; &lt;b&gt;</code>")
        self.assertEqual(str(formula.mathml("")), "")

    def test_the_plain_text_is_the_annotation(self):
        self.assertIn(
            '<annotation encoding="text/plain">1 / (1 - alpha)</annotation>', formula.mathml("1 / (1 - alpha)")
        )


if __name__ == "__main__":
    unittest.main()
