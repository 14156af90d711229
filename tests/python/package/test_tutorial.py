"""The tutorial runs from top to bottom with its stored outputs. The snippets of docs/python.md run too."""

import json
import os
import re
import unittest

import installed

installed.use()

import notebook

TUTORIAL = installed.ROOT / "python/tutorial.ipynb"


class Tutorial(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.addClassCleanup(os.chdir, os.getcwd())
        os.chdir(TUTORIAL.parent)  # where Jupyter runs it

    def test_stored_outputs_are_up_to_date(self):
        stored = json.loads(TUTORIAL.read_text(encoding="utf-8"))
        found = notebook.run(stored)
        for number, (new, old) in enumerate(zip(notebook.text_outputs(found), notebook.text_outputs(stored)), 1):
            advice = (
                "Run .venv/bin/python tests/python/package/notebook.py python/tutorial.ipynb and look at the change."
            )
            self.assertEqual(new, old, f"cell {number}. {advice}")
        self.assertGreater(sum("<figure>" in text for text in notebook.text_outputs(stored)), 0)
        self.assertEqual(
            [cell["execution_count"] for cell in stored["cells"] if cell["cell_type"] == "code"][:2], [1, 2]
        )

    def test_cells_are_plain_python(self):
        """Jupyter would also run magics (%) and shell commands (!); this runner and other tools would not."""
        for cell in json.loads(TUTORIAL.read_text(encoding="utf-8"))["cells"]:
            if cell["cell_type"] == "code":
                compile("".join(cell["source"]), "cell", "exec")

    def test_a_failing_cell_is_an_error(self):
        cell = {"cell_type": "code", "source": ["x = 1\n", "x.y"], "outputs": [], "execution_count": None}
        with self.assertRaisesRegex(notebook.CellFailed, "cell 1:(?s:.*)has no attribute 'y'"):
            notebook.run({"cells": [cell]})

    def test_outputs_are_those_of_a_notebook(self):
        cell = {"cell_type": "code", "source": ["print('a')\n", "1 + 1"], "outputs": [], "execution_count": None}
        done = notebook.run({"cells": [cell, cell]})
        self.assertEqual(notebook.text_outputs(done), ["a\n\n2", "a\n\n2"])
        self.assertEqual([one["execution_count"] for one in done["cells"]], [1, 2])
        quiet = notebook.run({"cells": [{**cell, "source": ["1 + 1;"]}]})
        self.assertEqual(notebook.text_outputs(quiet), [""])


class Page(unittest.TestCase):
    def test_snippets_run(self):
        """The Python snippets of the page run in order. A comment "# 2.95" after an expression is its value, rounded."""
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(installed.ROOT)
        page = (installed.ROOT / "docs/python.md").read_text(encoding="utf-8")
        snippets = re.findall(r"^```python\n(.*?)^```", page, re.M | re.S)
        self.assertGreater(len(snippets), 2)
        namespace, checked = {}, 0
        for snippet in snippets:
            exec(compile(snippet, "docs/python.md", "exec"), namespace)
            for expression, value in re.findall(r"^(\S.*?) +# (-?[\d.]+)$", snippet, re.M):
                expression = expression.partition(" = ")[2] or expression
                digits = len(value.partition(".")[2])
                self.assertEqual(f"{eval(expression, namespace):.{digits}f}", value, expression)
                checked += 1
        self.assertGreater(checked, 4)


if __name__ == "__main__":
    unittest.main()
