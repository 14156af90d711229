"""The acceptance gate: its config is small and varied, and the script passes only if the binary finds no difference."""

import contextlib
import importlib.util
import io
import json
import pathlib
import stat
import tempfile
import unittest
import unittest.mock

ROOT = pathlib.Path(__file__).resolve().parents[3]

spec = importlib.util.spec_from_file_location("check_gate", ROOT / "tests/gate/check_gate.py")
check_gate = importlib.util.module_from_spec(spec)
spec.loader.exec_module(check_gate)


class Config(unittest.TestCase):
    config = json.loads((ROOT / "configs/gate.json").read_text(encoding="utf-8"))

    def test_it_is_small(self):
        source = self.config["prompts"]
        lines = (ROOT / source["file"]).read_text(encoding="utf-8").splitlines()
        prompts = [json.loads(line) for line in lines][: source["limit"]]
        self.assertEqual(len(prompts), 6)
        for prompt in prompts:
            self.assertEqual(len(prompt["turns"]), 1)
            self.assertLess(len(prompt["turns"][0].split()), 50)
        self.assertLessEqual(self.config["options"]["max_tokens"], 32)
        self.assertEqual((self.config["repeats"], self.config["warmup"]), (1, 0))
        self.assertIs(self.config["calibration"], False)

    def test_it_is_varied(self):
        cases = self.config["cases"]
        self.assertLessEqual(
            {"autoregressive", "speculative_sampling", "tree_speculation", "prompt_lookup", "lookahead"},
            {case["strategy"] for case in cases},
        )
        sampled = [case for case in cases if case.get("temperature", 0) > 0]
        self.assertEqual({coin for case in sampled for coin in case["coins"]}, {"independent", "gumbel"})

    def test_the_record_has_the_numerics_class_of_the_gate(self):
        record = ROOT / check_gate.RECORD
        if record.exists():
            environment = json.loads((record / "environment.json").read_text(encoding="utf-8"))
            self.assertEqual(environment["numerics"], check_gate.NUMERICS)
            self.assertEqual(json.loads((record / "config.json").read_text(encoding="utf-8"))["name"], "gate")


class Script(unittest.TestCase):
    """The script with a made-up binary that writes down its arguments."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        self.out = self.root / "out"
        (self.root / "configs").mkdir()
        (self.root / "configs/gate.json").write_text('{"target": "models/m.gguf"}')
        (self.root / "models").mkdir()
        (self.root / "models/m.gguf").touch()
        (self.root / check_gate.RECORD).mkdir(parents=True)
        (self.root / check_gate.RECORD / "summary.json").touch()

    def check(self, run=0, compare=0, machine="x86_64"):
        """(exit code, what the script and the binary say) if the commands end with these codes."""
        binary = self.root / "speclab"
        binary.write_text(f'#!/bin/sh\necho "$@" >> {self.root}/words\n[ $1 = run ] && exit {run}\nexit {compare}\n')
        binary.chmod(binary.stat().st_mode | stat.S_IXUSR)
        said = io.StringIO()
        with unittest.mock.patch("platform.machine", return_value=machine), contextlib.redirect_stdout(said):
            code = check_gate.main([str(binary), str(self.out), str(self.root)])
        words = self.root / "words"
        return code, said.getvalue(), words.read_text().splitlines() if words.exists() else []

    def test_equal_counts_pass(self):
        self.out.mkdir()
        (self.out / "old").touch()
        code, _, words = self.check()
        self.assertEqual(code, 0)
        self.assertEqual(
            words,
            [
                f"run configs/gate.json --numerics f32-kv16 --out {self.out} --quiet",
                f"compare results/baselines/any/gate {self.out} --gate tau,alpha,rows,calls",
            ],
        )
        self.assertFalse((self.out / "old").exists(), "a run of an earlier build must not stay")

    def test_any_change_fails(self):
        for code in (1, 2, 3):
            found, said, _ = self.check(compare=code)
            self.assertEqual(found, 1)
            self.assertRegex(said, f"exit code {code}.*CONTRIBUTING")

    def test_a_failed_run_fails_and_is_not_compared(self):
        code, _, words = self.check(run=1)
        self.assertEqual((code, len(words)), (1, 1))

    def test_what_is_missing_skips(self):
        def skipped(reason, **options):
            code, said, words = self.check(**options)
            self.assertEqual((code, words), (77, []))
            self.assertRegex(said, reason)

        skipped("x86 machines, and this is aarch64", machine="aarch64")
        (self.root / check_gate.RECORD / "summary.json").unlink()
        skipped("no record results/baselines/any/gate yet.*CONTRIBUTING")
        (self.root / "models/m.gguf").unlink()
        skipped("models/m.gguf is missing. scripts/get_model.sh")

    def test_it_needs_a_binary_and_a_folder(self):
        with contextlib.redirect_stdout(io.StringIO()):
            self.assertEqual(check_gate.main(["speclab"]), 2)


if __name__ == "__main__":
    unittest.main()
