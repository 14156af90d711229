"""The oracles change a golden file only if they make it again from the committed inputs, never from other inputs.

The packages that the oracles need are replaced by empty ones, because a wrong command line must end before it uses them.
"""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
STUBS = {
    "tokenizers.py": "__version__ = '0'\ndef __getattr__(name):\n    return object\n",
    "jinja2.py": "__version__ = '0'\n",
    "transformers/__init__.py": "",
    "transformers/utils/__init__.py": "",
    "transformers/utils/chat_template_utils.py": "_compile_jinja_template = None\n",
}
STRINGS = "import golden_strings; o = golden_strings.parse('-', 'holes.json', 100); golden_strings.finish(o, {}, '-')"


class OracleFiles(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        shutil.copytree(ROOT / "scripts/oracle", self.root / "scripts/oracle")
        self.golden = self.root / "tests/golden"
        (self.golden / "tokenizer").mkdir(parents=True)
        for name in ("chat_templates.json", "tokenizer/generator.json", "tokenizer/holes.json"):
            shutil.copy(ROOT / "tests/golden" / name, self.golden / name)
        for name, text in STUBS.items():
            (self.root / "stubs" / name).parent.mkdir(parents=True, exist_ok=True)
            (self.root / "stubs" / name).write_text(text, encoding="utf-8")
        (self.root / "templates").mkdir()
        self.before = self.files()

    def files(self):
        return {str(file): file.read_bytes() for file in self.golden.rglob("*") if file.is_file()}

    def run_oracle(self, *words):
        environment = {**os.environ, "PYTHONPATH": f"{self.root}/stubs:{self.root}/scripts/oracle"}
        command = [sys.executable, *words]
        return subprocess.run(command, cwd=self.root, env=environment, check=False, capture_output=True, text=True)

    def test_other_inputs_need_a_file_of_their_own(self):
        for words in (
            ("scripts/oracle/chat_templates.py", "--templates", "templates"),
            ("scripts/oracle/tokenizer.py", "--tokenizer-json", "tokenizer.json"),
            ("scripts/oracle/tokenizer.py", "--strings", "5"),
            ("scripts/oracle/tokenizer.py", "--model", "other.gguf"),
            ("-c", STRINGS, "--strings", "5"),
        ):
            result = self.run_oracle(*words)
            self.assertEqual(result.returncode, 2, f"{words}: {result.stderr}")
            self.assertRegex(result.stderr, "needs? --write FILE")
            self.assertEqual(self.files(), self.before, words)

    def test_a_file_of_their_own_is_written(self):
        for words in (
            ("scripts/oracle/chat_templates.py", "--templates", "templates", "--write", "out.json"),
            ("-c", STRINGS, "--strings", "5", "--write", "out.json"),
        ):
            self.assertEqual(self.run_oracle(*words).returncode, 0, words)
            self.assertTrue((self.root / "out.json").exists(), words)
            (self.root / "out.json").unlink()
        self.assertEqual(self.files(), self.before)

    def test_the_golden_file_is_made_anew_without_options(self):
        self.assertEqual(self.run_oracle("-c", STRINGS).returncode, 0)
        changed = [name for name, data in self.files().items() if data != self.before[name]]
        self.assertEqual(changed, [str(self.golden / "tokenizer/holes.json")])


if __name__ == "__main__":
    unittest.main()
