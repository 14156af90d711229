"""speclab.compare, speclab.simulate and speclab.call: what the binary prints, as frames."""

import json
import os
import pathlib
import stat
import tempfile
import unittest
import unittest.mock

import installed

installed.use()

import speclab

BINARY = pathlib.Path(os.environ.get("SPECLAB_BINARY", installed.ROOT / "build/release/speclab"))


class Commands(unittest.TestCase):
    def setUp(self):
        self.use_binary(BINARY)

    def use_binary(self, file):
        patch = unittest.mock.patch.dict(os.environ, {"SPECLAB_BINARY": str(file)})
        patch.start()
        self.addCleanup(patch.stop)

    def fake(self, script):
        """A binary that runs a shell script."""
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        file = pathlib.Path(folder.name) / "speclab"
        file.write_text(f"#!/bin/sh\n{script}\n")
        file.chmod(file.stat().st_mode | stat.S_IXUSR)
        self.use_binary(file)
        return file

    def test_call(self):
        found = speclab.call("theory", "--alpha", ".8", "--gamma", "5")
        self.assertEqual(found["leviathan_eq_1"]["value"], speclab.theory.expected_tokens(0.8, 5))

    def test_a_failing_command_is_an_error_with_its_message(self):
        with self.assertRaisesRegex(speclab.Error, "alpha: got 2"):
            speclab.call("theory", "--alpha", "2")
        self.fake("exit 3")
        with self.assertRaisesRegex(speclab.Error, "exit code 3"):
            speclab.call("theory")

    def test_compare_a_record_with_itself(self):
        found = speclab.compare(installed.QUICKSTART, installed.QUICKSTART, gates=["tau", "alpha", "rows", "calls"])
        self.assertFalse(found.failed)
        self.assertEqual(set(found.gates.gate), {"tau", "alpha", "rows", "calls"})
        self.assertEqual(set(found.gates.change), {"equal"})
        run = speclab.load(installed.QUICKSTART)
        tau = found.gates[found.gates.gate == "tau"].set_index("case").base
        self.assertEqual(set(found.cases.index), set(run.cases.index))
        for case in tau.index:
            self.assertAlmostEqual(tau[case], run.cases.tau[case])

    def test_compare_finds_a_change(self):
        with tempfile.TemporaryDirectory() as folder:
            new = pathlib.Path(folder)
            for file in installed.QUICKSTART.glob("*.json"):
                (new / file.name).write_bytes(file.read_bytes())
            summary = json.loads((new / "summary.json").read_text())
            summary["cases"][-1]["metrics"]["tau"] += 0.1
            (new / "summary.json").write_text(json.dumps(summary))
            found = speclab.compare(installed.QUICKSTART, new, gates=["tau"])
        self.assertTrue(found.failed)
        case = summary["cases"][-1]["id"]
        self.assertEqual(list(found.cases[found.cases.failures.str.len() > 0].index), [case])
        self.assertEqual(list(found.gates[found.gates.change != "equal"].case), [case])

    def test_compare_on_times(self):
        """Reads what the command prints. The numbers are those of a script that stands in for the binary."""
        parts = {"reference": -0.02, "acceptance": 0.01, "draft": -0.3, "verification": 0.0, "overhead": 0.05}
        change = {
            "speedup": {"base": 1.5, "new": 1.2},
            "tau": {"base": 2.0, "new": 2.1},
            "ratio": 0.77,
            "ratio_ci95": [0.7, 0.8],
            "parts": {name: {"log_ratio": value, "ci95": None} for name, value in parts.items()},
        }
        case = {
            "id": "spec",
            "verdict": "slower",
            "ratio": 0.8,
            "ratio_ci95": [0.75, 0.85],
            "change": change,
            "texts": {"compared": 3, "changed": 0, "promised": True},
            "gates": [],
            "failures": ["slower"],
        }
        alone = {**change, "speedup": {"base": None, "new": None}}
        none = {"verdict": "unclear: no time", "ratio": None, "ratio_ci95": None, "change": None, "failures": []}
        printed = {
            "base": "x",
            "new": "y",
            "failed": True,
            "noise": 0.01,
            "nothing_compared": None,
            "workload_differences": [],
            "cases": [case, {**case, "id": "autoregressive", "change": alone}, {**case, **none, "id": "no_time"}],
        }
        file = self.fake(f"echo \"$@\" > $0.arguments; cat <<'END'\n{json.dumps(printed)}\nEND\nexit 1")
        found = speclab.compare("x", "y", aa=["again", pathlib.Path("twice")])
        words = file.with_name("speclab.arguments").read_text().split()
        self.assertEqual(words, ["compare", "x", "y", "--aa", "again", "--aa", "twice", "--json"])
        self.assertTrue(found.failed)
        row = found.cases.loc["spec"]
        self.assertEqual((row.verdict, row.ratio, row.ratio_lo, row.ratio_hi), ("slower", 0.8, 0.75, 0.85))
        self.assertEqual((row.speedup_base, row.speedup_new), (1.5, 1.2))
        self.assertEqual({name: row[name] for name in parts}, parts)
        self.assertEqual(found.cases.failures["spec"], ["slower"])
        without = found.cases.loc["autoregressive"]
        self.assertTrue(without[["speedup_base", "speedup_new"]].isna().all())
        self.assertEqual({name: without[name] for name in parts}, parts)
        no_time = found.cases.loc["no_time"]
        self.assertTrue(no_time[["ratio", "ratio_lo", "ratio_hi", "speedup_base", "speedup_new", *parts]].isna().all())
        self.assertTrue(found.gates.empty)

    def test_runs_that_cannot_be_compared(self):
        with self.assertRaises(speclab.Error):
            speclab.compare(installed.QUICKSTART, "/no/such/run")

    def test_simulate(self):
        """Reads what the command prints. The numbers are those of a script that stands in for the binary."""
        row = {"case": "a", "batch": 1, "speedup": 1.5, "speedup_ci95": [1.4, 1.6], "error": None}
        printed = {"device": "h100", "kind": "roofline", "source": "x", "error": None, "simulated": True}
        printed |= {"cases": [row, {**row, "case": "b", "speedup_ci95": None}], "drafts": [{"draft": "d", "c": 0.1}]}
        file = self.fake(f"echo \"$@\" > $0.arguments; cat <<'END'\n{json.dumps([printed])}\nEND")
        found = speclab.simulate("run", "h100", batch=[1, 8])
        words = file.with_name("speclab.arguments").read_text().split()
        self.assertEqual(words, ["simulate", "run", "--device", "h100", "--batch", "1,8", "--json"])
        self.assertEqual(list(found.cases.device), ["h100", "h100"])
        self.assertEqual(list(found.cases.speedup_hi)[0], 1.6)
        self.assertEqual(found.cases.attrs["units"]["speedup_lo"], "ratio")
        self.assertEqual((found.drafts.c[0], found.devices.kind[0]), (0.1, "roofline"))

    def test_a_missing_binary(self):
        self.use_binary("/no/such/binary")
        with self.assertRaisesRegex(speclab.Error, "SPECLAB_BINARY: /no/such/binary"):
            speclab.call("theory")


if __name__ == "__main__":
    unittest.main()
