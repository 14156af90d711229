"""The package is typed: pyrefly finds no error in it or in code that uses it rightly, and finds each wrong use."""

import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

from installed import PACKAGE, ROOT

RIGHT = """
import pathlib

import numpy as np
import pandas as pd
import speclab
from speclab import theory


class Tree:
    def propose(self, context_ids: np.ndarray, k: int) -> speclab.DraftTree:
        return speclab.DraftTree([1, 2], [-1, 0])


class Rows:
    def propose(self, context_ids: np.ndarray, k: int) -> tuple[list[int], np.ndarray]:
        return [1], np.ones((1, 8)) / 8


run = speclab.load("results/runs/x")
frame: pd.DataFrame = run.cases
kept: str = run.kept
tau: float = theory.expected_tau([.5, .5], [.6, .4], 4, verifier="block")
alpha: float | None = theory.alpha_from_tokens(2.0, 4)
best: int = theory.optimal_gamma(.8, .05).gamma
estimate = theory.alpha_mle(run.rounds("a"))
value: float = estimate.value if estimate is not None else 0.
failed: bool = speclab.compare("a", "b", gates=["tau"]).failed
t: float = theory.RowTimes({1: 1.0, 5: 1.3}).at(3)
others = speclab.load_foreign(["before.prom", "after.prom"], gamma=4)
low: float | None = others.alpha().lo
predicted: pd.DataFrame = others.predict(c=.1, t=theory.RowTimes({1: 1.0}))
explained: pd.DataFrame = others.explain(speclab.load_foreign("base.jsonl"), c=.1, t=theory.RowTimes({1: 1.0}))
estimator: str = speclab.estimators()["alpha"]
written: list[pathlib.Path] = speclab.export(run, "out", "parquet", cases=["a"])
published: pd.DataFrame = speclab.anchors.load("P5")
verdicts: pd.DataFrame = speclab.anchors.check(table for table in speclab.anchors.tables() if table.pack == "P1")
measured: speclab.Run = speclab.measure_proposer(Tree(), target="model", prompts=["hi"], gamma=[2, 4])
measured = speclab.measure_proposer(Rows(), target={"markov": {"vocab": 8}}, prompts="prompts.jsonl", rule="block")
renderer: str = speclab.render(["hi"], "model", "prompts.jsonl", variables={"think": False})[0]["renderer"]
"""
WRONG = (
    "speclab.load(5)",
    'speclab.theory.expected_tokens("a", 4)',
    "speclab.theory.expected_tokens(.8, 4.5)",
    "speclab.theory.no_such_function(.8)",
    "speclab.theory.alpha_mle([]).value",
    "speclab.theory.optimal_gamma(.8, .05).speed",
    'speclab.compare("a")',
    'speclab.load("a").no_such_frame',
    'speclab.load_foreign("a", gamma="4")',
    'speclab.load_foreign("a").alpha().low',
    'speclab.load_foreign("a").explain("b")',
    'speclab.export("a", "b", "xml")',
    "speclab.render([5], 'a')",
    "speclab.measure_proposer(5, target='a', prompts=['b'])",
    "speclab.anchors.load(5)",
    'speclab.anchors.check("P5")',
)


def pyrefly(*files, cwd):
    """Runs the type checker with its default checks. Without an explicit preset it would make only a few."""
    command = [
        pathlib.Path(sys.executable).with_name("pyrefly"),
        "check",
        "--preset",
        "default",
        "--output-format",
        "min-text",
    ]
    command += ["--search-path", PACKAGE, "--python-interpreter-path", sys.executable, *files]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, env={**os.environ, "NO_COLOR": "1"})


def check(text):
    """The errors in a file with this text: {line number: message}."""
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "use.py"
        file.write_text(text)
        done = pyrefly(file, cwd=folder)
    found = re.findall(r"^ERROR \S*?use\.py:(\d+):\S*\s+(.*)$", done.stdout, re.M)
    if done.returncode not in (0, 1) or bool(found) != bool(done.returncode):
        raise AssertionError(f"pyrefly: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return {int(number): message for number, message in found}


class Types(unittest.TestCase):
    def test_right_use(self):
        self.assertEqual(check(RIGHT), {})

    def test_each_wrong_use_is_found(self):
        lines = ["import speclab", *WRONG]
        self.assertEqual(sorted(check("\n".join(lines) + "\n")), list(range(2, 2 + len(WRONG))))

    def test_the_package_itself(self):
        files = sorted((PACKAGE / "speclab").rglob("*.py"))
        self.assertGreater(len(files), 18)
        done = pyrefly(*files, cwd=ROOT)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_every_function_has_types(self):
        """The stub of the extension has no untyped argument, and the sources annotate every function."""
        stub = (PACKAGE / "speclab/theory.pyi").read_text()
        self.assertGreater(stub.count("def "), 80)
        self.assertNotIn("*args", stub)
        for file in (PACKAGE / "speclab").rglob("*.py"):
            for header in re.findall(r"^ *def [^:]*?\)[^:\n]*:", file.read_text(), re.M | re.S):
                self.assertIn("->", header, f"{file.name}: {header}")


if __name__ == "__main__":
    unittest.main()
