"""The output of comparisons with other programs: record, page and exit code."""

import contextlib
import gzip
import io
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "scripts/compare"))

import publish
import summary


class Publish(unittest.TestCase):
    def test_record_and_page_know_no_home(self):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            peer = folder / "llama.cpp"
            peer.mkdir()
            homes = {peer: "PEER", folder: ".", None: "NOBODY"}
            record = {
                "what": "SpecLab against llama.cpp",
                "commands": [f"{peer}/bin/x -m {folder}/models/m.gguf", f"{peer}-of-another"],
                "ns": [1, 2.5, 3],
                "words": ["a", "b"],
            }
            words = [f"{folder}/scripts/compare.py", "--llama-cpp", str(peer), f"--out={folder}/r.json", "a b"]
            with mock.patch.object(sys, "argv", words), contextlib.redirect_stdout(io.StringIO()) as out:
                page = publish.Page("A title")
                page.say("a table")
                publish.publish(folder / "new/r.json", page, record, homes)
            written = gzip.decompress((folder / "new/r.json.gz").read_bytes()).decode()
            self.assertIn('"ns":[1,2.5,3]', written)
            got = json.loads(written)
            self.assertEqual(got["what"], "SpecLab against llama.cpp")
            self.assertEqual(got["commands"], ["PEER/bin/x -m ./models/m.gguf", "./llama.cpp-of-another"])
            self.assertEqual(got["command"], "./scripts/compare.py --llama-cpp PEER --out=./r.json 'a b'")
            self.assertEqual(got["words"], ["a", "b"])
            text = (folder / "new/r.md").read_text()
            self.assertTrue(text.startswith(f"# A title\n\n    {got['command']}\n\n```text\na table\n```\n"))
            self.assertIn("[r.json.gz](r.json.gz)", text)
            self.assertIn("a table", out.getvalue())

    def test_relative_paths_are_hidden_where_they_are_words(self):
        line = publish.command_line(
            ["x.py", "--llama-cpp", "../llama.cpp", "--file=../llama.cpp/a", "../llama.cpp2"],
            {pathlib.Path("../llama.cpp"): "PEER"},
        )
        self.assertEqual(line, "x.py --llama-cpp PEER --file=PEER/a ../llama.cpp2")

    def test_a_busy_machine_is_said(self):
        with contextlib.redirect_stdout(io.StringIO()):
            page = publish.Page("")
            self.assertEqual(
                page.say_how_quiet([0.0, 0.05, 0.9], "forwards", "again"),
                {"quiet": True, "others_cores_median": 0.05, "others_cores_max": 0.9},
            )
            self.assertEqual(len(page.parts), 1)
            self.assertFalse(page.say_how_quiet([0.2], "forwards", "again")["quiet"])
        self.assertEqual(page.parts[-1], "WARNING: again")

    def test_what_is_missing_is_one_line_and_code_2(self):
        for script, arguments in (
            ("compare_drafting.py", ["--speclab", "/nowhere/speclab"]),
            ("compare_llama_cpp.py", ["--llama-cpp", "/nowhere/llama.cpp"]),
        ):
            command = [sys.executable, str(ROOT / "scripts/compare" / script), *arguments]
            result = subprocess.run(command, check=False, capture_output=True, text=True)
            self.assertEqual(result.returncode, 2, result.stderr)
            self.assertTrue(result.stderr.startswith(f"{script.removesuffix('.py')}: "), result.stderr)
            self.assertNotIn("Traceback", result.stderr)


class Verdicts(unittest.TestCase):
    def entry(self, ratio, interval):
        return {"context": 128, "what": "greedy step", "a": {"ratio": ratio, "interval": interval}}

    def test_another_program_is_faster_only_if_the_interval_lies_below_1(self):
        entries = [
            self.entry(0.7, [0.6, 0.9]),
            self.entry(0.8, [0.7, 1.0]),
            self.entry(0.9, None),
            self.entry(1.1, [0.9, 1.2]),
        ]
        faster, unclear = summary.where_they_win(entries, ["a"]).split("\nLines in which it is unclear")
        self.assertEqual(faster.splitlines()[1:], ["  a, greedy step at context 128: 0.70 [0.60, 0.90]"])
        self.assertEqual(
            unclear.splitlines()[1:],
            [
                "  a, greedy step at context 128: 0.80 [0.70, 1.00]",
                "  a, greedy step at context 128: 0.90, no interval",
            ],
        )
        text = summary.where_they_win(entries[3:], ["a"])
        self.assertEqual(text.splitlines()[1::2], ["  none", "  none"])

    def test_equal_tokens_are_told_for_each_context(self):
        text = summary.same_tokens({"a": [17, 4], "b": [1, 2]}, [128, 512], 17)
        self.assertIn("Number of positions, of 17, at which", text)
        self.assertEqual(text.splitlines()[1], "  a: 17 at context 128, 4 at context 512")
        self.assertEqual(len(text.splitlines()), 3)


if __name__ == "__main__":
    unittest.main()
