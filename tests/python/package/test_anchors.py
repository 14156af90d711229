"""speclab.anchors: every published row has the verdict and the prediction of anchor_verdicts.csv, and a row that is pushed above its
bound is flagged.

The predictions of the file come from a second implementation of the formulas in Python that does not use the library.
"""

import csv
import dataclasses
import math
import pathlib
import unittest

import installed

installed.use()

import speclab
from speclab import anchors

EXPECTED = pathlib.Path(__file__).with_name("anchor_verdicts.csv")


def rows(table):
    """{label: Row} of a table."""
    return {row.label: row for one in anchors.tables() if one.name == table for row in one.rows}


class Verdicts(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.found = anchors.check()

    def test_every_row(self):
        with EXPECTED.open(newline="", encoding="utf-8") as file:
            expected = {(one["table"], one["row"]): one for one in csv.DictReader(file)}
        self.assertEqual(set(expected), set(self.found.index))
        self.assertGreater(len(expected), 300)
        for key, one in self.found.iterrows():
            with self.subTest(key):
                self.assertEqual(one.verdict, expected[key]["verdict"])
                self.assertEqual(str(one.rounding), expected[key]["rounding"])
                if expected[key]["predicted"]:
                    predicted = float(expected[key]["predicted"])
                    self.assertAlmostEqual(one.predicted, predicted, delta=2e-5 * abs(predicted))
                else:
                    self.assertTrue(one.predicted is None or math.isnan(one.predicted))
                self.assertTrue(one.reason.endswith("."))

    def value(self, table, row, column):
        return self.found.loc[(table, row)][column]

    def test_the_c_of_leviathan_table_2(self):
        """Computed by hand as (E / S - 1) / gamma. Four of twelve rows exceed the bound of a draft that costs nothing."""
        implied = {
            "EnDe, small, 0": 0.008,
            "EnDe, base, 0": 0.069,
            "EnDe, large, 0": 0.229,
            "EnDe, small, 1": -0.001,
            "EnDe, base, 1": 0.035,
            "EnDe, large, 1": 0.279,
            "CNN/DM, small, 0": -0.030,
            "CNN/DM, base, 0": 0.010,
            "CNN/DM, large, 0": 0.075,
            "CNN/DM, small, 1": -0.019,
            "CNN/DM, base, 1": -0.027,
            "CNN/DM, large, 1": 0.068,
        }
        table = self.found.loc["leviathan_table2"]
        self.assertEqual(set(table.index), set(implied))
        for row, c in implied.items():
            self.assertAlmostEqual(table.loc[row].c, c, delta=0.0006)
            self.assertEqual(table.loc[row].verdict, "impossible c" if c < 0 else "consistent")
        self.assertEqual(list(table.index[table.rounding]), ["EnDe, small, 1"])

    def test_numbers_that_papers_or_hands_computed(self):
        for table, row, value, digits in (
            ("leviathan_lenience", "1", 2.33, 0.005),
            ("leviathan_lenience", "0.1", 4.79, 0.005),
            ("toyllm_theory", "computed in the report", 2.463, 0.0005),
            ("chen_table1", "XSum, nucleus 0.8", 14.1 / 7.52, 1e-9),
            ("lookahead_law", "W 15, G 15", 1.979, 0.0005),
            ("magicdec", "Llama-3.1-8B, 32k, batch 32, 8 L40", 3.00 * 36.62 / (44.11 + 45.12), 1e-9),
            ("eagle_chain", "Vicuna-7B", 1 + 0.79 * (1 + 0.74 * (1 + 0.72 * (1 + 0.73))), 1e-9),
            ("llama_1_formula", "V100, against the measurement", 2.16, 0.005),
        ):
            self.assertAlmostEqual(self.value(table, row, "predicted"), value, delta=digits, msg=f"{table} {row}")
        self.assertAlmostEqual(self.value("consumer_gpu", "6", "alpha"), 0.727, delta=0.0005)
        self.assertIn("takes 1.05 autoregressive steps", self.value("sequoia_a100", "Sequoia, C4, 0", "reason"))

    def test_second_hand_claims(self):
        pack = self.found[self.found.pack == "second_hand"]
        self.assertTrue(pack.second_hand.all())
        flagged = set(pack.index[pack.verdict.isin(anchors.FLAGGED)])
        for key in (
            ("claim_latency", "65B, 8 A100: text-generation-inference to SpecInfer"),  # 58/15 is 3.87 and not 2.8
            ("claim_latency", "Alpaca, a request"),
            ("claim_rates", "batching"),
            ("claim_offload", "before, 12.3 tokens/s"),
            ("claim_offload", "after, 43.1 tokens/s"),
            ("claim_batching", "throughput and latency"),
            ("claim_batching", "utilisation and throughput"),
            ("claim_kv", "KV cache -40 %"),
            ("claim_context", "32K tokens, 2.6x"),
        ):
            self.assertIn(key, flagged)
        self.assertAlmostEqual(420 / 150, 42 / 15)  # what the title of claim_batching says
        self.assertAlmostEqual(240 / 62, 58 / 15, delta=0.002 * 58 / 15)
        by_hand = 1000 * 130.0e9 / (8 * 2.039e12)  # 65 billion weights of two bytes
        self.assertAlmostEqual(self.value("claim_floor", "vLLM", "predicted"), by_hand, delta=0.02 * by_hand)

    def test_llama_cpp_3649(self):
        """260 / 5 = 52 steps emit 261 tokens; with alpha = .80 they would emit 192."""
        self.assertAlmostEqual(self.value("llama_2_alpha", "V100, 208 of 260", "predicted"), 0.9265, delta=5e-5)
        self.assertAlmostEqual(self.value("llama_3_tokens", "V100, --draft 5", "predicted"), 1 + 208 / 52)
        step = 5 * 1000 / 619.4 + 41.09  # ms: five draft forwards, the target over six rows
        self.assertAlmostEqual(self.value("llama_4_costs", "V100, --draft 5", "predicted"), 5000 / step, delta=0.05)
        spent = (503 - 384) / 14.68 + 426 / 90.20 + 426 / 25.48
        self.assertAlmostEqual(self.value("llama_5_another_run", "measured", "predicted"), 503 / spent)
        self.assertAlmostEqual(
            self.value("llama_5_another_run", "estimate of the thread", "published"), 545 / spent, delta=0.05
        )


# A change to a row that its form must flag: {form: change of the values}. Forms whose rows may lack a bound are in `free`.
PUSHED = {
    "chain": lambda row: {"speedup": row["gamma"] + 2},
    "best_length": lambda row: {"speedup": 1 / (1 - row["alpha"]) + 1},
    "chen_ratio": lambda row: {"speedup": row["r"] * (row["gamma"] + 1) + 0.01},
    "blocks": lambda row: {"tau": row["k"] + 0.01},
    "speedup_alone": lambda row: {"speedup": (row["most_tokens"] or math.inf) + 0.1},
    "utilization": lambda row: {"utilization": 1.01},
    "rank_rates": lambda row: {"success": [*row["success"][:-1], 1.01]},
    "widened_tree": lambda row: {"tau": row["depth"] + 1.01},
    "chain_in_tree": lambda row: {"tau": row["depth"] + 1.01},
    "lookahead_law": lambda row: {"tau": row["N"] + 0.01},
    "at_most": lambda row: {"value": row["bound"] + 0.01},
    "quotient": lambda row: {"speedup": 9} if row.get("speedup") else {"after": 1, "rate_after": 1e6},
    "step_cost": lambda row: {"speedup": row["tau"] + 0.1},
    "step_times": lambda row: {"tau": row["gamma"] + 1.01},
    "traffic": lambda row: {"rate_after": 1.05 * row["rate_before"] / row["traffic"]},
    "time_per_token": lambda row: {"t_token": 50},
    "weights_floor": lambda row: {"t_token": 0.99},
    "batching": lambda row: {"throughput": 9.0},
    "kv_cache": lambda row: {"ratio": 0.9},
    "long_context": lambda row: {"context": row["positions"] + 1},
    "implied_alpha": lambda row: {"alpha": 0.5},
    "utilization_tokens": lambda row: {"tau": row["gamma"] + 1.5},
    "measured_rates": lambda row: {"rate": 1000 if row.get("rate") else None},
    "counted_tokens": lambda row: {"rate": 2 * row["rate"]},
}


class Mutations(unittest.TestCase):
    def test_a_row_that_is_pushed_above_its_bound_is_flagged(self):
        pushed = set()
        for table in anchors.tables():
            for row in table.rows:
                if table.form == "alpha_alone":  # no number to push but alpha itself
                    with self.assertRaises(speclab.Error):
                        anchors.judge(table.form, dataclasses.replace(row, values={**row.values, "alpha": 1.01}))
                    continue
                change = PUSHED[table.form](row)
                free = table.form == "speedup_alone" and row["most_tokens"] is None
                free |= table.form == "quotient" and not any(row.get(name) for name in ("speedup", "tau", "most"))
                free |= table.form == "measured_rates" and row.get("rate") is None
                found = anchors.judge(table.form, dataclasses.replace(row, values={**row.values, **change}))
                with self.subTest(table=table.name, row=row.label, change=change):
                    if free:
                        self.assertEqual(found.verdict, "not enough given")
                    else:
                        self.assertIn(found.verdict, anchors.FLAGGED)
                        pushed.add(table.form)
        self.assertEqual(pushed, set(anchors.FORMS) - {"alpha_alone"})

    def test_rounding(self):
        """2.6 is above 2.574 only because of its rounding; 2.7 is not."""
        row = rows("leviathan_table2")["EnDe, small, 1"]
        self.assertTrue(anchors.judge("chain", row).rounding)
        above = dataclasses.replace(row, values={**row.values, "speedup": 2.7})
        self.assertEqual(anchors.judge("chain", above).verdict, "impossible c")
        self.assertFalse(anchors.judge("chain", above).rounding)
        below = dataclasses.replace(row, values={**row.values, "speedup": 2.5})
        self.assertEqual(anchors.judge("chain", below).verdict, "consistent")


class Data(unittest.TestCase):
    def test_load(self):
        frame = anchors.load("P5")
        self.assertEqual(frame.loc[("specinfer_table2", "greedy, Alpaca, 5")].tau, 3.43)
        self.assertEqual(frame.attrs["units"]["tau"], "tokens/step")
        self.assertIn("2305.09781", frame.attrs["sources"]["specinfer_table2"])
        self.assertEqual(frame.attrs["second_hand"], [])
        self.assertEqual(len(anchors.load("specinfer_table2")), 50)
        self.assertEqual(anchors.load("P1").attrs["second_hand"][0], "leviathan_bigram")
        for pack in anchors.PACKS:
            self.assertGreater(len(anchors.load(pack)), 0, pack)
        with self.assertRaisesRegex(speclab.Error, "no pack or table P15"):
            anchors.load("P15")

    def test_every_table_has_a_source_and_known_columns(self):
        for table in anchors.tables():
            with self.subTest(table.name):
                self.assertTrue(table.source and table.title)
                self.assertIn(table.form, anchors.FORMS)
                self.assertLessEqual(set(table.units), set(table.columns))
                for row in table.rows:
                    self.assertLessEqual(set(row.printed_to), set(row.values))

    def test_bad_files(self):
        from speclab.anchors import reading

        good = '{"pack": "P1", "source": "a", "title": "b", "second_hand": true, "form": "chain", "key": ["x"], "columns": ["x"], "rows": [[1]]}'
        self.assertEqual(reading.read_table(good, "good")["rows"], [[1]])
        for wrong, message in (
            (good.replace('"P1"', '"P99"'), "pack is P99"),
            (good.replace('"title": "b", ', ""), "missing keys"),
            (good.replace('"title"', '"subtitle": 1, "title"'), "unknown keys"),
            (good.replace("[[1]]", "[[1, 2]]"), "a row has 2 values"),
            (good.replace("[[1]]", "[[1], [1]]"), "same label"),
        ):
            with self.assertRaisesRegex(speclab.Error, message):
                reading.read_table(wrong, "bad")
        with self.assertRaisesRegex(speclab.Error, "no form guess"):
            anchors.judge("guess", rows("jacobi")["PJ, CPU, 1"])

    def test_the_page(self):
        printed = installed.python("-m", "speclab.anchors")
        self.assertEqual(printed.returncode, 0, printed.stderr)
        page = (installed.ROOT / "docs/anchors.md").read_text(encoding="utf-8")
        self.assertEqual(printed.stdout, page, "docs/anchors.md is old. Write it with: python -m speclab.anchors")


if __name__ == "__main__":
    unittest.main()
