#!/usr/bin/env python3
"""Runs one file of the Python tests with the project's .venv; a CTest entry: run.py FOLDER/test_NAME.py.

Exit 77 means skipped (CTest's SKIP_RETURN_CODE): the environment or its packages are missing, and SPECLAB_OFFLINE is set.
"""

import os
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
PYTHON = ROOT / ".venv/bin/python"
PACKAGES = ("matplotlib", "jinja2", "pandas", "nanobind", "scikit_build_core", "pyarrow", "ruptures", "sklearn")
FIND = "import importlib.util, sys; sys.exit(any(importlib.util.find_spec(name) is None for name in sys.argv[1:]))"


def has_packages():
    """Finds the packages without importing them, which takes seconds. One that is there but broken fails the test."""
    return PYTHON.exists() and subprocess.run([PYTHON, "-c", FIND, *PACKAGES], capture_output=True).returncode == 0


if __name__ == "__main__":
    test = HERE / sys.argv[1]
    if not has_packages():
        print("The Python packages of scripts/requirements.txt are not in .venv. Run scripts/setup_python.sh.")
        sys.exit(77 if os.environ.get("SPECLAB_OFFLINE") else 1)
    command = [str(PYTHON), "-m", "unittest", "discover", "-s", str(test.parent), "-p", test.name]
    # Measuring the speed of the machine takes longer than most runs of the tests.
    environment = {"SPECLAB_DEVICE_SPEED": "2e10,4e11", **os.environ, "MPLBACKEND": "Agg"}
    sys.exit(subprocess.run(command, env=environment).returncode)
