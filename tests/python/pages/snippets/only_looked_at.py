"""Commands that these tests do not run, or run only in part, and the checks that are made instead."""

import json
import re
import sys

from tiny_model import ROOT, exit_status

from .laboratory import BENCH, TARGET


def mention(test, laboratory, text):
    """Checks that a command without arguments exists."""
    test.succeeds(laboratory.run_once(" ".join(text.split()[:2]) + " --help"), text)


def script(test, laboratory, text):
    """Not run, because it builds, installs, downloads, needs other programs or takes minutes. Checks that it exists and its syntax."""
    name = re.search(r"scripts/[\w/]+\.(?:sh|py)", text)[0]
    test.assertTrue((ROOT / name).exists(), text)
    checker = (
        ["bash", "-n"]
        if name.endswith(".sh")
        else [sys.executable, "-c", "import ast, sys; ast.parse(open(sys.argv[1]).read())"]
    )
    test.assertEqual(exit_status(*checker, ROOT / name), 0, text)


def adapter(test, laboratory, text):
    """Not run, because it needs a project that the reader fetches. Checks that the adapter and its function exist."""
    module, function = re.search(r"(audit\.adapters\.\w+):(\w+)", text).groups()
    code = (ROOT / "scripts" / (module.replace(".", "/") + ".py")).read_text(encoding="utf-8")
    test.assertRegex(code, rf"(?m)^(def )?{function}\b", text)


def presets(test, laboratory, text):
    """Not run, because it builds or runs all tests. Checks that its presets exist."""
    known = {one["name"] for one in json.loads((ROOT / "CMakePresets.json").read_text())["configurePresets"]}
    for name in re.findall(r"--preset (\w+)", text):
        test.assertIn(name, known, text)
    for name in re.findall(r"-D(\w+)=", text):
        test.assertIn(name, (ROOT / "CMakeLists.txt").read_text(), text)


def benchmark(test, laboratory, text):
    """Runs the command with the tiny model and lists the benchmarks instead of timing them."""
    words = text.replace("MODEL", TARGET).replace("--backend cuda", "--backend cpu").split()[1:]
    if "--model" not in words:
        words += ["--model", TARGET]
    result = laboratory.run(" ".join([str(BENCH), *words, "--benchmark_list_tests"]))
    test.assertEqual(result.returncode, 0, result.stderr)
    test.assertTrue(result.stdout.strip(), text)


def page_of_lookahead(test, laboratory, text):
    """Runs only --help, because the page needs whole runs of two configs on the real model (tests/python/runs/test_lookahead_page.py)."""
    script = text.split()[0]
    test.succeeds(laboratory.run_once(f".venv/bin/python {script} --help"), text)


def history_of_runs(test, laboratory, text):
    """Runs only --help, because the command changes committed files. tests/python/runs/test_history.py runs it in a folder of its own."""
    test.succeeds(laboratory.run_once(".venv/bin/python scripts/history.py --help"), text)


def package_install(test, laboratory, text):
    """Not run, because tests/python/package/test_install.py does. Checks that there is a package."""
    test.assertTrue((ROOT / "pyproject.toml").exists(), text)


def own_test(test, laboratory, text):
    """Not run, because a test runs the same code (tests/python/package/test_tutorial.py). Checks that its files exist."""
    for name in re.findall(r"(?:tests|python)/[\w/]+\.\w+", text):
        test.assertTrue((ROOT / name).exists(), text)
