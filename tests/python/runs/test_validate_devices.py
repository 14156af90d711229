"""scripts/validate_devices.py on made-up runs: what it compares, its verdicts, and the runs that it refuses."""

import contextlib
import io
import json
import os
import pathlib
import sys
import tempfile
import unittest
import unittest.mock

import synthetic_run

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "scripts"))

import validate_devices

# Stands in for the binary. `--export` prints which run the table is from. With a table as device it prints, for each case of
# the run, the speedup that the run of the table measured, times the factor in FACTOR.
FAKE = """#!{python}
import json, os, pathlib, sys
words = sys.argv[1:]
assert words[0] == "simulate", words
run = pathlib.Path(words[1])
if "--export" in words:
    print(json.dumps({{"table of": str(run)}}))
    sys.exit()
there = json.loads(pathlib.Path(words[words.index("--device") + 1]).read_text())["table of"]
measured = {{c["id"]: c["metrics"] for c in json.loads((pathlib.Path(there) / "summary.json").read_text())["cases"]}}
rows = []
for case in json.loads((run / "summary.json").read_text())["cases"]:
    if case["reference"] is None:
        continue
    speedup = measured[case["id"]]["speedup"] * float(os.environ["FACTOR"])
    rows.append({{"case": case["id"], "tau": case["metrics"]["tau"], "speedup": speedup, "problem": None}})
if os.environ.get("BROKEN"):
    rows[0] |= {{"speedup": None, "problem": "no times of the draft"}}
print(json.dumps([{{"cases": rows}}]))
"""


class Validation(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        binary = self.root / "speclab"
        binary.write_text(FAKE.format(python=sys.executable))
        binary.chmod(0o755)
        self.environment = {"SPECLAB_BINARY": str(binary), "FACTOR": "1.02"}
        self.folders = [self.root / name for name in ("one", "two")]
        for folder in self.folders:
            synthetic_run.write(folder)
            summary = json.loads((folder / "summary.json").read_text())
            cases = [{"id": case["id"], "options": {"gamma": case["gamma"]}} for case in summary["cases"]]
            config = {"cases": cases, "prompts": [{"id": "a", "turns": ["one text"]}], "seeds": [1]}
            (folder / "config.json").write_text(json.dumps(config))
        self.edit(1, "environment.json", lambda content: content.update(threads=1))
        self.edit(1, "summary.json", self.slower)

    def slower(self, summary):
        """Changes the speedups of the second run, so that the two directions differ."""
        for case in summary["cases"]:
            for name in ("speedup", "speedup_ci95"):
                value = case["metrics"].get(name)
                if value is not None:
                    case["metrics"][name] = [x / 2 for x in value] if isinstance(value, list) else value / 2

    def edit(self, place, name, change):
        file = self.folders[place] / name
        content = json.loads(file.read_text())
        change(content)
        file.write_text(json.dumps(content))

    def call(self, *words, **environment):
        out, err = io.StringIO(), io.StringIO()
        with (
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
            unittest.mock.patch.dict(os.environ, self.environment | environment),
        ):
            status = validate_devices.main([*map(str, self.folders), *words], self.root)
        return status, out.getvalue(), err.getvalue()

    def test_both_ways_are_compared_with_what_the_run_of_the_table_measured(self):
        status, out, err = self.call("--json")
        self.assertEqual(status, 0, err)
        result = json.loads(out)
        self.assertEqual([(way["counts"], way["times"]) for way in result["ways"]], [(0, 1), (1, 0)])
        runs = [validate_devices.Run(folder) for folder in self.folders]
        for way in result["ways"]:
            measured = {case.id: case for case in runs[way["times"]].speculative}
            counted = {case.id: case for case in runs[way["counts"]].speculative}
            self.assertEqual({case["case"] for case in way["cases"]}, set(measured))
            for case in way["cases"]:
                self.assertAlmostEqual(case["measured"], measured[case["case"]].metric("speedup"))
                self.assertAlmostEqual(case["predicted"], 1.02 * case["measured"])
                self.assertAlmostEqual(case["error"], 0.02)
                other = counted[case["case"]].metric("speedup")
                self.assertAlmostEqual(case["measured_with_the_counts"], other)
                self.assertNotAlmostEqual(case["measured"], other)

    def test_the_section_says_what_is_within_the_limit(self):
        status, out, _ = self.call()
        self.assertEqual(status, 0)
        cases = len(validate_devices.Run(self.folders[0]).speculative)
        self.assertEqual(out.count(f"All {cases} cases are within 5 %: largest error 2.0 %, median 2.0 %."), 2)
        self.assertIn("2 threads", out)
        self.assertIn("1 threads", out)
        self.assertIn("Acceptance of `one`, times exported by `two`.", out)
        self.assertIn("| +2.0 % | yes |", out)

    def test_larger_errors_fail(self):
        status, out, _ = self.call(FACTOR="1.2")
        self.assertEqual(status, 1)
        self.assertIn("**0 of ", out)
        self.assertIn("| +20.0 % | no |", out)
        self.assertEqual(self.call("--limit", ".3", FACTOR="1.2")[0], 0)

    def test_only_the_interval_reaches_the_limit(self):
        # The made-up intervals are 4 % wide on each side.
        status, out, _ = self.call(FACTOR="1.07")
        self.assertEqual(status, 1)
        self.assertIn("| +7.0 % | unclear |", out)
        self.assertEqual(validate_devices.within(1.0, 1.0, None, 0.05), "yes")
        self.assertEqual(validate_devices.within(0.9, 1.0, [0.94, 1.1], 0.05), "unclear")
        self.assertEqual(validate_devices.within(0.9, 1.0, [0.96, 1.1], 0.05), "no")
        self.assertEqual(validate_devices.within(0.9, 1.0, [None, 1.1], 0.05), "no")

    def test_a_case_that_cannot_be_priced_is_listed(self):
        status, out, _ = self.call(BROKEN="1")
        self.assertEqual(status, 0)
        self.assertEqual(out.count("Not priced: "), 2)
        self.assertIn("no times of the draft", out)

    def test_the_kind_that_a_validation_covers(self):
        def run(numerics="avx512-bf16", threads=2, flags=("avx2",), inflated=None):
            environment = {"numerics": numerics, "threads": threads, "cpu": {"flags": list(flags)}}
            environment["models"] = {"target": {"inflated": inflated} if inflated else {}}
            made = unittest.mock.Mock(environment=environment)
            return {
                "arithmetic": validate_devices.arithmetic(made),
                "threads": threads,
                "inflated": bool(validate_devices.shape(made)),
            }

        kind = lambda first, second: validate_devices.kind_of({"runs": [first, second]})
        twin = {"to": {"hidden": 896}}
        self.assertEqual(kind(run(threads=2), run(threads=1)), ("AVX-512 bf16", "1 and 2 threads"))
        self.assertEqual(kind(run(inflated=twin), run()), ("AVX-512 bf16", "SmolLM2-135M and its twins"))
        self.assertEqual(kind(run("amx-bf16"), run("amx-bf16", 1)), ("AMX", "1 and 2 threads"))
        self.assertEqual(kind(run("f32-kv16"), run("f32-kv16", 1)), ("AVX2 alone", "1 and 2 threads"))
        wide = ("avx2", "avx512f")
        for first, second in (
            (run(), run("f32-kv16")),  # two kinds of arithmetic
            (run(), run()),  # two machines
            (run(threads=4), run(threads=1)),
            (run(inflated=twin), run(threads=1)),  # differs in two things
            (run("f32-kv16", flags=wide), run("f32-kv16", 1, wide)),  # AVX2 is not all that it has
            (run("f32"), run("f32", 1)),
        ):
            self.assertIsNone(kind(first, second), (first, second))
        status, out, _ = self.call("--json")
        self.assertEqual(status, 0)
        described = json.loads(out)["runs"]
        self.assertEqual([(one["arithmetic"], one["threads"], one["inflated"]) for one in described][1], ("", 1, False))

    def test_a_kept_result_holds_no_private_path(self):
        self.assertEqual(self.call("--keep", "1t-2t")[0], 0)
        text = (self.root / "results/devices/1t-2t.json").read_text()
        self.assertNotIn(str(self.root), text)
        self.assertEqual(validate_devices.section(json.loads(text)).count("### "), 1)
        status, _, err = self.call("--keep", "../x")
        self.assertEqual(status, 2)
        self.assertIn("--keep", err)

    def test_other_models_and_experiments_are_refused(self):
        for name, change, message in (
            (
                "environment.json",
                lambda c: c["models"]["target"].update(sha256="other"),
                "target is another model than",
            ),
            ("environment.json", lambda c: c["models"].pop(list(c["models"])[-1]), "Acceptance counted"),
            ("config.json", lambda c: c["cases"].pop(), "other cases"),
            ("config.json", lambda c: c["cases"][1]["options"].update(gamma=99), "other cases"),
            ("config.json", lambda c: c["prompts"][0].update(turns=["another text"]), "other prompts"),
            ("config.json", lambda c: c.update(seeds=[99]), "other seeds"),
            ("config.json", lambda c: c.pop("seeds"), "no 'seeds'"),
        ):
            with self.subTest(message):
                file = self.folders[1] / name
                before = file.read_text()
                self.edit(1, name, change)
                status, out, err = self.call()
                self.assertEqual((status, out), (2, ""))
                self.assertIn(message, err)
                file.write_text(before)

    def test_an_inflated_twin_is_the_same_function(self):
        inflated = {"from": {"name": "m"}, "to": {"hidden": 2048}}
        self.edit(1, "environment.json", lambda content: content["models"]["target"].update(inflated=inflated))
        status, out, err = self.call()
        self.assertEqual(status, 0, err)
        self.assertIn("inflated to hidden size 2048", out)

    def test_a_busy_machine_is_marked(self):
        self.edit(0, "summary.json", lambda summary: summary.update(machine={"busy": True, "text": "Busy machine."}))
        self.assertIn("**one: Busy machine.**", self.call()[1])

    def test_the_binary_that_fails_is_quoted(self):
        binary = self.root / "speclab"
        binary.write_text("#!/bin/sh\necho 'error: no calibration' >&2\nexit 2\n")
        status, _, err = self.call()
        self.assertEqual(status, 2)
        self.assertIn("validate_devices: no calibration", err)
        binary.unlink()
        self.assertIn("Build SpecLab", self.call()[2])


if __name__ == "__main__":
    unittest.main()
