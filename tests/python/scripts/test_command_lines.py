"""A short run of the fuzzer of command lines and run folders (tests/fuzz/command_lines.py), the same in every build."""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
BINARY = pathlib.Path(os.environ.get("SPECLAB_BINARY", ROOT / "build/release/speclab"))


def fuzz(binary, folder, count, seed=7):
    words = ["--binary", str(binary), "--count", str(count), "--seed", str(seed), "--findings", f"{folder}/findings"]
    return subprocess.run(
        [sys.executable, ROOT / "tests/fuzz/command_lines.py", *words], capture_output=True, text=True, cwd=folder
    )


class CommandLines(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def test_no_bug_and_no_signal(self):
        result = fuzz(BINARY, self.folder, 200)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        self.assertIn("Done 200 runs", result.stdout)
        self.assertIn("x 2", result.stdout, "errors of users were among them")
        self.assertIn("x 0", result.stdout, "and commands that work")

    def test_a_bug_is_found(self):
        """The program has a bug in every report except its help, which the fuzzer reads first."""
        shutil.copy(BINARY, self.folder / "real")
        fake = self.folder / "fake"
        words = '[ "$1" = report ] && [ "$2" != --help ] && { echo "bug: x" >&2; exit 3; }'
        fake.write_text(f'#!/bin/sh\n{words}\nexec {self.folder}/real "$@"\n', encoding="utf-8")
        for path in (fake, self.folder):
            path.chmod(0o755)
        result = fuzz(fake, self.folder, 40)
        self.assertEqual(result.returncode, 1, result.stdout + result.stderr)
        self.assertRegex(result.stdout, r"finding: \S+: exit 3: \['report'")
        self.assertTrue((self.folder / "findings/001/words.json").exists())


if __name__ == "__main__":
    unittest.main()
