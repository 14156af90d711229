"""Core, experiments and the Python package never compare the name of an acceptance rule. They ask for a property of the rule
(AcceptanceRule). The Python package lists exactly the parameters that the rules declare."""

import ast
import pathlib
import re
import sys
import unittest

from test_strategy_names import literals

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "python"))

from speclab.record import RULE_PARAMETERS  # noqa: E402


def tables():
    """The source of the tables of rules."""
    files = sorted((ROOT / "core/decoding/rules").glob("rules_*.cpp"))
    return "".join(file.read_text(encoding="utf-8") for file in files)


def rule_names():
    """The names of all rules: those in the tables, and those of rules that are made from another rule."""
    entries = re.findall(r'^ {4}\{(?:\.name = )?"(\w+)"', tables(), re.M)
    made = re.findall(r'rule\.name = "(\w+)"', tables())
    longest = re.findall(r'longest<\w+, \w+>\(\s*"\w+",\s*"(\w+)"', tables())
    return [*entries, *made, *longest]


def rule_parameters():
    """The names of the parameters that the rules declare."""
    text = (ROOT / "core/decoding/rules/rules.h").read_text(encoding="utf-8")
    return re.findall(r'RuleOption k\w+\{\s*\.name = "(\w+)"', text)


def python_literals(text):
    """The string literals of Python source."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def mentions(names):
    """(file, literal) of each literal that is the name of a rule. Whoever compares a name needs such a literal."""
    for top in ("core", "experiments", "python"):
        for file in sorted((ROOT / top).rglob("*")):
            path = file.relative_to(ROOT).as_posix()
            if path.startswith("core/decoding/rules/") or file.suffix not in {".h", ".cpp", ".cu", ".py"}:
                continue
            found = python_literals if file.suffix == ".py" else literals
            yield from ((path, literal) for literal in found(file.read_text(encoding="utf-8")) if literal in names)


# These run one rule on purpose. The bound is that of the rule "block". The benchmark times four rules.
BENCHMARKS = {("experiments/bench/trees.cpp", rule) for rule in ("rejection", "traversal", "k_seq", "multi_path_block")}
RUNS_THE_RULE = {("core/theory/step_bounds.cpp", "block"), *BENCHMARKS}
# The Python functions of closed forms take the name of a law. Their module contains no acceptance rules.
NAMES_A_LAW = {
    *(("python/bindings/bindings.h", name) for name in ("rejection", "sample_match", "coupled", "block")),
    ("python/bindings/processes.cpp", "rejection"),
    ("python/bindings/rows.cpp", "rejection"),
}
# Two parameters of rules have the name of the rule that reads them.
NAMES_A_PARAMETER = {("python/speclab/record.py", "lenience"), ("python/speclab/record.py", "gap")}
# Words that mean something else.
OTHER_WORDS = {
    ("core/measure/recorder.cpp", "rejection"),  # how a step ended
    ("experiments/simulate/replay/certainty.cpp", "exact"),  # a kind of prediction
    ("experiments/cli/command_audit.cpp", "exact"),  # what an audit found
    # A setting of a schedule.
    ("core/decoding/drafting/schedules/controller.cpp", "threshold"),
    ("experiments/simulate/replay.cpp", "threshold"),
    # The total variation of a lossy rule.
    ("core/measure/run_result.cpp", "distance"),
    ("experiments/metrics/metrics_text.cpp", "distance"),
    ("experiments/analysis/table.cpp", "distance"),
    ("python/speclab/frames.py", "distance"),
    ("python/speclab/run.py", "distance"),
    # A block of tokens of Jacobi decoding, and the number of tokens in a block of a head.
    ("experiments/simulate/replay/laws/lookahead_kinds.cpp", "block"),
    ("experiments/cli/predict/replay_laws_mode.cpp", "block"),
    ("experiments/cli/predict/command_replay.cpp", "block"),
    ("core/model/heads/falcon/falcon_form.cpp", "block"),
}
ALLOWED = RUNS_THE_RULE | NAMES_A_LAW | NAMES_A_PARAMETER | OTHER_WORDS


class RuleNames(unittest.TestCase):
    def test_every_rule_is_found(self):
        names = rule_names()
        self.assertEqual(len(names), len(set(names)))
        self.assertGreaterEqual(len(names), 28)

    def test_a_comparison_is_found(self):
        self.assertIn("iterative", set(literals('if (rule.name == "iterative") return;  // not "block"')))
        self.assertNotIn("block", set(literals('if (rule.name == "iterative") return;  // not "block"')))
        self.assertIn("typical", set(python_literals("if case.rule == 'typical':  # not 'block'\n    pass\n")))

    def test_no_rule_is_asked_for_its_name(self):
        found = set(mentions(set(rule_names())))
        advice = "say it in AcceptanceRule (core/decoding/rules/accept.h) and ask that property"
        self.assertEqual(found - ALLOWED, set(), advice)
        self.assertEqual(ALLOWED - found, set(), "no longer needed")

    def test_the_python_package_knows_every_parameter(self):
        self.assertEqual(RULE_PARAMETERS, set(rule_parameters()))
        self.assertGreaterEqual(len(RULE_PARAMETERS), 11)


if __name__ == "__main__":
    unittest.main()
