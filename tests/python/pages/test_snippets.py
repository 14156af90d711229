"""Runs every command and code snippet of the pages, and the example of every command's --help, from the text itself.

They run in a folder with tiny random models that have the names of the real ones, so that the commands are those of the page.
snippets/rules.py says how each snippet is run: unchanged, with more options that make it short, or not at all, and then what is checked
instead. A snippet without a rule fails.
"""

import json
import os
import re
import subprocess
import tempfile
import unittest

from snippets.found import PAGES, help_examples, snippets_of_page
from snippets.laboratory import BINARY, Laboratory
from snippets.rules import COMMANDS
from tiny_model import ROOT


class Snippets(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.laboratory = Laboratory(folder.name)
        cls.checked = set()

    def succeeds(self, result, text):
        self.assertEqual(result.returncode, 0, f"{text}\n{result.stderr}{result.stdout[-500:]}")

    def check(self, snippets):
        for snippet in snippets:
            with self.subTest(str(snippet)):
                if snippet.kind in ("command", "span"):
                    plain = snippet.text.removeprefix("build/release/")
                    if plain in self.checked:
                        continue  # the example of a command's --help that is also on a page
                    self.checked.add(plain)
                    rules = [how for pattern, how in COMMANDS if re.match(pattern, plain)]
                    self.assertTrue(rules, f"{snippet} has no rule: add one to COMMANDS")
                    rules[0](self, self.laboratory, snippet.text)
                elif snippet.kind == "json":
                    (self.laboratory.folder / "snippet.json").write_text(snippet.text, encoding="utf-8")
                    self.succeeds(self.laboratory.run("speclab run snippet.json --dry-run"), snippet.text)
                elif snippet.kind == "python":
                    compile(
                        snippet.text, str(snippet), "exec"
                    )  # test_audit.py and tests/python/package/test_tutorial.py run it
                elif snippet.kind == "cpp":
                    self.compiles(snippet)
                else:
                    self.assertIn(snippet.kind, ("mermaid", "text"), f"{snippet} has no rule")  # a picture

    def compiles(self, snippet):
        """Compiles the snippet as a strategy, with the warnings of the project. The conformance tests check the rest."""
        file = self.laboratory.folder / "again.cpp"
        if file.exists() and file.read_text(encoding="utf-8") == snippet.text:
            return  # the same snippet on another page
        file.write_text(snippet.text, encoding="utf-8")
        flags = ["-std=c++20", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", f"-I{ROOT}"]
        result = subprocess.run([os.environ.get("CXX", "c++"), *flags, file], capture_output=True, text=True)
        self.assertEqual(result.returncode, 0, f"{snippet.page}:{snippet.line}\n{result.stderr}")

    def test_pages(self):
        found = {page: snippets_of_page(page) for page in PAGES}
        for page in ("README.md", "configs/README.md", "strategies/README.md", "CONTRIBUTING.md", "docs/commands.md"):
            self.assertTrue(found[page], page)
        once = {snippet.text: snippet for snippets in found.values() for snippet in snippets}  # pages share some
        self.check(once.values())

    def test_every_metric_is_in_the_description_of_the_record(self):
        listed = subprocess.run(
            [BINARY, "list", "metrics", "--json"], capture_output=True, text=True, check=True
        ).stdout
        section = (ROOT / "results/SCHEMA.md").read_text(encoding="utf-8").split("### metrics\n")[1].split("\n### ")[0]
        described = {name for row in re.findall(r"^\| ([\w, ]+) \|", section, re.M) for name in row.split(", ")}
        names = {metric["name"] for metric in json.loads(listed)}
        self.assertGreater(len(names), 40)
        self.assertEqual(names - described, set(), "add them to results/SCHEMA.md")
        self.assertEqual(described - names - {"name"}, set(), "metrics that there are not")

    def test_examples_of_help(self):
        examples = list(help_examples())
        self.assertGreater(len(examples), 10)
        self.check(examples)

    def test_a_new_kind_of_snippet_needs_a_rule(self):
        for text in ("speclab frobnicate results", "curl something"):
            self.assertFalse([pattern for pattern, _ in COMMANDS if re.match(pattern, text)], text)


if __name__ == "__main__":
    unittest.main()
